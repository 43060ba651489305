//! Where traffic goes with the slices that are stored, for tests: computed from the objects as the
//! documents say proxies read them, and from nothing else. It shares no line with the programs that it
//! judges.
//!
//! ```text
//!  nodes ─► part of the traffic that starts in each zone (allocatable CPU)
//!  slices ─► the endpoints that each zone uses: zone shares, else its subset, else its hints, else all
//!  both ─► the part that stays in its zone, and the load of the most loaded endpoint
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// How well traffic is routed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Part of all traffic that stays in its zone.
    pub in_zone: f64,
    /// Load of the most loaded endpoint above its fair share; 0 if none is above.
    pub max_overload: f64,
}

/// The topology key by which traffic is kept close: the label with a node's zone, or the one with its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKey {
    /// Its zone.
    Zone,
    /// Its region.
    Region,
}

impl TopologyKey {
    fn label(self) -> &'static str {
        match self {
            Self::Zone => "topology.kubernetes.io/zone",
            Self::Region => "topology.kubernetes.io/region",
        }
    }

    fn subset_label(self) -> &'static str {
        match self {
            Self::Zone => "endpointslice.kubernetes.io/for-zone",
            Self::Region => "endpointslice.kubernetes.io/for-region",
        }
    }
}

/// A ready endpoint.
struct Endpoint {
    place: Option<String>,
    hints: BTreeSet<String>,
    subset: Option<String>,
}

/// Routes the traffic of all zones (or regions) to the ready endpoints of one Service in one address
/// family. `None` without endpoints or without capacity.
pub fn figures(nodes: &[Value], slices: &[Value], key: TopologyKey) -> Option<Figures> {
    let shares = traffic_shares(nodes, key)?;
    let endpoints = endpoints(nodes, slices, key);
    let zone_shares = zone_shares(slices);
    let fair = 1.0 / endpoints.len() as f64;
    let mut loads = vec![0.0; endpoints.len()];
    let mut in_zone = 0.0;
    for (zone, share) in &shares {
        for (index, part) in used(&endpoints, zone, zone_shares.as_ref()) {
            loads[index] += share * part;
            if endpoints[index].place.as_ref() == Some(zone) {
                in_zone += share * part;
            }
        }
    }
    let highest = loads.iter().copied().reduce(f64::max)?;
    Some(Figures { in_zone, max_overload: (highest / fair - 1.0).max(0.0) })
}

/// The part of the traffic that starts in each zone: its part of the allocatable CPU of ready workers.
fn traffic_shares(nodes: &[Value], key: TopologyKey) -> Option<BTreeMap<String, f64>> {
    let mut cores: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| is_ready_worker(node)) {
        let zone = node["metadata"]["labels"][key.label()].as_str()?;
        *cores.entry(zone.to_owned()).or_default() += cores_of(node)?;
    }
    let all: f64 = cores.values().sum();
    (all > 0.0).then(|| cores.into_iter().map(|(zone, cores)| (zone, cores / all)).collect())
}

fn is_ready_worker(node: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let control_plane = ["control-plane", "master"]
        .iter()
        .any(|role| !labels[format!("node-role.kubernetes.io/{role}")].is_null());
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    !control_plane && conditions.into_iter().any(ready)
}

fn cores_of(node: &Value) -> Option<f64> {
    let text = node["status"]["allocatable"]["cpu"].as_str()?;
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().ok().map(|cores| cores / 1000.0),
        None => text.parse().ok(),
    }
}

fn endpoints(nodes: &[Value], slices: &[Value], key: TopologyKey) -> Vec<Endpoint> {
    let place_of = |name: &Value| {
        let node = nodes.iter().find(|node| node["metadata"]["name"] == *name)?;
        node["metadata"]["labels"][key.label()].as_str().map(str::to_owned)
    };
    let mut found = Vec::new();
    for slice in slices {
        let subset = slice["metadata"]["labels"][key.subset_label()].as_str();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let hints = endpoint["hints"]["forZones"].as_array().into_iter().flatten();
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            found.push(Endpoint {
                place: place_of(&endpoint["nodeName"]),
                hints: hints.filter_map(|hint| hint["name"].as_str().map(str::to_owned)).collect(),
                subset: subset.map(str::to_owned),
            });
        }
    }
    found
}

/// What each zone sends to each zone, if every slice carries the same.
fn zone_shares(slices: &[Value]) -> Option<Value> {
    let text = |slice: &Value| {
        slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].as_str().map(str::to_owned)
    };
    let first = text(slices.first()?)?;
    let same = slices.iter().all(|slice| text(slice).as_deref() == Some(&first));
    same.then(|| serde_json::from_str(&first).ok()).flatten()
}

/// The endpoints that a zone uses, each with its part of the zone's traffic.
fn used(endpoints: &[Endpoint], zone: &str, shares: Option<&Value>) -> Vec<(usize, f64)> {
    let from = shares.map(|shares| &shares["from"][zone]);
    if let Some(Value::Object(from)) = from {
        let part = |index: usize| {
            let place = endpoints[index].place.clone().unwrap_or_default();
            let beside = endpoints.iter().filter(|one| one.place == endpoints[index].place).count();
            from.get(&place).and_then(Value::as_f64).unwrap_or(0.0) / beside as f64
        };
        return (0..endpoints.len()).map(|index| (index, part(index))).collect();
    }
    let chosen: Vec<usize> = if endpoints.iter().any(|one| one.subset.is_some()) {
        (0..endpoints.len()).filter(|&one| endpoints[one].subset.as_deref() == Some(zone)).collect()
    } else if endpoints.iter().all(|one| !one.hints.is_empty()) {
        (0..endpoints.len()).filter(|&one| endpoints[one].hints.contains(zone)).collect()
    } else {
        Vec::new()
    };
    let chosen = if chosen.is_empty() { (0..endpoints.len()).collect() } else { chosen };
    let part = 1.0 / chosen.len() as f64;
    chosen.into_iter().map(|index| (index, part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, zone: &str, cpu: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {
                "allocatable": {"cpu": cpu},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn endpoint(node: &str, hint: &str) -> Value {
        json!({"nodeName": node, "hints": {"forZones": [{"name": hint}]}})
    }

    /// By hand: zone a sends three quarters of the traffic.
    #[test]
    fn three_endpoints_in_two_zones() {
        let nodes = [node("n1", "a", "3"), node("n2", "b", "1000m")];
        let close = |slices: Vec<Value>, in_zone: f64, max_overload: f64| {
            let found = figures(&nodes, &slices, TopologyKey::Zone).unwrap();
            assert!((found.in_zone - in_zone).abs() < 1e-9, "{found:?}");
            assert!((found.max_overload - max_overload).abs() < 1e-9, "{found:?}");
        };
        let hinted = |hints: [&str; 3]| {
            let ends = [("n1", hints[0]), ("n1", hints[1]), ("n2", hints[2])];
            json!({"endpoints": ends.map(|(node, hint)| endpoint(node, hint))})
        };
        close(vec![hinted(["a", "a", "b"])], 1.0, 0.125);
        close(vec![hinted(["a", "b", "b"])], 0.75 + 0.125, 1.25);
        close(vec![json!({"endpoints": [endpoint("n1", "a"), {"nodeName": "n2"}]})], 0.5, 0.0);
        let subset = |zone: &str, nodes: &[&str]| {
            let ends: Vec<Value> = nodes.iter().map(|node| json!({"nodeName": node})).collect();
            json!({
                "metadata": {"labels": {"endpointslice.kubernetes.io/for-zone": zone}},
                "endpoints": ends,
            })
        };
        close(vec![subset("a", &["n1", "n1"]), subset("b", &["n2"])], 1.0, 0.125);
        close(vec![subset("a", &["n1", "n2"])], 0.375 + 0.125, 0.0);
        let shares =
            r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.5,"b":0.5},"b":{"b":1}}}"#;
        let annotations = json!({"zonewise.dev/zone-shares": shares});
        let ends = json!([endpoint("n1", "a"), endpoint("n2", "b")]);
        close(
            vec![json!({"metadata": {"annotations": annotations}, "endpoints": ends})],
            0.625,
            0.25,
        );
        assert_eq!(figures(&nodes, &[], TopologyKey::Zone), None);
    }
}
