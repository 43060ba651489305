//! The metrics of the running controller beside those of the running reference, on the same objects.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, pod, service};
use zonewise_testbed::{Cluster, Lent, eventually};

use crate::common::{Running, cluster, free_addresses, hints, samples, slices, turn, zonal_pods};

const PREFIX: &str = "endpoint_slice_controller_";
/// Gauges of the reference that depend on the objects alone.
const GAUGES: [&str; 4] = [
    "endpoint_slice_controller_endpoints_desired",
    "endpoint_slice_controller_num_endpoint_slices",
    "endpoint_slice_controller_desired_endpoint_slices",
    "endpoint_slice_controller_services_count_by_traffic_distribution",
];

/// What makes two metrics the same to a dashboard.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    kind: String,
    labels: BTreeSet<String>,
    buckets: BTreeSet<String>,
}

/// The metrics with the reference's prefix on a page.
fn shapes(page: &str) -> BTreeMap<String, Shape> {
    let mut shapes = BTreeMap::<String, Shape>::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        if name.starts_with(PREFIX) {
            shapes.entry(name.to_owned()).or_default().kind = kind.to_owned();
        }
    }
    for (name, labels, _) in samples(page) {
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        let base = base.filter(|base| shapes.contains_key(*base)).unwrap_or(name);
        let Some(shape) = shapes.get_mut(base) else { continue };
        for (label, value) in labels.split(',').filter_map(|pair| pair.split_once('=')) {
            match label {
                "le" => shape.buckets.insert(value.to_owned()),
                other => shape.labels.insert(other.to_owned()),
            };
        }
    }
    shapes
}

fn gauges(page: &str) -> BTreeMap<String, f64> {
    let known = samples(page).filter(|(name, ..)| GAUGES.contains(name));
    known.map(|(name, labels, value)| (format!("{name}{{{labels}}}"), value)).collect()
}

/// Nine Pods behind Services of each kind that the reference tells apart.
async fn shop() -> Lent {
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 3)).await.unwrap();
    let mut auto = service("shop", "auto", "web");
    auto["metadata"]["annotations"] = json!({ "service.kubernetes.io/topology-mode": "Auto" });
    let mut close = service("shop", "close", "web");
    close["spec"]["trafficDistribution"] = "PreferSameZone".into();
    let all = [auto, close, near("PreferSameZone"), service("shop", "plain", "web")];
    cluster.create(&all).await.unwrap();
    cluster.create(&[service("shop", "empty", "nobody")]).await.unwrap();
    cluster
}

/// A Service whose field changes.
fn near(value: &str) -> Value {
    let mut near = service("shop", "near", "web");
    near["spec"]["trafficDistribution"] = value.into();
    near
}

/// Sets the field, and waits until the slices follow.
async fn set_near(cluster: &Cluster, value: &str) {
    cluster.update(&[near(value)]).await.unwrap();
    eventually(|| async {
        let slices = slices(cluster, "shop", "near").await;
        let mut endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().unwrap());
        let by_node = endpoints.any(|endpoint| endpoint["hints"]["forNodes"].is_array());
        let hinted: usize = hints(&slices).values().sum();
        if (hinted, by_node) == (9, value == "PreferSameNode") {
            Ok(())
        } else {
            Err(format!("{value}: {hinted} hints, by node: {by_node}"))
        }
    })
    .await;
}

/// The page of the reference, once its gauges are as expected.
async fn page_of_the_reference(port: u16, expected: &BTreeMap<String, f64>) -> String {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    eventually(|| async {
        let request = Request::get("/metrics").body(Vec::new()).unwrap();
        let page = client.request_text(request).await.map_err(|error| error.to_string())?;
        let found = gauges(&page);
        if found == *expected {
            Ok(page)
        } else {
            Err(format!("{found:?} instead of {expected:?}"))
        }
    })
    .await
}

/// The same of this controller.
async fn page_of_ours(running: &Running, expected: &BTreeMap<String, f64>) -> String {
    eventually(|| async {
        let page = running.page("/metrics").await.map_err(|error| error.to_string())?;
        let found = gauges(&page);
        if found == *expected {
            Ok(page)
        } else {
            Err(format!("{found:?} instead of {expected:?}"))
        }
    })
    .await
}

fn expected_gauges() -> BTreeMap<String, f64> {
    let by_field = |value: &str| format!("{}{{traffic_distribution=\"{value}\"}}", GAUGES[3]);
    // Four Services with nine endpoints in a slice each, and one without endpoints.
    BTreeMap::from([
        (format!("{}{{}}", GAUGES[0]), 36.0),
        (format!("{}{{}}", GAUGES[1]), 5.0),
        (format!("{}{{}}", GAUGES[2]), 5.0),
        (by_field("PreferSameZone"), 2.0),
        // Seen before, and kept with 0.
        (by_field("PreferSameNode"), 0.0),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a16_b9_e3_metrics_are_the_references_by_name_type_labels_and_value() {
    let _turn = turn().await;
    let cluster = shop().await;
    let [address] = free_addresses();
    let port = address.port();
    let secure_port = format!("--secure-port={port}");
    let certificates = format!("--cert-dir={}", cluster.directory().join("metrics").display());
    let open = "--authorization-always-allow-paths=/metrics";
    let reference = cluster.controller_manager(&[&secure_port, &certificates, open]).unwrap();
    set_near(&cluster, "PreferSameNode").await;
    set_near(&cluster, "PreferSameZone").await;
    let theirs = shapes(&page_of_the_reference(port, &expected_gauges()).await);
    reference.stop().await.unwrap();
    assert_eq!(theirs.len(), 9, "the reference has nine: {theirs:?}");

    let running = Running::start(&cluster, "").await;
    set_near(&cluster, "PreferSameNode").await;
    set_near(&cluster, "PreferSameZone").await;
    let ours = shapes(&page_of_ours(&running, &expected_gauges()).await);
    for (name, shape) in &theirs {
        assert_eq!(ours.get(name), Some(shape), "{name}");
    }
    let more: BTreeSet<&str> = ours
        .keys()
        .filter(|name| !theirs.contains_key(*name))
        .map(|name| &name[PREFIX.len()..])
        .collect();
    let requested =
        ["changes_endpointslices_per_sync", "reallocated_endpoints_per_sync", "total_endpoints"];
    assert_eq!(more, BTreeSet::from(requested), "document A's, under the same prefix");
    what_is_desired_and_what_is_stored_differ(&cluster, &running).await;
    running.stop().await.unwrap();
}

/// A Service that cannot be written has an endpoint that should exist and does not. Its syncs are
/// errors, and count nowhere as written.
async fn what_is_desired_and_what_is_stored_differ(cluster: &Cluster, running: &Running) {
    let value = |name: &'static str, labels: &'static str| async move {
        running.metric(&format!("{PREFIX}{name}")).await.get(labels).copied().unwrap_or(0.0)
    };
    // No slice may hold a link-local address.
    let refused = pod("shop", "bad-0", "bad", "a1", "169.254.1.1");
    cluster.create(&[refused, service("shop", "bad", "bad")]).await.unwrap();
    let failed = |at_least: f64| async move {
        eventually(|| async {
            let desired = value("endpoints_desired", "").await;
            let stored = value("total_endpoints", "").await;
            let errors = value("syncs", "result=\"error\"").await;
            if (desired, stored) == (37.0, 36.0) && errors >= at_least {
                Ok(())
            } else {
                Err(format!("{desired} endpoints desired, {stored} stored, {errors} errors"))
            }
        })
        .await;
    };
    failed(1.0).await;
    let counted = || {
        let disabled = "topology=\"Disabled\",traffic_distribution=\"\"";
        value("endpointslices_changed_per_sync_count", disabled)
    };
    let before = counted().await;
    failed(3.0).await;
    assert_eq!(counted().await, before);
}
