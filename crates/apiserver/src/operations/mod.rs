//! The operations: what a request does to the world, and what it answers.
//!
//! ```text
//!  read     get, list                       ─► Outcome
//!  write    create, update, patch, apply    ─► meta, strategy, allocation, apply ─► store
//!  delete   delete, deletecollection        ─► gone, or marked and waiting
//!  collect  afterwards: dependents without owners, finalizers of ours, namespaces that go
//!  seed     what every cluster has from its start
//! ```
//!
//! Everything happens to a [`World`] behind one lock, and nothing here waits.

mod delete;
pub(crate) mod garbage_collection;
pub(crate) mod metadata;
pub(crate) mod paging;
mod read;
pub(crate) mod seed;
mod write;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::http::request::{Options, Resource, Subresource, Verb};
use crate::objects::allocation::Allocator;
use crate::objects::kind::{KINDS, Kind};
use crate::operations::paging::Part;
use crate::status::StatusError;
use crate::store::{Object, Place, Room, Store, room};

const NAMESPACES: Room = ("", "namespaces");
const SERVICES: Room = ("", "services");
const EVENTS: Room = ("", "events");
/// Events go this long after they were written last, as they do in Kubernetes.
const EVENTS_STAY: Duration = Duration::from_secs(60 * 60);

/// All state.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) allocator: Allocator,
    /// What [`garbage_collection`] has to look at.
    pub(crate) chores: BTreeSet<Place>,
    /// Events as they were written: when, which, and the version that they got.
    written: VecDeque<(Instant, Arc<str>, u64)>,
}

/// A request about objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) options: &'a Options,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    /// Who writes, if the options do not say.
    pub(crate) agent: &'a str,
    pub(crate) now: Timestamp,
    /// The version for those to whom any is good enough; `None` is the present.
    pub(crate) past: Option<u64>,
}

impl<'a> Ask<'a> {
    fn kind(&self) -> &'static Kind {
        self.resource.kind
    }

    fn manager(&self) -> &'a str {
        if self.options.manager.is_empty() { self.agent } else { &self.options.manager }
    }

    fn time(&self) -> String {
        metadata::time(self.now)
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One object, with a code.
    Object(u16, Arc<Object>),
    /// Some objects.
    List(Part),
    /// A document of its own, with a code.
    Status(u16, Value),
}

/// Does what is asked.
pub(crate) fn act(world: &mut World, verb: Verb, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    ask.options.check_write(verb)?;
    match verb {
        Verb::Get => read::get(world, ask),
        Verb::List => read::list(world, ask).map(Outcome::List),
        Verb::Create if ask.resource.subresource == Some(Subresource::Binding) => {
            write::bind(world, ask)
        }
        Verb::Create => write::create(world, ask),
        Verb::Update => write::update(world, ask),
        Verb::Patch => write::patch(world, ask),
        Verb::Delete => delete::delete(world, ask),
        Verb::DeleteCollection => delete::delete_collection(world, ask),
        // Watches are streams: `watch` serves them.
        Verb::Watch => Err(StatusError::method_not_allowed()),
    }
}

impl World {
    pub(crate) fn new(store: Store, allocator: Allocator) -> Self {
        Self { store, allocator, chores: BTreeSet::new(), written: VecDeque::new() }
    }

    /// Stores an object, and notes what has to be looked at because of it.
    fn put(&mut self, room: Room, key: &str, value: Value) -> Arc<Object> {
        let now = Instant::now();
        let object = self.store.put(room, key, value, now);
        if room == EVENTS {
            self.written.push_back((now, key.into(), self.store.version()));
            self.expire(now);
        }
        if metadata::is_going(&object.value) || object.owners().next().is_some() {
            self.chores.insert((room, key.into()));
        }
        object
    }

    /// Takes old events away, unless they were written again.
    fn expire(&mut self, now: Instant) {
        while let Some((_, key, version)) =
            self.written.pop_front_if(|(at, ..)| now.saturating_duration_since(*at) >= EVENTS_STAY)
        {
            let found = self.store.get(EVENTS, &key);
            if found.is_some_and(|event| event.meta("resourceVersion") == version.to_string()) {
                self.remove(EVENTS, &key);
            }
        }
    }

    /// Takes an object away, and notes who has waited for that.
    fn remove(&mut self, room: Room, key: &str) -> Option<Arc<Object>> {
        let object = self.store.remove(room, key, Instant::now())?;
        if room == SERVICES {
            self.allocator.release(&object.value);
        }
        self.chores.extend(self.store.dependents(object.meta("uid")));
        let owners = object.owners().filter_map(|owner| self.store.place(owner["uid"].as_str()?));
        self.chores.extend(owners.cloned());
        let namespace = object.meta("namespace");
        if !namespace.is_empty() {
            self.chores.insert((NAMESPACES, namespace.into()));
        }
        Some(object)
    }
}

/// The kind whose objects are stored there.
fn kind_of(place: Room) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.stored_as.is_none() && room(kind) == place)
}

#[cfg(test)]
mod tests;
