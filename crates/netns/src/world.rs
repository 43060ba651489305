//! A small cluster of several zones, and the world around it, dual stack.
//!
//! ```text
//!   client ── eth0 ──────── client-N ┌────────┐ node-N ──────── eth0 ── node
//!                                    │ fabric │
//!   the client's own table: ────────►│  br0   │        node ── veth-x ──────── eth0 ── pod
//!   "this network through that node" └────────┘              a /32 and a /128 route
//! ```
//!
//! Pods and clients hang on a cable of their own, with one address per family and no network
//! around it. Their gateway is the other end of the cable, 169.254.1.1 and fe80::1. The node's end
//! has no address that routes: what a node sends to its pods has the node's address.
//!
//! The fabric drops what it has no route for, and says nothing: a probe that is refused was
//! refused by a node or a pod, never by the world.
//!
//! Everybody lives as long as the world, or longer if somebody holds a copy; pods can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::routes::{everything, only};
use crate::{Cidr, Error, Namespace, Route, bridge, enslave, release, veth};

/// The interface of every node, pod and client.
pub const INTERFACE: &str = "eth0";
/// The fabric's bridge.
const BRIDGE: &str = "br0";
/// The fabric's number among the nodes.
const FABRIC: u8 = 254;
/// The gateway of pods and clients.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The first pod of a node: real networks keep .1 for a gateway.
const FIRST_POD: u8 = 2;
/// Tables of clients start here, far from the kernel's own.
const TABLES: u32 = 1000;
/// Longest name of an interface.
const NAME: usize = 15;

/// Nodes, a fabric between them, pods on them and clients around them.
#[derive(Debug)]
pub struct World {
    fabric: Namespace,
    /// Bridges of zones that are some way off.
    zones: BTreeMap<String, String>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    clients: Vec<Client>,
    pod_numbers: BTreeMap<u8, Numbers>,
    client_numbers: Numbers,
}

/// A machine of the cluster. Copies mean the same node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its number, from 1.
    pub number: u8,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its address.
    pub v4: Ipv4Addr,
    /// Its address.
    pub v6: Ipv6Addr,
    /// Where its pods live.
    pub pods_v4: Cidr,
    /// Where its pods live.
    pub pods_v6: Cidr,
    /// The hardware address of its interface.
    mac: Vec<u8>,
}

/// A pod. Copies mean the same pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// The name of its node.
    pub node: String,
    /// The zone of its node.
    pub zone: String,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its address.
    pub v4: Ipv4Addr,
    /// Its address.
    pub v6: Ipv6Addr,
    /// Its cable's end on the node: `veth-NAME`, or `veth-pNUMBER` if the name is long.
    pub interface: String,
    host: Namespace,
    number: (u8, u8),
}

/// Somebody outside the cluster. Copies mean the same client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its network stack.
    pub namespace: Namespace,
    /// Its address.
    pub v4: Ipv4Addr,
    /// Its address.
    pub v6: Ipv6Addr,
    fabric: Namespace,
    table: u32,
}

impl World {
    /// A world with nobody in it.
    pub fn new() -> Result<Self, Error> {
        let fabric = Namespace::new("fabric")?;
        fabric.forward()?;
        bridge(&fabric, BRIDGE)?;
        let (v4, v6) = node_addresses(FABRIC);
        fabric.add_address(BRIDGE, v4.into(), 24)?;
        fabric.add_address(BRIDGE, v6.into(), 64)?;
        fabric.add_address(BRIDGE, link_local(FABRIC).into(), 64)?;
        fabric.route(&Route::to(everything(v4.into())))?;
        fabric.route(&Route::to(everything(v6.into())))?;
        Ok(Self {
            fabric,
            zones: BTreeMap::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
            clients: Vec::new(),
            pod_numbers: BTreeMap::new(),
            client_numbers: Numbers::new(1, 254),
        })
    }

    /// The router between everybody.
    pub fn fabric(&self) -> &Namespace {
        &self.fabric
    }

    /// All nodes, in the order they came.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All pods, in the order they came.
    pub fn pods(&self) -> &[Pod] {
        &self.pods
    }

    /// All clients, in the order they came.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Puts a zone some way off: a round trip between it and everybody else takes so much longer.
    ///
    /// For nodes of that zone that come later.
    pub fn remote(&mut self, zone: &str, delay: Duration) -> Result<(), Error> {
        let number = self.zones.len() + 1;
        let [own, out, port] = ["zone", "out", "in"].map(|name| format!("{name}-{number}"));
        bridge(&self.fabric, &own)?;
        veth(&self.fabric, &out, &self.fabric, &port)?;
        for (end, bridge) in [(&out, own.as_str()), (&port, BRIDGE)] {
            enslave(&self.fabric, end, bridge)?;
            self.fabric.set_up(end)?;
        }
        for end in [&out, &port] {
            self.fabric.wait_running(end)?;
        }
        // Whoever crosses leaves one zone: half a round trip.
        self.fabric.delay(&out, delay / 2)?;
        self.zones.insert(zone.to_owned(), own);
        Ok(())
    }

    fn bridge_of(&self, node: &Node) -> &str {
        self.zones.get(&node.zone).map_or(BRIDGE, String::as_str)
    }

    /// One more node. It knows the way to the pods of all others, and they to its own.
    pub fn node(&mut self, name: &str, zone: &str) -> Result<Node, Error> {
        let number = u8::try_from(self.nodes.len() + 1).ok().filter(|n| *n < FABRIC);
        let number = number.ok_or_else(|| full("nodes"))?;
        let (v4, v6) = node_addresses(number);
        let (gateway_v4, gateway_v6) = node_addresses(FABRIC);
        let mut node = Node {
            name: name.to_owned(),
            zone: zone.to_owned(),
            number,
            namespace: Namespace::new(name)?,
            v4,
            v6,
            pods_v4: (pod_addresses(number, 0).0.into(), 24),
            pods_v6: (pod_addresses(number, 0).1.into(), 64),
            mac: Vec::new(),
        };
        self.plug(&node)?;
        node.mac = node.namespace.link(INTERFACE)?.mac;
        introduce(&node, (&self.fabric, BRIDGE))?;
        let router = self.fabric.link(BRIDGE)?.mac;
        for address in [IpAddr::from(gateway_v4), gateway_v6.into()] {
            node.namespace.add_neighbour(INTERFACE, address, &router)?;
        }
        for other in &self.nodes {
            introduce(&node, (&other.namespace, INTERFACE))?;
            introduce(other, (&node.namespace, INTERFACE))?;
        }
        self.pod_numbers.insert(number, Numbers::new(FIRST_POD, 254));
        self.nodes.push(node.clone());
        Ok(node)
    }

    /// One more pod on a node of this world.
    pub fn pod(&mut self, node: &Node, name: &str) -> Result<Pod, Error> {
        let numbers = self.pod_numbers.get_mut(&node.number);
        let number = numbers.and_then(Numbers::next);
        let number = number.ok_or_else(|| full(&format!("pods of {}", node.name)))?;
        let (v4, v6) = pod_addresses(node.number, number);
        let long = format!("veth-{name}");
        let pod = Pod {
            name: name.to_owned(),
            node: node.name.clone(),
            zone: node.zone.clone(),
            namespace: Namespace::new(name)?,
            v4,
            v6,
            interface: if long.len() > NAME { format!("veth-p{number}") } else { long },
            host: node.namespace.clone(),
            number: (node.number, number),
        };
        let leaf = Leaf { namespace: &pod.namespace, v4, v6 };
        leaf.attach(&node.namespace, &pod.interface, (node.v4, node.v6))?;
        self.pods.push(pod.clone());
        Ok(pod)
    }

    /// Removes a pod at once: its cable is pulled, its address may be given to another.
    pub fn remove(&mut self, pod: &Pod) -> Result<(), Error> {
        pod.host.delete_link(&pod.interface)?;
        self.pods.retain(|other| other.number != pod.number);
        if let Some(numbers) = self.pod_numbers.get_mut(&pod.number.0) {
            numbers.free(pod.number.1);
        }
        Ok(())
    }

    /// Somebody outside the cluster, with the next free address.
    pub fn client(&mut self, name: &str) -> Result<Client, Error> {
        let number = self.client_numbers.next().ok_or_else(|| full("clients"))?;
        self.connect(name, number)
    }

    /// Somebody outside the cluster, with the address 203.0.113.`host`.
    pub fn client_at(&mut self, name: &str, host: u8) -> Result<Client, Error> {
        if !self.client_numbers.take(host) {
            return Err(Error::Taken { address: client_addresses(host).0.into() });
        }
        self.connect(name, host)
    }

    /// Pulls a node's cable: its packets, and those to it, are lost without a word.
    pub fn cut(&self, node: &Node) -> Result<(), Error> {
        release(&self.fabric, &node_port(node.number))
    }

    /// Plugs a node's cable in again.
    pub fn mend(&self, node: &Node) -> Result<(), Error> {
        enslave(&self.fabric, &node_port(node.number), self.bridge_of(node))
    }

    /// Connects a node with the fabric.
    fn plug(&self, node: &Node) -> Result<(), Error> {
        let (port, namespace) = (node_port(node.number), &node.namespace);
        namespace.forward()?;
        veth(&self.fabric, &port, namespace, INTERFACE)?;
        enslave(&self.fabric, &port, self.bridge_of(node))?;
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

    fn connect(&mut self, name: &str, number: u8) -> Result<Client, Error> {
        let (v4, v6) = client_addresses(number);
        let port = format!("client-{number}");
        let client = Client {
            name: name.to_owned(),
            namespace: Namespace::new(name)?,
            v4,
            v6,
            fabric: self.fabric.clone(),
            table: TABLES + u32::from(number),
        };
        let leaf = Leaf { namespace: &client.namespace, v4, v6 };
        leaf.attach(&self.fabric, &port, node_addresses(FABRIC))?;
        self.fabric.table_for(&port, client.table)?;
        self.clients.push(client.clone());
        Ok(client)
    }
}

impl Node {
    /// Its address of a family.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

impl Pod {
    /// Its address of a family.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

impl Client {
    /// Its address of a family.
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }

    /// Sends this client's packets for a network through a node, and nobody else's.
    ///
    /// For networks that only nodes understand, like those of Services. Said again, it moves the
    /// network to another node.
    pub fn route_via(&self, network: Cidr, node: &Node) -> Result<(), Error> {
        let gateway = node.address(network.0.is_ipv6());
        self.fabric.route(&Route::to(network).via(gateway).table(self.table))
    }

    /// Takes back what [`Self::route_via`] said about a network.
    pub fn forget_route(&self, network: Cidr) -> Result<(), Error> {
        self.fabric.remove(&Route::to(network).table(self.table))
    }
}

/// Somebody at the end of a cable.
struct Leaf<'a> {
    namespace: &'a Namespace,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Leaf<'_> {
    /// Lays the cable from `port` of a router, which has these addresses.
    fn attach(
        &self,
        router: &Namespace,
        port: &str,
        (router_v4, router_v6): (Ipv4Addr, Ipv6Addr),
    ) -> Result<(), Error> {
        veth(router, port, self.namespace, INTERFACE)?;
        router.set_up(port)?;
        self.furnish(&router.link(port)?.mac)?;
        router.add_address(port, GATEWAY6.into(), 64)?;
        router.route(&Route::to(only(self.v4)).device(port).source(router_v4))?;
        router.route(&Route::to(only(self.v6)).device(port).source(router_v6))?;
        router.wait_running(port)?;
        self.namespace.wait_running(INTERFACE)
    }

    /// The end that belongs to the leaf.
    fn furnish(&self, gateway: &[u8]) -> Result<(), Error> {
        let namespace = self.namespace;
        namespace.set_up(INTERFACE)?;
        namespace.add_address(INTERFACE, self.v4.into(), 32)?;
        namespace.add_address(INTERFACE, self.v6.into(), 128)?;
        for address in [IpAddr::from(GATEWAY), IpAddr::from(GATEWAY6)] {
            namespace.add_neighbour(INTERFACE, address, gateway)?;
            namespace.route(&Route::to(everything(address)).via(address).device(INTERFACE))?;
        }
        Ok(())
    }
}

/// Numbers for addresses. A number that was freed rests until all others had their turn.
#[derive(Debug)]
struct Numbers {
    first: u8,
    last: u8,
    next: u8,
    taken: BTreeSet<u8>,
}

impl Numbers {
    fn new(first: u8, last: u8) -> Self {
        Self { first, last, next: first, taken: BTreeSet::new() }
    }

    fn next(&mut self) -> Option<u8> {
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

    fn free(&mut self, number: u8) {
        self.taken.remove(&number);
    }
}

/// Tells a namespace the way to a node's pods, and where the node is.
///
/// For good: the kernel keeps those it finds out by asking in one table for all namespaces, the
/// host's too, with room for a thousand.
fn introduce(node: &Node, (to, interface): (&Namespace, &str)) -> Result<(), Error> {
    to.add_neighbour(interface, node.v4.into(), &node.mac)?;
    to.add_neighbour(interface, node.v6.into(), &node.mac)?;
    to.add_route(node.pods_v4, node.v4.into())?;
    to.add_route(node.pods_v6, node.v6.into())
}

fn full(network: &str) -> Error {
    Error::Full { network: network.to_owned() }
}

fn node_port(number: u8) -> String {
    format!("node-{number}")
}

fn node_addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd00, 0x192, 0x168, 0, 0, 0, 0, number.into());
    (Ipv4Addr::new(192, 168, 0, number), v6)
}

/// Who looks for neighbours needs such an address. The kernel would choose one, a little later.
fn link_local(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into())
}

fn pod_addresses(node: u8, number: u8) -> (Ipv4Addr, Ipv6Addr) {
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
    fn a_freed_number_rests_until_all_others_had_their_turn() {
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
