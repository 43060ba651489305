//! The tables of node `n1`, for tests of one proxy that takes over from another.

use std::process::Command;

use serde_json::{Value, json};

use super::{TestNodes, service_object};

pub(crate) const THEIRS: [&str; 2] = ["ip kube-proxy", "ip6 kube-proxy"];
pub(crate) const OURS: [&str; 2] = ["ip zonewise", "ip6 zonewise"];

/// The tables of a node, by family and name.
pub(crate) fn tables(nodes: &TestNodes) -> Vec<String> {
    let text = nft(nodes, &["list", "tables"]);
    let mut all: Vec<String> =
        text.lines().map(|line| line.trim_start_matches("table ").to_owned()).collect();
    all.sort();
    all
}

pub(crate) fn texts(names: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    all.sort();
    all
}

/// Services beside the one that is asked, so that a sync is no matter of one element.
pub(crate) fn others() -> Vec<Value> {
    (0..50).map(|n| service_object(&format!("other-{n}"), "web", &json!({}))).collect()
}

pub(crate) async fn stop(nodes: &mut TestNodes) {
    let proxy = nodes.by_name.get_mut("n1").unwrap().proxy.take().unwrap();
    proxy.stop().await.unwrap();
}

/// What the `nft` program prints on the node.
pub(crate) fn nft(nodes: &TestNodes, arguments: &[&str]) -> String {
    let run = || Command::new("nft").args(arguments).output();
    let output = nodes.node("n1").namespace.enter(run);
    let output = output.expect("the nft program is needed: apt-get install nftables");
    String::from_utf8(output.stdout).unwrap()
}
