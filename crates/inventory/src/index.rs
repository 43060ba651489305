//! Services, Pods, EndpointSlices and Nodes in memory, as small structs with the lookups that a sync
//! needs.
//!
//! ```text
//!  Service ─selector─► label sets ─► Pods        a namespace has few label sets and many Pods
//!  Service ─name─────► its slices                as stored, with our own writes as soon as they succeed
//!  Node ──────────────► Pods on it ─► Services
//! ```
//!
//! Everything here is synchronous and needs no client. Each `apply_*` and `delete_*` returns the
//! Services that the change concerns, so that no other Service is synced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use zonewise_cluster::watch::version_number;
use zonewise_common::name::{Key, Name, Uid};
use zonewise_slices::labels::Labels;
use zonewise_slices::node::Node;
use zonewise_slices::pod::{NamedPort, Pod};
use zonewise_slices::service::Service;
use zonewise_slices::slice::{Hints, Slice};

/// Services, Pods, slices and nodes.
#[derive(Debug, Default)]
pub struct Index {
    namespaces: BTreeMap<Name, Namespace>,
    nodes: BTreeMap<Name, Node>,
    pods_by_node: BTreeMap<Name, BTreeSet<Key>>,
    shared: SharedValues,
}

#[derive(Debug, Default)]
struct Namespace {
    services: BTreeMap<Name, Arc<Service>>,
    pods: BTreeMap<Name, Arc<Pod>>,
    pods_by_labels: BTreeMap<Arc<Labels>, BTreeSet<Name>>,
    slices: BTreeMap<Name, Arc<Slice>>,
    slices_by_service: BTreeMap<Name, BTreeSet<Name>>,
    /// The names of the slices that this process has written, as they are now or an earlier version.
    written: BTreeSet<Name>,
    /// Slices that this process has deleted and whose deletion the watch has not reported yet. Late
    /// events about them are ignored.
    deleted: BTreeSet<Uid>,
}

/// Values that many objects have in common, each stored once.
#[derive(Debug, Default)]
struct SharedValues {
    names: BTreeSet<Name>,
    ports: BTreeSet<Arc<[NamedPort]>>,
    hints: BTreeSet<Arc<Hints>>,
    labels: BTreeSet<Arc<Labels>>,
}

/// What an event about a slice means.
#[derive(Debug, PartialEq, Eq)]
pub enum SliceChange {
    /// This version, or a newer one, was known already.
    Known,
    /// Another writer changed the slice. These Services have to be synced.
    Changed(Vec<Name>),
}

/// A slice that another writer has deleted.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletedSlice {
    /// The Service that it belonged to.
    pub service: Name,
    /// Whether this process had written it.
    pub written_here: bool,
}

/// What has changed about a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Something that its capacity depends on.
    pub capacity: bool,
    /// It was added or deleted, or its zone or region has changed: endpoints on it get another zone.
    pub location: bool,
    /// Something that the reference reacts to: it was added or deleted, or its readiness or zone has
    /// changed.
    pub reference: bool,
}

impl Index {
    // === Services ===

    /// Adds or replaces a Service. Returns whether anything that we use has changed.
    pub fn apply_service(&mut self, service: Service) -> bool {
        let namespace = self.namespaces.entry(Name::clone(&service.namespace)).or_default();
        let name = Name::clone(&service.name);
        let service = Arc::new(service);
        let old = namespace.services.insert(name, Arc::clone(&service));
        old.is_none_or(|old| old != service)
    }

    /// Removes a Service.
    pub fn delete_service(&mut self, (namespace, name): &Key) {
        self.within(namespace, |known| {
            known.services.remove(name);
        });
    }

    /// A Service.
    pub fn service(&self, (namespace, name): &Key) -> Option<Arc<Service>> {
        self.namespaces.get(namespace)?.services.get(name).map(Arc::clone)
    }

    /// Every Service.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.namespaces.values().flat_map(|namespace| namespace.services.values())
    }

    // === Pods ===

    /// Adds or replaces a Pod. Returns the Services of its namespace that have to be synced.
    pub fn apply_pod(&mut self, pod: Pod) -> Vec<Name> {
        let namespace = self.namespaces.entry(Name::clone(&pod.namespace)).or_default();
        let old = namespace.pods.get(&pod.name).map(Arc::clone);
        if old.as_deref() == Some(&pod) {
            return Vec::new();
        }
        let pod = Arc::new(self.shared.pod(pod));
        let key = (Name::clone(&pod.namespace), Name::clone(&pod.name));
        let namespace = self.namespaces.entry(Name::clone(&pod.namespace)).or_default();
        let affected = namespace.affected(old.as_deref(), Some(&pod));
        if let Some(old) = old {
            namespace.forget_labels(&old);
            forget_node(&mut self.pods_by_node, &old, &key);
        }
        namespace.remember(Arc::clone(&pod));
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(Name::clone(node)).or_default().insert(key);
        }
        affected
    }

    /// Removes a Pod. Returns the Services of its namespace that have to be synced.
    pub fn delete_pod(&mut self, key: &Key) -> Vec<Name> {
        let (namespace, name) = key;
        let mut affected = Vec::new();
        let mut gone = None;
        self.within(namespace, |known| {
            if let Some(old) = known.pods.remove(name) {
                affected = known.affected(Some(&old), None);
                known.forget_labels(&old);
                gone = Some(old);
            }
        });
        if let Some(old) = gone {
            forget_node(&mut self.pods_by_node, &old, key);
        }
        affected
    }

    /// The Pods that a Service selects, sorted by name.
    pub fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let (Some(selector), Some(namespace)) =
            (&service.selector, self.namespaces.get(&service.namespace))
        else {
            return Vec::new();
        };
        let sets = namespace.pods_by_labels.iter().filter(|(labels, _)| selector.selects(labels));
        let names = sets.flat_map(|(_, names)| names);
        let mut pods: Vec<Arc<Pod>> =
            names.filter_map(|name| namespace.pods.get(name).map(Arc::clone)).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        pods
    }

    // === slices ===

    /// Adds or replaces a slice that the watch reports.
    pub fn apply_slice(&mut self, slice: Slice) -> SliceChange {
        let namespace = self.namespaces.entry(Name::clone(&slice.namespace)).or_default();
        let old = namespace.slices.get(slice.name());
        let known = old.filter(|old| old.uid == slice.uid);
        let version = version_number(&slice.resource_version);
        if known.is_some_and(|known| version_number(&known.resource_version) >= version)
            || namespace.deleted.contains(&slice.uid)
        {
            return SliceChange::Known;
        }
        let owner = |slice: &Slice| slice.service().map(Name::from);
        let mut services: Vec<Name> = old.and_then(|old| owner(old)).into_iter().collect();
        services.extend(
            owner(&slice).filter(|new| !services.contains(new)).into_iter().collect::<Vec<_>>(),
        );
        self.store_slice(slice);
        SliceChange::Changed(services)
    }

    /// Whether this version of a slice, or a later one, is known. It usually is: most events about
    /// slices report our own writes.
    pub(crate) fn knows_slice(&self, (namespace, name): &Key, version: u64) -> bool {
        let known = self.namespaces.get(namespace).and_then(|known| known.slices.get(name));
        known.is_some_and(|slice| version_number(&slice.resource_version) >= version)
    }

    /// Adds or replaces a slice as the server returned it to our own write.
    pub fn record_written_slice(&mut self, slice: Slice) {
        let namespace = self.namespaces.entry(Name::clone(&slice.namespace)).or_default();
        let newer = namespace.slices.get(slice.name()).is_some_and(|known| {
            known.uid == slice.uid
                && version_number(&known.resource_version) > version_number(&slice.resource_version)
        });
        namespace.written.insert(Name::from(slice.name()));
        if !newer {
            self.store_slice(slice);
        }
    }

    fn store_slice(&mut self, slice: Slice) {
        let slice = Arc::new(self.shared.slice(slice));
        let namespace = self.namespaces.entry(Name::clone(&slice.namespace)).or_default();
        let name = Name::from(slice.name());
        if let Some(old) = namespace.slices.insert(Name::clone(&name), Arc::clone(&slice)) {
            namespace.forget_slice(&old, &name);
        }
        if let Some(service) = slice.service() {
            namespace.slices_by_service.entry(service.into()).or_default().insert(name);
        }
    }

    /// Removes a slice that this process has deleted.
    pub fn record_deleted_slice(&mut self, (namespace, name): &Key, uid: &Uid) {
        self.within(namespace, |known| {
            if known.slices.get(name).is_some_and(|slice| slice.uid == *uid) {
                known.remove_slice(name);
                known.deleted.insert(uid.clone());
            }
        });
    }

    /// Removes a slice that the watch reports as deleted. `None` if the deletion was known already, or if
    /// the slice belonged to no Service.
    pub fn delete_slice(&mut self, version: u64, (namespace, name): &Key) -> Option<DeletedSlice> {
        let mut deleted = None;
        self.within(namespace, |known| {
            // A slice of this name that is newer than the deletion was created afterwards.
            let old = known.slices.get(name);
            if old
                .is_some_and(|old| version == 0 || version_number(&old.resource_version) <= version)
            {
                let written_here = known.written.contains(name);
                let service =
                    known.remove_slice(name).and_then(|old| old.service().map(Name::from));
                deleted = service.map(|service| DeletedSlice { service, written_here });
            }
            // Late events come within moments of the deletion; the list need not grow for ever.
            if known.deleted.len() > 64 {
                known.deleted.clear();
            }
        });
        deleted
    }

    /// The slices of a Service, sorted by name.
    pub fn slices_of(&self, (namespace, service): &Key) -> Vec<Arc<Slice>> {
        let Some(namespace) = self.namespaces.get(namespace) else { return Vec::new() };
        let names = namespace.slices_by_service.get(service).into_iter().flatten();
        names.filter_map(|name| namespace.slices.get(name).map(Arc::clone)).collect()
    }

    /// Where the API servers listen: the endpoints of the Service `default/kubernetes`.
    pub fn api_servers(&self) -> BTreeSet<SocketAddr> {
        let slices = self.slices_of(&("default".into(), "kubernetes".into()));
        let sockets = |slice: &Arc<Slice>| {
            let ports = slice.ports.iter().filter_map(|port| u16::try_from(port.port?).ok());
            let ports: Vec<u16> = ports.collect();
            let ips = slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.ips());
            let at = |ip| ports.iter().map(move |port| SocketAddr::new(ip, *port));
            ips.flat_map(at).collect::<Vec<_>>()
        };
        slices.iter().flat_map(sockets).collect()
    }

    /// Every slice.
    pub fn slices(&self) -> impl Iterator<Item = &Arc<Slice>> {
        self.namespaces.values().flat_map(|namespace| namespace.slices.values())
    }

    // === nodes ===

    /// Adds or replaces a node.
    pub fn apply_node(&mut self, node: Node) -> NodeChange {
        let node = self.shared.node(node);
        let change = match self.nodes.get(&node.name) {
            None => NodeChange { capacity: true, location: true, reference: true },
            Some(old) => NodeChange {
                capacity: *old != node,
                location: old.zone != node.zone || old.region != node.region,
                reference: old.zone != node.zone || old.ready != node.ready,
            },
        };
        self.nodes.insert(Name::clone(&node.name), node);
        change
    }

    /// Removes a node. Returns whether it was known.
    pub fn delete_node(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// The nodes.
    pub fn nodes(&self) -> &BTreeMap<Name, Node> {
        &self.nodes
    }

    /// The Services that select Pods on a node.
    pub fn services_on(&self, node: &str) -> BTreeSet<Key> {
        let mut services = BTreeSet::new();
        for (namespace, pod) in self.pods_by_node.get(node).into_iter().flatten() {
            let Some(known) = self.namespaces.get(namespace) else { continue };
            let Some(pod) = known.pods.get(pod) else { continue };
            let selecting = known.selecting(&pod.labels).map(|name| (Name::clone(namespace), name));
            services.extend(selecting);
        }
        services
    }

    // === lists ===

    /// Known Pods that a new list does not contain: they were deleted while the watch was down.
    pub(crate) fn pods_missing_from(&self, listed: &BTreeSet<Key>) -> Vec<Key> {
        self.missing(listed, |namespace| &namespace.pods)
    }

    /// The same for Services.
    pub fn services_missing_from(&self, listed: &BTreeSet<Key>) -> Vec<Key> {
        self.missing(listed, |namespace| &namespace.services)
    }

    /// The same for slices, without those that are newer than the list.
    pub fn slices_missing_from(&self, listed: &BTreeSet<Key>, version: u64) -> Vec<Key> {
        let older = |key: &Key| {
            let slice =
                self.namespaces.get(&key.0).and_then(|namespace| namespace.slices.get(&key.1));
            slice.is_some_and(|slice| version_number(&slice.resource_version) <= version)
        };
        self.missing(listed, |namespace| &namespace.slices).into_iter().filter(older).collect()
    }

    fn missing<T>(
        &self,
        listed: &BTreeSet<Key>,
        of: impl Fn(&Namespace) -> &BTreeMap<Name, T>,
    ) -> Vec<Key> {
        let all = self.namespaces.iter().flat_map(|(namespace, known)| {
            of(known).keys().map(move |name| (Name::clone(namespace), Name::clone(name)))
        });
        all.filter(|key| !listed.contains(key)).collect()
    }

    /// Changes a namespace and removes it when nothing is left in it.
    fn within(&mut self, namespace: &Name, work: impl FnOnce(&mut Namespace)) {
        if let Some(known) = self.namespaces.get_mut(namespace) {
            work(known);
            if known.services.is_empty() && known.pods.is_empty() && known.slices.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }
}

fn forget_node(pods_by_node: &mut BTreeMap<Name, BTreeSet<Key>>, pod: &Pod, key: &Key) {
    let Some(node) = &pod.node else { return };
    if let Some(pods) = pods_by_node.get_mut(node) {
        pods.remove(key);
        if pods.is_empty() {
            pods_by_node.remove(node);
        }
    }
}

impl Namespace {
    fn selecting<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = Name> + 'a {
        let selects = |service: &&Arc<Service>| {
            service.selector.as_ref().is_some_and(|selector| selector.selects(labels))
        };
        self.services.values().filter(selects).map(|service| Name::clone(&service.name))
    }

    /// The Services that a change from `old` to `new` concerns. When only labels have changed, a
    /// Service that selects the Pod before and after is not among them.
    fn affected(&self, old: Option<&Pod>, new: Option<&Pod>) -> Vec<Name> {
        let (Some(old), Some(new)) = (old, new) else {
            let labels = old.or(new).map(|pod| &pod.labels);
            return labels.map_or_else(Vec::new, |labels| self.selecting(labels).collect());
        };
        let after: BTreeSet<Name> = self.selecting(&new.labels).collect();
        if old.labels == new.labels {
            return after.into_iter().collect();
        }
        let before: BTreeSet<Name> = self.selecting(&old.labels).collect();
        let relabelled = Pod { labels: Arc::clone(&new.labels), ..old.clone() };
        if relabelled == *new {
            before.symmetric_difference(&after).cloned().collect()
        } else {
            before.union(&after).cloned().collect()
        }
    }

    fn remember(&mut self, pod: Arc<Pod>) {
        let names = self.pods_by_labels.entry(Arc::clone(&pod.labels)).or_default();
        names.insert(Name::clone(&pod.name));
        self.pods.insert(Name::clone(&pod.name), pod);
    }

    fn forget_labels(&mut self, pod: &Pod) {
        if let Some(names) = self.pods_by_labels.get_mut(&pod.labels) {
            names.remove(&pod.name);
            if names.is_empty() {
                self.pods_by_labels.remove(&pod.labels);
            }
        }
    }

    fn remove_slice(&mut self, name: &Name) -> Option<Arc<Slice>> {
        let old = self.slices.remove(name)?;
        self.written.remove(name);
        self.forget_slice(&old, name);
        Some(old)
    }

    fn forget_slice(&mut self, slice: &Slice, name: &Name) {
        let Some(service) = slice.service() else { return };
        if let Some(names) = self.slices_by_service.get_mut(service) {
            names.remove(name);
            if names.is_empty() {
                self.slices_by_service.remove(service);
            }
        }
    }
}

impl SharedValues {
    fn name(&mut self, name: &mut Name) {
        match self.names.get(name) {
            Some(known) => *name = Arc::clone(known),
            None => {
                self.names.insert(Arc::clone(name));
            }
        }
    }

    fn pod(&mut self, mut pod: Pod) -> Pod {
        self.name(&mut pod.namespace);
        if let Some(node) = &mut pod.node {
            self.name(node);
        }
        pod.named_ports = shared(&mut self.ports, pod.named_ports);
        pod.labels = shared(&mut self.labels, pod.labels);
        pod
    }

    /// A plan compares the zones of nodes with those of stored endpoints, which is quick where both are the
    /// same string in memory.
    fn node(&mut self, mut node: Node) -> Node {
        for name in node.zone.iter_mut().chain(&mut node.region) {
            self.name(name);
        }
        node
    }

    fn slice(&mut self, mut slice: Slice) -> Slice {
        self.name(&mut slice.namespace);
        slice.labels = shared(&mut self.labels, slice.labels);
        for endpoint in &mut slice.endpoints {
            for name in endpoint.node.iter_mut().chain(&mut endpoint.zone) {
                self.name(name);
            }
            endpoint.hints = endpoint.hints.take().map(|hints| shared(&mut self.hints, hints));
        }
        slice.endpoints.shrink_to_fit();
        slice
    }

    /// Removes values that no object uses any more.
    fn sweep(&mut self) {
        self.names.retain(|value| Arc::strong_count(value) > 1);
        self.ports.retain(|value| Arc::strong_count(value) > 1);
        self.hints.retain(|value| Arc::strong_count(value) > 1);
        self.labels.retain(|value| Arc::strong_count(value) > 1);
    }
}

impl Index {
    /// Frees shared values that no object uses any more. Should be called every few minutes.
    pub fn sweep(&mut self) {
        self.shared.sweep();
    }
}

/// The stored value that equals `value`, which is stored if it is new.
fn shared<T: Ord + ?Sized>(known: &mut BTreeSet<Arc<T>>, value: Arc<T>) -> Arc<T> {
    match known.get(&value) {
        Some(known) => Arc::clone(known),
        None => {
            known.insert(Arc::clone(&value));
            value
        }
    }
}
