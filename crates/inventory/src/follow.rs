//! The four watches of the control plane, folded into one [`Index`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, Resource, Sink};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

use crate::index::{Index, NodeChange, SliceChange};

/// What the watches report.
pub trait Listener: Send + Sync + 'static {
    /// Something that concerns Services has changed.
    fn changed(&self, cause: Cause, services: Vec<Key>);
    /// A Service is gone.
    fn service_gone(&self, service: &Key);
    /// A node has changed.
    fn node_changed(&self, node: &Name, change: NodeChange);
    /// A kind has been listed.
    fn listed(&self, resource: &'static str);
    /// A watch works, or does not.
    fn health(&self, resource: &'static str, health: Result<(), &ApiError>);
    /// An object could not be read.
    fn unreadable(&self, resource: &'static str, key: &Key, error: &str);
}

/// Why a Service is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The Service itself.
    Service,
    /// Its Pods.
    Pods,
    /// Somebody else wrote its slices.
    Slices,
    /// The nodes.
    Nodes,
}

/// The index and who is told about changes.
pub struct Followed<L> {
    index: Mutex<Index>,
    /// Who is told.
    pub listener: L,
}

impl<L: Listener> Followed<L> {
    /// Nothing known yet.
    pub fn new(listener: L) -> Arc<Self> {
        Arc::new(Self { index: Mutex::default(), listener })
    }

    /// The index. Held for lookups only, never across an await.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        // A panic while holding it would have ended the process (panic = abort) or the test.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the watches; they end when the tasks are dropped.
    pub fn start(self: &Arc<Self>, client: &Client) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        let sink = |resource| Door { resource, followed: Arc::clone(self) };
        let (nodes, services) = (sink(watch::NODES), sink(watch::SERVICES));
        let (pods, slices) = (sink(watch::PODS), sink(watch::SLICES));
        tasks.spawn(watch::follow(client.clone(), watch::NODES, Nodes(nodes)));
        tasks.spawn(watch::follow(client.clone(), watch::SERVICES, Services(services)));
        tasks.spawn(watch::follow(client.clone(), watch::PODS, Pods(pods)));
        tasks.spawn(watch::follow(client.clone(), watch::SLICES, Slices(slices)));
        tasks
    }
}

/// What the four doors have in common.
struct Door<L> {
    resource: Resource,
    followed: Arc<Followed<L>>,
}

impl<L: Listener> Door<L> {
    fn changed(&self, cause: Cause, namespace: &Name, services: Vec<Name>) {
        if !services.is_empty() {
            let keys = services.into_iter().map(|name| (Name::clone(namespace), name)).collect();
            self.followed.listener.changed(cause, keys);
        }
    }
}

/// The parts of [`Sink`] that are the same behind every door.
macro_rules! door {
    () => {
        fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error> {
            serde_json::from_str(json)
        }

        fn unreadable(&mut self, key: &Key, error: &str) {
            self.0.followed.listener.unreadable(self.0.resource.name, key, error);
        }

        fn health(&mut self, health: Result<(), &ApiError>) {
            self.0.followed.listener.health(self.0.resource.name, health);
        }
    };
}

struct Services<L>(Door<L>);

impl<L: Listener> Sink for Services<L> {
    type Object = Service;
    door!();

    fn apply(&mut self, service: Service) {
        let (namespace, name) = Keyed::key(&service);
        if self.0.followed.index().apply_service(service) {
            self.0.changed(Cause::Service, &namespace, vec![name]);
        }
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.0.followed.index().delete_service(key);
        self.0.followed.listener.service_gone(key);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.followed.index().services_missing_from(keys);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.followed.listener.listed(self.0.resource.name);
    }
}

struct Pods<L>(Door<L>);

impl<L: Listener> Sink for Pods<L> {
    type Object = Pod;
    door!();

    fn apply(&mut self, pod: Pod) {
        let namespace = Name::clone(&pod.namespace);
        let services = self.0.followed.index().apply_pod(pod);
        self.0.changed(Cause::Pods, &namespace, services);
    }

    fn delete(&mut self, _: u64, key: &Key) {
        let services = self.0.followed.index().delete_pod(key);
        self.0.changed(Cause::Pods, &key.0, services);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.followed.index().pods_missing_from(keys);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.followed.listener.listed(self.0.resource.name);
    }
}

struct Slices<L>(Door<L>);

impl<L: Listener> Sink for Slices<L> {
    type Object = Slice;
    door!();

    fn knows(&self, key: &Key, version: u64) -> bool {
        self.0.followed.index().knows_slice(key, version)
    }

    fn apply(&mut self, slice: Slice) {
        let namespace = Name::clone(&slice.namespace);
        let change = self.0.followed.index().apply_slice(slice);
        if let SliceChange::Changed(services) = change {
            self.0.changed(Cause::Slices, &namespace, services);
        }
    }

    fn delete(&mut self, version: u64, key: &Key) {
        let service = self.0.followed.index().delete_slice(version, key);
        self.0.changed(Cause::Slices, &key.0, service.into_iter().collect());
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.followed.index().slices_missing_from(keys, version);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.followed.listener.listed(self.0.resource.name);
    }
}

struct Nodes<L>(Door<L>);

impl<L: Listener> Sink for Nodes<L> {
    type Object = Node;
    door!();

    fn apply(&mut self, node: Node) {
        let name = Name::clone(&node.name);
        let change = self.0.followed.index().apply_node(node);
        if change != NodeChange::default() {
            self.0.followed.listener.node_changed(&name, change);
        }
    }

    fn delete(&mut self, _: u64, (_, name): &Key) {
        if self.0.followed.index().delete_node(name) {
            let change = NodeChange { capacity: true, place: true, reference: true };
            self.0.followed.listener.node_changed(name, change);
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let known: Vec<Name> = self.0.followed.index().nodes().keys().cloned().collect();
        let gone = known.into_iter().map(|name| (Name::default(), name));
        gone.filter(|key| !keys.contains(key)).for_each(|key| self.delete(version, &key));
        self.0.followed.listener.listed(self.0.resource.name);
    }
}
