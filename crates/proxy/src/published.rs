//! What the pages show: the Services as the last sync has left them.
//!
//! ```text
//!  sync loop ─ has the kernel's lock ─► Kernel ─ after each change: the Services that it touched ─► Published
//!                                                                                                  │
//!                                             /metrics, /routes ◄── copies of pointers, at once ───┘
//! ```
//!
//! No thread holds its lock for longer than it takes to copy pointers, so that a page never waits for the
//! kernel, whatever the sync loop reads or writes there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use zonewise_common::name::{Key, Name};
use zonewise_routing::{Frontend, Refusal};
use zonewise_topology::reason::Reason;

use crate::connections::Owners;
use crate::connections::ledger::Ledger;
use crate::rules::budget::{Extent, Grant};
use crate::rules::desired::Desired;
use crate::rules::entries::{PortRoute, ProgrammedService, routing_family};
use crate::rules::layout::FAMILIES;

/// A Service as the last sync has left it.
#[derive(Clone, Debug)]
pub(crate) struct PublishedService {
    /// Its ports, and the endpoints of each.
    pub(crate) programmed: ProgrammedService,
    /// The frontends that it asks for and does not get.
    pub(crate) refused: Box<[(Frontend, Refusal)]>,
    /// What it is granted, if that is less than it asks for.
    pub(crate) grant: Option<Grant>,
}

impl PublishedService {
    fn key(&self) -> Key {
        let service = &self.programmed.service;
        (Name::clone(&service.namespace), Name::clone(&service.name))
    }

    /// The addresses and ports that it has.
    fn frontends(&self) -> Vec<Frontend> {
        let service = &self.programmed.service;
        let families = FAMILIES.map(routing_family);
        let ports = service.ports.iter().flat_map(|port| families.map(|family| (port, family)));
        let all = ports.flat_map(|(port, family)| service.frontends(port, family));
        all.map(|(at, _)| at).filter(|at| self.refusal(at).is_none()).collect()
    }

    /// Why it does not get a frontend.
    pub(crate) fn refusal(&self, frontend: &Frontend) -> Option<&Refusal> {
        let at = self.refused.binary_search_by_key(frontend, |(at, _)| *at).ok()?;
        Some(&self.refused[at].1)
    }

    /// Whether its budget leaves no room for the weights of a route.
    pub(crate) fn loses_weights(&self, route: &PortRoute) -> bool {
        route.weights.is_some() && self.grant.is_some_and(|grant| !grant.weights)
    }

    /// Why the endpoints of a route are used as they are.
    pub(crate) fn reason(&self, route: &PortRoute) -> Reason {
        match self.grant {
            Some(Grant { asked, limit, .. }) if self.loses_weights(route) => {
                Reason::WeightsOverBudget { asked: asked as u64, limit: limit as u64 }
            }
            _ => route.reason,
        }
    }

    /// Why endpoints are left out because of their address, if so: of the port that loses most.
    fn special_addresses(&self) -> Option<Reason> {
        let routes = self.programmed.ports.iter().flatten().flatten();
        let most = |reason: &Reason| match reason {
            Reason::SpecialAddresses { endpoints } => *endpoints,
            _ => 0,
        };
        routes.filter_map(|route| route.special_addresses).max_by_key(most)
    }

    /// Why some of its frontends are not served at all, if so.
    pub(crate) fn lost_frontends(&self) -> Option<Reason> {
        let grant = self.grant.filter(|grant| grant.extent != Extent::All)?;
        let (asked, limit) = (grant.asked as u64, grant.limit as u64);
        Some(Reason::AddressesOverBudget { asked, limit })
    }
}

/// What the pages show. One for the life of the process.
#[derive(Debug, Default)]
pub struct Published {
    services: Mutex<BTreeMap<Key, Arc<PublishedService>>>,
    /// Zones with a counter in the kernel, by the name of the counter.
    zones: Mutex<BTreeMap<String, Name>>,
    /// How many batches the kernel has accepted from the tables that are in use.
    batches: AtomicU64,
    /// How many elements the Services need.
    elements: AtomicU64,
    /// Connections by Service and zone, as far as they have been read from the kernel.
    connections: Mutex<Ledger>,
    /// Held by the code that reads, removes or replaces what counts by Service and zone.
    reading: Mutex<()>,
    /// Which Service has which address, where connections are counted by Service.
    owners: Mutex<Option<Owners>>,
}

impl Published {
    /// Connections by Service and zone, where these are counted.
    pub(crate) fn connections(&self) -> MutexGuard<'_, Ledger> {
        self.connections.lock()
    }

    /// All Services.
    pub(crate) fn services(&self) -> Vec<Arc<PublishedService>> {
        self.services.lock().values().cloned().collect()
    }

    /// A Service.
    pub(crate) fn service(&self, key: &Key) -> Option<Arc<PublishedService>> {
        self.services.lock().get(key).cloned()
    }

    /// To be held while what counts by Service and zone is read, removed or replaced, until it is noted: elements are
    /// compared with what was read last, and so have to be read one after the other.
    pub(crate) fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock()
    }

    /// From now on it is known which Service has an address.
    pub(crate) fn keep_owners(&self) {
        let mut owners = self.owners.lock();
        owners.get_or_insert_with(|| {
            let services = self.services();
            let all = services
                .iter()
                .flat_map(|known| known.frontends().into_iter().map(|at| (at, known.key())));
            all.collect()
        });
    }

    /// The Service that has the first of these addresses and ports that some Service has, where that is kept.
    pub(crate) fn owner(&self, frontends: &[Frontend]) -> Option<Key> {
        let owners = self.owners.lock();
        let owners = owners.as_ref()?;
        frontends.iter().find_map(|at| owners.get(at)).cloned()
    }

    /// A Service has other addresses and ports than before.
    fn change_owners(
        &self,
        key: &Key,
        was: Option<&PublishedService>,
        is: Option<&PublishedService>,
    ) {
        let mut owners = self.owners.lock();
        let Some(owners) = owners.as_mut() else { return };
        for at in was.map(PublishedService::frontends).unwrap_or_default() {
            // Another Service may have got it before.
            if owners.get(&at) == Some(key) {
                owners.remove(&at);
            }
        }
        let new = is.map(PublishedService::frontends).unwrap_or_default();
        owners.extend(new.into_iter().map(|at| (at, key.clone())));
    }

    /// Zones with a counter in the kernel, by the name of the counter. Some may be gone.
    pub(crate) fn zones(&self) -> BTreeMap<String, Name> {
        self.zones.lock().clone()
    }

    /// How many batches the kernel has accepted.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// How many elements the Services need.
    pub(crate) fn elements(&self) -> u64 {
        self.elements.load(Relaxed)
    }

    /// Forgets Services that are not desired: tables are written anew.
    pub(crate) fn forget_others(&self, desired: &Desired) {
        let known: Vec<Key> = self.services.lock().keys().cloned().collect();
        for key in known {
            if !desired.services().contains_key(&key) {
                self.replace(&key, None);
            }
        }
    }

    /// These Services have changed.
    pub(crate) fn update(&self, desired: &Desired, touched: BTreeSet<Key>) {
        self.elements.store(desired.elements() as u64, Relaxed);
        for key in touched {
            let published = desired.services().get(&key).map(|programmed| PublishedService {
                programmed: programmed.clone(),
                refused: desired.refused(&key),
                grant: desired.grant(&key).copied(),
            });
            self.replace(&key, published);
        }
    }

    fn replace(&self, key: &Key, published: Option<PublishedService>) {
        let published = published.map(Arc::new);
        let before = match &published {
            Some(published) => self.services.lock().insert(key.clone(), Arc::clone(published)),
            None => self.services.lock().remove(key),
        };
        let (before, published) = (before.as_deref(), published.as_deref());
        log_budget(key, before, published);
        tell_left_out(key, before, published);
        if !has_same_frontends(before, published) {
            self.change_owners(key, before, published);
        }
    }

    /// These zones have counters. Others may have, too.
    pub(crate) fn add_zones(&self, zones: impl Iterator<Item = (String, Name)>) {
        self.zones.lock().extend(zones);
    }

    /// These zones have counters, and no others.
    pub(crate) fn set_zones(&self, zones: impl Iterator<Item = (String, Name)>) {
        *self.zones.lock() = zones.collect();
    }

    pub(crate) fn set_batches(&self, batches: u64) {
        self.batches.store(batches, Relaxed);
    }
}

/// Whether a Service has the addresses and ports that it had. Most changes are about its endpoints alone.
fn has_same_frontends(was: Option<&PublishedService>, is: Option<&PublishedService>) -> bool {
    match (was, is) {
        (Some(was), Some(is)) => {
            Arc::ptr_eq(&was.programmed.service, &is.programmed.service)
                && was.refused == is.refused
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Logs that a Service has begun or ceased to lose something for its budget.
fn log_budget(
    (namespace, name): &Key,
    was: Option<&PublishedService>,
    is: Option<&PublishedService>,
) {
    let lost = |known: Option<&PublishedService>| {
        let grant = known.and_then(|known| known.grant)?;
        Some((grant.weights, grant.extent == Extent::All))
    };
    let service = format!("{namespace}/{name}");
    match (is.and_then(|known| known.grant), lost(was) != lost(is)) {
        (Some(Grant { asked, limit, extent, .. }), true) => {
            let lost = if extent == Extent::All { "its weights" } else { "some of its addresses" };
            tracing::warn!(
                service,
                asked,
                limit,
                "the Service needs more nftables elements than its limit, and loses {lost}: use fewer ports, \
                 addresses or endpoints, or raise --service-elements or --node-elements"
            );
        }
        (None, true) => {
            tracing::info!(service, "the Service has all its weights and addresses again");
        }
        (_, false) => {}
    }
}

/// Logs that endpoints of a Service have begun or ceased to be left out because of their address.
fn tell_left_out(
    (namespace, name): &Key,
    was: Option<&PublishedService>,
    is: Option<&PublishedService>,
) {
    let left_out = |known: Option<&PublishedService>| known?.special_addresses();
    let service = format!("{namespace}/{name}");
    match (left_out(was), left_out(is)) {
        (was, Some(reason)) if was != Some(reason) => {
            let remedy = reason.code().entry().remedy;
            tracing::warn!(service, code = %reason.code(), "{reason}: {remedy}");
        }
        (Some(_), None) => {
            tracing::info!(service, "no endpoint of the Service has a special address any more");
        }
        _ => {}
    }
}
