//! The controller and the reference, one after the other.

use serde_json::json;
use zonewise_testbed::objects::{namespace, service};
use zonewise_testbed::{Cluster, eventually};

use crate::common::{
    Running, cluster, condition, eventually_nine, hints, nine_pods, slices, writes,
};

/// Changing from the reference to this controller and back writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn taking_over_from_the_reference_writes_nothing() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    nine_pods(&cluster, "shop", "web").await;
    let mut auto = service("shop", "auto", "web");
    auto["metadata"]["annotations"] = json!({ "service.kubernetes.io/topology-mode": "Auto" });
    let mut near = service("shop", "near", "web");
    near["spec"]["trafficDistribution"] = "PreferSameZone".into();
    let others = [near, service("shop", "plain", "web"), service("shop", "empty", "nobody")];
    cluster.create(&[std::slice::from_ref(&auto), &others].concat()).await.unwrap();
    let reference = cluster.controller_manager(&[]).unwrap();
    for name in ["auto", "near", "plain"] {
        eventually_nine(&cluster, "shop", name).await;
    }
    eventually(|| async {
        let found = slices(&cluster, "shop", "empty").await;
        if found.len() == 1 { Ok(()) } else { Err("no placeholder".to_owned()) }
    })
    .await;
    the_reference_gives_hints(&cluster, auto).await;
    reference.stop().await.unwrap();
    let before = writes(&cluster).await;
    let running = Running::start(&cluster, "").await;
    eventually(|| async {
        condition(&cluster, "shop", "auto", "Programmed")
            .await
            .ok_or_else(|| "not told yet".to_owned())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(writes(&cluster).await, before, "this controller had nothing to write");
    running.stop().await.unwrap();
    let before = versions(&cluster).await;
    let reference = cluster.controller_manager(&[]).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(versions(&cluster).await, before, "and neither had the reference afterwards");
    reference.stop().await.unwrap();
}

/// The versions of slices that the reference leaves alone at a start. Those of `auto` it may write
/// twice: before it has counted the nodes, and after.
async fn versions(cluster: &Cluster) -> Vec<String> {
    let mut versions = Vec::new();
    for name in ["near", "plain", "empty"] {
        let found = slices(cluster, "shop", name).await;
        versions.extend(found.iter().map(|slice| slice["metadata"]["resourceVersion"].to_string()));
    }
    versions
}

/// The reference looks at Services before it has counted the nodes, if it happens so, and then at
/// this one no more: a change of the Service makes it.
async fn the_reference_gives_hints(cluster: &Cluster, mut service: serde_json::Value) {
    let mut tries = 0;
    while hints(&slices(cluster, "shop", "auto").await).len() != 3 {
        tries += 1;
        assert!(tries < 20, "still no hints");
        service["metadata"]["labels"] = json!({ "try": tries.to_string() });
        cluster.update(std::slice::from_ref(&service)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
