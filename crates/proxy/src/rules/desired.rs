//! What the tables should hold.
//!
//! A frontend belongs to one Service; `zonewise_routing::Ownership` decides to which. The elements of a
//! Service are those of the frontends that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Bound;

use zonewise_common::name::Key;
use zonewise_nft::Bytes;
use zonewise_routing::{Claim, Frontend, Ownership, Refusal, ZoneId};

use super::delta::Delta;
use super::entries::{Entry, NodeSettings, ProgrammedService, SharedElement, Value};
use super::layout::family_of;
use super::sets::Set;

/// How many Services use a shared element, and the zone it was first seen in.
#[derive(Debug)]
struct Uses {
    count: u32,
    zone: ZoneId,
}

/// The uses of shared elements. IPv4 addresses have a map of their own, because there are many and
/// they need a quarter of the memory.
#[derive(Debug, Default)]
struct SharedUses {
    v4: BTreeMap<(Set, Ipv4Addr), Uses>,
    v6: BTreeMap<(Set, Ipv6Addr), Uses>,
}

impl SharedUses {
    fn get_mut(&mut self, set: Set, address: IpAddr) -> Option<&mut Uses> {
        match address {
            IpAddr::V4(address) => self.v4.get_mut(&(set, address)),
            IpAddr::V6(address) => self.v6.get_mut(&(set, address)),
        }
    }

    fn get_or_insert(&mut self, shared: &SharedElement) -> &mut Uses {
        let new = Uses { count: 0, zone: shared.zone };
        match shared.address {
            IpAddr::V4(address) => self.v4.entry((shared.set, address)).or_insert(new),
            IpAddr::V6(address) => self.v6.entry((shared.set, address)).or_insert(new),
        }
    }

    fn remove(&mut self, set: Set, address: IpAddr) {
        match address {
            IpAddr::V4(address) => drop(self.v4.remove(&(set, address))),
            IpAddr::V6(address) => drop(self.v6.remove(&(set, address))),
        }
    }

    fn iter(&self) -> impl Iterator<Item = SharedElement> {
        let v4 = self.v4.iter().map(|(&(set, address), uses)| (set, address.into(), uses.zone));
        let v6 = self.v6.iter().map(|(&(set, address), uses)| (set, address.into(), uses.zone));
        v4.chain(v6).map(|(set, address, zone)| SharedElement { set, address, zone })
    }
}

/// What the tables should hold.
#[derive(Debug, Default)]
pub struct Desired {
    node: NodeSettings,
    services: BTreeMap<Key, ProgrammedService>,
    ownership: Ownership,
    shared: SharedUses,
    nodeport_ips: Vec<IpAddr>,
    /// Services that have changed, or whose frontends may have, since this was last asked for.
    touched: BTreeSet<Key>,
}

impl Desired {
    /// Nothing yet.
    pub fn new(node: NodeSettings) -> Self {
        let ownership = Ownership::new(node.protected.clone());
        Self { node, ownership, ..Self::default() }
    }

    /// What the elements of all Services depend on.
    pub fn node(&self) -> &NodeSettings {
        &self.node
    }

    /// The Services in it.
    pub fn services(&self) -> &BTreeMap<Key, ProgrammedService> {
        &self.services
    }

    /// Adds, changes or removes a Service, and returns what it was. How the tables change by it is
    /// added to `delta`.
    pub fn replace(
        &mut self,
        key: &Key,
        new: Option<ProgrammedService>,
        mut delta: Option<&mut Delta>,
    ) -> Option<ProgrammedService> {
        let old = self.services.remove(key);
        let frontends = |programmed: &Option<ProgrammedService>| {
            programmed.as_ref().map(|known| known.frontends(&self.node)).unwrap_or_default()
        };
        let (before, after) = (frontends(&old), frontends(&new));
        let mut others = self.ownership.competitors(key, before.iter().chain(&after));
        let api_servers = is_kubernetes(key).then(|| api_servers(&new));
        if let Some(api_servers) = &api_servers {
            others.extend(self.ownership.claimants(self.ownership.api_servers()));
            others.extend(self.ownership.claimants(api_servers));
            others.remove(key);
        }
        if let Some(delta) = delta.as_deref_mut() {
            self.entries_with_competitors(key, &old, &others)
                .for_each(|entry| delta.removed(entry));
        }
        before.iter().for_each(|(frontend, _)| self.ownership.release(frontend, key));
        let created = new.as_ref().map_or(0, |new| new.service.created);
        for (frontend, exposure) in after {
            self.ownership.claim(frontend, Claim { exposure, created, service: key.clone() });
        }
        if let Some(api_servers) = api_servers {
            self.ownership.set_api_servers(api_servers);
        }
        if let Some(delta) = delta.as_deref_mut() {
            self.entries_with_competitors(key, &new, &others).for_each(|entry| delta.added(entry));
        }
        self.share(&old, &new, delta);
        self.touched.extend(others);
        self.touched.insert(key.clone());
        if let Some(new) = new {
            self.services.insert(key.clone(), new);
        }
        old
    }

    /// The Services that have changed, or whose frontends may have, since this was last called.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.touched)
    }

    /// The frontends that a Service asks for and does not get, and why.
    pub(crate) fn refused(&self, key: &Key) -> Box<[(Frontend, Refusal)]> {
        let claimed = self.services.get(key).map(|known| known.frontends(&self.node));
        let frontends = claimed.into_iter().flatten().map(|(frontend, _)| frontend);
        frontends.filter_map(|at| Some((at, self.ownership.refusal(key, &at)?))).collect()
    }

    /// The addresses that accept NodePorts.
    pub fn set_nodeport_ips(&mut self, addresses: Vec<IpAddr>, delta: &mut Delta) {
        let entries = |list: &[IpAddr]| list.iter().map(nodeport_ip).collect();
        delta.between(entries(&self.nodeport_ips), entries(&addresses));
        self.nodeport_ips = addresses;
    }

    /// Changes what the elements of all Services depend on.
    pub fn set_node(&mut self, node: NodeSettings, delta: &mut Delta) {
        let keys: Vec<Key> = self.services.keys().cloned().collect();
        let removed: Vec<(Key, Option<ProgrammedService>)> = keys
            .into_iter()
            .map(|key| (key.clone(), self.replace(&key, None, Some(delta))))
            .collect();
        self.ownership.set_protected(node.protected.clone());
        self.node = node;
        for (key, programmed) in removed {
            self.replace(&key, programmed, Some(delta));
        }
    }

    /// Every element, in no particular order.
    pub fn each(&self, mut take: impl FnMut(Entry)) {
        for key in self.services.keys() {
            self.entries(key).into_iter().for_each(&mut take);
        }
        self.common_entries().for_each(take);
    }

    /// The elements that belong to no Service alone.
    pub(crate) fn common_entries(&self) -> impl Iterator<Item = Entry> {
        let addresses = self.nodeport_ips.iter().map(nodeport_ip);
        self.shared.iter().map(Entry::from).chain(addresses)
    }

    /// The Service after this one, or the first, with its elements.
    pub(crate) fn next_service(&self, after: Option<&Key>) -> Option<(Key, Vec<Entry>)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (key, _) = self.services.range((start, Bound::Unbounded)).next()?;
        Some((key.clone(), self.entries(key)))
    }

    /// Which Service has which frontend.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The frontends that a Service has.
    pub fn owned(&self, key: &Key) -> BTreeSet<Frontend> {
        let claimed = self.services.get(key).map(|known| known.frontends(&self.node));
        let frontends = claimed.into_iter().flatten().map(|(frontend, _)| frontend);
        frontends.filter(|frontend| self.owns(key, frontend)).collect()
    }

    /// Whether a client may stay with an endpoint: decided by the first of these frontends that a
    /// Service has.
    pub fn is_sticky_to(&self, frontends: &[Frontend], inside: bool, endpoint: SocketAddr) -> bool {
        let owned = |frontend: &Frontend| Some((*frontend, self.ownership.owner(frontend)?));
        let Some((frontend, owner)) = frontends.iter().find_map(owned) else { return false };
        self.services
            .get(owner)
            .is_some_and(|owner| owner.is_sticky_to(&self.node, frontend, inside, endpoint))
    }

    fn entries(&self, key: &Key) -> Vec<Entry> {
        let known = self.services.get(key);
        let owns = |frontend: &Frontend| self.owns(key, frontend);
        known.map(|known| known.entries(&self.node, &owns)).unwrap_or_default()
    }

    /// The elements of a Service in this state, and of the Services that compete with it.
    fn entries_with_competitors(
        &self,
        key: &Key,
        state: &Option<ProgrammedService>,
        others: &BTreeSet<Key>,
    ) -> impl Iterator<Item = Entry> {
        let owns = |frontend: &Frontend| self.owns(key, frontend);
        let own = state.as_ref().map(|known| known.entries(&self.node, &owns)).unwrap_or_default();
        own.into_iter().chain(others.iter().flat_map(|other| self.entries(other)))
    }

    fn owns(&self, key: &Key, frontend: &Frontend) -> bool {
        self.ownership.owner(frontend) == Some(key)
    }

    fn share(
        &mut self,
        old: &Option<ProgrammedService>,
        new: &Option<ProgrammedService>,
        mut delta: Option<&mut Delta>,
    ) {
        let of = |programmed: &Option<ProgrammedService>| {
            programmed.as_ref().map(|known| known.shared(&self.node)).unwrap_or_default()
        };
        let (before, after) = (of(old), of(new));
        for shared in after {
            let uses = self.shared.get_or_insert(&shared);
            uses.count += 1;
            if let (1, Some(delta)) = (uses.count, &mut delta) {
                delta.added(shared.into());
            }
        }
        self.relocate(new, delta.as_deref_mut());
        for shared in before {
            let Some(uses) = self.shared.get_mut(shared.set, shared.address) else { continue };
            uses.count -= 1;
            if uses.count == 0 {
                let zone = uses.zone;
                self.shared.remove(shared.set, shared.address);
                if let Some(delta) = &mut delta {
                    delta.removed(SharedElement { zone, ..shared }.into());
                }
            }
        }
    }
}

impl Desired {
    /// The address of an endpoint may move to another zone when a new Pod gets it. Where a single
    /// Service uses the address, its element follows.
    fn relocate(&mut self, new: &Option<ProgrammedService>, mut delta: Option<&mut Delta>) {
        let Some(new) = new else { return };
        for shared in new.shared(&self.node) {
            let Some(uses) = self.shared.get_mut(shared.set, shared.address) else { continue };
            // 2 while the old use of the same Service is still counted.
            if uses.count <= 2 && uses.zone != shared.zone {
                if let Some(delta) = &mut delta {
                    delta.removed(SharedElement { zone: uses.zone, ..shared }.into());
                    delta.added(shared.into());
                }
                uses.zone = shared.zone;
            }
        }
    }
}

/// The Service whose endpoints are the API servers.
fn is_kubernetes((namespace, name): &Key) -> bool {
    &**namespace == "default" && &**name == "kubernetes"
}

fn api_servers(kubernetes: &Option<ProgrammedService>) -> BTreeSet<SocketAddr> {
    let ports = kubernetes.iter().flat_map(|known| known.ports.iter().flatten().flatten());
    let targets = ports.flat_map(|route| route.cluster.iter());
    targets.map(|target| SocketAddr::new(target.address, target.port)).collect()
}

fn nodeport_ip(address: &IpAddr) -> Entry {
    let key = Bytes::new().address(*address);
    Entry { family: family_of(address), set: Set::NodePortIps, key, value: Value::Present }
}
