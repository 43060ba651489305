//! Reading Services.

use std::net::IpAddr;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_routing::{Family, Protocol, RoutedService, ServicePort, TrafficPolicy};

use crate::common::{reader, service, service_json};

fn texts<T: ToString>(list: impl IntoIterator<Item = T>) -> Vec<String> {
    list.into_iter().map(|item| item.to_string()).collect()
}

#[test]
fn protocols_have_numbers() {
    let rows =
        [(Protocol::Tcp, 6, "TCP"), (Protocol::Udp, 17, "UDP"), (Protocol::Sctp, 132, "SCTP")];
    for (protocol, number, name) in rows {
        assert_eq!((protocol.number(), &*protocol.to_string()), (number, name));
    }
    assert_eq!(texts(Family::BOTH), ["IPv4", "IPv6"]);
}

#[test]
fn a_service_is_read_whole() {
    let json = json!({
        "metadata": {
            "name": "svc", "namespace": "ns", "resourceVersion": "12", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": { "service.kubernetes.io/service-proxy-name": "zonewise" },
            "annotations": { "service.kubernetes.io/topology-mode": "Auto" },
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.010",
            "clusterIPs": ["10.96.0.010", "fd00::a"],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": ["192.0.2.1", "", "nonsense", "2001:db8::1"],
            "loadBalancerSourceRanges": [" 203.0.113.000/025 ", "2001:db8::/32", "bad"],
            "ports": [
                { "name": "http", "port": 80, "nodePort": 30080, "targetPort": "web" },
                { "name": "dns", "protocol": "UDP", "port": 53 },
                { "name": "odd", "protocol": "DCCP", "port": 54 },
                { "name": "none" },
            ],
            "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Local",
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
            "healthCheckNodePort": 31000,
        },
        "status": { "loadBalancer": { "ingress": [
            { "ip": "198.51.100.1" },
            { "ip": "198.51.100.2", "ipMode": "Proxy" },
            { "ip": "2001:db8::2", "ipMode": "VIP" },
            { "hostname": "example.com" },
        ] } },
    });
    let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Box<[IpAddr]>>();
    let port = |name: &str, protocol, port, node_port| ServicePort {
        name: name.into(),
        protocol,
        port,
        node_port,
    };
    let blocks = ["203.0.113.0/25", "2001:db8::/32"].map(|text| Cidr::parse(text).unwrap());
    let read = reader("a").read_service(&json.to_string()).unwrap();
    assert_eq!(
        read,
        RoutedService {
            namespace: "ns".into(),
            name: "svc".into(),
            cluster_ips: ips(&["10.96.0.10", "fd00::a"]),
            external_ips: ips(&["192.0.2.1", "2001:db8::1"]),
            load_balancer_ips: ips(&["198.51.100.1", "2001:db8::2"]),
            source_ranges: Box::new(blocks),
            ports: Box::new([
                port("http", Protocol::Tcp, 80, 30080),
                port("dns", Protocol::Udp, 53, 0),
            ]),
            internal_policy: TrafficPolicy::Cluster,
            external_policy: TrafficPolicy::Local,
            affinity_seconds: Some(60),
            health_check_node_port: Some(31000),
            topology_auto: true,
            proxy_name: Some("zonewise".into()),
            skipped: false,
            created: 1_767_323_045,
            resource_version: 12,
        }
    );
    assert_eq!(read.cluster_ip(Family::V6).unwrap().to_string(), "fd00::a");
    assert_eq!(texts(read.external_ips(Family::V4)), ["192.0.2.1"]);
    assert_eq!(texts(read.load_balancer_ips(Family::V6)), ["2001:db8::2"]);
    assert_eq!(texts(read.source_ranges(Family::V4)), ["203.0.113.0/25"]);
}

#[test]
fn every_field_but_the_version_is_content() {
    let read = || service(&json!({}));
    assert!(read().same_content(&RoutedService { resource_version: 13, ..read() }));
    let ips = || Box::<[IpAddr]>::from(["192.0.2.1".parse().unwrap()]);
    let others = [
        RoutedService { namespace: "other".into(), ..read() },
        RoutedService { name: "other".into(), ..read() },
        RoutedService { cluster_ips: ips(), ..read() },
        RoutedService { external_ips: ips(), ..read() },
        RoutedService { load_balancer_ips: ips(), ..read() },
        RoutedService { source_ranges: Box::new([Cidr::parse("10.0.0.0/8").unwrap()]), ..read() },
        RoutedService { ports: Box::new([]), ..read() },
        RoutedService { internal_policy: TrafficPolicy::Local, ..read() },
        RoutedService { external_policy: TrafficPolicy::Local, ..read() },
        RoutedService { affinity_seconds: Some(1), ..read() },
        RoutedService { health_check_node_port: Some(1), ..read() },
        RoutedService { topology_auto: true, ..read() },
        RoutedService { proxy_name: Some("other".into()), ..read() },
        RoutedService { skipped: true, ..read() },
        RoutedService { created: 13, ..read() },
    ];
    for other in others {
        assert!(!read().same_content(&other), "{other:?}");
    }
}

#[test]
fn one_cluster_ip_per_family() {
    let rows = [
        (json!({ "clusterIP": "10.96.0.1" }), vec!["10.96.0.1"]),
        (json!({ "clusterIP": "fd00::1" }), vec!["fd00::1"]),
        (json!({ "clusterIP": "" }), vec![]),
        (json!({ "clusterIP": null }), vec![]),
        (json!({ "clusterIP": "None" }), vec![]),
        (json!({ "clusterIP": "nonsense" }), vec![]),
        (
            json!({ "clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.96.0.1"],
                    "ipFamilies": ["IPv6", "IPv4"] }),
            vec!["10.96.0.1", "fd00::1"],
        ),
        (
            json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                    "ipFamilies": ["IPv4", "IPv6"] }),
            vec!["10.96.0.1"],
        ),
        (json!({ "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"] }), vec![]),
    ];
    for (spec, expected) in rows {
        let read = service(&spec);
        assert_eq!(texts(read.cluster_ips.iter()), expected, "{spec}");
        assert_eq!(read.skipped, expected.is_empty(), "{spec}");
    }
    assert!(service(&json!({ "type": "ExternalName" })).skipped);
    let empty = reader("a").read_service(r#"{"metadata":null,"spec":null,"status":null}"#).unwrap();
    assert!(empty.skipped && reader("a").read_service("[]").is_err());
}

#[test]
fn d4_local_for_the_outside_needs_an_outside() {
    let rows = [
        (json!({ "type": "LoadBalancer" }), TrafficPolicy::Local),
        (json!({ "type": "NodePort" }), TrafficPolicy::Local),
        (json!({ "type": "ClusterIP" }), TrafficPolicy::Cluster),
        (json!({}), TrafficPolicy::Cluster),
        (json!({ "type": "ClusterIP", "externalIPs": ["192.0.2.1"] }), TrafficPolicy::Local),
    ];
    for (mut spec, expected) in rows {
        spec["externalTrafficPolicy"] = "Local".into();
        spec["healthCheckNodePort"] = 31000.into();
        let read = service(&spec);
        assert_eq!(read.external_policy, expected, "{spec}");
        let balanced = spec["type"] == "LoadBalancer";
        assert_eq!(read.health_check_node_port, balanced.then_some(31000), "{spec}");
    }
    let zero = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 0 });
    assert_eq!(service(&zero).health_check_node_port, None);
    let cluster = json!({ "type": "LoadBalancer", "healthCheckNodePort": 31000 });
    assert_eq!(service(&cluster).health_check_node_port, None);
}

/// Internal, external, reachable from outside; uses cluster, uses local.
#[test]
fn d4_which_lists_a_port_uses() {
    let rows = [
        ("Cluster", "Cluster", false, true, false),
        ("Cluster", "Local", false, true, false),
        ("Local", "Cluster", false, false, true),
        ("Local", "Local", false, false, true),
        ("Cluster", "Cluster", true, true, false),
        ("Cluster", "Local", true, true, true),
        ("Local", "Cluster", true, true, true),
        ("Local", "Local", true, true, true),
    ];
    for (internal, external, outside, cluster, local) in rows {
        let vip = json!({ "loadBalancer": { "ingress": [{ "ip": "198.51.100.1" }] } });
        let ways: [(Value, Value); 3] = [
            (json!({ "ports": [{ "port": 80, "nodePort": 30080 }] }), json!({})),
            (json!({ "externalIPs": ["192.0.2.1"] }), json!({})),
            (json!({}), vip),
        ];
        for (mut spec, status) in ways {
            if !outside {
                spec = json!({});
            }
            spec["type"] = "LoadBalancer".into();
            spec["internalTrafficPolicy"] = internal.into();
            spec["externalTrafficPolicy"] = external.into();
            let mut json = service_json(&spec);
            json["status"] = if outside { status } else { json!({}) };
            let read = reader("a").read_service(&json.to_string()).unwrap();
            let port = &read.ports[0];
            assert_eq!(
                (read.externally_accessible(port), read.uses_cluster(port), read.uses_local(port)),
                (outside, cluster, local),
                "{json}"
            );
        }
    }
}

#[test]
fn a_source_range_of_everyone_restricts_nobody() {
    let read = |ranges: Value| service(&json!({ "loadBalancerSourceRanges": ranges }));
    let both = read(json!(["10.0.0.0/8", "0.0.0.0/0", "fd00::/8"]));
    assert_eq!(texts(both.source_ranges(Family::V4)), Vec::<String>::new());
    assert_eq!(texts(both.source_ranges(Family::V6)), ["fd00::/8"]);
    let other = read(json!(["fd00::/8"]));
    assert_eq!(texts(other.source_ranges(Family::V4)), Vec::<String>::new());
}

#[test]
fn affinity_has_a_default() {
    let rows = [
        (json!({}), None),
        (
            json!({ "sessionAffinity": "None", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 5 } } }),
            None,
        ),
        (json!({ "sessionAffinity": "ClientIP" }), Some(10_800)),
        (
            json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": null } }),
            Some(10_800),
        ),
        (
            json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 5 } } }),
            Some(5),
        ),
        (
            json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": -5 } } }),
            Some(10_800),
        ),
    ];
    for (spec, expected) in rows {
        assert_eq!(service(&spec).affinity_seconds, expected, "{spec}");
    }
}

#[test]
fn d2_the_topology_annotation_and_its_older_name() {
    let (new, old) =
        ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints");
    let rows = [
        (json!({}), false),
        (json!({ new: "Auto" }), true),
        (json!({ new: "auto" }), true),
        (json!({ old: "Auto" }), true),
        (json!({ new: "AUTO" }), false),
        (json!({ new: "Disabled" }), false),
        (json!({ new: "Auto", old: "Disabled" }), false),
        (json!({ new: "Disabled", old: "auto" }), true),
    ];
    for (annotations, expected) in rows {
        let mut json = service_json(&json!({}));
        json["metadata"]["annotations"] = annotations.clone();
        let read = reader("a").read_service(&json.to_string()).unwrap();
        assert_eq!(read.topology_auto, expected, "{annotations}");
    }
}
