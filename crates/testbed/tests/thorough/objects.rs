//! Objects get in, are counted, and are what the reference controller works with.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use zonewise_testbed::objects::{service, set_ready};
use zonewise_testbed::{Change, Cluster, Process, Watch};

use crate::without_controller::{
    manifests_of_the_repository_are_admitted, pods_keep_the_status_they_were_created_with,
    requests_are_counted, services_have_two_families,
};

#[tokio::test]
async fn objects_are_written_and_the_reference_controller_answers() {
    let cluster = Cluster::start().await.unwrap();
    let pods = pods_keep_the_status_they_were_created_with(&cluster).await;
    requests_are_counted(&cluster).await;
    services_have_two_families(&cluster).await;
    the_reference_controller_makes_a_slice(&cluster, &pods).await;
    manifests_of_the_repository_are_admitted(&cluster).await;
}

async fn the_reference_controller_makes_a_slice(cluster: &Cluster, pods: &[Value]) {
    let objects = cluster.objects().unwrap();
    let mut watch = objects.watch("EndpointSlice", Some("default")).await.unwrap();
    cluster.create(&[service("default", "web", "web")]).await.unwrap();
    let mut controller = cluster.controller_manager(&["--kube-api-qps=100"]).unwrap();

    wait_for_ready(&mut watch, &mut controller, 40).await;
    let mut unready = pods[0].clone();
    set_ready(&mut unready, false);
    objects.update_status(&[unready]).await.unwrap();
    wait_for_ready(&mut watch, &mut controller, 39).await;
    objects.terminate(&pods[1..2]).await.unwrap();
    wait_for_ready(&mut watch, &mut controller, 38).await;
    objects.delete(&pods[2..3]).await.unwrap();
    wait_for_ready(&mut watch, &mut controller, 37).await;

    assert!(controller.cpu_seconds().unwrap() > 0.0);
    assert!(controller.peak_rss_bytes().unwrap() > 1 << 20);
    controller.stop().await.unwrap();
}

/// Waits until the slices of the Service `web` show so many ready addresses.
async fn wait_for_ready(watch: &mut Watch<Value>, controller: &mut Process, want: usize) {
    let mut ready = BTreeSet::new();
    while ready.len() != want {
        let next = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        controller.check().unwrap();
        let (Change::Added(slice) | Change::Modified(slice)) = next.unwrap().unwrap().unwrap()
        else {
            panic!("a slice was deleted");
        };
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web" {
            let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
            let open = endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true);
            ready = open.map(|endpoint| endpoint["addresses"][0].to_string()).collect();
        }
    }
}
