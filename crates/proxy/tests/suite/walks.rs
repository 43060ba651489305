//! Packet walks: real packets through the real kernel, both families. The numbers are those of the
//! reference's packet walks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::time::Duration;

use crate::common::objects::{endpoint, service, slice, with};
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, both_protocols, by_range, cluster_ip, full, net, node_port, vip,
};
use crate::common::{at, ip, within};
use serde_json::json;
use zonewise_netns::traffic::OpenConnection;
use zonewise_proxy::testing::{LocalTraffic, Options};

const TRIES: usize = 24;

/// Walks 1, 2, 3, 5, 6 and D4's table with the row it lacks: who is reached, and whether the
/// endpoint sees the client's own address.
#[test]
fn d4_policies_decide_who_is_reached_and_masqueraded() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.offer(&full("svc2", 2, json!({"externalTrafficPolicy": "Local"})));
    cluster.offer(&full("svc3", 3, json!({"internalTrafficPolicy": "Local"})));
    cluster.offer(&full(
        "svc4",
        4,
        json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}),
    ));
    cluster.tables.sync().assert_repaired();
    // source, Service, ClusterIP, NodePort and load balancer; M: masqueraded.
    let rows = [
        ("pod", 1, "here there", "here there M"),
        ("pod", 2, "here there", "here there"),
        ("pod", 3, "here", "here there M"),
        ("pod", 4, "here", "here there"),
        ("client", 1, "here there M", "here there M"),
        ("client", 2, "here there M", "here"),
        ("client", 3, "here M", "here there M"),
        ("client", 4, "here M", "here"),
        ("node", 1, "here there", "here there"),
        ("node", 2, "here there", "here there"),
        ("node", 3, "here", "here there"),
        ("node", 4, "here", "here there"),
    ];
    for v6 in FAMILIES {
        for (who, n, inside, outside) in rows {
            let (namespace, own) = match who {
                "pod" => (&cluster.caller.namespace, cluster.caller.address(v6)),
                "client" => (&cluster.client.namespace, cluster.client.address(v6)),
                _ => (&cluster.n1.namespace, cluster.n1.address(v6)),
            };
            let responses = |to| {
                let responses = cluster.answers(namespace, to, TRIES);
                let udp = cluster.answers_udp(namespace, to, TRIES);
                assert_eq!(responses.names, udp.names, "{who} to {to}: TCP and UDP");
                let masqueraded = who != "node" && !responses.sources.contains(&own);
                format!("{}{}", responses.text(), if masqueraded { " M" } else { "" })
            };
            assert_eq!(
                responses(cluster_ip(n, v6)),
                inside,
                "{who} to the ClusterIP of svc{n}, IPv6 {v6}"
            );
            assert_eq!(
                responses(vip(n, v6)),
                outside,
                "{who} to the balancer of svc{n}, IPv6 {v6}"
            );
            assert_eq!(
                responses(node_port(&cluster.n1, n, v6)),
                outside,
                "{who} to the NodePort of svc{n}, IPv6 {v6}"
            );
        }
    }
}

/// Without a way to recognise pods: nothing for a ClusterIP is masqueraded, and pods are no
/// exception to the external policy.
#[test]
fn without_a_local_detector_pods_are_nobody_special() {
    let mut cluster = TwoNodeCluster::new(Options::default());
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.offer(&full("svc2", 2, json!({"externalTrafficPolicy": "Local"})));
    cluster.tables.sync();
    for v6 in FAMILIES {
        let responses = cluster.answers(&cluster.caller.namespace, vip(2, v6), TRIES);
        assert_eq!(responses.text(), "here");
        let responses = cluster.answers(&cluster.client.namespace, cluster_ip(1, v6), TRIES);
        assert_eq!(responses.sources, [cluster.client.address(v6)].into());
    }
}

#[test]
fn masquerade_all_hides_pods_behind_the_node() {
    let mut cluster = TwoNodeCluster::new(Options { masquerade_all: true, ..by_range() });
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.tables.sync();
    for v6 in FAMILIES {
        let responses = cluster.answers(&cluster.caller.namespace, cluster_ip(1, v6), TRIES);
        assert_eq!(
            (responses.text().as_str(), responses.sources),
            ("here there", [cluster.n1.address(v6)].into())
        );
    }
}

/// Pods recognised by the interface they come from.
#[test]
fn interfaces_tell_pods_too() {
    for local in [LocalTraffic::Prefix("veth-".into()), LocalTraffic::Bridge("veth-caller".into())]
    {
        let mut cluster = TwoNodeCluster::new(Options { local, ..Options::default() });
        cluster.offer(&full("svc1", 1, json!({})));
        cluster.tables.sync();
        for v6 in FAMILIES {
            let responses = cluster.answers(&cluster.caller.namespace, cluster_ip(1, v6), TRIES);
            assert_eq!(responses.sources, [cluster.caller.address(v6)].into());
            let responses = cluster.answers(&cluster.client.namespace, cluster_ip(1, v6), TRIES);
            assert_eq!(responses.sources, [cluster.n1.address(v6)].into());
        }
    }
}

/// Walk 4: a port no Service has is refused; an address no Service has is dropped.
#[test]
fn strays_are_turned_away() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.tables.sync();
    for v6 in FAMILIES {
        for from in [&cluster.caller.namespace, &cluster.n1.namespace, &cluster.client.namespace] {
            let unknown_port = at(cluster_ip(1, v6).ip(), 81);
            assert_eq!(cluster.answers(from, unknown_port, 1).text(), "refused", "{from:?}");
            assert_eq!(cluster.answers_udp(from, unknown_port, 1).text(), "refused", "{from:?}");
            assert_eq!(cluster.answers(from, cluster_ip(99, v6), 1).text(), "silent", "{from:?}");
        }
    }
}

/// Walks 8 and 9: nobody serves it.
#[test]
fn services_without_endpoints_refuse_and_local_ones_elsewhere_drop() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let external = json!({"externalIPs": ["198.51.100.77", "2001:db8:1::77"]});
    let nobody = with(full("nobody", 1, json!({})), external);
    cluster.tables.service(&nobody);
    cluster.tables.service(&full(
        "elsewhere",
        2,
        json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"}),
    ));
    for v6 in FAMILIES {
        let there = endpoint(cluster.there.address(v6), "n2", "b");
        cluster.tables.slice(&both_protocols(slice("elsewhere", &format!("e-{v6}"), &[there])));
    }
    cluster.tables.sync();
    for v6 in FAMILIES {
        let external = at(ip(if v6 { "2001:db8:1::77" } else { "198.51.100.77" }), 80);
        for from in [&cluster.caller.namespace, &cluster.n1.namespace, &cluster.client.namespace] {
            for to in [cluster_ip(1, v6), vip(1, v6), node_port(&cluster.n1, 1, v6), external] {
                assert_eq!(cluster.answers(from, to, 1).text(), "refused", "{from:?} to {to}");
            }
            assert_eq!(cluster.answers(from, cluster_ip(2, v6), 1).text(), "silent", "{from:?}");
        }
        for to in [vip(2, v6), node_port(&cluster.n1, 2, v6)] {
            assert_eq!(
                cluster.answers(&cluster.client.namespace, to, 1).text(),
                "silent",
                "client to {to}"
            );
            assert_eq!(
                cluster.answers(&cluster.caller.namespace, to, 4).text(),
                "there",
                "pod to {to}"
            );
            assert_eq!(
                cluster.answers(&cluster.n1.namespace, to, 4).text(),
                "there",
                "node to {to}"
            );
        }
    }
}

/// Walk 7, with the source-range vectors.
#[test]
fn source_ranges_are_for_load_balancers_alone() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let inside = cluster.network.add_client_at("inside", 10).unwrap();
    let outside = cluster.network.add_client_at("outside", 200).unwrap();
    for client in [&inside, &outside] {
        for range in ["10.96.0.0/12", "fd96::/108", "198.51.100.0/24", "2001:db8:1::/48"] {
            client.route_via(net(range), &cluster.n1).unwrap();
        }
    }
    let nodes = format!("{}/24", cluster.n1.v4);
    let v6_inside = format!("{}/128", inside.v6);
    let v6_nodes = format!("{}/64", cluster.n1.v6);
    let ranges = json!({"loadBalancerSourceRanges": [nodes, "203.0.113.0/25", "203.0.113.0/28", v6_inside, v6_nodes]});
    cluster.offer(&full("svc1", 1, ranges));
    cluster.tables.sync().assert_repaired();
    for v6 in FAMILIES {
        let responses = |from: &_, to| cluster.answers(from, to, 2).text();
        assert!(
            ["here", "there", "here there"].contains(&&*responses(&inside.namespace, vip(1, v6))),
            "IPv6 {v6}"
        );
        assert_eq!(responses(&outside.namespace, vip(1, v6)), "silent");
        assert_eq!(responses(&cluster.caller.namespace, vip(1, v6)), "silent");
        assert_ne!(responses(&cluster.n1.namespace, vip(1, v6)), "silent");
        // NodePorts and ClusterIPs are open to everybody.
        assert_ne!(responses(&outside.namespace, node_port(&cluster.n1, 1, v6)), "silent");
        assert_ne!(responses(&outside.namespace, cluster_ip(1, v6)), "silent");
    }
    // A node may talk to its balancer under the balancer's own address.
    cluster.n1.namespace.add_address("lo", vip(1, false).ip(), 32).unwrap();
    assert!(
        cluster
            .answer_from(&cluster.n1.namespace, vip(1, false).ip(), vip(1, false))
            .name()
            .is_some()
    );
}

/// Walk 1's end: an endpoint that is given itself.
#[test]
fn an_endpoint_can_call_itself() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.tables.service(&full("me", 1, json!({})));
    for v6 in FAMILIES {
        let me = endpoint(cluster.here.address(v6), "n1", "a");
        cluster.tables.slice(&both_protocols(slice("me", &format!("me-{v6}"), &[me])));
    }
    cluster.tables.sync();
    for v6 in FAMILIES {
        let responses = cluster.answers(&cluster.here.namespace, cluster_ip(1, v6), 2);
        assert_eq!(
            (responses.text().as_str(), responses.sources),
            ("here", [cluster.n1.address(v6)].into())
        );
        let responses = cluster.answers_udp(&cluster.here.namespace, cluster_ip(1, v6), 2);
        assert_eq!(responses.text(), "here");
    }
}

/// Walk 11: a client stays with its endpoint, until the time is up or the endpoint leaves.
#[test]
fn session_affinity_lasts_its_time_and_no_longer() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let sticky = |seconds: u32| {
        json!({
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}},
        })
    };
    cluster.offer(&full("long", 1, sticky(100)));
    cluster.offer(&full("short", 2, sticky(1)));
    cluster.tables.sync().assert_repaired();
    for v6 in FAMILIES {
        for to in [cluster_ip(1, v6), vip(1, v6), node_port(&cluster.n1, 1, v6)] {
            for from in [&cluster.caller.namespace, &cluster.client.namespace] {
                assert_eq!(cluster.answers(from, to, TRIES).names.len(), 1, "{from:?} to {to}");
            }
        }
        // Each try renews the time, and a pause of more than it forgets. Which endpoint is next is chance: one run in
        // half a million sees the same one twenty times.
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let pair = || cluster.answers(&cluster.caller.namespace, cluster_ip(2, v6), 2);
            let responses = within(Duration::from_secs(1), pair);
            assert_eq!(responses.names.len(), 1);
            names.extend(responses.names);
            std::thread::sleep(Duration::from_millis(1100));
            if names.len() == 2 {
                break;
            }
        }
        assert_eq!(names.len(), 2, "a new endpoint once the time is up");
    }
    // The endpoint leaves: nobody stays with it.
    cluster.tables.delete_slice("ns", "long-0");
    let there = endpoint(cluster.there.address(false), "n2", "b");
    cluster.tables.slice(&both_protocols(slice("long", "long-0", &[there]))).sync();
    cluster.tables.forget_clients();
    for from in [&cluster.caller.namespace, &cluster.client.namespace] {
        assert_eq!(cluster.answers(from, cluster_ip(1, false), TRIES).text(), "there");
    }
}

/// Terminating endpoints: the last resort, per policy.
#[test]
fn terminating_endpoints_serve_when_nobody_else_does() {
    let mut cluster = TwoNodeCluster::new(by_range());
    for v6 in FAMILIES {
        let (here, there) = (
            endpoint(cluster.here.address(v6), "n1", "a"),
            endpoint(cluster.there.address(v6), "n2", "b"),
        );
        let rows = [
            ("mixed", vec![here.clone().terminating(), there.clone()]),
            ("last", vec![there.clone().terminating()]),
            ("gone", vec![here.unready(), there.unready()]),
        ];
        for (name, members) in rows {
            cluster.tables.slice(&both_protocols(slice(name, &format!("{name}-{v6}"), &members)));
        }
    }
    for (n, name) in (1..).zip(["mixed", "last", "gone"]) {
        cluster.tables.service(&full(name, n, json!({"externalTrafficPolicy": "Local"})));
    }
    cluster.tables.sync();
    for v6 in FAMILIES {
        let inside = |n| cluster.answers(&cluster.caller.namespace, cluster_ip(n, v6), 6).text();
        let outside =
            |n| cluster.answers(&cluster.client.namespace, node_port(&cluster.n1, n, v6), 6).text();
        assert_eq!((inside(1).as_str(), outside(1).as_str()), ("there", "here"));
        assert_eq!((inside(2).as_str(), outside(2).as_str()), ("there", "silent"));
        assert_eq!((inside(3).as_str(), outside(3).as_str()), ("refused", "refused"));
    }
}

/// D5: connections keep their endpoint while hints appear, change and vanish.
#[test]
fn d5_connections_outlive_a_change_of_preference() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.tables.sync();
    let to = cluster_ip(1, false);
    let hold = || {
        OpenConnection::tcp(&cluster.caller.namespace, to, crate::common::PROBE_TIMEOUT).unwrap()
    };
    let mut held: Vec<OpenConnection> = (0..12).map(|_| hold()).collect();
    let before: Vec<String> = held.iter_mut().map(|held| held.probe().to_string()).collect();
    assert!(before.contains(&"here".to_owned()) && before.contains(&"there".to_owned()));
    let (here, there) = (cluster.here.clone(), cluster.there.clone());
    let hinted = |zones: [&[&str]; 2]| {
        let here = endpoint(here.address(false), "n1", "a").hinted(zones[0]);
        let there = endpoint(there.address(false), "n2", "b").hinted(zones[1]);
        both_protocols(slice("svc1", "svc1-0", &[here, there]))
    };
    for (zones, expected) in [
        ([&["a"][..], &["b"][..]], "here"),
        ([&["b"][..], &["a"][..]], "there"),
        ([&[][..], &[][..]], "here there"),
    ] {
        cluster.tables.slice(&hinted(zones)).sync();
        cluster.tables.kernel.remove_unused().unwrap();
        assert_eq!(cluster.answers(&cluster.caller.namespace, to, TRIES).text(), expected);
        let now: Vec<String> = held.iter_mut().map(|held| held.probe().to_string()).collect();
        assert_eq!(now, before);
    }
}

/// Walk 5 with listed addresses: others are not touched.
#[test]
fn nodeports_answer_on_listed_addresses_only() {
    let mut cluster =
        TwoNodeCluster::new(Options { nodeports_everywhere: [false; 2], ..by_range() });
    let second = ip("192.168.0.201");
    cluster.n1.namespace.add_address("eth0", second, 24).unwrap();
    cluster.offer(&full("svc1", 1, json!({})));
    cluster.tables.sync();
    cluster
        .tables
        .kernel
        .set_nodeport_ips(vec![cluster.n1.address(false), cluster.n1.address(true)])
        .unwrap();
    for v6 in FAMILIES {
        let responses =
            cluster.answers(&cluster.client.namespace, node_port(&cluster.n1, 1, v6), TRIES);
        assert_eq!(responses.text(), "here there");
    }
    let other = at(second, 30_001);
    assert_eq!(
        cluster.answers(&cluster.client.namespace, other, 1).text(),
        "refused",
        "by the node itself"
    );
}

/// What the reference's nftables mode cannot do.
#[test]
fn localhost_nodeports_answer_when_asked_for() {
    for localhost_nodeports in [false, true] {
        let mut cluster = TwoNodeCluster::new(Options { localhost_nodeports, ..by_range() });
        if localhost_nodeports {
            cluster.n1.namespace.write_sysctl("net/ipv4/conf/all/route_localnet", "1").unwrap();
        }
        cluster.offer(&full("svc1", 1, json!({})));
        cluster.offer(&full("svc2", 2, json!({"externalTrafficPolicy": "Local"})));
        cluster.tables.sync().assert_repaired();
        let expected = if localhost_nodeports { "here there" } else { "refused" };
        for port in [30_001, 30_002] {
            let responses =
                cluster.answers(&cluster.n1.namespace, at(ip("127.0.0.1"), port), TRIES);
            assert_eq!(responses.text(), expected, "{port}");
        }
    }
}

/// TCP and UDP on one port are two things, and a Service of one does not answer the other.
#[test]
fn protocols_do_not_mix() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let tcp_only = service("tcp", &["10.96.0.9", "fd96::9"]);
    cluster.offer(&tcp_only);
    cluster.tables.sync();
    for v6 in FAMILIES {
        assert_eq!(
            cluster.answers(&cluster.caller.namespace, cluster_ip(9, v6), TRIES).text(),
            "here there"
        );
        assert_eq!(
            cluster.answers_udp(&cluster.caller.namespace, cluster_ip(9, v6), 1).text(),
            "refused"
        );
    }
}
