//! Random changes, step by step, on two API servers: one with the reference controller, one with
//! ours in `--compat upstream`. After each step both must hold the same slices.
//!
//! Left out of the comparison is what the reference leaves to chance: names, and which endpoint of
//! a zone is hinted to another zone (the counts must agree). Left out of the changes is what it
//! reacts to by chance: one step changes one kind of object only.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Running, apply_roles};
use serde_json::{Value, json};
use zonewise_testbed::Cluster;
use zonewise_testbed::objects::{namespace, node, pod, service, set_ready};

/// The same numbers on every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

const APPS: [&str; 3] = ["red", "green", "blue"];
/// Different sizes, so that no two zones are equally much in need.
const ZONES: [(&str, &str); 3] = [("a", "3"), ("b", "5"), ("c", "8")];

/// What should be in both clusters.
struct WantedObjects {
    random: SeededRandom,
    nodes: BTreeMap<String, Value>,
    services: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    serial: usize,
}

/// What a step does to the API server.
#[derive(Clone)]
enum Step {
    Create(Vec<Value>),
    Update(Vec<Value>),
    Delete(Vec<Value>),
}

impl WantedObjects {
    fn new() -> Self {
        let nodes = ZONES.iter().flat_map(|(zone, cpu)| {
            [1, 2, 3].map(|n| (format!("{zone}{n}"), node(&format!("{zone}{n}"), zone, cpu)))
        });
        let mut wanted = Self {
            random: SeededRandom(42),
            nodes: nodes.collect(),
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
            serial: 0,
        };
        for app in APPS {
            wanted.services.insert(app.into(), service("test", app, app));
        }
        let mut headless = service("test", "headless", "red");
        headless["spec"]["clusterIP"] = "None".into();
        headless["spec"]["publishNotReadyAddresses"] = true.into();
        wanted.services.insert("headless".into(), headless);
        let mut dual = service("test", "dual", "green");
        dual["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
        wanted.services.insert("dual".into(), dual);
        wanted
    }

    fn all(&self) -> Vec<Value> {
        self.nodes.values().chain(self.services.values()).cloned().collect()
    }

    fn step(&mut self) -> Step {
        match self.random.below(10) {
            0..=3 => self.add_pods(),
            4 => self.remove_pods(),
            5 | 6 => self.flip_pods(),
            7 => self.change_service(),
            8 => self.change_ports(),
            _ => self.change_node(),
        }
    }

    fn add_pods(&mut self) -> Step {
        let app = APPS[self.random.below(APPS.len())];
        let new: Vec<Value> = (0..1 + self.random.below(8))
            .map(|_| {
                self.serial += 1;
                let zone = ZONES[self.random.below(3)].0;
                let node = format!("{zone}{}", 1 + self.random.below(3));
                let name = format!("{app}-{}", self.serial);
                let ip = format!("10.4.{}.{}", self.serial / 200, 1 + self.serial % 200);
                let mut one = pod("test", &name, app, &node, &ip);
                if self.random.below(3) == 0 {
                    one["spec"]["hostname"] = name.clone().into();
                    one["spec"]["subdomain"] = app.into();
                }
                let number = 8080 + self.random.below(2);
                one["spec"]["containers"][0]["ports"][0]["containerPort"] = number.into();
                one["status"]["podIPs"] =
                    json!([{ "ip": ip }, { "ip": format!("fd00:4::{:x}", self.serial) }]);
                self.pods.insert(name, one.clone());
                one
            })
            .collect();
        Step::Create(new)
    }

    fn some_pods(&mut self, most: usize) -> Vec<String> {
        let all: Vec<String> = self.pods.keys().cloned().collect();
        let count = self.random.below(most) + 1;
        let mut chosen: Vec<String> = Vec::new();
        for _ in 0..count.min(all.len()) {
            let one = all[self.random.below(all.len())].clone();
            if !chosen.contains(&one) {
                chosen.push(one);
            }
        }
        chosen
    }

    fn remove_pods(&mut self) -> Step {
        let names = self.some_pods(5);
        Step::Delete(names.iter().map(|name| self.pods.remove(name).unwrap()).collect())
    }

    fn flip_pods(&mut self) -> Step {
        let names = self.some_pods(4);
        let flipped = names.iter().map(|name| {
            let one = self.pods.get_mut(name).unwrap();
            let ready = one["status"]["conditions"][1]["status"] == "True";
            set_ready(one, !ready);
            one.clone()
        });
        Step::Update(flipped.collect())
    }

    fn change_service(&mut self) -> Step {
        let names: Vec<String> = self.services.keys().cloned().collect();
        let name = &names[self.random.below(names.len())];
        let choice = self.random.below(6);
        let one = self.services.get_mut(name).unwrap();
        let annotation = |value: &str| json!({ "service.kubernetes.io/topology-mode": value });
        one["metadata"]["annotations"] = json!({});
        one["spec"]["trafficDistribution"] = Value::Null;
        match choice {
            0 | 1 => one["metadata"]["annotations"] = annotation("Auto"),
            2 => one["spec"]["trafficDistribution"] = "PreferSameZone".into(),
            3 => one["spec"]["trafficDistribution"] = "PreferSameNode".into(),
            4 => {
                one["metadata"]["annotations"] = annotation("Disabled");
                one["spec"]["trafficDistribution"] = "PreferClose".into();
            }
            _ => one["metadata"]["labels"] = json!({ "round": self.serial.to_string() }),
        }
        Step::Update(vec![one.clone()])
    }

    fn change_ports(&mut self) -> Step {
        let app = APPS[self.random.below(APPS.len())];
        let choice = self.random.below(3);
        let one = self.services.get_mut(app).unwrap();
        one["spec"]["ports"] = match choice {
            0 => json!([{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }]),
            1 => json!([
                { "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" },
                { "name": "https", "port": 443, "targetPort": 8443, "protocol": "TCP", "appProtocol": "https" },
            ]),
            _ => json!([{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }]),
        };
        Step::Update(vec![one.clone()])
    }

    fn change_node(&mut self) -> Step {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let name = &names[self.random.below(names.len())];
        let one = self.nodes.get_mut(name).unwrap();
        let ready = one["status"]["conditions"][0]["status"] == "True";
        set_ready(one, !ready);
        Step::Update(vec![one.clone()])
    }
}

async fn apply(cluster: &Cluster, step: &Step) {
    match step {
        Step::Create(objects) => cluster.create(objects).await,
        Step::Update(objects) => cluster.update(objects).await,
        Step::Delete(objects) => cluster.delete(objects).await,
    }
    .unwrap();
}

/// Everything that must be equal, in one order.
async fn comparable_state(cluster: &Cluster) -> Result<BTreeMap<String, Value>, String> {
    let slices =
        cluster.list("EndpointSlice", Some("test")).await.map_err(|error| error.to_string())?;
    let mut shapes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut endpoints: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut hints: BTreeMap<String, usize> = BTreeMap::new();
    for slice in &slices {
        let labels = &slice["metadata"]["labels"];
        let of = format!("{}/{}", labels["kubernetes.io/service-name"], slice["addressType"]);
        let list = slice["endpoints"].as_array().cloned().unwrap_or_default();
        let trigger =
            slice["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"]
                .is_null();
        let shape = format!("{labels} {} {} trigger {}", slice["ports"], list.len(), !trigger);
        shapes.entry(of.clone()).or_default().push(shape);
        for mut endpoint in list {
            let given = endpoint["hints"].take();
            for zone in given["forZones"].as_array().into_iter().flatten() {
                *hints.entry(format!("{of} {}", zone["name"])).or_default() += 1;
            }
            endpoint["hints"] =
                json!([given["forZones"].as_array().map(Vec::len), given["forNodes"]]);
            endpoint["targetRef"]["uid"] = Value::Null;
            endpoints.entry(of.clone()).or_default().push(endpoint.to_string());
        }
    }
    shapes.values_mut().for_each(|list| list.sort());
    endpoints.values_mut().for_each(|list| list.sort());
    let mut comparable_state = BTreeMap::new();
    for (of, list) in shapes {
        comparable_state.insert(format!("{of} slices"), json!(list));
    }
    for (of, list) in endpoints {
        comparable_state.insert(format!("{of} endpoints"), json!(list));
    }
    comparable_state.insert("hints".into(), json!(hints));
    Ok(comparable_state)
}

/// The first difference; empty when there is none.
async fn difference(reference: &Cluster, ours: &Cluster) -> String {
    let (theirs, ours) = match (comparable_state(reference).await, comparable_state(ours).await) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (theirs, ours) => return format!("{theirs:?} {ours:?}"),
    };
    let keys: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let wrong = keys.into_iter().find(|key| theirs.get(*key) != ours.get(*key));
    wrong.map_or(String::new(), |key| {
        format!("{key}:\n theirs {:?}\n ours   {:?}", theirs.get(key), ours.get(key))
    })
}

/// Waits until nothing changes any more, then compares.
async fn wait_for_agreement(reference: &Cluster, ours: &Cluster, step: usize) {
    let mut last = String::from("?");
    for _ in 0..150 {
        last = difference(reference, ours).await;
        if last.is_empty() {
            // Agreement must last: somebody may still be about to write.
            tokio::time::sleep(Duration::from_millis(300)).await;
            last = difference(reference, ours).await;
            if last.is_empty() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("step {step}: {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_slices_as_the_reference_after_each_step() {
    let (reference, ours) = tokio::join!(Cluster::start(), Cluster::start());
    let (reference, ours) = (reference.unwrap(), ours.unwrap());
    apply_roles(&ours).await;
    let mut wanted = WantedObjects::new();
    for cluster in [&reference, &ours] {
        cluster.create(&[namespace("test")]).await.unwrap();
        cluster.create(&wanted.all()).await.unwrap();
    }
    let manager = reference.controller_manager(&[]).unwrap();
    let running = Running::start(&ours, "compat: upstream").await;
    wait_for_agreement(&reference, &ours, 0).await;
    for number in 1..=60 {
        let step = wanted.step();
        tokio::join!(apply(&reference, &step), apply(&ours, &step));
        wait_for_agreement(&reference, &ours, number).await;
    }
    assert!(wanted.pods.len() > 20, "the steps did something");
    running.stop().await.unwrap();
    manager.stop().await.unwrap();
}
