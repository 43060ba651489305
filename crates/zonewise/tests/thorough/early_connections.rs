//! Connections whose first packet came before a node had rules for their Service.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::net::SocketAddr;
use std::process::Command;

use crate::nodes::{
    PROBE_TIMEOUT, TestNodes, cluster, cluster_ip, pod_object, responders, service_object, set,
    stored,
};
use serde_json::json;
use zonewise_netns::Namespace;
use zonewise_netns::network::NetnsPod;
use zonewise_netns::traffic::{ProbeResult, Protocol, probe_from};
use zonewise_testbed::eventually_equals;

/// Has the kernel track connections, as on a node where other programs have rules.
fn track_connections(node: &Namespace) {
    let rules = "add table ip others; \
        add chain ip others forwarded { type filter hook forward priority 0; }; \
        add rule ip others forwarded ct state new counter";
    let run = || Command::new("nft").arg(rules).output();
    let output = node.enter(run).expect("the nft program is needed: apt-get install nftables");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A connection that is tried again and again from the same port.
fn again(caller: &NetnsPod, to: SocketAddr) -> ProbeResult {
    let source = SocketAddr::new(caller.address(false), 40_001);
    probe_from(&caller.namespace, Protocol::Tcp, source, to, PROBE_TIMEOUT)
}

/// Ours forgets such connections once it has rules. kube-proxy does not, so that they find no endpoint although all others
/// do; docs/proxy.md says so.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_began_before_the_rules_are_served_and_with_kube_proxy_they_are_not() {
    let cluster = cluster().await;
    let mut nodes = TestNodes::new();
    let mut objects = vec![nodes.add(&cluster, "n1", "a"), nodes.add(&cluster, "n2", "b")];
    objects.push(pod_object(&nodes.add_server("n1", "here"), "web"));
    objects.push(service_object("web", "web", &json!({})));
    cluster.create(&objects).await.unwrap();
    let _controller = cluster.controller_manager(&[]).unwrap();
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let callers = ["n1", "n2"].map(|node| {
        track_connections(&nodes.node(node).namespace);
        nodes.add_pod(node, &format!("caller-{node}"))
    });
    for caller in &callers {
        assert_eq!(again(caller, to), ProbeResult::Silent, "there are no rules");
    }

    nodes.start_proxy(&cluster, "n1", &[]);
    nodes.start_kube_proxy(&cluster, "n2", &[]);
    for caller in &callers {
        let who = || responders(&caller.namespace, to, 4);
        eventually_equals(&caller.name, set(&["here"]), who).await;
    }
    let [by_ours, by_kube_proxy] = &callers;
    let answer = ProbeResult::answered_by("here", by_ours.address(false));
    eventually_equals("ours", answer, || again(by_ours, to)).await;
    assert_eq!(again(by_kube_proxy, to).name(), None, "kube-proxy");
}
