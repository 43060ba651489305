//! Guard mode as people run it, beside slices as the built-in controller writes them: connections go where
//! `explain --mode guard` says. (The built-in controller itself and kube-proxy are in `thorough`.)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use zonewise_netns::NetnsPod;
use zonewise_testbed::{Cluster, eventually_equals, objects};

use crate::nodes::connections::Connections;
use crate::nodes::guard::{SERVERS, ZONES, apply, expected, guard, measured};
use crate::nodes::{
    TestNodes, cluster, cluster_ip, pod_object, responders, service_object, stored,
};

/// The built-in controller's slices of the Service, one for each family. It gives hints to the own zone once the Service
/// has `spec.trafficDistribution`.
fn slices(pods: &[NetnsPod], with_hints: bool) -> Vec<Value> {
    let of_family = |v6: bool| {
        let endpoints = pods.iter().map(|pod| {
            let mut one = objects::endpoint(pod.address(v6), &pod.node, &pod.zone);
            if with_hints {
                one["hints"] = json!({"forZones": [{"name": pod.zone}]});
            }
            one
        });
        let endpoints: Vec<Value> = endpoints.collect();
        let name = if v6 { "web-six" } else { "web-four" };
        let mut slice = objects::endpoint_slice("default", "web", name, &endpoints);
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] =
            json!("endpointslice-controller.k8s.io");
        slice["addressType"] = json!(if v6 { "IPv6" } else { "IPv4" });
        slice["ports"] = json!([
            {"name": "http", "port": 8080, "protocol": "TCP"},
            {"name": "udp", "port": 8080, "protocol": "UDP"},
        ]);
        slice
    };
    [false, true].map(of_family).into()
}

/// Asks for hints, as people do.
async fn annotate(cluster: &Cluster) {
    let mut service = stored(cluster, "web").await;
    service["apiVersion"] = "v1".into();
    service["kind"] = "Service".into();
    service["status"].take();
    service["metadata"]["annotations"] =
        json!({ "zonewise.dev/routing-preference": "zonewise.dev/auto" });
    cluster.update(&[service]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_go_where_explain_says() {
    let cluster = cluster().await;
    apply(&cluster).await;
    let mut nodes = TestNodes::new();
    let mut objects: Vec<Value> =
        ZONES.iter().map(|(node, zone)| nodes.add(&cluster, node, zone)).collect();
    let servers = SERVERS.map(|(node, server)| nodes.add_server(node, server));
    objects.extend(servers.iter().map(|pod| pod_object(pod, "web")));
    objects.push(service_object("web", "web", &json!({})));
    objects.extend(slices(&servers, false));
    cluster.create(&objects).await.unwrap();
    let mut callers = BTreeMap::new();
    for (node, zone) in ZONES {
        callers.insert(zone, nodes.add_pod(node, &format!("caller-{zone}")).namespace);
        nodes.start_proxy(&cluster, node, &[]);
    }
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let all: BTreeSet<String> = SERVERS.map(|(_, server)| server.to_owned()).into();
    for caller in callers.values() {
        eventually_equals("without topology", all.clone(), || responders(caller, to, 60)).await;
    }

    annotate(&cluster).await;
    // Before anything runs, `explain` shows what would be.
    let planned = expected(&cluster);
    assert!((planned - 2.0 / 3.0).abs() < 1e-5, "{planned}");
    let ways = callers.values().map(|caller| (caller.clone(), to)).collect();
    let connections = Connections::start(ways);
    let guard = guard(&cluster);
    let floor = async || stored(&cluster, "web").await["spec"]["trafficDistribution"].is_string();
    for has_written_again in [false, true] {
        for zone in ["a", "b", "c"] {
            let caller = &callers[zone];
            eventually_equals(zone, 2, || responders(caller, to, 40).len()).await;
            let own = responders(caller, to, 40).into_iter().filter(|name| name.starts_with(zone));
            assert_eq!(own.count(), if zone == "a" { 2 } else { 1 }, "{zone}");
        }
        assert!(floor().await, "the built-in controller is asked for hints");
        // The built-in controller gives its own hints then, and the policy puts in those of the allocation.
        if !has_written_again {
            cluster.update(&slices(&servers, true)).await.unwrap();
        }
    }
    // 900 connections, of which 300 are drawn evenly from two: six standard deviations are 0.06.
    let found = measured(&callers, to);
    assert!((found - planned).abs() < 0.06, "{found} instead of {planned}");
    assert!((expected(&cluster) - planned).abs() < 1e-9, "once it is in force");
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
    guard.stop().await.unwrap();
}
