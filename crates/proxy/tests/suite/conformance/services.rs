//! What a Service is, becomes and ceases to be.

use std::time::Duration;

use zonewise_netns::traffic::Protocol::{self, Tcp, Udp};

use serde_json::{Value, json};

use crate::common::objects::{endpoint, labelled, ports, service, slice, with, with_status};
use crate::common::two_nodes::{FAMILIES, cluster_ip, full, node_port, vip};
use crate::common::{at, ip, within};
use crate::conformance::cluster::{ConformanceCluster, probe, reach, reach_each, reached, ready};

const BOTH: &str = "here there";

fn two() -> ConformanceCluster {
    ConformanceCluster::new(&["a", "b"])
}

/// A Service of a type, under the addresses of number 1.
fn of_type(kind: &str) -> Value {
    match kind {
        "ExternalName" => json!({
            "metadata": {"namespace": "ns", "name": "svc", "resourceVersion": "1"},
            "spec": {"type": kind, "externalName": "elsewhere.example"},
        }),
        "NodePort" => {
            with_status(full("svc", 1, json!({"type": kind})), json!({"loadBalancer": {}}))
        }
        _ => {
            let ports = json!([
                {"name": "http", "port": 80, "protocol": "TCP"},
                {"name": "udp", "port": 80, "protocol": "UDP"},
            ]);
            with(service("svc", &["10.96.0.1", "fd96::1"]), json!({"ports": ports}))
        }
    }
}

/// ExternalName to ClusterIP and NodePort and back: what is served follows.
#[test]
fn types_change_and_what_is_served_follows() {
    let mut cluster = two();
    let pods = [cluster.pod(0, "here"), cluster.pod(1, "there")];
    let rows = [
        ("ExternalName", "silent", "refused"),
        ("ClusterIP", BOTH, "refused"),
        ("NodePort", BOTH, BOTH),
        ("ExternalName", "silent", "refused"),
        ("NodePort", BOTH, BOTH),
        ("ClusterIP", BOTH, "refused"),
        ("ExternalName", "silent", "refused"),
    ];
    for (kind, inside, outside) in rows {
        cluster.offer(&of_type(kind), &[&pods[0], &pods[1]]);
        for v6 in FAMILIES {
            let [first, second] = [0, 1].map(|index| node_port(cluster.node(index), 1, v6));
            let ways = [cluster_ip(1, v6), first, second].map(|to| (cluster.caller(0), to));
            assert_eq!(reach_each(&ways), [inside, outside, outside], "{kind}, IPv6 {v6}");
        }
    }
    cluster.assert_clean();
}

/// Ports and protocols come and go; a port that went is refused.
#[test]
fn ports_and_protocols_come_and_go() {
    let mut cluster = two();
    let here = cluster.pod(0, "80");
    for v6 in FAMILIES {
        cluster.serve(&here.namespace, "81", at(here.address(v6), 8081));
        let object = slice("svc", &format!("svc-{v6}"), &ready(&[&here], v6));
        let all = [("web", 8080, "TCP"), ("more", 8081, "TCP"), ("udp", 8080, "UDP")];
        cluster.slice(&ports(object, &all));
    }
    let web = json!({"name": "web", "port": 80, "protocol": "TCP", "nodePort": 30_080});
    let more = json!({"name": "more", "port": 81, "protocol": "TCP"});
    let udp = json!({"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30_080});
    let rows = [
        (vec![&web], ["80", "refused", "refused"]),
        (vec![&web, &more], ["80", "81", "refused"]),
        (vec![&web], ["80", "refused", "refused"]),
        (vec![&web, &udp], ["80", "refused", "80"]),
        (vec![&udp], ["refused", "refused", "80"]),
        (vec![&udp, &more, &web], ["80", "81", "80"]),
    ];
    for (wanted, expected) in rows {
        let object = service("svc", &["10.96.0.1", "fd96::1"]);
        cluster.service(&with(object, json!({"type": "NodePort", "ports": wanted}))).sync();
        for v6 in FAMILIES {
            let address = cluster_ip(1, v6).ip();
            let inside = [(Tcp, 80), (Tcp, 81), (Udp, 80)]
                .map(|(protocol, port)| reached(protocol, cluster.caller(1), at(address, port)));
            assert_eq!(inside, expected, "{wanted:?}, IPv6 {v6}");
            let outside = at(cluster.node(0).address(v6), 30_080);
            let outside = [Tcp, Udp].map(|it| reached(it, &cluster.client.namespace, outside));
            assert_eq!(outside, [expected[0], expected[2]], "{wanted:?}, IPv6 {v6}: NodePort");
        }
    }
}

/// Two Services with the same endpoints: one goes, the other stays. It comes back elsewhere.
#[test]
fn services_with_the_same_endpoints_do_not_need_each_other() {
    let mut cluster = two();
    let pods = [cluster.pod(0, "here"), cluster.pod(1, "there")];
    let both = [&pods[0], &pods[1]];
    cluster.offer(&full("one", 1, json!({})), &both);
    cluster.offer(&full("two", 2, json!({})), &both);
    let responses = |cluster: &ConformanceCluster, n, v6| {
        let from = &pods[0].namespace;
        reach_each(&[(from, cluster_ip(n, v6)), (from, node_port(cluster.node(0), n, v6))])
    };
    for v6 in FAMILIES {
        for n in [1, 2] {
            assert_eq!(responses(&cluster, n, v6), [BOTH; 2], "IPv6 {v6}: {n}");
        }
    }
    cluster.delete_service("one").sync();
    for v6 in FAMILIES {
        assert_eq!(responses(&cluster, 1, v6), ["silent", "refused"], "IPv6 {v6}: gone");
        assert_eq!(responses(&cluster, 2, v6), [BOTH; 2], "IPv6 {v6}: stays");
    }
    // Its slices have not gone, or have come back before it.
    cluster.service(&full("one", 3, json!({}))).sync();
    for v6 in FAMILIES {
        assert_eq!(responses(&cluster, 1, v6), ["silent", "refused"], "IPv6 {v6}: its old address");
        assert_eq!(responses(&cluster, 3, v6), [BOTH; 2], "IPv6 {v6}: its new address");
    }
    cluster.assert_clean();
}

/// A label takes a Service away from us, as its watch shows it: it is gone, and back when the label
/// is. The same for a slice that says it is headless.
#[test]
fn labels_take_services_and_slices_away_and_give_them_back() {
    let mut cluster = two();
    let here = cluster.pod(0, "here");
    let service = full("svc", 1, json!({}));
    let plain = |v6| slice("svc", &format!("svc-{v6}"), &ready(&[&here], v6));
    let headless = |v6| labelled(plain(v6), "service.kubernetes.io/headless", "");
    let write = |cluster: &mut ConformanceCluster, slice: &dyn Fn(bool) -> Value| {
        for v6 in FAMILIES {
            cluster.slice(&slice(v6));
        }
    };
    let given = |cluster: &ConformanceCluster| {
        FAMILIES.map(|v6| reached(Tcp, cluster.caller(1), cluster_ip(1, v6)))
    };
    cluster.offer(&service, &[]);
    assert_eq!(given(&cluster), ["refused"; 2]);
    for _ in 0..2 {
        write(&mut cluster, &plain);
        assert_eq!(given(cluster.sync()), ["here"; 2]);
        write(&mut cluster, &headless);
        assert_eq!(given(cluster.sync()), ["refused"; 2], "headless");
    }
    write(&mut cluster, &plain);
    for _ in 0..2 {
        assert_eq!(given(cluster.service(&service).sync()), ["here"; 2]);
        cluster.delete_service("svc").sync();
        assert_eq!(given(&cluster), ["silent"; 2], "of another proxy");
    }
}

/// The ports of a Service are found by name and protocol, in as many slices as there are, whatever
/// their numbers, and without a word about nodes or zones.
#[test]
fn slices_name_ports_and_each_says_its_own_number() {
    let mut cluster = two();
    let (here, there) = (cluster.pod(0, "here-8080"), cluster.pod(1, "there-8080"));
    for (pod, name) in [(&here, "here-9090"), (&there, "there-9090")] {
        for v6 in FAMILIES {
            cluster.serve(&pod.namespace, name, at(pod.address(v6), 9090));
        }
    }
    let ports_80_81 = json!([
        {"name": "p80", "port": 80, "protocol": "TCP"},
        {"name": "p81", "port": 81, "protocol": "TCP"},
    ]);
    cluster
        .service(&with(service("svc", &["10.96.0.1", "fd96::1"]), json!({"ports": ports_80_81})));
    // Slices as pod, port name, number, protocol; who answers on 80 and 81.
    let rows = [
        (
            "two ports of one pod",
            vec![(&here, "p80", 8080, "TCP"), (&here, "p81", 9090, "TCP")],
            ["here-8080", "here-9090"],
        ),
        (
            "two pods",
            vec![(&here, "p80", 8080, "TCP"), (&there, "p81", 8080, "TCP")],
            ["here-8080", "there-8080"],
        ),
        (
            "one name, two numbers",
            vec![(&here, "p80", 8080, "TCP"), (&there, "p80", 9090, "TCP")],
            ["here-8080 there-9090", "refused"],
        ),
        (
            "one pod, two numbers",
            vec![(&here, "p80", 8080, "TCP"), (&here, "p80", 9090, "TCP")],
            ["here-8080 here-9090", "refused"],
        ),
        (
            "one name, two protocols",
            vec![(&here, "p80", 8080, "TCP"), (&here, "p80", 9090, "UDP")],
            ["here-8080", "refused"],
        ),
        (
            "the same twice",
            vec![(&here, "p80", 8080, "TCP"), (&here, "p80", 8080, "TCP")],
            ["here-8080", "refused"],
        ),
        ("nothing", vec![], ["refused", "refused"]),
    ];
    for (row, slices, expected) in rows {
        for v6 in FAMILIES {
            for number in 0..2 {
                let name = format!("custom-{v6}-{number}");
                let Some((pod, port, target, protocol)) = slices.get(number) else {
                    cluster.delete_slice(&name);
                    continue;
                };
                let mut object = slice("svc", &name, &ready(&[pod], v6));
                object["endpoints"] =
                    json!([{"addresses": [pod.address(v6)], "conditions": {"ready": true}}]);
                cluster.slice(&ports(object, &[(port, *target, protocol)]));
            }
        }
        cluster.sync();
        for v6 in FAMILIES {
            let address = cluster_ip(1, v6).ip();
            let responses = [80, 81].map(|port| reached(Tcp, cluster.caller(0), at(address, port)));
            assert_eq!(responses, expected, "{row}, IPv6 {v6}");
        }
    }
}

/// Whoever asks not to wait for readiness gets endpoints that are not ready, and going ones too.
#[test]
fn published_endpoints_serve_ready_or_not() {
    let mut cluster = two();
    let here = cluster.pod(0, "here");
    cluster.service(&full("svc", 1, json!({})));
    // Ready, serving, terminating, as the controller writes them with and without publishing.
    let rows = [
        ("published, not ready", [true, false, false], "here"),
        ("published, going", [true, true, true], "here"),
        ("published, not ready and going", [true, false, true], "here"),
        ("not ready", [false, false, false], "refused"),
        ("not ready and going", [false, false, true], "refused"),
        ("ready", [true, true, false], "here"),
        ("going, nobody else", [false, true, true], "here"),
    ];
    for (row, conditions, expected) in rows {
        let member = |v6| vec![endpoint(here.address(v6), "n1", "a").conditions(conditions)];
        cluster.members("svc", member).sync();
        for v6 in FAMILIES {
            for to in [
                cluster_ip(1, v6),
                node_port(cluster.node(0), 1, v6),
                node_port(cluster.node(1), 1, v6),
            ] {
                assert_eq!(reach(cluster.caller(1), to), expected, "{row}: {to}");
            }
        }
    }
}

/// Blue gives way to green: no request fails, and each reaches whom it should.
#[test]
fn one_backend_gives_way_to_another_without_a_gap() {
    let mut cluster = two();
    let (blue, green) = (cluster.pod(0, "blue"), cluster.pod(1, "green"));
    cluster.service(&full("svc", 1, json!({})));
    let rows = [
        ([[false; 3], [false; 3]], "refused"),
        ([[true, true, false], [false; 3]], "blue"),
        ([[true, true, false], [true, true, false]], "blue green"),
        ([[false, true, true], [true, true, false]], "green"),
        ([[false; 3], [true, true, false]], "green"),
    ];
    for (conditions, expected) in rows {
        let members = |v6| {
            let pods = [&blue, &green].into_iter().zip(conditions);
            pods.map(|(pod, conditions)| {
                endpoint(pod.address(v6), &pod.node, &pod.zone).conditions(conditions)
            })
            .collect()
        };
        cluster.members("svc", members).sync();
        for v6 in FAMILIES {
            assert_eq!(reach(cluster.caller(0), cluster_ip(1, v6)), expected, "IPv6 {v6}");
        }
    }
}

/// An external address that no node has; a balancer that wants to see the traffic itself; a balancer
/// without NodePorts.
#[test]
fn outside_addresses_are_short_cuts_unless_told_otherwise() {
    let mut cluster = two();
    let pods = [cluster.pod(0, "here"), cluster.pod(1, "there")];
    let external = ["198.51.100.250", "2001:db8:1::250"];
    let proxied = |mode: &str| {
        let ips = ["198.51.100.1", "2001:db8:1::1"];
        let ingress = ips.map(|ip| json!({"ip": ip, "ipMode": mode}));
        json!({"loadBalancer": {"ingress": ingress}})
    };
    let no_node_ports = json!({"ports": [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "udp", "port": 80, "protocol": "UDP"},
    ]});
    let plain = full("svc", 1, json!({}));
    // The Service; external address, balancer's address, NodePort.
    let rows = [
        ("external", with(plain.clone(), json!({"externalIPs": external})), [BOTH, BOTH, BOTH]),
        ("by address", with_status(plain.clone(), proxied("VIP")), ["silent", BOTH, BOTH]),
        ("by proxy", with_status(plain.clone(), proxied("Proxy")), ["silent", "silent", BOTH]),
        ("without NodePorts", with(plain, no_node_ports), ["silent", BOTH, "refused"]),
    ];
    for (row, object, expected) in rows {
        cluster.offer(&object, &[&pods[0], &pods[1]]);
        for v6 in FAMILIES {
            let external = at(ip(external[usize::from(v6)]), 80);
            let from = [cluster.caller(0), &cluster.node(0).namespace, &cluster.client.namespace];
            let to = [external, vip(1, v6), node_port(cluster.node(0), 1, v6)];
            let ways = from.map(|from| to.map(|to| (from, to)));
            let heard = reach_each(ways.as_flattened());
            assert_eq!(heard, [expected; 3].as_flattened(), "{row}, IPv6 {v6}: {ways:?}");
            assert_eq!(reach(cluster.caller(0), cluster_ip(1, v6)), BOTH, "{row}");
        }
    }
}

/// A new range of addresses for Services is in use while the proxy runs.
#[test]
fn ranges_of_services_can_be_added() {
    let mut cluster = two();
    let here = cluster.pod(0, "here");
    cluster.sync();
    let ranges = ["10.96.0.0/12", "fd96::/108", "192.0.2.0/24", "2001:db8:cb00::/64"];
    let ranges = ranges.map(|text| zonewise_common::cidr::Cidr::parse(text).unwrap());
    cluster.each(|tables| tables.kernel.set_service_cidrs(ranges.into()).unwrap());
    cluster.offer(&service("svc", &["192.0.2.10", "2001:db8:cb00::a"]), &[&here]);
    for from in cluster.inside() {
        let to = ["192.0.2.10", "2001:db8:cb00::a", "192.0.2.11", "2001:db8:cb00::b"];
        let responses = to.map(|to| reached(Protocol::Tcp, from, at(ip(to), 80)));
        assert_eq!(responses, ["here", "here", "silent", "silent"], "{from:?}");
    }
}

/// One client, one backend, over both protocols: until it is switched off, and again when it is on.
#[test]
fn affinity_is_switched_on_and_off() {
    for policy in ["Cluster", "Local"] {
        let mut cluster = two();
        let pods = [cluster.pod(0, "here"), cluster.pod(0, "too"), cluster.pod(1, "there")];
        let (all, mine) = ("here there too", "here too");
        for affinity in ["ClientIP", "None", "ClientIP"] {
            let spec = json!({"sessionAffinity": affinity, "externalTrafficPolicy": policy});
            cluster.offer(&full("svc", 1, spec), &[&pods[0], &pods[1], &pods[2]]);
            cluster.assert_clean();
            for v6 in FAMILIES {
                let outside = if policy == "Local" { mine } else { all };
                let (pod, client) = (cluster.caller(0), &cluster.client.namespace);
                let rows = [
                    (pod, cluster_ip(1, v6), all),
                    (pod, node_port(cluster.node(0), 1, v6), all),
                    (client, node_port(cluster.node(0), 1, v6), outside),
                    (client, vip(1, v6), outside),
                ];
                for (from, to, expected) in rows {
                    let responses = [Tcp, Udp].map(|protocol| reached(protocol, from, to));
                    if affinity == "None" {
                        assert_eq!(responses, [expected; 2], "{policy}: {from:?} to {to}");
                    } else {
                        let known: Vec<&str> = expected.split(' ').collect();
                        let one = responses.iter().all(|name| known.contains(&&**name));
                        assert!(one, "{policy}: {from:?} to {to}: {responses:?}");
                    }
                }
            }
        }
    }
}

/// A policy that becomes Local holds for clients who had a backend elsewhere before.
#[test]
fn a_policy_outranks_affinity() {
    let mut cluster = two();
    let pods = [cluster.pod(0, "here"), cluster.pod(1, "there")];
    let sticky = |policy: &str| {
        full(
            "svc",
            1,
            json!({
                "sessionAffinity": "ClientIP",
                "internalTrafficPolicy": policy,
                "externalTrafficPolicy": policy,
            }),
        )
    };
    let responses = |cluster: &ConformanceCluster, v6| {
        let client = &cluster.client.namespace;
        [
            probe(Tcp, cluster.caller(0), cluster_ip(1, v6)).to_string(),
            probe(Tcp, client, node_port(cluster.node(0), 1, v6)).to_string(),
            probe(Tcp, client, vip(1, v6)).to_string(),
        ]
    };
    let rows = [
        ("Cluster", vec![&pods[1]], "there"),
        ("Cluster", vec![&pods[0], &pods[1]], "there"),
        ("Local", vec![&pods[0], &pods[1]], "here"),
    ];
    for (policy, behind, expected) in rows {
        cluster.offer(&sticky(policy), &behind);
        for v6 in FAMILIES {
            assert_eq!(
                responses(&cluster, v6),
                [expected; 3],
                "{policy}, {}, IPv6 {v6}",
                behind.len()
            );
        }
    }
}

/// The time runs from the last connection, on a NodePort as on a ClusterIP.
#[test]
fn affinity_ends_with_its_time_on_nodeports_too() {
    let mut cluster = two();
    let pods = [cluster.pod(0, "here"), cluster.pod(1, "there")];
    let spec = json!({
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
    });
    cluster.offer(&full("svc", 1, spec), &[&pods[0], &pods[1]]);
    let to: Vec<_> = FAMILIES.map(|v6| node_port(cluster.node(0), 1, v6)).into();
    let mut names = std::collections::BTreeSet::new();
    // Two are responses, each for as long as nobody pauses; missed once in a million times.
    for _ in 0..20 {
        for to in &to {
            let ask = || reached(Tcp, &cluster.client.namespace, *to);
            let responses = within(Duration::from_secs(1), ask);
            assert!(["here", "there"].contains(&&*responses), "{to}: {responses}");
            names.insert((to.is_ipv4(), responses));
        }
        if names.len() == 4 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1100));
    }
    panic!("clients stay for ever: {names:?}");
}
