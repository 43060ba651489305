//! Objects get in, are counted, and are what the reference controller works with.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_testbed::objects::{node, pod, service, set_ready};
use zonewise_testbed::{Change, Cluster, Process, Watch, manifests};

#[tokio::test]
async fn objects_are_written_and_the_reference_controller_answers() {
    let cluster = Cluster::start().await.unwrap();
    let pods = pods_keep_the_status_they_were_created_with(&cluster).await;
    requests_are_counted(&cluster).await;
    services_have_two_families(&cluster).await;
    the_reference_controller_makes_a_slice(&cluster, &pods).await;
    manifests_of_the_repository_are_admitted(&cluster).await;
}

async fn pods_keep_the_status_they_were_created_with(cluster: &Cluster) -> Vec<Value> {
    let nodes = [node("n1", "a", "4"), node("n2", "b", "3500m")];
    let pods: Vec<Value> = (1..=40)
        .map(|i| pod("default", &format!("web-{i}"), "web", "n1", &format!("10.0.0.{i}")))
        .collect();
    cluster.create(&nodes).await.unwrap();
    cluster.create(&pods).await.unwrap();

    let stored = cluster.objects().unwrap().get("Pod", Some("default"), "web-7").await.unwrap();
    let stored = stored.unwrap();
    assert_eq!(stored["status"]["podIPs"], json!([{ "ip": "10.0.0.7" }]));
    let ready = &stored["status"]["conditions"][1];
    assert_eq!((&ready["type"], &ready["status"]), (&"Ready".into(), &"True".into()));
    let stored = cluster.list("Node", None).await.unwrap();
    assert_eq!(stored[1]["status"]["allocatable"]["cpu"], "3500m");
    pods
}

async fn requests_are_counted(cluster: &Cluster) {
    let counts = cluster.request_counts().await.unwrap();
    let count = |verb: &str, code: &str| {
        counts.get(&(verb.to_owned(), "pods".to_owned(), code.to_owned())).copied()
    };
    assert_eq!((count("POST", "201"), count("PUT", "200")), (Some(40), Some(40)));
}

async fn services_have_two_families(cluster: &Cluster) {
    let mut both = service("default", "both", "none");
    both["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    cluster.create(&[both]).await.unwrap();
    let stored = cluster.objects().unwrap().get("Service", Some("default"), "both").await.unwrap();
    assert_eq!(stored.unwrap()["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
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

async fn manifests_of_the_repository_are_admitted(cluster: &Cluster) {
    let file = cluster.directory().join("two.yaml");
    let text = "# one\napiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n---\n\
                apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: web }\n---\n";
    std::fs::write(&file, text).unwrap();
    let documents = manifests(&file).unwrap();
    cluster.create(&documents).await.unwrap();
    let account = cluster.objects().unwrap().get("ServiceAccount", Some("default"), "web").await;
    assert!(account.unwrap().is_some());
    assert!(!manifests("deploy/simulate-job.yaml").unwrap().is_empty());
}
