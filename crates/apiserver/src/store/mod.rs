//! Objects by kind, and what happened to them lately.
//!
//! ```text
//!  put, remove ─► version + 1 ─► shelf of the kind: key ─► object
//!                                  └─► history: event, event, event     at most so many, and so many bytes; what is older is forgotten
//!                                                  │
//!            objects at a version  ◄── undo, from the newest back
//!            events after a version ◄── watches
//! ```
//!
//! Keys are `namespace/name`, or `name` alone for what belongs to the cluster: their order is that of lists. One
//! version counts for all kinds, from a number that no former store has reached: who comes with a version of that one is
//! told that it is forgotten. An object is encoded when it is first read, and then never again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;

use crate::objects::kind::{KINDS, Kind};

mod object;

use object::versioned;
pub(crate) use object::{Change, Event, Object, bare};

/// Bytes of history of each kind, about: large objects are remembered for a shorter time.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Where objects of a kind are: group and plural of the kind they are stored as.
pub(crate) type Room = (&'static str, &'static str);
/// Where one object is.
pub(crate) type Place = (Room, Arc<str>);
/// The objects of a kind by key.
pub(crate) type Objects = BTreeMap<Arc<str>, Arc<Object>>;

/// Where objects of this kind are stored.
pub(crate) fn room(kind: &Kind) -> Room {
    kind.stored_as.unwrap_or((kind.group, kind.plural))
}

/// The key of an object.
pub(crate) fn key(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// A version that is no longer remembered, and the oldest that is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forgotten(pub(crate) u64);

#[derive(Debug)]
struct Shelf {
    objects: Objects,
    history: VecDeque<Arc<Event>>,
    /// Of all objects in the history.
    bytes: usize,
    /// Nothing is known of this version and those before it.
    forgotten: u64,
    /// The version of the last event that is gone: who has read it has missed nothing.
    dropped: u64,
    news: watch::Sender<u64>,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    limit: usize,
    shelves: BTreeMap<Room, Shelf>,
    uids: BTreeMap<String, Place>,
    dependents: BTreeMap<String, BTreeSet<Place>>,
}

/// Writing.
impl Store {
    /// An empty store that remembers so many events of each kind; nothing is known of what was before `version`.
    pub(crate) fn new(limit: usize, version: u64) -> Self {
        let shelf = || Shelf {
            objects: Objects::new(),
            history: VecDeque::new(),
            bytes: 0,
            forgotten: version,
            dropped: version,
            news: watch::Sender::new(0),
        };
        let shelves = KINDS.iter().map(|kind| (room(kind), shelf())).collect();
        Self { version, limit, shelves, uids: BTreeMap::new(), dependents: BTreeMap::new() }
    }

    /// Adds or replaces an object; it gets the next version.
    pub(crate) fn put(&mut self, room: Room, key: &str, value: Value, at: Instant) -> Arc<Object> {
        let version = self.version + 1;
        let object = Arc::new(Object::new(versioned(value, version)));
        let Some(shelf) = self.shelves.get_mut(&room) else { return object };
        let key =
            shelf.objects.get_key_value(key).map_or_else(|| key.into(), |(k, _)| Arc::clone(k));
        let before = shelf.objects.insert(Arc::clone(&key), Arc::clone(&object));
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        if let Some(before) = &before {
            self.unlink(room, &key, before);
        }
        self.link(room, &key, &object);
        self.tell(room, Event::new((version, at), key, change, Arc::clone(&object), before));
        object
    }

    /// Takes an object away; what comes back has the version at which it went.
    pub(crate) fn remove(&mut self, room: Room, key: &str, at: Instant) -> Option<Arc<Object>> {
        let version = self.version + 1;
        let (key, before) = self.shelves.get_mut(&room)?.objects.remove_entry(key)?;
        self.unlink(room, &key, &before);
        let object = Arc::new(Object::new(versioned(before.value.clone(), version)));
        let last = Arc::clone(&object);
        self.tell(room, Event::new((version, at), key, Change::Deleted, last, Some(before)));
        Some(object)
    }

    /// Forgets everything that happened so far.
    pub(crate) fn compact(&mut self) {
        for shelf in self.shelves.values_mut() {
            shelf.dropped = shelf.history.back().map_or(shelf.dropped, |event| event.version);
            shelf.history.clear();
            shelf.bytes = 0;
            shelf.forgotten = self.version;
        }
    }

    fn tell(&mut self, room: Room, event: Event) {
        self.version = event.version;
        let Some(shelf) = self.shelves.get_mut(&room) else { return };
        shelf.bytes += event.size;
        shelf.history.push_back(Arc::new(event));
        while shelf.history.len() > self.limit || shelf.bytes > MOST_BYTES {
            let Some(old) = shelf.history.pop_front() else { break };
            shelf.bytes -= old.size;
            (shelf.forgotten, shelf.dropped) = (old.version, old.version);
        }
        shelf.news.send_replace(self.version);
    }

    fn link(&mut self, room: Room, key: &Arc<str>, object: &Object) {
        self.uids.insert(object.meta("uid").into(), (room, Arc::clone(key)));
        for owner in object.owners().filter_map(|owner| owner["uid"].as_str()) {
            self.dependents.entry(owner.into()).or_default().insert((room, Arc::clone(key)));
        }
    }

    fn unlink(&mut self, room: Room, key: &Arc<str>, object: &Object) {
        self.uids.remove(object.meta("uid"));
        for owner in object.owners().filter_map(|owner| owner["uid"].as_str()) {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(&(room, Arc::clone(key)));
                if places.is_empty() {
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
    pub(crate) fn get(&self, room: Room, key: &str) -> Option<&Arc<Object>> {
        self.shelves.get(&room)?.objects.get(key)
    }

    /// Where the object with this uid is.
    pub(crate) fn place(&self, uid: &str) -> Option<&Place> {
        self.uids.get(uid)
    }

    /// Where objects are that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Everything in a namespace.
    pub(crate) fn contents(&self, namespace: &str) -> Vec<Place> {
        let prefix = format!("{namespace}/");
        let of = |(room, shelf): (&Room, &Shelf)| -> Vec<Place> {
            range(&shelf.objects, &prefix, None).map(|(key, _)| (*room, Arc::clone(key))).collect()
        };
        self.shelves.iter().flat_map(of).collect()
    }

    /// The objects of a kind as they were at a version.
    pub(crate) fn at(&self, room: Room, version: u64) -> Result<Cow<'_, Objects>, Forgotten> {
        let Some(shelf) = self.shelves.get(&room) else { return Ok(Cow::Owned(Objects::new())) };
        if version < shelf.forgotten {
            return Err(Forgotten(shelf.forgotten));
        }
        let mut objects = Cow::Borrowed(&shelf.objects);
        for event in shelf.history.iter().rev().take_while(|event| event.version > version) {
            let objects = objects.to_mut();
            match &event.before {
                Some(before) => objects.insert(Arc::clone(&event.key), Arc::clone(before)),
                None => objects.remove(&event.key),
            };
        }
        Ok(objects)
    }

    /// What happened after a version.
    pub(crate) fn since(&self, room: Room, version: u64) -> Result<Vec<Arc<Event>>, Forgotten> {
        match self.shelves.get(&room) {
            Some(shelf) if version < shelf.forgotten => Err(Forgotten(shelf.forgotten)),
            _ => self.follow(room, version),
        }
    }

    /// What happened after a version, for one who has read everything before it.
    pub(crate) fn follow(&self, room: Room, version: u64) -> Result<Vec<Arc<Event>>, Forgotten> {
        let Some(shelf) = self.shelves.get(&room) else { return Ok(Vec::new()) };
        if version < shelf.dropped {
            return Err(Forgotten(shelf.forgotten));
        }
        let first = shelf.history.partition_point(|event| event.version <= version);
        Ok(shelf.history.range(first..).cloned().collect())
    }

    /// The last version of a time, as far back as anybody remembers.
    pub(crate) fn version_at(&self, time: Instant) -> u64 {
        let newer = |shelf: &Shelf| {
            let first = shelf.history.partition_point(|event| event.at <= time);
            shelf.history.get(first).map(|event| event.version - 1)
        };
        let known = self.shelves.values().map(|shelf| shelf.forgotten).max().unwrap_or(0);
        self.shelves.values().filter_map(newer).min().unwrap_or(self.version).max(known)
    }

    /// Says when something happened to objects of a kind.
    pub(crate) fn news(&self, room: Room) -> Option<watch::Receiver<u64>> {
        Some(self.shelves.get(&room)?.news.subscribe())
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
