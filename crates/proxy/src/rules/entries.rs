//! The elements that one Service puts into the sets and maps.
//!
//! ```text
//!  frontend            usable endpoints            only on other nodes           no endpoints
//!  ClusterIP           services ─► clusterip-N     no-endpoints ─► drop          no-endpoints ─► reject
//!  external, Cluster   services ─► external-N      –                             no-endpoints ─► reject
//!  external, Local     services ─► external-local  the same, and                 no-endpoints ─► reject
//!                        cluster-picks ─► plain-N  no-endpoints ─► drop
//!                        local-picks ─► local-M
//! ```
//!
//! "external" are NodePorts, external IPs and load balancer addresses, with their external traffic
//! policy. Packets are dropped where another node could have answered, so that a load balancer tries
//! again, and rejected where no node could.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use zonewise_common::cidr::Cidr;
use zonewise_common::name::Name;
use zonewise_nft::{Bytes, Family};
use zonewise_routing::{
    self as routing, AddressList, Choice, EndpointFlags, Exposure, Frontend, Group, Mode,
    Protected, RoutedService, ServicePort, Target, ZoneId,
};
use zonewise_topology::reason::Reason;

use super::affinity::AffinityMap;
use super::budget::{Bill, Budget, Extent, Item};
use super::chains::{
    Chain, FrontendKind, PickPolicy, first_slot, group_map, slot_map, weighted_sets,
};
use super::delta::ElementId;
use super::layout::{FAMILIES, family_index, family_of};
use super::sets::Set;
use crate::config::CountBy;

/// A Service with the routes of its ports: all that its elements are made from.
///
/// Clones share everything: the pages show what the sync loop works with.
#[derive(Clone, Debug)]
pub struct ProgrammedService {
    /// The Service.
    pub service: Arc<RoutedService>,
    /// How many elements it asks for, within the limit for a Service.
    pub(crate) asked: usize,
    /// The routes of each Service port, by `family_index`.
    pub ports: Arc<[[Option<Box<PortRoute>>; 2]]>,
}

/// The endpoints of one Service port in one family.
#[derive(Clone, Debug, PartialEq)]
pub struct PortRoute {
    /// For traffic that may leave this node.
    pub cluster: Targets,
    /// For traffic that stays on this node.
    pub local: Targets,
    /// The weights of `cluster` in millionths; without them all are equal.
    pub weights: Option<Box<[u32]>>,
    /// Whether any node has an endpoint.
    pub has_any: bool,
    /// How `cluster` was chosen.
    pub mode: Mode,
    /// Why.
    pub reason: Reason,
    /// Why endpoints are left out because of their address, if so.
    pub special_addresses: Option<Reason>,
}

/// Targets of one family, packed: most of the memory for what is in the kernel is spent on these.
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
    pub fn get(&self, index: usize) -> Option<Target> {
        let (address, (port, zone, flags)) = self.0.get(index)?;
        Some(Target { address, port, zone, local: flags.local(), flags })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Target> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl PortRoute {
    /// Packs a route.
    pub fn new(family: routing::Family, route: routing::Route) -> Self {
        Self {
            special_addresses: route.special_addresses(),
            cluster: Targets::of(family, route.cluster),
            local: Targets::of(family, route.local),
            weights: route.weights,
            has_any: route.has_any,
            mode: route.mode,
            reason: route.reason,
        }
    }
}

/// The value of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// None: the key is in the set.
    Present,
    /// None: the set has all keys from the element's up to this one.
    Until(Box<Bytes>),
    /// An endpoint's address and port.
    Endpoint(EndpointData),
    /// A verdict: go to this chain.
    Chain(Chain, ServiceComment),
    /// A verdict: drop the packet.
    Drop(ServiceComment),
    /// The counter of this zone.
    Zone(ZoneId),
    /// A verdict: go to the chain that counts for this zone.
    ZoneChain(ZoneId),
}

/// An endpoint's address and port as the kernel stores them. Most values are these, so they are kept small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointData {
    bytes: [u8; 20],
    length: u8,
}

impl EndpointData {
    /// Of an endpoint.
    pub fn new(target: &Target) -> Self {
        let packed = Bytes::new().address(target.address).port(target.port);
        let (mut bytes, packed) = ([0; 20], packed.as_slice());
        bytes[..packed.len()].copy_from_slice(packed);
        Self { bytes, length: packed.len() as u8 }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Value {
    /// The zone that it counts for.
    pub fn zone(&self) -> Option<ZoneId> {
        match self {
            Self::Zone(zone) | Self::ZoneChain(zone) => Some(*zone),
            Self::Present
            | Self::Until(_)
            | Self::Endpoint(_)
            | Self::Chain(..)
            | Self::Drop(_) => None,
        }
    }

    /// The last key of a range of keys.
    pub fn key_end(&self) -> Option<&[u8]> {
        match self {
            Self::Until(end) => Some(end.as_slice()),
            Self::Present
            | Self::Endpoint(_)
            | Self::Chain(..)
            | Self::Drop(_)
            | Self::Zone(_)
            | Self::ZoneChain(_) => None,
        }
    }
}

/// The Service that an element is for, as a comment in `nft list`. Two elements that differ only in it
/// are equal.
#[derive(Clone, Debug, Default)]
pub struct ServiceComment(pub Name);

impl PartialEq for ServiceComment {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ServiceComment {}

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The table.
    pub family: Family,
    /// The set or map.
    pub set: Set,
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Value,
}

impl Entry {
    pub(crate) fn id(&self) -> ElementId {
        ElementId { family: self.family, set: self.set, key: self.key }
    }
}

/// The key of a frontend's elements.
pub(crate) fn frontend_key(frontend: &Frontend) -> Bytes {
    let key = frontend.address.map_or_else(Bytes::new, |address| Bytes::new().address(address));
    key.protocol(frontend.protocol.number()).port(frontend.port)
}

fn frontend_kind(frontend: &Frontend) -> FrontendKind {
    if frontend.address.is_some() { FrontendKind::Address } else { FrontendKind::NodePort }
}

/// What the elements of all Services depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// This node's address, by `family_index`. The node may use load balancer addresses whose source
    /// ranges contain it.
    pub addresses: [Option<IpAddr>; 2],
    /// Whether `spec.externalIPs` are served.
    pub external_ips: bool,
    /// What connections are counted by.
    pub count: CountBy,
    /// What external IPs cannot take.
    pub protected: Protected,
    /// How many elements Services may have.
    pub budget: Budget,
}

impl ProgrammedService {
    /// Every frontend that it claims within its budget, and what it is to the Service. The port for health checks
    /// needs no element, and is always claimed.
    pub fn frontends(&self, node: &NodeSettings, extent: Extent) -> Vec<(Frontend, Exposure)> {
        let health = self.service.health_check_node_port;
        let served = |exposure| node.external_ips || exposure != Exposure::ExternalIp;
        let granted = |(at, exposure): &(Frontend, Exposure)| {
            let is_health = at.address.is_none() && health == Some(at.port);
            served(*exposure) && (is_health || extent.includes(at, *exposure))
        };
        self.service.claims().into_iter().filter(granted).collect()
    }

    fn each<'a>(
        &'a self,
        node: &'a NodeSettings,
    ) -> impl Iterator<Item = (Frontend, Exposure, &'a PortRoute)> {
        self.routes().flat_map(move |(port, family, route)| {
            let frontends = self.served(port, family, node);
            frontends.map(move |(frontend, exposure)| (frontend, exposure, route))
        })
    }

    /// The routes of all Service ports in all families.
    fn routes(&self) -> impl Iterator<Item = (&ServicePort, Family, &PortRoute)> {
        let ports = self.service.ports.iter().zip(&*self.ports);
        ports.flat_map(|(port, routes)| {
            FAMILIES.into_iter().filter_map(move |family| {
                routes[family_index(family)].as_deref().map(|route| (port, family, route))
            })
        })
    }

    /// The frontends of a Service port that are served.
    fn served(
        &self,
        port: &ServicePort,
        family: Family,
        node: &NodeSettings,
    ) -> impl Iterator<Item = (Frontend, Exposure)> + use<> {
        let external_ips = node.external_ips;
        let frontends = self.service.frontends(port, routing_family(family)).into_iter();
        frontends.filter(move |(_, exposure)| external_ips || *exposure != Exposure::ExternalIp)
    }

    /// Whether a client of this frontend may stay with this endpoint, because a new connection could
    /// be sent there. `inside`: the client is known to be a Pod or the node itself.
    pub fn is_sticky_to(
        &self,
        node: &NodeSettings,
        frontend: Frontend,
        inside: bool,
        endpoint: SocketAddr,
    ) -> bool {
        let Some((_, exposure, route)) = self.each(node).find(|(of, _, _)| *of == frontend) else {
            return false;
        };
        let local = match exposure {
            Exposure::ClusterIp => self.service.internal_policy == routing::TrafficPolicy::Local,
            Exposure::LoadBalancer | Exposure::NodePort | Exposure::ExternalIp => {
                self.service.external_policy == routing::TrafficPolicy::Local && !inside
            }
        };
        let targets = if local { &route.local } else { &route.cluster };
        self.service.affinity_seconds.is_some()
            && targets.iter().any(|target| SocketAddr::new(target.address, target.port) == endpoint)
    }

    /// What it asks for.
    pub fn bill(&self, node: &NodeSettings) -> Bill {
        let mut seen = BTreeSet::new();
        let mut frontends = Vec::new();
        for (port, family, route) in self.routes() {
            let choices = Choices::of(route, true);
            for (frontend, exposure) in self.served(port, family, node) {
                if seen.insert(frontend) {
                    let (uniform, weighted) = self.cost(node, frontend, exposure, &choices);
                    frontends.push(Item { exposure, frontend, uniform, weighted });
                }
            }
        }
        Bill { base: self.shared(node, Extent::All).len(), frontends }
    }

    /// How many elements a frontend needs, without and with weights: what [`Writer::frontend`] writes.
    fn cost(
        &self,
        node: &NodeSettings,
        frontend: Frontend,
        exposure: Exposure,
        choices: &Choices<'_>,
    ) -> (usize, usize) {
        let route = choices.route;
        let sources = guarded(node, &self.service, frontend, exposure).len();
        let guard = sources + usize::from(sources > 0);
        if !route.has_any {
            return (guard + 1, guard + 1);
        }
        let external = exposure != Exposure::ClusterIp;
        let policy =
            if external { self.service.external_policy } else { self.service.internal_policy };
        // Slots and the element that leads to them; nothing for no slots.
        let led = |slots: usize| if slots > 0 { slots + 1 } else { 0 };
        let (cluster, local) = (route.cluster.len(), route.local.len());
        let weighted = choices.cluster.elements() + usize::from(choices.cluster.groups.len() > 1);
        let cost = |cluster: usize| match (policy, external) {
            (routing::TrafficPolicy::Cluster, _) => led(cluster).max(1),
            (routing::TrafficPolicy::Local, false) => led(local).max(1),
            (routing::TrafficPolicy::Local, true) => 1 + led(cluster) + led(local).max(1),
        };
        let others = guard + usize::from(self.service.affinity_seconds.is_some());
        (others + cost(cluster), others + cost(weighted))
    }

    /// Its elements at the frontends that it has (`owns`), in no particular order, with or without weights.
    pub fn entries(
        &self,
        node: &NodeSettings,
        weights: bool,
        owns: &dyn Fn(&Frontend) -> bool,
    ) -> Vec<Entry> {
        let service = &*self.service;
        let comment = ServiceComment(format!("{}/{}", service.namespace, service.name).into());
        let mut writer = Writer { node, service, comment, entries: Vec::new() };
        // Two ports of a Service may have one number; the first counts.
        let mut seen = BTreeSet::new();
        for (port, family, route) in self.routes() {
            let choices = Choices::of(route, weights);
            for (frontend, exposure) in self.served(port, family, node) {
                if owns(&frontend) && seen.insert(frontend) {
                    writer.frontend(frontend, exposure, &choices);
                }
            }
        }
        writer.entries
    }

    /// Elements it may share with other Services, each once. Without frontends its endpoints have none.
    pub fn shared(&self, node: &NodeSettings, extent: Extent) -> Vec<SharedElement> {
        let served = extent != Extent::Nothing;
        let routes = self.ports.iter().filter(|_| served).flatten().flatten();
        let targets = routes.flat_map(|route| route.cluster.iter().chain(route.local.iter()));
        let cluster_ips = self.service.cluster_ips.iter().map(|address| SharedElement {
            set: Set::ClusterIps,
            address: *address,
            zone: ZoneId::default(),
        });
        let mut shared: Vec<SharedElement> =
            targets.flat_map(|target| of_endpoint(&target, node)).chain(cluster_ips).collect();
        shared.sort_unstable();
        // Slices may disagree about the zone of an address: the first in order counts.
        shared.dedup_by_key(|shared| (shared.set, shared.address));
        shared
    }
}

/// An element that several Services may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedElement {
    /// The set.
    pub set: Set,
    /// The address.
    pub address: IpAddr,
    /// The zone of the endpoint, in [`Set::EndpointZones`] and [`Set::EndpointZoneChains`].
    pub zone: ZoneId,
}

impl From<SharedElement> for Entry {
    fn from(shared: SharedElement) -> Self {
        let SharedElement { set, address, zone } = shared;
        let key = Bytes::new().address(address);
        let (key, value) = match set {
            Set::Hairpins => (key.address(address), Value::Present),
            Set::EndpointZones => (key, Value::Zone(zone)),
            Set::EndpointZoneChains => (key, Value::ZoneChain(zone)),
            _ => (key, Value::Present),
        };
        Self { family: family_of(&address), set, key, value }
    }
}

fn of_endpoint(
    target: &Target,
    node: &NodeSettings,
) -> impl Iterator<Item = SharedElement> + use<> {
    let (address, zone) = (target.address, target.zone);
    let hairpin = target.local.then(|| SharedElement {
        set: Set::Hairpins,
        address,
        zone: ZoneId::default(),
    });
    let set = match node.count {
        CountBy::Zones if zone != ZoneId::default() => Some(Set::EndpointZones),
        // Demand for a Service is counted wherever its endpoints are.
        CountBy::Services => Some(Set::EndpointZoneChains),
        CountBy::None | CountBy::Zones => None,
    };
    hairpin.into_iter().chain(set.map(|set| SharedElement { set, address, zone }))
}

/// A route, and how its endpoints are chosen.
struct Choices<'a> {
    route: &'a PortRoute,
    cluster: Choice,
    local: Choice,
}

impl<'a> Choices<'a> {
    fn of(route: &'a PortRoute, weights: bool) -> Self {
        let cluster = match route.weights.as_deref().filter(|_| weights) {
            Some(weights) => {
                let zones: Vec<ZoneId> = route.cluster.iter().map(|target| target.zone).collect();
                Choice::weighted(&zones, weights)
            }
            None => Choice::uniform(route.cluster.len()),
        };
        Self { route, cluster, local: Choice::uniform(route.local.len()) }
    }

    fn cluster(&self) -> Candidates<'_> {
        Candidates { targets: &self.route.cluster, choice: &self.cluster }
    }

    fn local(&self) -> Candidates<'_> {
        Candidates { targets: &self.route.local, choice: &self.local }
    }
}

/// Endpoints that a connection may get, and how one of them is chosen.
struct Candidates<'a> {
    targets: &'a Targets,
    choice: &'a Choice,
}

/// Collects the elements of a Service.
struct Writer<'a> {
    node: &'a NodeSettings,
    service: &'a RoutedService,
    comment: ServiceComment,
    entries: Vec<Entry>,
}

impl Writer<'_> {
    fn to(&self, chain: Chain) -> Value {
        Value::Chain(chain, self.comment.clone())
    }

    fn affinity_map(&self) -> AffinityMap {
        AffinityMap::of(&self.service.namespace, &self.service.name)
    }

    fn add(&mut self, frontend: Frontend, sets: [Set; 2], value: Value) {
        let set = sets[usize::from(frontend.address.is_none())];
        let family = table_family(frontend.family);
        self.entries.push(Entry { family, set, key: frontend_key(&frontend), value });
    }

    fn frontend(&mut self, frontend: Frontend, exposure: Exposure, choices: &Choices<'_>) {
        self.guard(frontend, exposure);
        if !choices.route.has_any {
            let reject = self.to(Chain::Reject);
            self.add(frontend, [Set::NoEndpoints, Set::NoEndpointsNodePorts], reject);
            return;
        }
        let served = match exposure {
            Exposure::ClusterIp => self.cluster_ip(frontend, choices),
            Exposure::LoadBalancer | Exposure::NodePort | Exposure::ExternalIp => {
                self.external(frontend, choices)
            }
        };
        if !served {
            self.add(
                frontend,
                [Set::NoEndpoints, Set::NoEndpointsNodePorts],
                Value::Drop(self.comment.clone()),
            );
        }
        if let Some(seconds) = self.service.affinity_seconds {
            let remember = self.to(Chain::Remember(seconds, self.affinity_map()));
            self.add(frontend, [Set::Sticky, Set::StickyNodePorts], remember);
        }
    }

    /// Adds the elements of a ClusterIP; false if this node has no endpoint for it.
    fn cluster_ip(&mut self, frontend: Frontend, choices: &Choices<'_>) -> bool {
        let local = self.service.internal_policy == routing::TrafficPolicy::Local;
        let among = if local { choices.local() } else { choices.cluster() };
        let Some(chain) = self.slots(frontend, PickPolicy::ClusterIp, among) else {
            return false;
        };
        let to = self.to(chain);
        self.add(frontend, [Set::Services, Set::NodePorts], to);
        true
    }

    /// Adds the elements of an external frontend; false if this node has no endpoint for traffic from
    /// outside the cluster.
    fn external(&mut self, frontend: Frontend, choices: &Choices<'_>) -> bool {
        let entry = [Set::Services, Set::NodePorts];
        if self.service.external_policy == routing::TrafficPolicy::Cluster {
            let chain = self.slots(frontend, PickPolicy::External, choices.cluster());
            let Some(chain) = chain else { return false };
            let to = self.to(chain);
            self.add(frontend, entry, to);
            return true;
        }
        let to = self.to(Chain::ExternalLocal(frontend_kind(&frontend)));
        self.add(frontend, entry, to);
        if let Some(chain) = self.slots(frontend, PickPolicy::Plain, choices.cluster()) {
            let sets = [Set::ClusterPicks, Set::NodePortClusterPicks];
            let to = self.to(chain);
            self.add(frontend, sets, to);
        }
        let Some(chain) = self.slots(frontend, PickPolicy::Local, choices.local()) else {
            return false;
        };
        let to = self.to(chain);
        self.add(frontend, [Set::LocalPicks, Set::NodePortLocalPicks], to);
        true
    }

    /// Fills the slots of a frontend; the chain that picks among those of the first group, if there are any.
    fn slots(
        &mut self,
        frontend: Frontend,
        policy: PickPolicy,
        Candidates { targets, choice }: Candidates<'_>,
    ) -> Option<Chain> {
        let at = frontend_kind(&frontend);
        let sticky = self.service.affinity_seconds.map(|_| self.affinity_map());
        let chain = |number, group: &Group| {
            let slots = group.targets.len() as u32;
            Chain::Pick { policy, at, sticky, slots, group: number }
        };
        for (number, group) in (0..).zip(&choice.groups) {
            for (slot, target) in (first_slot(number)..).zip(&group.targets) {
                let target = targets.get(*target as usize)?;
                let value = Value::Endpoint(EndpointData::new(&target));
                self.numbered(frontend, slot_map(policy, at), slot, value);
            }
        }
        let (first, others) = choice.groups.split_first()?;
        if !others.is_empty() {
            self.add(frontend, weighted_sets(policy), Value::Present);
        }
        let mut drawn = choice.resolution + first.parts;
        for (number, group) in (1..).zip(others) {
            // One comment per group shows whose it is; more would only take memory.
            let mut comment = self.comment.clone();
            for _ in 0..group.parts {
                let to = Value::Chain(chain(number, group), std::mem::take(&mut comment));
                self.numbered(frontend, group_map(at), drawn, to);
                drawn += 1;
            }
        }
        Some(chain(0, first))
    }

    /// Adds an element whose key is a frontend and a number.
    fn numbered(&mut self, frontend: Frontend, set: Set, number: u32, value: Value) {
        let key = frontend_key(&frontend).number(number);
        self.entries.push(Entry { family: table_family(frontend.family), set, key, value });
    }

    /// Adds the source ranges of a load balancer's address.
    fn guard(&mut self, frontend: Frontend, exposure: Exposure) {
        let family = table_family(frontend.family);
        let sources = guarded(self.node, self.service, frontend, exposure);
        if sources.is_empty() {
            return;
        }
        self.add(frontend, [Set::Guarded; 2], Value::Present);
        for source in sources {
            let (first, last) = (source.address(), source.last());
            let key = frontend_key(&frontend).address(first);
            let value = Value::Until(Box::new(frontend_key(&frontend).address(last)));
            self.entries.push(Entry { family, set: Set::Sources, key, value });
        }
    }
}

/// The ranges that may use a load balancer's address; empty if everybody may.
fn guarded(
    node: &NodeSettings,
    service: &RoutedService,
    frontend: Frontend,
    exposure: Exposure,
) -> Vec<Cidr> {
    let (Exposure::LoadBalancer, Some(address)) = (exposure, frontend.address) else {
        return Vec::new();
    };
    let sources = service.source_ranges(frontend.family);
    let node = node.addresses[family_index(table_family(frontend.family))];
    let node_may = node.is_some_and(|node| sources.iter().any(|source| source.contains(node)));
    // A node that connects to a load balancer address that it holds itself has this address as its
    // source.
    let itself = node_may.then(|| Cidr::host(address));
    outermost(sources.into_iter().chain(itself))
}

/// The family of a table, as `routing` names it.
pub fn routing_family(family: Family) -> routing::Family {
    match family {
        Family::Ip => routing::Family::V4,
        Family::Ip6 => routing::Family::V6,
    }
}

/// The table of a family.
pub(crate) fn table_family(family: routing::Family) -> Family {
    match family {
        routing::Family::V4 => Family::Ip,
        routing::Family::V6 => Family::Ip6,
    }
}

/// Removes ranges that lie in others: the kernel rejects overlaps.
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
