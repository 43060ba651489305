//! The feature gates of the controller on the wire: proxies and connections follow on, off and on again,
//! and no connection fails on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::nodes::connections::Connections;
use crate::nodes::{
    TestNodes, cluster, cluster_ip, controller_without, pod_object, responders, service_object,
    set, stored,
};
use serde_json::json;
use zonewise_netns::NetnsPod;
use zonewise_testbed::{Cluster, eventually_equals};

const SERVERS: [&str; 6] = ["a1", "a2", "b1", "b2", "c1", "c2"];
/// Enough for each of six servers to answer, as good as certainly.
const TRIES: usize = 60;

/// A Service for each kind of topology, and the gate that ends it.
const SERVICES: [(&str, &str, &str, &str); 4] = [
    ("hints", "service.kubernetes.io/topology-mode", "Auto", "TopologyAwareHints"),
    ("own-hints", "zonewise.dev/routing-preference", "zonewise.dev/auto", "TopologyAwareHints"),
    (
        "subsets",
        "zonewise.dev/routing-preference",
        "zonewise.dev/local-subset:threshold=6,padding=0",
        "TopologyAwareSubsetting",
    ),
    (
        "shares",
        "zonewise.dev/routing-preference",
        "zonewise.dev/balanced",
        "ServiceRoutingPreference",
    ),
];

/// Two servers and a pod that asks in each of three zones, with a proxy.
async fn three_zones(cluster: &Cluster) -> (TestNodes, Vec<NetnsPod>) {
    let mut nodes = TestNodes::new();
    let zones = [("n1", "a"), ("n2", "b"), ("n3", "c")];
    let mut objects: Vec<_> =
        zones.iter().map(|(name, zone)| nodes.add(cluster, name, zone)).collect();
    for (node, name) in ["n1", "n1", "n2", "n2", "n3", "n3"].into_iter().zip(SERVERS) {
        objects.push(pod_object(&nodes.add_server(node, name), "web"));
    }
    for (name, key, value, _) in SERVICES {
        let mut service = service_object(name, "web", &json!({}));
        service["metadata"]["annotations"] = json!({ key: value });
        objects.push(service);
    }
    let callers = zones.map(|(node, _)| nodes.add_pod(node, &format!("ask-{node}"))).into();
    cluster.create(&objects).await.unwrap();
    for (node, _) in zones {
        nodes.start_proxy(cluster, node, &[]);
    }
    (nodes, callers)
}

/// Waits until every zone hears its own servers from the Services whose gate is on, and all servers from
/// the others.
async fn heard(callers: &[NetnsPod], addresses: &BTreeMap<&str, SocketAddr>, off: Option<&str>) {
    for (name, _, _, gate) in SERVICES {
        // Without the routing preference there is nothing but the annotation of Kubernetes.
        let without =
            off == Some(gate) || (off == Some("ServiceRoutingPreference") && name != "hints");
        for (caller, own) in callers.iter().zip(SERVERS.chunks(2)) {
            let expected: BTreeSet<String> = if without { set(&SERVERS) } else { set(own) };
            let what = format!("{name} from {} with {off:?} off", caller.name);
            eventually_equals(&what, expected, || {
                responders(&caller.namespace, addresses[name], TRIES)
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_b7_d16_e1_traffic_follows_the_gates_and_no_connection_fails() {
    let cluster = cluster().await;
    let (nodes, callers) = three_zones(&cluster).await;
    let mut addresses = BTreeMap::new();
    for (name, ..) in SERVICES {
        addresses.insert(name, cluster_ip(&stored(&cluster, name).await, false));
    }
    let mut running = controller_without(&cluster, None);
    heard(&callers, &addresses, None).await;
    let ways = callers
        .iter()
        .flat_map(|caller| addresses.values().map(|to| (caller.namespace.clone(), *to)))
        .collect();
    let connections = Connections::start(ways);
    for gate in ["TopologyAwareHints", "TopologyAwareSubsetting", "ServiceRoutingPreference"] {
        for off in [Some(gate), None] {
            running.stop().await.unwrap();
            running = controller_without(&cluster, off);
            heard(&callers, &addresses, off).await;
            connections.more(100).await;
            assert_eq!(connections.failures(), BTreeMap::new(), "{gate}, {off:?} off");
        }
    }
    connections.end();
    running.stop().await.unwrap();
    drop(nodes);
}
