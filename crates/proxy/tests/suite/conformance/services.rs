//! What a Service is, becomes and ceases to be.

use zonewise_netns::traffic::Protocol::{self, Tcp, Udp};

use serde_json::{Value, json};

use crate::common::objects::{endpoint, labelled, ports, service, slice, with, with_status};
use crate::common::town::{FAMILIES, cluster_ip, full, node_port, vip};
use crate::common::{at, ip};
use crate::conformance::land::{Land, ask, reach, reached, ready};

const BOTH: &str = "here there";

fn two() -> Land {
    Land::new(&["a", "b"])
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
    let mut land = two();
    let pods = [land.pod(0, "here"), land.pod(1, "there")];
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
        land.offer(&of_type(kind), &[&pods[0], &pods[1]]);
        for v6 in FAMILIES {
            assert_eq!(reach(land.asker(0), cluster_ip(1, v6)), inside, "{kind}, IPv6 {v6}");
            for spot in [0, 1] {
                let to = node_port(land.node(spot), 1, v6);
                assert_eq!(reach(land.asker(0), to), outside, "{kind}, IPv6 {v6}: {to}");
            }
        }
    }
    land.assert_clean();
}

/// Ports and protocols come and go; a port that went is refused.
#[test]
fn ports_and_protocols_come_and_go() {
    let mut land = two();
    let here = land.pod(0, "80");
    for v6 in FAMILIES {
        land.serve(&here.namespace, "81", at(here.address(v6), 8081));
        let object = slice("svc", &format!("svc-{v6}"), &ready(&[&here], v6));
        let all = [("web", 8080, "TCP"), ("more", 8081, "TCP"), ("udp", 8080, "UDP")];
        land.slice(&ports(object, &all));
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
        land.service(&with(object, json!({"type": "NodePort", "ports": wanted}))).sync();
        for v6 in FAMILIES {
            let address = cluster_ip(1, v6).ip();
            let inside = [(Tcp, 80), (Tcp, 81), (Udp, 80)]
                .map(|(protocol, port)| reached(protocol, land.asker(1), at(address, port)));
            assert_eq!(inside, expected, "{wanted:?}, IPv6 {v6}");
            let outside = at(land.node(0).address(v6), 30_080);
            let outside = [Tcp, Udp].map(|it| reached(it, &land.client.namespace, outside));
            assert_eq!(outside, [expected[0], expected[2]], "{wanted:?}, IPv6 {v6}: NodePort");
        }
    }
}

/// Two Services with the same endpoints: one goes, the other stays. It comes back elsewhere.
#[test]
fn services_with_the_same_endpoints_do_not_need_each_other() {
    let mut land = two();
    let pods = [land.pod(0, "here"), land.pod(1, "there")];
    let both = [&pods[0], &pods[1]];
    land.offer(&full("one", 1, json!({})), &both);
    land.offer(&full("two", 2, json!({})), &both);
    let heard = |land: &Land, n, v6| {
        let from = &pods[0].namespace;
        [reach(from, cluster_ip(n, v6)), reach(from, node_port(land.node(0), n, v6))]
    };
    for v6 in FAMILIES {
        for n in [1, 2] {
            assert_eq!(heard(&land, n, v6), [BOTH; 2], "IPv6 {v6}: {n}");
        }
    }
    land.delete_service("one").sync();
    for v6 in FAMILIES {
        assert_eq!(heard(&land, 1, v6), ["silent", "refused"], "IPv6 {v6}: gone");
        assert_eq!(heard(&land, 2, v6), [BOTH; 2], "IPv6 {v6}: stays");
    }
    // Its slices have not gone, or have come back before it.
    land.service(&full("one", 3, json!({}))).sync();
    for v6 in FAMILIES {
        assert_eq!(heard(&land, 1, v6), ["silent", "refused"], "IPv6 {v6}: its old address");
        assert_eq!(heard(&land, 3, v6), [BOTH; 2], "IPv6 {v6}: its new address");
    }
    land.assert_clean();
}

/// A label takes a Service away from us, as its watch shows it: it is gone, and back when the label
/// is. The same for a slice that says it is headless.
#[test]
fn labels_take_services_and_slices_away_and_give_them_back() {
    let mut land = two();
    let here = land.pod(0, "here");
    let service = full("svc", 1, json!({}));
    let plain = |v6| slice("svc", &format!("svc-{v6}"), &ready(&[&here], v6));
    let headless = |v6| labelled(plain(v6), "service.kubernetes.io/headless", "");
    let write = |land: &mut Land, slice: &dyn Fn(bool) -> Value| {
        for v6 in FAMILIES {
            land.slice(&slice(v6));
        }
    };
    let given = |land: &Land| FAMILIES.map(|v6| reached(Tcp, land.asker(1), cluster_ip(1, v6)));
    land.offer(&service, &[]);
    assert_eq!(given(&land), ["refused"; 2]);
    for _ in 0..2 {
        write(&mut land, &plain);
        assert_eq!(given(land.sync()), ["here"; 2]);
        write(&mut land, &headless);
        assert_eq!(given(land.sync()), ["refused"; 2], "headless");
    }
    write(&mut land, &plain);
    for _ in 0..2 {
        assert_eq!(given(land.service(&service).sync()), ["here"; 2]);
        land.delete_service("svc").sync();
        assert_eq!(given(&land), ["silent"; 2], "of another proxy");
    }
}

/// The ports of a Service are found by name and protocol, in as many slices as there are, whatever
/// their numbers, and without a word about nodes or zones.
#[test]
fn slices_name_ports_and_each_says_its_own_number() {
    let mut land = two();
    let (here, there) = (land.pod(0, "here-8080"), land.pod(1, "there-8080"));
    for (pod, name) in [(&here, "here-9090"), (&there, "there-9090")] {
        for v6 in FAMILIES {
            land.serve(&pod.namespace, name, at(pod.address(v6), 9090));
        }
    }
    let ports_80_81 = json!([
        {"name": "p80", "port": 80, "protocol": "TCP"},
        {"name": "p81", "port": 81, "protocol": "TCP"},
    ]);
    land.service(&with(service("svc", &["10.96.0.1", "fd96::1"]), json!({"ports": ports_80_81})));
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
                    land.delete_slice(&name);
                    continue;
                };
                let mut object = slice("svc", &name, &ready(&[pod], v6));
                object["endpoints"] =
                    json!([{"addresses": [pod.address(v6)], "conditions": {"ready": true}}]);
                land.slice(&ports(object, &[(port, *target, protocol)]));
            }
        }
        land.sync();
        for v6 in FAMILIES {
            let address = cluster_ip(1, v6).ip();
            let heard = [80, 81].map(|port| reached(Tcp, land.asker(0), at(address, port)));
            assert_eq!(heard, expected, "{row}, IPv6 {v6}");
        }
    }
}

/// Whoever asks not to wait for readiness gets endpoints that are not ready, and going ones too.
#[test]
fn published_endpoints_serve_ready_or_not() {
    let mut land = two();
    let here = land.pod(0, "here");
    land.service(&full("svc", 1, json!({})));
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
        land.members("svc", member).sync();
        for v6 in FAMILIES {
            for to in
                [cluster_ip(1, v6), node_port(land.node(0), 1, v6), node_port(land.node(1), 1, v6)]
            {
                assert_eq!(reach(land.asker(1), to), expected, "{row}: {to}");
            }
        }
    }
}

/// Blue gives way to green: no request fails, and each reaches whom it should.
#[test]
fn one_backend_gives_way_to_another_without_a_gap() {
    let mut land = two();
    let (blue, green) = (land.pod(0, "blue"), land.pod(1, "green"));
    land.service(&full("svc", 1, json!({})));
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
        land.members("svc", members).sync();
        for v6 in FAMILIES {
            assert_eq!(reach(land.asker(0), cluster_ip(1, v6)), expected, "IPv6 {v6}");
        }
    }
}

/// An external address that no node has; a balancer that wants to see the traffic itself; a balancer
/// without NodePorts.
#[test]
fn outside_addresses_are_short_cuts_unless_told_otherwise() {
    let mut land = two();
    let pods = [land.pod(0, "here"), land.pod(1, "there")];
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
        land.offer(&object, &[&pods[0], &pods[1]]);
        for v6 in FAMILIES {
            let external = at(ip(external[usize::from(v6)]), 80);
            for from in [land.asker(0), &land.node(0).namespace, &land.client.namespace] {
                let to = [external, vip(1, v6), node_port(land.node(0), 1, v6)];
                assert_eq!(to.map(|to| reach(from, to)), expected, "{row}, IPv6 {v6}, {from:?}");
            }
            assert_eq!(reach(land.asker(0), cluster_ip(1, v6)), BOTH, "{row}");
        }
    }
}

/// A new range of addresses for Services is in use while the proxy runs.
#[test]
fn ranges_of_services_can_be_added() {
    let mut land = two();
    let here = land.pod(0, "here");
    land.sync();
    let ranges = ["10.96.0.0/12", "fd96::/108", "192.0.2.0/24", "2001:db8:cb00::/64"];
    let ranges = ranges.map(|text| zonewise_common::cidr::Cidr::parse(text).unwrap());
    land.each(|tables| tables.kernel.set_ranges(ranges.into()).unwrap());
    land.offer(&service("svc", &["192.0.2.10", "2001:db8:cb00::a"]), &[&here]);
    for from in land.inside() {
        let to = ["192.0.2.10", "2001:db8:cb00::a", "192.0.2.11", "2001:db8:cb00::b"];
        let heard = to.map(|to| reached(Protocol::Tcp, from, at(ip(to), 80)));
        assert_eq!(heard, ["here", "here", "silent", "silent"], "{from:?}");
    }
}

/// One client, one backend, over both protocols: until it is switched off, and again when it is on.
#[test]
fn affinity_is_switched_on_and_off() {
    for policy in ["Cluster", "Local"] {
        let mut land = two();
        let pods = [land.pod(0, "here"), land.pod(0, "too"), land.pod(1, "there")];
        let (all, mine) = ("here there too", "here too");
        for affinity in ["ClientIP", "None", "ClientIP"] {
            let spec = json!({"sessionAffinity": affinity, "externalTrafficPolicy": policy});
            land.offer(&full("svc", 1, spec), &[&pods[0], &pods[1], &pods[2]]);
            land.assert_clean();
            for v6 in FAMILIES {
                let outside = if policy == "Local" { mine } else { all };
                let (pod, client) = (land.asker(0), &land.client.namespace);
                let rows = [
                    (pod, cluster_ip(1, v6), all),
                    (pod, node_port(land.node(0), 1, v6), all),
                    (client, node_port(land.node(0), 1, v6), outside),
                    (client, vip(1, v6), outside),
                ];
                for (from, to, expected) in rows {
                    let heard = [Tcp, Udp].map(|protocol| reached(protocol, from, to));
                    if affinity == "None" {
                        assert_eq!(heard, [expected; 2], "{policy}: {from:?} to {to}");
                    } else {
                        let known: Vec<&str> = expected.split(' ').collect();
                        let one = heard.iter().all(|name| known.contains(&&**name));
                        assert!(one, "{policy}: {from:?} to {to}: {heard:?}");
                    }
                }
            }
        }
    }
}

/// A policy that becomes Local holds for clients who had a backend elsewhere before.
#[test]
fn a_policy_outranks_affinity() {
    let mut land = two();
    let pods = [land.pod(0, "here"), land.pod(1, "there")];
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
    let heard = |land: &Land, v6| {
        let client = &land.client.namespace;
        [
            ask(Tcp, land.asker(0), cluster_ip(1, v6)).to_string(),
            ask(Tcp, client, node_port(land.node(0), 1, v6)).to_string(),
            ask(Tcp, client, vip(1, v6)).to_string(),
        ]
    };
    let rows = [
        ("Cluster", vec![&pods[1]], "there"),
        ("Cluster", vec![&pods[0], &pods[1]], "there"),
        ("Local", vec![&pods[0], &pods[1]], "here"),
    ];
    for (policy, behind, expected) in rows {
        land.offer(&sticky(policy), &behind);
        for v6 in FAMILIES {
            assert_eq!(heard(&land, v6), [expected; 3], "{policy}, {}, IPv6 {v6}", behind.len());
        }
    }
}

/// The time runs from the last connection, on a NodePort as on a ClusterIP.
#[test]
fn affinity_ends_with_its_time_on_nodeports_too() {
    let mut land = two();
    let pods = [land.pod(0, "here"), land.pod(1, "there")];
    let spec = json!({
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
    });
    land.offer(&full("svc", 1, spec), &[&pods[0], &pods[1]]);
    let to: Vec<_> = FAMILIES.map(|v6| node_port(land.node(0), 1, v6)).into();
    let mut names = std::collections::BTreeSet::new();
    // Two are heard, each for as long as nobody pauses; missed once in a million times.
    for _ in 0..20 {
        for to in &to {
            let heard = reached(Tcp, &land.client.namespace, *to);
            assert!(["here", "there"].contains(&&*heard), "{to}: {heard}");
            names.insert((to.is_ipv4(), heard));
        }
        if names.len() == 4 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    panic!("clients stay for ever: {names:?}");
}
