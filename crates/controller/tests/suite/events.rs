//! Events on a real API server: one for each change of a Service's routing, however often it is synced.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, service};
use zonewise_testbed::{Cluster, eventually};

use crate::common::{Running, cluster, slices, turn, zonal_pods};

const MODE: &str = "service.kubernetes.io/topology-mode";
/// Syncs between two changes of the routing.
const SYNCS: usize = 10;

/// How often each reason was reported about a Service: the counts of its events.
async fn reported(cluster: &Cluster, service: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in cluster.list("Event", Some("shop")).await.unwrap() {
        let ours = event["reportingComponent"] == "endpoint-slice-controller";
        if ours && event["involvedObject"]["name"] == service {
            let reason = event["reason"].as_str().unwrap().to_owned();
            *counts.entry(reason).or_default() += event["count"].as_u64().unwrap();
        }
    }
    counts
}

/// Waits until the reasons were reported so often.
async fn reports(cluster: &Cluster, service: &str, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    eventually(|| async {
        let found = reported(cluster, service).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

/// Makes the controller sync the Service ten times, each time with a write of its slices.
async fn syncs(cluster: &Cluster, running: &Running, web: &mut Value, round: &str) {
    let successes = || async {
        let counts = running.metric("endpoint_slice_controller_syncs").await;
        counts.get("result=\"success\"").copied().unwrap_or(0.0)
    };
    let before = successes().await;
    for n in 0..SYNCS {
        let label = format!("{round}-{n}");
        web["metadata"]["labels"] = json!({ "round": label });
        cluster.update(std::slice::from_ref(web)).await.unwrap();
        eventually(|| async {
            let slices = slices(cluster, "shop", "web").await;
            let written = |slice: &Value| slice["metadata"]["labels"]["round"] == label.as_str();
            if slices.iter().all(written) { Ok(()) } else { Err(format!("{label} is not written")) }
        })
        .await;
    }
    eventually(|| async {
        let synced = successes().await - before;
        if synced >= SYNCS as f64 { Ok(()) } else { Err(format!("{synced} syncs")) }
    })
    .await;
}

/// Events are written one after the other: when that of a new Service is there, so are all before it.
async fn all_events_are_written(cluster: &Cluster, name: &str) {
    let mut marker = service("shop", name, "web");
    marker["metadata"]["annotations"] = json!({ MODE: "Auto" });
    cluster.create(&[marker]).await.unwrap();
    reports(cluster, name, &[("HintsAssigned", 1)]).await;
}

fn nodes_with_cpu(cpu: &str) -> Vec<Value> {
    ["a", "b", "c"].map(|zone| node(&format!("{zone}1"), zone, cpu)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_d10_one_event_per_change_however_often_a_service_is_synced() {
    let _turn = turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 3)).await.unwrap();
    let mut web = service("shop", "web", "web");
    web["metadata"]["annotations"] = json!({ MODE: "Auto" });
    let mut misspelt = service("shop", "misspelt", "web");
    misspelt["metadata"]["annotations"] =
        json!({ "zonewise.dev/routing-prefrence": "zonewise.dev/balanced" });
    cluster.create(&[web.clone(), misspelt]).await.unwrap();

    let running = Running::start(&cluster, "").await;
    reports(&cluster, "web", &[("HintsAssigned", 1)]).await;
    reports(&cluster, "misspelt", &[("KeyUnknown", 1)]).await;
    syncs(&cluster, &running, &mut web, "enabled").await;
    // Refused: a node without CPU. Then assigned again.
    cluster.update(&nodes_with_cpu("0")).await.unwrap();
    reports(&cluster, "web", &[("HintsAssigned", 1), ("NodeInformationMissing", 1)]).await;
    syncs(&cluster, &running, &mut web, "refused").await;
    cluster.update(&nodes_with_cpu("4")).await.unwrap();
    reports(&cluster, "web", &[("HintsAssigned", 2), ("NodeInformationMissing", 1)]).await;
    // Disabled.
    web["metadata"]["annotations"] = json!({ MODE: "Disabled" });
    cluster.update(&[web.clone()]).await.unwrap();
    let all = [("ClusterWide", 1), ("HintsAssigned", 2), ("NodeInformationMissing", 1)];
    reports(&cluster, "web", &all).await;
    syncs(&cluster, &running, &mut web, "disabled").await;
    all_events_are_written(&cluster, "first-marker").await;
    assert_eq!(reported(&cluster, "web").await.values().sum::<u64>(), 4);
    running.stop().await.unwrap();

    // A restart is no change.
    let running = Running::start(&cluster, "").await;
    syncs(&cluster, &running, &mut web, "restarted").await;
    all_events_are_written(&cluster, "second-marker").await;
    reports(&cluster, "web", &all).await;
    reports(&cluster, "misspelt", &[("KeyUnknown", 1)]).await;
    assert_eq!(reported(&cluster, "first-marker").await.values().sum::<u64>(), 1);
    running.stop().await.unwrap();
}
