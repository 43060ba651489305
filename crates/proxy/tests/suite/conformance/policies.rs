//! Policies, asked from several nodes: who reaches whom, and who is seen.

use zonewise_netns::Namespace;
use zonewise_netns::traffic::{ProbeResult, Protocol};
use zonewise_routing::{Family, count_local_ready};

use serde_json::json;

use crate::common::at;
use crate::common::objects::endpoint;
use crate::common::two_nodes::{FAMILIES, cluster_ip, full, node_port, vip};
use crate::conformance::cluster::{ConformanceCluster, probe, reach, reach_each, ready};

const BOTH: &str = "n1 n2";

/// Nodes serve themselves, on port 8080.
fn hosts(cluster: &mut ConformanceCluster) {
    for index in [0, 1] {
        let node = cluster.node(index).clone();
        for v6 in FAMILIES {
            cluster.serve(&node.namespace, &node.name, at(node.address(v6), 8080));
        }
    }
}

/// Endpoints in the network of their node: from pods, nodes and outside, by every address.
#[test]
fn endpoints_of_the_hosts_network_are_endpoints() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    hosts(&mut cluster);
    let (one, two) = (cluster.node(0).clone(), cluster.node(1).clone());
    cluster.service(&full("svc", 1, json!({}))).members("svc", |v6| {
        vec![endpoint(one.address(v6), "n1", "a"), endpoint(two.address(v6), "n2", "b")]
    });
    cluster.sync();
    for v6 in FAMILIES {
        let to = [cluster_ip(1, v6), vip(1, v6), node_port(&one, 1, v6), node_port(&two, 1, v6)];
        for from in cluster.inside() {
            assert_eq!(to.map(|to| reach(from, to)), [BOTH; 4], "{from:?}, IPv6 {v6}");
        }
        let responses = to.map(|to| reach(&cluster.client.namespace, to));
        assert_eq!(responses, [BOTH; 4], "from outside, IPv6 {v6}");
    }
    cluster.assert_clean();
}

/// Internal policy Local, with an endpoint on the first node only: a pod, or the node itself.
#[test]
fn internal_policy_local_is_for_pods_and_nodes_of_this_node() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    hosts(&mut cluster);
    let (pod, node) = (cluster.pod(0, "pod"), cluster.node(0).clone());
    let local = json!({"internalTrafficPolicy": "Local"});
    cluster.offer(&full("pod", 1, local.clone()), &[&pod]);
    cluster.service(&full("host", 2, local));
    cluster.members("host", |v6| vec![endpoint(node.address(v6), "n1", "a")]).sync();
    for (n, expected) in [(1, "pod"), (2, "n1")] {
        for v6 in FAMILIES {
            let responses: Vec<String> =
                cluster.inside().into_iter().map(|from| reach(from, cluster_ip(n, v6))).collect();
            assert_eq!(
                responses,
                [expected, expected, "silent", "silent"],
                "{expected}, IPv6 {v6}"
            );
        }
    }
}

/// External policy Local: outside clients keep their address where there is an endpoint and are
/// dropped elsewhere; what asks on its own node is served everywhere. Changed and changed back.
#[test]
fn external_policy_local_keeps_addresses_and_can_be_changed() {
    let mut cluster = ConformanceCluster::new(&["a", "b", "c"]);
    hosts(&mut cluster);
    let (pod, host) = (cluster.pod(0, "pod"), cluster.node(0).clone());
    let client = cluster.node(1).clone();
    for policy in ["Local", "Cluster", "Local"] {
        let spec = json!({"externalTrafficPolicy": policy});
        cluster.offer(&full("pod", 1, spec.clone()), &[&pod]);
        cluster.service(&full("host", 2, spec));
        cluster.members("host", |v6| vec![endpoint(host.address(v6), "n1", "a")]).sync();
        for (n, name) in [(1, "pod"), (2, "n1")] {
            for v6 in FAMILIES {
                let responses = |index: usize, from: &Namespace| {
                    probe(Protocol::Tcp, from, node_port(cluster.node(index), n, v6))
                };
                let seen = ProbeResult::answered_by(name, client.address(v6));
                let what = format!("{policy}, {name}, IPv6 {v6}");
                if policy == "Local" {
                    assert_eq!(responses(0, &client.namespace), seen, "{what}: at the endpoint");
                    assert_eq!(responses(1, &client.namespace), seen, "{what}: at home");
                    assert_eq!(
                        responses(2, &client.namespace),
                        ProbeResult::Silent,
                        "{what}: elsewhere"
                    );
                    let outside = cluster.client.address(v6);
                    let responses = responses(0, &cluster.client.namespace);
                    assert_eq!(
                        responses,
                        ProbeResult::answered_by(name, outside),
                        "{what}: from outside"
                    );
                } else {
                    let names =
                        [0, 1, 2].map(|index| responses(index, &client.namespace).to_string());
                    assert_eq!(names, [name; 3], "{what}");
                }
            }
        }
    }
}

/// Pods are seen under their own address through a ClusterIP, from their node and from others.
#[test]
fn pods_keep_their_address_through_a_clusterip() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let here = cluster.pod(0, "here");
    cluster.offer(&full("svc", 1, json!({})), &[&here]);
    for v6 in FAMILIES {
        for index in [0, 1] {
            let caller = cluster.nodes[index].caller.clone();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let responses = probe(protocol, &caller.namespace, cluster_ip(1, v6));
                assert_eq!(
                    responses,
                    ProbeResult::answered_by("here", caller.address(v6)),
                    "n{}",
                    index + 1
                );
            }
        }
    }
}

/// A pod reaches itself through every address of its Service, of its own node and of others.
#[test]
fn a_pod_reaches_itself_by_every_address() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let here = cluster.pod(0, "here");
    for (n, policy) in [(1, "Cluster"), (2, "Local")] {
        let spec = json!({"externalTrafficPolicy": policy, "internalTrafficPolicy": policy});
        let object = full(&format!("svc{n}"), n, spec);
        cluster.offer(&object, &[&here]);
        for v6 in FAMILIES {
            let mut to = vec![cluster_ip(n, v6), vip(n, v6), node_port(cluster.node(0), n, v6)];
            if policy == "Cluster" {
                to.push(node_port(cluster.node(1), n, v6));
            }
            for to in to {
                assert_eq!(reach(&here.namespace, to), "here", "{policy}: {to}");
            }
        }
    }
}

/// Endpoints probe, too: they reach themselves and all others.
#[test]
fn endpoints_reach_all_endpoints() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let pods = [cluster.pod(0, "here"), cluster.pod(0, "near"), cluster.pod(1, "there")];
    cluster.offer(&full("svc", 1, json!({})), &[&pods[0], &pods[1], &pods[2]]);
    for v6 in FAMILIES {
        let nodes = [0, 1].map(|index| node_port(cluster.node(index), 1, v6));
        for pod in &pods {
            for to in [cluster_ip(1, v6), vip(1, v6), nodes[0], nodes[1]] {
                assert_eq!(reach(&pod.namespace, to), "here near there", "{}: {to}", pod.name);
            }
        }
    }
}

/// One endpoint, on the first node, and it is going: by each policy, from both nodes.
#[test]
fn endpoints_that_go_serve_until_somebody_else_does() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let (going, fresh) = (cluster.pod(0, "going"), cluster.pod(1, "fresh"));
    let rows = [
        (1, "svc1", json!({})),
        (2, "svc2", json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"})),
    ];
    for (n, name, spec) in &rows {
        cluster.service(&full(name, *n, spec.clone()));
        cluster.members(name, |v6| vec![endpoint(going.address(v6), "n1", "a").terminating()]);
    }
    let responses = |cluster: &ConformanceCluster, n, v6| {
        let (one, two) = (cluster.caller(0), cluster.caller(1));
        let (at_one, at_two) =
            (node_port(cluster.node(0), n, v6), node_port(cluster.node(1), n, v6));
        reach_each(&[
            (one, cluster_ip(n, v6)),
            (two, cluster_ip(n, v6)),
            (one, at_one),
            (two, at_one),
            (one, at_two),
        ])
    };
    cluster.sync();
    for v6 in FAMILIES {
        assert_eq!(responses(&cluster, 1, v6), ["going"; 5], "Cluster, IPv6 {v6}");
        let local = ["going", "silent", "going", "going", "silent"];
        assert_eq!(responses(&cluster, 2, v6), local, "Local, IPv6 {v6}");
    }
    for (_, name, _) in &rows {
        cluster.members(name, |v6| {
            let mut members = ready(&[&fresh], v6);
            members.push(endpoint(going.address(v6), "n1", "a").terminating());
            members
        });
    }
    cluster.sync();
    for v6 in FAMILIES {
        assert_eq!(
            responses(&cluster, 1, v6),
            ["fresh"; 5],
            "Cluster, IPv6 {v6}: another is ready"
        );
        // Pods of the node itself reach every ready endpoint by its NodePort; others this node's.
        let local = ["going", "fresh", "fresh", "going", "fresh"];
        assert_eq!(responses(&cluster, 2, v6), local, "Local, IPv6 {v6}: another is ready");
    }
}

/// What the health check port of a balancer tells: endpoints of this node that are ready. One that
/// goes does not count, and serves all the same.
#[test]
fn health_checks_count_who_is_ready_here() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let (here, there) = (cluster.pod(0, "here"), cluster.pod(1, "there"));
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000});
    cluster.service(&full("svc", 1, spec));
    let rows = [
        ("ready", [true, true, false], 1, "here"),
        ("going", [false, true, true], 0, "here"),
        ("not ready", [false, false, false], 0, "silent"),
        ("published, going", [true, false, true], 1, "here"),
    ];
    for (row, conditions, expected, responses) in rows {
        let members = |v6| {
            let mut members = ready(&[&there], v6);
            members.push(endpoint(here.address(v6), "n1", "a").conditions(conditions));
            members
        };
        cluster.members("svc", members).sync();
        let index = &cluster.nodes[0].tables.index;
        let (key, service) = index.services().first_key_value().unwrap();
        assert_eq!(service.health_check_node_port, Some(32_000));
        let counts =
            Family::BOTH.map(|family| count_local_ready(service, &index.slices(key), family));
        assert_eq!(counts, [expected; 2], "{row}");
        for v6 in FAMILIES {
            let to = node_port(cluster.node(0), 1, v6);
            assert_eq!(reach(&cluster.client.namespace, to), responses, "{row}, IPv6 {v6}");
        }
    }
}

/// The last endpoint of a node leaves: outside clients are dropped at once, not a moment later. Nor
/// is it found again by a Service that goes and comes back.
#[test]
fn the_last_endpoint_of_a_node_leaves_at_once() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let (here, there) = (cluster.pod(0, "here"), cluster.pod(1, "there"));
    let local = full("svc", 1, json!({"externalTrafficPolicy": "Local"}));
    let responses = |cluster: &ConformanceCluster| {
        let client = &cluster.client.namespace;
        let ways = FAMILIES.map(|v6| [vip(1, v6), node_port(cluster.node(0), 1, v6)]);
        let ways = ways.as_flattened().iter().map(|to| (client, *to));
        reach_each(&ways.collect::<Vec<_>>())
    };
    for _ in 0..2 {
        cluster.offer(&local, &[&here, &there]);
        assert_eq!(responses(&cluster), ["here"; 4]);
        cluster.offer(&local, &[&there]);
        assert_eq!(responses(&cluster), ["silent"; 4], "left");
        cluster.offer(&local, &[&here, &there]);
        assert_eq!(responses(&cluster), ["here"; 4], "back");
        cluster.delete_service("svc").sync();
        cluster.offer(&local, &[&there]);
        assert_eq!(responses(&cluster), ["silent"; 4], "recreated");
    }
    cluster.assert_clean();
}
