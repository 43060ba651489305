//! What rules of the real kernel look like to a probe: rejected, dropped, masqueraded.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use zonewise_netns::traffic::{ProbeResult, Server, probe_tcp, probe_udp};
use zonewise_netns::{ClusterNetwork, Namespace, NetnsClient, NetnsNode, NetnsPod};

const LONG: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(300);
const PORT: u16 = 8080;

/// One chain with one rule, and nothing else.
fn rules(namespace: &Namespace, chain: &str, rule: &str) {
    let text = format!("flush ruleset\ntable inet t {{\nchain c {{\n{chain};\n{rule}\n}}\n}}\n");
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped());
    let mut child = namespace.spawn(command).expect("install nftables: this test runs nft");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "nft did not take {text}");
}

fn one_node() -> (ClusterNetwork, NetnsNode, NetnsPod, NetnsClient) {
    let mut network = ClusterNetwork::new().unwrap();
    let node = network.add_node("node", "a").unwrap();
    let pod = network.add_pod(&node, "web").unwrap();
    let client = network.add_client("client").unwrap();
    (network, node, pod, client)
}

fn on(address: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(address.into(), PORT)
}

#[test]
fn a_rejected_packet_is_refused_and_a_dropped_one_is_silent() {
    let (_network, node, pod, client) = one_node();
    let verdicts = [
        ("reject", LONG, ProbeResult::Refused),
        ("reject with icmpx type admin-prohibited", LONG, ProbeResult::Refused),
        ("reject with icmpx type host-unreachable", LONG, ProbeResult::Refused),
        ("drop", SHORT, ProbeResult::Silent),
    ];
    for (verdict, timeout, expected) in verdicts {
        for (hook, from, to) in [
            ("forward", &client.namespace, [pod.address(false), pod.address(true)]),
            ("input", &client.namespace, [node.address(false), node.address(true)]),
            ("output", &node.namespace, [pod.address(false), pod.address(true)]),
        ] {
            let rule = format!("meta l4proto {{ tcp, udp }} th dport {PORT} {verdict}");
            rules(&node.namespace, &format!("type filter hook {hook} priority 0"), &rule);
            for address in to {
                let case = format!("{verdict} in {hook} for {address}");
                assert_eq!(probe_tcp(from, on(address), timeout), expected, "TCP: {case}");
                assert_eq!(probe_udp(from, on(address), timeout), expected, "UDP: {case}");
            }
        }
    }
}

#[test]
fn a_masqueraded_packet_has_the_nodes_address() {
    let (_network, node, pod, client) = one_node();
    rules(&node.namespace, "type nat hook postrouting priority 100", "masquerade");
    for v6 in [false, true] {
        let _server = Server::both(&pod.namespace, "web", on(pod.address(v6))).unwrap();
        let expected = ProbeResult::answered_by("web", node.address(v6));
        assert_eq!(probe_tcp(&client.namespace, on(pod.address(v6)), LONG), expected);
        assert_eq!(probe_udp(&client.namespace, on(pod.address(v6)), LONG), expected);
    }
}
