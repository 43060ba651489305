//! What the documents say about a cluster as it is, against own arithmetic.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_explain::Depth;

use super::documents::{Cluster, GB, PRICE, is_on};
use super::fields::Report;
use super::figures::{
    By, Endpoint, Matrix, Node, PROXIES, World, anywhere, matrix, mixed_matrix, on_node, usable,
    way,
};
use super::here::{self, Here, Now};
use super::screens::{MARKS, percent, plain, row, signed, table, text};
use super::{reasons, verdicts};

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
    heuristics(report, &facts, explanation);
    plan(report, cluster, &settled, explanation);
    overview(report, &facts, cluster, explanation);
    routes(report, &facts, cluster);
    matrices(report, &facts, cluster);
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

fn check_cost(report: &mut Report, path: &str, said: Option<&Value>, facts: &Facts<'_>) {
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
fn rows(report: &mut Report, path: &str, said: &Value, truth: &Matrix) {
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
fn heuristics(report: &mut Report, facts: &Facts<'_>, explanation: &Value) {
    let places = facts.world.places(By::Zones);
    let endpoints = facts.endpoints();
    let here = |name: &str| {
        endpoints.iter().filter(|one| one.zone.as_deref() == Some(name)).count() as f64
            / endpoints.len() as f64
    };
    let said = explanation["inZoneByHeuristic"].as_array().unwrap();
    report.holds("explain.inZoneByHeuristic[].heuristic", said.len() == 14, said.len());
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
                | "OneZoneOnly",
            ) => sum(&here),
            _ => continue,
        };
        report.equal("explain.inZoneByHeuristic[].inZone", &score["inZone"], truth);
    }
}

fn plan(report: &mut Report, cluster: &Cluster, settled: &Cluster, explanation: &Value) {
    let (full, row) = cluster.plan(Depth::Full);
    let (brief, _) = cluster.plan(Depth::Arithmetic);
    report.document("plan", &full);
    let mut same = full["explanation"].clone();
    if let Some(cost) = explanation.get("cost") {
        same["cost"] = cost.clone();
    }
    report.holds("plan.explanation", same == *explanation, "explain says something else");
    for (key, said) in brief["explanation"].as_object().unwrap() {
        if ["reason", "outcome", "endpoints", "asked", "family"].contains(&key.as_str()) {
            report.equal(&format!("plan.explanation.{key}"), said, explanation[key].clone());
        }
    }
    report.equal("plan.service", &full["service"], "shop/web");
    let count = |key: &str| full[key].as_array().unwrap().len();
    for key in ["creates", "updates", "deletes"] {
        report.equal(&format!("explain.slices.{key}"), &explanation["slices"][key], count(key));
    }
    let own =
        |one: &&Value| one["kind"] == "EndpointSlice" && one["metadata"]["name"] != "web-other";
    let after = settled.objects.iter().filter(own).count();
    let mut stored: Vec<String> =
        cluster.objects.iter().filter(own).map(|one| text(&one["metadata"]["name"])).collect();
    let mut named: Vec<String> = Vec::new();
    for key in ["deletes", "unchanged"] {
        named.extend(full[key].as_array().unwrap().iter().map(text));
        report.checks(&format!("plan.{key}[]"));
    }
    let updates = full["updates"].as_array().unwrap().iter();
    named.extend(updates.map(|slice| text(&slice["metadata"]["name"])));
    stored.sort();
    named.sort();
    report.holds("plan.unchanged[]", named == stored, format!("{named:?} {stored:?}"));
    slices(report, settled);
    let writes = match ["creates", "updates", "deletes"].map(count) {
        [0, 0, 0] => "none".to_owned(),
        [creates, updates, deletes] => format!("+{creates} ~{updates} -{deletes}"),
    };
    let mut hints: BTreeMap<String, usize> = BTreeMap::new();
    for slice in settled.objects.iter().filter(own) {
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let zones = endpoint["hints"]["forZones"].as_array().into_iter().flatten();
            zones.for_each(|zone| *hints.entry(text(&zone["name"])).or_default() += 1);
        }
    }
    let hints: Vec<String> = hints.iter().map(|(zone, count)| format!("{zone}:{count}")).collect();
    let hints = if hints.is_empty() { "-".to_owned() } else { hints.join(" ") };
    let why = format!("{row:?} {writes} {hints}");
    let cells = [&text(&explanation["endpoints"]), &after.to_string()];
    let decided = match World::of(cluster).kind() {
        "headless" => row[1] == "(headless)" && row[2] == "-",
        "localPolicy" => row[1] == "(policy Local)" && row[2] == "-",
        _ => {
            let word = if is_on(explanation) { "active" } else { "not active" };
            explanation["reason"] == *row[1] && row[2] == word
        }
    };
    let right = row[0] == "shop/web"
        && decided
        && [&row[3], &row[4]] == cells
        && row[5].starts_with(&writes)
        && row[6] == hints;
    report.holds("plan row", right, why);
}

/// The planned slices hold every Pod that counts once, as it is.
fn slices(report: &mut Report, settled: &Cluster) {
    let world = World::of(settled);
    let own =
        |one: &&Value| one["kind"] == "EndpointSlice" && one["metadata"]["name"] != "web-other";
    let mut names: Vec<&Value> = Vec::new();
    let mut listed: BTreeMap<String, Value> = BTreeMap::new();
    for slice in settled.objects.iter().filter(own) {
        let (meta, labels) = (&slice["metadata"], &slice["metadata"]["labels"]);
        let right = meta["namespace"] == "shop"
            && labels["kubernetes.io/service-name"] == "web"
            && labels["endpointslice.kubernetes.io/managed-by"]
                == "endpointslice-controller.k8s.io"
            && meta["ownerReferences"][0]["uid"] == "svc-uid"
            && !names.contains(&&meta["name"])
            && (slice["endpoints"].as_array().unwrap().is_empty()
                || slice["ports"] == json!([{"name": "http", "protocol": "TCP", "port": 8080}]));
        report.holds("plan slices", right, slice);
        names.push(&meta["name"]);
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let mut endpoint = endpoint.clone();
            endpoint.as_object_mut().unwrap().remove("hints");
            let address = text(&endpoint["addresses"][0]);
            let right = address.contains(':') == (slice["addressType"] == "IPv6");
            let once = listed.insert(address, endpoint).is_none();
            report.holds("plan slices", once && right, slice);
        }
    }
    let mut truth: BTreeMap<String, Value> = BTreeMap::new();
    for pod in world.pods() {
        let Some(node) = world.node(&pod["spec"]["nodeName"]) else { continue };
        let ips = pod["status"]["podIPs"].as_array().unwrap().iter().map(|ip| text(&ip["ip"]));
        let wanted = |ip: &String| {
            let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
            world.families().iter().any(|one| one == family)
        };
        for ip in ips.filter(wanted) {
            truth.insert(ip.clone(), endpoint_of(pod, node, &ip));
        }
    }
    report.holds("plan slices", listed == truth, format!("{listed:#?}\n{truth:#?}"));
    for path in ["plan.creates", "plan.updates"] {
        report.covers(path);
    }
}

/// The endpoint of a Pod, without hints.
fn endpoint_of(pod: &Value, node: &Node, ip: &str) -> Value {
    let terminating = !pod["metadata"]["deletionTimestamp"].is_null();
    let serving = pod["status"]["conditions"][0]["status"] == "True";
    let mut endpoint = json!({
        "addresses": [ip],
        "conditions": {
            "ready": serving && !terminating, "serving": serving, "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod", "namespace": "shop", "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
        "nodeName": node.name,
    });
    if let Some(zone) = &node.zone {
        endpoint["zone"] = (**zone).into();
    }
    endpoint
}

fn overview(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster, explanation: &Value) {
    let (said, screen) = cluster.overview();
    report.document("overview", &said);
    for key in ["service", "endpoints", "serviceKind"] {
        report.equal(&format!("overview.{key}"), &said[key], explanation[key].clone());
    }
    for key in ["reason", "outcome"] {
        let decided = if facts.is_routed() { explanation[key].clone() } else { Value::Null };
        report.equal(&format!("overview.{key}"), &said[key], decided);
    }
    report.equal("overview.asked", &said["asked"], explanation["asked"]["value"].clone());
    report.equal("overview.source", &said["source"], explanation["asked"]["source"].clone());
    traffic_now(report, &said, &facts.world, &facts.now(By::Zones));
    let best = facts.world.best(&facts.family, By::Zones).filter(|_| facts.is_routed());
    report.equal("overview.best", &said["best"], json!(best));
    check_cost(report, "overview.cost", said.get("cost"), facts);
    let places = facts.world.places(By::Zones).into_keys();
    let bare = facts.by == By::Zones && !facts.endpoints().is_empty();
    let bare: Vec<String> = places.filter(|name| bare && facts.endpoints_at(name) == 0).collect();
    report.whole("overview.zonesWithoutEndpoints", &said["zonesWithoutEndpoints"], json!(bare));
    report.whole("overview.ignored", &said["ignored"], own_notes(explanation));
    for score in explanation["inZoneByHeuristic"].as_array().unwrap() {
        let name = score["heuristic"].as_str().unwrap();
        if let Some(said) = said["byHeuristic"].get(name) {
            report.equal("overview.byHeuristic.*", said, score["inZone"].clone());
        }
    }
    overview_screen(report, &said, &plain(&screen), &facts.here);
}

/// What the overview says of the traffic of a Service.
pub(crate) fn traffic_now(report: &mut Report, said: &Value, world: &World<'_>, now: &Now) {
    report.equal("overview.state", &said["state"], verdicts::active(world, now).0);
    let in_zone = now.in_zone();
    report.equal("overview.inZone", &said["inZone"], json!(in_zone));
    report.equal("overview.crossZone", &said["crossZone"], json!(in_zone.map(|part| 1.0 - part)));
    let matrix = now.matrix();
    let most = matrix.and_then(Matrix::most);
    report.equal("overview.maxOverload", &said["maxOverload"], json!(most));
    let dropped = matrix.map(|matrix| matrix.dropped);
    report.equal("overview.dropped", &said["dropped"], json!(dropped));
    let modes = matrix.map(Matrix::modes).unwrap_or_default();
    report.whole("overview.modes", &said["modes"], json!(modes));
}

/// What is ignored of the Service itself.
fn own_notes(explanation: &Value) -> Value {
    let notes = explanation["notes"].as_array().unwrap().iter();
    notes.filter(|note| note["source"] != "slices of other writers").cloned().collect()
}

pub(crate) fn overview_screen(report: &mut Report, said: &Value, screen: &str, here: &Here) {
    let shown = table(screen, &["SERVICE"]);
    let modes: Vec<String> = said["modes"].as_array().unwrap().iter().map(text).collect();
    let modes = if modes.is_empty() { "-".to_owned() } else { modes.join(",") };
    let ignored = said["ignored"].as_array().unwrap();
    let asked = text(&said["asked"]);
    let asked_cell = match asked.strip_prefix("zonewise.dev/").unwrap_or(&asked) {
        "" => "-".to_owned(),
        asked => asked.to_owned(),
    };
    let money = |of: &dyn Fn(&Value) -> f64| {
        said.get("cost").map_or_else(|| "-".to_owned(), |cost| format!("{:.2}", of(cost)))
    };
    let paid = |cost: &Value, key: &str| cost[key].as_f64().unwrap();
    let running = |state: &str| ["running", "assumed"].contains(&state);
    let reason_title = match here.tells_built_in {
        true if running(here.built_in) => "REASON",
        true => "IF BUILT-IN RAN",
        false if running(here.controller) => "REASON",
        false => "IF ZONEWISE RAN",
    };
    report.holds("overview screen", shown[0].contains_key(reason_title), screen);
    let reason = match said["serviceKind"].as_str().unwrap() {
        "headless" => "(headless)".into(),
        "externalName" => "(ExternalName)".into(),
        "withoutSelector" => "(no selector)".into(),
        "localPolicy" => "(policy Local)".into(),
        _ => text(&said["reason"]),
    };
    let (active, counted) = match said["state"].as_str().unwrap() {
        "active" => ("yes", "is active for 1 of 1 Service"),
        "partlyActive" => ("partly", "is active for 0 of 1 Service, partly active for 1"),
        "notActive" => ("no", "is active for 0 of 1 Service"),
        "local" => ("local", "is active for 0 of 1 Service"),
        "notApplicable" => ("-", "is active for 0 of 1 Service"),
        _ => ("unknown", "is active for 0 of 1 Service, unknown for 1"),
    };
    let first = screen.lines().next().unwrap();
    report.holds("overview screen", first.ends_with(counted), screen);
    let model = |name: &str| percent(said["byHeuristic"].get(name).unwrap_or(&Value::Null));
    let truth = [
        ("SERVICE", text(&said["service"])),
        ("ASKED", asked_cell),
        ("MODE", modes),
        ("ACTIVE", active.to_owned()),
        (reason_title, reason),
        ("ENDPOINTS", text(&said["endpoints"])),
        ("IN ZONE", percent(&said["inZone"])),
        ("CROSSES", percent(&said["crossZone"])),
        ("AUTO (MODEL)", model("auto")),
        ("SAME-ZONE (MODEL)", model("same-zone")),
        ("BALANCED (MODEL)", model("balanced")),
        ("BEST SAFE", percent(&said["best"])),
        ("OVERLOAD", signed(&said["maxOverload"])),
        ("COST", money(&|cost| paid(cost, "now"))),
        ("CAN SAVE", money(&|cost| paid(cost, "now") - paid(cost, "best"))),
    ];
    let marks = shown[0].get(MARKS).map_or("", String::as_str);
    report.holds("overview screen", marks.contains('!') != ignored.is_empty(), screen);
    report.holds("overview screen", marks.contains('~') == is_poor(said), screen);
    row(report, "overview screen", &shown[0], &truth);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for note in ignored {
        let shown = words(screen).contains(&words(&text(&note["sentence"])));
        report.holds("overview screen", shown, screen);
    }
}

/// Whether traffic is kept near, but an endpoint gets far more than its share, or a zone has none.
fn is_poor(said: &Value) -> bool {
    let near = ["same-node", "same-zone", "shares"];
    let on =
        said["modes"].as_array().unwrap().iter().any(|mode| near.iter().any(|one| mode == one));
    let overloaded = said["maxOverload"].as_f64().is_some_and(|most| most > 0.200_001);
    on && (overloaded || said["zonesWithoutEndpoints"] != json!([]))
}

fn endpoint(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:8080") } else { format!("{address}:8080") }
}

/// What a node does, from the point of view of both traffic policies.
struct Truth {
    mode: &'static str,
    reason: &'static str,
    /// Endpoints for the policy Cluster, with their parts, and for the policy Local.
    cluster: Option<Vec<(String, f64)>>,
    local: Option<Vec<String>>,
    all: Option<Vec<String>>,
    has_any: bool,
}

fn truth_of(facts: &Facts<'_>, family: &str, node: &Node) -> Truth {
    let world = &facts.world;
    let (has_usable, has_some) = usable(world, family);
    let uses_cluster = !world.is_local() || world.has_node_port();
    let uses_local = world.is_local() || world.is_local_outside();
    let far = anywhere(world, family, node, facts.here.shown(node));
    let near = on_node(world, family, node);
    let names = |to: &[(String, f64)]| -> Vec<String> {
        let mut names: Vec<String> = to.iter().map(|(one, _)| endpoint(one)).collect();
        names.sort();
        names
    };
    let local = Some(names(&near.to)).filter(|list| uses_local && !list.is_empty());
    if !has_some {
        let (mode, reason) = ("any", "NoEndpoints");
        return Truth { mode, reason, cluster: None, local: None, all: None, has_any: false };
    }
    if !uses_cluster {
        let mode = if near.reason == "OnlyTerminating" { "terminating" } else { "local" };
        let all = local.clone();
        return Truth { mode, reason: near.reason, cluster: None, local, all, has_any: has_usable };
    }
    let mut all = names(&far.to);
    // Where all ready endpoints are used, those on this node are among them, unless they are used
    // because none of them is ready.
    all.extend(local.iter().flatten().cloned());
    all.sort();
    all.dedup();
    let has_any = if uses_local { has_usable } else { !far.to.is_empty() };
    let cluster = far.to.into_iter().map(|(one, part)| (endpoint(&one), part)).collect();
    Truth {
        mode: far.mode,
        reason: far.reason,
        cluster: Some(cluster),
        local,
        all: Some(all),
        has_any,
    }
}

/// The list of a document, sorted; `null` and an empty list are the same.
fn sorted(list: &Value) -> Vec<String> {
    let mut list: Vec<String> = list.as_array().into_iter().flatten().map(text).collect();
    list.sort();
    list
}

pub(crate) fn routes(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster) {
    for node in &facts.world.nodes {
        let (lines, screen) = cluster.routes(&node.name);
        report.document("route", &lines);
        let lines = lines.as_array().unwrap();
        let families = facts.world.routed_families();
        report.holds("route[]", lines.len() == families.len(), lines.len());
        for (said, family) in lines.iter().zip(&families) {
            let truth = truth_of(facts, family, node);
            report.equal("route[].service", &said["service"], "shop/web");
            report.equal("route[].port", &said["port"], "http");
            report.equal("route[].protocol", &said["protocol"], "TCP");
            report.equal("route[].family", &said["family"], family.as_str());
            report.equal("route[].mode", &said["mode"], truth.mode);
            report.equal("route[].reason", &said["reason"], truth.reason);
            report.equal("route[].hasAnyEndpoints", &said["hasAnyEndpoints"], truth.has_any);
            let to = truth.cluster.unwrap_or_default();
            let mut names: Vec<&String> = to.iter().map(|(one, _)| one).collect();
            names.sort();
            report.whole("route[].cluster", &json!(sorted(&said["cluster"])), json!(names));
            let local = truth.local.unwrap_or_default();
            report.whole("route[].local", &json!(sorted(&said["local"])), json!(local));
            let all = truth.all.unwrap_or_default();
            report.whole("route[].allReachable", &json!(sorted(&said["allReachable"])), json!(all));
            weights(report, said, &to);
        }
        if !lines.is_empty() {
            routes_screen(report, lines, &plain(&screen));
        }
    }
}

fn routes_screen(report: &mut Report, lines: &[Value], screen: &str) {
    for (shown, said) in table(screen, &["SERVICE", "PORT"]).iter().zip(lines) {
        let truth = [
            ("SERVICE", text(&said["service"])),
            ("FAMILY", text(&said["family"])),
            ("MODE", text(&said["mode"])),
            ("REASON", text(&said["reason"])),
        ];
        row(report, "route screen", shown, &truth);
        let both = ["cluster", "local"].map(|key| said[key].as_array().into_iter().flatten());
        for endpoint in both.into_iter().flatten() {
            let listed = shown["ENDPOINTS"].contains(&text(endpoint));
            report.holds("route screen", listed, screen);
        }
    }
}

fn weights(report: &mut Report, said: &Value, to: &[(String, f64)]) {
    let Some(weights) = said.get("weights").and_then(Value::as_array) else { return };
    let listed = said["cluster"].as_array().unwrap();
    for (endpoint, weight) in listed.iter().zip(weights) {
        let (_, part) = to.iter().find(|(one, _)| *endpoint == **one).unwrap();
        let close = (weight.as_f64().unwrap() - part * 1e6).abs() < 2.0;
        report.holds("route[].weights[]", close, format!("{endpoint} {weight} {part}"));
    }
}

pub(crate) fn matrices(report: &mut Report, facts: &Facts<'_>, cluster: &Cluster) {
    let (documents, screens) = cluster.matrices();
    report.document("matrix", &documents);
    let documents = documents.as_array().unwrap();
    let families = facts.world.routed_families();
    let sends = !facts.world.counted(By::Zones).is_empty();
    let expected = if sends { families.len() } else { 0 };
    report.holds("matrix[]", documents.len() == expected, documents.len());
    for ((said, family), screen) in documents.iter().zip(families).zip(&screens) {
        let proxy_of = |node: &Node| facts.here.shown(node);
        let truth = mixed_matrix(&facts.world, &family, &proxy_of, By::Zones);
        one_matrix(report, "matrix[]", said, (&facts.world, &family, &truth));
        matrix_screen(report, said, &plain(screen));
    }
}

/// One matrix of a document.
pub(crate) fn one_matrix(
    report: &mut Report,
    path: &str,
    said: &Value,
    (world, family, truth): (&World<'_>, &str, &Matrix),
) {
    report.equal(&format!("{path}.service"), &said["service"], "shop/web");
    report.equal(&format!("{path}.port"), &said["port"], "http");
    report.equal(&format!("{path}.protocol"), &said["protocol"], "TCP");
    report.equal(&format!("{path}.family"), &said["family"], family);
    report.equal(&format!("{path}.inZone"), &said["inZone"], json!(truth.in_zone));
    rows(report, &format!("{path}.from[]"), &said["from"], truth);
    for row in said["from"].as_array().unwrap() {
        let of = &truth.rows[row["zone"].as_str().unwrap()];
        report.equal(&format!("{path}.from[].share"), &row["share"], of.share);
        let to = row["to"].as_object().unwrap();
        report.holds(&format!("{path}.from[].to"), to.len() == of.to.len(), row);
        for (zone, part) in to {
            report.equal(&format!("{path}.from[].to.*"), part, of.to[zone]);
        }
        report.equal(&format!("{path}.from[].dropped"), &row["dropped"], of.dropped);
        ways(report, path, row.get("ways").unwrap_or(&Value::Null), &of.parts());
    }
    report.equal(&format!("{path}.dropped"), &said["dropped"], truth.dropped);
    // Nodes are named where those of one zone can differ.
    let by_node =
        |one: &Value| one["kind"] == "EndpointSlice" && one.to_string().contains("forNodes");
    let differ = world.is_local() || world.cluster.objects.iter().any(by_node);
    let dropping: Vec<&String> = truth.dropping.iter().filter(|_| differ).collect();
    let listed = said.get("droppingNodes").map(sorted).unwrap_or_default();
    report.whole(&format!("{path}.droppingNodes"), &json!(listed), json!(dropping));
    let loads = said["endpoints"].as_array().unwrap();
    report.holds(&format!("{path}.endpoints[]"), loads.len() == truth.overload.len(), loads.len());
    for load in loads {
        let name = load["endpoint"].as_str().unwrap();
        let address = name.strip_suffix(":8080").unwrap().trim_matches(['[', ']']);
        let overload = truth.overload[address];
        report.checks(&format!("{path}.endpoints[].endpoint"));
        report.equal(&format!("{path}.endpoints[].overload"), &load["overload"], overload);
        let zone = &*truth.homes[address];
        report.equal(&format!("{path}.endpoints[].zone"), &load["zone"], zone);
    }
}

fn ways(report: &mut Report, path: &str, said: &Value, truth: &[(&str, &str, f64)]) {
    let (path, said) =
        (format!("{path}.from[].ways"), said.as_array().map_or(&[][..], |said| said));
    report.holds(&path, said.len() == truth.len(), json!(said));
    for (mode, reason, part) in truth {
        let way = said.iter().find(|way| way["mode"] == *mode && way["reason"] == *reason);
        let way = way.unwrap_or(&Value::Null);
        report.equal(&format!("{path}[].mode"), &way["mode"], *mode);
        report.equal(&format!("{path}[].reason"), &way["reason"], *reason);
        report.equal(&format!("{path}[].part"), &way["part"], *part);
    }
}

pub(crate) fn matrix_screen(report: &mut Report, said: &Value, screen: &str) {
    let rows = said["from"].as_array().unwrap();
    for (shown, said) in table(screen, &["FROM", "TRAFFIC"]).iter().zip(rows) {
        let mut truth = vec![
            ("FROM".to_owned(), text(&said["zone"])),
            ("TRAFFIC".to_owned(), percent(&said["share"])),
            ("MODE".to_owned(), text(&said["mode"])),
            ("REASON".to_owned(), text(&said["reason"])),
        ];
        if shown.contains_key("DROPPED") {
            truth.push(("DROPPED".to_owned(), percent(&said["dropped"])));
        }
        for (zone, part) in said["to"].as_object().unwrap() {
            let zone = if zone.is_empty() { "no zone" } else { zone };
            let column = format!("TO {zone}");
            report.holds("matrix screen", shown.contains_key(&column), screen);
            truth.push((column, percent(part)));
        }
        let truth: Vec<(&str, String)> =
            truth.iter().map(|(column, cell)| (&**column, cell.clone())).collect();
        row(report, "matrix screen", shown, &truth);
    }
    let loads = said["endpoints"].as_array().unwrap();
    for (shown, load) in table(screen, &["ENDPOINT", "ZONE"]).iter().zip(loads) {
        let truth =
            [("ENDPOINT", text(&load["endpoint"])), ("OVERLOAD", signed(&load["overload"]))];
        row(report, "matrix screen", shown, &truth);
    }
    let stays = format!("stays in its zone: {}", percent(&said["inZone"]));
    report.holds("matrix screen", screen.contains(&stays), screen);
    let drops = said["dropped"].as_f64().unwrap() > 0.0;
    let dropped = format!("dropped: {}, because", percent(&said["dropped"]));
    report.holds("matrix screen", screen.contains(&dropped) == drops, screen);
    let dropping = said["droppingNodes"].as_array().into_iter().flatten().take(5);
    for node in dropping.map(text) {
        report.holds("matrix screen", screen.contains(&node), screen);
    }
}
