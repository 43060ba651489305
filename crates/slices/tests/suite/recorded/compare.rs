//! The recording of the reference reconciler, and how a run of ours is held against it: as JSON,
//! so that functions and commands are judged by the same measure.
//!
//! The reference breaks ties at random, so a sequence may have several recorded runs; ours must
//! agree with one of them: same endpoints, conditions, hints per zone, slice sizes and events, and
//! never more writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

const PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/upstream/reconcile.jsonl.gz");

/// From this many recorded runs on, chance decided so much that not every outcome was seen.
const SAMPLED: usize = 10;

/// What one step of ours did.
pub(crate) struct Step {
    /// The slices it leaves, as JSON.
    pub(crate) slices: Vec<Value>,
    /// Creates, updates and deletes.
    pub(crate) writes: [usize; 3],
    /// Events as `type reason message`.
    pub(crate) events: Vec<String>,
    /// Pods were left out because their node is not known.
    pub(crate) error: bool,
}

impl Step {
    /// In the form of the recording.
    fn outcome(mut self) -> Value {
        self.events.sort();
        let [creates, updates, deletes] = self.writes;
        json!({
            "creates": creates, "updates": updates, "deletes": deletes,
            "slices": sorted(self.slices.iter().map(shape).collect()),
            "endpoints": sorted(self.slices.iter().flat_map(endpoints).collect()),
            "hintsPerZone": hints_per_zone(&self.slices),
            "events": self.events,
            "error": self.error,
        })
    }
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(Value::to_string);
    values
}

fn shape(slice: &Value) -> Value {
    let port = |port: &Value| {
        let text = |key: &str| port[key].as_str().unwrap().to_owned();
        let app = port["appProtocol"].as_str().map_or(String::new(), |app| format!("/{app}"));
        format!("{}:{}/{}{app}", text("name"), port["port"], text("protocol"))
    };
    let mut ports: Vec<String> = list(&slice["ports"]).map(port).collect();
    ports.sort();
    json!({
        "addressType": slice["addressType"],
        "ports": ports,
        "labels": slice["metadata"]["labels"],
        "endpoints": list(&slice["endpoints"]).count(),
    })
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn endpoints(slice: &Value) -> Vec<Value> {
    let names =
        |hints: &Value| -> Vec<Value> { list(hints).map(|hint| hint["name"].clone()).collect() };
    list(&slice["endpoints"])
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

fn hints_per_zone(slices: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for slice in slices {
        let hints = list(&slice["endpoints"]).flat_map(|one| list(&one["hints"]["forZones"]));
        for zone in hints.map(|hint| hint["name"].as_str().unwrap()) {
            let family = slice["addressType"].as_str().unwrap();
            *counts.entry(format!("{family}/{zone}")).or_default() += 1;
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

/// The recorded sequences.
pub(crate) fn cases() -> Vec<Value> {
    let file = std::fs::File::open(PATH).unwrap();
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// How a run of ours compares: `Ok(true)` exactly as recorded, `Ok(false)` but for chance.
pub(crate) fn compare(case: &Value, steps: Vec<Step>) -> Result<bool, String> {
    let ours: Vec<Value> = steps.into_iter().map(Step::outcome).collect();
    let deterministic = case["deterministic"].as_bool().unwrap();
    let runs = case["expected"].as_array().unwrap();
    let differences: Vec<String> =
        runs.iter().map_while(|run| difference(&ours, run, deterministic)).collect();
    if differences.len() < runs.len() {
        return Ok(true);
    }
    let alike = || runs.iter().any(|run| same_but_for_chance(&ours, run));
    if runs.len() >= SAMPLED && alike() {
        return Ok(false);
    }
    Err(format!("{}: {}", case["name"], differences[0]))
}

/// Fails if one of these sequences does not end as recorded.
pub(crate) fn assert_each(results: &[Result<bool, String>]) {
    let failures: Vec<&String> =
        results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(
        failures.is_empty(),
        "{} of {} differ:\n{:#?}",
        failures.len(),
        results.len(),
        &failures[..failures.len().min(5)]
    );
}

/// Fails if not all sequences end as recorded, nearly all of them exactly.
pub(crate) fn assert_all(results: &[Result<bool, String>]) {
    assert_each(results);
    let exact = results.iter().filter(|result| **result == Ok(true)).count();
    assert_eq!((results.len(), exact >= 295), (300, true), "{exact} agree exactly");
}
