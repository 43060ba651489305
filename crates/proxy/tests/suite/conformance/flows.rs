//! UDP flows that outlive the endpoint they were made for.

use zonewise_netns::traffic::{OpenConnection, Protocol, Server};

use serde_json::json;

use crate::common::objects::{endpoint, ports, slice};
use crate::common::two_nodes::{FAMILIES, both_protocols, cluster_ip, full, node_port, vip};
use crate::common::{LONG, at};
use crate::conformance::cluster::{ConformanceCluster, ready, repeat};

/// A client that keeps its port goes from one backend to the next: nobody there yet, one that is
/// not ready, one that is, another one.
#[test]
fn udp_flows_follow_their_backends() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let (first, second) = (cluster.pod(1, "first"), cluster.pod(1, "second"));
    let (one, two) = (cluster.nodes[0].caller.clone(), cluster.node(1).clone());
    let (host, client) = (cluster.node(0).clone(), cluster.client.clone());
    for v6 in FAMILIES {
        let rows = [
            ("pod to ClusterIP", 1, &one.namespace, one.address(v6), cluster_ip(1, v6)),
            ("node to ClusterIP", 2, &host.namespace, host.address(v6), cluster_ip(2, v6)),
            ("pod to NodePort", 3, &one.namespace, one.address(v6), node_port(&two, 3, v6)),
            (
                "client to NodePort",
                4,
                &client.namespace,
                client.address(v6),
                node_port(&two, 4, v6),
            ),
            ("client to balancer", 5, &client.namespace, client.address(v6), vip(5, v6)),
        ];
        for (row, n, from, source, to) in rows {
            let name = format!("svc{n}-{v6}");
            let service = full(&name, n, json!({}));
            let mut step = |what: &str, members: &dyn Fn(bool) -> Vec<_>, expected: &str| {
                cluster.service(&service).members(&name, members).settle();
                for _ in 0..2 {
                    assert_eq!(repeat(from, source, to), expected, "{row}, IPv6 {v6}: {what}");
                }
            };
            let unready = |v6| vec![endpoint(first.address(v6), "n2", "b").unready()];
            step("no backend", &|_| Vec::new(), "refused");
            step("not ready", &unready, "refused");
            step("ready", &|v6| ready(&[&first], v6), "first");
            step("another", &|v6| ready(&[&second], v6), "second");
            cluster.delete_service(&name).settle();
        }
    }
}

/// Internal policy Local: the pod of this node is replaced while that of another one stays.
#[test]
fn udp_flows_follow_the_backend_of_their_node() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let (first, second) = (cluster.pod(0, "first"), cluster.pod(0, "second"));
    let other = cluster.pod(1, "other");
    let caller = cluster.nodes[0].caller.clone();
    cluster.service(&full("svc", 1, json!({"internalTrafficPolicy": "Local"})));
    for (mine, expected) in [(vec![&first], "first"), (vec![], "silent"), (vec![&second], "second")]
    {
        let pods: Vec<_> = mine.into_iter().chain([&other]).collect();
        cluster.members("svc", |v6| ready(&pods, v6)).settle();
        for v6 in FAMILIES {
            let responses = repeat(&caller.namespace, caller.address(v6), cluster_ip(1, v6));
            assert_eq!(responses, expected, "IPv6 {v6}");
        }
    }
}

/// Packets came before the rules did. Their flows know no endpoint, and would never learn of one.
#[test]
fn udp_flows_older_than_their_service_are_forgotten() {
    let mut cluster = ConformanceCluster::new(&["a"]);
    cluster.each(|tables| tables.ranges.clear()).sync();
    let here = cluster.pod(0, "here");
    let (caller, client, node) =
        (cluster.nodes[0].caller.clone(), cluster.client.clone(), cluster.node(0).clone());
    let responses = |v6| {
        [
            repeat(&caller.namespace, caller.address(v6), cluster_ip(1, v6)),
            repeat(&client.namespace, client.address(v6), node_port(&node, 1, v6)),
        ]
    };
    for v6 in FAMILIES {
        assert_eq!(responses(v6), ["silent", "refused"], "IPv6 {v6}: nothing is known");
    }
    cluster.service(&full("svc", 1, json!({}))).members("svc", |v6| ready(&[&here], v6));
    cluster.each(|tables| {
        tables.sync();
    });
    for v6 in FAMILIES {
        assert_eq!(responses(v6), ["refused"; 2], "IPv6 {v6}: the old flows hold");
    }
    assert_eq!(cluster.nodes[0].sync(), 4);
    for v6 in FAMILIES {
        assert_eq!(responses(v6), ["here"; 2], "IPv6 {v6}");
    }
}

/// The endpoint stays and its port changes.
#[test]
fn udp_flows_follow_the_target_port() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let there = cluster.pod(1, "8080");
    let caller = cluster.nodes[0].caller.clone();
    for v6 in FAMILIES {
        cluster.serve(&there.namespace, "9090", at(there.address(v6), 9090));
    }
    let to = cluster.node(1).clone();
    cluster.service(&full("svc", 1, json!({})));
    for target in [8080, 9090, 8080] {
        for v6 in FAMILIES {
            let object = slice("svc", &format!("svc-{v6}"), &ready(&[&there], v6));
            cluster.slice(&ports(object, &[("udp", target, "UDP")]));
        }
        cluster.settle();
        for v6 in FAMILIES {
            let responses = repeat(&caller.namespace, caller.address(v6), node_port(&to, 1, v6));
            assert_eq!(responses, target.to_string(), "IPv6 {v6}");
        }
    }
}

/// What is not stale is left alone: flows to an endpoint that still serves while it goes, flows that
/// only look like a NodePort's, and every TCP connection.
#[test]
fn other_flows_stay() {
    let mut cluster = ConformanceCluster::new(&["a"]);
    let (first, second) = (cluster.pod(0, "first"), cluster.pod(0, "second"));
    for v6 in FAMILIES {
        let address = at(first.address(v6), 30_001);
        cluster.servers.push(Server::udp(&first.namespace, "direct", address).unwrap());
    }
    cluster.offer(&full("svc", 1, json!({})), &[&first]);
    let (caller, client) = (cluster.nodes[0].caller.clone(), cluster.client.clone());
    for v6 in FAMILIES {
        let open =
            |from, protocol, to| OpenConnection::open(from, protocol, None, to, LONG).unwrap();
        let mut udp = open(&caller.namespace, Protocol::Udp, cluster_ip(1, v6));
        let mut tcp = open(&caller.namespace, Protocol::Tcp, cluster_ip(1, v6));
        let mut direct = open(&client.namespace, Protocol::Udp, at(first.address(v6), 30_001));
        let mut responses =
            || [&mut udp, &mut tcp, &mut direct].map(|held| held.probe().to_string());
        assert_eq!(responses(), ["first", "first", "direct"]);
        let going = |v6| {
            vec![
                endpoint(first.address(v6), "n1", "a").terminating(),
                endpoint(second.address(v6), "n1", "a"),
            ]
        };
        cluster.members("svc", going);
        assert_eq!(cluster.nodes[0].sync(), 0);
        assert_eq!(responses(), ["first", "first", "direct"], "going");
        cluster.members("svc", |v6| ready(&[&second], v6));
        assert_eq!(cluster.nodes[0].sync(), 1);
        assert_eq!(responses(), ["second", "first", "direct"], "gone");
        cluster.members("svc", |v6| ready(&[&first], v6)).settle();
    }
}

/// A Service of one family says nothing about flows of the other.
#[test]
fn each_family_has_its_own_endpoints() {
    let mut cluster = ConformanceCluster::new(&["a"]);
    let (four, six) = (cluster.pod(0, "four"), cluster.pod(0, "six"));
    let caller = cluster.nodes[0].caller.clone();
    cluster.service(&full("svc", 1, json!({})));
    for (v6, pod) in [(false, &four), (true, &six)] {
        let object = slice("svc", &format!("svc-{v6}"), &ready(&[pod], v6));
        cluster.slice(&both_protocols(object));
    }
    cluster.sync();
    let responses = |v6| repeat(&caller.namespace, caller.address(v6), cluster_ip(1, v6));
    assert_eq!(FAMILIES.map(responses), ["four", "six"]);
    assert_eq!(cluster.nodes[0].sync(), 0);
}
