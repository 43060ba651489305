//! A node whose addresses or ranges change while its proxy runs: the tables follow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::net::{IpAddr, SocketAddr};

use crate::nodes::{
    TestNodes, cluster, cluster_ip, controller, node_port, pod_object, responders, service_object,
    set, stored,
};
use serde_json::{Value, json};
use zonewise_netns::network::INTERFACE;
use zonewise_netns::traffic::{OpenConnection, ProbeResult, probe_tcp};
use zonewise_netns::{Namespace, NetnsClient, NetnsPod};
use zonewise_testbed::{Lent, Process, eventually_equals};

/// A node with a proxy and a pod that asks, another with the pod that serves, somebody outside.
struct TwoNodeSetup {
    nodes: TestNodes,
    node: Value,
    caller: NetnsPod,
    outside: NetnsClient,
    service: Value,
    _controller: Process,
    /// Dropped last, when nothing uses it any more.
    cluster: Lent,
}

impl TwoNodeSetup {
    async fn new() -> Self {
        let cluster = cluster().await;
        let mut nodes = TestNodes::new();
        let node = nodes.add(&cluster, "n1", "a");
        let other = nodes.add(&cluster, "n2", "b");
        let server = nodes.add_server("n2", "there");
        let caller = nodes.add_pod("n1", "caller");
        let outside = nodes.add_client("outside", "n1");
        let changes = json!({"type": "NodePort"});
        let service = service_object("web", "web", &changes);
        cluster.create(&[node.clone(), other, pod_object(&server, "web"), service]).await.unwrap();
        let service = stored(&cluster, "web").await;
        let _controller = controller(&cluster);
        Self { cluster, nodes, node, caller, outside, service, _controller }
    }

    /// One more address for the node's interface.
    fn add_address(&self, text: &str, length: u8) -> IpAddr {
        let address = text.parse().unwrap();
        self.nodes.node("n1").namespace.add_address(INTERFACE, address, length).unwrap();
        address
    }

    /// What the kubelet says the node's addresses are.
    async fn tell(&self, addresses: &[IpAddr]) {
        let mut node = self.node.clone();
        node["status"]["addresses"] = internal(addresses);
        self.cluster.objects().unwrap().update_status(&[node]).await.unwrap();
    }

    fn at_node_port(&self, address: IpAddr) -> SocketAddr {
        let port = node_port(&self.service, self.nodes.node("n1"), false).port();
        SocketAddr::new(address, port)
    }

    /// Who answers outside at the NodePort of an address.
    async fn answers(&self, address: IpAddr, expected: &str) {
        let to = self.at_node_port(address);
        let what = format!("NodePort on {address}");
        eventually_equals(&what, set(&[expected]), || responders(&self.outside.namespace, to, 3))
            .await;
    }

    /// Whom the server sees when the pod asks.
    async fn is_seen_as(&self, source: IpAddr) {
        let to = cluster_ip(&self.service, source.is_ipv6());
        let ask = || seen(&self.caller.namespace, to);
        eventually_equals("source", ProbeResult::answered_by("there", source), ask).await;
    }

    /// The same Node registers again, with these ranges and addresses.
    async fn register_with(&self, ranges: &[&str], addresses: &[IpAddr]) {
        self.cluster.delete(std::slice::from_ref(&self.node)).await.unwrap();
        let mut node = self.node.clone();
        node["status"]["addresses"] = internal(addresses);
        let spec = node["spec"].as_object_mut().unwrap();
        spec.remove("podCIDR");
        spec.remove("podCIDRs");
        if let [first, ..] = ranges {
            spec.insert("podCIDR".into(), json!(first));
            spec.insert("podCIDRs".into(), json!(ranges));
        }
        self.cluster.create(&[node]).await.unwrap();
    }

    fn log(&mut self) -> String {
        let path = self.nodes.proxy("n1").log().to_owned();
        std::fs::read_to_string(path).unwrap()
    }
}

/// Addresses as a Node has them.
fn internal(addresses: &[IpAddr]) -> Value {
    addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect()
}

fn seen(from: &Namespace, to: SocketAddr) -> ProbeResult {
    probe_tcp(from, to, crate::nodes::PROBE_TIMEOUT)
}

/// NodePorts move with the node's own address. A family whose own address becomes known needs other
/// rules, and not only other elements: the tables are replaced, and no connection is lost.
#[tokio::test(flavor = "multi_thread")]
async fn nodeports_follow_the_addresses_of_the_node() {
    let mut setup = TwoNodeSetup::new().await;
    let (old, old_six) =
        (setup.nodes.node("n1").address(false), setup.nodes.node("n1").address(true));
    let new = setup.add_address("192.168.0.101", 24);
    let new_six = setup.add_address("fd00:192:168::101", 64);
    setup.tell(&[old]).await;
    setup.nodes.start_proxy(&setup.cluster, "n1", &[]);
    setup.answers(old, "there").await;
    setup.answers(new, "refused").await;
    // No address of its own in this family: NodePorts answer on all.
    setup.answers(old_six, "there").await;
    setup.answers(new_six, "there").await;
    let mut connection = OpenConnection::tcp(
        &setup.outside.namespace,
        setup.at_node_port(old),
        crate::nodes::PROBE_TIMEOUT,
    )
    .unwrap();
    let before = connection.probe();

    setup.tell(&[new]).await;
    setup.answers(new, "there").await;
    setup.answers(old, "refused").await;
    assert!(!setup.log().contains("replacing the tables"), "elements were enough");

    setup.tell(&[new, old_six]).await;
    setup.answers(new_six, "refused").await;
    setup.answers(old_six, "there").await;
    setup.answers(new, "there").await;
    assert_eq!(setup.log().matches("replacing the tables").count(), 1);

    assert_eq!(connection.probe(), before, "a connection that exists keeps its endpoint");
    setup.nodes.proxy("n1").check().unwrap();
}

/// Ranges instead of the node's own address: the interfaces decide.
#[tokio::test(flavor = "multi_thread")]
async fn nodeports_follow_the_addresses_of_the_interfaces() {
    let mut setup = TwoNodeSetup::new().await;
    let own = setup.nodes.node("n1").address(false);
    let ranges = ["--nodeport-addresses=192.168.0.96/27,fd00:192:168::/64"];
    setup.nodes.start_proxy(&setup.cluster, "n1", &ranges);
    setup.answers(setup.nodes.node("n1").address(true), "there").await;
    setup.answers(own, "refused").await;
    let new = setup.add_address("192.168.0.101", 24);
    setup.answers(new, "there").await;
    setup.answers(own, "refused").await;
    setup.nodes.proxy("n1").check().unwrap();
}

/// Which packets are a pod's own depends on the node's ranges. A Node that registers anew without
/// any keeps those of before until it has new ones.
#[tokio::test(flavor = "multi_thread")]
async fn masquerading_follows_the_ranges_of_the_node() {
    let mut setup = TwoNodeSetup::new().await;
    setup.nodes.start_proxy(&setup.cluster, "n1", &["--detect-local-mode=NodeCIDR"]);
    let node = setup.nodes.node("n1").clone();
    for v6 in [false, true] {
        setup.is_seen_as(setup.caller.address(v6)).await;
    }
    // NodePorts follow the address with which it registers: once they do, the proxy has seen that it has no ranges.
    let own = [node.address(false), node.address(true)];
    let new = setup.add_address("192.168.0.101", 24);
    for address in [new, own[0]] {
        setup.register_with(&[], &[address, own[1]]).await;
        setup.answers(address, "there").await;
        for v6 in [false, true] {
            let heard = seen(&setup.caller.namespace, cluster_ip(&setup.service, v6));
            assert_eq!(heard, ProbeResult::answered_by("there", setup.caller.address(v6)));
        }
    }
    setup.register_with(&["10.99.0.0/24", "fd00:99::/64"], &own).await;
    for v6 in [false, true] {
        setup.is_seen_as(node.address(v6)).await;
    }
    setup.register_with(&["10.244.0.0/16", "fd00:10:244::/48"], &own).await;
    for v6 in [false, true] {
        setup.is_seen_as(setup.caller.address(v6)).await;
    }
    assert_eq!(setup.log().matches("replacing the tables").count(), 2);
    setup.nodes.proxy("n1").check().unwrap();
}
