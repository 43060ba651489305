//! The objects of a cluster, as files or an API server gave them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_inventory::index::Index;
use zonewise_routing::{NodeLocation, ObjectReader};
use zonewise_slices::node::Nodes;
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use crate::input::{self, Fault, Found, Item, Object};
use crate::matrix;
use crate::scene::Scene;
use crate::view::View;

/// Nodes, Pods, Services and slices.
pub struct Snapshot {
    index: Index,
    nodes: Arc<Nodes>,
    /// Services and slices as they were read: what consumers see.
    json: Json,
}

#[derive(Default)]
struct Json {
    services: BTreeMap<Key, Box<str>>,
    slices: BTreeMap<Key, Box<str>>,
}

/// What was noticed while objects were gathered.
#[derive(Debug, Default)]
pub struct Remarks {
    /// Objects that cannot be used.
    pub faults: Vec<Fault>,
    /// Objects given more than once.
    pub duplicates: Vec<Duplicate>,
    /// Objects of kinds that do not matter here, by kind.
    pub ignored: BTreeMap<String, usize>,
    /// Objects that are used, by kind.
    pub used: BTreeMap<&'static str, usize>,
}

/// An object given more than once: the later counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The object.
    pub subject: String,
    /// Where it came first.
    pub first: input::Place,
    /// Where it came again.
    pub again: input::Place,
}

/// Gathers objects into a snapshot.
#[derive(Default)]
pub struct Gather {
    index: Index,
    /// Services come last: a Pod that is applied asks every Service known by then.
    services: Vec<Service>,
    json: Json,
    places: BTreeMap<(&'static str, Name, Name), input::Place>,
    remarks: Remarks,
}

impl Gather {
    /// Takes what was read.
    pub fn take(&mut self, item: Item) {
        match item {
            Item::Found(found) => self.found(found),
            Item::Fault(fault) => self.remarks.faults.push(fault),
            Item::Ignored { kind } => *self.remarks.ignored.entry(kind).or_default() += 1,
        }
    }

    fn found(&mut self, Found { place, object }: Found) {
        if let Some(message) = unreadable(&object) {
            let subject = subject(&who(&object));
            return self.remarks.faults.push(Fault { place, subject, message });
        }
        self.note(&object, place);
        match object {
            Object::Node(node) => {
                self.index.apply_node(node);
            }
            Object::Pod(pod) => {
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
                // The later counts, whatever version it has.
                self.index.delete_slice(0, &key);
                self.index.record_written_slice(small);
            }
        }
    }

    fn note(&mut self, object: &Object, place: input::Place) {
        let (kind, namespace, name) = who(object);
        *self.remarks.used.entry(kind).or_default() += 1;
        let key = (kind, Name::clone(&namespace), Name::clone(&name));
        if let Some(first) = self.places.insert(key, place.clone()) {
            let subject = subject(&(kind, namespace, name));
            self.remarks.duplicates.push(Duplicate { subject, first, again: place });
        }
    }

    /// The snapshot, and what was noticed.
    pub fn finish(mut self, missing_cpu: MissingCpu) -> (Snapshot, Remarks) {
        for service in self.services {
            self.index.apply_service(service);
        }
        let nodes = Arc::new(Nodes::new(self.index.nodes().clone(), missing_cpu));
        (Snapshot { index: self.index, nodes, json: self.json }, self.remarks)
    }
}

/// What consumers have against an object that the controller can use: their eyes are others.
fn unreadable(object: &Object) -> Option<String> {
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

fn who(object: &Object) -> (&'static str, Name, Name) {
    match object {
        Object::Node(node) => ("Node", Name::from(""), Name::clone(&node.name)),
        Object::Pod(pod) => ("Pod", Name::clone(&pod.namespace), Name::clone(&pod.name)),
        Object::Service { small, .. } => {
            ("Service", Name::clone(&small.namespace), Name::clone(&small.name))
        }
        Object::Slice { small, .. } => {
            ("EndpointSlice", Name::clone(&small.namespace), Name::from(small.name()))
        }
    }
}

impl Snapshot {
    /// The nodes.
    pub fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// Every Service, by namespace and name.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.index.services()
    }

    /// A Service.
    pub fn service(&self, key: &Key) -> Option<Arc<Service>> {
        self.index.service(key)
    }

    /// A Service with all it depends on.
    pub fn scene(&self, service: &Arc<Service>) -> Scene {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        Scene {
            pods: self.index.pods_of(service),
            slices: self.index.slices_of(&key),
            nodes: Arc::clone(&self.nodes),
            service: Arc::clone(service),
        }
    }

    /// A Service as consumers see it.
    pub fn view(&self, service: &Service) -> View<'_> {
        let key = (Name::clone(&service.namespace), Name::clone(&service.name));
        let slices = self.index.slices_of(&key);
        let text = |slice: &Arc<zonewise_slices::slice::Slice>| {
            let key = (Name::clone(&slice.namespace), Name::from(slice.name()));
            self.json.slices.get(&key).map(|json| Cow::Borrowed(&**json))
        };
        View {
            service: Cow::Borrowed(self.json.services.get(&key).map_or("{}", |json| json)),
            slices: slices.iter().filter_map(text).collect(),
        }
    }

    /// Where a node is; `None` if it is not known.
    pub fn location(&self, node: &str) -> Option<NodeLocation> {
        self.nodes.by_name.get(node).map(matrix::location_of)
    }

    /// Zones of nodes.
    pub fn zones(&self) -> Vec<Name> {
        let mut zones: Vec<Name> =
            self.nodes.by_name.values().filter_map(|node| node.zone.clone()).collect();
        zones.sort();
        zones.dedup();
        zones
    }
}
