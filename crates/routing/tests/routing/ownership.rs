//! Which Service has a frontend: no Service takes what belongs to another.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_common::name::{Key, Name};
use zonewise_routing::{
    Claim, Family, Frontend, Ownership, Protected, Protocol, Refusal, RoutedService,
};

use crate::common::reader;

/// A Service `ns/name` with the ClusterIP 10.96.0.`n`, port 80 and these fields of its spec.
pub(crate) fn service(name: &str, n: u8, created: &str, spec: &Value) -> RoutedService {
    let mut object = json!({
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": created},
        "spec": {
            "clusterIP": format!("10.96.0.{n}"), "clusterIPs": [format!("10.96.0.{n}")],
            "ipFamilies": ["IPv4"], "ports": [{"port": 80}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        match key.as_str() {
            "status" => object["status"] = value.clone(),
            _ => object["spec"][key] = value.clone(),
        }
    }
    reader("a").read_service(&object.to_string()).unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    ("ns".into(), name.into())
}

fn claim(ownership: &mut Ownership, service: &RoutedService) {
    for port in &service.ports {
        for (frontend, exposure) in service.frontends(port, Family::V4) {
            let service_key = (Name::clone(&service.namespace), Name::clone(&service.name));
            let claim = Claim { exposure, created: service.created, service: service_key };
            ownership.claim(frontend, claim);
        }
    }
}

fn of(services: &[&RoutedService], protected: Protected) -> Ownership {
    let mut ownership = Ownership::new(protected);
    services.iter().for_each(|service| claim(&mut ownership, service));
    ownership
}

fn owner<'o>(ownership: &'o Ownership, socket: &str) -> Option<&'o str> {
    let socket: std::net::SocketAddr = socket.parse().unwrap();
    let frontend = Frontend::at(socket.ip(), Protocol::Tcp, socket.port());
    ownership.owner(&frontend).map(|(_, name)| &**name)
}

/// Every claim without effect, as text.
fn refused(ownership: &Ownership) -> BTreeSet<String> {
    let line = |(frontend, claim, refusal): (&Frontend, &Claim, _)| {
        let at = frontend.socket().map_or_else(String::new, |socket| socket.to_string());
        format!("{} {at}: {refusal}", claim.service.1)
    };
    ownership.refused().map(line).collect()
}

pub(crate) const OLD: &str = "2020-01-01T00:00:00Z";
pub(crate) const NEW: &str = "2026-01-01T00:00:00Z";

#[test]
fn claims_are_ranked_by_kind_then_age_then_name() {
    let vip = "203.0.113.7";
    let external = json!({"externalIPs": [vip]});
    let balanced =
        json!({"type": "LoadBalancer", "status": {"loadBalancer": {"ingress": [{"ip": vip}]}}});
    let (young_vip, old_external) =
        (service("zzz", 1, NEW, &balanced), service("aaa", 2, OLD, &external));
    let (new_external, same_age) =
        (service("aab", 3, NEW, &external), service("aac", 4, NEW, &external));
    let rows: [(&[&RoutedService], &str); 4] = [
        (&[&old_external, &young_vip, &new_external], "zzz"),
        (&[&new_external, &old_external], "aaa"),
        (&[&same_age, &new_external], "aab"),
        (&[&same_age], "aac"),
    ];
    for (services, expected) in rows {
        let orders = [services.to_vec(), services.iter().rev().copied().collect()];
        for order in orders {
            let ownership = of(&order, Protected::default());
            assert_eq!(owner(&ownership, "203.0.113.7:80"), Some(expected));
            let losers = services.iter().filter(|service| &*service.name != expected);
            let told = losers.map(|service| {
                format!(
                    "{} {vip}:80: Service ns/{expected} has this address and port",
                    service.name
                )
            });
            assert_eq!(refused(&ownership), told.collect());
        }
    }
}

#[test]
fn the_next_in_rank_follows_when_the_owner_goes() {
    let external = json!({"externalIPs": ["203.0.113.7"]});
    let (old, new) = (service("old", 1, OLD, &external), service("new", 2, NEW, &external));
    let mut ownership = of(&[&new, &old], Protected::default());
    let frontend = Frontend::at("203.0.113.7".parse().unwrap(), Protocol::Tcp, 80);
    ownership.release(&frontend, &key("old"));
    assert_eq!(ownership.owner(&frontend), Some(&key("new")));
    ownership.release(&frontend, &key("new"));
    assert_eq!(ownership.owner(&frontend), None);
    assert_eq!(refused(&ownership), BTreeSet::new());
}

#[test]
fn external_ips_never_have_what_belongs_to_the_cluster() {
    let ports = json!([{"port": 81}, {"port": 10_250}, {"port": 6443}, {"port": 30_080}]);
    let ips = json!(["10.96.0.10", "10.100.0.1", "192.168.0.1", "203.0.113.7"]);
    // The oldest, and the first by name.
    let thief = service("aaa", 1, OLD, &json!({"externalIPs": ips, "ports": ports}));
    let dns = service("dns", 10, NEW, &json!({}));
    let node_port = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_080}]});
    let node_port = service("web", 11, NEW, &node_port);
    let protected = Protected {
        service_cidrs: vec![Cidr::parse("10.100.0.0/16").unwrap()],
        node_ports: vec![10_250],
    };
    let mut ownership = of(&[&thief, &dns, &node_port], protected);
    ownership.set_api_servers(["192.168.0.1:6443".parse().unwrap()].into());
    let range = "the external IP is in the range of ClusterIPs or is another Service's ClusterIP";
    let reserved = "nodes or the API server listen at this port of the external IP themselves";
    let node =
        "the port is another Service's NodePort, and the external IP may be a node's address";
    let mut expected = BTreeSet::from([
        format!("aaa 192.168.0.1:10250: {reserved}"),
        format!("aaa 203.0.113.7:10250: {reserved}"),
        format!("aaa 192.168.0.1:6443: {reserved}"),
        format!("aaa 192.168.0.1:30080: {node}"),
        format!("aaa 203.0.113.7:30080: {node}"),
    ]);
    for port in [81, 10_250, 6443, 30_080] {
        expected.insert(format!("aaa 10.96.0.10:{port}: {range}"));
        expected.insert(format!("aaa 10.100.0.1:{port}: {range}"));
    }
    assert_eq!(refused(&ownership), expected);
    let kept = ["192.168.0.1:81", "203.0.113.7:81", "203.0.113.7:6443"];
    assert_eq!(kept.map(|socket| owner(&ownership, socket)), [Some("aaa"); 3]);
}

/// A NodePort that comes or goes changes the frontends of those who claim its port as an external IP.
#[test]
fn a_node_port_concerns_the_external_ips_with_its_port() {
    let external = |name, n, port| {
        let spec = json!({"externalIPs": ["203.0.113.7"], "ports": [{"port": port}]});
        service(name, n, NEW, &spec)
    };
    let (same, other) = (external("same", 1, 30_080), external("other", 2, 30_081));
    let ownership = of(&[&same, &other], Protected::default());
    let web = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_080}]});
    let web = service("web", 3, NEW, &web);
    let frontends = web.frontends(&web.ports[0], Family::V4);
    let concerned = ownership.competitors(&key("web"), frontends.iter());
    assert_eq!(concerned, BTreeSet::from([key("same")]));
}

/// An address of a Service may be listed twice; it is one frontend, of the higher rank.
#[test]
fn a_service_does_not_compete_with_itself() {
    let both = json!({
        "type": "LoadBalancer", "externalIPs": ["203.0.113.7", "10.96.0.1"],
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
    });
    let ownership = of(&[&service("web", 1, OLD, &both)], Protected::default());
    assert_eq!(refused(&ownership), BTreeSet::new());
    assert_eq!(owner(&ownership, "10.96.0.1:80"), Some("web"));
}

/// External IPs are refused at any port and protocol of an address that is another Service's ClusterIP.
#[test]
fn a_cluster_ip_is_protected_at_ports_and_protocols_it_does_not_serve() {
    let sctp = json!({"ports": [{"port": 9, "protocol": "SCTP"}]});
    let owner = service("owner", 10, NEW, &sctp);
    for (protocol, port) in [("TCP", 1), ("UDP", 53), ("SCTP", 65_535)] {
        let ports = json!([{"port": port, "protocol": protocol}]);
        let thief = json!({"externalIPs": ["10.96.0.10", "10.96.0.11"], "ports": ports});
        let ownership = of(&[&owner, &service("thief", 1, OLD, &thief)], Protected::default());
        let told: Vec<String> =
            ownership.refused().map(|(at, _, refusal)| format!("{at} {refusal:?}")).collect();
        assert_eq!(told, [format!("10.96.0.10:{port}/{protocol} ClusterIp")]);
    }
}

/// Competitors of a ClusterIP are all who claim its address, whatever the protocol and port.
#[test]
fn a_cluster_ip_concerns_the_external_ips_at_its_address() {
    let external = |name, n, port, protocol| {
        let ports = json!([{"port": port, "protocol": protocol}]);
        service(name, n, NEW, &json!({"externalIPs": ["10.96.0.9"], "ports": ports}))
    };
    let others = [
        external("tcp", 1, 1, "TCP"),
        external("udp", 2, 80, "UDP"),
        external("sctp", 3, 65_535, "SCTP"),
    ];
    let neighbour = service("neighbour", 4, NEW, &json!({"externalIPs": ["10.96.0.8"]}));
    let services: Vec<&RoutedService> = others.iter().chain([&neighbour]).collect();
    let ownership = of(&services, Protected::default());
    let dns = service("dns", 9, NEW, &json!({"ports": [{"port": 53, "protocol": "UDP"}]}));
    let frontends = dns.frontends(&dns.ports[0], Family::V4);
    let concerned = ownership.competitors(&key("dns"), frontends.iter());
    assert_eq!(concerned, ["sctp", "tcp", "udp"].map(key).into());
}

#[test]
fn api_servers_concern_those_who_claim_their_sockets() {
    let at = |name, n, port, protocol| {
        let ports = json!([{"port": port, "protocol": protocol}]);
        service(name, n, NEW, &json!({"externalIPs": ["192.168.0.1"], "ports": ports}))
    };
    let services =
        [at("same", 1, 6443, "TCP"), at("udp", 2, 6443, "UDP"), at("other", 3, 6444, "TCP")];
    let mut ownership = of(&services.each_ref(), Protected::default());
    assert_eq!(ownership.api_servers(), &BTreeSet::new());
    let sockets =
        BTreeSet::from(["192.168.0.1:6443", "[fd00::1]:6443"].map(|at| at.parse().unwrap()));
    assert_eq!(ownership.claimants(&sockets), BTreeSet::from([key("same")]));
    ownership.set_api_servers(sockets.clone());
    assert_eq!(ownership.api_servers(), &sockets);
    assert_eq!(owner(&ownership, "192.168.0.1:6443"), None);
    assert_eq!(owner(&ownership, "192.168.0.1:6444"), Some("other"));
}

#[test]
fn what_is_protected_can_change() {
    let thief = service("thief", 1, OLD, &json!({"externalIPs": ["203.0.113.7"]}));
    let mut ownership = of(&[&thief], Protected::default());
    let owner = |ownership: &Ownership| owner(ownership, "203.0.113.7:80").map(str::to_owned);
    assert_eq!(owner(&ownership).as_deref(), Some("thief"));
    ownership.set_protected(Protected { service_cidrs: Vec::new(), node_ports: vec![80] });
    assert_eq!(owner(&ownership), None);
    ownership.set_protected(Protected::default());
    let range = Cidr::parse("203.0.113.0/24").unwrap();
    assert!(ownership.set_service_cidrs(vec![range]));
    assert!(!ownership.set_service_cidrs(vec![range]), "the same as before");
    assert_eq!(owner(&ownership), None);
}

#[test]
fn the_owner_is_named_only_to_those_who_may_know() {
    let outranked = || Refusal::Outranked { by: Some(key("web")) };
    let mut shown = outranked();
    shown.hide_owner_unless(|(namespace, _)| &**namespace == "ns");
    assert_eq!(shown, outranked());
    let mut hidden = outranked();
    hidden.hide_owner_unless(|(namespace, _)| &**namespace == "other");
    assert_eq!(hidden, Refusal::Outranked { by: None });
    assert_eq!(hidden.to_string(), "a Service of another namespace has this address and port");
}
