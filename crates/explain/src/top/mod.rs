//! What flows now: Services by what crosses zones, which zone sends how much to which, and what could be saved.
//!
//! ```text
//!  proxies, read twice ─┐
//!                       ├─► Flow: Service, from zone, to zone, per second ─┐
//!  Prometheus ──────────┘                                                  ├─► Top ─► table, json, yaml
//!  EndpointSlices ─► ready endpoints by Service and zone ──────────────────┘
//! ```
//!
//! Where bytes are counted they decide, otherwise connections.

pub mod exposition;
pub mod flows;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use zonewise_topology::explanation::best;
use zonewise_topology::region::{Region, Zone};

use crate::cost::{Measured, Pricing};

/// What flows from a zone to a zone for a Service, per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The Service, as `namespace/name`.
    pub service: Box<str>,
    /// The zone of the clients; empty if they have none.
    pub from: Box<str>,
    /// The zone of the endpoints; empty if they have none.
    pub to: Box<str>,
    /// New connections.
    pub connections: f64,
    /// Bytes in both directions; `None` where they are not counted.
    pub bytes: Option<f64>,
}

/// Where flows are from, and over which time they were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// The flows.
    pub flows: Vec<Flow>,
    /// Where they are from, in words.
    pub source: String,
    /// The time that they were counted over.
    pub seconds: f64,
    /// What is missing in them, in words.
    pub warnings: Vec<String>,
}

/// Ready endpoints by Service and zone.
pub type Endpoints = BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>;

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Bytes in both directions.
    Bytes,
    /// New connections.
    Connections,
}

/// What Services are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopBy {
    /// What crosses zones.
    #[default]
    Crossing,
    /// What could be saved.
    Saving,
    /// All that flows.
    Total,
    /// New connections.
    Connections,
    /// By namespace and name.
    Name,
}

/// What flows in a cluster. Amounts are per second, in what `basis` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// Where the figures are from.
    pub source: String,
    /// The time that they were counted over.
    pub seconds: f64,
    /// What amounts are.
    pub basis: Basis,
    /// All that flows.
    pub total: f64,
    /// What crosses zones.
    pub crossing: f64,
    /// What crosses zones and need not, without overload of an endpoint.
    pub can_save: f64,
    /// It costs so much in a month, if it goes on as in `seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_month: Option<f64>,
    /// The zones of the matrix.
    pub zones: Vec<Box<str>>,
    /// What flows from each zone (line) to each zone (column).
    pub matrix: Vec<Vec<f64>>,
    /// The Services.
    pub services: Vec<TopService>,
    /// What is missing in the figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopService {
    /// The Service.
    pub service: Box<str>,
    /// New connections.
    pub connections: f64,
    /// Bytes in both directions; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// All that flows.
    pub total: f64,
    /// What crosses zones.
    pub crossing: f64,
    /// The part that stays in its zone; absent if nothing flows.
    pub in_zone: Option<f64>,
    /// The largest part that could stay in its zone without overload; absent if that is not known.
    pub best: Option<f64>,
    /// What crosses zones and need not.
    pub can_save: f64,
    /// The pair of zones with most of what crosses.
    pub largest_crossing: Option<(Box<str>, Box<str>)>,
    /// It costs so much in a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_month: Option<f64>,
}

impl Basis {
    fn of(flows: &[Flow]) -> Self {
        let counted = flows.iter().any(|flow| flow.bytes.is_some_and(|bytes| bytes > 0.0));
        if counted { Self::Bytes } else { Self::Connections }
    }

    fn amount(self, flow: &Flow) -> f64 {
        match self {
            Self::Bytes => flow.bytes.unwrap_or_default(),
            Self::Connections => flow.connections,
        }
    }
}

impl Flows {
    /// What each Service has, for prices.
    pub fn measured(&self) -> Measured {
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for flow in &self.flows {
            let (Some(bytes), sum) = (flow.bytes, sums.entry(flow.service.to_string())) else {
                continue;
            };
            let (all, at_home) = sum.or_default();
            *all += bytes;
            *at_home += if flow.from == flow.to { bytes } else { 0.0 };
        }
        let part = |(service, (all, at_home)): (String, (f64, f64))| {
            let in_zone = if all > 0.0 { at_home / all } else { 1.0 };
            (service, (all, in_zone))
        };
        Measured { services: sums.into_iter().map(part).collect(), seconds: self.seconds }
    }
}

/// Adds up what flows, and says what it costs in a month if it goes on like that.
pub fn top(flows: Flows, endpoints: &Endpoints, pricing: Option<&Pricing>) -> Top {
    let Flows { flows, source, seconds, warnings } = flows;
    let basis = Basis::of(&flows);
    let pricing = pricing.filter(|_| basis == Basis::Bytes);
    let mut by_service: BTreeMap<&str, Vec<&Flow>> = BTreeMap::new();
    for flow in &flows {
        by_service.entry(&flow.service).or_default().push(flow);
    }
    let none = BTreeMap::new();
    let services: Vec<TopService> = by_service
        .into_iter()
        .map(|(service, flows)| {
            let endpoints = endpoints.get(service).unwrap_or(&none);
            let mut one = of_service(service, &flows, basis, endpoints);
            one.cost_per_month = pricing.map(|pricing| {
                let cost =
                    |flow: &&Flow| pricing.per_month(&flow.from, &flow.to, basis.amount(flow));
                flows.iter().map(cost).sum::<f64>() + 0.0
            });
            one
        })
        .collect();
    let (zones, matrix) = matrix(&flows, basis);
    let sum = |of: fn(&TopService) -> f64| services.iter().map(of).sum::<f64>() + 0.0;
    let crossing = sum(|service| service.crossing);
    Top {
        source,
        seconds,
        basis,
        total: sum(|service| service.total),
        crossing,
        can_save: sum(|service| service.can_save),
        cost_per_month: pricing.map(|_| {
            services.iter().filter_map(|service| service.cost_per_month).sum::<f64>() + 0.0
        }),
        zones,
        matrix,
        services,
        warnings,
    }
}

fn of_service(
    service: &str,
    flows: &[&Flow],
    basis: Basis,
    endpoints: &BTreeMap<Box<str>, u64>,
) -> TopService {
    let total: f64 = flows.iter().map(|flow| basis.amount(flow)).sum();
    let crosses = |flow: &&&Flow| flow.from != flow.to;
    let crossing: f64 = flows.iter().filter(crosses).map(|flow| basis.amount(flow)).sum();
    let largest =
        flows.iter().filter(crosses).max_by(|a, b| basis.amount(a).total_cmp(&basis.amount(b)));
    let best = (total > 0.0).then(|| best_part(flows, total, basis, endpoints)).flatten();
    let least = best.map_or(crossing, |best| (1.0 - best) * total);
    let counts_bytes = flows.iter().any(|flow| flow.bytes.is_some());
    TopService {
        service: service.into(),
        connections: flows.iter().map(|flow| flow.connections).sum::<f64>() + 0.0,
        bytes: counts_bytes.then(|| flows.iter().filter_map(|flow| flow.bytes).sum::<f64>() + 0.0),
        total: total + 0.0,
        crossing: crossing + 0.0,
        in_zone: (total > 0.0).then(|| 1.0 - crossing / total),
        best,
        // Not `max(0.0)`: whether that gives 0 or -0 depends on the compiler, and they would be sorted differently.
        can_save: if crossing > least { crossing - least } else { 0.0 },
        largest_crossing: largest
            .filter(|flow| basis.amount(flow) > 0.0)
            .map(|flow| (flow.from.clone(), flow.to.clone())),
        cost_per_month: None,
    }
}

/// The largest part that could stay in its zone, with what each zone really sends.
fn best_part(
    flows: &[&Flow],
    total: f64,
    basis: Basis,
    endpoints: &BTreeMap<Box<str>, u64>,
) -> Option<f64> {
    let mut zones: BTreeMap<&str, Zone> = BTreeMap::new();
    for (zone, endpoints) in endpoints {
        zones.entry(zone).or_default().endpoints = *endpoints;
    }
    for flow in flows {
        zones.entry(&flow.from).or_default().share += basis.amount(flow) / total;
    }
    let unplaced = zones.remove("").map_or(0, |zone| zone.endpoints);
    let zones: Vec<Zone> = zones.into_values().collect();
    let region = Region::of(&zones);
    best(&Region { total: region.total + unplaced, unplaced, ..region })
}

/// The zones, and what flows between them.
fn matrix(flows: &[Flow], basis: Basis) -> (Vec<Box<str>>, Vec<Vec<f64>>) {
    let zones: BTreeSet<&str> = flows.iter().flat_map(|flow| [&*flow.from, &*flow.to]).collect();
    let zones: Vec<&str> = zones.into_iter().collect();
    let place = |zone: &str| zones.binary_search(&zone).unwrap_or_default();
    let mut matrix = vec![vec![0.0; zones.len()]; zones.len()];
    for flow in flows {
        matrix[place(&flow.from)][place(&flow.to)] += basis.amount(flow);
    }
    (zones.into_iter().map(Into::into).collect(), matrix)
}

/// Sorts the Services; the largest first, and equal ones in the order of their names.
pub fn sort_top(top: &mut Top, by: TopBy) {
    let figure = |service: &TopService| match by {
        TopBy::Crossing => service.crossing,
        TopBy::Saving => service.can_save,
        TopBy::Total => service.total,
        TopBy::Connections => service.connections,
        TopBy::Name => 0.0,
    };
    top.services
        .sort_by(|a, b| figure(b).total_cmp(&figure(a)).then_with(|| a.service.cmp(&b.service)));
}
