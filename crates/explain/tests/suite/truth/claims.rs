//! What the documents say about a cluster as it is, against own arithmetic.

use serde_json::{Value, json};
use zonewise_topology::heuristics;

use super::documents::{Cluster, GB, PRICE, is_on};
use super::fields::Report;
use super::figures::{By, Endpoint, Matrix, Node, PROXIES, World, matrix, way};
use super::here::{self, Here, Now};
use super::screens::text;
use super::{overview, plans, reasons, routes, verdicts};

/// Everything about one cluster that the claims are compared with.
pub(crate) struct Facts<'a> {
    pub(crate) world: World<'a>,
    pub(crate) planned: World<'a>,
    /// The address family that the explanation is about.
    pub(crate) family: String,
    pub(crate) by: By,
    pub(crate) foreign: bool,
    pub(crate) here: Here,
}

impl Facts<'_> {
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.world.endpoints(&self.family)
    }

    pub(crate) fn endpoints_at(&self, name: &str) -> u64 {
        let at = |one: &&Endpoint| {
            let place = if self.by == By::Zones { &one.zone } else { &one.region };
            place.as_deref() == Some(name)
        };
        self.endpoints().iter().filter(at).count() as u64
    }

    /// Whether zone routing can apply to the Service.
    pub(crate) fn is_routed(&self) -> bool {
        self.world.kind() == "routed"
    }

    /// Where traffic goes with the slices that are stored and the proxies that run.
    pub(crate) fn now(&self, by: By) -> Now {
        self.here.now(&self.world, &self.family, by)
    }
}

/// Checks all documents of a cluster.
pub(crate) fn check(report: &mut Report, cluster: &Cluster, explanation: &Value) {
    let settled = cluster.settled();
    let facts = Facts {
        world: World::of(cluster),
        planned: World::of(&settled),
        family: explanation["family"].as_str().unwrap().to_owned(),
        by: if explanation["groupedBy"] == "region" { By::Regions } else { By::Zones },
        foreign: cluster.objects.iter().any(|one| one["metadata"]["name"] == "web-other"),
        here: Here::of(cluster),
    };
    here::check(report, cluster, &facts.here);
    report.document("explain", explanation);
    asked(report, &facts, explanation);
    counts(report, &facts, explanation);
    outcome(report, &facts, explanation);
    reasons::check(report, &facts, explanation);
    notes(report, &facts, explanation);
    verdicts::check(report, &facts, explanation);
    zones(report, &facts, explanation);
    traffic(report, &facts, explanation);
    consumers(report, &facts, explanation);
    heuristic_scores(report, &facts, explanation);
    plans::check(report, cluster, &settled, explanation);
    overview::check(report, &facts, cluster, explanation);
    routes::routes(report, &facts, cluster);
    routes::matrices(report, &facts, cluster);
}

const AUTO: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// A key of the Service that asks for something that is understood.
struct Request {
    key: &'static str,
    value: String,
    /// Why it has no effect, apart from others that win.
    refused: Option<&'static str>,
    /// The feature gates that are off.
    closed: Vec<&'static str>,
}

/// The keys of the Service that ask for something that is understood, in the order in which they win.
fn requests(world: &World<'_>) -> Vec<Request> {
    let annotation = |key: &str| world.service["metadata"]["annotations"][key].as_str();
    let ours = !world.cluster.upstream;
    let preference = annotation(PREFERENCE).filter(|value| ours && !value.ends_with("balancd"));
    let subsetting = annotation(SUBSETTING).filter(|_| ours);
    let distribution = world.service["spec"]["trafficDistribution"].as_str();
    let is_local = world.is_local() || world.is_local_outside();
    let request = |key: &'static str, value: &str| {
        let asked = (key, value.to_owned());
        let written = match &*heuristic(Some(&asked)) {
            "random" | "balanced" => None,
            "local-subset" | "require-zone" => Some("TopologyAwareSubsetting"),
            _ => Some("TopologyAwareHints"),
        };
        let gates = match key {
            AUTO | SUBSETTING => vec![written],
            PREFERENCE => vec![Some("ServiceRoutingPreference"), written],
            _ => Vec::new(),
        };
        let off = |gate: &&'static str| world.cluster.gates_off.contains(gate);
        let closed: Vec<&str> = gates.into_iter().flatten().filter(off).collect();
        let refused = match written {
            Some("TopologyAwareSubsetting") if is_local => Some("LocalPolicy"),
            _ if !closed.is_empty() => Some("GateOff"),
            _ => None,
        };
        Request { key, value: value.to_owned(), refused, closed }
    };
    let keys = [
        (AUTO, annotation(AUTO)),
        (SUBSETTING, subsetting),
        (PREFERENCE, preference),
        ("spec.trafficDistribution", distribution),
    ];
    keys.into_iter().filter_map(|(key, value)| Some(request(key, value?))).collect()
}

/// Those of them that nothing refuses.
pub(crate) fn keys(world: &World<'_>) -> Vec<(&'static str, String)> {
    let all = requests(world).into_iter().filter(|request| request.refused.is_none());
    all.map(|request| (request.key, request.value)).collect()
}

/// The name of the heuristic that a key asks for.
pub(crate) fn heuristic(asked: Option<&(&'static str, String)>) -> String {
    let name = match asked.map(|(key, value)| (*key, &**value)) {
        Some((AUTO, _)) => "auto",
        Some((SUBSETTING, "Require")) => "require-zone",
        Some((SUBSETTING, _)) => "local-subset",
        Some((PREFERENCE, "Zone")) => "same-zone",
        Some((_, "PreferSameNode")) => "same-node",
        Some((_, "PreferSameZone" | "PreferClose")) => "same-zone",
        Some((_, "Spread" | "zonewise.dev/spread")) | None => "random",
        Some((_, value)) => value.strip_prefix("zonewise.dev/").unwrap(),
    };
    name.to_owned()
}

fn asked(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let keys = keys(&facts.world);
    let (said, first) = (&explanation["asked"], keys.first());
    let (key, value) = first.map_or(("default", "Default"), |(key, value)| (key, value));
    report.equal("explain.asked.value", &said["value"], value);
    if first.is_some() {
        report.equal("explain.asked.source", &said["source"], key);
    }
    let regional = first.is_some_and(|(key, value)| *key == SUBSETTING && value == "Region");
    let by = if regional { "region" } else { "zone" };
    report.equal("explain.groupedBy", &explanation["groupedBy"], by);
    report.equal("explain.service", &explanation["service"], "shop/web");
    report.equal("explain.heuristic", &explanation["heuristic"], heuristic(first));
}

/// Every key that has no effect is named, with the reason.
fn notes(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let world = &facts.world;
    let annotations = &world.service["metadata"]["annotations"];
    let mut truth: Vec<(&str, String, &str)> = Vec::new();
    let lost = keys(world).into_iter().skip(1);
    truth.extend(lost.map(|(key, value)| (key, value, "ChoiceOverridden")));
    for request in requests(world) {
        let refused = request.refused.map(|why| (request.key, request.value.clone(), why));
        truth.extend(refused);
        let of_request = |note: &&Value| note["source"] == request.key;
        let note = explanation["notes"].as_array().unwrap().iter().find(of_request);
        for gate in request.closed.iter().filter(|_| request.refused == Some("GateOff")) {
            let named = note.is_some_and(|note| text(&note["sentence"]).contains(gate));
            report.holds("explain.notes[].sentence", named, explanation);
        }
    }
    let ours = |key: &str| annotations[key].as_str().filter(|_| !world.cluster.upstream);
    if let Some(value) = ours(PREFERENCE).filter(|value| value.ends_with("balancd")) {
        truth.push((PREFERENCE, value.to_owned(), "PreferenceUnknown"));
    }
    if !matches!(ours(SUBSETTING), Some("Auto" | "Region")) {
        for key in ["zonewise.dev/starting-threshold", "zonewise.dev/padding"] {
            truth.extend(ours(key).map(|value| (key, value.to_owned(), "ThresholdUnused")));
        }
    }
    let overruled = ["HintMissing", "SharesDisagree", "SubsetsMixed"];
    if overruled.iter().any(|code| explanation["reason"] == *code) {
        truth.push(("slices of other writers", "web-other".into(), "HintMissing"));
    }
    truth.sort();
    let mut said: Vec<(&str, String, &str)> = Vec::new();
    for note in explanation["notes"].as_array().unwrap() {
        let part = |key: &str| note[key].as_str().unwrap();
        said.push((part("source"), part("value").to_owned(), part("reason")));
    }
    said.sort();
    for key in ["source", "value", "reason"] {
        let why = format!("{said:?}, the truth is {truth:?}");
        report.holds(&format!("explain.notes[].{key}"), said == truth, why);
    }
}

fn counts(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let pods = facts.world.pods();
    let ready = pods.iter().filter(|pod| World::is_ready(pod)).count();
    let lost = |pod: &&&Value| facts.world.node(&pod["spec"]["nodeName"]).is_none();
    let said = &explanation["pods"];
    report.equal("explain.pods.selected", &said["selected"], pods.len());
    report.equal("explain.pods.ready", &said["ready"], ready);
    let lost = pods.iter().filter(lost).count();
    report.equal("explain.pods.onUnknownNodes", &said["onUnknownNodes"], lost);
    report.equal("explain.endpoints", &explanation["endpoints"], facts.endpoints().len());
    let slices = facts.world.cluster.objects.iter().filter(|one| one["kind"] == "EndpointSlice");
    let said = &explanation["slices"];
    report.equal("explain.slices.stored", &said["stored"], slices.count());
    report.equal("explain.slices.ofOthers", &said["ofOthers"], usize::from(facts.foreign));
    let by_nodes = facts.world.counts_nodes(facts.by);
    let basis = if by_nodes { "nodes" } else { "cpu" };
    report.equal("explain.capacityBy", &explanation["capacityBy"], basis);
    let silent: Vec<&str> = facts
        .world
        .counted(facts.by)
        .iter()
        .filter(|node| node.milli == 0)
        .map(|node| &*node.name)
        .collect();
    let mut silent_names = silent;
    silent_names.sort_unstable();
    report.whole("explain.nodesWithoutCpu", &explanation["nodesWithoutCpu"], json!(silent_names));
    let mut left: Vec<(String, &str)> = Vec::new();
    for node in &facts.world.nodes {
        let place = if facts.by == By::Zones { &node.zone } else { &node.region };
        let why = match (node.control, node.ready, place) {
            (true, ..) => "control-plane",
            (false, false, _) => "not-ready",
            (false, true, None) => "no-zone",
            (false, true, Some(_)) => continue,
        };
        left.push((node.name.clone(), why));
    }
    left.sort();
    let left: Vec<Value> =
        left.into_iter().map(|(node, why)| json!({"node": node, "why": why})).collect();
    report.whole("explain.nodesLeftOut", &explanation["nodesLeftOut"], json!(left));
}

/// Zone routing is said to be on exactly where proxies keep traffic closer.
fn outcome(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let families = explanation["families"].as_array().unwrap();
    let mut leading = families[0]["family"].clone();
    for family in families.iter().rev() {
        if family["outcome"] != "in-force" {
            leading = family["family"].clone();
        }
        if !facts.foreign && facts.is_routed() {
            let (said, near) = (is_on(family), near(facts, &text(&family["family"])));
            let why = format!("{family}, but whether nodes keep traffic near: {near:?}");
            report.holds("explain.families[].outcome", near.is_none_or(|near| near == said), why);
        }
    }
    let names: Vec<&str> = families.iter().map(|one| one["family"].as_str().unwrap()).collect();
    report.whole("explain.families[].family", &json!(names), json!(facts.world.families()));
    report.equal("explain.family", &explanation["family"], leading);
    let near: Vec<Option<bool>> =
        facts.world.families().iter().map(|family| near(facts, family)).collect();
    let why = format!("{} {}: {near:?}", explanation["reason"], explanation["outcome"]);
    // Hints of other writers keep traffic near whatever the controller decides.
    let right = match is_on(explanation) {
        _ if !facts.is_routed() => true,
        true => near.iter().all(|near| *near != Some(false)),
        false => facts.foreign || near.iter().any(|near| *near != Some(true)),
    };
    report.holds("explain.outcome", right, why);
}

/// Whether proxies keep traffic near once the plan is carried out; `None` if only those on nodes do that
/// do not count.
fn near(facts: &Facts<'_>, family: &str) -> Option<bool> {
    let traffic = matrix(&facts.planned, family, PROXIES[0], By::Zones);
    let counted = traffic.rows.values().any(|row| row.is_near());
    let is_near = |node: &Node| {
        let mode = way(&facts.planned, family, node, PROXIES[0]).mode;
        mode != "any" && mode != "terminating"
    };
    (counted || !facts.planned.nodes.iter().any(is_near)).then_some(counted)
}

/// The rows of zones or regions.
fn zones(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let places = facts.world.places(facts.by);
    let total = facts.endpoints().len() as f64;
    let traffic = matrix(&facts.planned, &facts.family, PROXIES[0], facts.by);
    let minimums: u64 = places.values().map(|place| reasons::minimum(place.share, total)).sum();
    let mut names: Vec<String> = places.keys().cloned().collect();
    names.extend(
        facts
            .endpoints()
            .into_iter()
            .filter_map(|one| if facts.by == By::Zones { one.zone } else { one.region }),
    );
    names.sort();
    names.dedup();
    let rows = explanation["zones"].as_array().unwrap();
    let said: Vec<&Value> = rows.iter().map(|row| &row["zone"]).collect();
    report.equal("explain.zones[].zone", &json!(said), json!(names));
    for (row, name) in rows.iter().zip(&names) {
        let (nodes, milli, share) =
            places.get(name).map_or((0, 0, 0.0), |place| (place.nodes, place.milli, place.share));
        let min = reasons::minimum(share, total);
        let max = (total as u64).checked_sub(minimums).map_or(0, |spare| min + spare);
        let row_of = traffic.rows.get(name);
        let overload = row_of
            .and_then(|row| row.used.iter().map(|one| traffic.overload[one]).reduce(f64::max));
        report.equal("explain.zones[].nodes", &row["nodes"], nodes);
        report.equal("explain.zones[].cpu", &row["cpu"], milli as f64 / 1000.0);
        report.equal("explain.zones[].share", &row["share"], share);
        report.equal("explain.zones[].endpoints", &row["endpoints"], facts.endpoints_at(name));
        report.equal("explain.zones[].expected", &row["expected"], share * total);
        report.equal("explain.zones[].min", &row["min"], min);
        report.equal("explain.zones[].max", &row["max"], max);
        report.equal(
            "explain.zones[].assigned",
            &row["assigned"],
            json!(row_of.map(|row| row.used.len())),
        );
        report.equal("explain.zones[].overload", &row["overload"], json!(overload));
    }
}

fn cost(facts: &Facts<'_>) -> Option<Value> {
    let now = facts.now(By::Zones).in_zone().filter(|_| facts.is_routed())?;
    let best = facts.world.best(&facts.family, By::Zones)?;
    let paid = |part: f64| GB * (1.0 - part) * PRICE;
    Some(json!({"gb": GB, "now": paid(now), "best": paid(best.max(now))}))
}

pub(crate) fn check_cost(report: &mut Report, path: &str, said: Option<&Value>, facts: &Facts<'_>) {
    match (said, cost(facts)) {
        (Some(said), Some(truth)) => {
            for figure in ["gb", "now", "best"] {
                report.equal(&format!("{path}.{figure}"), &said[figure], truth[figure].clone());
            }
        }
        (said, truth) => {
            let why = format!("{said:?}, the truth is {truth:?}");
            report.holds(path, said.is_none() && truth.is_none(), why);
        }
    }
}

fn traffic(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let planned = matrix(&facts.planned, &facts.family, PROXIES[0], facts.by).in_zone;
    let said = &explanation["inZone"];
    report.equal("explain.inZone.now", &said["now"], json!(facts.now(facts.by).in_zone()));
    report.equal("explain.inZone.planned", &said["planned"], json!(planned));
    let best = facts.world.best(&facts.family, facts.by);
    report.equal("explain.inZone.best", &said["best"], json!(best));
    check_cost(report, "explain.cost", explanation.get("cost"), facts);
}

fn consumers(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    if facts.world.kind() == "headless" {
        let said = &explanation["consumers"];
        report.equal("explain.consumers[].consumer", &said[0]["consumer"], "clients");
        report.equal("explain.consumers[].from", &said[0]["from"], json!([]));
        report.equal("explain.consumers[].inZone", &said[0]["inZone"], Value::Null);
        return;
    }
    let families = facts.world.families();
    let pairs: Vec<(usize, &String)> =
        (0..3).flat_map(|proxy| families.iter().map(move |family| (proxy, family))).collect();
    let said = explanation["consumers"].as_array().unwrap();
    report.holds("explain.consumers[]", said.len() == pairs.len(), said.len());
    for (said, (proxy, family)) in said.iter().zip(pairs) {
        let truth = matrix(&facts.planned, family, PROXIES[proxy], By::Zones);
        report.equal("explain.consumers[].consumer", &said["consumer"], PROXIES[proxy].name);
        report.equal("explain.consumers[].family", &said["family"], family.as_str());
        report.equal("explain.consumers[].inZone", &said["inZone"], json!(truth.in_zone));
        rows(report, "explain.consumers[].from[]", &said["from"], &truth);
        for row in said["from"].as_array().unwrap() {
            let zone = row["zone"].as_str().unwrap();
            let stays = truth.rows[zone].to.get(zone).copied().unwrap_or(0.0);
            report.equal("explain.consumers[].from[].inZone", &row["inZone"], stays);
        }
    }
}

/// Zones, modes and reasons of the rows of a matrix.
pub(crate) fn rows(report: &mut Report, path: &str, said: &Value, truth: &Matrix) {
    let said = said.as_array().unwrap();
    report.holds(path, said.len() == truth.rows.len(), said.len());
    for (said, (zone, row)) in said.iter().zip(&truth.rows) {
        report.equal(&format!("{path}.zone"), &said["zone"], zone.as_str());
        report.equal(&format!("{path}.mode"), &said["mode"], row.mode());
        let is_reason = row.reasons().iter().any(|reason| said["reason"] == *reason);
        report.holds(&format!("{path}.reason"), is_reason, said);
    }
}

/// What the simulator's model expects of heuristics whose result is a short formula.
fn heuristic_scores(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let places = facts.world.places(By::Zones);
    let endpoints = facts.endpoints();
    let here = |name: &str| {
        endpoints.iter().filter(|one| one.zone.as_deref() == Some(name)).count() as f64
            / endpoints.len() as f64
    };
    let said = explanation["inZoneByHeuristic"].as_array().unwrap();
    let names: Vec<&Value> = said.iter().map(|score| &score["heuristic"]).collect();
    report.equal(
        "explain.inZoneByHeuristic[].heuristic",
        &json!(names),
        json!(heuristics::names()),
    );
    if places.is_empty() || endpoints.is_empty() {
        return;
    }
    let sum = |of: &dyn Fn(&str) -> f64| -> f64 {
        places.iter().map(|(name, place)| place.share * of(name)).sum()
    };
    for score in said {
        let truth = match (score["heuristic"].as_str().unwrap(), score["reason"].as_str().unwrap())
        {
            ("random" | "spread", _) => sum(&here),
            ("same-zone" | "require-zone", "OwnZone") => {
                sum(&|name| if here(name) > 0.0 { 1.0 } else { 0.0 })
            }
            ("balanced", "SharesBalanced") => facts.world.best(&facts.family, By::Zones).unwrap(),
            (
                _,
                "TooFewForBalance"
                | "TooFewEndpoints"
                | "NodeInformationMissing"
                | "EndpointsWithoutZone"
                | "BelowStartingThreshold"
                | "OneZoneOnly"
                | "HintsGainNothing",
            ) => sum(&here),
            _ => continue,
        };
        report.equal("explain.inZoneByHeuristic[].inZone", &score["inZone"], truth);
    }
}
