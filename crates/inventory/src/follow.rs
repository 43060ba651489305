//! The control plane's four watches (Services, Pods, EndpointSlices, Nodes), which keep one [`Index`]
//! up to date, and one of ServiceCIDRs, which only the claims on addresses need.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, ContentType, Resource, SERVICE_CIDRS, WatchListener};
use zonewise_common::cidr::Cidr;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_routing::{
    ClusterClaims, Frontend, NodeLocation, ObjectReader, Protected, Refusal, ServiceClaims,
};
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

use crate::index::{DeletedSlice, Index, NodeChange, SliceChange};
use crate::service_cidrs::ServiceCidrUpdater;

/// Receives the changes of the index.
pub trait IndexListener: Send + Sync + 'static {
    /// Something has changed, and the slices of these Services may have to change too.
    fn changed(&self, cause: Cause, services: Vec<Key>);
    /// Another writer has deleted a slice of this Service. `written_here` says whether this process had
    /// written that slice.
    fn slice_deleted(&self, service: Key, written_here: bool) {
        let _ = written_here;
        self.changed(Cause::Slices, vec![service]);
    }
    /// A Service was deleted.
    fn service_gone(&self, service: &Key);
    /// A node has changed.
    fn node_changed(&self, node: &Name, change: NodeChange);
    /// All objects of a resource are in the index.
    fn listed(&self, resource: &'static str);
    /// The list or watch of a resource works, or has failed.
    fn health(&self, resource: &'static str, health: Result<(), &ApiError>);
    /// The API server has older data than before: its store was restored from a backup. The index compares versions,
    /// so it cannot be used any more.
    fn rewound(&self);
    /// An object could not be decoded. What was known of it before stays in the index.
    fn unreadable(&self, resource: &'static str, key: &Key, error: &str);
}

/// Why a Service has to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The Service itself has changed.
    Service,
    /// Pods that it selects have changed.
    Pods,
    /// Its slices were changed by another writer.
    Slices,
    /// Nodes have changed.
    Nodes,
    /// The shares of zones have changed by which it is routed, because its demand is measured.
    Demand,
    /// What its failing zones count for has changed.
    FailingZones,
    /// What its zones count for by the CPU that their endpoints use has changed.
    CpuUse,
    /// Its conditions have changed, or have something else to say; its slices follow from none of that.
    Conditions,
    /// Nothing has changed for a while: what is in force may be improved.
    Quiet,
}

/// An index that watches keep up to date, and the listener that receives the changes.
pub struct WatchedIndex<L> {
    index: Mutex<Index>,
    claims: Mutex<ClusterClaims>,
    /// Receives the changes.
    pub listener: L,
}

impl<L: IndexListener> WatchedIndex<L> {
    /// An empty index.
    pub fn new(listener: L) -> Arc<Self> {
        let protected =
            Protected { node_ports: vec![Protected::KUBELET_PORT], ..Protected::default() };
        let claims = Mutex::new(ClusterClaims::new(protected));
        Arc::new(Self { index: Mutex::default(), claims, listener })
    }

    /// The addresses and ports that a Service asks for and that proxies do not give it, and why. What only
    /// proxies know is not among it: their own ports. Ranges of ClusterIPs that no Service uses yet are known while
    /// [`Self::follow_service_cidrs`] runs.
    pub fn refused_frontends(&self, service: &Key) -> Vec<(Frontend, Refusal)> {
        let api_servers = self.index().api_servers();
        let mut claims = self.claims.lock();
        claims.set_api_servers(api_servers);
        claims.refused(service)
    }

    /// Locks the index. The guard must only be held for lookups and never across an await.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// Follows the ranges that ClusterIPs come from; never ends.
    pub async fn follow_service_cidrs(self: Arc<Self>, client: Client, content_type: ContentType) {
        let resource = SERVICE_CIDRS.encoded_as(content_type);
        watch::follow(client, resource, ServiceCidrUpdater::new(self)).await;
    }

    pub(crate) fn set_service_cidrs(&self, ranges: Vec<Cidr>) -> BTreeSet<Key> {
        self.claims.lock().set_service_cidrs(ranges)
    }

    /// Starts the watches of the index, which ask for objects in this form. They end when the returned tasks are dropped.
    pub fn start(
        self: &Arc<Self>,
        client: &Client,
        content_type: ContentType,
    ) -> tokio::task::JoinSet<()> {
        let mut tasks = tokio::task::JoinSet::new();
        let share = |resource: Resource| {
            let updater = IndexUpdater { resource: resource.name, watched: Arc::clone(self) };
            (client.clone(), resource.encoded_as(content_type), updater)
        };
        let (client, resource, updater) = share(watch::NODES);
        tasks.spawn(watch::follow(client, resource, NodeUpdater(updater)));
        let (client, resource, updater) = share(watch::SERVICES);
        tasks.spawn(watch::follow(client, resource, ServiceUpdater(updater)));
        let (client, resource, updater) = share(watch::PODS);
        tasks.spawn(watch::follow(client, resource, PodUpdater(updater)));
        let (client, resource, updater) = share(watch::SLICES);
        tasks.spawn(watch::follow(client, resource, SliceUpdater(updater)));
        tasks
    }
}

/// What the watch listeners of the four resources have in common.
struct IndexUpdater<L> {
    /// The name of the resource.
    resource: &'static str,
    watched: Arc<WatchedIndex<L>>,
}

impl<L: IndexListener> IndexUpdater<L> {
    fn changed(&self, cause: Cause, namespace: &Name, services: Vec<Name>) {
        if !services.is_empty() {
            let keys = services.into_iter().map(|name| (Name::clone(namespace), name)).collect();
            self.watched.listener.changed(cause, keys);
        }
    }
}

/// The methods of [`WatchListener`] that are the same for the four resources.
macro_rules! common_methods {
    () => {
        fn read(&self, object: Encoded<'_>) -> Result<Self::Object, DecodeError> {
            object.decode()
        }

        common_methods!(except read);
    };
    (except read) => {
        fn unreadable(&mut self, key: &Key, error: &str) {
            self.0.watched.listener.unreadable(self.0.resource, key, error);
        }

        fn rewound(&mut self) {
            self.0.watched.listener.rewound();
        }

        fn health(&mut self, health: Result<(), &ApiError>) {
            self.0.watched.listener.health(self.0.resource, health);
        }
    };
}

struct ServiceUpdater<L>(IndexUpdater<L>);

/// What has changed about a Service.
enum ServiceChange {
    /// Its conditions, as this controller writes them, and nothing else.
    Conditions,
    /// Anything.
    Any,
}

/// A Service, and the addresses and ports that it asks for.
struct ClaimingService {
    service: Service,
    claims: ServiceClaims,
}

impl Keyed for ClaimingService {
    fn key(&self) -> Key {
        Keyed::key(&self.service)
    }
}

impl<L: IndexListener> ServiceUpdater<L> {
    fn report(&self, services: BTreeSet<Key>) {
        if !services.is_empty() {
            self.0.watched.listener.changed(Cause::Service, services.into_iter().collect());
        }
    }

    /// Takes a Service. Returns what has changed about it.
    fn put(&self, key: &Key, service: Service) -> Option<ServiceChange> {
        let mut index = self.0.watched.index();
        let before = index.service(key);
        if !index.apply_service(service) {
            return None;
        }
        let is_same_without_conditions =
            before.zip(index.service(key)).is_some_and(|(old, new)| {
                let conditions = new.conditions.clone();
                Service { conditions, ..Arc::unwrap_or_clone(old) } == *new
            });
        Some(if is_same_without_conditions {
            ServiceChange::Conditions
        } else {
            ServiceChange::Any
        })
    }
}

impl<L: IndexListener> WatchListener for ServiceUpdater<L> {
    type Object = ClaimingService;
    common_methods!(except read);

    /// A Service that proxies cannot read claims nothing.
    fn read(&self, object: Encoded<'_>) -> Result<ClaimingService, DecodeError> {
        let routed = ObjectReader::new(NodeLocation::default()).decode_service(object);
        let claims = routed.as_ref().map(ServiceClaims::from).unwrap_or_default();
        Ok(ClaimingService { service: object.decode()?, claims })
    }

    fn apply(&mut self, ClaimingService { service, claims }: ClaimingService) {
        let key = Keyed::key(&service);
        let changed = self.put(&key, service);
        let mut concerned = self.0.watched.claims.lock().set(&key, claims);
        match changed {
            None => {}
            Some(ServiceChange::Conditions) => {
                self.0.watched.listener.changed(Cause::Conditions, vec![key]);
            }
            Some(ServiceChange::Any) => drop(concerned.insert(key)),
        }
        self.report(concerned);
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.0.watched.index().delete_service(key);
        self.0.watched.listener.service_gone(key);
        let mut concerned = self.0.watched.claims.lock().set(key, ServiceClaims::default());
        concerned.remove(key);
        self.report(concerned);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.watched.index().services_missing_from(keys);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.watched.listener.listed(self.0.resource);
    }
}

struct PodUpdater<L>(IndexUpdater<L>);

impl<L: IndexListener> WatchListener for PodUpdater<L> {
    type Object = Pod;
    common_methods!();

    fn apply(&mut self, pod: Pod) {
        let namespace = Name::clone(&pod.namespace);
        let services = self.0.watched.index().apply_pod(pod);
        self.0.changed(Cause::Pods, &namespace, services);
    }

    fn delete(&mut self, _: u64, key: &Key) {
        let services = self.0.watched.index().delete_pod(key);
        self.0.changed(Cause::Pods, &key.0, services);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.watched.index().pods_missing_from(keys);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.watched.listener.listed(self.0.resource);
    }
}

struct SliceUpdater<L>(IndexUpdater<L>);

impl<L: IndexListener> WatchListener for SliceUpdater<L> {
    type Object = Slice;
    common_methods!();

    fn knows(&self, key: &Key, version: u64) -> bool {
        self.0.watched.index().knows_slice(key, version)
    }

    fn apply(&mut self, slice: Slice) {
        let namespace = Name::clone(&slice.namespace);
        let change = self.0.watched.index().apply_slice(slice);
        if let SliceChange::Changed(services) = change {
            self.0.changed(Cause::Slices, &namespace, services);
        }
    }

    fn delete(&mut self, version: u64, key: &Key) {
        let deleted = self.0.watched.index().delete_slice(version, key);
        if let Some(DeletedSlice { service, written_here }) = deleted {
            self.0.watched.listener.slice_deleted((Name::clone(&key.0), service), written_here);
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone = self.0.watched.index().slices_missing_from(keys, version);
        gone.iter().for_each(|key| self.delete(version, key));
        self.0.watched.listener.listed(self.0.resource);
    }
}

struct NodeUpdater<L>(IndexUpdater<L>);

impl<L: IndexListener> WatchListener for NodeUpdater<L> {
    type Object = Node;
    common_methods!();

    fn apply(&mut self, node: Node) {
        let name = Name::clone(&node.name);
        let change = self.0.watched.index().apply_node(node);
        if change != NodeChange::default() {
            self.0.watched.listener.node_changed(&name, change);
        }
    }

    fn delete(&mut self, _: u64, (_, name): &Key) {
        if self.0.watched.index().delete_node(name) {
            let change = NodeChange { capacity: true, location: true, reference: true };
            self.0.watched.listener.node_changed(name, change);
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let known: Vec<Name> = self.0.watched.index().nodes().keys().cloned().collect();
        let gone = known.into_iter().map(|name| (Name::default(), name));
        gone.filter(|key| !keys.contains(key)).for_each(|key| self.delete(version, &key));
        self.0.watched.listener.listed(self.0.resource);
    }
}
