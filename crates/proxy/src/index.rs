//! The Services and EndpointSlices that the watches have delivered, found by Service, and which
//! Services have changed since the last sync.
//!
//! ```text
//!  Services ────────────► services ─┐
//!  slices, up to three watches:     ├─► dirty Services ─► sync
//!   for all, for my zone,  ► slices ─┘
//!   for my region
//! ```
//!
//! A slice whose subset label changes leaves one watch and appears on another, in any order. A slice
//! that leaves a watch is therefore an *unconfirmed deletion* at first: it stays in use until the API
//! server has been asked whether it still exists (`watches/deletions.rs`).
//!
//! A Service whose subset watches deliver no usable endpoint may have endpoints in slices for other
//! zones. All of its slices are then listed by name and kept as *fallback slices*
//! (`watches/fallback.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_routing::{RoutedService, RoutedSlice, Subset};

/// One of the watches of slices. All of them are started anew when the node's zone or region changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId {
    /// How often the watches have been started anew.
    pub epoch: u32,
    /// Which of the watches of that epoch, numbered as in `watch_of` (`watches/deletions.rs`).
    pub watch: u8,
}

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
    /// Written by the watches of slices, and by the task that confirms deletions.
    slices: BTreeMap<Key, Stored>,
    /// Which slices a Service has: namespace, Service, slice. Changes with `slices`.
    members: BTreeSet<(Name, Name, Name)>,
    /// Slices in `slices` that have left a watch and may still exist. Written by the watches of
    /// slices; the task that confirms deletions empties it.
    unconfirmed_deletions: BTreeSet<Key>,
    /// Services whose slices are to be listed by name. Written after a sync; the fallback task takes
    /// them.
    fallback_wanted: BTreeSet<Key>,
    /// All slices of Services that the watches leave without endpoints. Written by the fallback task.
    fallback_slices: BTreeMap<Key, Vec<RoutedSlice>>,
    /// Services to route again. Every writer above adds to it; a sync takes all.
    dirty: BTreeSet<Key>,
    /// When the changes behind a Service's slices happened, in microseconds since 1970. A sync takes
    /// all.
    triggers: BTreeMap<Key, Vec<i64>>,
    /// The newest resource version that a watch of slices has delivered.
    version: u64,
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

    /// The slices of a Service: those of the watches, then its fallback slices.
    pub fn slices(&self, service: &Key) -> Vec<&RoutedSlice> {
        let mut slices: Vec<&RoutedSlice> = self.watched_slices(service).collect();
        if let Some(fallback) = self.fallback_slices.get(service) {
            let known: BTreeSet<&Name> = slices.iter().map(|slice| &slice.name).collect();
            slices.extend(fallback.iter().filter(|slice| !known.contains(&slice.name)));
        }
        slices
    }

    /// Everything up to this resource version of the slices has been delivered.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes what has changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        Changes {
            services: std::mem::take(&mut self.dirty),
            triggers: std::mem::take(&mut self.triggers),
            version: self.version,
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
        self.services.insert(key, Arc::new(service));
        true
    }

    /// A Service is gone. True if it was known.
    pub fn delete_service(&mut self, key: &Key) -> bool {
        self.fallback_slices.remove(key);
        let known = self.services.remove(key).is_some();
        if known {
            self.dirty.insert(key.clone());
        }
        known
    }

    // === slices ===

    /// A slice is new or has changed. True if the change can matter for the rules.
    pub fn apply_slice(&mut self, mut slice: RoutedSlice, watch: WatchId) -> bool {
        let key = (Name::clone(&slice.namespace), Name::clone(&slice.name));
        self.unconfirmed_deletions.remove(&key);
        self.version = self.version.max(slice.resource_version);
        let changed = self.leave_former_service(&key, &slice.service);
        if slice.service.is_empty() || slice.family.is_none() || slice.headless {
            return self.remove_slice(&key) || changed;
        }
        if let Some(known) = self.slices.get_mut(&key) {
            // Another watch has delivered a newer version already.
            if known.slice.resource_version > slice.resource_version
                && known.watch.epoch >= watch.epoch
            {
                return changed;
            }
            if known.slice.same_content(&slice) {
                (known.slice.resource_version, known.watch) = (slice.resource_version, watch);
                return changed;
            }
        }
        let service = self.shared_key(&slice.namespace, &slice.service);
        let key = self.slices.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        let (namespace, name) = (Name::clone(&service.0), Name::clone(&key.1));
        (slice.namespace, slice.service, slice.name) = (namespace, Name::clone(&service.1), name);
        if let Some(trigger) = slice.trigger_time_us {
            self.triggers.entry(service.clone()).or_default().push(trigger);
        }
        self.members.insert(member(&service, &key.1));
        self.slices.insert(key, Stored { slice: Box::new(slice), watch });
        self.dirty.insert(service);
        true
    }

    /// Namespace and name of a Service, sharing the strings of the index if it has them: each name is
    /// in memory once.
    fn shared_key(&self, namespace: &Name, service: &Name) -> Key {
        let key = (Name::clone(namespace), Name::clone(service));
        if let Some((known, _)) = self.services.get_key_value(&key) {
            return known.clone();
        }
        let slice = self.watched_slices(&key).next();
        let known = slice.map(|slice| (Name::clone(&slice.namespace), Name::clone(&slice.service)));
        known.unwrap_or(key)
    }

    /// Removes a slice from the Service it belonged to, if its label names another one now.
    fn leave_former_service(&mut self, key: &Key, service: &Name) -> bool {
        let former = self.slices.get(key).map(|stored| &stored.slice.service);
        former.is_some_and(|former| former != service) && self.remove_slice(key)
    }

    /// A slice has left a watch at `version`. If no other watch could have it (`only_watch`) it is gone;
    /// otherwise its deletion has to be confirmed. True if it was removed.
    pub fn slice_left(
        &mut self,
        key: &Key,
        version: u64,
        watch: WatchId,
        only_watch: bool,
    ) -> bool {
        let Some(stored) = self.slices.get(key) else { return false };
        // Another watch has delivered it meanwhile.
        if stored.watch != watch || stored.slice.resource_version > version {
            return false;
        }
        if !only_watch {
            self.unconfirmed_deletions.insert(key.clone());
            return false;
        }
        self.remove_slice(key)
    }

    /// A slice does not exist any more, or is not for this node.
    pub fn remove_slice(&mut self, key: &Key) -> bool {
        self.unconfirmed_deletions.remove(key);
        let Some(Stored { slice, .. }) = self.slices.remove(key) else { return false };
        let service = (Name::clone(&key.0), slice.service);
        self.members.remove(&member(&service, &key.1));
        self.triggers.remove(&service);
        self.dirty.insert(service)
    }

    /// A watch has listed everything it selects: slices that it delivered before and that are not in
    /// the list have left it. True if one was removed.
    pub fn slices_listed(
        &mut self,
        keys: &BTreeSet<Key>,
        watch: WatchId,
        only_watch: bool,
    ) -> bool {
        let known = self.slices.iter().filter(|(_, stored)| stored.watch == watch);
        let missing: Vec<Key> =
            known.map(|(key, _)| key).filter(|key| !keys.contains(*key)).cloned().collect();
        let mut changed = false;
        for key in missing {
            changed |= self.slice_left(&key, u64::MAX, watch, only_watch);
        }
        changed
    }

    /// All watches of `epoch` have listed: slices that only older watches delivered may be gone.
    pub fn confirm_older_than(&mut self, epoch: u32) {
        let old = self.slices.iter().filter(|(_, stored)| stored.watch.epoch < epoch);
        self.unconfirmed_deletions.extend(old.map(|(key, _)| key.clone()));
    }

    /// Slices that have left a watch and may still exist.
    pub fn unconfirmed_deletions(&self) -> Vec<Key> {
        self.unconfirmed_deletions.iter().cloned().collect()
    }

    /// A watch of slices has delivered everything up to this resource version.
    pub fn delivered_up_to(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    // === fallback slices ===

    /// Asks for fallback slices of those of these Services that need them. True if there are any.
    pub fn want_fallback(&mut self, services: &BTreeSet<Key>) -> bool {
        let needy = self.needing_fallback(services.iter());
        let any = !needy.is_empty();
        self.fallback_wanted.extend(needy);
        any
    }

    /// Takes the Services that [`Self::want_fallback`] has noted.
    pub fn take_fallback_wanted(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.fallback_wanted)
    }

    /// Sets the fallback slices of a Service. True if they are other than before.
    pub fn set_fallback_slices(&mut self, service: &Key, slices: Vec<RoutedSlice>) -> bool {
        let known = self.fallback_slices.get(service);
        let same = known.is_some_and(|known| {
            known.len() == slices.len() && known.iter().zip(&slices).all(|(a, b)| a.same_content(b))
        });
        if same {
            return false;
        }
        self.fallback_slices.insert(service.clone(), slices);
        self.dirty.insert(service.clone())
    }

    /// Drops the fallback slices of a Service, whose watches deliver usable endpoints again.
    pub fn drop_fallback_slices(&mut self, service: &Key) -> bool {
        self.fallback_slices.remove(service).is_some() && self.dirty.insert(service.clone())
    }

    /// Services that have fallback slices.
    pub fn services_with_fallback(&self) -> Vec<Key> {
        self.fallback_slices.keys().cloned().collect()
    }

    /// Those of these Services for which the watches deliver no usable endpoint.
    pub fn without_endpoints<'a>(&'a self, services: impl Iterator<Item = &'a Key>) -> Vec<Key> {
        services
            .filter(|key| {
                self.services.contains_key(*key)
                    && !self.watched_slices(key).any(RoutedSlice::is_usable)
            })
            .cloned()
            .collect()
    }

    /// Those of these Services that may have endpoints in slices for other zones or regions. A slice
    /// without a subset label, even an empty one, proves that they have none.
    fn needing_fallback<'a>(&'a self, services: impl Iterator<Item = &'a Key>) -> Vec<Key> {
        let mut needy = self.without_endpoints(services);
        needy.retain(|key| {
            !self.fallback_slices.contains_key(key)
                && !self.watched_slices(key).any(|slice| slice.subset == Subset::All)
        });
        needy
    }

    /// The slices of a Service that the watches have delivered.
    fn watched_slices<'a, 'k>(
        &'a self,
        service: &'k Key,
    ) -> impl Iterator<Item = &'a RoutedSlice> + use<'a, 'k> {
        let members = self.members.range(member(service, &Name::default())..);
        let mine = members
            .take_while(|(namespace, name, _)| (namespace, name) == (&service.0, &service.1));
        mine.filter_map(|(namespace, _, slice)| {
            let key = (Name::clone(namespace), Name::clone(slice));
            self.slices.get(&key).map(|stored| &*stored.slice)
        })
    }
}

fn member(service: &Key, slice: &Name) -> (Name, Name, Name) {
    (Name::clone(&service.0), Name::clone(&service.1), Name::clone(slice))
}
