//! What the tables should hold.
//!
//! Frontends belong to one Service. Where several ask for the same (an external address with the
//! same port, say), the first by namespace and name has it, whoever came first: what is in the
//! kernel depends on the objects alone.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zonewise_common::name::Key;
use zonewise_nft::Bytes;
use zonewise_routing::{ServicePort, ZoneId};

use super::delta::Delta;
use super::entries::{Entry, Frontend, Node, Programmed, Shared, Value};
use super::layout::family_of;
use super::sets::Set;

/// Who asks for a frontend; nearly always one.
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

/// The uses of shared elements. IPv4 addresses have a map of their own: they are many, and small.
#[derive(Debug, Default)]
struct AllUses {
    v4: BTreeMap<(Set, Ipv4Addr), Uses>,
    v6: BTreeMap<(Set, Ipv6Addr), Uses>,
}

impl AllUses {
    fn get_mut(&mut self, set: Set, address: IpAddr) -> Option<&mut Uses> {
        match address {
            IpAddr::V4(address) => self.v4.get_mut(&(set, address)),
            IpAddr::V6(address) => self.v6.get_mut(&(set, address)),
        }
    }

    fn get_or_insert(&mut self, shared: &Shared) -> &mut Uses {
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

    fn iter(&self) -> impl Iterator<Item = Shared> {
        let v4 = self.v4.iter().map(|(&(set, address), uses)| (set, address.into(), uses.zone));
        let v6 = self.v6.iter().map(|(&(set, address), uses)| (set, address.into(), uses.zone));
        v4.chain(v6).map(|(set, address, zone)| Shared { set, address, zone })
    }
}

/// What the tables should hold.
#[derive(Debug, Default)]
pub struct Desired {
    node: Node,
    services: BTreeMap<Key, Programmed>,
    claims: BTreeMap<Frontend, Claims>,
    shared: AllUses,
    nodeport_ips: Vec<IpAddr>,
}

impl Desired {
    /// Nothing yet.
    pub fn new(node: Node) -> Self {
        Self { node, ..Self::default() }
    }

    /// What Services do not decide.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The Services in it.
    pub fn services(&self) -> &BTreeMap<Key, Programmed> {
        &self.services
    }

    /// Puts a Service in, changes it or takes it out; returns what it was. How the tables change by it
    /// is noted for whoever wants to know.
    pub fn replace(
        &mut self,
        key: &Key,
        new: Option<Programmed>,
        mut delta: Option<&mut Delta>,
    ) -> Option<Programmed> {
        let old = self.services.remove(key);
        let frontends = |programmed: &Option<Programmed>| {
            programmed.as_ref().map(|known| known.frontends(&self.node)).unwrap_or_default()
        };
        let (before, after) = (frontends(&old), frontends(&new));
        let others = self.rivals(key, before.iter().chain(&after));
        if let Some(delta) = delta.as_deref_mut() {
            self.with_rivals(key, &old, &others).for_each(|entry| delta.removed(entry));
        }
        before.iter().for_each(|frontend| self.release(key, frontend));
        after.iter().for_each(|frontend| self.claim(key, *frontend));
        if let Some(delta) = delta.as_deref_mut() {
            self.with_rivals(key, &new, &others).for_each(|entry| delta.added(entry));
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

    /// Changes what Services do not decide.
    pub fn set_node(&mut self, node: Node, delta: &mut Delta) {
        let keys: Vec<Key> = self.services.keys().cloned().collect();
        let removed: Vec<(Key, Option<Programmed>)> = keys
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

    /// Frontends that more than one Service asks for: the owner and who goes without.
    pub fn contested(&self) -> impl Iterator<Item = (&Frontend, &Key, &[Key])> {
        self.claims.iter().filter_map(|(frontend, claims)| match claims.all() {
            [owner, others @ ..] if !others.is_empty() => Some((frontend, owner, others)),
            _ => None,
        })
    }

    /// Whose a frontend is, and the port of the Service behind it.
    pub fn owner(&self, frontend: &Frontend) -> Option<(&Key, u16)> {
        let owner = self.claims.get(frontend)?.owner()?;
        let service = &self.services.get(owner)?.service;
        let behind = |port: &&ServicePort| {
            let number = if frontend.address.is_some() { port.port } else { port.node_port };
            port.protocol.number() == frontend.protocol && number == frontend.port
        };
        Some((owner, service.ports.iter().find(behind)?.port))
    }

    /// Whether a client of the first of these frontends that anybody has may stay with an endpoint.
    pub fn is_sticky_to(
        &self,
        frontends: &[Frontend],
        inside: bool,
        endpoint: (IpAddr, u16),
    ) -> bool {
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

    /// The elements of a Service in this state, and of those that ask for the same frontends.
    fn with_rivals(
        &self,
        key: &Key,
        state: &Option<Programmed>,
        others: &[Key],
    ) -> impl Iterator<Item = Entry> {
        let owns = |frontend: &Frontend| self.owns(key, frontend);
        let own = state.as_ref().map(|known| known.entries(&self.node, &owns)).unwrap_or_default();
        own.into_iter().chain(others.iter().flat_map(|other| self.entries(other)))
    }

    fn owns(&self, key: &Key, frontend: &Frontend) -> bool {
        self.claims.get(frontend).and_then(Claims::owner) == Some(key)
    }

    /// Others that ask for some of these frontends.
    fn rivals<'a>(&self, key: &Key, frontends: impl Iterator<Item = &'a Frontend>) -> Vec<Key> {
        let claims = frontends.filter_map(|frontend| self.claims.get(frontend));
        let mut rivals: Vec<Key> =
            claims.flat_map(Claims::all).filter(|other| *other != key).cloned().collect();
        rivals.sort();
        rivals.dedup();
        rivals
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
        old: &Option<Programmed>,
        new: &Option<Programmed>,
        mut delta: Option<&mut Delta>,
    ) {
        let of = |programmed: &Option<Programmed>| {
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
                    delta.removed(Shared { zone, ..shared }.into());
                }
            }
        }
    }
}

impl Desired {
    /// An address that one Service alone uses may move to another zone (a pod's address used again).
    fn relocate(&mut self, new: &Option<Programmed>, mut delta: Option<&mut Delta>) {
        let Some(new) = new else { return };
        for shared in new.shared(&self.node) {
            let Some(uses) = self.shared.get_mut(shared.set, shared.address) else { continue };
            // Its old use is not counted off yet.
            if uses.count <= 2 && uses.zone != shared.zone {
                if let Some(delta) = &mut delta {
                    delta.removed(Shared { zone: uses.zone, ..shared }.into());
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
