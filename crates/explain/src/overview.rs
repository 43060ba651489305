//! All Services at a glance: mode, reason, how much stays in its zone now, could stay, and what
//! the rest costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use zonewise_slices::service::Service;
use zonewise_topology::reason::{Code, Outcome};

use crate::cost::Prices;
use crate::explanation::{now, scores};
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
    /// Part of the traffic that stays in its zone now; absent where no proxy routes it.
    pub in_zone: Option<f64>,
    /// Part of it that crosses zones.
    pub cross_zone: Option<f64>,
    /// What stays under each heuristic.
    pub by_heuristic: BTreeMap<String, f64>,
    /// The most any router could keep without overloading an endpoint.
    pub best: f64,
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
    let plan = crate::explanation::explain(
        &stage,
        &verdict,
        &snapshot.view(&stage.scene.key()),
        crate::explanation::Depth::Arithmetic,
    )?;
    let numbers = &plan.numbers;
    let matrix = match stage.scene.slices.is_empty() {
        true => None,
        false => now(&stage, &snapshot.view(&stage.scene.key()))?,
    };
    let in_zone = match &matrix {
        Some(matrix) => matrix.in_zone,
        None => numbers.in_zone.planned.filter(|_| !service.headless),
    };
    let mut modes: Vec<String> =
        matrix.iter().flat_map(|matrix| &matrix.from).map(|row| row.mode.clone()).collect();
    modes.sort();
    modes.dedup();
    let by_heuristic = scores(&stage, &verdict).into_iter();
    Ok(Line {
        service: service.key(),
        asked: verdict.asked.value.clone(),
        source: verdict.asked.source.into(),
        modes,
        reason: numbers.reason,
        outcome: numbers.outcome,
        endpoints: numbers.zones.iter().map(|zone| zone.endpoints).sum(),
        in_zone,
        cross_zone: in_zone.map(|part| 1.0 - part),
        by_heuristic: by_heuristic
            .filter_map(|score| Some((score.heuristic, score.in_zone?)))
            .collect(),
        best: numbers.in_zone.best,
        cost: prices.and_then(|prices| prices.cost(&service.key(), in_zone, numbers.in_zone.best)),
    })
}
