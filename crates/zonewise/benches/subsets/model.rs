//! Services with Pods in every zone, and their slices as the controller's own functions plan them.

use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{Slice, Subset};
use zonewise_topology::capacity::MissingCpu;

use crate::{Costs, Received, Row};

/// How many endpoints are replaced.
pub(crate) const CHANGES: usize = 100;
/// What a watch event has around its object.
const EVENT: f64 = 30.0;

/// A cluster of equal Services.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) zones: usize,
    pub(crate) services: usize,
    /// Pods of each Service, spread over the zones.
    pub(crate) pods: usize,
    /// The value of the annotation `subsetting`, where there are subsets.
    pub(crate) subsetting: &'static str,
}

pub(crate) fn zone_name(zone: usize) -> String {
    format!("eu-west-1{}", char::from(b'a' + u8::try_from(zone).unwrap()))
}

impl Model {
    /// What is measured.
    pub(crate) fn small(zones: usize) -> Self {
        Self { zones, services: 100, pods: 60, subsetting: "Auto" }
    }

    /// What is computed: as many Pods as Kubernetes supports. `Auto` would not divide Services of this
    /// size into more than three subsets.
    pub(crate) fn large(zones: usize) -> Self {
        Self { zones, services: 10_000, pods: 15, subsetting: "Require" }
    }

    pub(crate) fn describe(&self) -> String {
        let Self { services, pods, subsetting, .. } = self;
        format!("{services} Services × {pods} Pods, subsetting {subsetting}")
    }

    /// The costs by the size of the objects, of which the API server adds `added` bytes to each.
    pub(crate) fn row(&self, zones: usize, added: f64) -> Row {
        Row { zones, without: self.costs(false, added), with: self.costs(true, added) }
    }

    fn costs(&self, divided: bool, added: f64) -> Costs {
        let mut state = ServiceState::new(self, self.services / 2, divided);
        state.first();
        let size = |slice: &Slice| serde_json::to_vec(slice).unwrap().len() as f64 + added;
        let mut costs = Costs::default();
        let (services, zones) = (self.services as f64, self.zones as f64);
        // The average over the zones.
        for zone in 0..self.zones {
            for slice in state.slices.iter().filter(|slice| is_for(slice, &zone_name(zone))) {
                costs.start.add(services / zones, size(slice));
            }
        }
        for change in 0..CHANGES {
            for written in state.replace_a_pod(change) {
                let nodes = match written.subset() {
                    None => 1.0,
                    Some(_) => 1.0 / zones,
                };
                costs.changes.add(nodes, size(&written) + EVENT);
            }
        }
        costs
    }
}

impl Received {
    fn add(&mut self, times: f64, bytes: f64) {
        self.objects += times;
        self.bytes += times * bytes;
    }
}

/// Whether nodes of a zone watch a slice.
pub(crate) fn is_for(slice: &Slice, zone: &str) -> bool {
    match slice.subset() {
        None => true,
        Some(Subset::Zone(of)) => &*of == zone,
        Some(Subset::Region(_)) => false,
    }
}

/// A Service with its Pods and slices.
pub(crate) struct ServiceState {
    number: usize,
    service: Service,
    nodes: Nodes,
    pods: Vec<Value>,
    replaced: usize,
    pub(crate) slices: Vec<Arc<Slice>>,
}

impl ServiceState {
    pub(crate) fn new(model: &Model, number: usize, divided: bool) -> Self {
        let annotations = match divided {
            true => json!({"endpointslice.kubernetes.io/subsetting": model.subsetting}),
            false => json!({}),
        };
        let service = json!({
            "metadata": {"name": service_name(number), "namespace": "default", "uid": uid(1, number), "annotations": annotations},
            "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": service_name(number)},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
        });
        let node = |zone| {
            let node = json!({
                "metadata": {"name": format!("node-{zone}"), "labels": {"topology.kubernetes.io/zone": zone_name(zone)}},
                "status": {"allocatable": {"cpu": "16"}, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            let node: Node = serde_json::from_value(node).unwrap();
            (Name::clone(&node.name), node)
        };
        let nodes = Nodes::new((0..model.zones).map(node).collect(), MissingCpu::Refuse);
        let pods = (0..model.pods).map(|pod| pod_of(number, pod, pod % model.zones)).collect();
        let service = serde_json::from_value(service).unwrap();
        Self { number, service, nodes, pods, replaced: 0, slices: Vec::new() }
    }

    /// Writes the first slices, with names.
    pub(crate) fn first(&mut self) {
        let plan = self.plan();
        let creates = plan.families.into_iter().flat_map(|family| family.creates);
        let named = creates.enumerate().map(|(number, slice)| {
            let name = format!("{}-{number:05}", service_name(self.number));
            Arc::new(Slice { name: Some(name.into()), ..slice })
        });
        self.slices = named.collect();
    }

    /// Replaces a Pod by one in the same zone; the slices that are written for it.
    pub(crate) fn replace_a_pod(&mut self, which: usize) -> Vec<Slice> {
        self.replaced += 1;
        let (index, fresh) = (which % self.pods.len(), self.pods.len() + self.replaced);
        let node = self.pods[index]["spec"]["nodeName"].as_str().unwrap();
        let zone = node.strip_prefix("node-").unwrap().parse().unwrap();
        self.pods[index] = pod_of(self.number, fresh, zone);
        let plan = self.plan();
        let written: Vec<Slice> =
            plan.families.into_iter().flat_map(|family| family.updates).collect();
        for slice in &written {
            let known = self.slices.iter_mut().find(|known| known.name == slice.name);
            *known.unwrap() = Arc::new(slice.clone());
        }
        written
    }

    fn plan(&self) -> Plan {
        let pod = |pod: &Value| Arc::new(serde_json::from_value::<Pod>(pod.clone()).unwrap());
        let mut pods: Vec<Arc<Pod>> = self.pods.iter().map(pod).collect();
        pods.sort_by(|one, other| one.name.cmp(&other.name));
        let settings = Settings::default();
        let input = Input {
            service: &self.service,
            pods: &pods,
            slices: &self.slices,
            nodes: &self.nodes,
            measured: None,
            trigger: Some(1_790_000_000),
            populated: false,
            quiet: false,
        };
        plan(&input, &requested_routing(&self.service, &settings), &settings)
    }
}

pub(crate) fn service_name(number: usize) -> String {
    format!("app-{number}")
}

fn uid(kind: usize, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

fn pod_of(service: usize, number: usize, zone: usize) -> Value {
    let name = format!("{}-6d5f8c7b9-{number:05}", service_name(service));
    let ip = format!("10.{}.{}.{}", number / 250 + 1, service % 250, number % 250 + 1);
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": uid(2, number), "labels": {"app": service_name(service)}},
        "spec": {"nodeName": format!("node-{zone}"), "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
