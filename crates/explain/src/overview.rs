//! All Services in one table: mode, reason, how much traffic stays in its zone now, how much could,
//! and what the rest costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use zonewise_slices::service::Service;
use zonewise_topology::reason::{Code, Outcome};

use crate::cost::{Crossing, Prices};
use crate::environment::Environment;
use crate::explanation::{Depth, Explanation, Note, current_traffic, explain, scores, zonal_best};
use crate::improvements::is_overloaded;
use crate::now::Now;
use crate::plan::Planner;
use crate::service_kind::ServiceKind;
use crate::snapshot::Snapshot;
use crate::unmanaged;
use crate::verdict::{State, state};

/// One Service of the overview.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceOverview {
    /// The Service.
    pub service: String,
    /// What it is to proxies.
    pub service_kind: ServiceKind,
    /// What is active here and now.
    pub state: State,
    /// What is asked for.
    pub asked: String,
    /// The annotation or field that asks for it.
    pub source: String,
    /// Annotations and fields that are ignored.
    pub ignored: Vec<Note>,
    /// How close traffic is kept now: the modes that occur in any zone.
    pub modes: Vec<String>,
    /// Why the controller decides as it does, whether it runs or not; absent if zone routing does not
    /// apply to the Service.
    pub reason: Option<Code>,
    /// What that means for routing, where that controller runs.
    pub outcome: Option<Outcome>,
    /// Ready endpoints.
    pub endpoints: u64,
    /// The part of the traffic that stays in its zone with the slices that are stored; absent if no
    /// slice is stored or no proxy routes the Service.
    pub in_zone: Option<f64>,
    /// The part of the traffic that crosses zones.
    pub cross_zone: Option<f64>,
    /// The part of the traffic that is dropped, because the node that it starts on may use no endpoint;
    /// absent if that is not known.
    pub dropped: Option<f64>,
    /// How much more than its fair share of the traffic the most loaded endpoint gets now: 0.5 is 50 % more.
    pub max_overload: Option<f64>,
    /// Zones that send traffic and have no ready endpoint, although the Service has some elsewhere. Empty for
    /// subsets of regions.
    pub zones_without_endpoints: Vec<String>,
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

impl ServiceOverview {
    /// What could be saved: money per month if its traffic is known, otherwise the part of the traffic that could
    /// stay in its zone and does not.
    fn saving(&self) -> Option<f64> {
        let part = || Some((self.best? - self.in_zone?).max(0.0));
        self.cost.as_ref().map(Cost::saving).or_else(part)
    }

    /// Whether zone routing is on and still leaves much to wish for: an endpoint gets far more than its share, or a
    /// zone has no endpoint.
    pub(crate) fn is_poor(&self) -> bool {
        let on =
            self.modes.iter().any(|mode| ["same-node", "same-zone", "shares"].contains(&&**mode));
        on && (self.max_overload.is_some_and(is_overloaded)
            || !self.zones_without_endpoints.is_empty())
    }
}

impl Cost {
    /// What could be saved per month.
    pub fn saving(&self) -> f64 {
        self.now - self.best
    }
}

/// What Services are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Where most can be saved first: money, or the part of the traffic where its amount is not known.
    #[default]
    Saving,
    /// The most expensive first.
    Cost,
    /// Those of which least stays in its zone first.
    InZone,
    /// Those with the most loaded endpoint first.
    Overload,
    /// By namespace and name.
    Name,
}

/// Sorts Services. Those of which the figure is not known are last; equal ones are in the order of their names.
pub fn sort(lines: &mut [ServiceOverview], by: SortBy) {
    let figure = |line: &ServiceOverview| match by {
        // With prices, money comes before parts of unknown amounts.
        SortBy::Saving => line.saving().map(|saving| (line.cost.is_some(), saving)),
        SortBy::Cost => line.cost.map(|cost| (true, cost.now)),
        SortBy::InZone => line.in_zone.map(|part| (true, -part)),
        SortBy::Overload => line.max_overload.map(|most| (true, most)),
        SortBy::Name => None,
    };
    lines.sort_by(|a, b| {
        let known = match (figure(a), figure(b)) {
            (Some(a), Some(b)) => b.0.cmp(&a.0).then(hundredths(b.1).cmp(&hundredths(a.1))),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        known.then_with(|| a.service.cmp(&b.service))
    });
}

/// Figures that look alike count as equal, so that names decide.
fn hundredths(figure: f64) -> i64 {
    (figure * 100.0).round() as i64
}

fn zones_without_endpoints(explained: &Explanation) -> Vec<String> {
    let numbers = &explained.numbers;
    if numbers.endpoints == 0 || explained.grouped_by != "zone" {
        return Vec::new();
    }
    let zones = numbers.zones.iter().filter(|zone| zone.share > 0.0 && zone.endpoints == 0);
    zones.map(|zone| zone.zone.to_string()).collect()
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
    if !service.is_ours() {
        return of_unmanaged(snapshot, service, planner);
    }
    let controller_view = planner.controller_view(snapshot, service);
    let decision = controller_view.decide();
    let proxy_view = snapshot.proxy_view(service);
    let arithmetic = Planner { depth: Depth::Arithmetic, ..planner.clone() };
    let explained = explain(&controller_view, &decision, &proxy_view, &arithmetic)?;
    let numbers = &explained.numbers;
    let now =
        current_traffic(&controller_view, &proxy_view, &planner.environment, &explained.family)?;
    let kind = explained.service_kind;
    let decided = kind == ServiceKind::Routed;
    let best = zonal_best(&controller_view, &decision).filter(|_| decided);
    let crossing = Crossing { in_zone: now.in_zone(), best };
    let by_heuristic = scores(&controller_view, &decision).into_iter();
    Ok(ServiceOverview {
        asked: decision.asked.value.clone(),
        source: decision.asked.source.into(),
        ignored: explained.notes.iter().filter(|note| note.is_fault()).cloned().collect(),
        reason: decided.then_some(numbers.reason),
        outcome: decided.then_some(numbers.outcome),
        endpoints: numbers.endpoints,
        zones_without_endpoints: zones_without_endpoints(&explained),
        by_heuristic: by_heuristic
            .filter(|_| best.is_some())
            .filter_map(|score| Some((score.heuristic, score.in_zone?)))
            .collect(),
        best,
        cost: prices.and_then(|prices| prices.cost(&service.key(), crossing)),
        ..with_traffic(service, kind, &planner.environment, &now)
    })
}

/// A Service whose slices the controller does not write.
fn of_unmanaged(
    snapshot: &Snapshot,
    service: &Service,
    planner: &Planner,
) -> Result<ServiceOverview, serde_json::Error> {
    let kind = ServiceKind::of(service, snapshot.proxy_view(service).is_local()?);
    let now = unmanaged::current(snapshot, service, &planner.environment)?;
    let family = unmanaged::family(service);
    let endpoints = snapshot.proxy_view(service).ready_endpoints(&family)?;
    Ok(ServiceOverview { endpoints, ..with_traffic(service, kind, &planner.environment, &now) })
}

/// A Service with where its traffic goes now, and nothing else.
fn with_traffic(
    service: &Service,
    service_kind: ServiceKind,
    environment: &Environment,
    now: &Now,
) -> ServiceOverview {
    ServiceOverview {
        service: service.key(),
        service_kind,
        state: state(service_kind, environment, now),
        asked: String::new(),
        source: String::new(),
        ignored: Vec::new(),
        modes: now.modes(),
        reason: None,
        outcome: None,
        endpoints: 0,
        in_zone: now.in_zone(),
        cross_zone: now.in_zone().map(|part| 1.0 - part),
        dropped: now.matrix().map(|matrix| matrix.dropped),
        max_overload: now.max_overload(),
        zones_without_endpoints: Vec::new(),
        by_heuristic: BTreeMap::new(),
        best: None,
        cost: None,
    }
}
