//! Subsets beside a proxy that does not know them, at their thresholds, during a rolling update, and with flows.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::json;
use zonewise_netns::traffic::OpenConnection;
use zonewise_testbed::eventually_equals;

use crate::nodes::responders;
use crate::nodes::subsets::{
    ALL, EACH_ITS_OWN, EVERYWHERE, PER_ZONE, SUBSETTING, Subsets, TOPOLOGY_MODE, TRIES,
    UDP_TIMEOUT, UNDIVIDED, ZONES,
};

/// Proxies that know nothing of subsets use all slices and get no endpoint twice: kube-proxy, and ours with its
/// gate off. With hints, kube-proxy stays in its zone, and `explain` names the node that does not count for them.
#[tokio::test(flavor = "multi_thread")]
async fn a27_b11_c3_proxies_that_do_not_know_subsets_reach_every_endpoint() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("Auto", PER_ZONE, EACH_ITS_OWN).await;
    subsets.nodes.start_kube_proxy(&subsets.cluster, "n4", &[]);
    let kube_proxy = subsets.callers["n4"].namespace.clone();
    let all = subsets.pods_of(ALL);
    eventually_equals("kube-proxy", all.clone(), || responders(&kube_proxy, subsets.to, TRIES))
        .await;
    assert_eq!(endpoints_of_kube_proxy(&subsets), 12, "each endpoint once");

    subsets.replace_proxy("n2", &["--feature-gates=EndpointSliceSubsetting=false"]).await;
    let gate_off = subsets.callers["n2"].namespace.clone();
    eventually_equals("gate off", all, || responders(&gate_off, subsets.to, TRIES)).await;

    subsets.annotate(json!({TOPOLOGY_MODE: "Auto"})).await;
    let at_home = subsets.pods_of(&["c"]);
    eventually_equals("hints", at_home, || responders(&kube_proxy, subsets.to, TRIES)).await;
    // B11: n4 doubles the cores of zone c, and is left out of the proportions with a reason.
    let explanation = subsets.ask(&["explain", "default/web", "-o", "json"]);
    assert_eq!(explanation["nodesLeftOut"], json!([{"node": "n4", "why": "control-plane"}]));
}

/// How many endpoints kube-proxy chooses from for the Service's IPv4 TCP port, by its own rules.
fn endpoints_of_kube_proxy(subsets: &Subsets) -> usize {
    let list = || Command::new("nft").args(["list", "table", "ip", "kube-proxy"]).output();
    let output = subsets.nodes.node("n4").namespace.enter(list);
    let output = output.expect("the nft program is needed: apt-get install nftables");
    let text = String::from_utf8(output.stdout).unwrap();
    // chain service-ABC-default/web/tcp/http { … numgen random mod 12 map { 0 : 10.244.1.2 . 8080, …
    let is_ours =
        |chain: &&str| chain.starts_with("service-") && chain.contains("-default/web/tcp/http {");
    let chain = text.split("chain ").find(is_ours).unwrap_or_else(|| panic!("{text}"));
    chain.matches(" . 8080").count()
}

/// A8: subsets that are in force stay until there are `threshold - padding` endpoints, and start again only at
/// `threshold + padding`.
#[tokio::test(flavor = "multi_thread")]
async fn a8_subsets_end_and_start_at_their_thresholds() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("twelve", PER_ZONE, EACH_ITS_OWN).await;
    let connections = subsets.connections(subsets.to);
    subsets.set_pods(&["a4", "b4", "c4"], false).await;
    subsets.expect("nine keep them", PER_ZONE, EACH_ITS_OWN).await;
    subsets.set_pods(&["a3", "b3", "c3"], false).await;
    subsets.expect("six end them", UNDIVIDED, EVERYWHERE).await;
    subsets.set_pods(&["a3", "b3", "c3", "a4", "b4"], true).await;
    subsets.expect("eleven do not start them", UNDIVIDED, EVERYWHERE).await;
    subsets.set_pods(&["c4"], true).await;
    subsets.expect("twelve start them", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}

/// A rolling update replaces every Pod, the new one before the old one. Subsets stay in force, every zone ends
/// with its own new Pods, and no connection fails.
#[tokio::test(flavor = "multi_thread")]
async fn a9_a26_a_rolling_update_keeps_subsets_and_fails_no_connection() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("before", PER_ZONE, EACH_ITS_OWN).await;
    let connections = subsets.connections(subsets.to);
    for number in 1..=4 {
        for (node, zone, _) in ZONES {
            let (old, new) = (format!("{zone}{number}"), format!("{zone}{}", number + 4));
            subsets.nodes.add_server(node, &new);
            subsets.replace_pod(&old, &new).await;
            let written = subsets.written().await.unwrap();
            assert!(!written.contains_key(""), "{new}: subsets stay in force: {written:?}");
        }
    }
    subsets.expect("after", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}

/// A UDP flow stays with its endpoint when that moves to another zone's subset, and leaves it when the endpoint
/// is gone, which the node's own watches do not show.
#[tokio::test(flavor = "multi_thread")]
async fn c5_udp_flows_stay_with_endpoints_that_move_to_another_subset() {
    let mut subsets = Subsets::start().await;
    subsets.expect("no request", UNDIVIDED, EVERYWHERE).await;
    for timeout in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        let node = &subsets.nodes.node("n1").namespace;
        node.write_sysctl(&format!("net/netfilter/{timeout}"), "3600").unwrap();
    }
    let caller = subsets.callers["n1"].namespace.clone();
    let mut flows: BTreeMap<String, OpenConnection> = BTreeMap::new();
    eventually_equals("a flow to every endpoint", subsets.pods_of(ALL), || {
        let mut flow = OpenConnection::udp(&caller, subsets.to, UDP_TIMEOUT).unwrap();
        flows.entry(flow.probe().to_string()).or_insert(flow);
        flows.keys().cloned().collect()
    })
    .await;
    let stays = |(name, flow): (&String, &mut OpenConnection)| {
        assert_eq!(&flow.probe().to_string(), name, "the flow to {name}");
    };

    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("Auto", PER_ZONE, EACH_ITS_OWN).await;
    flows.iter_mut().for_each(stays);
    for gone in ["b1", "a1"] {
        subsets.set_pods(&[gone], false).await;
        let mut flow = flows.remove(gone).unwrap();
        eventually_equals(&format!("the flow to {gone} goes elsewhere"), false, || {
            flow.probe().to_string() == gone
        })
        .await;
        flows.iter_mut().for_each(stays);
    }
    subsets.annotate(json!({})).await;
    subsets.expect("off", UNDIVIDED, EVERYWHERE).await;
    flows.iter_mut().for_each(stays);
}
