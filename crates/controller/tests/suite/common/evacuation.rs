//! Zones that are emptied, on a real API server.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::json;
use zonewise_common::clock;
use zonewise_common::time::timestamp;
use zonewise_inventory::evacuation::{self, EvacuationSpec, EvacuationStatus, Phase};
use zonewise_testbed::objects::service;
use zonewise_testbed::{Cluster, Lent, eventually};

use super::{cluster, slices, zonal_pods};

pub(crate) const SPACE: &str = "default";

/// A cluster with a Service of two Pods in each of three zones.
pub(crate) async fn with_web() -> (Lent, Client) {
    let cluster = cluster().await;
    let mut web = service(SPACE, "web", "web");
    web["spec"]["trafficDistribution"] = "PreferClose".into();
    cluster.create(&[web]).await.unwrap();
    cluster.create(&zonal_pods(SPACE, "web", 2)).await.unwrap();
    let client = cluster.admin().unwrap();
    (cluster, client)
}

pub(crate) fn spec(step_seconds: u32, lasts: i64) -> EvacuationSpec {
    EvacuationSpec {
        zone: "a".into(),
        deadline: timestamp(clock::now().as_second() + lasts).into(),
        step_seconds: Some(step_seconds),
        ..EvacuationSpec::default()
    }
}

pub(crate) async fn status(client: &Client) -> EvacuationStatus {
    evacuation::stored(client, "a").await.unwrap().unwrap().status
}

/// Waits for a phase and returns the status then. An end that is another one is an error at once.
pub(crate) async fn reached(client: &Client, phase: Phase) -> EvacuationStatus {
    let status = eventually(|| async {
        let status = status(client).await;
        if status.phase == phase || status.phase.is_over() {
            return Ok(status);
        }
        Err(format!("{status:?}"))
    })
    .await;
    assert_eq!(status.phase, phase, "{status:?}");
    status
}

/// Endpoints of a Service by zone: ready ones, and those that are taken out of use.
pub(crate) async fn endpoints(cluster: &Cluster, name: &str) -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for slice in slices(cluster, SPACE, name).await {
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let count = counts.entry(endpoint["zone"].as_str().unwrap().to_owned()).or_default();
            let aside = json!({ "ready": false, "serving": true, "terminating": true });
            count.0 += usize::from(endpoint["conditions"]["ready"] == true);
            count.1 += usize::from(endpoint["conditions"] == aside);
        }
    }
    counts
}

pub(crate) async fn expect(cluster: &Cluster, name: &str, zones: [(&str, (usize, usize)); 3]) {
    let expected: BTreeMap<String, (usize, usize)> =
        zones.map(|(zone, counts)| (zone.to_owned(), counts)).into();
    eventually(|| async {
        let found = endpoints(cluster, name).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

pub(crate) const ALL: [(&str, (usize, usize)); 3] = [("a", (2, 0)), ("b", (2, 0)), ("c", (2, 0))];
pub(crate) const WITHOUT_A: [(&str, (usize, usize)); 3] =
    [("a", (0, 2)), ("b", (2, 0)), ("c", (2, 0))];

/// The reasons of the events about the evacuation, each with the number of different messages.
pub(crate) async fn told(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in cluster.list("Event", Some(SPACE)).await.unwrap() {
        if event["involvedObject"]["kind"] == "ZoneEvacuation" {
            *counts.entry(event["reason"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}
