//! A small dual-stack cluster network of several zones, with clients outside it.
//!
//! ```text
//!   client ── eth0 ──────── client-N ┌────────┐ node-N ──────── eth0 ── node
//!                                    │ fabric │
//!   the client's own routing table ─►│  br0   │        node ── veth-x ──────── eth0 ── pod
//!   "this network through that node" └────────┘              a /32 and a /128 route
//! ```
//!
//! Each pod and client has a veth pair of its own, with one address per family and no subnet. Its
//! gateway is the other end of the pair, 169.254.1.1 and fe80::1. The node's end has no routable
//! address, so a node's packets to its pods carry the node's own address.
//!
//! The fabric silently drops packets it has no route for (blackhole routes). A probe that is
//! refused was therefore refused by a node or a pod, never by the fabric.
//!
//! Nodes, pods and clients exist as long as the network or any copy of them; pods can be removed
//! earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use zonewise_common::cidr::Cidr;

use crate::links::remove_bridge_port;
use crate::{Error, Namespace, Route, add_bridge_port, bridge, veth};

/// The interface that every node, pod and client has.
pub const INTERFACE: &str = "eth0";
/// The fabric's bridge.
const BRIDGE: &str = "br0";
/// The fabric's host number in the nodes' subnet.
const FABRIC: u8 = 254;
/// The gateway of pods and clients.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// Host number of the first pod of a node: real networks keep .1 for a gateway.
const FIRST_POD: u8 = 2;
/// Routing tables of clients start at this number, far from the kernel's own (253 to 255, `enum rt_class_t` in
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/rtnetlink.h>).
const FIRST_CLIENT_TABLE: u32 = 1000;
/// The longest interface name: `IFNAMSIZ` in <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/if.h>,
/// without the NUL byte.
const MAX_INTERFACE_NAME: usize = 15;

/// Nodes, a fabric that connects them, pods on the nodes and clients outside the cluster.
#[derive(Debug)]
pub struct ClusterNetwork {
    fabric: Namespace,
    /// Zone name → the zone's own bridge in the fabric, for zones behind a delayed link.
    zone_bridges: BTreeMap<String, String>,
    nodes: Vec<NetnsNode>,
    pods: Vec<NetnsPod>,
    clients: Vec<NetnsClient>,
    pod_numbers: BTreeMap<u8, Numbers>,
    client_numbers: Numbers,
}

/// A node of the cluster, in a network namespace of its own. Copies refer to the same node.
#[derive(Clone, Debug)]
pub struct NetnsNode {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its number, from 1.
    pub number: u8,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// The IPv4 range of its pods.
    pub pods_v4: Cidr,
    /// The IPv6 range of its pods.
    pub pods_v6: Cidr,
    /// The hardware address of its interface.
    mac: Vec<u8>,
}

/// A pod, in a network namespace of its own. Copies refer to the same pod.
#[derive(Clone, Debug)]
pub struct NetnsPod {
    /// Its name.
    pub name: String,
    /// The name of its node.
    pub node: String,
    /// The zone of its node.
    pub zone: String,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// The node's end of its veth pair: `veth-NAME`, or `veth-pNUMBER` if the name is too long.
    pub interface: String,
    node_namespace: Namespace,
    node_number: u8,
    number: u8,
}

/// A client outside the cluster, in a network namespace of its own. Copies refer to the same client.
#[derive(Clone, Debug)]
pub struct NetnsClient {
    /// Its name.
    pub name: String,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    fabric: Namespace,
    routing_table: u32,
}

impl ClusterNetwork {
    /// A fabric without nodes, pods or clients.
    pub fn new() -> Result<Self, Error> {
        let fabric = Namespace::new("fabric")?;
        fabric.enable_forwarding()?;
        bridge(&fabric, BRIDGE)?;
        let (v4, v6) = node_addresses(FABRIC);
        fabric.add_address(BRIDGE, v4.into(), 24)?;
        fabric.add_address(BRIDGE, v6.into(), 64)?;
        fabric.add_address(BRIDGE, link_local(FABRIC).into(), 64)?;
        fabric.add_route(&Route::to(Cidr::default_of(v4.into())))?;
        fabric.add_route(&Route::to(Cidr::default_of(v6.into())))?;
        Ok(Self {
            fabric,
            zone_bridges: BTreeMap::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
            clients: Vec::new(),
            pod_numbers: BTreeMap::new(),
            client_numbers: Numbers::new(1, 254),
        })
    }

    /// The router that connects all nodes and clients.
    pub fn fabric(&self) -> &Namespace {
        &self.fabric
    }

    /// All nodes, in the order they were added.
    pub fn nodes(&self) -> &[NetnsNode] {
        &self.nodes
    }

    /// All pods, in the order they were added.
    pub fn pods(&self) -> &[NetnsPod] {
        &self.pods
    }

    /// Adds `round_trip` to every round trip between a zone and everything outside it.
    ///
    /// Only nodes that are added to the zone afterwards are behind the delayed link.
    pub fn delay_zone(&mut self, zone: &str, round_trip: Duration) -> Result<(), Error> {
        let number = self.zone_bridges.len() + 1;
        let [own, out, port] = ["zone", "out", "in"].map(|name| format!("{name}-{number}"));
        bridge(&self.fabric, &own)?;
        veth(&self.fabric, &out, &self.fabric, &port)?;
        for (end, bridge) in [(&out, own.as_str()), (&port, BRIDGE)] {
            add_bridge_port(&self.fabric, end, bridge)?;
            self.fabric.set_up(end)?;
        }
        for end in [&out, &port] {
            self.fabric.wait_running(end)?;
        }
        // A packet between two delayed zones leaves through one delayed interface, and so does its
        // answer: half of the round trip each.
        self.fabric.delay(&out, round_trip / 2)?;
        self.zone_bridges.insert(zone.to_owned(), own);
        Ok(())
    }

    fn bridge_of(&self, node: &NetnsNode) -> &str {
        self.zone_bridges.get(&node.zone).map_or(BRIDGE, String::as_str)
    }

    /// Adds a node. It has routes to the pods of all other nodes, and they to its own.
    pub fn add_node(&mut self, name: &str, zone: &str) -> Result<NetnsNode, Error> {
        let number = node_number(self.nodes.len()).ok_or_else(|| full("nodes"))?;
        let (v4, v6) = node_addresses(number);
        let (gateway_v4, gateway_v6) = node_addresses(FABRIC);
        let mut node = NetnsNode {
            name: name.to_owned(),
            zone: zone.to_owned(),
            number,
            namespace: Namespace::new(name)?,
            v4,
            v6,
            pods_v4: pod_ranges(number).0,
            pods_v6: pod_ranges(number).1,
            mac: Vec::new(),
        };
        self.connect_node(&node)?;
        node.mac = node.namespace.link(INTERFACE)?.mac;
        add_paths_to(&node, &self.fabric, BRIDGE)?;
        let router = self.fabric.link(BRIDGE)?.mac;
        for address in [IpAddr::from(gateway_v4), gateway_v6.into()] {
            node.namespace.add_neighbour(INTERFACE, address, &router)?;
        }
        for other in &self.nodes {
            add_paths_to(&node, &other.namespace, INTERFACE)?;
            add_paths_to(other, &node.namespace, INTERFACE)?;
        }
        self.pod_numbers.insert(number, Numbers::of_pods());
        self.nodes.push(node.clone());
        Ok(node)
    }

    /// Adds a pod to a node of this network.
    pub fn add_pod(&mut self, node: &NetnsNode, name: &str) -> Result<NetnsPod, Error> {
        let numbers = self.pod_numbers.get_mut(&node.number);
        let number = numbers.and_then(Numbers::next);
        let number = number.ok_or_else(|| full(&format!("pods of {}", node.name)))?;
        let (v4, v6) = pod_addresses(node.number, number);
        let long = format!("veth-{name}");
        let pod = NetnsPod {
            name: name.to_owned(),
            node: node.name.clone(),
            zone: node.zone.clone(),
            namespace: Namespace::new(name)?,
            v4,
            v6,
            interface: if long.len() > MAX_INTERFACE_NAME {
                format!("veth-p{number}")
            } else {
                long
            },
            node_namespace: node.namespace.clone(),
            node_number: node.number,
            number,
        };
        let leaf = Leaf { namespace: &pod.namespace, v4, v6 };
        leaf.attach(&node.namespace, &pod.interface, node.v4, node.v6)?;
        self.pods.push(pod.clone());
        Ok(pod)
    }

    /// Removes a pod at once: its veth pair is deleted, and a later pod may get its address.
    pub fn remove_pod(&mut self, pod: &NetnsPod) -> Result<(), Error> {
        pod.node_namespace.delete_link(&pod.interface)?;
        let same =
            |other: &NetnsPod| (other.node_number, other.number) == (pod.node_number, pod.number);
        self.pods.retain(|other| !same(other));
        if let Some(numbers) = self.pod_numbers.get_mut(&pod.node_number) {
            numbers.free(pod.number);
        }
        Ok(())
    }

    /// Adds a client outside the cluster, with the next free address.
    pub fn add_client(&mut self, name: &str) -> Result<NetnsClient, Error> {
        let number = self.client_numbers.next().ok_or_else(|| full("clients"))?;
        self.connect_client(name, number)
    }

    /// Adds a client outside the cluster, with the address 203.0.113.`host`.
    pub fn add_client_at(&mut self, name: &str, host: u8) -> Result<NetnsClient, Error> {
        if !self.client_numbers.take(host) {
            return Err(Error::AddressUnavailable { address: client_addresses(host).0.into() });
        }
        self.connect_client(name, host)
    }

    /// Disconnects a node from the fabric: packets from it and to it are lost silently.
    pub fn disconnect(&self, node: &NetnsNode) -> Result<(), Error> {
        remove_bridge_port(&self.fabric, &node_port(node.number))
    }

    /// Connects a disconnected node again.
    pub fn reconnect(&self, node: &NetnsNode) -> Result<(), Error> {
        add_bridge_port(&self.fabric, &node_port(node.number), self.bridge_of(node))
    }

    /// Lays the veth pair between a node and the fabric, with addresses and default routes.
    fn connect_node(&self, node: &NetnsNode) -> Result<(), Error> {
        let (port, namespace) = (node_port(node.number), &node.namespace);
        namespace.enable_forwarding()?;
        veth(&self.fabric, &port, namespace, INTERFACE)?;
        add_bridge_port(&self.fabric, &port, self.bridge_of(node))?;
        self.fabric.set_up(&port)?;
        namespace.set_up(INTERFACE)?;
        namespace.add_address(INTERFACE, node.v4.into(), 24)?;
        namespace.add_address(INTERFACE, node.v6.into(), 64)?;
        namespace.add_address(INTERFACE, link_local(node.number).into(), 64)?;
        let (v4, v6) = node_addresses(FABRIC);
        namespace.add_default_route(v4.into())?;
        namespace.add_default_route(v6.into())?;
        namespace.wait_running(INTERFACE)?;
        self.fabric.wait_running(&port)?;
        self.fabric.wait_running(BRIDGE)
    }

    fn connect_client(&mut self, name: &str, number: u8) -> Result<NetnsClient, Error> {
        let (v4, v6) = client_addresses(number);
        let port = format!("client-{number}");
        let client = NetnsClient {
            name: name.to_owned(),
            namespace: Namespace::new(name)?,
            v4,
            v6,
            fabric: self.fabric.clone(),
            routing_table: FIRST_CLIENT_TABLE + u32::from(number),
        };
        let leaf = Leaf { namespace: &client.namespace, v4, v6 };
        let (fabric_v4, fabric_v6) = node_addresses(FABRIC);
        leaf.attach(&self.fabric, &port, fabric_v4, fabric_v6)?;
        self.fabric.use_table_for(&port, client.routing_table)?;
        self.clients.push(client.clone());
        Ok(client)
    }
}

impl NetnsNode {
    /// Its IPv6 or IPv4 address.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

impl NetnsPod {
    /// Its IPv6 or IPv4 address.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

impl NetnsClient {
    /// Its IPv6 or IPv4 address.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }

    /// Routes this client's packets for a network through a node; other clients are not affected.
    ///
    /// For networks that only nodes know, like those of Services. A second call for the same
    /// network moves it to another node.
    pub fn route_via(&self, network: Cidr, node: &NetnsNode) -> Result<(), Error> {
        let gateway = node.address(!network.is_ipv4());
        self.fabric.add_route(&Route::to(network).via(gateway).table(self.routing_table))
    }

    /// Deletes the route that [`Self::route_via`] added for a network.
    pub fn delete_route_via(&self, network: Cidr) -> Result<(), Error> {
        self.fabric.delete_route(&Route::to(network).table(self.routing_table))
    }
}

/// A namespace at the end of a veth pair, with one address per family: a pod or a client.
struct Leaf<'a> {
    namespace: &'a Namespace,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Leaf<'_> {
    /// Lays the veth pair from interface `port` of a router with these addresses.
    fn attach(
        &self,
        router: &Namespace,
        port: &str,
        router_v4: Ipv4Addr,
        router_v6: Ipv6Addr,
    ) -> Result<(), Error> {
        veth(router, port, self.namespace, INTERFACE)?;
        router.set_up(port)?;
        self.configure(&router.link(port)?.mac)?;
        router.add_address(port, GATEWAY6.into(), 64)?;
        router.add_route(&Route::to(Cidr::host(self.v4.into())).device(port).source(router_v4))?;
        router.add_route(&Route::to(Cidr::host(self.v6.into())).device(port).source(router_v6))?;
        router.wait_running(port)?;
        self.namespace.wait_running(INTERFACE)
    }

    /// Addresses and routes of the leaf's own end; `gateway_mac` is the router's end.
    fn configure(&self, gateway_mac: &[u8]) -> Result<(), Error> {
        let namespace = self.namespace;
        namespace.set_up(INTERFACE)?;
        namespace.add_address(INTERFACE, self.v4.into(), 32)?;
        namespace.add_address(INTERFACE, self.v6.into(), 128)?;
        for address in [IpAddr::from(GATEWAY), IpAddr::from(GATEWAY6)] {
            namespace.add_neighbour(INTERFACE, address, gateway_mac)?;
            namespace
                .add_route(&Route::to(Cidr::default_of(address)).via(address).device(INTERFACE))?;
        }
        Ok(())
    }
}

/// Host numbers for addresses. A freed number is given out again only after all others.
#[derive(Debug)]
pub struct Numbers {
    first: u8,
    last: u8,
    next: u8,
    taken: BTreeSet<u8>,
}

impl Numbers {
    /// The numbers of a node's pods, all free.
    pub fn of_pods() -> Self {
        Self::new(FIRST_POD, 254)
    }

    fn new(first: u8, last: u8) -> Self {
        Self { first, last, next: first, taken: BTreeSet::new() }
    }

    /// Takes a free number; `None` if there is none.
    #[expect(
        clippy::should_implement_trait,
        reason = "numbers are freed again: this is no iterator"
    )]
    pub fn next(&mut self) -> Option<u8> {
        let number = (self.next..=self.last)
            .chain(self.first..self.next)
            .find(|number| !self.taken.contains(number))?;
        self.taken.insert(number);
        self.next = if number == self.last { self.first } else { number + 1 };
        Some(number)
    }

    fn take(&mut self, number: u8) -> bool {
        (self.first..=self.last).contains(&number) && self.taken.insert(number)
    }

    /// Frees a number.
    pub fn free(&mut self, number: u8) {
        self.taken.remove(&number);
    }
}

/// Gives a namespace permanent neighbour entries for a node, and routes to the node's pods.
///
/// Permanent, because neighbour entries that the kernel resolves itself count against one limit
/// (`net.ipv4.neigh.default.gc_thresh3`, 1024 entries) for all namespaces and the host.
fn add_paths_to(node: &NetnsNode, from: &Namespace, interface: &str) -> Result<(), Error> {
    from.add_neighbour(interface, node.v4.into(), &node.mac)?;
    from.add_neighbour(interface, node.v6.into(), &node.mac)?;
    from.add_route(&Route::to(node.pods_v4).via(node.v4))?;
    from.add_route(&Route::to(node.pods_v6).via(node.v6))
}

fn full(network: &str) -> Error {
    Error::Full { network: network.to_owned() }
}

fn node_port(number: u8) -> String {
    format!("node-{number}")
}

/// The number of the next node after so many; `None` if there are no more.
pub fn node_number(nodes: usize) -> Option<u8> {
    u8::try_from(nodes + 1).ok().filter(|number| *number < FABRIC)
}

/// The addresses of a node.
pub fn node_addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd00, 0x192, 0x168, 0, 0, 0, 0, number.into());
    (Ipv4Addr::new(192, 168, 0, number), v6)
}

/// IPv6 neighbour discovery needs a link-local address. The kernel would choose one, but only a
/// little later.
fn link_local(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into())
}

/// The ranges of the pods of a node.
pub fn pod_ranges(node: u8) -> (Cidr, Cidr) {
    let (v4, v6) = pod_addresses(node, 0);
    (Cidr::new_assert(v4.into(), 24), Cidr::new_assert(v6.into(), 64))
}

/// The addresses of a pod.
pub fn pod_addresses(node: u8, number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd00, 0x10, 0x244, node.into(), 0, 0, 0, number.into());
    (Ipv4Addr::new(10, 244, node, number), v6)
}

fn client_addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into());
    (Ipv4Addr::new(203, 0, 113, number), v6)
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn a_freed_number_is_given_out_again_after_all_others() {
        let mut numbers = Numbers::new(2, 4);
        assert_eq!(numbers.next(), Some(2));
        numbers.free(2);
        let rest: Vec<_> = std::iter::from_fn(|| numbers.next()).collect();
        assert_eq!(rest, [3, 4, 2]);
    }

    #[test]
    fn a_number_is_taken_once_and_only_inside_the_range() {
        let mut numbers = Numbers::new(1, 3);
        let taken = [2, 2, 0, 4].map(|n| numbers.take(n));
        assert_eq!(taken, [true, false, false, false]);
        let rest: Vec<_> = std::iter::from_fn(|| numbers.next()).collect();
        assert_eq!(rest, [1, 3]);
    }
}
