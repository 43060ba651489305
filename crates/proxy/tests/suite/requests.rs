//! How many requests a proxy sends, counted at the API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_proxy::testing::Follower;
use zonewise_testbed::{Cluster, User, eventually, objects};

use crate::common::proxy_config;
use crate::common::roles::apply_roles;

const SLICES: usize = 500;
const SERVICES: usize = 50;

/// Lists, watches and single reads of EndpointSlices so far, by verb. Watches count when they start: the
/// server counts those that have ended, and shows how many run.
async fn reads(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for ((verb, resource, _), count) in cluster.request_counts().await.unwrap() {
        if resource == "endpointslices" && ["GET", "LIST", "WATCH"].contains(&&*verb) {
            *counts.entry(verb).or_default() += count;
        }
    }
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = cluster.admin().unwrap().request_text(request).await.unwrap();
    let running = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains("resource=\"endpointslices\"")
    });
    for line in running {
        let count = line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        *counts.entry("WATCH".into()).or_default() += count;
    }
    counts
}

/// 50 Services with 500 slices in a namespace: half of the Services are divided into subsets.
fn namespace_of_slices() -> Vec<Value> {
    let services = (0..SERVICES).map(|n| {
        let mut service = objects::service("many", &format!("s{n}"), "none");
        service["spec"].as_object_mut().unwrap().remove("selector");
        service
    });
    let slices = (0..SLICES).map(|n| {
        let (service, address) =
            (format!("s{}", n % SERVICES), format!("10.0.{}.{}", n / 250, n % 250));
        let endpoint = objects::endpoint(address.parse().unwrap(), "n2", "a");
        let name = format!("slice-{n}");
        let mut slice = objects::endpoint_slice("many", &service, &name, &[endpoint]);
        if n % 2 == 0 {
            slice["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"] = json!("a");
        }
        slice
    });
    services.chain(slices).collect()
}

/// Deleting a namespace of 500 slices costs each node fewer than five requests, and the right to list
/// and watch slices is all that the proxy needs.
#[tokio::test(flavor = "multi_thread")]
async fn c8_deleting_500_slices_costs_fewer_than_five_requests() {
    let cluster = Cluster::start().await.unwrap();
    apply_roles(&cluster).await;
    let mut node = objects::node("n1", "a", "4");
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.168.0.1"}]);
    cluster.create(&[objects::namespace("many"), node]).await.unwrap();
    let all = namespace_of_slices();
    cluster.create(&all).await.unwrap();
    let client = cluster.client(User::Proxy).unwrap();
    let mut proxy = Follower::start(&client, proxy_config("n1"), true).unwrap();
    let mut endpoints = async |expected: usize| {
        eventually(|| {
            let rules = proxy.rules().unwrap_or_default();
            let found = rules.matches(" : 10.0.").count();
            let message = format!("{found} endpoints instead of {expected}");
            std::future::ready(if found == expected { Ok(()) } else { Err(message) })
        })
        .await;
    };
    endpoints(SLICES).await;
    let before = reads(&cluster).await;
    // By one request, as Kubernetes deletes what is in a namespace.
    let slices = "/apis/discovery.k8s.io/v1/namespaces/many/endpointslices";
    let request = http::Request::delete(slices).body(Vec::new()).unwrap();
    cluster.admin().unwrap().request_text(request).await.unwrap();
    endpoints(0).await;
    // All Services are without endpoints now, and slices of other zones might have some.
    let settled = |settled: bool| if settled { Ok(()) } else { Err("not settled".to_owned()) };
    eventually(|| std::future::ready(settled(proxy.is_settled()))).await;
    let after = reads(&cluster).await;
    let sent: BTreeMap<&str, u64> = after
        .iter()
        .map(|(verb, count)| (&**verb, count - before.get(verb).copied().unwrap_or(0)))
        .collect();
    println!("requests for {SLICES} deleted slices: {sent:?}");
    assert!(sent.values().sum::<u64>() < 5, "{sent:?}");
}
