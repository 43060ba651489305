//! Which Service has a frontend: no Service takes what belongs to another.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_common::name::{Key, Name};
use zonewise_routing::{Claim, Family, Frontend, Ownership, Protected, Protocol, RoutedService};

use crate::common::reader;

/// A Service `ns/name` with the ClusterIP 10.96.0.`n`, port 80 and these fields of its spec.
fn service(name: &str, n: u8, created: &str, spec: &Value) -> RoutedService {
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

fn key(name: &str) -> Key {
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

const OLD: &str = "2020-01-01T00:00:00Z";
const NEW: &str = "2026-01-01T00:00:00Z";

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
