//! Objects by resource, and the history of their changes.
//!
//! ```text
//!  put, remove ─► version + 1 ─► collection of the resource: key ─► object
//!                                  └─► history: event, event, event (the oldest are dropped)
//!                                                  │
//!            objects at a version  ◄── undo the events after it, newest first
//!            events after a version ◄── watches
//! ```
//!
//! Keys are `namespace/name`, or `name` alone for cluster-scoped objects; their order is the order
//! of lists. One resourceVersion counts for all resources. It starts at a number that no earlier
//! server has reached, so a client that comes back with a resourceVersion of an earlier server is
//! answered that it has been compacted, and lists again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::objects::kind::{GroupResource, KINDS};

mod object;

use object::with_version;
pub(crate) use object::{Change, Object, WatchEvent, json_without_type};

/// Bytes of objects in the history of one resource, about. Large objects are remembered for a
/// shorter time.
const MAX_HISTORY_BYTES: usize = 64 * 1024 * 1024;

/// Names one stored object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectRef {
    pub(crate) resource: GroupResource,
    /// `namespace/name`, or `name` alone.
    pub(crate) key: Arc<str>,
}

impl ObjectRef {
    pub(crate) fn new(resource: GroupResource, key: impl Into<Arc<str>>) -> Self {
        Self { resource, key: key.into() }
    }
}

/// The objects of a resource by key.
pub(crate) type Objects = BTreeMap<Arc<str>, Arc<Object>>;

/// The key of an object.
pub(crate) fn key(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The history no longer reaches back to the version that was asked for; this is the oldest one
/// that it reaches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compacted(pub(crate) u64);

/// The objects of one resource and their history.
#[derive(Debug)]
struct Collection {
    objects: Objects,
    history: VecDeque<Arc<WatchEvent>>,
    /// Bytes of all objects in the history.
    bytes: usize,
    /// Versions below this one cannot be read or watched from.
    compacted: u64,
    /// The version of the last event that was dropped from the history: a watch that has already
    /// sent it has missed nothing.
    dropped: u64,
    /// Wakes watches that wait, in the order in which they began to wait. (A `watch` channel wakes them in random
    /// order, and a simulation could not be repeated.)
    changed: broadcast::Sender<()>,
}

/// All objects of all resources.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    /// Events that the history of each resource holds at most.
    limit: usize,
    collections: BTreeMap<GroupResource, Collection>,
    by_uid: BTreeMap<String, ObjectRef>,
    /// Objects by the uids of their owners.
    dependents: BTreeMap<String, BTreeSet<ObjectRef>>,
}

/// Writing.
impl Store {
    /// An empty store whose history holds `limit` events of each resource and begins at `version`.
    pub(crate) fn new(limit: usize, version: u64) -> Self {
        let collection = || Collection {
            objects: Objects::new(),
            history: VecDeque::new(),
            bytes: 0,
            compacted: version,
            dropped: version,
            changed: broadcast::Sender::new(1),
        };
        let collections =
            KINDS.iter().map(|kind| (kind.storage_resource(), collection())).collect();
        Self { version, limit, collections, by_uid: BTreeMap::new(), dependents: BTreeMap::new() }
    }

    /// Adds or replaces an object; it gets the next version.
    pub(crate) fn put(
        &mut self,
        resource: GroupResource,
        key: &str,
        value: Value,
        at: Instant,
    ) -> Arc<Object> {
        let version = self.version + 1;
        let object = Arc::new(Object::new(with_version(value, version)));
        let Some(collection) = self.collections.get_mut(&resource) else { return object };
        let key = collection
            .objects
            .get_key_value(key)
            .map_or_else(|| key.into(), |(k, _)| Arc::clone(k));
        let before = collection.objects.insert(Arc::clone(&key), Arc::clone(&object));
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        if let Some(before) = &before {
            self.unlink(resource, &key, before);
        }
        self.link(resource, &key, &object);
        self.record(
            resource,
            WatchEvent::new(version, at, key, change, Arc::clone(&object), before),
        );
        object
    }

    /// Removes an object; what comes back has the resourceVersion of the deletion.
    pub(crate) fn remove(
        &mut self,
        resource: GroupResource,
        key: &str,
        at: Instant,
    ) -> Option<Arc<Object>> {
        let version = self.version + 1;
        let (key, before) = self.collections.get_mut(&resource)?.objects.remove_entry(key)?;
        self.unlink(resource, &key, &before);
        let object = Arc::new(Object::new(with_version(before.value.clone(), version)));
        let last = Arc::clone(&object);
        self.record(
            resource,
            WatchEvent::new(version, at, key, Change::Deleted, last, Some(before)),
        );
        Some(object)
    }

    /// Drops all history, as `etcdctl compact` does.
    pub(crate) fn compact(&mut self) {
        for collection in self.collections.values_mut() {
            collection.dropped =
                collection.history.back().map_or(collection.dropped, |event| event.version);
            collection.history.clear();
            collection.bytes = 0;
            collection.compacted = self.version;
        }
    }

    fn record(&mut self, resource: GroupResource, event: WatchEvent) {
        self.version = event.version;
        let Some(collection) = self.collections.get_mut(&resource) else { return };
        collection.bytes += event.size;
        collection.history.push_back(Arc::new(event));
        while collection.history.len() > self.limit || collection.bytes > MAX_HISTORY_BYTES {
            let Some(old) = collection.history.pop_front() else { break };
            collection.bytes -= old.size;
            (collection.compacted, collection.dropped) = (old.version, old.version);
        }
        // Without a watch that waits there is none to wake.
        let _ = collection.changed.send(());
    }

    fn link(&mut self, resource: GroupResource, key: &Arc<str>, object: &Object) {
        self.by_uid.insert(object.meta("uid").into(), ObjectRef::new(resource, Arc::clone(key)));
        for owner in object.owners().filter_map(|owner| owner["uid"].as_str()) {
            self.dependents
                .entry(owner.into())
                .or_default()
                .insert(ObjectRef::new(resource, Arc::clone(key)));
        }
    }

    fn unlink(&mut self, resource: GroupResource, key: &Arc<str>, object: &Object) {
        self.by_uid.remove(object.meta("uid"));
        for owner in object.owners().filter_map(|owner| owner["uid"].as_str()) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&ObjectRef::new(resource, Arc::clone(key)));
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

/// Reading.
impl Store {
    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// An object as it is now.
    pub(crate) fn get(&self, resource: GroupResource, key: &str) -> Option<&Arc<Object>> {
        self.collections.get(&resource)?.objects.get(key)
    }

    /// All objects of a resource as they are now.
    pub(crate) fn objects(&self, resource: GroupResource) -> impl Iterator<Item = &Arc<Object>> {
        self.collections.get(&resource).into_iter().flat_map(|known| known.objects.values())
    }

    /// The object with this uid.
    pub(crate) fn find_by_uid(&self, uid: &str) -> Option<&ObjectRef> {
        self.by_uid.get(uid)
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectRef> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// All objects in a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<ObjectRef> {
        let prefix = format!("{namespace}/");
        let of = |(resource, collection): (&GroupResource, &Collection)| -> Vec<ObjectRef> {
            range(&collection.objects, &prefix, None)
                .map(|(key, _)| ObjectRef::new(*resource, Arc::clone(key)))
                .collect()
        };
        self.collections.iter().flat_map(of).collect()
    }

    /// The objects of a resource as they were at a version.
    pub(crate) fn snapshot(
        &self,
        resource: GroupResource,
        version: u64,
    ) -> Result<Cow<'_, Objects>, Compacted> {
        let Some(collection) = self.collections.get(&resource) else {
            return Ok(Cow::Owned(Objects::new()));
        };
        if version < collection.compacted {
            return Err(Compacted(collection.compacted));
        }
        let mut objects = Cow::Borrowed(&collection.objects);
        for event in collection.history.iter().rev().take_while(|event| event.version > version) {
            let objects = objects.to_mut();
            match &event.before {
                Some(before) => objects.insert(Arc::clone(&event.key), Arc::clone(before)),
                None => objects.remove(&event.key),
            };
        }
        Ok(objects)
    }

    /// The events after a version that a client names.
    pub(crate) fn events_since(
        &self,
        resource: GroupResource,
        version: u64,
    ) -> Result<Vec<Arc<WatchEvent>>, Compacted> {
        match self.collections.get(&resource) {
            Some(collection) if version < collection.compacted => {
                Err(Compacted(collection.compacted))
            }
            _ => self.events_after(resource, version),
        }
    }

    /// The events after a version, for a watch that has sent all events up to it. It may go on
    /// after a compaction as long as no event was dropped that it has not sent.
    pub(crate) fn events_after(
        &self,
        resource: GroupResource,
        version: u64,
    ) -> Result<Vec<Arc<WatchEvent>>, Compacted> {
        let Some(collection) = self.collections.get(&resource) else { return Ok(Vec::new()) };
        if version < collection.dropped {
            return Err(Compacted(collection.compacted));
        }
        let first = collection.history.partition_point(|event| event.version <= version);
        Ok(collection.history.range(first..).cloned().collect())
    }

    /// The version that was current at a time, as far back as the history of every resource
    /// reaches.
    pub(crate) fn version_at(&self, time: Instant) -> u64 {
        let newer = |collection: &Collection| {
            let first = collection.history.partition_point(|event| event.at <= time);
            collection.history.get(first).map(|event| event.version - 1)
        };
        let known =
            self.collections.values().map(|collection| collection.compacted).max().unwrap_or(0);
        self.collections.values().filter_map(newer).min().unwrap_or(self.version).max(known)
    }

    /// A signal that changes with every write to this resource.
    pub(crate) fn subscribe(&self, resource: GroupResource) -> Option<broadcast::Receiver<()>> {
        Some(self.collections.get(&resource)?.changed.subscribe())
    }
}

/// The objects whose keys begin with a prefix, from a key on.
pub(crate) fn range<'a>(
    objects: &'a Objects,
    prefix: &str,
    from: Option<&str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + use<'a> {
    let prefix: Arc<str> = prefix.into();
    let start = from.filter(|from| *from > &*prefix).unwrap_or(&prefix).to_owned();
    objects
        .range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(&*prefix))
}

#[cfg(test)]
mod tests;
