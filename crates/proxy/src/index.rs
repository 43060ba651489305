//! What the watches have told, found by Service, and which Services to look at again.
//!
//! ```text
//!  Services ────────────► services ─┐
//!  slices, up to three watches:     ├─► dirty Services ─► sync
//!   for all, for my zone,  ► slices ─┘
//!   for my region
//! ```
//!
//! A slice that is relabelled leaves one watch and appears on another, in any order. What leaves a
//! watch is therefore *doubted* first: it stays in use until the API server has been asked whether it
//! still exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_routing::{RoutedService, RoutedSlice, Subset};

/// One of the watches of slices. Watches begin anew when the node moves to another zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// How often watches have begun anew.
    pub epoch: u32,
    /// Which of them.
    pub watch: u8,
}

#[derive(Debug)]
struct Stored {
    slice: Box<RoutedSlice>,
    source: Source,
}

/// What is known.
#[derive(Debug, Default)]
pub struct Index {
    services: BTreeMap<Key, Arc<RoutedService>>,
    slices: BTreeMap<Key, Stored>,
    /// Which slices a Service has: namespace, Service, slice.
    members: BTreeSet<(Name, Name, Name)>,
    /// Slices of Services that the watches leave without endpoints: all of theirs, listed by name.
    borrowed: BTreeMap<Key, Vec<RoutedSlice>>,
    doubted: BTreeSet<Key>,
    dirty: BTreeSet<Key>,
    /// When the changes behind a Service's slices happened, in microseconds since 1970.
    triggers: BTreeMap<Key, Vec<i64>>,
    /// The newest version that a watch of slices has seen.
    version: u64,
}

/// What is to be looked at.
#[derive(Debug, Default)]
pub struct Work {
    /// Services that have changed, or whose slices have.
    pub services: BTreeSet<Key>,
    /// When the changes happened.
    pub triggers: BTreeMap<Key, Vec<i64>>,
    /// Everything up to this version is in it.
    pub version: u64,
}

impl Index {
    /// The Services.
    pub fn services(&self) -> &BTreeMap<Key, Arc<RoutedService>> {
        &self.services
    }

    /// The slices of a Service.
    pub fn slices(&self, service: &Key) -> Vec<&RoutedSlice> {
        let mut slices: Vec<&RoutedSlice> = self.shown(service).collect();
        if let Some(borrowed) = self.borrowed.get(service) {
            let known: BTreeSet<&Name> = slices.iter().map(|slice| &slice.name).collect();
            slices.extend(borrowed.iter().filter(|slice| !known.contains(&slice.name)));
        }
        slices
    }

    /// Everything up to this version of the slices is known.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes what has changed since the last time.
    pub fn take(&mut self) -> Work {
        Work {
            services: std::mem::take(&mut self.dirty),
            triggers: std::mem::take(&mut self.triggers),
            version: self.version,
        }
    }

    /// Services are to be looked at again.
    pub fn mark(&mut self, services: impl IntoIterator<Item = Key>) {
        self.dirty.extend(services);
    }

    /// Everything is to be looked at again.
    pub fn mark_all(&mut self) {
        self.dirty.extend(self.services.keys().cloned());
    }

    /// Nothing is to be looked at.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    // === Services ===

    /// A Service is new or has changed. True if it matters.
    pub fn apply_service(&mut self, mut service: RoutedService) -> bool {
        let key = self.names_of(&service.namespace, &service.name);
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
        self.borrowed.remove(key);
        let known = self.services.remove(key).is_some();
        if known {
            self.dirty.insert(key.clone());
        }
        known
    }

    // === slices ===

    /// A slice is new or has changed. True if it matters.
    pub fn apply_slice(&mut self, mut slice: RoutedSlice, source: Source) -> bool {
        let key = (Name::clone(&slice.namespace), Name::clone(&slice.name));
        self.doubted.remove(&key);
        self.version = self.version.max(slice.resource_version);
        let changed = self.leave_former_service(&key, &slice.service);
        if slice.service.is_empty() || slice.family.is_none() || slice.headless {
            return self.remove_slice(&key) || changed;
        }
        if let Some(known) = self.slices.get_mut(&key) {
            // An older version from another watch says nothing new.
            if known.slice.resource_version > slice.resource_version
                && known.source.epoch >= source.epoch
            {
                return changed;
            }
            if known.slice.same_content(&slice) {
                (known.slice.resource_version, known.source) = (slice.resource_version, source);
                return changed;
            }
        }
        let service = self.names_of(&slice.namespace, &slice.service);
        let key = self.slices.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        let (namespace, name) = (Name::clone(&service.0), Name::clone(&key.1));
        (slice.namespace, slice.service, slice.name) = (namespace, Name::clone(&service.1), name);
        if let Some(trigger) = slice.trigger_time_us {
            self.triggers.entry(service.clone()).or_default().push(trigger);
        }
        self.members.insert(member(&service, &key.1));
        self.slices.insert(key, Stored { slice: Box::new(slice), source });
        self.dirty.insert(service);
        true
    }

    /// The names of a Service as they are known already: a name is kept once, whoever has it.
    fn names_of(&self, namespace: &Name, service: &Name) -> Key {
        let asked = (Name::clone(namespace), Name::clone(service));
        if let Some((known, _)) = self.services.get_key_value(&asked) {
            return known.clone();
        }
        let slice = self.shown(&asked).next();
        let known = slice.map(|slice| (Name::clone(&slice.namespace), Name::clone(&slice.service)));
        known.unwrap_or(asked)
    }

    /// A slice may carry another Service's name than before.
    fn leave_former_service(&mut self, key: &Key, service: &Name) -> bool {
        let former = self.slices.get(key).map(|stored| &stored.slice.service);
        former.is_some_and(|former| former != service) && self.remove_slice(key)
    }

    /// A slice has left a watch. `sure`: it cannot be on another. True if it is gone.
    pub fn leave(&mut self, key: &Key, version: u64, source: Source, sure: bool) -> bool {
        let Some(stored) = self.slices.get(key) else { return false };
        // Another watch has it already.
        if stored.source != source || stored.slice.resource_version > version {
            return false;
        }
        if !sure {
            self.doubted.insert(key.clone());
            return false;
        }
        self.remove_slice(key)
    }

    /// A slice does not exist any more.
    pub fn remove_slice(&mut self, key: &Key) -> bool {
        self.doubted.remove(key);
        let Some(Stored { slice, .. }) = self.slices.remove(key) else { return false };
        let service = (Name::clone(&key.0), slice.service);
        self.members.remove(&member(&service, &key.1));
        self.triggers.remove(&service);
        self.dirty.insert(service)
    }

    /// A watch has listed all it sees: what it does not see any more is doubted.
    pub fn listed(&mut self, keys: &BTreeSet<Key>, source: Source, sure: bool) -> bool {
        let known = self.slices.iter().filter(|(_, stored)| stored.source == source);
        let missing: Vec<Key> =
            known.map(|(key, _)| key).filter(|key| !keys.contains(*key)).cloned().collect();
        let mut changed = false;
        for key in missing {
            changed |= self.leave(&key, u64::MAX, source, sure);
        }
        changed
    }

    /// Watches of a new epoch have all listed: what only older ones saw is doubted.
    pub fn forget_before(&mut self, epoch: u32) {
        let old = self.slices.iter().filter(|(_, stored)| stored.source.epoch < epoch);
        self.doubted.extend(old.map(|(key, _)| key.clone()));
    }

    /// Slices that have left a watch and may be anywhere.
    pub fn doubted(&self) -> Vec<Key> {
        self.doubted.iter().cloned().collect()
    }

    /// A watch has come this far.
    pub fn seen(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Slices of a Service that the watches do not show.
    pub fn lend(&mut self, service: &Key, slices: Vec<RoutedSlice>) -> bool {
        let known = self.borrowed.get(service);
        let same = known.is_some_and(|known| {
            known.len() == slices.len() && known.iter().zip(&slices).all(|(a, b)| a.same_content(b))
        });
        if same {
            return false;
        }
        self.borrowed.insert(service.clone(), slices);
        self.dirty.insert(service.clone())
    }

    /// The watches show enough again.
    pub fn return_borrowed(&mut self, service: &Key) -> bool {
        self.borrowed.remove(service).is_some() && self.dirty.insert(service.clone())
    }

    /// Services with slices from elsewhere.
    pub fn borrowers(&self) -> Vec<Key> {
        self.borrowed.keys().cloned().collect()
    }

    /// Those of these Services that the watches show no usable endpoint of.
    pub fn without_endpoints<'a>(&'a self, services: impl Iterator<Item = &'a Key>) -> Vec<Key> {
        services
            .filter(|key| {
                self.services.contains_key(*key) && !self.shown(key).any(RoutedSlice::is_usable)
            })
            .cloned()
            .collect()
    }

    /// Those of these Services that may have endpoints which the watches do not show. A slice for
    /// everybody, even an empty one, says that there are none.
    pub fn not_shown<'a>(&'a self, services: impl Iterator<Item = &'a Key>) -> Vec<Key> {
        let mut lonely = self.without_endpoints(services);
        lonely.retain(|key| {
            !self.borrowed.contains_key(key)
                && !self.shown(key).any(|slice| slice.subset == Subset::All)
        });
        lonely
    }

    fn shown<'a, 'k>(
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
