//! Proxies and controllers of different age on one cluster, as feature gates make them, and what document B's and
//! document D's tables say about the endpoints that each node uses; with packets.
//!
//! ```text
//!  zone a: n1  proxy of today             pods a1, a2, and x1, x2, x3
//!  zone b: n2  proxy without preferences  pods b1, b2
//!  zone c: n3  proxy without hints        pods c1, c2
//!  zone b: n4  proxy of today             a control-plane node, which has no capacity
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::{Value, json};
use zonewise_netns::NetnsPod;
use zonewise_testbed::{Lent, eventually_equals};

use crate::nodes::{
    TestNodes, cluster, cluster_ip, controller_without, pod_object, responders, service_object,
    set, stored,
};

const MODE: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
/// Name, zone, and the gate of the proxy that is off.
const NODES: [(&str, &str, Option<&str>); 4] = [
    ("n1", "a", None),
    ("n2", "b", Some("ServiceRoutingPreference")),
    ("n3", "c", Some("TopologyAwareHints")),
    ("n4", "b", None),
];
/// Enough for each of six servers to answer, as good as certainly.
const TRIES: usize = 100;
const ALL: &[&str] = &["a1", "a2", "b1", "b2", "c1", "c2"];
const OWN_A: &[&str] = &["a1", "a2"];
const OWN_B: &[&str] = &["b1", "b2"];
const OWN_C: &[&str] = &["c1", "c2"];
const CROWD: &[&str] = &["x1", "x2", "x3"];
const NOBODY: &[&str] = &[];

/// A Service: its name, the app that it selects, whether its internal policy is `Local`, and its annotations.
fn services() -> Vec<Value> {
    let rows = [
        ("both", "web", false, json!({ MODE: "Auto", PREFERENCE: "Zone" })),
        ("preference", "web", false, json!({ PREFERENCE: "Zone" })),
        ("annotation", "web", false, json!({ MODE: "Auto" })),
        ("local", "web", true, json!({ SUBSETTING: "Require" })),
        ("crowd", "crowd", false, json!({ MODE: "Auto" })),
        ("local-crowd", "crowd", true, json!({ MODE: "Auto" })),
        ("near-crowd", "crowd", false, json!({ PREFERENCE: "Zone" })),
    ];
    let service = |(name, app, local, annotations): (&str, &str, bool, Value)| {
        let policy = if local { "Local" } else { "Cluster" };
        let mut one = service_object(name, app, &json!({ "internalTrafficPolicy": policy }));
        one["metadata"]["annotations"] = annotations;
        one
    };
    rows.into_iter().map(service).collect()
}

struct Mixed {
    nodes: TestNodes,
    callers: Vec<NetnsPod>,
    addresses: BTreeMap<String, SocketAddr>,
    /// Dropped last, when nothing uses it any more.
    cluster: Lent,
}

impl Mixed {
    async fn start() -> Self {
        let cluster = cluster().await;
        let mut nodes = TestNodes::new();
        let mut objects = services();
        for (name, zone, _) in NODES {
            let mut node = nodes.add(&cluster, name, zone);
            if name == "n4" {
                node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
            }
            objects.push(node);
        }
        for name in ALL.iter().chain(CROWD) {
            let node = match &name[..1] {
                "b" => "n2",
                "c" => "n3",
                _ => "n1",
            };
            let app = if CROWD.contains(name) { "crowd" } else { "web" };
            objects.push(pod_object(&nodes.add_server(node, name), app));
        }
        let callers = NODES.map(|(node, ..)| nodes.add_pod(node, &format!("ask-{node}"))).into();
        cluster.create(&objects).await.unwrap();
        let mut addresses = BTreeMap::new();
        for service in services() {
            let name = service["metadata"]["name"].as_str().unwrap();
            addresses.insert(name.to_owned(), cluster_ip(&stored(&cluster, name).await, false));
        }
        for (node, _, off) in NODES {
            let gates = off.map(|gate| format!("--feature-gates={gate}=false"));
            let flags: Vec<&str> = gates.as_deref().into_iter().collect();
            nodes.start_proxy(&cluster, node, &flags);
        }
        Self { cluster, nodes, callers, addresses }
    }

    /// Who answers on a node for a Service. Where the first try has no answer, there are no more: each takes a
    /// while.
    fn answers(&self, node: usize, service: &str) -> BTreeSet<String> {
        let known = set(&[ALL, CROWD].concat());
        let hear =
            |tries| responders(&self.callers[node].namespace, self.addresses[service], tries);
        if hear(1).is_disjoint(&known) { BTreeSet::new() } else { hear(TRIES) }
    }

    /// Waits until every node hears exactly the expected servers.
    async fn expect(&self, step: &str, rows: &[(&str, [&[&str]; 4])]) {
        for (service, expected) in rows {
            for (number, (node, ..)) in NODES.iter().enumerate() {
                let what = format!("{step}: {service} from {node}");
                let expected = set(expected[number]);
                eventually_equals(&what, expected, || self.answers(number, service)).await;
            }
        }
    }
}

/// Which of the three endpoints of the crowd each node uses, where every zone has one by its hints.
async fn one_of_the_crowd_each(mixed: &Mixed) {
    let heard = |node: usize| mixed.answers(node, "crowd");
    eventually_equals("one for each zone", [1, 1, 3, 1], || [0, 1, 2, 3].map(|n| heard(n).len()))
        .await;
    assert_ne!(heard(0), heard(1), "zones a and b have their own");
    assert_eq!(heard(1), heard(3), "n2 and n4 are in one zone");
    assert_eq!(heard(2), set(CROWD), "n3 does not look at hints");
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_b15_b16_c9_d2_d14_every_age_of_controller_and_proxy_ends_as_the_documents_say() {
    let mixed = Mixed::start().await;
    let own = [OWN_A, OWN_B, ALL, OWN_B];
    let everywhere = [ALL; 4];

    let running = controller_without(&mixed.cluster, None);
    mixed
        .expect(
            "D14: a controller that knows preferences",
            &[
                ("both", own),
                ("preference", [OWN_A, ALL, ALL, OWN_B]),
                ("annotation", own),
                ("local", [OWN_A, OWN_B, OWN_C, NOBODY]),
            ],
        )
        .await;
    // The four rows of document B: hints for the zone (n1, n2, n4), policy Local, gate off (n3), and hints that
    // are all for another zone.
    one_of_the_crowd_each(&mixed).await;
    mixed
        .expect(
            "B15",
            &[("local-crowd", [CROWD, NOBODY, NOBODY, NOBODY]), ("near-crowd", [CROWD; 4])],
        )
        .await;
    let slices = mixed.cluster.list("EndpointSlice", Some("default")).await.unwrap();
    let divided = slices.iter().filter(|slice| {
        let label = &slice["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"];
        label.is_string()
    });
    assert_eq!(divided.count(), 0, "C9: a Service with the policy Local is not divided");
    let of_local = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "local-crowd");
    let endpoints = of_local.flat_map(|slice| slice["endpoints"].as_array().unwrap());
    let hinted = endpoints.filter(|endpoint| endpoint["hints"]["forZones"].is_array());
    // Of both address families.
    assert_eq!(hinted.count(), 2 * CROWD.len(), "B10: hints are written all the same");
    running.stop().await.unwrap();

    let running = controller_without(&mixed.cluster, Some("ServiceRoutingPreference"));
    mixed
        .expect(
            "D14: a controller that does not know preferences",
            &[("preference", everywhere), ("both", own), ("annotation", own)],
        )
        .await;
    running.stop().await.unwrap();

    let running = controller_without(&mixed.cluster, Some("TopologyAwareHints"));
    mixed
        .expect(
            "B16: a controller that does not know hints",
            &[("annotation", everywhere), ("both", everywhere), ("crowd", [CROWD; 4])],
        )
        .await;
    running.stop().await.unwrap();
    drop(mixed.nodes);
}
