//! The Services and EndpointSlices that the watches have delivered, found by Service, and which
//! Services have changed since the last sync.
//!
//! ```text
//!  Services ─────────────────────────► services ─┐
//!  own watches: slices for all,                  ├─► dirty Services ─► sync
//!    for my zone, for my region ─────► slices ───┤
//!  watches of other zones' slices, ──► slices ───┘
//!    for Services that need them
//! ```
//!
//! * `arrivals`: what has come while the first lists are still being read.
//! * `departures`: a slice that has left a watch may be on another one by now, and endpoints that are
//!   gone from the slices of a zone are replaced by those of others. What was known stays in use until
//!   the other watches have got as far, or the API server has been asked.
//! * `needs`: Services that slices of other zones and regions matter for.

mod arrivals;
mod departures;
mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_routing::{RoutedService, RoutedSlice, ZoneId};

pub(crate) use arrivals::PORTION;
pub use departures::WatchId;
pub(crate) use departures::{Answer, Question};
pub(crate) use needs::{Need, News, Perspective};

use arrivals::Arrivals;
use departures::{Departure, Progress};

#[derive(Debug)]
struct Stored {
    slice: Box<RoutedSlice>,
    watch: WatchId,
}

/// Services and slices, and what has changed about them.
#[derive(Debug, Default)]
pub struct Index {
    /// Written by the watch of Services.
    services: BTreeMap<Key, Arc<RoutedService>>,
    /// Written by the watches of slices, and by the task that settles departures.
    slices: BTreeMap<Key, Stored>,
    /// Which slices a Service has: namespace, Service, slice. Changes with `slices`.
    members: BTreeSet<(Name, Name, Name)>,
    /// Slices in `slices` that have left a watch and may still exist, or have lost their endpoints.
    departures: BTreeMap<Key, Departure>,
    /// Services that can be written before the first lists are complete.
    arrivals: Arrivals,
    /// How far the watches of slices have got.
    progress: Progress,
    /// Where this node is; `None` while all slices are watched.
    perspective: Option<Perspective>,
    /// Services that slices of other zones and regions matter for. Kept up to date from the moment
    /// when the own watches have listed.
    needs: BTreeMap<Key, Need>,
    /// Services with UDP flows to endpoints that are in no slice for this node. Written by the task that
    /// looks for stale flows.
    flows_elsewhere: BTreeSet<Key>,
    /// What other tasks wait for.
    news: News,
    /// Services to route again. Every writer above adds to it; a sync takes all.
    dirty: BTreeSet<Key>,
    /// When the changes behind a Service's slices happened, in microseconds since 1970. A sync takes
    /// all.
    triggers: BTreeMap<Key, Vec<i64>>,
}

/// What a sync has to apply.
#[derive(Debug, Default)]
pub struct Changes {
    /// Services that have changed, or whose slices have.
    pub services: BTreeSet<Key>,
    /// When the changes happened, in microseconds since 1970.
    pub triggers: BTreeMap<Key, Vec<i64>>,
    /// The changes include everything up to this resource version of the slices.
    pub version: u64,
}

impl Index {
    /// The Services.
    pub fn services(&self) -> &BTreeMap<Key, Arc<RoutedService>> {
        &self.services
    }

    /// The slices of a Service.
    pub fn slices(&self, service: &Key) -> Vec<&RoutedSlice> {
        self.stored(service).map(|(_, stored)| &*stored.slice).collect()
    }

    /// The zones of all endpoints.
    pub fn zones(&self) -> BTreeSet<ZoneId> {
        let endpoints = self.slices.values().flat_map(|stored| stored.slice.endpoints());
        endpoints.map(|endpoint| endpoint.zone).collect()
    }

    /// Takes what has changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        Changes {
            services: std::mem::take(&mut self.dirty),
            triggers: std::mem::take(&mut self.triggers),
            version: self.version(),
        }
    }

    /// These Services are to be routed again.
    pub fn mark_dirty(&mut self, services: impl IntoIterator<Item = Key>) {
        self.dirty.extend(services);
    }

    /// All Services are to be routed again.
    pub fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.services.keys().cloned());
    }

    /// No change waits for a sync.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    // === Services ===

    /// A Service is new or has changed. True if the change can matter for the rules.
    pub fn apply_service(&mut self, mut service: RoutedService) -> bool {
        let key = self.shared_key(&service.namespace, &service.name);
        if service.skipped {
            return self.delete_service(&key);
        }
        (service.namespace, service.name) = key.clone();
        let known = self.services.get(&key);
        if known.is_some_and(|known| known.same_content(&service)) {
            return false;
        }
        self.dirty.insert(key.clone());
        self.services.insert(key.clone(), Arc::new(service));
        self.service_arrived(&key);
        self.update_need(&key);
        true
    }

    /// A Service is gone. True if it was known.
    pub fn delete_service(&mut self, key: &Key) -> bool {
        let known = self.services.remove(key).is_some();
        if known {
            self.dirty.insert(key.clone());
            self.update_need(key);
            self.settle();
        }
        known
    }

    // === slices ===

    /// A slice is new or has changed. True if the change can matter for the rules.
    pub fn apply_slice(&mut self, slice: RoutedSlice, watch: WatchId) -> bool {
        let key = (Name::clone(&slice.namespace), Name::clone(&slice.name));
        let late = self.is_complete() && !self.progress.runs(watch);
        if late || self.is_outdated(&key, &slice, watch) {
            return false;
        }
        self.put_or_hold(key, slice, watch)
    }

    fn put_or_hold(&mut self, key: Key, slice: RoutedSlice, watch: WatchId) -> bool {
        match self.leaves_unserved(&key, &slice) {
            true => self.hold(&key, slice, watch),
            false => self.put(key, slice, watch),
        }
    }

    fn put(&mut self, key: Key, slice: RoutedSlice, watch: WatchId) -> bool {
        self.departures.remove(&key);
        let changed = self.leave_former_service(&key, &slice.service);
        if slice.service.is_empty() || slice.family.is_none() || slice.headless {
            return self.remove_slice(&key) || changed;
        }
        let service = self.shared_key(&slice.namespace, &slice.service);
        let stored = self.store(key, slice, watch, &service);
        self.update_need(&service);
        stored || changed
    }

    /// Whether another watch has delivered a newer version of a slice already.
    fn is_outdated(&self, key: &Key, slice: &RoutedSlice, watch: WatchId) -> bool {
        let Some(known) = self.slices.get(key) else { return false };
        let (before, now) = (self.delivered(key, known), slice.resource_version);
        match (self.progress.runs(known.watch), self.progress.runs(watch)) {
            // Read for the place where the node was before.
            (false, true) => false,
            (true, false) => before >= now,
            (true, true) | (false, false) => before > now,
        }
    }

    fn store(&mut self, key: Key, mut slice: RoutedSlice, watch: WatchId, service: &Key) -> bool {
        if let Some(known) = self.slices.get_mut(&key)
            && known.slice.same_content(&slice)
        {
            (known.slice.resource_version, known.watch) = (slice.resource_version, watch);
            return false;
        }
        let key = self.slices.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        let (namespace, name) = (Name::clone(&service.0), Name::clone(&key.1));
        (slice.namespace, slice.service, slice.name) = (namespace, Name::clone(&service.1), name);
        if let Some(trigger) = slice.trigger_time_us {
            self.triggers.entry(service.clone()).or_default().push(trigger);
        }
        self.members.insert(member(service, &key.1));
        self.slices.insert(key, Stored { slice: Box::new(slice), watch });
        self.dirty.insert(service.clone());
        self.slice_arrived(service);
        true
    }

    /// Namespace and name of a Service, sharing the strings of the index if it has them: each name is
    /// in memory once.
    fn shared_key(&self, namespace: &Name, service: &Name) -> Key {
        let key = (Name::clone(namespace), Name::clone(service));
        if let Some((known, _)) = self.services.get_key_value(&key) {
            return known.clone();
        }
        let known = self.stored(&key).next().map(|(_, Stored { slice, .. })| {
            (Name::clone(&slice.namespace), Name::clone(&slice.service))
        });
        known.unwrap_or(key)
    }

    /// Removes a slice from the Service it belonged to, if its label names another one now.
    fn leave_former_service(&mut self, key: &Key, service: &Name) -> bool {
        let former = self.slices.get(key).map(|stored| &stored.slice.service);
        former.is_some_and(|former| former != service) && self.remove_slice(key)
    }

    /// A slice does not exist any more, or is not for this node.
    pub fn remove_slice(&mut self, key: &Key) -> bool {
        self.departures.remove(key);
        let Some(Stored { slice, .. }) = self.slices.remove(key) else { return false };
        let service = (Name::clone(&key.0), slice.service);
        self.members.remove(&member(&service, &key.1));
        self.triggers.remove(&service);
        self.update_need(&service);
        self.dirty.insert(service)
    }

    /// The slices of a Service, with their names.
    fn stored<'a, 'k>(
        &'a self,
        service: &'k Key,
    ) -> impl Iterator<Item = (&'a Key, &'a Stored)> + use<'a, 'k> {
        let members = self.members.range(member(service, &Name::default())..);
        let mine = members
            .take_while(|(namespace, name, _)| (namespace, name) == (&service.0, &service.1));
        mine.filter_map(|(namespace, _, slice)| {
            let key = (Name::clone(namespace), Name::clone(slice));
            self.slices.get_key_value(&key)
        })
    }
}

fn member(service: &Key, slice: &Name) -> (Name, Name, Name) {
    (Name::clone(&service.0), Name::clone(&service.1), Name::clone(slice))
}
