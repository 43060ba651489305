//! Services whose endpoints have weights.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_nft::{Family, Socket};
use zonewise_proxy::testing::{Options, TABLE};
use zonewise_routing::NodeLocation;

use super::objects::{Endpoint, endpoint, service, with, with_status};
use super::{Tables, ip, usual_node};

pub(crate) const SHARES: &str = "zonewise.dev/zone-shares";

pub(crate) fn tables(namespace: &Namespace) -> Tables {
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    Tables::new(namespace, NodeLocation::new("n1", Some("a"), None), Options::default(), node)
}

/// How many elements the IPv4 table in the kernel has.
pub(crate) fn elements(namespace: &Namespace) -> usize {
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let mut elements = 0;
        for set in socket.sets(Family::Ip, TABLE).unwrap() {
            socket.dump(Family::Ip, TABLE, &set.name, &mut |_| elements += 1).unwrap();
        }
        elements
    })
}

/// The names of the chains of the IPv4 table in the kernel.
pub(crate) fn chain_names(namespace: &Namespace) -> Vec<String> {
    let chains = namespace.enter(|| Socket::open().unwrap().chains(Family::Ip, TABLE));
    chains.unwrap().into_iter().map(|chain| chain.name).collect()
}

/// Endpoints, the n-th in the zone that `zone` says.
pub(crate) fn members(first: u32, count: u32, zone: impl Fn(u32) -> &'static str) -> Vec<Endpoint> {
    let address = |n| IpAddr::V4(Ipv4Addr::from(0x0af4_0000 + first + n));
    (0..count).map(|n| endpoint(address(n), "n9", zone(n))).collect()
}

/// Shares for endpoints that are in their zones already.
pub(crate) fn shares(counts: [u32; 3], parts: [f64; 3]) -> String {
    let zones = ["a", "b", "c"].into_iter().zip(counts.into_iter().zip(parts));
    let used: Vec<(&str, (u32, f64))> = zones.filter(|(_, (count, _))| *count > 0).collect();
    let endpoints: BTreeMap<&str, u32> =
        used.iter().map(|(zone, (count, _))| (*zone, *count)).collect();
    let from: BTreeMap<&str, f64> = used.iter().map(|(zone, (_, part))| (*zone, *part)).collect();
    json!({"v": 1, "endpoints": endpoints, "from": {"a": from}}).to_string()
}

/// A Service with a ClusterIP, a NodePort and a load balancer's address for each of its ports.
pub(crate) fn load_balancer(
    name: &str,
    cluster_ip: &str,
    vip: &str,
    numbers: std::ops::Range<u16>,
) -> Value {
    let port = |n: u16| json!({"name": format!("p{n}"), "port": n, "protocol": "TCP", "nodePort": 30_000 + n});
    let all: Vec<Value> = numbers.map(port).collect();
    let object = with(service(name, &[cluster_ip]), json!({"type": "LoadBalancer", "ports": all}));
    with_status(object, json!({"loadBalancer": {"ingress": [{"ip": vip}]}}))
}
