//! What the slices of a Service with `balanced` carry: the controller keeps written zone shares while they are good enough,
//! and takes fresh ones when the Service has been quiet. By these shares proxies route, not by those of zones.

use std::collections::BTreeMap;

use zonewise_demand::Millis;
use zonewise_demand::state::State;
use zonewise_topology::allocation::Allocation;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::Case;
use zonewise_topology::heuristics;
use zonewise_topology::region::Situation;
use zonewise_topology::settling::Improvement;
use zonewise_topology::zone_shares::ZoneShares;

/// The controller's settings when they are not set: how long a Service has to be quiet, and what is worth a write then.
const QUIET: Millis = 15_000;
const LEAST_GAIN: f64 = 0.02;

/// The slices of a Service.
pub(crate) struct Slices {
    endpoints: BTreeMap<Box<str>, u64>,
    written: Option<ZoneShares>,
    /// What there is to gain, and since when.
    waiting: Option<(Improvement, Millis)>,
    /// When they were written.
    pub(crate) writes: Vec<Millis>,
}

impl Slices {
    /// Of a Service with so many endpoints in each zone.
    pub(crate) fn new(endpoints: &[(&str, u64)]) -> Self {
        let endpoints = endpoints.iter().map(|(zone, count)| ((*zone).into(), *count)).collect();
        Self { endpoints, written: None, waiting: None, writes: Vec::new() }
    }

    /// What the controller does when it looks at the Service: after each change of its shares, and when it has been quiet.
    pub(crate) fn sync(&mut self, model: &Capacity, state: &State, service: &str, now: Millis) {
        let shares: Option<BTreeMap<String, f64>> = state
            .shares(service)
            .map(|shares| shares.map(|(zone, share)| (zone.to_string(), share)).collect());
        let capacity = match &shares {
            Some(shares) => model.measured(|zone| shares.get(zone).copied()),
            None => model.clone(),
        };
        let situation = Situation::new(&capacity, &self.endpoints, 0);
        let mut allocation = Allocation::new();
        let case = Case::fresh(situation.region());
        heuristics::parse("balanced").unwrap().allocate_named(
            &case,
            &situation.names,
            &mut allocation,
        );
        let fresh = ZoneShares::of(&situation, &allocation).unwrap();
        let kept = self.written.as_ref().filter(|written| {
            **written == fresh || written.is_still_good(&fresh, &situation, &situation)
        });
        let Some(kept) = kept else { return self.write(fresh, now) };
        let improvement =
            Improvement { now: kept.quality(&situation), fresh: fresh.quality(&situation) };
        if *kept == fresh || !improvement.is_noticeable(LEAST_GAIN) {
            self.waiting = None;
            return;
        }
        let known = self.waiting.filter(|(known, _)| *known == improvement);
        let (_, since) = *self.waiting.insert(known.unwrap_or((improvement, now)));
        if now >= since + QUIET {
            self.write(fresh, now);
        }
    }

    fn write(&mut self, fresh: ZoneShares, now: Millis) {
        self.written = Some(fresh);
        self.waiting = None;
        self.writes.push(now);
    }

    /// The load of the busiest endpoint, in fair shares, if zones send `demand`, which adds up to 1.
    pub(crate) fn busiest(&self, zones: &[&str], demand: &[f64]) -> f64 {
        let written = self.written.as_ref().unwrap();
        let all: u64 = self.endpoints.values().sum();
        let to = |zone: &str| -> f64 {
            let part = |from: &str| {
                let part = written.from[from].get(zone).copied().unwrap_or_default();
                f64::from(part) / 1e6
            };
            zones.iter().zip(demand).map(|(from, sent)| sent * part(from)).sum()
        };
        let loads = self.endpoints.iter();
        let loads = loads.map(|(zone, count)| to(zone) / (*count as f64 / all as f64));
        loads.fold(0.0, f64::max)
    }

    /// The most writes within an hour.
    pub(crate) fn most_in_an_hour(&self) -> usize {
        let within = |(index, first): (usize, &Millis)| {
            self.writes[index..].iter().filter(|at| **at < first + 3_600_000).count()
        };
        self.writes.iter().enumerate().map(within).max().unwrap_or(0)
    }
}
