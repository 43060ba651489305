//! Draws a random cluster: nodes of all kinds, Pods, a Service that asks for anything, and slices from
//! an earlier time.

use serde_json::{Value, json};

use super::documents::Cluster;

/// Random numbers that a seed determines (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ZONES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A cluster, perhaps with slices that were written before its Pods and nodes changed.
pub(crate) fn cluster(seed: u64) -> Cluster {
    let dice = &mut Dice::new(seed);
    let regional = dice.chance(40);
    let mut objects = nodes(dice, regional);
    let names: Vec<String> = objects.iter().map(name).collect();
    let dual = dice.chance(20);
    objects.push(service(dice, dual));
    let hot = dice.chance(30).then(|| names[dice.below(names.len())].clone());
    for number in 0..dice.below(15) {
        objects.push(pod(dice, number, &names, hot.as_deref(), dual));
    }
    let mut cluster = Cluster::of(objects);
    cluster.count_nodes = dice.chance(20);
    cluster.upstream = dice.chance(10);
    if dice.chance(60) {
        cluster = cluster.settled();
        change(dice, &mut cluster, &names, dual);
    }
    if dice.chance(8) {
        let hinted = dice.chance(30);
        cluster.objects.push(foreign_slice(hinted));
    }
    cluster
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn nodes(dice: &mut Dice, regional: bool) -> Vec<Value> {
    let zones = 2 + dice.below(5);
    let silent = dice.chance(15);
    let mut nodes = Vec::new();
    for (index, zone) in ZONES.iter().enumerate().take(zones) {
        for number in 0..1 + dice.below(3) {
            let region = if index % 2 == 0 { "r1" } else { "r2" };
            let mut labels = json!({ZONE: zone});
            if regional {
                labels[REGION] = region.into();
            }
            nodes.push(node(dice, &format!("{zone}{number}"), labels, silent));
        }
    }
    if dice.chance(10) {
        nodes.push(node(dice, "unlabelled", json!({}), silent));
    }
    nodes
}

fn node(dice: &mut Dice, name: &str, mut labels: Value, silent: bool) -> Value {
    if dice.chance(8) {
        labels["node-role.kubernetes.io/control-plane"] = "".into();
    }
    let ready = if dice.chance(90) { "True" } else { "False" };
    let mut allocatable = json!({"cpu": dice.pick(&["1", "2", "4", "4", "8", "12", "3500m"])});
    if silent && dice.chance(30) {
        allocatable = json!({});
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

const HEURISTICS: [&str; 14] = [
    "random",
    "local",
    "local-shared",
    "local-weighted",
    "local-opt",
    "shared-global",
    "shared-multizone",
    "auto",
    "same-zone",
    "same-node",
    "spread",
    "require-zone",
    "local-subset",
    "balanced",
];

fn service(dice: &mut Dice, dual: bool) -> Value {
    let (auto, subsetting, preference) = (
        "service.kubernetes.io/topology-mode",
        "endpointslice.kubernetes.io/subsetting",
        "zonewise.dev/routing-preference",
    );
    let (mut annotations, mut distribution) = (json!({}), Value::Null);
    let heuristic = |dice: &mut Dice| format!("zonewise.dev/{}", dice.pick(&HEURISTICS));
    match dice.below(12) {
        0 => {}
        1 | 2 => annotations[auto] = "Auto".into(),
        3 | 4 => annotations[subsetting] = (*dice.pick(&["Auto", "Require", "Region"])).into(),
        5 | 6 => {
            let value = dice.pick(&["PreferSameZone", "PreferClose", "PreferSameNode"]);
            distribution = (*value).into();
        }
        7 => {
            annotations[preference] =
                (*dice.pick(&["Zone", "Spread", "zonewise.dev/balancd"])).into();
        }
        8 => {
            annotations[*dice.pick(&[auto, subsetting])] = "Auto".into();
            annotations[preference] = heuristic(dice).into();
        }
        _ => annotations[preference] = heuristic(dice).into(),
    }
    if dice.chance(20) {
        annotations["zonewise.dev/starting-threshold"] = (1 + dice.below(6)).to_string().into();
    }
    if dice.chance(20) {
        annotations["zonewise.dev/padding"] = dice.below(3).to_string().into();
    }
    let (families, ips) = if dual {
        (json!(["IPv4", "IPv6"]), json!(["10.96.0.2", "fd00:96::2"]))
    } else {
        (json!(["IPv4"]), json!(["10.96.0.2"]))
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "svc-uid", "annotations": annotations},
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.2", "clusterIPs": ips, "ipFamilies": families,
            "selector": {"app": "web"}, "trafficDistribution": distribution,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    })
}

fn pod(dice: &mut Dice, number: usize, nodes: &[String], hot: Option<&str>, dual: bool) -> Value {
    let node = match hot {
        Some(hot) if dice.chance(60) => hot,
        _ => dice.pick(nodes),
    };
    let mut ips = vec![json!({"ip": format!("10.0.0.{}", number + 1)})];
    if dual && dice.chance(85) {
        ips.push(json!({"ip": format!("fd00::{:x}", number + 1)}));
    }
    let mut pod = ready_pod(&format!("p{number}"), node, &ips);
    if dice.chance(10) {
        pod["status"]["conditions"][0]["status"] = "False".into();
    }
    if dice.chance(8) {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    pod
}

/// A ready Pod of the Service.
pub(crate) fn ready_pod(name: &str, node: &str, ips: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// What happens after the slices were written: Pods come and go, and nodes.
fn change(dice: &mut Dice, cluster: &mut Cluster, names: &[String], dual: bool) {
    let leave = dice.below(35);
    cluster.objects.retain(|object| object["kind"] != "Pod" || !dice.chance(leave));
    for number in 20..20 + dice.below(5) {
        cluster.objects.push(pod(dice, number, names, None, dual));
    }
    if dice.chance(15) {
        let gone = dice.pick(names).clone();
        cluster.objects.retain(|object| object["kind"] != "Node" || name(object) != gone);
    }
    if dice.chance(15) {
        let other = service(dice, dual);
        for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
            *object = other.clone();
        }
    }
}

/// A slice that another controller writes.
fn foreign_slice(hinted: bool) -> Value {
    let mut endpoint =
        json!({"addresses": ["10.9.9.9"], "conditions": {"ready": true}, "zone": "a"});
    if hinted {
        endpoint["hints"] = json!({"forZones": [{"name": "a"}]});
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-other", "namespace": "shop", "uid": "other", "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "someone"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [endpoint],
    })
}
