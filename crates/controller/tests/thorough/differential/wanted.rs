//! What should be in both clusters, and random steps that change it.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use serde_json::{Value, json};
use zonewise_testbed::objects::{node, pod, service, set_ready};

const APPS: [&str; 3] = ["red", "green", "blue"];
/// Zones of different sizes, so that no two have the same need of endpoints.
const ZONES: [(&str, &str); 3] = [("a", "3"), ("b", "5"), ("c", "8")];
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What is done to the API server at once. All objects of an action are of one kind, because the
/// reference's result otherwise depends on the order in which it notices the changes.
pub(super) enum Action {
    Create(Vec<Value>),
    Update(Vec<Value>),
    /// Changes the CPU of nodes and nothing else.
    UpdateCpu(Vec<Value>),
    Delete(Vec<Value>),
    /// Deletes Pods with their grace period: they stay, terminating.
    Terminate(Vec<Value>),
    /// Deletes the slices of a Service, as an administrator might.
    DeleteSlices(String, String),
}

impl Action {
    /// Whether nodes change in a way that the reference notices: in anything but their CPU.
    pub(super) fn is_about_nodes(&self) -> bool {
        let (Self::Create(all) | Self::Update(all) | Self::Delete(all)) = self else {
            return false;
        };
        all.iter().any(|object| object["kind"] == "Node")
    }
}

/// Actions, each noticed before the next; the outcome of the last one is compared.
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self { actions: vec![action] }
    }
}

/// Kinds of steps. Every sequence has each of them, in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AddPod,
    AddPods,
    RemovePods,
    FlipPods,
    TerminatePods,
    EndPods,
    Routing,
    Ports,
    Selector,
    Families,
    DeleteService,
    /// Creates the Service that has been deleted.
    CreateService,
    DeleteSlices,
    NodeReady,
    NodeZone,
    NodeCpu,
    DeleteNode,
    /// Creates the node that has been deleted.
    CreateNode,
    Touch,
}

const KINDS: [Kind; 23] = [
    Kind::AddPod,
    Kind::AddPods,
    Kind::AddPods,
    Kind::RemovePods,
    Kind::RemovePods,
    Kind::FlipPods,
    Kind::FlipPods,
    Kind::TerminatePods,
    Kind::TerminatePods,
    Kind::EndPods,
    Kind::Routing,
    Kind::Routing,
    Kind::Routing,
    Kind::Ports,
    Kind::Ports,
    Kind::Selector,
    Kind::Families,
    Kind::DeleteService,
    Kind::DeleteSlices,
    Kind::NodeReady,
    Kind::NodeZone,
    Kind::NodeCpu,
    Kind::DeleteNode,
];

pub(super) struct Wanted {
    pub(super) namespace: String,
    /// The most endpoints of a slice.
    pub(super) size: usize,
    seed: u64,
    rng: Rng,
    nodes: BTreeMap<String, Value>,
    /// The node that is deleted for now.
    missing: Option<Value>,
    services: BTreeMap<String, Value>,
    /// The Service that is deleted for now.
    deleted: Option<Value>,
    pods: BTreeMap<String, Value>,
    terminating: BTreeSet<String>,
    /// Services whose endpoints have been put into slices by chance; see [`Wanted::is_exact`].
    by_chance: BTreeSet<String>,
    serial: usize,
    /// Steps that are left, the last one first.
    left: Vec<Kind>,
    done: Vec<Kind>,
}

impl Wanted {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let nodes = ZONES.iter().flat_map(|(zone, cpu)| {
            [1, 2, 3].map(|n| (format!("{zone}{n}"), node(&format!("{zone}{n}"), zone, cpu)))
        });
        let size = [100, 3, rng.usize(4..=40)][(seed % 3) as usize];
        let mut left = KINDS.to_vec();
        rng.shuffle(&mut left);
        // Taken from the end: there are Pods before anything else changes.
        left.extend([Kind::Touch, Kind::AddPods, Kind::AddPods, Kind::AddPods]);
        let mut wanted = Self {
            namespace: format!("test-{seed}"),
            size,
            seed,
            rng,
            nodes: nodes.collect(),
            missing: None,
            services: BTreeMap::new(),
            deleted: None,
            pods: BTreeMap::new(),
            terminating: BTreeSet::new(),
            by_chance: BTreeSet::new(),
            serial: 0,
            left,
            done: Vec::new(),
        };
        for (name, app) in [
            ("red", "red"),
            ("green", "green"),
            ("blue", "blue"),
            ("headless", "red"),
            ("dual", "green"),
        ] {
            wanted.services.insert(name.into(), service(&wanted.namespace, name, app));
        }
        let change = |wanted: &mut Self, name: &str, key: &str, value: Value| {
            wanted.services.get_mut(name).unwrap()["spec"][key] = value;
        };
        change(&mut wanted, "headless", "clusterIP", "None".into());
        change(&mut wanted, "headless", "publishNotReadyAddresses", true.into());
        change(&mut wanted, "dual", "ipFamilyPolicy", "RequireDualStack".into());
        change(&mut wanted, "blue", "trafficDistribution", "PreferSameZone".into());
        for name in ["green", "dual"] {
            wanted.services.get_mut(name).unwrap()["metadata"]["annotations"] =
                json!({ TOPOLOGY_MODE: "Auto" });
        }
        wanted
    }

    pub(super) fn all(&self) -> Vec<Value> {
        self.nodes.values().chain(self.services.values()).cloned().collect()
    }

    pub(super) fn nodes(&self) -> Vec<Value> {
        self.nodes.values().cloned().collect()
    }

    /// What has been done so far, for the message of a failure.
    pub(super) fn log(&self) -> String {
        format!("seed {}, {} endpoints per slice, after {:?}", self.seed, self.size, self.done)
    }

    /// Whether a Service asks for hints by CPU: which endpoints of a zone serve other zones is then up
    /// to chance.
    pub(super) fn is_auto(&self, service: &str) -> bool {
        let known = self.services.get(service).or(self.deleted.as_ref());
        known.is_some_and(|known| known["metadata"]["annotations"][TOPOLOGY_MODE] == "Auto")
    }

    /// Whether the sizes of a Service's slices follow from the objects. Where endpoints leave several
    /// slices, or come in several syncs, they depend on which endpoint is in which slice, and on the
    /// number of syncs; and both are up to chance in the reference.
    pub(super) fn is_exact(&self, service: &str) -> bool {
        !self.by_chance.contains(service)
    }

    /// The IPv4 addresses that a Service must have in the end: `None` while that depends on the time
    /// of its last sync.
    pub(super) fn addresses(&self, service: &str) -> Option<BTreeSet<String>> {
        let service = self.services.get(service).filter(|_| self.missing.is_none())?;
        let selected = self.selected(service).filter(|pod| pod["status"]["phase"] == "Running");
        Some(selected.map(|pod| pod["status"]["podIP"].as_str().unwrap().to_owned()).collect())
    }

    fn selected<'a>(&'a self, service: &'a Value) -> impl Iterator<Item = &'a Value> {
        let app = &service["spec"]["selector"]["app"];
        self.pods.values().filter(move |pod| pod["metadata"]["labels"]["app"] == *app)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.services.keys()
    }

    /// The next step; `None` at the end.
    pub(super) fn step(&mut self) -> Option<Step> {
        let kind = self.left.pop()?;
        self.done.push(kind);
        Some(match kind {
            Kind::AddPod => self.add_pods(1),
            Kind::AddPods => self.add_some_pods(),
            Kind::RemovePods => self.remove_pods(),
            Kind::FlipPods => self.flip_pods(),
            Kind::TerminatePods => self.terminate_pods(),
            Kind::EndPods => self.end_pods(),
            Kind::Routing => self.change_routing(),
            Kind::Ports => self.change_ports(),
            Kind::Selector => self.change_selector(),
            Kind::Families => self.change_families(),
            Kind::DeleteService => self.delete_service(),
            Kind::CreateService => self.create_service(),
            Kind::DeleteSlices => self.delete_slices(),
            Kind::NodeReady => self.change_node_ready(),
            Kind::NodeZone => self.change_node_zone(),
            Kind::NodeCpu => self.change_node_cpu(),
            Kind::DeleteNode => self.delete_node(),
            Kind::CreateNode => self.create_node(),
            Kind::Touch => Step::from(self.touch()),
        })
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Pods.
impl Wanted {
    fn add_some_pods(&mut self) -> Step {
        let count = self.rng.usize(4..=12);
        self.add_pods(count)
    }

    fn add_pods(&mut self, count: usize) -> Step {
        // The app with the fewest Pods: all of them get some.
        let pods_of = |app: &str| {
            self.pods.values().filter(|pod| pod["metadata"]["labels"]["app"] == app).count()
        };
        let app = *APPS.iter().min_by_key(|app| pods_of(app)).unwrap();
        let new: Vec<Value> = (0..count).map(|_| self.new_pod(app)).collect();
        if count > 1 {
            self.packed_by_chance();
        }
        Action::Create(new).into()
    }

    fn new_pod(&mut self, app: &str) -> Value {
        self.serial += 1;
        let node = self.some_node();
        let name = format!("{app}-{}", self.serial);
        let ip = format!("10.4.{}.{}", self.serial / 200, 1 + self.serial % 200);
        let mut one = pod(&self.namespace, &name, app, &node, &ip);
        if self.rng.u8(..3) == 0 {
            one["spec"]["hostname"] = name.clone().into();
            one["spec"]["subdomain"] = app.into();
        }
        let number = 8080 + self.rng.u16(..2);
        one["spec"]["containers"][0]["ports"][0]["containerPort"] = number.into();
        if self.rng.u8(..6) > 0 {
            one["status"]["podIPs"] =
                json!([{ "ip": ip }, { "ip": format!("fd00:4::{:x}", self.serial) }]);
        }
        self.pods.insert(name, one.clone());
        one
    }

    /// Names of Pods; with `all`, also of those that are terminating or have ended.
    fn some_pods(&mut self, most: usize, all: bool) -> Vec<String> {
        let alive = |name: &String, pod: &Value| {
            !self.terminating.contains(name) && pod["status"]["phase"] == "Running"
        };
        let pods = self.pods.iter().filter(|(name, pod)| all || alive(name, pod));
        let mut names: Vec<String> = pods.map(|(name, _)| name.clone()).collect();
        self.rng.shuffle(&mut names);
        names.truncate(self.rng.usize(1..=most));
        names
    }

    fn remove_pods(&mut self) -> Step {
        self.packed_by_chance();
        let names = self.some_pods(6, true);
        Action::Delete(names.iter().map(|name| self.pods.remove(name).unwrap()).collect()).into()
    }

    fn change_pods(&mut self, names: &[String], change: impl Fn(&mut Value)) -> Vec<Value> {
        let changed = names.iter().map(|name| {
            let one = self.pods.get_mut(name).unwrap();
            change(one);
            one.clone()
        });
        changed.collect()
    }

    fn flip_pods(&mut self) -> Step {
        let names = self.some_pods(6, true);
        let flip = |one: &mut Value| {
            let ready = is_ready(one);
            set_ready(one, !ready);
        };
        Action::Update(self.change_pods(&names, flip)).into()
    }

    fn terminate_pods(&mut self) -> Step {
        let names = self.some_pods(4, false);
        let pods = names.iter().map(|name| self.pods[name].clone()).collect();
        self.terminating.extend(names);
        Action::Terminate(pods).into()
    }

    /// Pods that have ended are no endpoints any more. The reference does not notice the end of a Pod
    /// that was not ready.
    fn end_pods(&mut self) -> Step {
        self.packed_by_chance();
        let mut names = self.some_pods(6, false);
        names.retain(|name| is_ready(&self.pods[name]));
        let phase = ["Succeeded", "Failed"][self.rng.usize(..2)];
        let end = |one: &mut Value| {
            one["status"]["phase"] = phase.into();
            set_ready(one, false);
        };
        Action::Update(self.change_pods(&names, end)).into()
    }

    /// Endpoints come or go: from now on chance decides the sizes where there is more than one slice.
    fn packed_by_chance(&mut self) {
        let several: Vec<String> = self
            .services
            .iter()
            .filter(|(_, service)| self.selected(service).count() > self.size)
            .map(|(name, _)| name.clone())
            .collect();
        self.by_chance.extend(several);
    }
}

/// Services.
impl Wanted {
    fn some_service(&mut self) -> String {
        let names: Vec<String> = self.services.keys().cloned().collect();
        self.rng.choice(names).unwrap()
    }

    fn change_routing(&mut self) -> Step {
        let mut changed = BTreeMap::new();
        for _ in 0..self.rng.usize(1..=3) {
            let (name, choice) = (self.some_service(), self.rng.u8(..6));
            let one = self.services.get_mut(&name).unwrap();
            let mode = |value: &str| json!({ TOPOLOGY_MODE: value });
            one["metadata"]["annotations"] = json!({});
            one["spec"]["trafficDistribution"] = Value::Null;
            match choice {
                0 | 1 => one["metadata"]["annotations"] = mode("Auto"),
                2 => one["spec"]["trafficDistribution"] = "PreferSameZone".into(),
                3 => one["spec"]["trafficDistribution"] = "PreferSameNode".into(),
                4 => {
                    one["metadata"]["annotations"] = mode("Disabled");
                    one["spec"]["trafficDistribution"] = "PreferClose".into();
                }
                _ => {}
            }
            changed.insert(name, one.clone());
        }
        Action::Update(changed.into_values().collect()).into()
    }

    fn change_ports(&mut self) -> Step {
        let (name, choice) = (self.some_service(), self.rng.u8(..3));
        let ports = match choice {
            0 => json!([{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }]),
            1 => json!([
                { "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" },
                { "name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP", "appProtocol": "https" },
            ]),
            _ => json!([{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }]),
        };
        let one = self.services.get_mut(&name).unwrap();
        let before = std::mem::replace(&mut one["spec"]["ports"], ports);
        let (one, count) = (one.clone(), |ports: &Value| ports.as_array().map(Vec::len));
        if count(&before) != count(&one["spec"]["ports"]) {
            // No slice has the new ports: all are created in one sync.
            self.by_chance.remove(&name);
        } else if self.selected(&one).count() > self.size {
            self.by_chance.insert(name);
        }
        Action::Update(vec![one]).into()
    }

    /// All endpoints are replaced in one sync, so that the slices are filled from the first to the
    /// last.
    fn change_selector(&mut self) -> Step {
        let (name, app) = (self.some_service(), self.rng.choice(APPS).unwrap());
        let one = self.services.get_mut(&name).unwrap();
        if one["spec"]["selector"]["app"] != app {
            self.by_chance.remove(&name);
        }
        one["spec"]["selector"]["app"] = app.into();
        Action::Update(vec![one.clone()]).into()
    }

    fn change_families(&mut self) -> Step {
        let name = self.some_service();
        let one = self.services.get_mut(&name).unwrap();
        let dual = one["spec"]["ipFamilyPolicy"] == "RequireDualStack";
        let policy = if dual { "SingleStack" } else { "RequireDualStack" };
        one["spec"]["ipFamilyPolicy"] = policy.into();
        Action::Update(vec![one.clone()]).into()
    }

    /// Deletes a Service; one of its name is created next. No garbage collector runs, so that the
    /// slices of the deleted Service are still there when the next one comes.
    fn delete_service(&mut self) -> Step {
        let name = self.some_service();
        self.deleted = self.services.remove(&name);
        self.left.push(Kind::CreateService);
        Action::Delete(self.deleted.iter().cloned().collect()).into()
    }

    /// All slices are created in one sync.
    fn create_service(&mut self) -> Step {
        let mut new = self.deleted.take().unwrap();
        new["spec"]["publishNotReadyAddresses"] = self.rng.bool().into();
        new["spec"]["clusterIP"] = if self.rng.bool() { "None".into() } else { Value::Null };
        let name = new["metadata"]["name"].as_str().unwrap().to_owned();
        self.by_chance.remove(&name);
        self.services.insert(name, new.clone());
        Action::Create(vec![new]).into()
    }

    fn delete_slices(&mut self) -> Step {
        self.packed_by_chance();
        Action::DeleteSlices(self.namespace.clone(), self.some_service()).into()
    }

    /// Changes the labels of all Services: their slices are written anew.
    fn touch(&mut self) -> Action {
        self.serial += 1;
        let label = json!({ "touched": self.serial.to_string() });
        for service in self.services.values_mut() {
            service["metadata"]["labels"] = label.clone();
        }
        Action::Update(self.services.values().cloned().collect())
    }
}

/// Nodes.
impl Wanted {
    fn some_node(&mut self) -> String {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        self.rng.choice(names).unwrap()
    }

    fn change_node(&mut self, change: impl FnOnce(&mut Value)) -> Step {
        let name = self.some_node();
        let one = self.nodes.get_mut(&name).unwrap();
        change(one);
        let action = Action::Update(vec![one.clone()]);
        self.with_touch(action)
    }

    /// Changes nodes, and then all Services, so that all are synced. Without that it is up to chance
    /// which ones the reference syncs: it picks them by the hints per zone, and a sync that found its
    /// cache out of date is repeated a second later, in the middle of another step.
    fn with_touch(&mut self, action: Action) -> Step {
        Step { actions: vec![action, self.touch()] }
    }

    fn change_node_ready(&mut self) -> Step {
        self.change_node(|one| {
            let ready = is_ready(one);
            set_ready(one, !ready);
        })
    }

    fn change_node_zone(&mut self) -> Step {
        let zone = self.rng.choice(ZONES).unwrap().0;
        self.change_node(|one| one["metadata"]["labels"][ZONE] = zone.into())
    }

    fn change_node_cpu(&mut self) -> Step {
        let cpu = ["1", "2500m", "12", "40"][self.rng.usize(..4)];
        let name = self.some_node();
        let one = self.nodes.get_mut(&name).unwrap();
        one["status"]["allocatable"]["cpu"] = cpu.into();
        Action::UpdateCpu(vec![one.clone()]).into()
    }

    /// Deletes a node; it comes back after Pods have changed. Services that are synced in between lose
    /// its Pods, unless they publish Pods that are not ready, and the controllers try them again until
    /// the node is back.
    fn delete_node(&mut self) -> Step {
        self.packed_by_chance();
        let name = self.some_node();
        self.missing = self.nodes.remove(&name);
        self.left.extend([Kind::CreateNode, Kind::FlipPods]);
        let action = Action::Delete(self.missing.iter().cloned().collect());
        self.with_touch(action)
    }

    fn create_node(&mut self) -> Step {
        let node = self.missing.take().unwrap();
        self.nodes.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), node.clone());
        self.with_touch(Action::Create(vec![node]))
    }
}
