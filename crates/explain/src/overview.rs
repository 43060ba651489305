//! All Services in one table: mode, reason, how much traffic stays in its zone now, how much could,
//! and what the rest costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use zonewise_slices::service::Service;
use zonewise_topology::reason::{Code, Outcome};

use crate::cost::{Crossing, Prices};
use crate::explanation::{Depth, Note, current_traffic, explain, scores, zonal_best};
use crate::plan::Planner;
use crate::snapshot::Snapshot;

/// One Service of the overview.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceOverview {
    /// The Service.
    pub service: String,
    /// What is asked for.
    pub asked: String,
    /// The annotation or field that asks for it.
    pub source: String,
    /// Annotations and fields that are ignored.
    pub ignored: Vec<Note>,
    /// How close traffic is kept now: the modes that occur in any zone.
    pub modes: Vec<String>,
    /// Why the controller decides as it does.
    pub reason: Code,
    /// What that means for routing.
    pub outcome: Outcome,
    /// Ready endpoints.
    pub endpoints: u64,
    /// The part of the traffic that stays in its zone with the slices that are stored; absent if no
    /// slice is stored or no proxy routes the Service.
    pub in_zone: Option<f64>,
    /// The part of the traffic that crosses zones.
    pub cross_zone: Option<f64>,
    /// The part that would stay in its zone, by heuristic, as the model of the simulator has it.
    pub by_heuristic: BTreeMap<String, f64>,
    /// The largest part that could stay in its zone without overloading an endpoint; absent without
    /// zones or endpoints.
    pub best: Option<f64>,
    /// What crossing zones costs per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What traffic that crosses zones costs per month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Traffic in GB.
    pub gb: f64,
    /// The price of what crosses zones now.
    pub now: f64,
    /// The price if as much as possible stayed in its zone.
    pub best: f64,
}

/// The overview of Services, in their order.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn overview(
    snapshot: &Snapshot,
    services: &[Arc<Service>],
    planner: &Planner,
    prices: Option<&Prices>,
) -> Result<Vec<ServiceOverview>, serde_json::Error> {
    services.par_iter().map(|service| of_service(snapshot, service, planner, prices)).collect()
}

fn of_service(
    snapshot: &Snapshot,
    service: &Arc<Service>,
    planner: &Planner,
    prices: Option<&Prices>,
) -> Result<ServiceOverview, serde_json::Error> {
    let controller_view = planner.controller_view(snapshot, service);
    let decision = controller_view.decide();
    let proxy_view = snapshot.proxy_view(service);
    let explained =
        explain(&controller_view, &decision, &proxy_view, Depth::Arithmetic, planner.proxy_kind)?;
    let numbers = &explained.numbers;
    let now =
        current_traffic(&controller_view, &proxy_view, planner.proxy_kind, &explained.family)?;
    let best = zonal_best(&controller_view, &decision);
    let crossing = Crossing { in_zone: now.in_zone(), best };
    let by_heuristic = scores(&controller_view, &decision).into_iter();
    Ok(ServiceOverview {
        service: service.key(),
        asked: decision.asked.value.clone(),
        source: decision.asked.source.into(),
        ignored: explained.notes.clone(),
        modes: now.modes(),
        reason: numbers.reason,
        outcome: numbers.outcome,
        endpoints: numbers.endpoints,
        in_zone: crossing.in_zone,
        cross_zone: crossing.in_zone.map(|part| 1.0 - part),
        by_heuristic: by_heuristic
            .filter(|_| best.is_some())
            .filter_map(|score| Some((score.heuristic, score.in_zone?)))
            .collect(),
        best,
        cost: prices.and_then(|prices| prices.cost(&service.key(), crossing)),
    })
}
