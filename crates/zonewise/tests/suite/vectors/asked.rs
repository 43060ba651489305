//! Asks the commands what the recorded vectors of the reference ask.
#![allow(dead_code, reason = "every test target uses its part of this")]

#[path = "../../../../slices/tests/suite/recorded/compare.rs"]
pub(super) mod compare;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use compare::{Step, compare};
use rayon::prelude::*;
use serde_json::{Value, json};

/// Runs a command on objects; returns its document.
fn zonewise(arguments: &[&str], objects: &Value) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zonewise"))
        .args(arguments)
        .args(["-f", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = objects.to_string();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}\n{objects}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An object with its kind, as lists of a dump have it.
fn object(kind: &str, value: &Value) -> Value {
    let version = if kind == "EndpointSlice" { "discovery.k8s.io/v1" } else { "v1" };
    let mut value = value.clone();
    value["kind"] = kind.into();
    value["apiVersion"] = version.into();
    value
}

fn dump(objects: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "items": objects})
}

/// So many cases at most are asked of one process: most of what a process takes is its start.
const TOGETHER: usize = 50;

/// Cases that fit into one cluster, with their numbers: those with the same key, which stands for its nodes.
fn together(cases: &[Value], key: impl Fn(&Value) -> String) -> Vec<Vec<(usize, &Value)>> {
    let mut by_key: BTreeMap<String, Vec<(usize, &Value)>> = BTreeMap::new();
    for (number, case) in cases.iter().enumerate() {
        by_key.entry(key(case)).or_default().push((number, case));
    }
    let groups = by_key.values().flat_map(|group| group.chunks(TOGETHER));
    groups.map(<[_]>::to_vec).collect()
}

/// The namespace of a case, which has a Service named `svc` in it.
fn space(number: usize) -> String {
    format!("case-{number}")
}

/// What a document says of the Service of a case.
fn of_case(list: &Value, number: usize) -> &Value {
    let service = format!("{}/svc", space(number));
    let mut found = list.as_array().unwrap().iter().filter(|one| one["service"] == *service);
    let one = found.next().unwrap_or_else(|| panic!("nothing of {service}"));
    assert!(found.next().is_none(), "{service} is there twice");
    one
}

/// A cluster IP for each case.
fn cluster_ip(number: usize) -> String {
    format!("10.96.{}.{}", number / 250, number % 250 + 1)
}

fn all<'a>(kind: &'a str, list: &'a Value) -> impl Iterator<Item = Value> + 'a {
    list.as_array().into_iter().flatten().map(move |value| object(kind, value))
}

fn lines(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/upstream/{file}", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(path).unwrap();
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// Carries out a plan on the slices there are.
fn carry_out(plan: &Value, slices: &mut BTreeMap<String, Value>) {
    let list = |key: &str| plan[key].as_array().cloned().unwrap();
    for mut slice in list("creates").into_iter().chain(list("updates")) {
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        slice["metadata"]["uid"] = name.clone().into();
        slices.insert(name, slice);
    }
    for name in list("deletes") {
        assert!(slices.remove(name.as_str().unwrap()).is_some(), "{name} is deleted twice");
    }
}

fn step(step: &Value, slices: &mut BTreeMap<String, Value>, max: &str) -> Step {
    let mut objects = vec![object("Service", &step["service"])];
    objects.extend(all("Node", &step["nodes"]));
    objects.extend(all("Pod", &step["pods"]));
    objects.extend(slices.values().cloned());
    let arguments = ["plan", "--compat", "upstream", "--max-endpoints-per-slice", max];
    let document = zonewise(&arguments, &dump(&objects));
    let plan = &document["services"][0];
    carry_out(plan, slices);
    let count = |key: &str| plan[key].as_array().unwrap().len();
    let event = |event: &Value| {
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        format!("{} {} {}", text("type"), text("reason"), text("message"))
    };
    let events = plan["events"].as_array().unwrap().iter().map(event);
    Step {
        slices: slices.values().cloned().collect(),
        writes: [count("creates"), count("updates"), count("deletes")],
        events: events.filter(|event| !is_transition(event)).collect(),
        error: plan["explanation"]["pods"]["onUnknownNodes"] != json!(0),
    }
}

/// Events about a change from what was before: a dump does not tell whether hints that are there came
/// from the annotation or from `trafficDistribution`, so `plan` cannot always know.
fn is_transition(event: &str) -> bool {
    event.contains("Topology Aware Hints has been")
}

fn without_transitions(mut case: Value) -> Value {
    let runs = case["expected"].as_array_mut().unwrap();
    for step in runs.iter_mut().flat_map(|run| run.as_array_mut().unwrap()) {
        if let Some(events) = step["events"].as_array_mut() {
            events.retain(|event| !is_transition(event.as_str().unwrap()));
        }
    }
    case
}

/// What comes of recorded sequences, planned step by step.
pub(super) fn planned(sequences: Vec<Value>) -> Vec<Result<bool, String>> {
    let run = |case: Value| {
        let case = &without_transitions(case);
        let max = case["maxEndpointsPerSlice"].to_string();
        let mut slices = BTreeMap::new();
        let steps = case["steps"].as_array().unwrap();
        compare(case, steps.iter().map(|each| step(each, &mut slices, &max)).collect())
    };
    sequences.into_par_iter().map(run).collect()
}

/// The zones of a case that have endpoints and no capacity.
fn without_capacity(case: &Value) -> Vec<&String> {
    let capacity = case["allocatableMilliCpuByZone"].as_object().unwrap();
    let zones = case["readyEndpointsByZone"].as_object().unwrap().keys();
    zones.filter(|zone| !capacity.contains_key(*zone)).collect()
}

/// One ready worker node per zone. A zone without capacity has a node that does not count.
fn auto_nodes(case: &Value) -> Vec<Value> {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let node = |zone: &str, cpu: Option<&Value>| {
        let mut labels = json!({"topology.kubernetes.io/zone": zone});
        if cpu.is_none() {
            labels["node-role.kubernetes.io/control-plane"] = json!("");
        }
        let allocatable = cpu.map(|cpu| json!({"cpu": format!("{cpu}m")}));
        object(
            "Node",
            &json!({
                "metadata": {"name": zone, "labels": labels},
                "status": {"allocatable": allocatable, "conditions": ready},
            }),
        )
    };
    let capacity = case["allocatableMilliCpuByZone"].as_object().unwrap().iter();
    let workers = capacity.map(|(zone, cpu)| node(zone, Some(cpu)));
    workers.chain(without_capacity(case).into_iter().map(|zone| node(zone, None))).collect()
}

/// Ready Pods, and a Service that asks for hints.
fn auto_service(number: usize, case: &Value) -> Vec<Value> {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let space = space(number);
    let mut objects = Vec::new();
    for (zone, count) in case["readyEndpointsByZone"].as_object().unwrap() {
        for _ in 0..count.as_u64().unwrap() {
            let serial = objects.len() + 1;
            let ip = format!("10.{}.{}.{}", serial >> 16, serial >> 8 & 255, serial & 255);
            objects.push(object("Pod", &json!({
                "metadata": {"name": format!("pod-{serial}"), "namespace": space, "uid": format!("{number}-{serial}"), "labels": {"app": "svc"}},
                "spec": {"nodeName": zone},
                "status": {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": ready},
            })));
        }
    }
    objects.push(object("Service", &json!({
        "metadata": {"name": "svc", "namespace": space, "uid": space, "annotations": {"service.kubernetes.io/topology-mode": "Auto"}},
        "spec": {"clusterIP": cluster_ip(number), "ipFamilies": ["IPv4"], "selector": {"app": "svc"}, "ports": [{"port": 80}]},
    })));
    objects
}

fn assert_hints(case: &Value, plan: &Value) {
    let endpoints = plan["creates"].as_array().unwrap().iter();
    let endpoints = endpoints.flat_map(|slice| slice["endpoints"].as_array().unwrap());
    let mut hints: BTreeMap<String, u64> = BTreeMap::new();
    for zone in endpoints.filter_map(|one| one["hints"]["forZones"][0]["name"].as_str()) {
        *hints.entry(zone.to_owned()).or_default() += 1;
    }
    let event = &plan["events"][0];
    let text = |key: &str| event[key].as_str().unwrap();
    let told = format!("{}: {}", text("reason"), text("message"));
    assert_eq!(json!(told), case["event"], "{case}");
    let acceptable = case["acceptableHintsPerZone"].as_array().unwrap();
    let without_zeros = |hints: &Value| -> BTreeMap<String, u64> {
        let zones = hints.as_object().unwrap().iter();
        zones
            .map(|(zone, count)| (zone.clone(), count.as_u64().unwrap()))
            .filter(|(_, count)| *count > 0)
            .collect()
    };
    assert!(
        acceptable.iter().any(|hints_there| without_zeros(hints_there) == hints),
        "{hints:?}: {case}"
    );
}

/// The recorded decisions about hints.
pub(super) fn decisions() -> Vec<Value> {
    lines("auto-hints.jsonl.gz")
}

/// Plans recorded decisions; each Service gets its recorded hints and event.
pub(super) fn hints_are_as_recorded(decisions: &[Value]) {
    let check = |group: &Vec<(usize, &Value)>| {
        let mut objects = auto_nodes(group[0].1);
        objects.extend(group.iter().flat_map(|(number, case)| auto_service(*number, case)));
        let document = zonewise(&["plan", "--compat", "upstream"], &dump(&objects));
        for (number, case) in group {
            assert_hints(case, of_case(&document["services"], *number));
        }
    };
    let nodes = |case: &Value| json!([case["allocatableMilliCpuByZone"], without_capacity(case)]);
    together(decisions, |case| nodes(case).to_string()).par_iter().for_each(check);
}

fn route_node(case: &Value) -> Value {
    let labels = match case["zone"].as_str().unwrap() {
        "" => json!({}),
        zone => json!({"topology.kubernetes.io/zone": zone}),
    };
    object("Node", &json!({"metadata": {"name": case["node"], "labels": labels}}))
}

/// A Service with the recorded endpoints, one slice for each port number.
fn route_service(number: usize, case: &Value) -> Vec<Value> {
    let node_port = case["nodePort"].as_u64().unwrap();
    let space = space(number);
    let mut objects = vec![object(
        "Service",
        &json!({
            "metadata": {"name": "svc", "namespace": space},
            "spec": {
                "type": if node_port == 0 { "ClusterIP" } else { "NodePort" },
                "clusterIP": cluster_ip(number),
                "internalTrafficPolicy": case["internalTrafficPolicy"],
                "externalTrafficPolicy": case["externalTrafficPolicy"],
                "ports": [{"name": "http", "port": 80, "nodePort": node_port}],
            },
        }),
    )];
    let mut by_port: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|name| json!({"name": name})).collect()
    };
    for one in case["endpoints"].as_array().unwrap() {
        let (address, port) = one["endpoint"].as_str().unwrap().rsplit_once(':').unwrap();
        by_port.entry(port).or_default().push(json!({
            "addresses": [address],
            "nodeName": if one["local"] == json!(true) { case["node"].clone() } else { json!("elsewhere") },
            "conditions": {"ready": one["ready"], "serving": one["serving"], "terminating": one["terminating"]},
            "hints": {"forZones": names(&one["zoneHints"]), "forNodes": names(&one["nodeHints"])},
        }));
    }
    objects.extend(by_port.into_iter().map(|(port, endpoints)| {
        object("EndpointSlice", &json!({
            "metadata": {"name": format!("svc-{port}"), "namespace": space, "labels": {"kubernetes.io/service-name": "svc"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": port.parse::<u16>().unwrap()}],
            "endpoints": endpoints,
        }))
    }));
    objects
}

/// The recorded choices of endpoints.
pub(super) fn choices() -> Vec<Value> {
    lines("select-endpoints.jsonl.gz")
}

/// Routes recorded choices; each Service has its recorded endpoints.
pub(super) fn endpoints_are_as_recorded(choices: &[Value]) {
    let check = |group: &Vec<(usize, &Value)>| {
        let first = group[0].1;
        let mut objects = vec![route_node(first)];
        objects.extend(group.iter().flat_map(|(number, case)| route_service(*number, case)));
        let node = first["node"].as_str().unwrap();
        let document = zonewise(&["route", "--node", node], &dump(&objects));
        for (number, case) in group {
            let line = of_case(&document["routes"], *number);
            let answer =
                [&line["cluster"], &line["local"], &line["allReachable"], &line["hasAnyEndpoints"]];
            let expected = [
                &case["cluster"],
                &case["localOnly"],
                &case["allReachable"],
                &case["hasAnyEndpoints"],
            ];
            assert_eq!(answer, expected, "{case}");
        }
    };
    let node = |case: &Value| json!([case["node"], case["zone"]]).to_string();
    together(choices, node).par_iter().for_each(check);
}
