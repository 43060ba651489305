//! The `explanation` document: what was asked, the arithmetic, and what came of it.

use serde::Serialize;

use crate::capacity::{Basis, Capacity, LeftOut};
use crate::heuristics::auto::{Auto, Bounds};
use crate::reason::{Code, Outcome, Reason};
use crate::region::{Region, Situation};

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
    /// Nodes that count and report no allocatable CPU: because of them, nodes are counted.
    pub nodes_without_cpu: Vec<Box<str>>,
    /// Traffic that stays in its zone.
    pub in_zone: InZone,
}

/// One zone of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
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
    /// Cores that the Pods of these endpoints request together, where endpoints count for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_cpu: Option<f64>,
    /// Endpoints it would take to carry the share.
    pub expected: f64,
    /// The fewest endpoints hints must give it.
    pub min: u64,
    /// The most endpoints hints may give it.
    pub max: u64,
    /// Endpoints that its nodes use once the plan is carried out; absent if no proxy was asked, or if no
    /// node that counts is here.
    pub assigned: Option<u64>,
    /// Load above its fair share of the most loaded of these endpoints.
    pub overload: Option<f64>,
}

/// Traffic that stays in its zone, or in its region for subsets of regions. All figures assume that
/// zones send traffic in proportion to the capacity of their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InZone {
    /// With the slices that are stored; absent when that is not known, or some zone reaches no endpoint.
    pub now: Option<f64>,
    /// Once the plan is carried out; absent when no proxy was asked, or some zone reaches no endpoint.
    pub planned: Option<f64>,
    /// The most any router could reach without overloading an endpoint; absent if no zone sends
    /// traffic or there is no endpoint.
    pub best: Option<f64>,
}

/// The arithmetic of a decision, with the reason that was given for it. What comes of it (endpoints
/// that serve each zone, their load, traffic that stays in its zone) is not known here: it follows
/// from what is written and from what proxies do with it. `weighted` is the situation with endpoints that count for the
/// CPU that their Pods request, where they do.
pub fn arithmetic(
    asked: Asked,
    heuristic: &str,
    capacity: &Capacity,
    situation: &Situation,
    weighted: Option<&Situation>,
    reason: Reason,
) -> Explanation {
    let region = situation.region();
    let bounds = Auto::KEP_2433.bounds(&region);
    let requested_cpu = |zone: usize| Some(weighted?.zones.get(zone)?.endpoints as f64 / 1000.0);
    let row = |(zone, bounds): (usize, &Bounds)| ZoneRow {
        requested_cpu: requested_cpu(zone),
        ..row(capacity, situation, zone, bounds)
    };
    let rows = bounds.iter().enumerate().map(row);
    Explanation {
        asked,
        heuristic: heuristic.to_owned(),
        reason: reason.code(),
        arithmetic: reason,
        sentence: reason.to_string(),
        remedy: reason.code().entry().remedy,
        outcome: reason.outcome(),
        capacity_by: capacity.basis,
        endpoints: region.total,
        zones: rows.collect(),
        nodes_left_out: capacity.left_out.clone(),
        nodes_without_cpu: capacity.without_cpu.clone(),
        in_zone: InZone {
            now: None,
            planned: None,
            best: best(&weighted.unwrap_or(situation).region()),
        },
    }
}

/// The largest part of the traffic that can stay in its zone without overload; `None` if no zone sends
/// traffic or there is no endpoint.
pub fn best(region: &Region<'_>) -> Option<f64> {
    let sends = region.zones.iter().any(|zone| zone.share > 0.0) && region.total > 0;
    sends.then(|| region.best_in_zone(0.0))
}

fn row(capacity: &Capacity, situation: &Situation, zone: usize, bounds: &Bounds) -> ZoneRow {
    let (name, input) = (&situation.names[zone], &situation.zones[zone]);
    let known = capacity.zones.binary_search_by(|known| known.name.cmp(name));
    let cpu_milli = known.map_or(0, |index| capacity.zones[index].cpu_milli);
    ZoneRow {
        zone: name.clone(),
        cpu: cpu_milli as f64 / 1000.0,
        nodes: input.nodes,
        share: input.share,
        endpoints: input.endpoints,
        requested_cpu: None,
        expected: bounds.expected,
        min: bounds.minimum,
        max: bounds.maximum,
        assigned: None,
        overload: None,
    }
}
