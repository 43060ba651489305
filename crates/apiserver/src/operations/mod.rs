//! What a request does to the objects, and what it answers.
//!
//! ```text
//!  read                get, list (paging: limits, continue tokens, versions)  ─► Outcome
//!  write               create, update, patch, apply, bind  ─► strategy, apply, allocation ─► store
//!  delete              delete, deletecollection  ─► removed, or marked with a deletionTimestamp
//!  garbage_collection  afterwards: dependents without owners, finalizers, terminating namespaces
//!  metadata            names, preconditions, and the metadata that the server owns
//!  scale               `/scale`: the number of replicas of a Deployment or a ReplicaSet
//!  workloads           afterwards: ReplicaSets and Pods of Deployments
//!  seed                the objects that every cluster has from its start
//! ```
//!
//! Every operation changes an [`ApiState`] under one lock, and none of them waits.

mod delete;
pub(crate) mod garbage_collection;
pub(crate) mod metadata;
pub(crate) mod paging;
mod read;
mod scale;
pub(crate) mod seed;
pub(crate) mod workloads;
mod write;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::http::request::{Options, ResourcePath, Subresource, Verb};
use crate::objects::allocation::Allocator;
use crate::objects::kind::{GroupResource, KINDS, Kind};
use crate::operations::paging::ListPage;
use crate::status::StatusError;
use crate::store::{Object, ObjectRef, Store};

const NAMESPACES: GroupResource = ("", "namespaces");
const SERVICES: GroupResource = ("", "services");
const EVENTS: GroupResource = ("", "events");
/// How long events are kept after their last write: the default of kube-apiserver's `--event-ttl`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controlplane/apiserver/options/options.go>).
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// All objects, and what the server has to remember about them.
#[derive(Debug)]
pub(crate) struct ApiState {
    pub(crate) store: Store,
    pub(crate) allocator: Allocator,
    /// Objects that [`garbage_collection`] has to look at.
    pub(crate) to_collect: BTreeSet<ObjectRef>,
    /// A Deployment, a ReplicaSet or a Pod has changed since [`workloads`] looked.
    pub(crate) workloads_due: bool,
    /// Every write of an event, oldest first, so that events can expire.
    event_writes: VecDeque<EventWrite>,
}

/// One write of an `Event` object.
#[derive(Debug)]
struct EventWrite {
    at: Instant,
    key: Arc<str>,
    /// The resourceVersion that it got: if the event has another one, it was written again later.
    version: u64,
}

/// A request for objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiRequest<'a> {
    pub(crate) resource: &'a ResourcePath,
    pub(crate) options: &'a Options,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    /// The program name from `User-Agent`: the field manager, unless the options name one.
    pub(crate) agent: &'a str,
    pub(crate) now: Timestamp,
    /// The version that reads with `resourceVersion=0` see, if the fault `stale` is on.
    pub(crate) stale_version: Option<u64>,
}

impl<'a> ApiRequest<'a> {
    fn kind(&self) -> &'static Kind {
        self.resource.kind
    }

    fn manager(&self) -> &'a str {
        if self.options.field_manager.is_empty() { self.agent } else { &self.options.field_manager }
    }

    fn time(&self) -> String {
        metadata::time(self.now)
    }
}

/// What a request answers with.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One object, with an HTTP status code.
    Object(u16, Arc<Object>),
    /// A list, or a page of one.
    List(ListPage),
    /// A `metav1.Status`, with an HTTP status code.
    Status(u16, Value),
}

/// Performs a request.
pub(crate) fn perform(
    state: &mut ApiState,
    verb: Verb,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    request.options.check_write(verb)?;
    if request.resource.subresource == Some(Subresource::Scale) {
        return scale::perform(state, verb, request);
    }
    match verb {
        Verb::Get => read::get(state, request),
        Verb::List => read::list(state, request).map(Outcome::List),
        Verb::Create if request.resource.subresource == Some(Subresource::Binding) => {
            write::bind(state, request)
        }
        Verb::Create => write::create(state, request),
        Verb::Update => write::update(state, request),
        Verb::Patch => write::patch(state, request),
        Verb::Delete => delete::delete(state, request),
        Verb::DeleteCollection => delete::delete_collection(state, request),
        // Watches are streams: `watch` serves them.
        Verb::Watch => Err(StatusError::method_not_allowed()),
    }
}

impl ApiState {
    pub(crate) fn new(store: Store, allocator: Allocator) -> Self {
        Self {
            store,
            allocator,
            to_collect: BTreeSet::new(),
            workloads_due: false,
            event_writes: VecDeque::new(),
        }
    }

    /// Stores an object, and queues it for garbage collection if it may be due.
    fn put(&mut self, resource: GroupResource, key: &str, value: Value) -> Arc<Object> {
        let now = Instant::now();
        let object = self.store.put(resource, key, value, now);
        self.workloads_due |= workloads::concerns(resource);
        if resource == EVENTS {
            let version = self.store.version();
            self.event_writes.push_back(EventWrite { at: now, key: key.into(), version });
            self.expire_events(now);
        }
        if metadata::is_terminating(&object.value) || object.owners().next().is_some() {
            self.to_collect.insert(ObjectRef::new(resource, key));
        }
        object
    }

    /// Removes events whose last write is older than [`EVENT_TTL`].
    fn expire_events(&mut self, now: Instant) {
        let expired = |write: &mut EventWrite| now.saturating_duration_since(write.at) >= EVENT_TTL;
        while let Some(EventWrite { key, version, .. }) = self.event_writes.pop_front_if(expired) {
            let found = self.store.get(EVENTS, &key);
            if found.is_some_and(|event| event.meta("resourceVersion") == version.to_string()) {
                self.remove(EVENTS, &key);
            }
        }
    }

    /// Removes an object, and queues what may be due because of that: its dependents, owners that
    /// wait for it, and its namespace.
    fn remove(&mut self, resource: GroupResource, key: &str) -> Option<Arc<Object>> {
        let object = self.store.remove(resource, key, Instant::now())?;
        self.workloads_due |= workloads::concerns(resource);
        if resource == SERVICES {
            self.allocator.release(&object.value);
        }
        self.to_collect.extend(self.store.dependents(object.meta("uid")));
        let owners =
            object.owners().filter_map(|owner| self.store.find_by_uid(owner["uid"].as_str()?));
        self.to_collect.extend(owners.cloned());
        let namespace = object.meta("namespace");
        if !namespace.is_empty() {
            self.to_collect.insert(ObjectRef::new(NAMESPACES, namespace));
        }
        Some(object)
    }
}

/// The kind whose objects are stored in a resource.
fn kind_of(resource: GroupResource) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.stored_as.is_none() && kind.storage_resource() == resource)
}

#[cfg(test)]
mod tests;
