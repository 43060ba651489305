//! The smallest changes that turn zone routing on. Only what was tried is suggested.
//!
//! ```text
//!  repair            keep what the Service asks for, and remove the causes that prevent it
//!  ask differently   another annotation, value or setting
//!       │
//!       ▼
//!  apply to a copy of the cluster ─► the controller's own functions ─► on? then suggest it
//! ```

use std::collections::BTreeSet;

use serde::Serialize;
use zonewise_common::keys::{
    DOMAIN, PADDING, ROUTING_PREFERENCE, STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
};
use zonewise_slices::requested::{RequestNote, RequestedRouting};
use zonewise_topology::capacity::WhyLeftOut;
use zonewise_topology::reason::{Code, Reason};

use crate::change::{Change, ControllerView};
use crate::environment::{Component, Environment, ProxyKind};
use crate::ignored;
use crate::service_snapshot::Decision;

/// Changes that together turn zone routing on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The changes. All of them are needed.
    pub steps: Vec<Change>,
    /// The changes as sentences or commands.
    pub sentences: Vec<String>,
    /// The reason after the changes.
    pub then: Code,
    /// What of zonewise must run for that.
    pub needs: Vec<Component>,
}

/// All suggestions. If zonewise's controller is not known to run, those come first that work without
/// zonewise; apart from that, first the one that keeps what the Service asks for. None if zone routing
/// is on with what runs here.
pub fn suggestions(view: &ControllerView, environment: &Environment) -> Vec<Suggestion> {
    if environment.has_controller() {
        return with_zonewise(view);
    }
    // What works without zonewise is what the built-in controller does then, with the steps that it needs.
    let built_in = view.built_in();
    let ours = with_zonewise(view).into_iter().map(|suggestion| match suggestion.needs[..] {
        [] => verified(&built_in, suggestion.steps.clone()).unwrap_or(suggestion),
        _ => suggestion,
    });
    let mut all: Vec<Suggestion> = Vec::new();
    for suggestion in ours.chain(without_zonewise(view)) {
        if !all.iter().any(|known| known.steps == suggestion.steps) {
            all.push(suggestion);
        }
    }
    all.sort_by_key(|suggestion| !suggestion.needs.is_empty());
    all
}

/// The suggestions that work with the built-in controller and kube-proxy.
fn without_zonewise(view: &ControllerView) -> Vec<Suggestion> {
    let mut found = with_zonewise(&view.built_in());
    found.retain(|suggestion| suggestion.needs.is_empty());
    found
}

/// What of zonewise must run for zone routing to be on after some steps: its proxy, if kube-proxy would use
/// all endpoints; its controller, if a step sets it up, or if with the built-in one zone routing would stay off
/// or kube-proxy would use all endpoints: that controller gives hints for zones that have no capacity too.
fn needed_components(view: &ControllerView, steps: &[Change]) -> Vec<Component> {
    let sets_up = |step: &Change| matches!(step, Change::TurnOnGate { .. } | Change::CountNodes);
    let own_setting = !view.settings.upstream && steps.iter().any(sets_up);
    let proxy = !view.is_near_with(ProxyKind::KubeProxy);
    let built_in = view.built_in();
    let suffices = || built_in.is_on() && built_in.is_near_with(ProxyKind::KubeProxy);
    let controller = proxy || own_setting || !suffices();
    let needed = [(controller, Component::Controller), (proxy, Component::Proxy)];
    needed.into_iter().filter(|(needed, _)| *needed).map(|(_, component)| component).collect()
}

/// The suggestions for the controller of the view.
fn with_zonewise(view: &ControllerView) -> Vec<Suggestion> {
    let decision = view.decide();
    if view.is_on() || !view.objects.service.is_ours() {
        return Vec::new();
    }
    let mut candidates: Vec<Vec<Change>> = repair(view, Vec::new()).into_iter().collect();
    candidates.extend(one_pod_fewer(view, decision.reason()));
    // Another value can meet the next obstacle.
    let asked = ask_differently(view, &decision).into_iter().map(|steps| needed(view, steps));
    candidates.extend(asked.filter_map(|steps| repair(view, steps)));
    let mut suggestions: Vec<Suggestion> = Vec::new();
    for suggestion in candidates.into_iter().filter_map(|steps| verified(view, steps)) {
        if !suggestions.iter().any(|known| known.steps == suggestion.steps) {
            suggestions.push(suggestion);
        }
    }
    suggestions
}

/// The largest number of steps of which each is tried without.
const MAX_STEPS: usize = 16;

/// The steps without those that change nothing, because what they would set is there already.
fn needed(view: &ControllerView, mut steps: Vec<Change>) -> Vec<Change> {
    let service = &view.objects.service;
    steps.retain(|step| match step {
        Change::Annotate { key, value } => service.annotations.get(key) != Some(value),
        _ => true,
    });
    steps
}

/// The steps without those that are not needed: without each of the others, zone routing stays off.
fn fewest(view: &ControllerView, mut steps: Vec<Change>) -> Vec<Change> {
    let mut index = 0;
    while index < steps.len() && steps.len() > 1 && steps.len() <= MAX_STEPS {
        let mut fewer = steps.clone();
        fewer.remove(index);
        // A step may be needed only as long as another one is there.
        index = if view.with_all(&fewer).is_on() {
            steps = fewer;
            0
        } else {
            index + 1
        };
    }
    steps
}

/// A suggestion, if the steps turn zone routing on.
fn verified(view: &ControllerView, steps: Vec<Change>) -> Option<Suggestion> {
    let steps = fewest(view, steps);
    let after = view.with_all(&steps);
    let service = &view.objects.service;
    (!steps.is_empty() && after.is_on()).then(|| Suggestion {
        sentences: steps.iter().map(|step| step.sentence(service)).collect(),
        needs: needed_components(&after, &steps),
        steps,
        then: after.reason().code(),
    })
}

/// Removing one cause can reveal the next. There are fewer kinds of causes than rounds.
const ROUNDS: usize = 5;

/// The changes that remove all causes which prevent what the Service asks for after the first steps.
fn repair(view: &ControllerView, mut steps: Vec<Change>) -> Option<Vec<Change>> {
    for _ in 0..ROUNDS {
        let now = view.with_all(&steps);
        if now.is_on() {
            return Some(merged(steps));
        }
        let next = remove_cause(&now, &now.decide());
        if next.is_empty() {
            return None;
        }
        steps.extend(next);
    }
    None
}

/// One Pod fewer, where the endpoints that there are cannot be divided well: for each zone, the first
/// Pod without which they can.
fn one_pod_fewer(view: &ControllerView, reason: Reason) -> Vec<Vec<Change>> {
    if !matches!(reason, Reason::TooFewForBalance { .. } | Reason::OverloadTooHigh { .. }) {
        return Vec::new();
    }
    let mut tried: BTreeSet<&str> = BTreeSet::new();
    let mut found = None;
    for pod in &view.objects.pods {
        let node = pod.node.as_ref().and_then(|name| view.objects.nodes.by_name.get(name));
        let Some(zone) = node.and_then(|node| node.zone.as_deref()) else { continue };
        if found.is_none() && pod.ready && !pod.terminating && tried.insert(zone) {
            let step = Change::RemovePod { pod: pod.name.to_string(), zone: zone.to_owned() };
            found = Some(vec![step]).filter(|steps| view.with_all(steps).is_on());
        }
    }
    found.into_iter().collect()
}

/// Endpoints that several rounds add to one zone become one change.
fn merged(steps: Vec<Change>) -> Vec<Change> {
    let mut merged: Vec<Change> = Vec::new();
    for step in steps {
        let known = merged.iter_mut().find_map(|known| match (known, &step) {
            (
                Change::AddEndpoints { zone, count },
                Change::AddEndpoints { zone: same, count: more },
            ) if zone == same => Some((count, *more)),
            _ => None,
        });
        match known {
            Some((count, more)) => *count += more,
            None => merged.push(step),
        }
    }
    merged
}

/// Changes that remove the cause of the current outcome; empty if there are none.
fn remove_cause(view: &ControllerView, decision: &Decision) -> Vec<Change> {
    match decision.reason() {
        Reason::NodeInformationMissing { .. } => complete_nodes(view, decision),
        Reason::OneZoneOnly => {
            vec![Change::AddNode { zone: new_zone(view), cpu: cores(view) }]
        }
        Reason::EndpointsWithoutZone { .. } => label_nodes_of_endpoints(view),
        Reason::NoEndpoints
        | Reason::NoZoneWithEndpoints
        | Reason::TooFewEndpoints { .. }
        | Reason::TooFewForBalance { .. }
        | Reason::OverloadTooHigh { .. }
        | Reason::BelowStartingThreshold { .. } => more_endpoints(view, decision),
        _ => Vec::new(),
    }
}

fn cores(view: &ControllerView) -> f64 {
    view.usual_cpu() as f64 / 1000.0
}

fn known_zones(view: &ControllerView) -> Vec<String> {
    let zones = &view.objects.nodes.zones_counted.zones;
    zones.iter().map(|zone| zone.name.to_string()).collect()
}

fn new_zone(view: &ControllerView) -> String {
    let known = known_zones(view);
    let mut names = (1..).map(|number| format!("zone-{number}"));
    names.find(|name| !known.contains(name)).unwrap_or_default()
}

/// A zone label or CPU for every node that lacks it. Without any such node, a first node.
fn complete_nodes(view: &ControllerView, decision: &Decision) -> Vec<Change> {
    let capacity = if decision.asked.choice.consumers().is_some() {
        &view.objects.nodes.zones_counted
    } else {
        &view.objects.nodes.zones
    };
    let zone = known_zones(view).into_iter().next().unwrap_or_else(|| new_zone(view));
    let zoneless = capacity.left_out.iter().filter(|left| left.why == WhyLeftOut::NoZone);
    let label =
        zoneless.map(|left| Change::LabelNode { node: left.node.to_string(), zone: zone.clone() });
    let report =
        capacity.without_cpu.iter().map(|node| Change::ReportCpu { node: node.to_string() });
    let changes: Vec<Change> = label.chain(report).collect();
    if changes.is_empty() {
        return vec![Change::AddNode { zone, cpu: cores(view) }];
    }
    changes
}

/// A zone label for every node that runs an endpoint and has no zone.
fn label_nodes_of_endpoints(view: &ControllerView) -> Vec<Change> {
    let zone = known_zones(view).into_iter().next().unwrap_or_else(|| new_zone(view));
    let nodes = &view.objects.nodes.by_name;
    let nodes_of_pods = view.objects.pods.iter().filter_map(|pod| nodes.get(pod.node.as_ref()?));
    let mut names: Vec<String> = nodes_of_pods
        .filter(|node| node.zone.is_none())
        .map(|node| node.name.to_string())
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|node| Change::LabelNode { node, zone: zone.clone() }).collect()
}

/// Bounds the work of one search to about a second: the number of tries times the number of Pods.
const MAX_EFFORT: usize = 2_000_000;
/// Adding more endpoints than this is not suggested.
const MAX_ENDPOINTS: u64 = 200;
/// The number of zones, those that lack most endpoints, to which all additional endpoints are tried to be
/// added.
const MAX_ALONE: usize = 8;

/// The fewest additional endpoints that turn zone routing on: all in one zone, or each in the zone that
/// then lacks most.
fn more_endpoints(view: &ControllerView, decision: &Decision) -> Vec<Change> {
    let needs = needs(view, decision);
    let tries = MAX_EFFORT / (view.objects.pods.len() + 10) / (needs.len().min(MAX_ALONE) + 1);
    for count in 1..=MAX_ENDPOINTS.min(tries as u64) {
        let spread = spread(&needs, count);
        let neediest = needs.iter().take(MAX_ALONE);
        let alone =
            neediest.map(|need| vec![Change::AddEndpoints { zone: need.zone.clone(), count }]);
        let found = std::iter::once(spread).chain(alone).find(|steps| {
            // The next round may remove a cause of another kind.
            let after = view.with_all(steps);
            after.is_on() || !about_endpoints(after.objects.kept_reason(&after.settings))
        });
        if let Some(steps) = found {
            return steps;
        }
    }
    Vec::new()
}

fn about_endpoints(reason: Reason) -> bool {
    matches!(
        reason.code(),
        Code::NoEndpoints
            | Code::NoZoneWithEndpoints
            | Code::TooFewEndpoints
            | Code::TooFewForBalance
            | Code::OverloadTooHigh
            | Code::BelowStartingThreshold
    )
}

/// A zone with its ready endpoints and its share of the capacity.
pub(crate) struct ZoneNeed {
    pub(crate) zone: String,
    pub(crate) endpoints: f64,
    share: f64,
}

impl ZoneNeed {
    /// How many endpoints the zone lacks if there are `total` in the cluster and it has `endpoints`.
    fn lack(&self, total: f64, endpoints: f64) -> f64 {
        self.share * total - endpoints
    }
}

/// The zones with nodes, those that lack most endpoints first.
pub(crate) fn needs(view: &ControllerView, decision: &Decision) -> Vec<ZoneNeed> {
    let slices = view.objects.own_slices(&view.settings);
    let family = decision.family(&view.objects.service);
    let measured = view.objects.measured(&decision.asked);
    let input = view.objects.input(&slices, measured.as_ref());
    let grounds = input.grounds(&decision.asked.choice, family);
    let situation = &grounds.situation;
    let mut zones: Vec<ZoneNeed> = situation
        .names
        .iter()
        .zip(&situation.zones)
        .filter(|(_, zone)| zone.nodes > 0)
        .map(|(name, zone)| ZoneNeed {
            zone: name.to_string(),
            endpoints: zone.endpoints as f64,
            share: zone.share,
        })
        .collect();
    let total: f64 = zones.iter().map(|zone| zone.endpoints).sum();
    let lack = |zone: &ZoneNeed| zone.lack(total, zone.endpoints);
    zones.sort_by(|a, b| lack(b).total_cmp(&lack(a)));
    zones
}

/// Adds `count` endpoints one by one, each to the zone that lacks most.
pub(crate) fn spread(zones: &[ZoneNeed], count: u64) -> Vec<Change> {
    let mut have: Vec<f64> = zones.iter().map(|zone| zone.endpoints).collect();
    let mut added = vec![0u64; zones.len()];
    for _ in 0..count {
        let total: f64 = have.iter().sum::<f64>() + 1.0;
        let lack = |index: usize| zones[index].lack(total, have[index]);
        let neediest = (0..zones.len()).rev().max_by(|&a, &b| lack(a).total_cmp(&lack(b)));
        let Some(neediest) = neediest else { return Vec::new() };
        have[neediest] += 1.0;
        added[neediest] += 1;
    }
    zones
        .iter()
        .zip(added)
        .filter(|(_, count)| *count > 0)
        .map(|(need, count)| Change::AddEndpoints { zone: need.zone.clone(), count })
        .collect()
}

/// Other annotations, values or settings that the Service could use.
fn ask_differently(view: &ControllerView, decision: &Decision) -> Vec<Vec<Change>> {
    let (asked, ours) = (&decision.asked, !view.settings.upstream);
    // The reference has no such annotations; the gate of `Auto` it has here.
    let known = |note: &&RequestNote| ours || note.reason.code() == Code::GateOff;
    let mut suggestions: Vec<Vec<Change>> =
        asked.notes.iter().filter(known).map(corrected).filter(|steps| !steps.is_empty()).collect();
    match decision.reason() {
        Reason::BelowStartingThreshold { endpoints, padding, .. } => {
            suggestions.extend(lower_threshold(endpoints, padding));
        }
        Reason::NodeInformationMissing { .. } if ours => suggestions.push(vec![Change::CountNodes]),
        Reason::ClusterWide => {
            suggestions.push(vec![annotate(TOPOLOGY_MODE, "Auto")]);
            let value = "PreferSameZone".into();
            suggestions.push(vec![Change::SetTrafficDistribution { value }]);
        }
        _ => {}
    }
    if ours {
        let mut steps = remove_stronger(asked);
        steps.push(annotate(ROUTING_PREFERENCE, &format!("{DOMAIN}balanced")));
        suggestions.push(steps);
    }
    suggestions
}

pub(crate) fn annotate(key: &str, value: &str) -> Change {
    Change::Annotate { key: key.into(), value: value.into() }
}

/// What makes an ignored annotation take effect, or what it was probably meant to be.
fn corrected(note: &RequestNote) -> Vec<Change> {
    match note.reason.code() {
        Code::GateOff => ignored::changes(note),
        _ if note.meant.is_some() => ignored::changes(note),
        Code::TopologyModeUnknown | Code::SubsettingUnknown => vec![annotate(&note.source, "Auto")],
        Code::PreferenceReserved | Code::PreferenceUnknown if note.source == ROUTING_PREFERENCE => {
            vec![annotate(&note.source, &format!("{DOMAIN}balanced"))]
        }
        _ => Vec::new(),
    }
}

/// Thresholds at which the endpoints are enough: with the current padding, or with none. If the
/// endpoints reach the threshold itself, less padding suffices.
fn lower_threshold(endpoints: u64, padding: u64) -> Vec<Vec<Change>> {
    let threshold = |value: u64| annotate(STARTING_THRESHOLD, &value.to_string());
    let with_padding = endpoints.checked_sub(padding).filter(|value| *value > 0);
    with_padding
        .map(|value| vec![threshold(value)])
        .into_iter()
        .chain([vec![threshold(endpoints.max(1)), annotate(PADDING, "0")]])
        .collect()
}

/// Removes the annotation that takes precedence over the routing preference.
pub(crate) fn remove_stronger(asked: &RequestedRouting) -> Vec<Change> {
    let wins = [TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE, SUBSETTING].contains(&asked.source);
    let key = asked.source.to_owned();
    wins.then_some(Change::RemoveAnnotation { key }).into_iter().collect()
}
