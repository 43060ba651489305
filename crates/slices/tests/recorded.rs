//! The 300 recorded sequences of the reference reconciler, in `--compat upstream`.
//!
//! The reference breaks ties at random, so a sequence may have several recorded runs; ours must
//! agree with one of them: same endpoints, conditions, hints per zone, slice sizes and events, and
//! never more writes.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use common::Store;
use serde::Deserialize;
use serde_json::{Value, json};
use zonewise_slices::asked::asked;
use zonewise_slices::labels::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{EventType, Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;
use zonewise_topology::capacity::MissingCpu;

const PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/upstream/reconcile.jsonl.gz");

fn read<T: serde::de::DeserializeOwned>(list: &Value) -> Vec<T> {
    list.as_array()
        .map(|list| list.iter().map(|value| T::deserialize(value).unwrap()).collect())
        .unwrap_or_default()
}

/// From this many recorded runs on, chance decided so much that not every outcome was seen.
const SAMPLED: usize = 10;

/// One step, in the form of the recording.
fn step(step: &Value, store: &mut Store, populated: &mut bool, max_endpoints: usize) -> Value {
    let settings = Settings { upstream: true, max_endpoints, ..Settings::default() };
    let service = Service::deserialize(&step["service"]).unwrap();
    let mut pods: Vec<Arc<Pod>> = read::<Pod>(&step["pods"]).into_iter().map(Arc::new).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    let nodes: BTreeMap<Name, Node> = read::<Node>(&step["nodes"])
        .into_iter()
        .map(|node| (Name::clone(&node.name), node))
        .collect();
    let slices = store.list();
    let input = Input {
        service: &service,
        pods: &pods,
        slices: &slices,
        nodes: &Nodes::new(nodes, MissingCpu::Refuse),
        trigger: None,
        populated: *populated,
    };
    let plan = plan(&input, &asked(&service, &settings), &settings);
    *populated = plan.populated;
    store.run(&plan);
    outcome(&plan, store)
}

fn outcome(plan: &Plan, store: &Store) -> Value {
    let families = || plan.families.iter();
    let kind = |kind| if kind == EventType::Normal { "Normal" } else { "Warning" };
    let event = |event: &zonewise_slices::plan::Event| {
        format!("{} {} {}", kind(event.kind), event.reason, event.message)
    };
    let mut events: Vec<String> = plan.events.iter().map(event).collect();
    events.sort();
    json!({
        "creates": families().map(|family| family.creates.len()).sum::<usize>(),
        "updates": families().map(|family| family.updates.len()).sum::<usize>(),
        "deletes": families().map(|family| family.deletes.len()).sum::<usize>() + plan.leftovers.len(),
        "slices": sorted(store.slices.values().map(|slice| shape(slice)).collect()),
        "endpoints": sorted(store.slices.values().flat_map(|slice| endpoints(slice)).collect()),
        "hintsPerZone": hints_per_zone(store),
        "events": events,
        "error": families().any(|family| !family.missing_nodes.is_empty()),
    })
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(Value::to_string);
    values
}

fn shape(slice: &Slice) -> Value {
    let port = |port: &zonewise_slices::slice::Port| {
        let protocol = port.protocol.as_ref().unwrap();
        let app = port.app_protocol.as_ref().map_or(String::new(), |app| format!("/{app}"));
        format!("{}:{}/{protocol}{app}", port.name.as_deref().unwrap(), port.port.unwrap())
    };
    let mut ports: Vec<String> = slice.ports.iter().map(port).collect();
    ports.sort();
    json!({
        "addressType": slice.family.to_string(),
        "ports": ports,
        "labels": slice.labels,
        "endpoints": slice.endpoints.len(),
    })
}

fn endpoints(slice: &Slice) -> Vec<Value> {
    let wire = serde_json::to_value(slice).unwrap();
    let names = |hints: &Value| -> Vec<Value> {
        hints.as_array().into_iter().flatten().map(|hint| hint["name"].clone()).collect()
    };
    wire["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|endpoint| {
            let target = &endpoint["targetRef"];
            json!({
                "address": endpoint["addresses"][0],
                "ready": endpoint["conditions"]["ready"],
                "serving": endpoint["conditions"]["serving"],
                "terminating": endpoint["conditions"]["terminating"],
                "nodeName": endpoint["nodeName"],
                "zone": endpoint["zone"],
                "hostname": endpoint["hostname"],
                "targetRef": format!(
                    "{}/{}/{}",
                    target["kind"].as_str().unwrap(),
                    target["namespace"].as_str().unwrap(),
                    target["name"].as_str().unwrap()
                ),
                "forZones": names(&endpoint["hints"]["forZones"]),
                "forNodes": names(&endpoint["hints"]["forNodes"]),
            })
        })
        .collect()
}

fn hints_per_zone(store: &Store) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for slice in store.slices.values() {
        for zone in slice.endpoints.iter().flat_map(|endpoint| endpoint.zone_hints()) {
            *counts.entry(format!("{}/{zone}", slice.family)).or_default() += 1;
        }
    }
    counts
}

/// The recording with lists in one order, `null` lists as empty ones, and without the zone hints
/// of single endpoints where the reference chose among equals.
fn normal(value: &Value, deterministic: bool) -> Value {
    let mut value = value.clone();
    for key in ["slices", "endpoints", "events"] {
        let list = value[key].as_array().cloned().unwrap_or_default();
        value[key] =
            sorted(list.into_iter().map(|entry| normal_entry(entry, deterministic)).collect())
                .into();
    }
    if value["hintsPerZone"].is_null() {
        value["hintsPerZone"] = json!({});
    }
    value
}

fn normal_entry(mut entry: Value, deterministic: bool) -> Value {
    if let Some(ports) = entry.get_mut("ports") {
        let list = ports.as_array().cloned().unwrap_or_default();
        *ports = sorted(list).into();
    }
    for key in ["forZones", "forNodes"] {
        if entry.get(key).is_some_and(|hints| hints.is_null()) {
            entry[key] = json!([]);
        }
    }
    let hinted = entry["forZones"].as_array().map(Vec::len);
    if let Some(zones) = hinted.filter(|_| !deterministic) {
        entry["forZones"] = json!(zones);
    }
    entry
}

/// The first difference between a run of ours and a recorded one.
fn difference(ours: &[Value], recorded: &Value, deterministic: bool) -> Option<String> {
    for (number, (ours, theirs)) in ours.iter().zip(recorded.as_array().unwrap()).enumerate() {
        let (ours, theirs) = (normal(ours, deterministic), normal(theirs, deterministic));
        for key in ["slices", "endpoints", "hintsPerZone", "events", "error"] {
            if ours[key] != theirs[key] {
                return Some(format!(
                    "step {number}, {key}:\n ours   {}\n theirs {}",
                    ours[key], theirs[key]
                ));
            }
        }
        let writes = |run: &Value| -> u64 {
            ["creates", "updates", "deletes"].iter().map(|key| run[key].as_u64().unwrap()).sum()
        };
        if writes(&ours) > writes(&theirs) {
            return Some(format!(
                "step {number}: {} writes, recorded {}",
                writes(&ours),
                writes(&theirs)
            ));
        }
    }
    None
}

/// The same but for what the reference leaves to chance: which endpoint a slice drops, hence the
/// sizes of slices afterwards, and which slice keeps hints to nodes.
fn same_but_for_chance(ours: &[Value], recorded: &Value) -> bool {
    let rest = |run: &Value| {
        let mut run = normal(run, false);
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for slice in run["slices"].as_array().unwrap() {
            let kind = format!("{}{}{}", slice["addressType"], slice["ports"], slice["labels"]);
            *sizes.entry(kind).or_default() += slice["endpoints"].as_u64().unwrap();
        }
        run["slices"] = json!(sizes);
        for endpoint in run["endpoints"].as_array_mut().unwrap() {
            endpoint["forNodes"] = Value::Null;
        }
        for key in ["creates", "updates", "deletes"] {
            run[key] = Value::Null;
        }
        run
    };
    ours.iter().map(rest).eq(recorded.as_array().unwrap().iter().map(rest))
}

#[test]
fn recorded_sequences_end_as_recorded() {
    let file = std::fs::File::open(PATH).unwrap();
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    let (mut cases, mut exact) = (0, 0);
    let mut failures = Vec::new();
    for line in lines {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let max = case["maxEndpointsPerSlice"].as_u64().unwrap() as usize;
        let deterministic = case["deterministic"].as_bool().unwrap();
        let (mut store, mut populated) = (Store::default(), false);
        let steps = case["steps"].as_array().unwrap();
        let ours: Vec<Value> =
            steps.iter().map(|each| step(each, &mut store, &mut populated, max)).collect();
        let runs = case["expected"].as_array().unwrap();
        let differences: Vec<String> =
            runs.iter().map_while(|run| difference(&ours, run, deterministic)).collect();
        let agrees = differences.len() < runs.len();
        exact += usize::from(agrees);
        let sampled = runs.len() >= SAMPLED;
        let alike = || runs.iter().any(|run| same_but_for_chance(&ours, run));
        if !agrees && (!sampled || !alike()) {
            failures.push(format!("{}: {}", case["name"], differences[0]));
        }
        cases += 1;
    }
    assert_eq!((cases, exact >= 295), (300, true), "{exact} of {cases} agree exactly");
    assert!(
        failures.is_empty(),
        "{} of {cases} differ:\n{}",
        failures.len(),
        failures[..failures.len().min(5)].join("\n")
    );
}
