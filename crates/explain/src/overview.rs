//! All Services at a glance: mode, reason, how much stays in its zone now, could stay, and what
//! the rest costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use zonewise_slices::service::Service;
use zonewise_topology::reason::{Code, Outcome};

use crate::cost::Prices;
use crate::explanation::{Depth, explain, now, scores};
use crate::plan::Planning;
use crate::snapshot::Snapshot;

/// One Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The Service.
    pub service: String,
    /// What is asked for.
    pub asked: String,
    /// The key it stands under.
    pub source: String,
    /// How far traffic goes now, zone by zone; the modes that occur.
    pub modes: Vec<String>,
    /// Why the controller decides as it does.
    pub reason: Code,
    /// What that means for routing.
    pub outcome: Outcome,
    /// Ready endpoints.
    pub endpoints: u64,
    /// Part of the traffic that stays in its zone with the slices that are stored; absent where there
    /// are none, or no proxy routes it.
    pub in_zone: Option<f64>,
    /// Part of it that crosses zones.
    pub cross_zone: Option<f64>,
    /// What stays under each heuristic.
    pub by_heuristic: BTreeMap<String, f64>,
    /// The most any router could keep without overloading an endpoint; absent without zones or
    /// endpoints.
    pub best: Option<f64>,
    /// Money per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What crossing zones costs per month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Traffic in GB.
    pub gb: f64,
    /// What is paid for the part that crosses now.
    pub now: f64,
    /// What would be paid at best.
    pub best: f64,
}

/// A line for every Service, in order.
///
/// # Errors
/// If an object is not what consumers expect.
pub fn overview(
    snapshot: &Snapshot,
    services: &[Arc<Service>],
    planning: &Planning,
    prices: Option<&Prices>,
) -> Result<Vec<Line>, serde_json::Error> {
    services.par_iter().map(|service| line(snapshot, service, planning, prices)).collect()
}

fn line(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planning: &Planning,
    prices: Option<&Prices>,
) -> Result<Line, serde_json::Error> {
    let stage = planning.stage(snapshot, service);
    let verdict = stage.judge();
    let view = snapshot.view(service);
    let explained = explain(&stage, &verdict, &view, (Depth::Arithmetic, planning.consumer))?;
    let numbers = &explained.numbers;
    let now = now(&stage, &view, (planning.consumer, &explained.family))?;
    let in_zone = now.in_zone();
    // Without zones or endpoints there is nothing to keep anywhere.
    let sends = numbers.zones.iter().any(|zone| zone.share > 0.0) && numbers.endpoints > 0;
    let best = sends.then_some(numbers.in_zone.best);
    let by_heuristic = scores(&stage, &verdict).into_iter();
    Ok(Line {
        service: service.key(),
        asked: verdict.asked.value.clone(),
        source: verdict.asked.source.into(),
        modes: now.modes(),
        reason: numbers.reason,
        outcome: numbers.outcome,
        endpoints: numbers.endpoints,
        in_zone,
        cross_zone: in_zone.map(|part| 1.0 - part),
        by_heuristic: by_heuristic
            .filter(|_| sends)
            .filter_map(|score| Some((score.heuristic, score.in_zone?)))
            .collect(),
        best,
        cost: prices.and_then(|prices| prices.cost(&service.key(), in_zone, best?)),
    })
}
