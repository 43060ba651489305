//! The addresses and ports that a Service claims.

use std::collections::BTreeSet;

use serde_json::json;
use zonewise_routing::{Family, Frontend, Protocol, RoutedService};

use crate::common::reader;

fn dual_stack() -> RoutedService {
    let json = json!({
        "metadata": {"namespace": "ns", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": ["203.0.113.9", "203.0.113.7", "10.96.0.1"],
            "ports": [
                {"name": "http", "port": 80, "nodePort": 30_080},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}]}},
    });
    reader("a").read_service(&json.to_string()).unwrap()
}

fn lines(claims: &[(Frontend, zonewise_routing::Exposure)]) -> Vec<String> {
    claims.iter().map(|(frontend, exposure)| format!("{frontend} {exposure:?}")).collect()
}

#[test]
fn a_service_claims_each_frontend_once_by_its_highest_rank() {
    let service = dual_stack();
    let mut lines = lines(&service.claims());
    lines.sort();
    let expected = [
        "10.96.0.1:53/UDP ClusterIp",
        "10.96.0.1:80/TCP ClusterIp",
        "203.0.113.7:53/UDP LoadBalancer",
        "203.0.113.7:80/TCP LoadBalancer",
        "203.0.113.9:53/UDP ExternalIp",
        "203.0.113.9:80/TCP ExternalIp",
        "[2001:db8::7]:53/UDP LoadBalancer",
        "[2001:db8::7]:80/TCP LoadBalancer",
        "[fd00::1]:53/UDP ClusterIp",
        "[fd00::1]:80/TCP ClusterIp",
        "node port 30080/TCP NodePort",
        "node port 30080/TCP NodePort",
        "node port 32000/TCP NodePort",
        "node port 32000/TCP NodePort",
    ];
    assert_eq!(lines, expected);
    // The two of each NodePort are of IPv4 and IPv6.
    let unique: BTreeSet<Frontend> = service.claims().into_iter().map(|(at, _)| at).collect();
    assert_eq!(unique.len(), expected.len());
}

#[test]
fn the_frontends_of_a_port_are_those_of_one_family() {
    let service = dual_stack();
    let of = |port: usize, family| lines(&service.frontends(&service.ports[port], family));
    let http = [
        "10.96.0.1:80/TCP ClusterIp",
        "203.0.113.7:80/TCP LoadBalancer",
        "203.0.113.9:80/TCP ExternalIp",
        "node port 30080/TCP NodePort",
    ];
    assert_eq!(of(0, Family::V4), http);
    assert_eq!(
        of(1, Family::V6),
        ["[fd00::1]:53/UDP ClusterIp", "[2001:db8::7]:53/UDP LoadBalancer"]
    );
}

/// A proxy looks an address up by the range of its ports.
#[test]
fn frontends_of_one_address_follow_each_other() {
    let at = |ip: &str, protocol, port| Frontend::at(ip.parse().unwrap(), protocol, port);
    let ordered = [
        Frontend::node_port(Family::V4, Protocol::Tcp, 80),
        Frontend::node_port(Family::V6, Protocol::Tcp, 80),
        at("10.0.0.1", Protocol::Tcp, 65_535),
        at("10.0.0.1", Protocol::Udp, 1),
        at("10.0.0.1", Protocol::Sctp, 1),
        at("10.0.0.2", Protocol::Tcp, 1),
    ];
    assert!(ordered.is_sorted());
    assert_eq!(ordered[2].socket(), Some("10.0.0.1:65535".parse().unwrap()));
    assert_eq!(ordered[0].socket(), None);
}
