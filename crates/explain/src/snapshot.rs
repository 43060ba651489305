//! The objects of a cluster, from files or from an API server.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use zonewise_common::cidr::Cidr;
use zonewise_common::name::{Key, Name};
use zonewise_common::service_cidr::ServiceCidr;
use zonewise_inventory::evacuation::{self, StoredEvacuation, in_force};
use zonewise_inventory::index::Index;
use zonewise_routing::{
    ClusterClaims, Frontend, NodeLocation, ObjectReader, Protected, Refusal, ServiceClaims,
};
use zonewise_slices::node::Nodes;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;
use zonewise_topology::capacity::MissingCpu;

use crate::environment::{Component, Environment, Facts, ProxyKind, environment};
use crate::input::{self, Fault, Item, LocatedObject, Object};
use crate::matrix;
use crate::proxy_view::{self, ProxyView};
use crate::service_snapshot::ServiceSnapshot;

/// Nodes, Pods, Services and slices.
pub struct Snapshot {
    index: Index,
    nodes: Arc<Nodes>,
    /// The JSON of Services and slices, which proxies read.
    json: Json,
    /// What was seen of the programs that run.
    facts: Arc<Facts>,
    /// The ranges that ClusterIPs come from, as far as known.
    service_cidrs: BTreeMap<Name, Vec<Cidr>>,
    /// The addresses and ports that the Services ask for; computed when first asked for.
    claims: OnceLock<ClusterClaims>,
    /// In a snapshot of one Service: the addresses and ports that it does not get because of the others.
    refused: Option<Vec<(Frontend, Refusal)>>,
    /// How nodes count that report no allocatable CPU.
    missing_cpu: MissingCpu,
}

/// The Services that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    /// These; none if nothing that is used has changed.
    Services(BTreeSet<Key>),
    /// Every Service: the capacity of zones has changed, or what runs.
    All,
}

impl Concerned {
    fn one(key: Key) -> Self {
        Self::Services(BTreeSet::from([key]))
    }

    fn in_namespace(namespace: &Name, names: Vec<Name>) -> Self {
        Self::Services(names.into_iter().map(|name| (Name::clone(namespace), name)).collect())
    }

    fn none() -> Self {
        Self::Services(BTreeSet::new())
    }
}

#[derive(Default)]
struct Json {
    services: BTreeMap<Key, Box<str>>,
    slices: BTreeMap<Key, Box<str>>,
}

/// What was noticed while objects were read.
#[derive(Debug, Default)]
pub struct Remarks {
    /// Objects that cannot be used.
    pub faults: Vec<Fault>,
    /// Objects given more than once.
    pub duplicates: Vec<Duplicate>,
    /// The number of objects of kinds that are not used, by kind.
    pub ignored: BTreeMap<String, usize>,
    /// The number of objects that are used, by kind.
    pub used: BTreeMap<&'static str, usize>,
}

/// An object that was given more than once. The last one is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The object.
    pub subject: String,
    /// Where it was first.
    pub first: input::SourceLocation,
    /// Where it was again.
    pub again: input::SourceLocation,
}

/// Collects objects into a snapshot.
#[derive(Default)]
pub struct SnapshotBuilder {
    index: Index,
    /// Services are added last, because adding a Pod checks the selector of every Service in the
    /// index.
    services: Vec<Service>,
    json: Json,
    facts: Facts,
    service_cidrs: BTreeMap<Name, Vec<Cidr>>,
    evacuations: BTreeMap<Name, StoredEvacuation>,
    locations: BTreeMap<(&'static str, Name, Name), input::SourceLocation>,
    remarks: Remarks,
}

impl SnapshotBuilder {
    /// Adds an object, or what was noticed about it.
    pub fn add(&mut self, item: Item) {
        match item {
            Item::Found(found) => self.found(found),
            Item::Fault(fault) => self.remarks.faults.push(fault),
            Item::Ignored { kind, .. } => *self.remarks.ignored.entry(kind).or_default() += 1,
            Item::Clue { kind, clue, fault } => {
                *self.remarks.ignored.entry(kind).or_default() += 1;
                self.remarks.faults.extend(fault.map(|fault| *fault));
                self.facts.add(clue);
            }
        }
    }

    /// Takes what was seen of the programs that run in a cluster, in place of what objects show of them.
    pub fn set_facts(&mut self, facts: Facts) {
        self.facts = facts;
    }

    fn found(&mut self, LocatedObject { location, object }: LocatedObject) {
        if let Some(message) = unreadable_by_proxies(&object) {
            let subject = subject(&identity(&object));
            return self.remarks.faults.push(Fault { location, subject, message });
        }
        self.note(&object, location);
        match object {
            Object::Node(node) => {
                self.index.apply_node(node);
            }
            Object::Pod(pod) => {
                self.facts.add_pod(&pod);
                self.index.apply_pod(pod);
            }
            Object::Service { small, json } => {
                let key = (Name::clone(&small.namespace), Name::clone(&small.name));
                if let Some(json) = json {
                    self.json.services.insert(key, json);
                }
                self.services.push(small);
            }
            Object::Slice { small, json } => {
                let key = (Name::clone(&small.namespace), Name::from(small.name()));
                if let Some(json) = json {
                    self.json.slices.insert(key.clone(), json);
                }
                // The last one is used, whatever its resource version.
                self.index.delete_slice(0, &key);
                self.index.record_written_slice(small);
            }
            Object::ServiceCidr(ServiceCidr { name, ranges }) => {
                self.service_cidrs.insert(name, ranges);
            }
            Object::Evacuation(evacuation) => {
                self.evacuations.insert(Name::clone(evacuation.name()), evacuation);
            }
        }
    }

    fn note(&mut self, object: &Object, location: input::SourceLocation) {
        let (kind, namespace, name) = identity(object);
        *self.remarks.used.entry(kind).or_default() += 1;
        let key = (kind, Name::clone(&namespace), Name::clone(&name));
        if let Some(first) = self.locations.insert(key, location.clone()) {
            let subject = subject(&(kind, namespace, name));
            self.remarks.duplicates.push(Duplicate { subject, first, again: location });
        }
    }

    /// The snapshot, and what was noticed while it was read.
    pub fn finish(mut self, missing_cpu: MissingCpu) -> (Snapshot, Remarks) {
        for service in self.services {
            self.index.apply_service(service);
        }
        let nodes = Nodes::new(self.index.nodes().clone(), missing_cpu);
        let nodes = Arc::new(nodes.evacuating(in_force(self.evacuations.values())));
        let snapshot = Snapshot {
            index: self.index,
            nodes,
            json: self.json,
            facts: Arc::new(self.facts),
            service_cidrs: self.service_cidrs,
            claims: OnceLock::new(),
            refused: None,
            missing_cpu,
        };
        (snapshot, self.remarks)
    }
}

/// Why no proxy can read an object that the controller can use. Both read different fields.
pub(crate) fn unreadable_by_proxies(object: &Object) -> Option<String> {
    let reader = ObjectReader::new(NodeLocation::default());
    let error = match object {
        Object::Service { json: Some(json), .. } => reader.read_service(json).err()?,
        Object::Slice { json: Some(json), .. } => reader.read_slice(json).err()?,
        _ => return None,
    };
    Some(format!("no proxy can read it: {error}"))
}

fn subject((kind, namespace, name): &(&'static str, Name, Name)) -> String {
    match &**namespace {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

pub(crate) fn identity(object: &Object) -> (&'static str, Name, Name) {
    match object {
        Object::Node(node) => ("Node", Name::from(""), Name::clone(&node.name)),
        Object::Pod(pod) => ("Pod", Name::clone(&pod.namespace), Name::clone(&pod.name)),
        Object::Service { small, .. } => {
            ("Service", Name::clone(&small.namespace), Name::clone(&small.name))
        }
        Object::Slice { small, .. } => {
            ("EndpointSlice", Name::clone(&small.namespace), Name::from(small.name()))
        }
        Object::ServiceCidr(service_cidr) => {
            ("ServiceCIDR", Name::from(""), Name::clone(&service_cidr.name))
        }
        Object::Evacuation(evacuation) => {
            (evacuation::KIND, Name::from(""), Name::clone(evacuation.name()))
        }
    }
}

impl Snapshot {
    /// The nodes.
    pub fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// What runs in the cluster. What is `assumed` counts as running; `proxy_kind` is the proxy that is
    /// assumed.
    pub fn environment(&self, assumed: &[Component], proxy_kind: ProxyKind) -> Environment {
        environment(&self.facts, self.nodes.by_name.keys(), assumed, proxy_kind)
    }

    /// Every Service, by namespace and name.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.index.services()
    }

    /// A Service.
    pub fn service(&self, key: &Key) -> Option<Arc<Service>> {
        self.index.service(key)
    }

    /// A Service with everything that its slices depend on.
    pub fn service_snapshot(&self, service: &Arc<Service>) -> ServiceSnapshot {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        ServiceSnapshot {
            pods: self.index.pods_of(service),
            slices: self.index.slices_of(&key),
            nodes: Arc::clone(&self.nodes),
            shares: self.facts.demand.of_service(&key),
            facts: Arc::clone(&self.facts),
            failing: self.facts.demand.failing_zones(&key),
            service: Arc::clone(service),
        }
    }

    /// The nodes, with what each zone sends to a Service; see [`ServiceSnapshot::senders`].
    pub fn senders(&self, service: &Arc<Service>) -> Arc<Nodes> {
        self.service_snapshot(service).senders()
    }

    /// The names of the slices of a Service, whoever wrote them.
    pub fn slice_names(&self, service: &Service) -> Vec<String> {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        self.index.slices_of(&key).iter().map(|slice| slice.name().to_owned()).collect()
    }

    /// A Service as proxies read it.
    pub fn proxy_view(&self, service: &Service) -> ProxyView<'_> {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        let slices = self.index.slices_of(&key);
        let text = |slice: &Arc<Slice>| {
            let key = (Name::clone(&slice.namespace), Name::from(slice.name()));
            self.json.slices.get(&key).map(|json| Cow::Borrowed(&**json))
        };
        let slices: Vec<Cow<'_, str>> = slices.iter().filter_map(text).collect();
        let by_use = || self.facts.demand.use_percents_of(&service.key());
        ProxyView {
            service: Cow::Borrowed(self.json.services.get(&key).map_or("{}", |json| json)),
            weights: proxy_view::weights(service, &self.index.pods_of(service), &slices, by_use),
            slices,
            refused: self.refused.clone().unwrap_or_else(|| self.claims().refused(&key)),
        }
    }

    /// A copy with one Service and everything that is said about it, which is the same as with all of them. Of other
    /// Services, only those are named whose namespace `may_be_named`.
    #[must_use]
    pub fn of_one(&self, service: &Service, may_be_named: impl Fn(&str) -> bool) -> Self {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        let (mut index, mut json) = (Index::default(), Json::default());
        for pod in self.index.pods_of(service) {
            index.apply_pod(Arc::unwrap_or_clone(pod));
        }
        for slice in self.index.slices_of(&key) {
            let key = (Name::clone(&slice.namespace), Name::from(slice.name()));
            json.slices.extend(self.json.slices.get(&key).map(|text| (key, text.clone())));
            index.record_written_slice(Arc::unwrap_or_clone(slice));
        }
        index.apply_service(service.clone());
        json.services.extend(self.json.services.get(&key).map(|text| (key.clone(), text.clone())));
        let mut refused = self.proxy_view(service).refused;
        for (_, why) in &mut refused {
            why.hide_owner_unless(|(namespace, _)| may_be_named(namespace));
        }
        Self {
            index,
            json,
            nodes: Arc::clone(&self.nodes),
            facts: Arc::clone(&self.facts),
            service_cidrs: self.service_cidrs.clone(),
            claims: OnceLock::new(),
            refused: Some(refused),
            missing_cpu: self.missing_cpu,
        }
    }

    /// Adds or replaces an object of a running cluster.
    pub fn apply(&mut self, object: Object) -> Concerned {
        match object {
            Object::Node(node) => {
                let change = self.index.apply_node(node);
                self.count_nodes(change.capacity || change.location)
            }
            Object::Pod(pod) => {
                let namespace = Name::clone(&pod.namespace);
                Concerned::in_namespace(&namespace, self.index.apply_pod(pod))
            }
            Object::Service { small, json } => self.apply_service(small, json),
            Object::Slice { small, json } => self.apply_slice(small, json),
            range @ Object::ServiceCidr(_) => match self.apply_range(range) {
                true => Concerned::All,
                false => Concerned::none(),
            },
            // Which zones are being emptied is a matter of all ZoneEvacuations together.
            Object::Evacuation(_) => Concerned::none(),
        }
    }

    fn apply_service(&mut self, small: Service, json: Option<Box<str>>) -> Concerned {
        let key = (Name::clone(&small.namespace), Name::clone(&small.name));
        let json = json.unwrap_or_else(|| "{}".into());
        if self.json.services.get(&key) == Some(&json) {
            return Concerned::none();
        }
        let mut concerned = self.claim(&key, &json);
        concerned.insert(key.clone());
        self.json.services.insert(key, json);
        self.index.apply_service(small);
        Concerned::Services(concerned)
    }

    /// Notes the addresses and ports that a Service asks for. Returns the Services that get others because of it.
    fn claim(&mut self, key: &Key, json: &str) -> BTreeSet<Key> {
        let Some(claims) = self.claims.get_mut() else { return BTreeSet::new() };
        let service = ObjectReader::new(NodeLocation::default()).read_service(json);
        claims.set(key, service.as_ref().map(ServiceClaims::from).unwrap_or_default())
    }

    fn apply_slice(&mut self, small: Slice, json: Option<Box<str>>) -> Concerned {
        let key = (Name::clone(&small.namespace), Name::from(small.name()));
        let json = json.unwrap_or_else(|| "{}".into());
        if self.json.slices.get(&key) == Some(&json) {
            return Concerned::none();
        }
        let mut names: Vec<Name> = small.service().map(Name::from).into_iter().collect();
        // The last one counts, whatever its version: the store may have been restored from a backup.
        names.extend(self.index.delete_slice(0, &key).map(|deleted| deleted.service));
        self.index.apply_slice(small);
        self.json.slices.insert(key.clone(), json);
        if &*key.0 == "default" && names.iter().any(|name| &**name == "kubernetes") {
            self.claims = OnceLock::new();
        }
        Concerned::in_namespace(&key.0, names)
    }

    /// Removes a Node.
    pub fn delete_node(&mut self, (_, name): &Key) -> Concerned {
        let known = self.index.delete_node(name);
        self.count_nodes(known)
    }

    /// Removes a Pod.
    pub fn delete_pod(&mut self, key: &Key) -> Concerned {
        Concerned::in_namespace(&key.0, self.index.delete_pod(key))
    }

    /// Removes a Service.
    pub fn delete_service(&mut self, key: &Key) -> Concerned {
        self.index.delete_service(key);
        self.json.services.remove(key);
        let mut concerned = self.claim(key, "{}");
        concerned.insert(key.clone());
        Concerned::Services(concerned)
    }

    /// Removes a slice.
    pub fn delete_slice(&mut self, key: &Key) -> Concerned {
        self.json.slices.remove(key);
        match self.index.delete_slice(0, key) {
            Some(deleted) => Concerned::one((Name::clone(&key.0), deleted.service)),
            None => Concerned::none(),
        }
    }

    /// Takes what is seen of the programs that run now. Returns whether that is something else than before.
    pub(crate) fn set_facts(&mut self, facts: Facts) -> bool {
        let environment = |snapshot: &Self| snapshot.environment(&[], ProxyKind::default());
        let before = environment(self);
        let measured = !self.facts.demand.has_shares_of(&facts.demand);
        self.facts = Arc::new(facts);
        measured || environment(self) != before
    }

    /// Takes all ZoneEvacuations. Returns whether other zones are being emptied than before, or to another degree.
    pub(crate) fn set_evacuations(&mut self, stored: &[StoredEvacuation]) -> bool {
        let evacuations = in_force(stored.iter());
        let changed = self.nodes.evacuations != evacuations;
        if changed {
            self.nodes = Arc::new((*self.nodes).clone().evacuating(evacuations));
        }
        changed
    }

    /// Takes a range that ClusterIPs come from. Returns whether it is another than before.
    pub(crate) fn apply_range(&mut self, range: Object) -> bool {
        let Object::ServiceCidr(ServiceCidr { name, ranges }) = range else { return false };
        let changed = self.service_cidrs.get(&name) != Some(&ranges);
        if changed {
            self.service_cidrs.insert(name, ranges);
            self.claims = OnceLock::new();
        }
        changed
    }

    fn count_nodes(&mut self, changed: bool) -> Concerned {
        if !changed {
            return Concerned::none();
        }
        let evacuations = self.nodes.evacuations.clone();
        let nodes = Nodes::new(self.index.nodes().clone(), self.missing_cpu);
        self.nodes = Arc::new(nodes.evacuating(evacuations));
        Concerned::All
    }

    fn claims(&self) -> &ClusterClaims {
        self.claims.get_or_init(|| {
            let reader = ObjectReader::new(NodeLocation::default());
            let protected = Protected {
                node_ports: vec![Protected::KUBELET_PORT],
                service_cidrs: self.service_cidrs.values().flatten().copied().collect(),
            };
            let mut claims = ClusterClaims::new(protected);
            claims.set_api_servers(self.index.api_servers());
            for (key, json) in &self.json.services {
                // What proxies cannot read was remarked when it was added.
                if let Ok(service) = reader.read_service(json) {
                    claims.set(key, ServiceClaims::from(&service));
                }
            }
            claims
        })
    }

    /// The location of a node; `None` if there is no such node.
    pub fn location(&self, node: &str) -> Option<NodeLocation> {
        self.nodes.by_name.get(node).map(matrix::location_of)
    }

    /// The zones that have nodes, sorted.
    pub fn zones(&self) -> Vec<Name> {
        let mut zones: Vec<Name> =
            self.nodes.by_name.values().filter_map(|node| node.zone.clone()).collect();
        zones.sort();
        zones.dedup();
        zones
    }
}
