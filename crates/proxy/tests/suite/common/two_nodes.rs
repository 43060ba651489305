//! A small cluster with our tables on one of two nodes: a pod that serves on each node, a pod and an
//! outside client that send requests.
//!
//! ```text
//!   client ── fabric ─┬─ n1 (zone a, our tables) ── here (serves), caller
//!                     └─ n2 (zone b)             ── there (serves)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_netns::Namespace;
use zonewise_netns::network::{ClusterNetwork, NetnsClient, NetnsNode, NetnsPod};
use zonewise_netns::traffic::{ProbeResult, Protocol, Server, probe_from, probe_tcp, probe_udp};
use zonewise_proxy::testing::{LocalTraffic, Options};
use zonewise_routing::NodeLocation;

use super::objects::{endpoint, ports, service, slice, with, with_status};
use super::{LONG, PROBE_TIMEOUT, Tables, at, ip, usual_node};

pub(crate) const FAMILIES: [bool; 2] = [false, true];

pub(crate) struct TwoNodeCluster {
    pub(crate) network: ClusterNetwork,
    pub(crate) n1: NetnsNode,
    pub(crate) n2: NetnsNode,
    pub(crate) here: NetnsPod,
    pub(crate) there: NetnsPod,
    pub(crate) caller: NetnsPod,
    pub(crate) client: NetnsClient,
    pub(crate) tables: Tables,
    pub(crate) servers: Vec<Server>,
}

/// Pods are recognised by the cluster's pod range, as in most clusters.
pub(crate) fn by_range() -> Options {
    let cidrs = ["10.244.0.0/16", "fd00:10:244::/48"].map(|text| Cidr::parse(text).unwrap());
    Options { local: LocalTraffic::Cidrs(cidrs.into()), ..Options::default() }
}

impl TwoNodeCluster {
    pub(crate) fn new(options: Options) -> Self {
        let mut network =
            ClusterNetwork::new().expect("network namespaces can be made; this test needs root");
        let n1 = network.add_node("n1", "a").unwrap();
        let n2 = network.add_node("n2", "b").unwrap();
        let here = network.add_pod(&n1, "here").unwrap();
        let there = network.add_pod(&n2, "there").unwrap();
        let caller = network.add_pod(&n1, "caller").unwrap();
        let client = network.add_client("client").unwrap();
        for range in ["10.96.0.0/12", "fd96::/108", "198.51.100.0/24", "2001:db8:1::/48"] {
            client.route_via(net(range), &n1).unwrap();
        }
        let node = usual_node([Some(n1.address(false)), Some(n1.address(true))]);
        let location = NodeLocation::new("n1", Some("a"), None);
        let mut tables = Tables::new(&n1.namespace, location, options, node);
        tables.ranges =
            ["10.96.0.0/12", "fd96::/108"].map(|text| Cidr::parse(text).unwrap()).into();
        let mut cluster =
            Self { network, n1, n2, here, there, caller, client, tables, servers: Vec::new() };
        for pod in [cluster.here.clone(), cluster.there.clone()] {
            cluster.serve(&pod);
        }
        cluster
    }

    /// Starts a server in a pod on port 8080, TCP and UDP, in both families.
    pub(crate) fn serve(&mut self, pod: &NetnsPod) {
        for v6 in FAMILIES {
            let address = at(pod.address(v6), 8080);
            self.servers.push(Server::both(&pod.namespace, &pod.name, address).unwrap());
        }
    }

    /// Writes a Service with endpoints `here` and `there`.
    pub(crate) fn offer(&mut self, service: &Value) {
        let name = service["metadata"]["name"].as_str().unwrap().to_owned();
        let pods = [self.here.clone(), self.there.clone()];
        self.tables.service(service);
        for v6 in FAMILIES {
            let members: Vec<_> =
                pods.iter().map(|pod| endpoint(pod.address(v6), &pod.node, &pod.zone)).collect();
            let object = slice(&name, &format!("{name}-{}", u8::from(v6)), &members);
            self.tables.slice(&both_protocols(object));
        }
    }

    /// The names of the servers that answer over some tries, and the source addresses they see.
    pub(crate) fn answers(&self, from: &Namespace, to: SocketAddr, tries: usize) -> Responses {
        let mut responses = Responses::default();
        for _ in 0..tries {
            responses.note(&probe_tcp(from, to, PROBE_TIMEOUT));
        }
        responses
    }

    pub(crate) fn answers_udp(&self, from: &Namespace, to: SocketAddr, tries: usize) -> Responses {
        let mut responses = Responses::default();
        for _ in 0..tries {
            responses.note(&probe_udp(from, to, PROBE_TIMEOUT));
        }
        responses
    }

    pub(crate) fn answer_from(
        &self,
        from: &Namespace,
        source: IpAddr,
        to: SocketAddr,
    ) -> ProbeResult {
        probe_from(from, Protocol::Tcp, at(source, 0), to, PROBE_TIMEOUT)
    }
}

/// Who was responses, by name; sources they saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Responses {
    pub(crate) names: BTreeSet<String>,
    pub(crate) sources: BTreeSet<IpAddr>,
}

impl Responses {
    fn note(&mut self, answer: &ProbeResult) {
        self.names.insert(answer.to_string());
        if let ProbeResult::Answered { source, .. } = answer {
            self.sources.insert(*source);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.names.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn net(text: &str) -> Cidr {
    Cidr::parse(text).unwrap()
}

/// The slice with its port 8080 for TCP and UDP.
pub(crate) fn both_protocols(slice: Value) -> Value {
    ports(slice, &[("http", 8080, "TCP"), ("udp", 8080, "UDP")])
}

/// A dual-stack Service, number `n`, with TCP and UDP on port 80, a NodePort and a load balancer's
/// address.
pub(crate) fn full(name: &str, n: u8, changes: Value) -> Value {
    let four = format!("10.96.0.{n}");
    let six = format!("fd96::{n}");
    let object = service(name, &[&four, &six]);
    let node_port = 30_000 + u16::from(n);
    let object = with(
        object,
        json!({
            "type": "LoadBalancer",
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "nodePort": node_port},
                {"name": "udp", "port": 80, "protocol": "UDP", "nodePort": node_port},
            ],
        }),
    );
    let vips = json!([{"ip": format!("198.51.100.{n}")}, {"ip": format!("2001:db8:1::{n}")}]);
    with_status(with(object, changes), json!({"loadBalancer": {"ingress": vips}}))
}

/// Connects again and again until it is told to stop; how often each endpoint answered.
pub(crate) fn probe_until(
    from: &Namespace,
    to: SocketAddr,
    done: &AtomicBool,
) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        *counts.entry(probe_tcp(from, to, LONG).to_string()).or_default() += 1;
    }
    counts
}

pub(crate) fn cluster_ip(n: u8, v6: bool) -> SocketAddr {
    at(ip(&if v6 { format!("fd96::{n}") } else { format!("10.96.0.{n}") }), 80)
}

pub(crate) fn vip(n: u8, v6: bool) -> SocketAddr {
    at(ip(&if v6 { format!("2001:db8:1::{n}") } else { format!("198.51.100.{n}") }), 80)
}

pub(crate) fn node_port(node: &NetnsNode, n: u8, v6: bool) -> SocketAddr {
    at(node.address(v6), 30_000 + u16::from(n))
}
