//! Measured demand: from the counts of proxies to the shares that plans are based on.
//!
//! ```text
//!  proxies ─► collect ─► Window ─► decide, every 15 s ─► shares in force ─► Services whose shares change ─► queue
//!              (ask)                    ▲    │
//!                          ConfigMap ◄──┴────┘ read by a new leader; written at most once a minute
//! ```
//!
//! All arithmetic is in `zonewise_demand`. Only the leader asks and decides. What cannot be collected is left out: figures
//! fade to the model then, and nothing else is harmed.

mod ask;
mod collect;
mod lead;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use zonewise_common::clock;
use zonewise_common::name::{Key, Name};
use zonewise_demand::Millis;
use zonewise_demand::report::Report;
use zonewise_demand::state::State;
use zonewise_demand::window::{NotCounted, Window};
use zonewise_slices::node::{MeasuredZones, Node, Nodes};
use zonewise_telemetry::metrics::{Counter, Family, Kind, MetricError, Registry};

use ask::Failure;
use collect::Answers;
pub(crate) use lead::Lead;

/// How many proxies are named in the log at a time.
const MOST_NAMED: usize = 5;

/// The demand of Services, as far as it is measured.
pub(crate) struct Demand {
    window: Mutex<Window>,
    state: Mutex<State>,
    /// How many Services have which reason.
    reasons: Mutex<BTreeMap<String, usize>>,
    proxies: Mutex<Proxies>,
    requests: Family<Counter, 1>,
}

/// The proxies that are asked.
#[derive(Debug, Default)]
struct Proxies {
    /// What became of the last question to each.
    last: BTreeMap<Name, Result<(), Problem>>,
    /// Those of which the log has said that they give no counts.
    told: BTreeSet<Name>,
    /// When a report was counted last.
    counted: Option<Millis>,
}

/// Why a proxy gives no counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    failure: Failure,
    /// More about it.
    detail: String,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { failure, detail: String::new() }
    }
}

const SUCCESS: &str = "success";

fn now() -> Millis {
    Millis::try_from(clock::now().as_millisecond()).unwrap_or_default()
}

impl Demand {
    pub(crate) fn new(registry: &Registry) -> Result<Arc<Self>, MetricError> {
        let requests = registry.counter(
            "zonewise_demand_requests_total",
            "Questions to proxies for what they have counted, by result",
            ["result"],
        )?;
        // Shown from the start, so that an alert sees the first one as an increase.
        for result in Failure::ALL.map(Failure::name).into_iter().chain([SUCCESS]) {
            requests.with([result]);
        }
        let demand = Arc::new(Self {
            window: Mutex::default(),
            state: Mutex::default(),
            reasons: Mutex::default(),
            proxies: Mutex::default(),
            requests,
        });
        demand.register(registry)?;
        Ok(demand)
    }

    fn register(self: &Arc<Self>, registry: &Registry) -> Result<(), MetricError> {
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_demand_proxies",
            "Proxies that are asked for what they have counted, by result of the last question",
            Kind::Gauge,
            ["result"],
            move |samples| {
                let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
                for result in demand.proxies.lock().last.values() {
                    *counts.entry(result_name(result)).or_default() += 1;
                }
                counts.into_iter().for_each(|(name, count)| samples.push([name], count.into()));
            },
        )?;
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_demand_services",
            "Services whose demand is measured, by reason",
            Kind::Gauge,
            ["reason"],
            move |samples| {
                for (reason, count) in &*demand.reasons.lock() {
                    samples.push([reason], *count as f64);
                }
            },
        )?;
        let demand = Arc::clone(self);
        registry.collect(
            "zonewise_demand_age_seconds",
            "Seconds since a proxy has last told what it has counted",
            Kind::Gauge,
            [],
            move |samples| {
                if let Some(counted) = demand.proxies.lock().counted {
                    samples.push([], now().saturating_sub(counted) as f64 / 1000.0);
                }
            },
        )
    }

    /// The zones with the shares that are in force for a Service; `None` where the model is.
    pub(crate) fn zones_of(&self, (namespace, name): &Key, nodes: &Nodes) -> Option<MeasuredZones> {
        let state = self.state.lock();
        let shares: BTreeMap<&Name, f64> = state.shares(&format!("{namespace}/{name}"))?.collect();
        Some(nodes.measured(|zone| shares.get(&Name::from(zone)).copied()))
    }

    /// Goes on with what the leader before has stored.
    fn restore(&self, state: State) {
        tracing::info!(services = state.services().count(), "goes on with the stored demand");
        *self.state.lock() = state;
    }

    /// Decides anew, for these Services. Returns those whose shares have changed.
    fn decide<'a>(&self, nodes: &Nodes, services: impl Iterator<Item = &'a str>) -> Vec<Key> {
        let now = now();
        let mut window = self.window.lock();
        let capacities: Vec<_> = nodes.by_name.values().map(Node::in_zone).collect();
        window.set_nodes(&capacities);
        window.set_services(services);
        let measurement = window.measure(&nodes.zones, now);
        let decisions = self.state.lock().decide(&nodes.zones, &measurement, now);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (_, decision) in &decisions {
            *reasons.entry(decision.reason.code().to_string()).or_default() += 1;
        }
        *self.reasons.lock() = reasons;
        let rewritten = decisions.into_iter().filter(|(_, decision)| decision.rewritten);
        rewritten.filter_map(|(name, _)| key(&name)).collect()
    }

    /// What is in force, as text.
    fn encoded(&self) -> String {
        self.state.lock().encode()
    }

    fn count(&self, node: &Name, answer: &Bytes) -> Result<(), Problem> {
        let problem = |error: &dyn std::error::Error| Problem {
            failure: Failure::Nonsense,
            detail: error.to_string(),
        };
        let report = Report::read(answer).map_err(|error| problem(&error))?;
        let now = now();
        match self.window.lock().add(node, &report, now) {
            Ok(()) | Err(NotCounted::Repeated { .. }) => {}
            Err(error) => return Err(problem(&error)),
        }
        self.proxies.lock().counted = Some(now);
        Ok(())
    }

    /// Says of which proxies there are no counts, once each, and of which there are again.
    fn tell(&self) {
        let (again, failing) = {
            let mut proxies = self.proxies.lock();
            (proxies.told_again(), proxies.newly_failing())
        };
        if again > 0 {
            tracing::info!(
                proxies = again,
                "proxies that gave no counts give them again, or are gone"
            );
        }
        tell_failing(&failing);
    }
}

impl Proxies {
    /// How many of those that the log has named do not fail any more.
    fn told_again(&mut self) -> usize {
        let (before, last) = (self.told.len(), &self.last);
        self.told.retain(|node| last.get(node).is_some_and(Result::is_err));
        before - self.told.len()
    }

    /// Those that fail and were not named before.
    fn newly_failing(&mut self) -> Vec<(Name, Problem)> {
        let failing =
            self.last.iter().filter_map(|(node, last)| Some((node, last.as_ref().err()?)));
        let new = failing.filter(|(node, _)| !self.told.contains(*node));
        let new: Vec<_> = new.map(|(node, problem)| (Name::clone(node), problem.clone())).collect();
        self.told.extend(new.iter().map(|(node, _)| Name::clone(node)));
        new
    }
}

fn tell_failing(failing: &[(Name, Problem)]) {
    for (node, Problem { failure, detail }) in failing.iter().take(MOST_NAMED) {
        let cause = failure.name();
        tracing::warn!(%node, cause, detail, "a proxy gives no counts: {}", failure.remedy());
    }
    if let Some(more) = failing.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        tracing::warn!(more, "more proxies give no counts: zonewise_demand_proxies says why");
    }
}

impl Answers for Demand {
    fn take(&self, node: &Name, answer: Result<Bytes, Failure>) -> Result<(), Failure> {
        let result = answer.map_err(Problem::from).and_then(|answer| self.count(node, &answer));
        self.requests.with([result_name(&result)]).inc();
        let failure = result.as_ref().map(drop).map_err(|problem| problem.failure);
        self.proxies.lock().last.insert(Name::clone(node), result);
        failure
    }

    fn forget(&self, node: &Name) {
        self.proxies.lock().last.remove(node);
    }
}

fn result_name(result: &Result<(), Problem>) -> &'static str {
    match result {
        Ok(()) => SUCCESS,
        Err(problem) => problem.failure.name(),
    }
}

/// The key of `namespace/name`.
fn key(service: &str) -> Option<Key> {
    service.split_once('/').map(|(namespace, name)| (namespace.into(), name.into()))
}
