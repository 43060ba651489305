//! What the tables should hold.
//!
//! A frontend belongs to one Service. Where several Services claim the same (an external address with
//! the same port, for example), the first by namespace and name gets it, not the oldest: what is in
//! the kernel depends on the objects alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zonewise_common::name::Key;
use zonewise_nft::Bytes;
use zonewise_routing::{ServicePort, ZoneId};

use super::delta::Delta;
use super::entries::{Entry, Frontend, NodeSettings, ProgrammedService, SharedElement, Value};
use super::layout::family_of;
use super::sets::Set;

/// The Services that claim a frontend, sorted; nearly always one.
#[derive(Debug)]
enum Claims {
    One(Key),
    Many(Vec<Key>),
}

impl Claims {
    fn all(&self) -> &[Key] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }

    fn owner(&self) -> Option<&Key> {
        self.all().first()
    }
}

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
    claims: BTreeMap<Frontend, Claims>,
    shared: SharedUses,
    nodeport_ips: Vec<IpAddr>,
}

impl Desired {
    /// Nothing yet.
    pub fn new(node: NodeSettings) -> Self {
        Self { node, ..Self::default() }
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
        let others = self.competitors(key, before.iter().chain(&after));
        if let Some(delta) = delta.as_deref_mut() {
            self.entries_with_competitors(key, &old, &others)
                .for_each(|entry| delta.removed(entry));
        }
        before.iter().for_each(|frontend| self.release(key, frontend));
        after.iter().for_each(|frontend| self.claim(key, *frontend));
        if let Some(delta) = delta.as_deref_mut() {
            self.entries_with_competitors(key, &new, &others).for_each(|entry| delta.added(entry));
        }
        self.share(&old, &new, delta);
        if let Some(new) = new {
            self.services.insert(key.clone(), new);
        }
        old
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
        self.shared.iter().for_each(|shared| take(shared.into()));
        self.nodeport_ips.iter().map(nodeport_ip).for_each(take);
    }

    /// Frontends that several Services claim: the Service that has it, and the others.
    pub fn contested(&self) -> impl Iterator<Item = (&Frontend, &Key, &[Key])> {
        self.claims.iter().filter_map(|(frontend, claims)| match claims.all() {
            [owner, others @ ..] if !others.is_empty() => Some((frontend, owner, others)),
            _ => None,
        })
    }

    /// The Service that has a frontend, and the Service port behind it.
    pub fn owner(&self, frontend: &Frontend) -> Option<(&Key, u16)> {
        let owner = self.claims.get(frontend)?.owner()?;
        let service = &self.services.get(owner)?.service;
        let behind = |port: &&ServicePort| {
            let number = if frontend.address.is_some() { port.port } else { port.node_port };
            port.protocol.number() == frontend.protocol && number == frontend.port
        };
        Some((owner, service.ports.iter().find(behind)?.port))
    }

    /// Whether a client may stay with an endpoint: decided by the first of these frontends that a
    /// Service has.
    pub fn is_sticky_to(&self, frontends: &[Frontend], inside: bool, endpoint: SocketAddr) -> bool {
        let owned = |frontend: &Frontend| Some((*frontend, self.claims.get(frontend)?.owner()?));
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
        others: &[Key],
    ) -> impl Iterator<Item = Entry> {
        let owns = |frontend: &Frontend| self.owns(key, frontend);
        let own = state.as_ref().map(|known| known.entries(&self.node, &owns)).unwrap_or_default();
        own.into_iter().chain(others.iter().flat_map(|other| self.entries(other)))
    }

    fn owns(&self, key: &Key, frontend: &Frontend) -> bool {
        self.claims.get(frontend).and_then(Claims::owner) == Some(key)
    }

    /// Other Services that claim some of these frontends.
    fn competitors<'a>(
        &self,
        key: &Key,
        frontends: impl Iterator<Item = &'a Frontend>,
    ) -> Vec<Key> {
        let claims = frontends.filter_map(|frontend| self.claims.get(frontend));
        let mut competitors: Vec<Key> =
            claims.flat_map(Claims::all).filter(|other| *other != key).cloned().collect();
        competitors.sort();
        competitors.dedup();
        competitors
    }

    fn claim(&mut self, key: &Key, frontend: Frontend) {
        let claims = match self.claims.remove(&frontend) {
            None => Claims::One(key.clone()),
            Some(known) => {
                let mut keys = known.all().to_vec();
                keys.push(key.clone());
                keys.sort();
                Claims::Many(keys)
            }
        };
        self.claims.insert(frontend, claims);
    }

    fn release(&mut self, key: &Key, frontend: &Frontend) {
        let Some(claims) = self.claims.remove(frontend) else { return };
        let left: Vec<Key> = claims.all().iter().filter(|other| *other != key).cloned().collect();
        match <[Key; 1]>::try_from(left) {
            Ok([only]) => drop(self.claims.insert(*frontend, Claims::One(only))),
            Err(left) if left.is_empty() => {}
            Err(left) => drop(self.claims.insert(*frontend, Claims::Many(left))),
        }
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

fn nodeport_ip(address: &IpAddr) -> Entry {
    let key = Bytes::new().address(*address);
    Entry { family: family_of(address), set: Set::NodePortIps, key, value: Value::Present }
}
