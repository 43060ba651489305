//! Traffic distribution: hints as the controllers write them, asked from every node.

use zonewise_netns::NetnsPod;
use zonewise_netns::traffic::Protocol;

use serde_json::json;

use crate::common::objects::{Endpoint, endpoint};
use crate::common::two_nodes::{FAMILIES, cluster_ip, full};
use crate::conformance::cluster::{ConformanceCluster, reached};

/// What `spec.trafficDistribution` makes of an endpoint's hints.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// `PreferClose`, `PreferSameZone`, and topology mode `Auto` where zones are even.
    SameZone,
    /// `PreferSameNode`.
    SameNode,
    Nothing,
}

fn hinted(pod: &NetnsPod, v6: bool, wish: Wish) -> Endpoint {
    let endpoint = endpoint(pod.address(v6), &pod.node, &pod.zone);
    match wish {
        Wish::SameZone => endpoint.hinted(&[&pod.zone]),
        Wish::SameNode => endpoint.hinted(&[&pod.zone]).for_nodes(&[&pod.node]),
        Wish::Nothing => endpoint,
    }
}

/// Three zones of two nodes; zone a has a pod on each, b one on its second, c none.
struct Zones {
    cluster: ConformanceCluster,
    pods: Vec<NetnsPod>,
}

impl Zones {
    fn new() -> Self {
        let mut cluster = ConformanceCluster::new(&["a", "a", "b", "b", "c", "c"]);
        let pods = [(0, "a1"), (1, "a2"), (3, "b2")].map(|(index, name)| cluster.pod(index, name));
        cluster.service(&full("svc", 1, json!({})));
        Self { cluster, pods: pods.into() }
    }

    /// Who is reached from each node.
    fn responses(&mut self, wish: Wish, present: &[&str]) -> Vec<Vec<String>> {
        let pods: Vec<&NetnsPod> =
            self.pods.iter().filter(|pod| present.contains(&&*pod.name)).collect();
        let members = |v6| pods.iter().map(|pod| hinted(pod, v6, wish)).collect();
        self.cluster.members("svc", members).sync();
        let from = |index: usize, v6| {
            reached(Protocol::Tcp, self.cluster.caller(index), cluster_ip(1, v6))
        };
        FAMILIES.map(|v6| (0..6).map(|index| from(index, v6)).collect()).into()
    }
}

#[test]
fn requests_stay_near_and_fall_back_further_away() {
    let mut zones = Zones::new();
    let all = ["a1", "a2", "b2"];
    let rows = [
        (Wish::Nothing, &all[..], ["a1 a2 b2"; 6]),
        (Wish::SameZone, &all, ["a1 a2", "a1 a2", "b2", "b2", "a1 a2 b2", "a1 a2 b2"]),
        (Wish::SameNode, &all, ["a1", "a2", "b2", "b2", "a1 a2 b2", "a1 a2 b2"]),
        // The pod of a node goes, and comes back.
        (Wish::SameNode, &["a2", "b2"], ["a2", "a2", "b2", "b2", "a2 b2", "a2 b2"]),
        (Wish::SameNode, &all, ["a1", "a2", "b2", "b2", "a1 a2 b2", "a1 a2 b2"]),
        // A whole zone goes.
        (Wish::SameZone, &["a1", "a2"], ["a1 a2"; 6]),
        (Wish::SameNode, &["a1", "a2"], ["a1", "a2", "a1 a2", "a1 a2", "a1 a2", "a1 a2"]),
    ];
    for (wish, present, expected) in rows {
        let responses = zones.responses(wish, present);
        for (v6, responses) in FAMILIES.into_iter().zip(responses) {
            assert_eq!(responses, expected, "{wish:?} of {present:?}, IPv6 {v6}");
        }
    }
}
