//! The smallest changes that turn zone routing on. Each is tried before it is told.
//!
//! ```text
//!  repair       keep what is asked, mend what stands against it, one reason after the other
//!  ask anew     another key or value, another setting
//!                   │
//!                   ▼
//!  apply to the scene ─► the controller's own functions ─► on? then tell
//! ```

use serde::Serialize;
use zonewise_common::keys::{
    DOMAIN, PADDING, ROUTING_PREFERENCE, STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
};
use zonewise_slices::requested::RequestedRouting;
use zonewise_topology::capacity::WhyLeftOut;
use zonewise_topology::heuristics;
use zonewise_topology::reason::{Code, Reason};

use crate::change::{Change, Stage};
use crate::scene::Verdict;

/// One way to turn it on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// What to change, all of it.
    pub steps: Vec<Change>,
    /// The same for people.
    pub sentences: Vec<String>,
    /// What the reason is then.
    pub then: Code,
}

/// Every way found, the ones that keep what was asked first. Empty when it is on.
pub fn ways(stage: &Stage) -> Vec<Way> {
    let verdict = stage.judge();
    if verdict.is_on() || !stage.scene.service.is_ours() {
        return Vec::new();
    }
    let mut candidates: Vec<Vec<Change>> = repair(stage).into_iter().collect();
    candidates.extend(ask_anew(stage, &verdict));
    let mut ways: Vec<Way> = Vec::new();
    for way in candidates.into_iter().filter_map(|steps| verified(stage, steps)) {
        if !ways.iter().any(|known| known.steps == way.steps) {
            ways.push(way);
        }
    }
    ways
}

fn verified(stage: &Stage, steps: Vec<Change>) -> Option<Way> {
    let verdict = stage.with_all(&steps).judge();
    let service = &stage.scene.service;
    (!steps.is_empty() && verdict.is_on()).then(|| Way {
        sentences: steps.iter().map(|step| step.sentence(service)).collect(),
        steps,
        then: verdict.reason().code(),
    })
}

/// More rounds than there are reasons that follow each other.
const ROUNDS: usize = 5;

/// Mends what stands against what is asked.
fn repair(stage: &Stage) -> Option<Vec<Change>> {
    let mut steps: Vec<Change> = Vec::new();
    for _ in 0..ROUNDS {
        let now = stage.with_all(&steps);
        let verdict = now.judge();
        if verdict.is_on() {
            return Some(together(steps));
        }
        let next = mend(&now, &verdict);
        if next.is_empty() {
            return None;
        }
        steps.extend(next);
    }
    None
}

/// Endpoints that several rounds add to one zone, told as one change.
fn together(steps: Vec<Change>) -> Vec<Change> {
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

fn mend(stage: &Stage, verdict: &Verdict) -> Vec<Change> {
    match verdict.reason() {
        Reason::NodeInformationMissing { .. } => nodes_to_mend(stage, verdict),
        Reason::OneZoneOnly => {
            vec![Change::AddNode { zone: new_zone(stage), cpu: cores(stage) }]
        }
        Reason::EndpointsWithoutZone { .. } => homes(stage),
        Reason::NoEndpoints
        | Reason::TooFewEndpoints { .. }
        | Reason::TooFewForBalance { .. }
        | Reason::OverloadTooHigh { .. }
        | Reason::BelowStartingThreshold { .. } => more_endpoints(stage, verdict),
        _ => Vec::new(),
    }
}

fn cores(stage: &Stage) -> f64 {
    stage.usual_cpu() as f64 / 1000.0
}

fn known_zones(stage: &Stage) -> Vec<String> {
    let zones = &stage.scene.nodes.zones_counted.zones;
    zones.iter().map(|zone| zone.name.to_string()).collect()
}

fn new_zone(stage: &Stage) -> String {
    let known = known_zones(stage);
    let mut names = (1..).map(|number| format!("zone-{number}"));
    names.find(|name| !known.contains(name)).unwrap_or_default()
}

/// A label or CPU for every node that makes capacity unknown; without any node, a first one.
fn nodes_to_mend(stage: &Stage, verdict: &Verdict) -> Vec<Change> {
    let capacity = if verdict.asked.choice.consumers().is_some() {
        &stage.scene.nodes.zones_counted
    } else {
        &stage.scene.nodes.zones
    };
    let zone = known_zones(stage).into_iter().next().unwrap_or_else(|| new_zone(stage));
    let mend = |left: &zonewise_topology::capacity::LeftOut| match left.why {
        WhyLeftOut::NoZone => {
            Some(Change::LabelNode { node: left.node.to_string(), zone: zone.clone() })
        }
        WhyLeftOut::NoCpu => Some(Change::ReportCpu { node: left.node.to_string() }),
        WhyLeftOut::NotReady | WhyLeftOut::ControlPlane => None,
    };
    let changes: Vec<Change> = capacity.left_out.iter().filter_map(mend).collect();
    if changes.is_empty() {
        return vec![Change::AddNode { zone, cpu: cores(stage) }];
    }
    changes
}

/// A zone label for every node that runs an endpoint and has none.
fn homes(stage: &Stage) -> Vec<Change> {
    let zone = known_zones(stage).into_iter().next().unwrap_or_else(|| new_zone(stage));
    let nodes = &stage.scene.nodes.by_name;
    let homeless = stage.scene.pods.iter().filter_map(|pod| nodes.get(pod.node.as_ref()?));
    let mut names: Vec<String> =
        homeless.filter(|node| node.zone.is_none()).map(|node| node.name.to_string()).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|node| Change::LabelNode { node, zone: zone.clone() }).collect()
}

/// Endpoints looked at in one search, over all tries: a second of work.
const EFFORT: usize = 2_000_000;
/// More is no small change.
const MOST_ENDPOINTS: u64 = 200;

/// The fewest endpoints that turn it on: all in one zone, or one by one where they lack most.
fn more_endpoints(stage: &Stage, verdict: &Verdict) -> Vec<Change> {
    let need = needs(stage, verdict);
    let tries = EFFORT / (stage.scene.pods.len() + 10) / (need.len() + 1);
    for count in 1..=MOST_ENDPOINTS.min(tries as u64) {
        let spread = spread(&need, count);
        let alone =
            need.iter().map(|(zone, _)| vec![Change::AddEndpoints { zone: zone.clone(), count }]);
        let found = std::iter::once(spread).chain(alone).find(|steps| {
            let verdict = stage.with_all(steps).judge();
            // Another reason in its place may be mended in the next round.
            verdict.is_on() || !about_endpoints(verdict.reason())
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
            | Code::TooFewEndpoints
            | Code::TooFewForBalance
            | Code::OverloadTooHigh
            | Code::BelowStartingThreshold
    )
}

/// Zones with what they have and should have a part of, the neediest first.
fn needs(stage: &Stage, verdict: &Verdict) -> Vec<(String, (f64, f64))> {
    let slices = stage.scene.own_slices(&stage.settings);
    let family = verdict.family(&stage.scene.service);
    let grounds = stage.scene.input(&slices).grounds(&verdict.asked.choice, family);
    let situation = &grounds.situation;
    let mut zones: Vec<(String, (f64, f64))> = situation
        .names
        .iter()
        .zip(&situation.zones)
        .filter(|(_, zone)| zone.nodes > 0)
        .map(|(name, zone)| (name.to_string(), (zone.endpoints as f64, zone.share)))
        .collect();
    let total: f64 = zones.iter().map(|(_, (endpoints, _))| endpoints).sum();
    let lack = |(_, (endpoints, share)): &(String, (f64, f64))| share * total - endpoints;
    zones.sort_by(|a, b| lack(b).total_cmp(&lack(a)));
    zones
}

/// So many endpoints, one after the other to the zone that lacks most.
fn spread(zones: &[(String, (f64, f64))], count: u64) -> Vec<Change> {
    let mut have: Vec<f64> = zones.iter().map(|(_, (endpoints, _))| *endpoints).collect();
    let mut added = vec![0u64; zones.len()];
    for _ in 0..count {
        let total: f64 = have.iter().sum::<f64>() + 1.0;
        let lack = |zone: usize| zones[zone].1.1 * total - have[zone];
        let poorest = (0..zones.len()).rev().max_by(|&a, &b| lack(a).total_cmp(&lack(b)));
        let Some(poorest) = poorest else { return Vec::new() };
        have[poorest] += 1.0;
        added[poorest] += 1;
    }
    zones
        .iter()
        .zip(added)
        .filter(|(_, count)| *count > 0)
        .map(|((zone, _), count)| Change::AddEndpoints { zone: zone.clone(), count })
        .collect()
}

/// Other things to ask for.
fn ask_anew(stage: &Stage, verdict: &Verdict) -> Vec<Vec<Change>> {
    let (asked, ours) = (&verdict.asked, !stage.settings.upstream);
    let mut ways: Vec<Vec<Change>> =
        asked.notes.iter().filter(|_| ours).filter_map(understood).map(|one| vec![one]).collect();
    match verdict.reason() {
        Reason::BelowStartingThreshold { endpoints, padding, .. } => {
            ways.extend(lower_threshold(endpoints, padding));
        }
        Reason::NodeInformationMissing { .. } if ours => ways.push(vec![Change::CountNodes]),
        Reason::ClusterWide => {
            ways.push(vec![annotate(TOPOLOGY_MODE, "Auto")]);
            let value = "PreferSameZone".into();
            ways.push(vec![Change::SetTrafficDistribution { value }]);
        }
        _ => {}
    }
    if ours {
        let mut steps = in_the_way(asked);
        steps.push(annotate(ROUTING_PREFERENCE, &format!("{DOMAIN}balanced")));
        ways.push(steps);
    }
    ways
}

fn annotate(key: &str, value: &str) -> Change {
    Change::Annotate { key: key.into(), value: value.into() }
}

/// What a key that means nothing was probably meant to say.
fn understood(note: &zonewise_slices::requested::RequestNote) -> Option<Change> {
    match note.reason.code() {
        Code::GateOff => {
            let gate = match note.source {
                TOPOLOGY_MODE | TOPOLOGY_AWARE_HINTS => "TopologyAwareHints",
                SUBSETTING => "TopologyAwareSubsetting",
                _ => "ServiceRoutingPreference",
            };
            Some(Change::TurnOnGate { gate: gate.into() })
        }
        Code::TopologyModeUnknown => Some(annotate(note.source, "Auto")),
        Code::SubsettingUnknown => Some(annotate(note.source, "Auto")),
        Code::PreferenceReserved | Code::PreferenceUnknown if note.source == ROUTING_PREFERENCE => {
            let name = note.value.rsplit('/').next().unwrap_or_default().to_lowercase();
            let known = heuristics::names().into_iter().find(|known| *known == name);
            Some(annotate(note.source, &format!("{DOMAIN}{}", known.unwrap_or("balanced"))))
        }
        _ => None,
    }
}

/// Thresholds at which these endpoints are enough: with the padding there is, or without any.
fn lower_threshold(endpoints: u64, padding: u64) -> Vec<Vec<Change>> {
    let threshold = |value: u64| annotate(STARTING_THRESHOLD, &value.to_string());
    let with_padding = endpoints.checked_sub(padding).filter(|value| *value > 0);
    with_padding
        .map(|value| vec![threshold(value)])
        .into_iter()
        .chain([vec![threshold(endpoints.max(1)), annotate(PADDING, "0")]])
        .collect()
}

/// Keys that would win against the routing preference.
fn in_the_way(asked: &RequestedRouting) -> Vec<Change> {
    let wins = [TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE, SUBSETTING].contains(&asked.source);
    let key = asked.source.to_owned();
    wins.then_some(Change::RemoveAnnotation { key }).into_iter().collect()
}
