//! Reasons: which one it must be, and whether its figures are true.

use serde_json::Value;

use super::claims::{Facts, heuristic, keys};
use super::fields::Report;
use super::figures::{By, PROXIES, World, matrix};

/// The fewest endpoints that a zone needs so that `auto` expects no overload of 20 %.
pub(crate) fn minimum(share: f64, total: f64) -> u64 {
    (share * total * (1.0 / 1.2)).ceil() as u64
}

/// Checks the reasons of an explanation.
pub(crate) fn check(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let said = &explanation["arithmetic"];
    report.equal("explain.reason", &explanation["reason"], said["code"].clone());
    for figure in said.as_object().unwrap().keys() {
        report.checks(&format!("explain.arithmetic.{figure}"));
    }
    let code = said["code"].as_str().unwrap();
    let truth = match code {
        "HintsAssigned" | "HintsKept" | "HintsBalanced" | "SubsetsKept" | "SharesBalanced" => {
            written(facts, said)
        }
        "HintMissing" | "SharesDisagree" | "SubsetsMixed" => facts.foreign,
        "SubsetsAssigned" | "GroupsAssigned" | "ClusterWide" => true,
        _ => counted(facts, explanation, said),
    };
    report.holds("explain.arithmetic", truth, said);
    for family in explanation["families"].as_array().unwrap() {
        let name = family["family"].as_str().unwrap();
        let Some(possible) = possible(&facts.world, name, facts.by) else { continue };
        let is_possible = possible.iter().any(|code| family["reason"] == *code);
        let why = format!("{family}, it must be one of {possible:?}");
        report.holds("explain.families[].reason", is_possible, why);
        let overruled = facts.foreign && family["reason"] != explanation["reason"];
        if explanation["family"] == *name && !overruled {
            report.equal("explain.reason", &explanation["reason"], family["reason"].clone());
        }
    }
}

/// The reasons that the controller can have in an address family, by the rules that its documentation
/// gives; `None` for algorithms of the evaluation tool and the reference's way.
fn possible(world: &World<'_>, family: &str, by: By) -> Option<Vec<&'static str>> {
    let keys = keys(world);
    let name = heuristic(keys.first());
    let (places, endpoints) = (world.places(by), world.endpoints(family));
    let total = endpoints.len() as u64;
    let homeless = endpoints.iter().any(|one| one.zone.is_none());
    let at = |place: &String| endpoints.iter().any(|one| one.zone.as_ref() == Some(place));
    let bare = !places.keys().any(at);
    let unknown = !world.cluster.count_nodes && unusable(world) > 0;
    let one = match &*name {
        "random" => "ClusterWide",
        "same-zone" | "same-node" if total == 0 => "NoEndpoints",
        "same-zone" if homeless => "EndpointsWithoutZone",
        "same-node" if endpoints.iter().all(|one| one.zone.is_none()) => "EndpointsWithoutZone",
        "same-zone" | "same-node" if bare => "NoZoneWithEndpoints",
        "same-zone" => "OwnZone",
        "same-node" => "OwnNode",
        "balanced" | "local-subset" | "require-zone" if total == 0 => "NoEndpoints",
        "balanced" if unknown || places.is_empty() => "NodeInformationMissing",
        "balanced" => "SharesBalanced",
        "local-subset" if places.is_empty() => "NodeInformationMissing",
        "local-subset" if places.len() == 1 && by == By::Regions => "OneRegionOnly",
        "local-subset" if places.len() == 1 => "OneZoneOnly",
        "local-subset" => return Some(subsets(world, keys.first()?.0, places.len(), total)),
        "auto" if world.cluster.upstream => return None,
        "auto" | "balanced-hints" if unknown || places.is_empty() => "NodeInformationMissing",
        "auto" | "balanced-hints" if places.len() == 1 => "OneZoneOnly",
        "auto" | "balanced-hints" if total == 0 => "NoEndpoints",
        "balanced-hints" if homeless => "EndpointsWithoutZone",
        "balanced-hints" => return Some(vec!["HintsBalanced", "HintsGainNothing"]),
        "auto" => return Some(auto(world, family, homeless)),
        _ => return None,
    };
    Some(vec![one])
}

/// Ready worker nodes without zone or CPU.
fn unusable(world: &World<'_>) -> usize {
    let workers = world.nodes.iter().filter(|node| node.ready && !node.control);
    workers.filter(|node| node.zone.is_none() || node.milli == 0).count()
}

/// Hints are assigned where every zone can have its minimum. Once they are on, they stay while every zone
/// can be kept below 30 %.
fn auto(world: &World<'_>, family: &str, homeless: bool) -> Vec<&'static str> {
    let (places, total) = (world.places(By::Zones), world.endpoints(family).len());
    let minimums: u64 = places.values().map(|place| minimum(place.share, total as f64)).sum();
    let too_few = if places.len() > total {
        Some("TooFewEndpoints")
    } else {
        (minimums > total as u64).then_some("TooFewForBalance")
    };
    match too_few {
        Some(code) if homeless || !has_hints(world, family) => vec![code],
        Some(code) => vec![code, "HintsKept", "HintsAssigned"],
        None if homeless => vec!["EndpointsWithoutZone"],
        None => vec!["HintsAssigned", "HintsKept"],
    }
}

/// Whether hints are stored.
fn has_hints(world: &World<'_>, family: &str) -> bool {
    let of_family = |one: &&Value| one["addressType"] == *family;
    let slices = world.cluster.objects.iter().filter(of_family);
    let mut endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().unwrap());
    endpoints.any(|endpoint| !endpoint["hints"].is_null())
}

/// Subsets are made from a number of endpoints on, and stay until a smaller one.
fn subsets(world: &World<'_>, key: &str, zones: usize, total: u64) -> Vec<&'static str> {
    let read = |name: &str| {
        let value = world.service["metadata"]["annotations"][name].as_str();
        value.filter(|_| key.ends_with("/subsetting")).and_then(|value| value.parse().ok())
    };
    let threshold = read("zonewise.dev/starting-threshold").unwrap_or(3 * zones as u64);
    let padding = read("zonewise.dev/padding").unwrap_or(zones as u64);
    let mut possible = Vec::new();
    if total < threshold + padding {
        possible.push("BelowStartingThreshold");
    }
    if total > threshold.saturating_sub(padding.max(1)) || total >= threshold + padding {
        possible.extend(["SubsetsAssigned", "SubsetsKept", "OverloadTooHigh"]);
    }
    possible
}

/// Whether the figures of a reason are true that the objects alone determine.
fn counted(facts: &Facts<'_>, explanation: &Value, said: &Value) -> bool {
    let places = facts.world.places(facts.by);
    let endpoints = facts.endpoints();
    let total = endpoints.len() as u64;
    let homeless = endpoints.iter().filter(|one| one.zone.is_none()).count();
    let bare = places.keys().filter(|name| facts.endpoints_at(name) == 0).count();
    let figure = |name: &str| said[name].as_f64().unwrap();
    let rows = explanation["zones"].as_array().unwrap();
    match said["code"].as_str().unwrap() {
        "NoEndpoints" => total == 0,
        "NodeInformationMissing" => {
            let known = places.is_empty() && said["nodes"] == 0;
            known || (!facts.world.cluster.count_nodes && said["nodes"] == unusable(&facts.world))
        }
        "OneZoneOnly" => places.len() == 1 && facts.by == By::Zones,
        "OneRegionOnly" => places.len() == 1 && facts.by == By::Regions,
        "TooFewEndpoints" => {
            // `auto` counts the zones that send traffic. The evaluation tool's algorithms also count
            // those that have endpoints only.
            let zones = if explanation["heuristic"] == "auto" { places.len() } else { rows.len() };
            said["endpoints"] == total && said["zones"] == zones && total < zones as u64
        }
        "TooFewForBalance" => {
            let needed: u64 = places.values().map(|place| minimum(place.share, total as f64)).sum();
            said["minimums"] == needed && said["endpoints"] == total && needed > total
        }
        "BelowStartingThreshold" => {
            said["endpoints"] == total && figure("threshold") + figure("padding") > total as f64
        }
        "OverloadTooHigh" => {
            let row = &rows[said["zone"].as_u64().unwrap() as usize];
            let name = row["zone"].as_str().unwrap();
            let share = places.get(name).map_or(0.0, |place| place.share);
            said["present"] == facts.endpoints_at(name)
                && (figure("expected") - share * total as f64).abs() < 1e-6
        }
        "HintsGainNothing" => figure("limit") == 0.2 && !gains_by_own_zones(facts),
        "EndpointsWithoutZone" => said["endpoints"] == homeless && homeless > 0,
        "NoZoneWithEndpoints" => bare == places.len() && total > 0,
        "OwnZone" | "ZoneRequired" => said["zonesWithoutEndpoints"] == bare,
        "OwnNode" => {
            said["zonesWithoutEndpoints"] == bare && said["endpointsWithoutZone"] == homeless
        }
        _ => false,
    }
}

/// Whether each zone using its own endpoints would overload none by more than 20 %, and be worth more than every zone
/// using all: in-zone traffic counts 45 points, the highest overload and the mean deviation 20 each.
fn gains_by_own_zones(facts: &Facts<'_>) -> bool {
    let places = facts.world.places(facts.by);
    let total = facts.endpoints().len() as f64;
    let here = |name: &String| facts.endpoints_at(name) as f64;
    let overload = |name: &String| places[name].share * total / here(name) - 1.0;
    let deviation: f64 = places.keys().map(|name| overload(name).abs() * here(name) / total).sum();
    let highest = places.keys().map(overload).fold(0.0, f64::max);
    let everywhere: f64 = places.iter().map(|(name, place)| place.share * here(name) / total).sum();
    highest <= 0.2 && 45.0 - 20.0 * (highest + deviation) > 45.0 * everywhere + 1e-6
}

/// Whether the figures of a reason are true that follow from what is written.
fn written(facts: &Facts<'_>, said: &Value) -> bool {
    let figure = |name: &str| said[name].as_f64().unwrap();
    match said["code"].as_str().unwrap() {
        "HintsAssigned" => said["moved"] == hinted_away(facts),
        // What a proxy would do with the shares is a figure of no traffic.
        "SharesBalanced" | "HintsBalanced" if !facts.is_routed() => true,
        "SharesBalanced" | "HintsBalanced" => {
            let traffic = matrix(&facts.planned, &facts.family, PROXIES[0], By::Zones);
            let largest = traffic.overload.values().copied().fold(0.0, f64::max);
            (figure("inZone") - traffic.in_zone.unwrap()).abs() < 1e-4
                && largest < figure("maxOverload") + 1e-4
        }
        _ => {
            let places = facts.world.places(facts.by);
            let total = facts.endpoints().len() as f64;
            let load =
                |name: &String| places[name].share * total / serving(facts, name) as f64 - 1.0;
            let highest = places.keys().map(load).fold(0.0, f64::max);
            (figure("highestOverload") - highest).abs() < 1e-6 && highest < figure("limit")
        }
    }
}

/// The ready endpoints in the planned slices of the family, with the slice.
fn planned<'a>(facts: &'a Facts<'_>) -> Vec<(&'a Value, &'a Value)> {
    let of_family = |one: &&Value| {
        one["kind"] == "EndpointSlice"
            && one["addressType"] == *facts.family
            && one["metadata"]["name"] != "web-other"
    };
    let slices = facts.planned.cluster.objects.iter().filter(of_family);
    let endpoints = |slice: &'a Value| {
        let ready = slice["endpoints"].as_array().unwrap().iter();
        ready.filter(|one| one["conditions"]["ready"] == true).map(move |one| (one, slice))
    };
    slices.flat_map(endpoints).collect()
}

/// The number of ready endpoints that are hinted to another zone than their own.
fn hinted_away(facts: &Facts<'_>) -> usize {
    let away = |(one, _): &(&Value, &Value)| {
        let hints = one["hints"]["forZones"].as_array().unwrap();
        !hints.iter().any(|hint| hint["name"] == one["zone"])
    };
    planned(facts).into_iter().filter(away).count()
}

/// The number of ready endpoints that are hinted to a zone, or in its subset.
fn serving(facts: &Facts<'_>, name: &str) -> usize {
    let serves = |(one, slice): &(&Value, &Value)| {
        let hints = one["hints"]["forZones"].as_array().into_iter().flatten();
        let labels = &slice["metadata"]["labels"];
        hints.into_iter().any(|hint| hint["name"] == name)
            || labels["endpointslice.kubernetes.io/for-zone"] == name
            || labels["endpointslice.kubernetes.io/for-region"] == name
    };
    planned(facts).into_iter().filter(serves).count()
}
