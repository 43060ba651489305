//! What the tables should hold.
//!
//! A frontend belongs to one Service; `zonewise_routing::Ownership` decides to which. The elements of a
//! Service are those of the frontends that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Bound;

use zonewise_common::name::Key;
use zonewise_nft::Bytes;
use zonewise_routing::{Claim, Exposure, Frontend, Ownership, Refusal, ZoneId};

use super::budget::{Bill, Budget, Extent, Grant, namespace_limits};
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

impl Uses {
    /// The address of an endpoint may move to another zone when a new Pod gets it. Where a single
    /// Service uses the address, its element follows.
    fn relocate(&mut self, shared: &SharedElement, delta: Option<&mut Delta>) {
        // 2 while the old use of the same Service is still counted.
        if self.count > 2 || self.zone == shared.zone {
            return;
        }
        if let Some(delta) = delta {
            delta.removed(SharedElement { zone: self.zone, ..*shared }.into());
            delta.added((*shared).into());
        }
        self.zone = shared.zone;
    }
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

    /// Whether a shared element is there with another zone.
    fn is_elsewhere(&self, shared: &SharedElement) -> bool {
        let known = match shared.address {
            IpAddr::V4(address) => self.v4.get(&(shared.set, address)),
            IpAddr::V6(address) => self.v6.get(&(shared.set, address)),
        };
        known.is_some_and(|known| known.zone != shared.zone)
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

/// A Service and what it is granted; without a grant that is all it asks for.
#[derive(Debug, Default)]
struct State {
    programmed: Option<ProgrammedService>,
    grant: Option<Grant>,
}

impl State {
    fn asked(&self) -> usize {
        self.programmed.as_ref().map_or(0, |known| known.asked)
    }

    fn weights(&self) -> bool {
        self.grant.is_none_or(|grant| grant.weights)
    }

    fn extent(&self) -> Extent {
        self.grant.map_or(Extent::All, |grant| grant.extent)
    }

    fn frontends(&self, node: &NodeSettings) -> Vec<(Frontend, Exposure)> {
        let known = self.programmed.as_ref();
        known.map(|known| known.frontends(node, self.extent())).unwrap_or_default()
    }

    fn shared(&self, node: &NodeSettings) -> Vec<SharedElement> {
        let known = self.programmed.as_ref();
        known.map(|known| known.shared(node, self.extent())).unwrap_or_default()
    }
}

/// A Service whose elements change, because of what it is or of what it is granted.
#[derive(Debug)]
struct Change {
    key: Key,
    before: State,
    after: State,
}

/// What a Service is granted within the limits of namespaces, if that is less than it asks for.
fn granted(
    bill: &Bill,
    limits: &BTreeMap<String, usize>,
    (namespace, _): &Key,
    budget: Budget,
) -> Option<Grant> {
    let limit = limits.get(&**namespace).map_or(budget.service, |limit| budget.service.min(*limit));
    Some(bill.grant(limit)).filter(|grant| !grant.is_full())
}

/// What the tables should hold.
#[derive(Debug, Default)]
pub struct Desired {
    node: NodeSettings,
    services: BTreeMap<Key, ProgrammedService>,
    /// The Services that are granted less than they ask for.
    grants: BTreeMap<Key, Grant>,
    /// How many elements all Services ask for, each within the limit for a Service.
    asked: usize,
    /// The limits for Services of namespaces that ask for too much, while all together do.
    limits: BTreeMap<String, usize>,
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
        let changes = self.settle(key, old.clone(), new);
        let mut others = self.competitors(&changes);
        let api_servers = is_kubernetes(key).then(|| api_servers(&changes[0].after.programmed));
        if let Some(api_servers) = &api_servers {
            others.extend(self.ownership.claimants(self.ownership.api_servers()));
            others.extend(self.ownership.claimants(api_servers));
        }
        others.retain(|other| changes.iter().all(|change| change.key != *other));
        if let Some(delta) = delta.as_deref_mut() {
            let before = changes.iter().map(|change| (&change.key, &change.before));
            self.entries_with(before, &others).for_each(|entry| delta.removed(entry));
        }
        for change in &changes {
            self.reclaim(change);
        }
        if let Some(api_servers) = api_servers {
            self.ownership.set_api_servers(api_servers);
        }
        if let Some(delta) = delta.as_deref_mut() {
            let after = changes.iter().map(|change| (&change.key, &change.after));
            self.entries_with(after, &others).for_each(|entry| delta.added(entry));
        }
        self.touched.extend(others);
        for change in changes {
            self.share(&change, delta.as_deref_mut());
            self.touched.insert(change.key.clone());
            self.keep(change.key, change.after);
        }
        old
    }

    /// Adds a Service, and its elements to `entries`, if it is new and nothing else changes by it: much cheaper than
    /// [`Self::replace`]. Otherwise it is given back.
    pub(crate) fn add_new(
        &mut self,
        key: &Key,
        new: ProgrammedService,
        entries: &mut Vec<Entry>,
    ) -> Result<(), ProgrammedService> {
        let bill = new.bill(&self.node);
        let asked = bill.grant(self.node.budget.service);
        let fits = asked.is_full() && self.asked + asked.elements <= self.node.budget.node;
        if !fits || is_kubernetes(key) || self.services.contains_key(key) {
            return Err(new);
        }
        let frontends = new.frontends(&self.node, Extent::All);
        let shared = new.shared(&self.node, Extent::All);
        let elsewhere = shared.iter().any(|shared| self.shared.is_elsewhere(shared));
        if elsewhere || !self.ownership.competitors(key, frontends.iter()).is_empty() {
            return Err(new);
        }
        for (frontend, exposure) in frontends {
            let claim = Claim { exposure, created: new.service.created, service: key.clone() };
            self.ownership.claim(frontend, claim);
        }
        entries.extend(new.entries(&self.node, true, &|frontend| self.owns(key, frontend)));
        for shared in shared {
            let uses = self.shared.get_or_insert(&shared);
            uses.count += 1;
            if uses.count == 1 {
                entries.push(shared.into());
            }
        }
        self.asked += asked.elements;
        self.touched.insert(key.clone());
        self.services.insert(key.clone(), ProgrammedService { asked: asked.elements, ..new });
        Ok(())
    }

    /// Decides what a Service is granted, now that it asks for something else, and which other Services are granted
    /// something else by that. The Service itself comes first.
    fn settle(
        &mut self,
        key: &Key,
        old: Option<ProgrammedService>,
        new: Option<ProgrammedService>,
    ) -> Vec<Change> {
        let budget = self.node.budget;
        let before = State { programmed: old, grant: self.grants.remove(key) };
        let bill = new.as_ref().map(|new| new.bill(&self.node));
        let asked = bill.as_ref().map_or(0, |bill| bill.grant(budget.service).elements);
        let programmed = new.map(|new| ProgrammedService { asked, ..new });
        self.asked = self.asked - before.asked() + asked;
        let limits = self.limits_with(key, asked);
        let grant = bill.and_then(|bill| granted(&bill, &limits, key, budget));
        let after = State { programmed, grant };
        let mut changes = vec![Change { key: key.clone(), before, after }];
        if limits != self.limits {
            changes.extend(self.regranted(&limits));
            self.limits = limits;
        }
        changes
    }

    /// The limits of namespaces while this Service asks for so many elements.
    fn limits_with(&self, (namespace, _): &Key, asked: usize) -> BTreeMap<String, usize> {
        if self.asked <= self.node.budget.node {
            return BTreeMap::new();
        }
        let others = self.services.iter().map(|((of, _), known)| (&**of, known.asked));
        namespace_limits(others.chain([(&**namespace, asked)]), self.node.budget.node)
    }

    /// The Services that are granted something else within these limits.
    fn regranted(&self, limits: &BTreeMap<String, usize>) -> Vec<Change> {
        let differs =
            |(namespace, _): &Key| limits.get(&**namespace) != self.limits.get(&**namespace);
        let affected = self.services.iter().filter(|(key, _)| differs(key));
        let change = |(key, known): (&Key, &ProgrammedService)| {
            let before = self.grants.get(key).copied();
            let after = granted(&known.bill(&self.node), limits, key, self.node.budget);
            let state = |grant| State { programmed: Some(known.clone()), grant };
            (before != after).then(|| Change {
                key: key.clone(),
                before: state(before),
                after: state(after),
            })
        };
        affected.filter_map(change).collect()
    }

    /// Other Services whose frontends may come or go by these changes.
    fn competitors(&self, changes: &[Change]) -> BTreeSet<Key> {
        let of = |change: &Change| {
            let mut frontends = change.before.frontends(&self.node);
            frontends.extend(change.after.frontends(&self.node));
            self.ownership.competitors(&change.key, frontends.iter())
        };
        changes.iter().flat_map(of).collect()
    }

    fn reclaim(&mut self, change: &Change) {
        for (frontend, _) in change.before.frontends(&self.node) {
            self.ownership.release(&frontend, &change.key);
        }
        let created = change.after.programmed.as_ref().map_or(0, |new| new.service.created);
        for (frontend, exposure) in change.after.frontends(&self.node) {
            let service = change.key.clone();
            self.ownership.claim(frontend, Claim { exposure, created, service });
        }
    }

    fn keep(&mut self, key: Key, state: State) {
        match state.grant {
            Some(grant) => drop(self.grants.insert(key.clone(), grant)),
            None => drop(self.grants.remove(&key)),
        }
        if let Some(programmed) = state.programmed {
            self.services.insert(key, programmed);
        }
    }

    /// What a Service is granted, if that is less than it asks for.
    pub fn grant(&self, key: &Key) -> Option<&Grant> {
        self.grants.get(key)
    }

    /// How many elements the Services need for what they are granted; elements that they share count for each.
    pub fn elements(&self) -> usize {
        let less = |(key, grant): (&Key, &Grant)| {
            self.services.get(key).map_or(0, |known| known.asked.saturating_sub(grant.elements))
        };
        self.asked - self.grants.iter().map(less).sum::<usize>()
    }

    /// The Services that have changed, or whose frontends may have, since this was last called.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.touched)
    }

    /// The frontends that a Service asks for and does not get, and why.
    pub(crate) fn refused(&self, key: &Key) -> Box<[(Frontend, Refusal)]> {
        let claimed = self.claimed(key);
        let frontends = claimed.into_iter().map(|(frontend, _)| frontend);
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
        let frontends = self.claimed(key).into_iter().map(|(frontend, _)| frontend);
        frontends.filter(|frontend| self.owns(key, frontend)).collect()
    }

    /// The frontends that a Service claims, within its budget.
    fn claimed(&self, key: &Key) -> Vec<(Frontend, Exposure)> {
        let extent = self.grants.get(key).map_or(Extent::All, |grant| grant.extent);
        let known = self.services.get(key);
        known.map(|known| known.frontends(&self.node, extent)).unwrap_or_default()
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
        let weights = self.grants.get(key).is_none_or(|grant| grant.weights);
        let owns = |frontend: &Frontend| self.owns(key, frontend);
        known.map(|known| known.entries(&self.node, weights, &owns)).unwrap_or_default()
    }

    /// The elements of Services in these states, and of others as they are.
    fn entries_with<'a>(
        &'a self,
        states: impl Iterator<Item = (&'a Key, &'a State)> + 'a,
        others: &'a BTreeSet<Key>,
    ) -> impl Iterator<Item = Entry> + 'a {
        let own = states.flat_map(|(key, state)| {
            let owns = |frontend: &Frontend| self.owns(key, frontend);
            let known = state.programmed.as_ref();
            let entries = known.map(|known| known.entries(&self.node, state.weights(), &owns));
            entries.unwrap_or_default()
        });
        own.chain(others.iter().flat_map(|other| self.entries(other)))
    }

    fn owns(&self, key: &Key, frontend: &Frontend) -> bool {
        self.ownership.owner(frontend) == Some(key)
    }

    fn share(&mut self, change: &Change, mut delta: Option<&mut Delta>) {
        let before = change.before.shared(&self.node);
        for shared in change.after.shared(&self.node) {
            let uses = self.shared.get_or_insert(&shared);
            uses.count += 1;
            if let (1, Some(delta)) = (uses.count, &mut delta) {
                delta.added(shared.into());
            }
            uses.relocate(&shared, delta.as_deref_mut());
        }
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
