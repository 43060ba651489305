//! The elements that one Service puts into the sets and maps.
//!
//! ```text
//!  frontend            usable endpoints            somebody elsewhere only       nobody at all
//!  ClusterIP           services ─► clusterip-N     no-endpoints ─► drop          no-endpoints ─► reject
//!  outside, Cluster    services ─► external-N      –                             no-endpoints ─► reject
//!  outside, Local      services ─► external-local  the same, and                 no-endpoints ─► reject
//!                        cluster-picks ─► plain-N  no-endpoints ─► drop
//!                        local-picks ─► local-M
//! ```
//!
//! "Drop" where another node could have answered: whoever balances tries again. "Reject" where
//! nobody could.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::cidr::Cidr;
use zonewise_common::name::Name;
use zonewise_nft::{Bytes, Family};
use zonewise_routing::{
    self as routing, AddressList, EndpointFlags, Mode, RoutedService, ServicePort, Target, ZoneId,
};
use zonewise_topology::reason::Reason;

use super::chains::{At, Chain, Policy, slot_map};
use super::layout::{Count, FAMILIES, family_of, place};
use super::sets::Set;

/// A Service as it is (to be) in the kernel.
#[derive(Clone, Debug)]
pub struct Programmed {
    /// The Service.
    pub service: Arc<RoutedService>,
    /// Per port of the Service, per family.
    pub ports: Box<[[Option<Box<Portion>>; 2]]>,
}

/// The endpoints of one Service port in one family.
#[derive(Clone, Debug, PartialEq)]
pub struct Portion {
    /// For traffic that may go anywhere.
    pub cluster: Targets,
    /// For traffic that stays on this node.
    pub local: Targets,
    /// Millionths, beside `cluster`; equal when absent.
    pub weights: Option<Box<[u32]>>,
    /// Somebody, somewhere, serves it.
    pub has_any: bool,
    /// How `cluster` was chosen.
    pub mode: Mode,
    /// Why.
    pub reason: Reason,
}

/// Targets of one family, in few bytes: what is remembered of the kernel is mostly these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets(AddressList<(u16, ZoneId, EndpointFlags)>);

impl Targets {
    fn of(family: routing::Family, targets: Option<Box<[Target]>>) -> Self {
        let targets = targets.unwrap_or_default().into_iter();
        let each = targets.map(|target| (target.address, (target.port, target.zone, target.flags)));
        Self(AddressList::of(family, each))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    pub fn get(&self, place: usize) -> Option<Target> {
        let (address, (port, zone, flags)) = self.0.get(place)?;
        Some(Target { address, port, zone, local: flags.local(), flags })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Target> {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}

impl Portion {
    /// What is remembered of a route.
    pub fn new(family: routing::Family, route: routing::Route) -> Self {
        Self {
            cluster: Targets::of(family, route.cluster),
            local: Targets::of(family, route.local),
            weights: route.weights,
            has_any: route.has_any,
            mode: route.mode,
            reason: route.reason,
        }
    }
}

/// What an element says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// It is there.
    Present,
    /// It reaches up to this key.
    Until(Bytes),
    /// An endpoint's address and port.
    Endpoint(Bytes),
    /// Go there.
    Chain(Chain, Whom),
    /// Drop it.
    Drop(Whom),
    /// The counter of this zone.
    Zone(ZoneId),
}

/// The Service an element is for, shown to people who list it; no part of what it says.
#[derive(Clone, Debug, Default)]
pub struct Whom(pub Name);

impl PartialEq for Whom {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Whom {}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The table.
    pub family: Family,
    /// The set or map.
    pub set: Set,
    /// Its key.
    pub key: Bytes,
    /// What it says.
    pub value: Value,
}

impl Entry {
    /// Where it belongs; two entries of one place exclude each other.
    pub fn place(&self) -> (Family, Set, &[u8]) {
        (self.family, self.set, self.key.as_slice())
    }
}

/// Where clients find a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The address; `None` for the NodePort of one family.
    pub address: Option<IpAddr>,
    /// The family.
    pub family: Family,
    /// The protocol's number.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

impl Frontend {
    fn at(self) -> At {
        if self.address.is_some() { At::Address } else { At::NodePort }
    }

    /// The key of its elements.
    pub fn key(self) -> Bytes {
        let key = self.address.map_or_else(Bytes::new, |address| Bytes::new().address(address));
        key.protocol(self.protocol).port(self.port)
    }
}

/// What a Service does not decide by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// This node's address per family: it may use its own load balancer addresses.
    pub addresses: [Option<IpAddr>; 2],
    /// `spec.externalIPs` count.
    pub external_ips: bool,
    /// What is counted.
    pub count: Count,
}

/// A frontend, and what kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    /// Reached from outside; a load balancer's address or not.
    Outside {
        balancer: bool,
    },
}

impl Programmed {
    /// Every frontend it asks for.
    pub fn frontends(&self, node: &Node) -> Vec<Frontend> {
        let mut all: Vec<Frontend> = self.each(node).map(|(frontend, _, _)| frontend).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn each<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = (Frontend, Kind, &'a Portion)> {
        let ports = self.service.ports.iter().zip(&self.ports);
        let portions = ports.flat_map(|(port, portions)| {
            FAMILIES.into_iter().filter_map(move |family| {
                portions[place(family)].as_deref().map(|portion| (port, family, portion))
            })
        });
        portions.flat_map(move |(port, family, portion)| {
            let frontends = self.frontends_of(port, family, node).into_iter();
            frontends.map(move |(frontend, kind)| (frontend, kind, portion))
        })
    }

    fn frontends_of(
        &self,
        port: &ServicePort,
        family: Family,
        node: &Node,
    ) -> Vec<(Frontend, Kind)> {
        let service = &self.service;
        let mine = |address: &&IpAddr| family_of(address) == family;
        let protocol = port.protocol.number();
        let at = |address: &IpAddr| Frontend {
            address: Some(*address),
            family,
            protocol,
            port: port.port,
        };
        let outside = |balancer| Kind::Outside { balancer };
        let cluster = service.cluster_ips.iter().filter(mine).map(|ip| (at(ip), Kind::ClusterIp));
        let external = service.external_ips.iter().filter(mine).filter(|_| node.external_ips);
        let vips = service.load_balancer_ips.iter().filter(mine);
        let mut frontends: Vec<(Frontend, Kind)> = cluster.collect();
        frontends.extend(vips.map(|ip| (at(ip), outside(true))));
        frontends.extend(external.map(|ip| (at(ip), outside(false))));
        if port.node_port != 0 {
            let frontend = Frontend { address: None, family, protocol, port: port.node_port };
            frontends.push((frontend, outside(false)));
        }
        frontends
    }

    /// Whether a client of this frontend may stay with this endpoint: it would be sent there today.
    /// `inside`: it is known to be a pod or the node itself.
    pub fn is_sticky_to(
        &self,
        node: &Node,
        frontend: Frontend,
        inside: bool,
        endpoint: (IpAddr, u16),
    ) -> bool {
        let Some((_, kind, portion)) = self.each(node).find(|(at, _, _)| *at == frontend) else {
            return false;
        };
        let local = match kind {
            Kind::ClusterIp => self.service.internal_policy == routing::TrafficPolicy::Local,
            Kind::Outside { .. } => {
                self.service.external_policy == routing::TrafficPolicy::Local && !inside
            }
        };
        let targets = if local { &portion.local } else { &portion.cluster };
        self.service.affinity_seconds.is_some()
            && targets.iter().any(|target| (target.address, target.port) == endpoint)
    }

    /// Its elements at the frontends that are its own (`owns`), in no particular order.
    pub fn entries(&self, node: &Node, owns: &dyn Fn(&Frontend) -> bool) -> Vec<Entry> {
        let service = &*self.service;
        let whom = Whom(format!("{}/{}", service.namespace, service.name).into());
        let mut writer = Writer { node, service, whom, entries: Vec::new() };
        // An address may be a Service's in two ways; the first counts.
        let mut seen = BTreeSet::new();
        for (frontend, kind, portion) in self.each(node) {
            if owns(&frontend) && seen.insert(frontend) {
                writer.frontend(frontend, kind, portion);
            }
        }
        writer.entries
    }

    /// Elements it may share with other Services, each once.
    pub fn shared(&self, node: &Node) -> Vec<Shared> {
        let portions = self.ports.iter().flatten().flatten();
        let targets =
            portions.flat_map(|portion| portion.cluster.iter().chain(portion.local.iter()));
        let cluster_ips = self.service.cluster_ips.iter().map(|address| Shared {
            set: Set::ClusterIps,
            address: *address,
            zone: ZoneId::default(),
        });
        let mut shared: Vec<Shared> =
            targets.flat_map(|target| of_endpoint(&target, node)).chain(cluster_ips).collect();
        shared.sort_unstable();
        // The address decides; slices that disagree about its zone are not asked again.
        shared.dedup_by_key(|shared| (shared.set, shared.address));
        shared
    }
}

/// An element that several Services may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shared {
    /// The set.
    pub set: Set,
    /// The address.
    pub address: IpAddr,
    /// The zone, where it is about zones.
    pub zone: ZoneId,
}

impl From<Shared> for Entry {
    fn from(shared: Shared) -> Self {
        let Shared { set, address, zone } = shared;
        let key = Bytes::new().address(address);
        let (key, value) = match set {
            Set::Hairpins => (key.address(address), Value::Present),
            Set::EndpointZones => (key, Value::Zone(zone)),
            _ => (key, Value::Present),
        };
        Self { family: family_of(&address), set, key, value }
    }
}

fn of_endpoint(target: &Target, node: &Node) -> impl Iterator<Item = Shared> + use<> {
    let (address, zone) = (target.address, target.zone);
    let hairpin =
        target.local.then(|| Shared { set: Set::Hairpins, address, zone: ZoneId::default() });
    let counted = node.count >= Count::Zones && zone != ZoneId::default();
    let zone = counted.then_some(Shared { set: Set::EndpointZones, address, zone });
    hairpin.into_iter().chain(zone)
}

/// Collects the elements of a Service.
struct Writer<'a> {
    node: &'a Node,
    service: &'a RoutedService,
    whom: Whom,
    entries: Vec<Entry>,
}

impl Writer<'_> {
    fn to(&self, chain: Chain) -> Value {
        Value::Chain(chain, self.whom.clone())
    }

    fn add(&mut self, frontend: Frontend, sets: [Set; 2], value: Value) {
        let set = sets[usize::from(frontend.address.is_none())];
        self.entries.push(Entry { family: frontend.family, set, key: frontend.key(), value });
    }

    fn frontend(&mut self, frontend: Frontend, kind: Kind, portion: &Portion) {
        self.guard(frontend, kind);
        if self.node.count >= Count::Services {
            self.add(frontend, [Set::Connections, Set::NodePortConnections], Value::Present);
        }
        if !portion.has_any {
            let reject = self.to(Chain::Reject);
            self.add(frontend, [Set::NoEndpoints, Set::NoEndpointsNodePorts], reject);
            return;
        }
        let served = match kind {
            Kind::ClusterIp => self.cluster_ip(frontend, portion),
            Kind::Outside { .. } => self.outside(frontend, portion),
        };
        if !served {
            self.add(
                frontend,
                [Set::NoEndpoints, Set::NoEndpointsNodePorts],
                Value::Drop(self.whom.clone()),
            );
        }
        if let Some(seconds) = self.service.affinity_seconds {
            let remember = self.to(Chain::Remember(seconds));
            self.add(frontend, [Set::Sticky, Set::StickyNodePorts], remember);
        }
    }

    /// Whether anybody serves it.
    fn cluster_ip(&mut self, frontend: Frontend, portion: &Portion) -> bool {
        let local = self.service.internal_policy == routing::TrafficPolicy::Local;
        let (targets, weights) = if local {
            (&portion.local, None)
        } else {
            (&portion.cluster, portion.weights.as_deref())
        };
        let Some(chain) = self.slots(frontend, Policy::ClusterIp, targets, weights) else {
            return false;
        };
        let to = self.to(chain);
        self.add(frontend, [Set::Services, Set::NodePorts], to);
        true
    }

    /// Whether anybody serves clients from outside.
    fn outside(&mut self, frontend: Frontend, portion: &Portion) -> bool {
        let entry = [Set::Services, Set::NodePorts];
        let weights = portion.weights.as_deref();
        if self.service.external_policy == routing::TrafficPolicy::Cluster {
            let chain = self.slots(frontend, Policy::External, &portion.cluster, weights);
            let Some(chain) = chain else { return false };
            let to = self.to(chain);
            self.add(frontend, entry, to);
            return true;
        }
        let to = self.to(Chain::ExternalLocal(frontend.at()));
        self.add(frontend, entry, to);
        if let Some(chain) = self.slots(frontend, Policy::Plain, &portion.cluster, weights) {
            let sets = [Set::ClusterPicks, Set::NodePortClusterPicks];
            let to = self.to(chain);
            self.add(frontend, sets, to);
        }
        let Some(chain) = self.slots(frontend, Policy::Local, &portion.local, None) else {
            return false;
        };
        let to = self.to(chain);
        self.add(frontend, [Set::LocalPicks, Set::NodePortLocalPicks], to);
        true
    }

    /// Fills the slots of a frontend; the chain that picks among them, if there are any.
    fn slots(
        &mut self,
        frontend: Frontend,
        policy: Policy,
        targets: &Targets,
        weights: Option<&[u32]>,
    ) -> Option<Chain> {
        let slots = routing::slots(targets.len(), weights);
        let set = slot_map(policy, frontend.at());
        let count = u32::try_from(slots.len()).ok().filter(|&count| count > 0)?;
        let family = frontend.family;
        for (slot, &target) in (0..count).zip(&slots) {
            let target = targets.get(target as usize)?;
            let value = Value::Endpoint(Bytes::new().address(target.address).port(target.port));
            self.entries.push(Entry { family, set, key: frontend.key().number(slot), value });
        }
        let sticky = self.service.affinity_seconds.is_some();
        Some(Chain::Pick { policy, at: frontend.at(), sticky, slots: count })
    }

    /// Who may use a load balancer's address.
    fn guard(&mut self, frontend: Frontend, kind: Kind) {
        let (Kind::Outside { balancer: true }, Some(address)) = (kind, frontend.address) else {
            return;
        };
        let family = frontend.family;
        let sources = self.service.source_ranges(routing_family(family));
        if sources.is_empty() {
            return;
        }
        self.add(frontend, [Set::Guarded; 2], Value::Present);
        let node = self.node.addresses[place(family)];
        let node_may = node.is_some_and(|node| sources.iter().any(|source| source.contains(node)));
        // A node that talks to its own balancer may do so under the balancer's address.
        let itself = node_may.then(|| Cidr::host(address));
        for source in outermost(sources.into_iter().chain(itself)) {
            let (first, last) = (source.address(), source.last());
            let key = frontend.key().address(first);
            let value = Value::Until(frontend.key().address(last));
            self.entries.push(Entry { family, set: Set::Sources, key, value });
        }
    }
}

/// Our name for a family, and the kernel's.
pub fn routing_family(family: Family) -> routing::Family {
    match family {
        Family::Ip => routing::Family::V4,
        Family::Ip6 => routing::Family::V6,
    }
}

/// Without ranges that lie in others: the kernel takes no overlaps.
fn outermost(ranges: impl Iterator<Item = Cidr>) -> Vec<Cidr> {
    let mut ranges: Vec<Cidr> = ranges.collect();
    ranges.sort_by_key(|range| (range.length(), range.address()));
    let mut kept: Vec<Cidr> = Vec::new();
    for range in ranges {
        if !kept.iter().any(|outer| outer.contains(range.address())) {
            kept.push(range);
        }
    }
    kept
}
