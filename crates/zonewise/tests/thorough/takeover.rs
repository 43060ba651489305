//! From kube-proxy to ours and back, as docs/proxy.md tells people to do it, while connections are
//! made all the time: none fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::nodes::connections::Connections;
use crate::nodes::tables::{OURS, THEIRS, others, stop, tables, texts};
use crate::nodes::{
    PROBE_TIMEOUT, TestNodes, cluster, cluster_ip, node_port, pod_object, responders,
    service_object, set, stored,
};
use serde_json::json;
use zonewise_netns::traffic::OpenConnection;
use zonewise_testbed::eventually_equals;

/// Whether kube-proxy has written rules of each family, as docs/proxy.md says to find out.
fn has_synced(nodes: &TestNodes) -> bool {
    let metrics = nodes.page("n1", 10249, "/metrics").unwrap_or_default();
    let stamp = |line: &&str| line.starts_with("kubeproxy_sync_proxy_rules_last_timestamp_seconds");
    let done = |line: &&str| line.rsplit(' ').next().is_some_and(|value| value != "0");
    metrics.lines().filter(stamp).filter(done).count() == 2
}

#[tokio::test(flavor = "multi_thread")]
async fn from_kube_proxy_to_ours_and_back_no_connection_fails() {
    let cluster = cluster().await;
    let mut nodes = TestNodes::new();
    let mut objects = vec![nodes.add(&cluster, "n1", "a"), nodes.add(&cluster, "n2", "b")];
    let pods = [nodes.add_server("n1", "here"), nodes.add_server("n2", "there")];
    objects.extend(pods.iter().map(|pod| pod_object(pod, "web")));
    objects.push(service_object("web", "web", &json!({"type": "NodePort"})));
    objects.extend(others());
    cluster.create(&objects).await.unwrap();
    let _controller = cluster.controller_manager(&[]).unwrap();
    let caller = nodes.add_pod("n1", "caller").namespace;
    let outside = nodes.add_client("outside", "n1").namespace;
    let service = stored(&cluster, "web").await;
    let to = cluster_ip(&service, false);
    nodes.start_kube_proxy(&cluster, "n1", &[]);
    eventually_equals("kube-proxy", set(&["here", "there"]), || responders(&caller, to, 16)).await;
    let six = cluster_ip(&service, true);
    eventually_equals("kube-proxy", set(&["here", "there"]), || responders(&caller, six, 16)).await;

    let mut connection = OpenConnection::tcp(&caller, to, PROBE_TIMEOUT).unwrap();
    let before = connection.probe();
    let node = nodes.node("n1").namespace.clone();
    let port = node_port(&service, nodes.node("n1"), false);
    let ways = [(&caller, to), (&caller, six), (&node, to), (&outside, to), (&outside, port)];
    let connections = Connections::start(ways.map(|(from, to)| (from.clone(), to)).into());
    connections.more(50).await;
    assert_eq!(connections.failures(), BTreeMap::new(), "before");

    // There: theirs stops, ours starts and removes what theirs has left.
    stop(&mut nodes).await;
    connections.more(50).await;
    nodes.start_proxy(&cluster, "n1", &["--take-over"]);
    eventually_equals("taken over", texts(&OURS), || tables(&nodes)).await;
    connections.more(200).await;
    assert_eq!(connections.failures(), BTreeMap::new(), "while ours took over");
    assert_eq!(connection.probe(), before);

    // And back: ours stops, theirs starts, and once it has written its rules ours are removed.
    stop(&mut nodes).await;
    connections.more(50).await;
    nodes.start_kube_proxy(&cluster, "n1", &[]);
    eventually_equals("kube-proxy again", true, || has_synced(&nodes)).await;
    assert_eq!(tables(&nodes), texts(&[THEIRS, OURS].concat()));
    clean_up(&nodes);
    assert_eq!(tables(&nodes), texts(&THEIRS));
    connections.more(200).await;
    assert_eq!(connections.failures(), BTreeMap::new(), "on the way back");
    assert_eq!(connection.probe(), before);
    connections.end();
}

/// `zonewise proxy --cleanup=ours` on the node.
fn clean_up(nodes: &TestNodes) {
    let program = Path::new(env!("CARGO_BIN_EXE_zonewise"));
    let run = || Command::new(program).args(["proxy", "--cleanup=ours"]).output();
    let output = nodes.node("n1").namespace.enter(run).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
