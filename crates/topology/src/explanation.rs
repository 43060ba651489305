//! The `explanation` document: what was asked, the arithmetic, and what came of it.

use serde::Serialize;

use crate::allocation::{Allocation, Label};
use crate::capacity::{Basis, Capacity, LeftOut};
use crate::heuristic::{Assignment, Case, Heuristic};
use crate::heuristics::auto::{Auto, Bounds};
use crate::reason::{Code, Outcome, Reason};
use crate::region::Situation;
use crate::traffic::{GroupTraffic, TrafficModel};

/// What a user asked for, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The value as written.
    pub value: String,
    /// The annotation, field or default it came from.
    pub source: String,
}

/// Why a Service is routed the way it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked.
    pub asked: Asked,
    /// The heuristic that answered.
    pub heuristic: String,
    /// The reason's stable name.
    pub reason: Code,
    /// The reason with its figures.
    pub arithmetic: Reason,
    /// The reason as a sentence.
    pub sentence: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// What it means for routing.
    pub outcome: Outcome,
    /// What capacity was measured by.
    pub capacity_by: Basis,
    /// Ready endpoints, those without a zone too.
    pub endpoints: u64,
    /// The zones.
    pub zones: Vec<ZoneRow>,
    /// Nodes that did not count.
    pub nodes_left_out: Vec<LeftOut>,
    /// Traffic that stays in its zone.
    pub in_zone: InZone,
}

/// One zone of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneRow {
    /// Its name.
    pub zone: Box<str>,
    /// Allocatable cores of the nodes that count.
    pub cpu: f64,
    /// Nodes that count.
    pub nodes: u64,
    /// Part of all traffic.
    pub share: f64,
    /// Ready endpoints located here.
    pub endpoints: u64,
    /// Endpoints it would take to carry the share.
    pub expected: f64,
    /// The fewest endpoints hints must give it.
    pub min: u64,
    /// The most endpoints hints may give it.
    pub max: u64,
    /// Endpoints that serve it.
    pub assigned: u64,
    /// Load above its fair share of the most loaded endpoint that serves it; absent when nothing
    /// serves it.
    pub overload: Option<f64>,
}

/// Traffic that stays in its zone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InZone {
    /// As it is now; absent when that is not known, or some zone reaches no endpoint.
    pub now: Option<f64>,
    /// With this outcome; absent when some zone reaches no endpoint.
    pub planned: Option<f64>,
    /// The most any router could reach without overloading an endpoint.
    pub best: f64,
}

impl Explanation {
    /// The same, with the reason that was given where the decision was taken.
    pub fn because(self, reason: Reason) -> Self {
        Self {
            reason: reason.code(),
            arithmetic: reason,
            sentence: reason.to_string(),
            remedy: reason.code().entry().remedy,
            outcome: reason.outcome(),
            ..self
        }
    }
}

/// Takes the decision and explains it.
pub fn explain(
    asked: Asked,
    capacity: &Capacity,
    situation: &Situation,
    heuristic: &dyn Heuristic,
    previous: Option<&Assignment>,
) -> Explanation {
    let region = situation.region();
    let mut allocation = Allocation::new();
    let case = Case::following(region, previous);
    let reason = heuristic.allocate_named(&case, &situation.names, &mut allocation);
    if reason.outcome() == Outcome::Failed {
        allocation.everywhere(&region, crate::allocation::Carrier::Plain);
    }
    let traffic = TrafficModel::new().run(&region, &allocation);
    let bounds = Auto::KEP_2433.bounds(&region);
    let groups = GroupTraffic::of(&region, &allocation);
    let overload = |zone| groups.as_ref().and_then(|groups| highest(groups, &allocation, zone));
    let rows = bounds.iter().enumerate().map(|(zone, bounds)| {
        row(capacity, situation, zone, bounds, assigned(&allocation, zone), overload(zone))
    });
    Explanation {
        asked,
        heuristic: heuristic.name().to_owned(),
        reason: reason.code(),
        arithmetic: reason,
        sentence: reason.to_string(),
        remedy: reason.code().entry().remedy,
        outcome: reason.outcome(),
        capacity_by: capacity.basis,
        endpoints: region.total,
        zones: rows.collect(),
        nodes_left_out: capacity.left_out.clone(),
        in_zone: InZone {
            now: None,
            planned: traffic.map(|traffic| traffic.in_zone),
            best: region.best_in_zone(0.0),
        },
    }
}

fn row(
    capacity: &Capacity,
    situation: &Situation,
    zone: usize,
    bounds: &Bounds,
    assigned: u64,
    overload: Option<f64>,
) -> ZoneRow {
    let (name, input) = (&situation.names[zone], &situation.zones[zone]);
    let cpu_milli =
        capacity.zones.iter().find(|known| known.name == *name).map_or(0, |known| known.cpu_milli);
    ZoneRow {
        zone: name.clone(),
        cpu: cpu_milli as f64 / 1000.0,
        nodes: input.nodes,
        share: input.share,
        endpoints: input.endpoints,
        expected: bounds.expected,
        min: bounds.minimum,
        max: bounds.maximum,
        assigned,
        overload,
    }
}

fn serving(allocation: &Allocation, zone: usize) -> impl Iterator<Item = usize> {
    (0..allocation.groups().len()).filter(move |&group| {
        allocation.groups()[group].size > 0 && allocation.weight(group, zone) > 0.0
    })
}

/// Endpoints hinted to, in a subset for, or otherwise reached from a zone.
fn assigned(allocation: &Allocation, zone: usize) -> u64 {
    let groups = allocation.groups();
    let local = groups.iter().filter(|group| group.label == Label::Zone(zone as u32));
    match local.map(|group| group.size).sum() {
        0 => serving(allocation, zone).map(|group| groups[group].size).sum(),
        own => own,
    }
}

/// Overload of the most loaded endpoint that serves a zone.
fn highest(groups: &GroupTraffic, allocation: &Allocation, zone: usize) -> Option<f64> {
    serving(allocation, zone).map(|group| groups.overload[group]).reduce(f64::max)
}
