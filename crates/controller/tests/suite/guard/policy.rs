//! The rule of the admission policy, with allocations that a test writes.

use serde_json::{Value, json};
use zonewise_slices::guard::Others;
use zonewise_slices::slice::Slice;
use zonewise_testbed::objects::endpoint_slice;
use zonewise_testbed::{Cluster, eventually};

use crate::common::guard::{MANAGED_BY, allocation, cluster, install, listed};
use crate::common::{slices, turn};

/// A slice as the built-in controller writes it, with endpoints of every kind.
fn slice(service: &str, name: &str) -> Value {
    let endpoint = |address: &str, zone: Value, ready: bool, hints: Value| {
        json!({
            "addresses": [address], "zone": zone, "nodeName": "n", "hints": hints,
            "conditions": { "ready": ready, "serving": ready, "terminating": false },
        })
    };
    let to = |zones: &[&str]| json!({ "forZones": zones.iter().map(|zone| json!({ "name": zone })).collect::<Vec<_>>() });
    let node = json!({ "forZones": [{ "name": "a" }], "forNodes": [{ "name": "n" }] });
    let mut slice = endpoint_slice(
        "default",
        service,
        name,
        &[
            endpoint("10.0.0.1", json!("a"), true, Value::Null),
            endpoint("10.0.0.2", json!("a"), true, to(&["a"])),
            endpoint("10.0.0.3", json!("b"), true, to(&["a", "c"])),
            endpoint("10.0.0.4", json!("b"), false, to(&["c"])),
            endpoint("10.0.0.5", Value::Null, true, to(&["b"])),
            endpoint("10.0.0.6", json!("a"), true, node),
            endpoint("10.0.0.7", json!("c"), false, Value::Null),
        ],
    );
    slice["metadata"]["labels"][MANAGED_BY] = "endpointslice-controller.k8s.io".into();
    slice
}

/// The endpoints of the stored slice, without what a copy does not have.
async fn stored(cluster: &Cluster, service: &str) -> Slice {
    let found = slices(cluster, "default", service).await;
    serde_json::from_value(found[0].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_does_what_plans_expect_of_it() {
    let _turn = turn().await;
    let (cluster, built_in) = cluster(&[]).await;
    drop(built_in);
    let entries = [("10.0.0.1", "b"), ("10.0.0.2", "a,c"), ("10.0.0.3", ""), ("10.0.0.4", "a")];
    let rows = [
        ("as-written", listed(Others::AsWritten, &[])),
        ("listed", listed(Others::AsWritten, &entries)),
        ("own-zone", listed(Others::OwnZone, &[])),
        ("own-zone-listed", listed(Others::OwnZone, &entries)),
        ("no-hints", listed(Others::NoHints, &[])),
        ("no-hints-listed", listed(Others::NoHints, &entries)),
    ];
    install(&cluster, &rows.each_ref().map(|(name, _)| (*name).to_owned())).await;
    for (name, spec) in &rows {
        cluster.create(&[allocation(name, spec)]).await.unwrap();
    }
    // Policies and allocations are in force a moment after they were written.
    eventually(|| async {
        cluster.create(&[slice("own-zone", "probe")]).await.map_err(|error| error.to_string())?;
        let admitted = rows[2].1.is_applied_to(&stored(&cluster, "own-zone").await);
        cluster.delete(&[slice("own-zone", "probe")]).await.map_err(|error| error.to_string())?;
        if admitted { Ok(()) } else { Err("the policy is not in force".to_owned()) }
    })
    .await;
    for (name, spec) in &rows {
        let written = slice(name, name);
        cluster.create(std::slice::from_ref(&written)).await.unwrap();
        let expected = spec.admitted(&serde_json::from_value(written).unwrap());
        assert_eq!(stored(&cluster, name).await.endpoints, expected.endpoints, "{name}");
    }
    // Slices of others, and those of Services without an allocation, stay as they are.
    let mut foreign = slice("own-zone", "foreign");
    foreign["metadata"]["labels"][MANAGED_BY] = "somebody".into();
    for written in [foreign, slice("unknown", "unknown")] {
        let expected: Slice = serde_json::from_value(written.clone()).unwrap();
        cluster.create(std::slice::from_ref(&written)).await.unwrap();
        let name = written["metadata"]["name"].as_str().unwrap();
        let objects = cluster.objects().unwrap();
        let found = objects.get("EndpointSlice", Some("default"), name).await.unwrap().unwrap();
        let found: Slice = serde_json::from_value(found).unwrap();
        assert_eq!(found.endpoints, expected.endpoints, "{name}");
    }
}
