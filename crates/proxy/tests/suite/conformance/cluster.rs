//! A cluster with our tables on every node, for the conformance tests.
//!
//! ```text
//!   client ── fabric ─┬─ n1 (our tables) ── caller-1, pods that serve
//!                     ├─ n2 (our tables) ── caller-2, pods that serve
//!                     └─ …
//! ```
//!
//! A node only recognises its own pods, by the node's pod range: a pod of another node counts as an
//! outside client, as the conformance specs expect.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use zonewise_common::cidr::Cidr;
use zonewise_netns::Namespace;
use zonewise_netns::network::{ClusterNetwork, NetnsClient, NetnsNode, NetnsPod};
use zonewise_netns::traffic::{
    ProbeResult, Protocol, Server, probe_from, probe_tcp, probe_tcp_many, probe_udp, probe_udp_many,
};
use zonewise_nft::conntrack::Conntrack;
use zonewise_nft::{Family, Network};
use zonewise_proxy::testing::{
    FAMILIES as TABLES, Frontends, Known, LocalTraffic, Options, find, interface_addresses, remove,
    routing_family,
};
use zonewise_routing::{self as routing, NodeLocation, RouteQuery, serving_targets};

use crate::common::objects::{Endpoint, endpoint, slice};
use crate::common::two_nodes::{FAMILIES, both_protocols, net};
use crate::common::{PROBE_TIMEOUT, Tables, at, usual_node};

/// With this many tries, one of three equal endpoints is missed once in a hundred million runs.
pub(crate) const TRIES: usize = 48;
const RANGES: [&str; 2] = ["10.96.0.0/12", "fd96::/108"];

pub(crate) struct ProxyNode {
    pub(crate) node: NetnsNode,
    pub(crate) tables: Tables,
    pub(crate) caller: NetnsPod,
}

pub(crate) struct ConformanceCluster {
    pub(crate) network: ClusterNetwork,
    pub(crate) nodes: Vec<ProxyNode>,
    pub(crate) client: NetnsClient,
    pub(crate) servers: Vec<Server>,
}

/// Options that recognise the pods of a node by the node's pod range.
fn of_node(node: &NetnsNode) -> Options {
    let cidrs = [node.pods_v4, node.pods_v6];
    Options { local: LocalTraffic::Cidrs(cidrs.into()), ..Options::default() }
}

impl ConformanceCluster {
    /// A node in each of these zones: `n1`, `n2` and so on.
    pub(crate) fn new(zones: &[&str]) -> Self {
        let mut network =
            ClusterNetwork::new().expect("network namespaces can be made; this test needs root");
        let nodes: Vec<NetnsNode> = (1..)
            .zip(zones)
            .map(|(number, zone)| network.add_node(&format!("n{number}"), zone).unwrap())
            .collect();
        let client = network.add_client("client").unwrap();
        for range in RANGES.into_iter().chain(["198.51.100.0/24", "2001:db8:1::/48"]) {
            client.route_via(net(range), &nodes[0]).unwrap();
        }
        let nodes = nodes.into_iter().map(|node| ProxyNode::new(&mut network, node)).collect();
        Self { network, nodes, client, servers: Vec::new() }
    }

    /// Adds a pod that answers on port 8080.
    pub(crate) fn pod(&mut self, index: usize, name: &str) -> NetnsPod {
        let pod = self.network.add_pod(&self.nodes[index].node, name).unwrap();
        for v6 in FAMILIES {
            self.serve(&pod.namespace, name, at(pod.address(v6), 8080));
        }
        pod
    }

    /// Starts a server for TCP and UDP.
    pub(crate) fn serve(&mut self, namespace: &Namespace, name: &str, address: SocketAddr) {
        self.servers.push(Server::both(namespace, name, address).unwrap());
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut Tables)) -> &mut Self {
        for node in &mut self.nodes {
            change(&mut node.tables);
        }
        self
    }

    pub(crate) fn delete_service(&mut self, name: &str) -> &mut Self {
        for node in &mut self.nodes {
            node.tables.delete_service("ns", name);
        }
        self
    }

    pub(crate) fn delete_slice(&mut self, name: &str) -> &mut Self {
        for node in &mut self.nodes {
            node.tables.delete_slice("ns", name);
        }
        self
    }

    pub(crate) fn service(&mut self, object: &Value) -> &mut Self {
        for node in &mut self.nodes {
            node.tables.service(object);
        }
        self
    }

    pub(crate) fn slice(&mut self, object: &Value) -> &mut Self {
        for node in &mut self.nodes {
            node.tables.slice(object);
        }
        self
    }

    /// The endpoints of a Service, in a slice for each family.
    pub(crate) fn members(
        &mut self,
        service: &str,
        members: impl Fn(bool) -> Vec<Endpoint>,
    ) -> &mut Self {
        for v6 in FAMILIES {
            let name = format!("{service}-{}", u8::from(v6));
            let members = members(v6);
            if members.is_empty() {
                self.delete_slice(&name);
            } else {
                self.slice(&both_protocols(slice(service, &name, &members)));
            }
        }
        self
    }

    /// A Service with these pods behind it, written everywhere.
    pub(crate) fn offer(&mut self, service: &Value, pods: &[&NetnsPod]) -> &mut Self {
        let name = service["metadata"]["name"].as_str().unwrap().to_owned();
        self.service(service).members(&name, |v6| ready(pods, v6)).sync()
    }

    /// Writes what has changed and deletes all UDP flows: a client that reuses its source port would otherwise
    /// follow its old flow to an endpoint that may still serve.
    pub(crate) fn sync(&mut self) -> &mut Self {
        self.settle();
        self.nodes.iter().for_each(ProxyNode::forget_flows);
        self
    }

    /// Writes what has changed, and cleans up as the proxy does after a sync.
    pub(crate) fn settle(&mut self) -> &mut Self {
        for node in &mut self.nodes {
            node.sync();
        }
        self
    }

    /// Removes leftover elements, then checks that the kernel holds exactly what it should.
    pub(crate) fn assert_clean(&mut self) {
        self.each(|tables| {
            tables.kernel.remove_unused().unwrap();
            tables.assert_repaired();
        });
    }

    /// The namespaces of the calling pod and of the node itself, for every node.
    pub(crate) fn inside(&self) -> Vec<&Namespace> {
        self.nodes.iter().flat_map(|node| [&node.caller.namespace, &node.node.namespace]).collect()
    }

    pub(crate) fn caller(&self, index: usize) -> &Namespace {
        &self.nodes[index].caller.namespace
    }

    pub(crate) fn node(&self, index: usize) -> &NetnsNode {
        &self.nodes[index].node
    }
}

impl ProxyNode {
    fn new(network: &mut ClusterNetwork, node: NetnsNode) -> Self {
        let caller = network.add_pod(&node, &format!("caller-{}", node.number)).unwrap();
        let addresses = usual_node([Some(node.address(false)), Some(node.address(true))]);
        let location = NodeLocation::new(&node.name, Some(&node.zone), None);
        let mut tables = Tables::new(&node.namespace, location, of_node(&node), addresses);
        tables.ranges = RANGES.map(|text| Cidr::parse(text).unwrap()).into();
        Self { node, tables, caller }
    }

    /// A sync, and the clean-up after it; returns how many stale flows were deleted.
    pub(crate) fn sync(&mut self) -> usize {
        self.tables.sync().forget_clients();
        let frontends = frontends(&self.tables);
        self.node.namespace.enter(|| {
            let own: BTreeSet<IpAddr> = interface_addresses().unwrap().into_iter().collect();
            let here = Network::default();
            frontends
                .iter()
                .map(|(family, of)| {
                    remove(&here, &find(&here, *family, of, &own).unwrap().stale).unwrap()
                })
                .sum()
        })
    }

    fn forget_flows(&self) {
        self.node.namespace.enter(|| {
            let mut conntrack = Conntrack::open().unwrap();
            for family in TABLES {
                let mut flows = Vec::new();
                conntrack.flows(family, Some(17), &mut |flow| flows.push(*flow)).unwrap();
                flows.iter().for_each(|flow| conntrack.delete(flow).unwrap());
            }
        });
    }
}

/// The UDP frontends of all Services, as the proxy collects them.
fn frontends(tables: &Tables) -> BTreeMap<Family, Frontends> {
    let mut frontends: BTreeMap<Family, Frontends> = BTreeMap::new();
    for (key, service) in tables.index.services() {
        let slices = tables.index.slices(key);
        let udp = service.ports.iter().filter(|port| port.protocol == routing::Protocol::Udp);
        for (port, family) in udp.flat_map(|port| TABLES.map(|family| (port, family))) {
            let query = RouteQuery {
                reader: &tables.reader,
                gates: &tables.gates,
                service,
                port,
                family: routing_family(family),
                slices: &slices,
            };
            let serving = serving_targets(&query);
            let owned = tables.kernel.desired().owned(key);
            let at = owned.into_iter().filter(|at| {
                at.family == query.family
                    && service.frontends(port, at.family).iter().any(|of| of.0 == *at)
            });
            frontends.entry(family).or_default().add(service, at, &serving, Known::All);
        }
    }
    frontends
}

/// These pods, ready.
pub(crate) fn ready(pods: &[&NetnsPod], v6: bool) -> Vec<Endpoint> {
    pods.iter().map(|pod| endpoint(pod.address(v6), &pod.node, &pod.zone)).collect()
}

pub(crate) fn probe(protocol: Protocol, from: &Namespace, to: SocketAddr) -> ProbeResult {
    match protocol {
        Protocol::Tcp => probe_tcp(from, to, PROBE_TIMEOUT),
        Protocol::Udp => probe_udp(from, to, PROBE_TIMEOUT),
    }
}

/// The names of the servers that answer over one protocol. If the first try gets no answer, there are no more
/// tries, because each would wait for the timeout.
pub(crate) fn reached(protocol: Protocol, from: &Namespace, to: SocketAddr) -> String {
    let first = probe(protocol, from, to);
    if first.name().is_none() {
        return first.to_string();
    }
    let many = match protocol {
        Protocol::Tcp => probe_tcp_many,
        Protocol::Udp => probe_udp_many,
    };
    let mut names: BTreeSet<String> =
        many(from, to, TRIES - 1, PROBE_TIMEOUT).into_keys().collect();
    names.insert(first.to_string());
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// The names of the servers that answer, which must be the same over TCP and UDP.
pub(crate) fn reach(from: &Namespace, to: SocketAddr) -> String {
    let [tcp, udp] = std::thread::scope(|scope| {
        [Protocol::Tcp, Protocol::Udp]
            .map(|protocol| scope.spawn(move || reached(protocol, from, to)))
            .map(|asked| asked.join().unwrap())
    });
    assert_eq!(tcp, udp, "{from:?} to {to}: TCP and UDP");
    tcp
}

/// The same for several ways at the same time: where nobody answers, each takes until its timeout.
pub(crate) fn reach_each(ways: &[(&Namespace, SocketAddr)]) -> Vec<String> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            ways.iter().map(|(from, to)| scope.spawn(move || reach(from, *to))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// One datagram from a port that does not change, as `nc -p` sends it.
pub(crate) fn repeat(from: &Namespace, source: IpAddr, to: SocketAddr) -> String {
    probe_from(from, Protocol::Udp, at(source, 12_345), to, PROBE_TIMEOUT).to_string()
}
