//! Endpoints with weights: a zone is drawn first, then an endpoint of it. What that costs in the kernel, and where
//! connections go.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use zonewise_netns::Namespace;
use zonewise_netns::network::NetnsPod;
use zonewise_netns::traffic::{probe_tcp, probe_tcp_many};
use zonewise_proxy::testing::{FoundTables, Options};
use zonewise_routing::NodeLocation;

use crate::common::objects::{Endpoint, annotated, endpoint, ports, slice};
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, both_protocols, by_range, cluster_ip, full, node_port, probe_until,
    vip,
};
use crate::common::weighted::{
    SHARES, chain_names, elements, load_balancer, members, shares, tables,
};
use crate::common::{LONG, PROBE_TIMEOUT, Tables, nft, usual_node};

/// A LoadBalancer Service with 100 ports and 61 endpoints under `zonewise.dev/balanced`: 615,000 elements when
/// every endpoint had slots in proportion to its weight.
#[test]
fn a_hundred_ports_with_weights_need_at_most_60_000_elements() {
    let namespace = Namespace::new("hundred").unwrap();
    let mut tables = tables(&namespace);
    let zone = |n| ["a", "b", "b", "c", "c"][n as usize % 5];
    let all = members(0, 61, zone);
    let names: Vec<String> = (1..=100).map(|n| format!("p{n}")).collect();
    let offered: Vec<(&str, u16, &str)> = names.iter().map(|name| (&**name, 8080, "TCP")).collect();
    let text = shares([13, 24, 24], [0.391_111, 0.321_234, 0.287_655]);
    let object = annotated(ports(slice("web", "web-1", &all), &offered), SHARES, &text);
    tables.service(&load_balancer("web", "10.96.0.10", "198.51.100.1", 1..101)).slice(&object);
    tables.sync().assert_repaired();
    let (elements, chains) = (elements(&namespace), chain_names(&namespace).len());
    eprintln!(
        "100 ports × 3 addresses × 61 endpoints with weights: {elements} elements, {chains} chains"
    );
    assert!(elements > 100 * 3 * 61, "{elements}: endpoints are missing");
    assert!(elements <= 60_000, "{elements}");
    let listed = nft(&namespace, &["list", "map", "ip", "zonewise", "groups"]);
    assert!(
        listed.contains("comment \"ns/web\" : goto clusterip-24-group-1"),
        "{}",
        &listed[..2000]
    );
    assert!(listed.contains("comment \"ns/web\" : goto external-24-group-2"));
}

/// `here` in zone a, and pods of two other zones.
struct ThreeZones {
    cluster: TwoNodeCluster,
    pods: Vec<NetnsPod>,
}

impl ThreeZones {
    fn new() -> Self {
        let mut cluster = TwoNodeCluster::new(by_range());
        let n3 = cluster.network.add_node("n3", "c").unwrap();
        let n2 = cluster.n2.clone();
        let mut pods = vec![cluster.here.clone(), cluster.there.clone()];
        for (node, name) in [(&n2, "there-2"), (&n3, "far-1"), (&n3, "far-2"), (&n3, "far-3")] {
            let pod = cluster.network.add_pod(node, name).unwrap();
            cluster.serve(&pod);
            pods.push(pod);
        }
        Self { cluster, pods }
    }
}

/// D12: the shares of zones, and equal parts within each, in real connections.
#[test]
fn shares_of_three_zones_are_kept_by_the_kernel() {
    const TRIES: usize = 3_000;
    let ThreeZones { mut cluster, pods } = ThreeZones::new();
    let members: Vec<Endpoint> =
        pods.iter().map(|pod| endpoint(pod.address(false), &pod.node, &pod.zone)).collect();
    let text = shares([1, 2, 3], [0.5, 0.3, 0.2]);
    let object = annotated(slice("svc", "svc-1", &members), SHARES, &text);
    cluster.tables.service(&full("svc", 1, json!({}))).slice(&both_protocols(object));
    cluster.tables.sync().assert_repaired();
    let counts = probe_tcp_many(&cluster.caller.namespace, cluster_ip(1, false), TRIES, LONG);
    assert_eq!(counts.values().sum::<usize>(), TRIES, "{counts:?}");
    for pod in &pods {
        let part = [("a", 0.5), ("b", 0.15), ("c", 0.2 / 3.0)].into_iter();
        let part = part.clone().find(|(zone, _)| *zone == pod.zone).unwrap().1;
        let expected = part * TRIES as f64;
        // Six standard deviations, and the hundredth that rounding may take.
        let allowed = 6.0 * (expected * (1.0 - part)).sqrt() + 0.01 * TRIES as f64;
        let counted = counts.get(&pod.name).copied().unwrap_or(0) as f64;
        assert!((counted - expected).abs() < allowed, "{}: {counted}, {expected} asked", pod.name);
    }
}

/// A tenth here and the rest there, or all here for clients of a policy Local, through every kind of address and from
/// everywhere.
#[test]
fn weights_hold_at_every_address_from_everywhere() {
    const TRIES: usize = 100;
    let mut cluster = TwoNodeCluster::new(by_range());
    let pods = [cluster.here.clone(), cluster.there.clone()];
    for (name, number, policy) in [("cluster", 1, "Cluster"), ("local", 2, "Local")] {
        let changes = json!({"externalTrafficPolicy": policy});
        cluster.tables.service(&full(name, number, changes));
        for v6 in FAMILIES {
            let members: Vec<Endpoint> =
                pods.iter().map(|pod| endpoint(pod.address(v6), &pod.node, &pod.zone)).collect();
            let object = slice(name, &format!("{name}-{v6}"), &members);
            let text = shares([1, 1, 0], [0.1, 0.9, 0.0]);
            cluster.tables.slice(&both_protocols(annotated(object, SHARES, &text)));
        }
    }
    cluster.tables.sync().assert_repaired();
    let sources = [
        ("pod", cluster.caller.namespace.clone()),
        ("node", cluster.n1.namespace.clone()),
        ("client", cluster.client.namespace.clone()),
    ];
    for (number, local) in [(1, false), (2, true)] {
        for v6 in FAMILIES {
            let addresses: [(&str, SocketAddr); 3] = [
                ("cluster IP", cluster_ip(number, v6)),
                ("address", vip(number, v6)),
                ("node port", node_port(&cluster.n1, number, v6)),
            ];
            for (kind, address) in addresses {
                for (who, from) in &sources {
                    let counts = probe_tcp_many(from, address, TRIES, LONG);
                    let here = counts.get("here").copied().unwrap_or(0);
                    let there = counts.get("there").copied().unwrap_or(0);
                    let row =
                        format!("{who} to {kind}, policy local {local}, IPv6 {v6}: {counts:?}");
                    assert_eq!(here + there, TRIES, "{row}");
                    let only_here = local && *who == "client" && kind != "cluster IP";
                    // Six standard deviations around a tenth; without weights it would be a half.
                    assert!(
                        if only_here { here == TRIES } else { (1..=30).contains(&here) },
                        "{row}"
                    );
                }
            }
        }
    }
}

/// Session affinity comes before the weights.
#[test]
fn clients_stay_with_their_endpoint_whatever_its_weight() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let members = [
        endpoint(cluster.here.address(false), "n1", "a"),
        endpoint(cluster.there.address(false), "n2", "b"),
    ];
    let object =
        annotated(slice("svc", "svc-1", &members), SHARES, &shares([1, 1, 0], [0.5, 0.5, 0.0]));
    let uneven =
        annotated(slice("svc", "svc-1", &members), SHARES, &shares([1, 1, 0], [0.4, 0.6, 0.0]));
    cluster.tables.service(&full("svc", 1, json!({"sessionAffinity": "ClientIP"})));
    cluster.tables.slice(&both_protocols(object)).sync();
    let from = cluster.caller.namespace.clone();
    let first = probe_tcp(&from, cluster_ip(1, false), LONG).to_string();
    cluster.tables.slice(&both_protocols(uneven)).sync().assert_repaired();
    let counts = probe_tcp_many(&from, cluster_ip(1, false), 50, LONG);
    assert_eq!(counts, BTreeMap::from([(first, 50)]));
}

/// Weights that come, change and go lose no connection, and neither does an upgrade that replaces the tables.
#[test]
fn no_connection_fails_while_weights_or_the_layout_change() {
    let ThreeZones { mut cluster, pods } = ThreeZones::new();
    let members: Vec<Endpoint> =
        pods.iter().map(|pod| endpoint(pod.address(false), &pod.node, &pod.zone)).collect();
    let plain = both_protocols(slice("svc", "svc-1", &members));
    let weighted = |parts| annotated(plain.clone(), SHARES, &shares([1, 2, 3], parts));
    cluster.tables.service(&full("svc", 1, json!({}))).slice(&plain).sync();
    let (from, n1) = (cluster.caller.namespace.clone(), cluster.n1.clone());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probes = scope.spawn(|| probe_until(&from, cluster_ip(1, false), &done));
        for round in 0..40 {
            cluster.tables.slice(&match round % 4 {
                0 => weighted([0.5, 0.3, 0.2]),
                1 => weighted([0.2, 0.5, 0.3]),
                2 => both_protocols(annotated(
                    slice("svc", "svc-1", &members[..3]),
                    SHARES,
                    &shares([1, 2, 0], [0.6, 0.4, 0.0]),
                )),
                _ => plain.clone(),
            });
            // What is unused stays here: the proxy removes it a second later, for packets that are on their way.
            cluster.tables.sync();
        }
        // Another layout, as after an upgrade.
        let options = Options { mark: 1 << 20, ..by_range() };
        let node = usual_node([Some(n1.address(false)), Some(n1.address(true))]);
        let mut upgraded =
            Tables::new(&n1.namespace, NodeLocation::new("n1", Some("a"), None), options, node);
        upgraded.service(&full("svc", 1, json!({}))).slice(&weighted([0.5, 0.3, 0.2]));
        let old = std::mem::replace(&mut cluster.tables, upgraded);
        drop(old);
        assert_eq!(cluster.tables.start(), FoundTables::Other);
        cluster.tables.assert_repaired();
        assert!(probe_tcp(&from, cluster_ip(1, false), PROBE_TIMEOUT).name().is_some());
        done.store(true, Ordering::Relaxed);
        let counts = probes.join().unwrap();
        let failed: Vec<_> =
            counts.iter().filter(|(name, _)| pods.iter().all(|pod| pod.name != **name)).collect();
        assert!(failed.is_empty(), "{counts:?}");
    });
}
