//! Draws a random cluster: nodes of all kinds, Pods, a Service that asks for anything, and slices from
//! an earlier time.

use serde_json::{Value, json};
use zonewise_common::testing::arbitrary::Random;
use zonewise_explain::environment::Component;

use super::documents::Cluster;

/// Draws that a seed determines. Seeds are recorded, so that these draws must stay as they are.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end.max(1) as u64) as usize
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
    let shape = shape(dice);
    objects.push(shaped(shape, service(dice, dual)));
    let hot = dice.chance(30).then(|| names[dice.below(names.len())].clone());
    for number in 0..dice.below(15) {
        objects.push(pod(dice, number, &names, hot.as_deref(), dual));
    }
    let mut cluster = Cluster::of(objects);
    cluster.count_nodes = dice.chance(20);
    cluster.upstream = dice.chance(10);
    if !shape.is_managed() {
        cluster.objects.extend(slices_of_others(dice, shape, &names, dual));
    } else if dice.chance(60) {
        cluster = cluster.settled();
        change(dice, &mut cluster, &names, shape, dual);
    }
    if shape.is_managed() && dice.chance(8) {
        let hinted = dice.chance(30);
        cluster.objects.push(foreign_slice(hinted));
    }
    // After the slices were written, so that some are left over from what is off now.
    if !cluster.upstream && dice.chance(15) {
        cluster.gates_off = some(dice, &CONTROLLER_GATES);
    }
    if dice.chance(15) {
        cluster.proxy_gates_off = Some(some(dice, &PROXY_GATES));
    }
    if dice.chance(45) {
        cluster.objects.extend(programs(dice, &names));
        let all = [Component::Controller, Component::Proxy];
        cluster.here = Some(if dice.chance(30) { some(dice, &all) } else { Vec::new() });
    }
    cluster
}

const CONTROLLER_GATES: [&str; 3] =
    ["TopologyAwareHints", "TopologyAwareSubsetting", "ServiceRoutingPreference"];
const PROXY_GATES: [&str; 5] = ["hints", "nodeHints", "preference", "shares", "subsetting"];

/// Each one with a chance of a half.
fn some<T: Copy>(dice: &mut Dice, all: &[T]) -> Vec<T> {
    all.iter().copied().filter(|_| dice.chance(50)).collect()
}

/// What kind of Service it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    NodePort,
    LocalInside,
    LocalOutside,
    LocalBoth,
    /// Local for traffic from inside, and reachable from outside.
    LocalInsideNodePort,
    Headless,
    ExternalName,
    WithoutSelector,
    WithoutSelectorLocal,
}

impl Shape {
    fn is_managed(self) -> bool {
        !matches!(self, Self::ExternalName | Self::WithoutSelector | Self::WithoutSelectorLocal)
    }
}

fn shape(dice: &mut Dice) -> Shape {
    match dice.below(40) {
        0..=23 => Shape::Plain,
        24 => Shape::NodePort,
        25..=28 => Shape::LocalInside,
        29 | 30 => Shape::LocalOutside,
        31 => Shape::LocalBoth,
        32 => Shape::LocalInsideNodePort,
        33 | 34 => Shape::Headless,
        35 => Shape::ExternalName,
        36 => Shape::WithoutSelectorLocal,
        _ => Shape::WithoutSelector,
    }
}

fn shaped(shape: Shape, mut service: Value) -> Value {
    use Shape::{
        ExternalName, Headless, LocalBoth, LocalInside, LocalInsideNodePort, LocalOutside,
        NodePort, WithoutSelector, WithoutSelectorLocal,
    };
    let spec = service["spec"].as_object_mut().unwrap();
    if matches!(shape, NodePort | LocalOutside | LocalBoth | LocalInsideNodePort) {
        spec["type"] = "NodePort".into();
        spec["ports"][0]["nodePort"] = 30080.into();
    }
    if matches!(shape, LocalInside | LocalBoth | LocalInsideNodePort | WithoutSelectorLocal) {
        spec.insert("internalTrafficPolicy".into(), "Local".into());
    }
    if matches!(shape, LocalOutside | LocalBoth) {
        spec.insert("externalTrafficPolicy".into(), "Local".into());
    }
    if shape == Headless {
        spec["clusterIP"] = "None".into();
        spec["clusterIPs"] = json!(["None"]);
    }
    if matches!(shape, ExternalName | WithoutSelector | WithoutSelectorLocal) {
        spec.remove("selector");
    }
    if shape == ExternalName {
        spec["type"] = "ExternalName".into();
        spec.insert("externalName".into(), "web.example.com".into());
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    service
}

/// The slices of a Service without a selector, as people and other controllers write them.
fn slices_of_others(dice: &mut Dice, shape: Shape, names: &[String], dual: bool) -> Vec<Value> {
    let mut slices = Vec::new();
    let count = if shape == Shape::ExternalName { 0 } else { dice.below(4) };
    let (hinted, by_node) = (dice.chance(50), dice.chance(30));
    let family = if dual && dice.chance(30) { "IPv6" } else { "IPv4" };
    for number in 0..count {
        let endpoints: Vec<Value> = (0..dice.below(5))
            .map(|index| {
                let address = if family == "IPv6" {
                    format!("fd00:8::{}:{}", number + 1, index + 1)
                } else {
                    format!("10.8.{number}.{index}")
                };
                let mut endpoint = json!({"addresses": [address], "conditions": {}});
                if dice.chance(80) {
                    endpoint["zone"] = (*dice.pick(&ZONES)).into();
                }
                if dice.chance(60) {
                    endpoint["nodeName"] = dice.pick(names).clone().into();
                }
                if hinted && dice.chance(95) {
                    endpoint["hints"]["forZones"] = json!([{"name": dice.pick(&ZONES[..3])}]);
                }
                if by_node && dice.chance(95) {
                    endpoint["hints"]["forNodes"] = json!([{"name": dice.pick(names)}]);
                }
                endpoint["conditions"] = dice
                    .pick(&[
                        json!({}),
                        json!({"ready": true}),
                        json!({"ready": true, "serving": true, "terminating": false}),
                        json!({"ready": false}),
                        json!({"ready": false, "serving": true, "terminating": true}),
                    ])
                    .clone();
                endpoint
            })
            .collect();
        slices.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("slice-{number}"),
                "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "someone"}},
            "addressType": family, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        }));
    }
    slices
}

/// What runs in the cluster, as far as a dump shows it: Leases, and the Pods and settings of proxies.
fn programs(dice: &mut Dice, nodes: &[String]) -> Vec<Value> {
    let mut objects = Vec::new();
    if dice.chance(80) {
        objects.push(lease("kube-node-lease", "some-node", Some("some-node"), NOW));
    }
    match dice.below(5) {
        0 => objects.push(own_lease("zonewise-controller", Some("me"), OLD)),
        1 => objects.push(own_lease("zonewise-controller", None, FRESH)),
        2 | 3 => objects.push(own_lease("zonewise-controller", Some("me"), FRESH)),
        _ => {}
    }
    match dice.below(4) {
        0 => {}
        1 => objects.push(lease("kube-system", "kube-controller-manager", Some("me"), OLD)),
        _ => objects.push(lease("kube-system", "kube-controller-manager", Some("me"), FRESH)),
    }
    let (usual, alike) = (dice.below(5), dice.chance(70));
    for node in nodes {
        match if alike { usual } else { dice.below(6) } {
            0 | 1 => objects.push(program("kube-proxy", node)),
            2 => objects.push(program("cilium", node)),
            3 => objects.push(proxy_lease(node, FRESH)),
            4 => {}
            _ => {
                objects.push(proxy_lease(node, if dice.chance(50) { OLD } else { FRESH }));
                let name = *dice.pick(&["kube-proxy", "cilium"]);
                objects.push(program(name, node));
            }
        }
    }
    let setting = |replaces: &str, topology: &str| json!({"kube-proxy-replacement": replaces, "enable-service-topology": topology});
    let data = match dice.below(5) {
        0 => return objects,
        1 => setting("false", "false"),
        2 => setting("true", "false"),
        _ => setting("true", "true"),
    };
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "cilium-config"}, "data": data,
    }));
    objects
}

/// The renewal of the newest Lease, and others before it. Leases are valid for 15 seconds.
const NOW: &str = "2026-01-01T12:00:00.000000Z";
const FRESH: &str = "2026-01-01T11:59:50.000000Z";
const OLD: &str = "2026-01-01T11:58:00.000000Z";

fn lease(namespace: &str, name: &str, holder: Option<&str>, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    })
}

fn own_lease(name: &str, holder: Option<&str>, renewed: &str) -> Value {
    lease("zonewise-system", name, holder, renewed)
}

fn proxy_lease(node: &str, renewed: &str) -> Value {
    let mut lease = own_lease(&format!("zonewise-proxy-{node}"), Some(node), renewed);
    lease["metadata"]["labels"] = json!({"zonewise.dev/component": "proxy"});
    lease
}

/// The Pod of a proxy.
fn program(app: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "kube-system", "name": format!("{app}-{node}"), "uid": format!("{app}-{node}"),
            "labels": {"k8s-app": app}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running"},
    })
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

const HEURISTICS: [&str; 15] = [
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
    "balanced-hints",
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
fn change(dice: &mut Dice, cluster: &mut Cluster, names: &[String], shape: Shape, dual: bool) {
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
        let other = shaped(shape, service(dice, dual));
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
