//! Measured demand of one Service: what each zone sends by the model, as measured and in force, why the one is not the
//! other, and what would change if what is measured were used as it is.
//!
//! ```text
//!  ConfigMap ─► account (the leader's last decision) ─► Demand
//!                  │ measured shares
//!                  ▼
//!               decide, route ─► load of each endpoint ─┐
//!  in force ─► decide, route ─► load of each endpoint ─┴─► IfMeasured
//! ```
//!
//! Both loads are those of the traffic as it was measured.

use std::collections::BTreeMap;

use serde::Serialize;
use zonewise_common::name::Name;
use zonewise_demand::account::Account;
use zonewise_demand::shares::{Held, ZoneDemand};
use zonewise_slices::requested;
use zonewise_topology::reason::{Code, Reason};

use crate::change::ControllerView;
use crate::environment::{self, ProxyKind};
use crate::matrix::{Grouping, Load, Matrix, Routers, matrices_for};
use crate::service_snapshot::{Decision, ServiceSnapshot};

/// Endpoints that are listed at most.
const LISTED: usize = 20;
/// Loads that differ by less are the same to people.
const NOTICEABLE: f64 = 0.005;

/// The measured demand of a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    /// Why measured shares are in force, or are not, or not fully.
    pub reason: Code,
    /// The reason as a sentence, with figures.
    pub sentence: String,
    /// What to do about it.
    pub remedy: &'static str,
    /// Where the documentation explains the reason.
    pub docs: String,
    /// Connections that the leader remembers.
    pub sample: u64,
    /// The weight of what is measured, 0 to 1; the rest is the model's.
    pub weight: f64,
    /// Seconds since connections were counted last; absent if none ever were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age: Option<f64>,
    /// Seconds since the leader decided; absent if nothing is stored of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<f64>,
    /// Why the shares in force are not the target; absent if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Rewrites of the shares in the last hour, as far as the leader remembers.
    pub rewrites_in_last_hour: usize,
    /// Rewrites that may follow each other at once; absent if nothing is stored of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrites_left: Option<f64>,
    /// What each zone sends.
    pub zones: Vec<ZoneDemand>,
    /// What would change if the measured shares were used as they are; absent if nothing is measured, or if only the
    /// arithmetic was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_measured: Option<IfMeasured>,
}

/// What endpoints get of the traffic as it was measured: with the shares in force, and with the measured ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IfMeasured {
    /// The reason that the controller would give.
    pub reason: Code,
    /// The part of the traffic that stays in its zone.
    pub in_zone: Change<Option<f64>>,
    /// By zone of the endpoints; the empty name stands for no zone.
    pub zones: Vec<ZoneLoad>,
    /// The endpoints that would get noticeably more or less, those first that differ most; at most 20.
    pub endpoints: Vec<EndpointLoad>,
    /// How many endpoints would.
    pub endpoints_in_all: usize,
}

/// A figure with the shares in force, and with the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change<T> {
    /// With the shares in force.
    pub in_force: T,
    /// With the shares as they were measured.
    pub if_measured: T,
}

/// What the endpoints of a zone get.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneLoad {
    /// The zone.
    pub zone: String,
    /// Its endpoints.
    pub endpoints: usize,
    /// Their load on average, compared with the fair share: 0.5 is 50 % more.
    pub overload: Change<f64>,
}

/// What an endpoint gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointLoad {
    /// Its address and port.
    pub endpoint: String,
    /// Its zone.
    pub zone: String,
    /// Its load, compared with the fair share.
    pub overload: Change<f64>,
}

impl Demand {
    fn of(account: Account) -> Self {
        let code = account.reason.code();
        Self {
            reason: code,
            sentence: account.reason.to_string(),
            remedy: code.entry().remedy,
            docs: code.docs(),
            sample: account.sample.round() as u64,
            weight: account.weight,
            age: account.age,
            decided: account.decided,
            held: account.held,
            rewrites_in_last_hour: account.rewrites_in_hour,
            rewrites_left: account.rewrites_left,
            zones: account.zones,
            if_measured: None,
        }
    }

    /// Whether measured shares are in force as they should be.
    pub fn is_in_force(&self) -> bool {
        self.reason == Code::DemandMeasured
    }

    /// The measured share of each zone; `None` without any connection.
    fn measured(&self) -> Option<BTreeMap<Name, f64>> {
        let zone = |zone: &ZoneDemand| Some((Name::from(&*zone.zone), zone.measured?));
        self.zones.iter().map(zone).collect()
    }
}

/// The measured demand of a Service; `None` if it does not ask for any, and none is in force.
pub fn demand(objects: &ServiceSnapshot, asked: requested::Demand) -> Option<Demand> {
    known(objects, asked).map(Demand::of)
}

/// What is said of a route that follows measured shares: the reason that they have. `None` where CPU decides alone.
pub fn reason_of_route(objects: &ServiceSnapshot) -> Option<Reason> {
    objects.shares.as_ref()?;
    known(objects, requested::Demand::Model).map(|account| account.reason)
}

fn known(objects: &ServiceSnapshot, asked: requested::Demand) -> Option<Account> {
    // What is in force was asked for by somebody, maybe by the settings of the controller that runs.
    if asked != requested::Demand::Measured && objects.shares.is_none() {
        return None;
    }
    let facts = &objects.facts;
    Some(facts.demand.account(&objects.nodes.zones, &objects.service.key(), facts.millis()))
}

/// The demand, with what would change if what is measured were used as it is.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub(crate) fn with_trial(
    demand: Demand,
    view: &ControllerView,
    decision: &Decision,
    kind: ProxyKind,
) -> Result<Demand, serde_json::Error> {
    let Some(measured) = demand.measured() else { return Ok(demand) };
    let mut trial = view.clone();
    trial.objects.shares = Some(environment::ZoneDemand::of(measured).into());
    let fresh = trial.decide();
    let family = decision.family(&view.objects.service).to_string();
    let senders = trial.objects.senders();
    let routers = [Routers::Same(kind.gates(&view.objects.service))];
    let matrix = |view: &ControllerView, decision: &Decision| {
        let planned = view.planned(decision)?;
        let all = matrices_for(&planned, &senders, &routers, Grouping::Zones)?;
        let mut all = all.into_iter().flatten();
        Ok::<_, serde_json::Error>(all.find(|matrix| matrix.family == family))
    };
    let (Some(now), Some(then)) = (matrix(view, decision)?, matrix(&trial, &fresh)?) else {
        return Ok(demand);
    };
    let if_measured = Some(differences(&now, &then, fresh.reason().code()));
    Ok(Demand { if_measured, ..demand })
}

/// What endpoints get by one matrix and by another, of the same traffic.
fn differences(now: &Matrix, then: &Matrix, reason: Code) -> IfMeasured {
    let later: BTreeMap<&str, &Load> =
        then.endpoints.iter().map(|load| (load.endpoint.as_str(), load)).collect();
    let both = now.endpoints.iter().filter_map(|load| {
        let overload = Change {
            in_force: load.overload,
            if_measured: later.get(load.endpoint.as_str())?.overload,
        };
        let (endpoint, zone) = (load.endpoint.clone(), load.zone.clone());
        Some(EndpointLoad { endpoint, zone, overload })
    });
    let both: Vec<EndpointLoad> = both.collect();
    let off = |load: &EndpointLoad| (load.overload.if_measured - load.overload.in_force).abs();
    let mut endpoints: Vec<EndpointLoad> =
        both.iter().filter(|load| off(load) >= NOTICEABLE).cloned().collect();
    endpoints.sort_by(|one, other| off(other).total_cmp(&off(one)));
    let endpoints_in_all = endpoints.len();
    endpoints.truncate(LISTED);
    IfMeasured {
        reason,
        in_zone: Change { in_force: now.in_zone, if_measured: then.in_zone },
        zones: by_zone(&both),
        endpoints,
        endpoints_in_all,
    }
}

fn by_zone(loads: &[EndpointLoad]) -> Vec<ZoneLoad> {
    let mut zones: BTreeMap<&str, Vec<Change<f64>>> = BTreeMap::new();
    for load in loads {
        zones.entry(&load.zone).or_default().push(load.overload);
    }
    let zone = |(zone, loads): (&str, Vec<Change<f64>>)| {
        let mean =
            |of: fn(&Change<f64>) -> f64| loads.iter().map(of).sum::<f64>() / loads.len() as f64;
        ZoneLoad {
            zone: zone.to_owned(),
            endpoints: loads.len(),
            overload: Change {
                in_force: mean(|load| load.in_force),
                if_measured: mean(|load| load.if_measured),
            },
        }
    };
    zones.into_iter().map(zone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(loads: &[(&str, &str, f64)], in_zone: f64) -> Matrix {
        let load = |(endpoint, zone, overload): &(&str, &str, f64)| Load {
            endpoint: (*endpoint).to_owned(),
            zone: (*zone).to_owned(),
            overload: *overload,
        };
        Matrix {
            service: "shop/web".into(),
            port: String::new(),
            protocol: "TCP".into(),
            family: "IPv4".into(),
            from: Vec::new(),
            in_zone: Some(in_zone),
            dropped: 0.0,
            dropping_nodes: Vec::new(),
            endpoints: loads.iter().map(load).collect(),
        }
    }

    #[test]
    fn endpoints_and_zones_that_get_more_or_less_are_told() {
        let now =
            matrix(&[("1", "a", 1.0), ("2", "a", 0.5), ("3", "b", -0.5), ("4", "c", 0.0)], 0.9);
        let then =
            matrix(&[("1", "a", 0.0), ("2", "a", 0.0), ("3", "b", 0.0), ("4", "c", 0.002)], 0.6);
        let found = differences(&now, &then, Code::SharesBalanced);
        assert_eq!(found.in_zone, Change { in_force: Some(0.9), if_measured: Some(0.6) });
        let listed: Vec<&str> = found.endpoints.iter().map(|load| load.endpoint.as_str()).collect();
        assert_eq!(listed, ["1", "2", "3"], "the largest difference first, and no more than those");
        assert_eq!(found.endpoints_in_all, 3);
        let zones: Vec<_> = found
            .zones
            .iter()
            .map(|zone| (zone.zone.as_str(), zone.endpoints, zone.overload))
            .collect();
        let change = |in_force, if_measured| Change { in_force, if_measured };
        let expected = [
            ("a", 2, change(0.75, 0.0)),
            ("b", 1, change(-0.5, 0.0)),
            ("c", 1, change(0.0, 0.002)),
        ];
        assert_eq!(zones, expected);
    }

    #[test]
    fn of_many_endpoints_some_are_listed_and_all_are_counted() {
        let many = |overload: f64| -> Vec<(String, f64)> {
            (0..50).map(|number| (number.to_string(), overload * f64::from(number))).collect()
        };
        let of = |all: &[(String, f64)]| {
            let rows: Vec<(&str, &str, f64)> =
                all.iter().map(|(name, overload)| (name.as_str(), "a", *overload)).collect();
            matrix(&rows, 1.0)
        };
        let found = differences(&of(&many(0.0)), &of(&many(0.01)), Code::SharesBalanced);
        assert_eq!((found.endpoints.len(), found.endpoints_in_all), (LISTED, 49));
        assert_eq!(found.endpoints[0].endpoint, "49");
    }
}
