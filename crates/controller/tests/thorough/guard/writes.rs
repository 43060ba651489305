//! What guard mode costs: writes per change of a Pod, and large Services.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use zonewise_slices::guard::{Others, ZoneAllocation};
use zonewise_testbed::objects::service;
use zonewise_testbed::{Cluster, eventually};

use crate::common::guard::{allocation, cluster, hints, install, pods, tell, versions};
use crate::common::{slices, turn};

/// PUTs of EndpointSlices that the API server has answered.
async fn puts(cluster: &Cluster) -> u64 {
    let counts = cluster.request_counts().await.unwrap();
    let is_put = |(verb, resource, _): &(String, String, String)| {
        verb == "PUT" && resource == "endpointslices"
    };
    counts.iter().filter(|(key, _)| is_put(key)).map(|(_, count)| count).sum()
}

/// Waits until no slice is written any more.
async fn settled(cluster: &Cluster) -> u64 {
    let mut last = puts(cluster).await;
    loop {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let now = puts(cluster).await;
        if now == last {
            return now;
        }
        last = now;
    }
}

/// One Pod of a Service is deleted: with the floor, the built-in controller writes the slices that hold an endpoint with
/// other hints; without it, every slice.
#[tokio::test(flavor = "multi_thread")]
async fn the_floor_keeps_writes_few() {
    let _turn = turn().await;
    // Two endpoints in each slice; many writes at once, so that they are counted and not waited for.
    let flags = ["--max-endpoints-per-slice=2", "--kube-api-qps=500", "--kube-api-burst=500"];
    let (cluster, _built_in) = cluster(&flags).await;
    let cases = [1, 10, 50].map(|count| [true, false].map(|floor| Case { floor, count }));
    let names = cases.as_flattened().iter().map(Case::name);
    install(&cluster, &names.collect::<Vec<_>>()).await;
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    for case in cases.as_flattened() {
        all.push((case, case.set_up(&cluster, 150 * all.len()).await));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (case, _) in &all {
        touch(&cluster, &case.name()).await;
    }
    for (case, pods) in &all {
        let before = settled(&cluster).await;
        cluster.delete(&pods[1..2]).await.unwrap();
        let after = settled(&cluster).await;
        let kept = pods[0]["status"]["podIP"].as_str().unwrap();
        let found = hints(&cluster, &case.name()).await;
        assert_eq!(found.get(kept).map(String::as_str), Some("b"), "{}", case.name());
        rows.push((case.floor, case.count, after - before));
    }
    let shown = |&(floor, count, puts): &(bool, usize, u64)| {
        let floor = if floor { "PreferSameZone" } else { "none" };
        vec![floor.to_owned(), count.to_string(), puts.to_string()]
    };
    let header = ["floor", "slices", "PUTs per deleted Pod"].map(str::to_owned).to_vec();
    tell(&std::iter::once(header).chain(rows.iter().map(shown)).collect::<Vec<_>>());
    for (floor, count, puts) in rows {
        let limit = if floor { 6 } else { 3 * count as u64 + 6 };
        assert!(puts <= limit, "{count} slices, floor {floor}: {puts} PUTs");
    }
}

/// A Service with so many slices, on a floor or without.
struct Case {
    floor: bool,
    count: usize,
}

impl Case {
    fn name(&self) -> String {
        format!("{}-{}", if self.floor { "floor" } else { "none" }, self.count)
    }

    /// Creates the Service, and its allocation, by which the first endpoint serves another zone. Returns its Pods.
    async fn set_up(&self, cluster: &Cluster, first: usize) -> Vec<Value> {
        let name = self.name();
        let all = pods(&name, first, [2 * self.count, 0, 0]);
        cluster.create(&all).await.unwrap();
        let mut object = service("default", &name, &name);
        if self.floor {
            object["spec"]["trafficDistribution"] = "PreferSameZone".into();
        }
        cluster.create(&[object]).await.unwrap();
        let moved = all[0]["status"]["podIP"].as_str().unwrap();
        let endpoints = BTreeMap::from([(moved.into(), "b".into())]);
        cluster.create(&[allocation(&name, &all_but(endpoints))]).await.unwrap();
        eventually(|| async {
            let found = hints(cluster, &name).await.len();
            let expected = 2 * self.count;
            if found == expected { Ok(()) } else { Err(format!("{name}: {found} endpoints")) }
        })
        .await;
        all
    }
}

/// An allocation by which all endpoints but these serve their own zone.
fn all_but(endpoints: BTreeMap<Box<str>, Box<str>>) -> ZoneAllocation {
    ZoneAllocation { others: Others::OwnZone, endpoints, floor: None }
}

/// Sends patches without content, as the controller does.
async fn touch(cluster: &Cluster, name: &str) {
    let client = cluster.admin().unwrap();
    for slice in slices(cluster, "default", name).await {
        let slice = serde_json::from_value(slice).unwrap();
        zonewise_inventory::guard::touch(&client, &slice).await.unwrap();
    }
}

/// A thousand endpoints that all have other hints than the floor's, in slices of a hundred and in one of a thousand: the
/// policy stays within the API server's limits for expressions.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_endpoints_are_within_the_limits_of_expressions() {
    const ENDPOINTS: usize = 1000;
    let _turn = turn().await;
    let (cluster, built_in) = cluster(&["--max-endpoints-per-slice=100"]).await;
    install(&cluster, &["hundreds".to_owned(), "one".to_owned()]).await;
    let all = pods("web", 0, [ENDPOINTS, 0, 0]);
    let address = |pod: &Value| Box::from(pod["status"]["podIP"].as_str().unwrap());
    let spec = all_but(all.iter().map(|pod| (address(pod), "b,c".into())).collect());
    cluster.create(&all).await.unwrap();
    cluster.create(&["hundreds", "one"].map(|name| allocation(name, &spec))).await.unwrap();
    let named = |name: &str| {
        let mut object = service("default", name, "web");
        object["spec"]["trafficDistribution"] = "PreferSameZone".into();
        object
    };
    cluster.create(&[named("hundreds")]).await.unwrap();
    let whole = async |name: &str, slices: usize| {
        eventually(|| async {
            let found = hints(&cluster, name).await;
            let moved = found.values().filter(|zones| *zones == "b,c").count();
            let stored = versions(&cluster, name).await.len();
            let is_whole = (moved, stored) == (ENDPOINTS, slices);
            let message = || format!("{name}: {moved} moved of {} in {stored}", found.len());
            if is_whole { Ok(()) } else { Err(message()) }
        })
        .await;
    };
    whole("hundreds", ENDPOINTS / 100).await;
    drop(built_in);
    let _built_in = cluster.controller_manager(&["--max-endpoints-per-slice=1000"]).unwrap();
    cluster.create(&[named("one")]).await.unwrap();
    whole("one", 1).await;
}
