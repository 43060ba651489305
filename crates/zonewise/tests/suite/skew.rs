//! Proxies follow whatever slices there are, also those that no controller should write. Connections are made all the time,
//! and none fails that a ready endpoint could serve.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use zonewise_testbed::{eventually, eventually_equals, objects};

use crate::nodes::subsets::{Subsets, TRIES, ZONES};
use crate::nodes::{cluster_ip, responders, service_object, set, stored};

/// A slice: its name, the values of the labels `for-zone` and `for-region`, and its pods.
type Written = (&'static str, Option<&'static str>, Option<&'static str>, &'static [&'static str]);

/// What somebody has written, which pods each node reaches, and why.
struct Case {
    what: &'static str,
    slices: &'static [Written],
    reached: [&'static [&'static str]; 3],
    reasons: [&'static str; 3],
}

const CASES: [Case; 6] = [
    Case {
        what: "zones that nobody is in",
        slices: &[("x", Some("nowhere"), None, &["a1"]), ("y", Some(""), None, &["b1"])],
        reached: [&["a1", "b1"]; 3],
        reasons: ["SubsetEmpty"; 3],
    },
    Case {
        what: "a zone and a region that contradict each other: the zone counts",
        slices: &[("x", Some("a"), Some("s"), &["a1"]), ("y", Some("c"), Some("r"), &["b1"])],
        reached: [&["a1"], &["a1", "b1"], &["b1"]],
        reasons: ["ZoneSubset", "SubsetEmpty", "ZoneSubset"],
    },
    Case {
        what: "slices of one zone and slices for all",
        slices: &[("x", Some("a"), None, &["a1"]), ("y", None, None, &["b1"])],
        reached: [&["a1", "b1"], &["b1"], &["b1"]],
        reasons: ["SubsetsMixed", "NoHints", "NoHints"],
    },
    Case {
        what: "two writers with one endpoint, for different zones",
        slices: &[("x", Some("a"), None, &["a1", "b1"]), ("y", Some("b"), None, &["a1"])],
        reached: [&["a1", "b1"], &["a1"], &["a1", "b1"]],
        reasons: ["ZoneSubset", "ZoneSubset", "SubsetEmpty"],
    },
    Case {
        what: "two writers with the same endpoints, one of them without subsets",
        slices: &[("x", Some("a"), None, &["a1"]), ("y", None, None, &["a1", "b1"])],
        reached: [&["a1", "b1"]; 3],
        reasons: ["SubsetsMixed", "NoHints", "NoHints"],
    },
    Case {
        what: "a subset without endpoints",
        slices: &[("x", Some("a"), None, &[]), ("y", Some("b"), None, &["b1"])],
        reached: [&["b1"]; 3],
        reasons: ["SubsetEmpty", "ZoneSubset", "SubsetEmpty"],
    },
];

impl Case {
    fn objects(&self, subsets: &Subsets) -> Vec<Value> {
        let pods = subsets.nodes.network.pods();
        let endpoint = |name: &&str| {
            let pod = pods.iter().find(|pod| pod.name == **name).unwrap();
            objects::endpoint(pod.address(false), &pod.node, &pod.zone)
        };
        let object =
            |(name, zone, region, members): &Written| {
                let endpoints: Vec<Value> = members.iter().map(endpoint).collect();
                let mut slice = objects::endpoint_slice("default", "odd", name, &endpoints);
                slice["ports"] = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
                for (label, value) in [("for-zone", zone), ("for-region", region)] {
                    let labels = slice["metadata"]["labels"].as_object_mut().unwrap();
                    labels.extend(value.map(|value| {
                        (format!("endpointslice.kubernetes.io/{label}"), json!(value))
                    }));
                }
                slice
            };
        self.slices.iter().map(object).collect()
    }
}

/// The reason for the routes of the Service `odd`, as a node's proxy shows it.
fn reasons(subsets: &Subsets, node: &str) -> BTreeSet<String> {
    let page = subsets.nodes.page(node, 10249, "/routes").unwrap_or_default();
    let page: Value = serde_json::from_str(&page).unwrap_or_default();
    let all = page["routes"].as_array().into_iter().flatten();
    let odd = all.filter(|route| route["service"] == "default/odd");
    odd.filter_map(|route| Some(route["reason"].as_str()?.to_owned())).collect()
}

/// Slices of unknown zones, labels that contradict each other, two writers: every node reaches what the pages
/// say, gives the documented reason, and no connection is refused.
#[tokio::test(flavor = "multi_thread")]
async fn c7_c8_odd_slices_have_their_reason_and_refuse_no_connection() {
    let subsets = Subsets::start().await;
    let served = json!({
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
    });
    let mut service = service_object("odd", "odd", &served);
    service["spec"].as_object_mut().unwrap().remove("selector");
    subsets.cluster.create(&[service]).await.unwrap();
    let to = cluster_ip(&stored(&subsets.cluster, "odd").await, false);
    let mut connections = None;
    for case in &CASES {
        let slices = case.objects(&subsets);
        match &connections {
            None => subsets.cluster.create(&slices).await.unwrap(),
            // The second first: it has an endpoint that is ready in every case.
            Some(_) => {
                for slice in slices.iter().rev() {
                    subsets.cluster.update(std::slice::from_ref(slice)).await.unwrap();
                }
            }
        }
        for (number, (node, ..)) in ZONES.iter().enumerate() {
            let what = format!("{} from {node}", case.what);
            let caller = &subsets.callers[node].namespace;
            let expected = set(case.reached[number]);
            eventually_equals(&what, expected, || responders(caller, to, TRIES)).await;
            eventually(async || {
                let found = reasons(&subsets, node);
                let good = found == set(&[case.reasons[number]]);
                good.then_some(()).ok_or_else(|| format!("{what}: {found:?}"))
            })
            .await;
        }
        let connections = connections.get_or_insert_with(|| subsets.connections(to));
        connections.more(30).await;
        assert_eq!(connections.failures(), BTreeMap::new(), "{}", case.what);
    }
    connections.unwrap().end();
}
