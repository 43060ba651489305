//! Subsets from the annotation to the packet: our controller writes them to a real kube-apiserver, proxies
//! on nodes of three zones and two regions follow them, and connections are made all the time.

use std::collections::BTreeMap;

use serde_json::json;
use zonewise_testbed::eventually_equals;

use crate::nodes::responders;
use crate::nodes::subsets::{
    ALL, EACH_ITS_OWN, EVERYWHERE, PER_ZONE, PREFERENCE, SUBSETTING, Subsets, TRIES, UNDIVIDED,
};

/// Every value that requests subsets, switched on and off and on, under traffic: slices are divided as the
/// documents say, every node reaches exactly what it should, `route` says the same, and nothing fails. These are
/// the cases of document C's unit tests (C4): the labels of the own and of another zone and region, no label, and
/// at the end a proxy that does not look at labels.
#[tokio::test(flavor = "multi_thread")]
async fn a1_a11_a26_c1_c2_c4_c5_every_kind_of_subset_reaches_the_packets() {
    let mut subsets = Subsets::start().await;
    subsets.expect("no request", UNDIVIDED, EVERYWHERE).await;
    let connections = subsets.connections(subsets.to);
    let per_region: &[(&str, &[&str])] = &[("for-region=r", &["a", "b"]), ("for-region=s", &["c"])];
    let by_region: [&[&str]; 3] = [&["a", "b"], &["a", "b"], &["c"]];
    let steps = [
        ("Auto", json!({SUBSETTING: "Auto"}), PER_ZONE, EACH_ITS_OWN),
        ("off", json!({}), UNDIVIDED, EVERYWHERE),
        ("Auto again", json!({SUBSETTING: "Auto"}), PER_ZONE, EACH_ITS_OWN),
        ("Random", json!({SUBSETTING: "Random"}), UNDIVIDED, EVERYWHERE),
        ("Require", json!({SUBSETTING: "Require"}), PER_ZONE, EACH_ITS_OWN),
        ("Region", json!({SUBSETTING: "Region"}), per_region, by_region),
        ("local-subset", json!({PREFERENCE: "zonewise.dev/local-subset"}), PER_ZONE, EACH_ITS_OWN),
        ("require-zone", json!({PREFERENCE: "zonewise.dev/require-zone"}), PER_ZONE, EACH_ITS_OWN),
    ];
    for (step, annotations, divided, reached) in steps {
        subsets.annotate(annotations).await;
        subsets.expect(step, divided, reached).await;
        connections.more(30).await;
        assert_eq!(connections.failures(), BTreeMap::new(), "{step}");
    }

    // A zone that empties is served from all; its subset comes back with its endpoints.
    let zone_c = ["c1", "c2", "c3", "c4"];
    subsets.set_pods(&zone_c, false).await;
    let left: &[(&str, &[&str])] = &[("for-zone=a", &["a"]), ("for-zone=b", &["b"])];
    subsets.expect("zone c is empty", left, [&["a"], &["b"], &["a", "b"]]).await;
    subsets.set_pods(&zone_c, true).await;
    subsets.expect("zone c is back", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();

    subsets.replace_proxy("n2", &["--feature-gates=EndpointSliceSubsetting=false"]).await;
    let gate_off = &subsets.callers["n2"].namespace;
    let all = subsets.pods_of(ALL);
    eventually_equals("gate off", all, || responders(gate_off, subsets.to, TRIES)).await;
}
