//! A small cluster that tests change step by step: zones with nodes, a Service, Pods, and a store
//! that answers writes as the API server would.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_common::name::Name;
use zonewise_slices::evacuation::{Evacuations, Prospect};
use zonewise_slices::node::{MeasuredZones, Node, Nodes};
use zonewise_slices::plan::{Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{RequestedRouting, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{Hints, Slice};
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::reason::Code;

/// Stored slices.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) slices: BTreeMap<Box<str>, Arc<Slice>>,
    created: usize,
}

impl Store {
    /// Applies the writes of a plan.
    pub(crate) fn run(&mut self, plan: &Plan) {
        for family in &plan.families {
            for slice in &family.creates {
                self.created += 1;
                let name: Box<str> = format!("svc-{:05}", self.created).into();
                self.put(Slice { name: Some(name), ..through_the_wire(slice) });
            }
            for slice in &family.updates {
                self.put(through_the_wire(slice));
            }
            for slice in &family.deletes {
                assert!(self.slices.remove(&slice.name).is_some(), "{slice:?} is deleted twice");
            }
        }
        for slice in &plan.leftovers {
            self.slices.remove(&slice.name);
        }
    }

    fn put(&mut self, slice: Slice) {
        let name: Box<str> = slice.name().into();
        self.slices.insert(name.clone(), Arc::new(Slice { uid: (&*name).into(), ..slice }));
    }

    /// Stores one endpoint twice, in the slice that it is in.
    pub(crate) fn repeat_endpoint(&mut self, place: usize) {
        let count: usize = self.slices.values().map(|slice| slice.endpoints.len()).sum();
        let mut left = place % count.max(1);
        for slice in self.slices.values_mut() {
            if let Some(endpoint) = slice.endpoints.get(left).cloned() {
                Arc::make_mut(slice).endpoints.push(endpoint);
                return;
            }
            left -= slice.endpoints.len();
        }
    }

    pub(crate) fn list(&self) -> Vec<Arc<Slice>> {
        self.slices.values().map(Arc::clone).collect()
    }
}

/// A slice as it is read back after it was written.
fn through_the_wire(slice: &Slice) -> Slice {
    serde_json::from_str(&serde_json::to_string(slice).unwrap()).unwrap()
}

/// Nodes, Pods, a Service and its stored slices.
pub(crate) struct TestCluster {
    pub(crate) service: Value,
    pub(crate) nodes: BTreeMap<String, Value>,
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) missing_cpu: MissingCpu,
    /// Measured shares of zones; empty where demand is not measured.
    pub(crate) measured: BTreeMap<String, f64>,
    /// What the endpoints of zones count for, in percent, where they fail.
    pub(crate) percents: BTreeMap<String, u16>,
    /// Zones that are being emptied.
    pub(crate) evacuations: Evacuations,
    serial: usize,
}

impl TestCluster {
    /// One node per zone, with the zone's name and its number of cores.
    pub(crate) fn new(zones: &[(&str, &str)]) -> Self {
        let mut cluster = Self {
            service: json!({
                "metadata": {"name": "web", "namespace": "shop", "uid": "web-uid", "annotations": {}},
                "spec": {
                    "clusterIP": "10.96.0.1",
                    "ipFamilies": ["IPv4"],
                    "selector": {"app": "web"},
                    "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
                },
            }),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            store: Store::default(),
            settings: Settings::default(),
            missing_cpu: MissingCpu::Refuse,
            measured: BTreeMap::new(),
            percents: BTreeMap::new(),
            evacuations: Evacuations::default(),
            serial: 0,
        };
        for (zone, cpu) in zones {
            cluster.node(&format!("node-{zone}"), zone, cpu);
        }
        cluster
    }

    /// Three zones of the same size.
    pub(crate) fn three_zones() -> Self {
        Self::new(&[("a", "4"), ("b", "4"), ("c", "4")])
    }

    /// Adds or replaces a node. Its region is the zone's name up to the first dash.
    pub(crate) fn node(&mut self, name: &str, zone: &str, cpu: &str) {
        let region = zone.split('-').next().unwrap();
        let node = json!({
            "metadata": {"name": name, "labels": {
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": region,
            }},
            "status": {
                "allocatable": {"cpu": cpu},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        self.nodes.insert(name.into(), node);
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) -> &mut Self {
        self.service["metadata"]["annotations"][key] = value.into();
        self
    }

    pub(crate) fn remove_annotation(&mut self, key: &str) -> &mut Self {
        self.service["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
        self
    }

    /// Makes the number of ready Pods in a zone `count`. The newest are removed first.
    pub(crate) fn pods(&mut self, zone: &str, count: usize) -> &mut Self {
        let node = format!("node-{zone}");
        let mut there: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod["spec"]["nodeName"] == node.as_str())
            .map(|(name, _)| name.clone())
            .collect();
        while there.len() > count {
            self.pods.remove(&there.pop().unwrap());
        }
        for _ in there.len()..count {
            self.pod(&node);
        }
        self
    }

    /// Adds a ready Pod to a node.
    pub(crate) fn pod(&mut self, node: &str) -> String {
        self.serial += 1;
        let name = format!("pod-{:05}", self.serial);
        let ip = format!("10.1.{}.{}", self.serial / 250, self.serial % 250 + 1);
        let pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
            "status": {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        self.pods.insert(name.clone(), pod);
        name
    }

    /// Plans, applies the writes, and checks what must hold after every step.
    pub(crate) fn sync(&mut self) -> Plan {
        self.carry_out(self.plan())
    }

    /// The same, when the Service has been quiet for long enough.
    pub(crate) fn settle(&mut self) -> Plan {
        self.carry_out(self.plan_if(true))
    }

    fn carry_out(&mut self, plan: Plan) -> Plan {
        self.store.run(&plan);
        self.check();
        plan
    }

    pub(crate) fn requested_routing(&self) -> RequestedRouting {
        let service: Service = serde_json::from_value(self.service.clone()).unwrap();
        requested_routing(&service, &self.settings)
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan_if(false)
    }

    fn plan_if(&self, quiet: bool) -> Plan {
        self.plan_of(&self.topology(), &self.decoded_pods(), &self.store.list(), quiet)
    }

    /// The same plan, made from objects that have equal names and equal hints in memory once, as the
    /// controller's index has them.
    pub(crate) fn plan_with_shared_values(&self, quiet: bool) -> Plan {
        let (mut names, mut hints) = (BTreeSet::<Name>::new(), BTreeSet::<Arc<Hints>>::new());
        let mut share = |name: &mut Name| {
            names.insert(Name::clone(name));
            *name = Name::clone(names.get(name).unwrap());
        };
        let mut nodes = self.topology().by_name;
        for node in nodes.values_mut() {
            node.zone.iter_mut().chain(&mut node.region).for_each(&mut share);
        }
        let mut pods = self.decoded_pods();
        for pod in &mut pods {
            Arc::get_mut(pod).unwrap().node.iter_mut().for_each(&mut share);
        }
        let mut slices: Vec<Slice> =
            self.store.slices.values().map(|one| (**one).clone()).collect();
        for endpoint in slices.iter_mut().flat_map(|slice| &mut slice.endpoints) {
            endpoint.node.iter_mut().chain(&mut endpoint.zone).for_each(&mut share);
            if let Some(own) = &mut endpoint.hints {
                hints.insert(Arc::clone(own));
                *own = Arc::clone(hints.get(own).unwrap());
            }
        }
        let slices: Vec<Arc<Slice>> = slices.into_iter().map(Arc::new).collect();
        let nodes = Nodes::new(nodes, self.missing_cpu).evacuating(self.evacuations.clone());
        self.plan_of(&nodes, &pods, &slices, quiet)
    }

    fn decoded_pods(&self) -> Vec<Arc<Pod>> {
        let pod = |pod: &Value| Arc::new(serde_json::from_value::<Pod>(pod.clone()).unwrap());
        self.pods.values().map(pod).collect()
    }

    fn plan_of(
        &self,
        nodes: &Nodes,
        pods: &[Arc<Pod>],
        slices: &[Arc<Slice>],
        quiet: bool,
    ) -> Plan {
        let service: Service = serde_json::from_value(self.service.clone()).unwrap();
        let measured = self.measured_zones(nodes);
        let input = Input {
            service: &service,
            pods,
            slices,
            nodes,
            measured: measured.as_ref(),
            trigger: None,
            populated: false,
            quiet,
        };
        plan(&input, &requested_routing(&service, &self.settings), &self.settings)
    }

    fn measured_zones(&self, nodes: &Nodes) -> Option<MeasuredZones> {
        let is_known = !self.measured.is_empty() || !self.percents.is_empty();
        let percents = self.percents.iter().map(|(zone, percent)| (zone.as_str().into(), *percent));
        is_known.then(|| nodes.measured(|zone| self.measured.get(zone).copied()).counting(percents))
    }

    /// What emptying a zone would mean for the Service.
    pub(crate) fn prospect(&self, zone: &str) -> Option<Prospect> {
        let service: Service = serde_json::from_value(self.service.clone()).unwrap();
        let (pods, slices) = (self.decoded_pods(), self.store.list());
        let with = |evacuations| self.topology().evacuating(evacuations);
        let in_use = with(self.evacuations.clone().without(zone));
        let emptied = with(self.evacuations.clone().with(zone, 0));
        let measured = self.measured_zones(&in_use);
        let input = |nodes| Input {
            service: &service,
            pods: &pods,
            slices: &slices,
            nodes,
            measured: measured.as_ref(),
            trigger: None,
            populated: false,
            quiet: false,
        };
        let choice = requested_routing(&service, &self.settings).choice;
        Prospect::of(&input(&in_use), &input(&emptied), &choice, zone)
    }

    /// The same objects without slices.
    pub(crate) fn without_slices(&self) -> Self {
        let mut fresh = Self::new(&[]);
        fresh.service = self.service.clone();
        fresh.nodes = self.nodes.clone();
        fresh.pods = self.pods.clone();
        fresh.settings = self.settings.clone();
        fresh.missing_cpu = self.missing_cpu;
        fresh.measured = self.measured.clone();
        fresh.percents = self.percents.clone();
        fresh.evacuations = self.evacuations.clone();
        fresh
    }

    pub(crate) fn topology(&self) -> Nodes {
        let node = |node: &Value| serde_json::from_value::<Node>(node.clone()).unwrap();
        let nodes = self.nodes.values().map(node).map(|node| (Name::clone(&node.name), node));
        let nodes = Nodes::new(nodes.collect(), self.missing_cpu);
        nodes.evacuating(self.evacuations.clone())
    }

    /// A29: every Pod is in exactly one slice. A17: every slice carries the Service's name. C7: all
    /// slices are subsets of zones, or of regions, or none is a subset.
    pub(crate) fn check(&self) {
        let mut addresses: Vec<String> = self
            .store
            .slices
            .values()
            .flat_map(|slice| &slice.endpoints)
            .map(|endpoint| format!("{:?}", endpoint.addresses))
            .collect();
        addresses.sort();
        let all = addresses.len();
        addresses.dedup();
        assert_eq!((all, addresses.len()), (self.pods.len(), self.pods.len()), "each Pod once");
        assert!(self.store.slices.values().all(|slice| slice.service() == Some("web")));
        let kinds: BTreeSet<u8> = self
            .store
            .slices
            .values()
            .map(|slice| match slice.subset() {
                None => 0,
                Some(zonewise_slices::slice::Subset::Zone(_)) => 1,
                Some(zonewise_slices::slice::Subset::Region(_)) => 2,
            })
            .collect();
        assert_eq!(kinds.len(), 1, "slices of one kind");
    }

    /// The number of endpoints hinted to each zone; several zones of one endpoint are joined with `+`.
    pub(crate) fn hints(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for endpoint in self.store.slices.values().flat_map(|slice| &slice.endpoints) {
            let zones: Vec<&str> = endpoint.zone_hints().iter().map(|zone| &**zone).collect();
            if !zones.is_empty() {
                *counts.entry(zones.join("+")).or_default() += 1;
            }
        }
        counts
    }

    /// The number of endpoints and slices of each subset; `""` stands for slices without a subset.
    pub(crate) fn subsets(&self) -> BTreeMap<String, (usize, usize)> {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for slice in self.store.slices.values() {
            let label = slice.subset().map_or(String::new(), |subset| {
                let (key, value) = subset.label();
                format!("{}={value}", key.rsplit('/').next().unwrap())
            });
            let (endpoints, slices) = counts.entry(label).or_default();
            *endpoints += slice.endpoints.len();
            *slices += 1;
        }
        counts
    }

    /// The zone shares, if every slice carries the same.
    pub(crate) fn shares(&self) -> Option<String> {
        let mut shares = self
            .store
            .slices
            .values()
            .map(|slice| slice.annotations.get("zonewise.dev/zone-shares").map(str::to_owned));
        let first = shares.next().flatten();
        assert!(shares.all(|other| other == first), "the same bytes on every slice");
        first
    }
}

/// The reason of the first family.
pub(crate) fn code(plan: &Plan) -> Code {
    plan.families[0].reason.code()
}

/// A map from pairs.
pub(crate) fn map<V>(pairs: impl IntoIterator<Item = (&'static str, V)>) -> BTreeMap<String, V> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
