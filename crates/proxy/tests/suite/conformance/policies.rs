//! Policies, asked from several nodes: who reaches whom, and who is seen.

use zonewise_netns::Namespace;
use zonewise_netns::traffic::{Answer, Protocol};
use zonewise_routing::{Family, count_local_ready};

use serde_json::json;

use crate::common::at;
use crate::common::objects::endpoint;
use crate::common::town::{FAMILIES, cluster_ip, full, node_port, vip};
use crate::conformance::land::{Land, ask, reach, ready};

const BOTH: &str = "n1 n2";

/// Nodes serve themselves, on port 8080.
fn hosts(land: &mut Land) {
    for spot in [0, 1] {
        let node = land.node(spot).clone();
        for v6 in FAMILIES {
            land.serve(&node.namespace, &node.name, at(node.address(v6), 8080));
        }
    }
}

/// Endpoints in the network of their node: from pods, nodes and outside, by every address.
#[test]
fn endpoints_of_the_hosts_network_are_endpoints() {
    let mut land = Land::new(&["a", "b"]);
    hosts(&mut land);
    let (one, two) = (land.node(0).clone(), land.node(1).clone());
    land.service(&full("svc", 1, json!({}))).members("svc", |v6| {
        vec![endpoint(one.address(v6), "n1", "a"), endpoint(two.address(v6), "n2", "b")]
    });
    land.sync();
    for v6 in FAMILIES {
        let to = [cluster_ip(1, v6), vip(1, v6), node_port(&one, 1, v6), node_port(&two, 1, v6)];
        for from in land.inside() {
            assert_eq!(to.map(|to| reach(from, to)), [BOTH; 4], "{from:?}, IPv6 {v6}");
        }
        let heard = to.map(|to| reach(&land.client.namespace, to));
        assert_eq!(heard, [BOTH; 4], "from outside, IPv6 {v6}");
    }
    land.assert_clean();
}

/// Internal policy Local, with an endpoint on the first node only: a pod, or the node itself.
#[test]
fn internal_policy_local_is_for_pods_and_nodes_of_this_node() {
    let mut land = Land::new(&["a", "b"]);
    hosts(&mut land);
    let (pod, node) = (land.pod(0, "pod"), land.node(0).clone());
    let local = json!({"internalTrafficPolicy": "Local"});
    land.offer(&full("pod", 1, local.clone()), &[&pod]);
    land.service(&full("host", 2, local));
    land.members("host", |v6| vec![endpoint(node.address(v6), "n1", "a")]).sync();
    for (n, expected) in [(1, "pod"), (2, "n1")] {
        for v6 in FAMILIES {
            let heard: Vec<String> =
                land.inside().into_iter().map(|from| reach(from, cluster_ip(n, v6))).collect();
            assert_eq!(heard, [expected, expected, "silent", "silent"], "{expected}, IPv6 {v6}");
        }
    }
}

/// External policy Local: outside clients keep their address where there is an endpoint and are
/// dropped elsewhere; what asks on its own node is served everywhere. Changed and changed back.
#[test]
fn external_policy_local_keeps_addresses_and_can_be_changed() {
    let mut land = Land::new(&["a", "b", "c"]);
    hosts(&mut land);
    let (pod, host) = (land.pod(0, "pod"), land.node(0).clone());
    let client = land.node(1).clone();
    for policy in ["Local", "Cluster", "Local"] {
        let spec = json!({"externalTrafficPolicy": policy});
        land.offer(&full("pod", 1, spec.clone()), &[&pod]);
        land.service(&full("host", 2, spec));
        land.members("host", |v6| vec![endpoint(host.address(v6), "n1", "a")]).sync();
        for (n, name) in [(1, "pod"), (2, "n1")] {
            for v6 in FAMILIES {
                let heard = |spot: usize, from: &Namespace| {
                    ask(Protocol::Tcp, from, node_port(land.node(spot), n, v6))
                };
                let seen = Answer::by(name, client.address(v6));
                let what = format!("{policy}, {name}, IPv6 {v6}");
                if policy == "Local" {
                    assert_eq!(heard(0, &client.namespace), seen, "{what}: at the endpoint");
                    assert_eq!(heard(1, &client.namespace), seen, "{what}: at home");
                    assert_eq!(heard(2, &client.namespace), Answer::Silent, "{what}: elsewhere");
                    let outside = land.client.address(v6);
                    let heard = heard(0, &land.client.namespace);
                    assert_eq!(heard, Answer::by(name, outside), "{what}: from outside");
                } else {
                    let names = [0, 1, 2].map(|spot| heard(spot, &client.namespace).to_string());
                    assert_eq!(names, [name; 3], "{what}");
                }
            }
        }
    }
}

/// Pods are seen under their own address through a ClusterIP, from their node and from others.
#[test]
fn pods_keep_their_address_through_a_clusterip() {
    let mut land = Land::new(&["a", "b"]);
    let here = land.pod(0, "here");
    land.offer(&full("svc", 1, json!({})), &[&here]);
    for v6 in FAMILIES {
        for spot in [0, 1] {
            let asker = land.spots[spot].asker.clone();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let heard = ask(protocol, &asker.namespace, cluster_ip(1, v6));
                assert_eq!(heard, Answer::by("here", asker.address(v6)), "n{}", spot + 1);
            }
        }
    }
}

/// A pod reaches itself through every address of its Service, of its own node and of others.
#[test]
fn a_pod_reaches_itself_by_every_address() {
    let mut land = Land::new(&["a", "b"]);
    let here = land.pod(0, "here");
    for (n, policy) in [(1, "Cluster"), (2, "Local")] {
        let spec = json!({"externalTrafficPolicy": policy, "internalTrafficPolicy": policy});
        let object = full(&format!("svc{n}"), n, spec);
        land.offer(&object, &[&here]);
        for v6 in FAMILIES {
            let mut to = vec![cluster_ip(n, v6), vip(n, v6), node_port(land.node(0), n, v6)];
            if policy == "Cluster" {
                to.push(node_port(land.node(1), n, v6));
            }
            for to in to {
                assert_eq!(reach(&here.namespace, to), "here", "{policy}: {to}");
            }
        }
    }
}

/// Endpoints ask, too: they reach themselves and all others.
#[test]
fn endpoints_reach_all_endpoints() {
    let mut land = Land::new(&["a", "b"]);
    let pods = [land.pod(0, "here"), land.pod(0, "near"), land.pod(1, "there")];
    land.offer(&full("svc", 1, json!({})), &[&pods[0], &pods[1], &pods[2]]);
    for v6 in FAMILIES {
        let nodes = [0, 1].map(|spot| node_port(land.node(spot), 1, v6));
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
    let mut land = Land::new(&["a", "b"]);
    let (going, fresh) = (land.pod(0, "going"), land.pod(1, "fresh"));
    let rows = [
        (1, "svc1", json!({})),
        (2, "svc2", json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"})),
    ];
    for (n, name, spec) in &rows {
        land.service(&full(name, *n, spec.clone()));
        land.members(name, |v6| vec![endpoint(going.address(v6), "n1", "a").terminating()]);
    }
    let heard = |land: &Land, n, v6| {
        let (one, two) = (land.asker(0), land.asker(1));
        let (at_one, at_two) = (node_port(land.node(0), n, v6), node_port(land.node(1), n, v6));
        [
            reach(one, cluster_ip(n, v6)),
            reach(two, cluster_ip(n, v6)),
            reach(one, at_one),
            reach(two, at_one),
            reach(one, at_two),
        ]
    };
    land.sync();
    for v6 in FAMILIES {
        assert_eq!(heard(&land, 1, v6), ["going"; 5], "Cluster, IPv6 {v6}");
        let local = ["going", "silent", "going", "going", "silent"];
        assert_eq!(heard(&land, 2, v6), local, "Local, IPv6 {v6}");
    }
    for (_, name, _) in &rows {
        land.members(name, |v6| {
            let mut members = ready(&[&fresh], v6);
            members.push(endpoint(going.address(v6), "n1", "a").terminating());
            members
        });
    }
    land.sync();
    for v6 in FAMILIES {
        assert_eq!(heard(&land, 1, v6), ["fresh"; 5], "Cluster, IPv6 {v6}: another is ready");
        // Pods of the node itself reach every ready endpoint by its NodePort; others this node's.
        let local = ["going", "fresh", "fresh", "going", "fresh"];
        assert_eq!(heard(&land, 2, v6), local, "Local, IPv6 {v6}: another is ready");
    }
}

/// What the health check port of a balancer tells: endpoints of this node that are ready. One that
/// goes does not count, and serves all the same.
#[test]
fn health_checks_count_who_is_ready_here() {
    let mut land = Land::new(&["a", "b"]);
    let (here, there) = (land.pod(0, "here"), land.pod(1, "there"));
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000});
    land.service(&full("svc", 1, spec));
    let rows = [
        ("ready", [true, true, false], 1, "here"),
        ("going", [false, true, true], 0, "here"),
        ("not ready", [false, false, false], 0, "silent"),
        ("published, going", [true, false, true], 1, "here"),
    ];
    for (row, conditions, expected, heard) in rows {
        let members = |v6| {
            let mut members = ready(&[&there], v6);
            members.push(endpoint(here.address(v6), "n1", "a").conditions(conditions));
            members
        };
        land.members("svc", members).sync();
        let index = &land.spots[0].tables.index;
        let (key, service) = index.services().first_key_value().unwrap();
        assert_eq!(service.health_check_node_port, Some(32_000));
        let counts =
            Family::BOTH.map(|family| count_local_ready(service, &index.slices(key), family));
        assert_eq!(counts, [expected; 2], "{row}");
        for v6 in FAMILIES {
            let to = node_port(land.node(0), 1, v6);
            assert_eq!(reach(&land.client.namespace, to), heard, "{row}, IPv6 {v6}");
        }
    }
}

/// The last endpoint of a node leaves: outside clients are dropped at once, not a moment later. Nor
/// is it found again by a Service that goes and comes back.
#[test]
fn the_last_endpoint_of_a_node_leaves_at_once() {
    let mut land = Land::new(&["a", "b"]);
    let (here, there) = (land.pod(0, "here"), land.pod(1, "there"));
    let local = full("svc", 1, json!({"externalTrafficPolicy": "Local"}));
    let heard = |land: &Land| {
        let client = &land.client.namespace;
        FAMILIES.map(|v6| {
            [vip(1, v6), node_port(land.node(0), 1, v6)].map(|to| reach(client, to)).join(" ")
        })
    };
    for _ in 0..2 {
        land.offer(&local, &[&here, &there]);
        assert_eq!(heard(&land), ["here here"; 2]);
        land.offer(&local, &[&there]);
        assert_eq!(heard(&land), ["silent silent"; 2], "left");
        land.offer(&local, &[&here, &there]);
        assert_eq!(heard(&land), ["here here"; 2], "back");
        land.delete_service("svc").sync();
        land.offer(&local, &[&there]);
        assert_eq!(heard(&land), ["silent silent"; 2], "recreated");
    }
    land.assert_clean();
}
