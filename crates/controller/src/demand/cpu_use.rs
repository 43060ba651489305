//! What the endpoints of zones count for by the CPU that they use, of the Services that ask for it.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use zonewise_common::name::{Key, Name};
use zonewise_demand::cpu_use::{Endpoint, InForce, Pace, Seen, UseState};
use zonewise_telemetry::metrics::{MetricError, Registry};
use zonewise_topology::reason::Code;

use super::pod_metrics::PodMetricsFeed;
use super::told::ToldCodes;
use super::{Changed, key, now};

/// What zones of Services count for by use.
pub(super) struct UseWeights {
    pub(super) feed: PodMetricsFeed,
    state: Mutex<UseState>,
    told: Mutex<ToldCodes>,
}

/// A Service that asks for it.
pub(super) struct Asking {
    pub(super) service: Key,
    /// Its ready endpoints.
    pub(super) endpoints: Vec<Endpoint>,
    /// Zones that are left as they are.
    pub(super) held: BTreeSet<Name>,
}

impl UseWeights {
    pub(super) fn new(registry: &Registry) -> Result<Self, MetricError> {
        let feed = PodMetricsFeed::new(registry)?;
        Ok(Self { feed, state: Mutex::default(), told: Mutex::default() })
    }

    /// Goes on with what the leader before has stored.
    pub(super) fn restore(&self, state: UseState) {
        *self.state.lock() = state;
    }

    /// What the zones of a Service count for, in percent; `None` if all count in full.
    pub(super) fn percents(&self, service: &str) -> Option<Vec<(Name, u16)>> {
        let state = self.state.lock();
        let weighted = state.of(service)?.weighted();
        let percents: Vec<_> = weighted.map(|(zone, to)| (Name::clone(zone), to)).collect();
        (!percents.is_empty()).then_some(percents)
    }

    /// Decides anew, for these Services. Returns those for which something has changed.
    pub(super) fn decide(&self, services: &[Asking], pace: Pace) -> Changed {
        let names: Vec<Name> = services
            .iter()
            .map(|Asking { service: (namespace, name), .. }| {
                format!("{namespace}/{name}").as_str().into()
            })
            .collect();
        let seen = names.iter().zip(services).map(|(name, asking)| {
            (name, Seen { endpoints: &asking.endpoints, held: &asking.held, pace })
        });
        let fault = self.feed.fault().filter(|_| !services.is_empty());
        let mut state = self.state.lock();
        let decided = state.decide(seen, now());
        state.fault = fault;
        let changed = decided.into_iter().filter(|(_, weighing)| weighing.changed);
        let changed: Vec<Name> = changed.map(|(service, _)| service).collect();
        for service in &changed {
            tell(service, state.of(service));
        }
        let codes = state.services().map(|(name, in_force)| (name, in_force.code(fault)));
        let told = codes.map(|(name, code)| (Name::clone(name), code));
        let told = self.told.lock().decided(told);
        let keys = |names: &[Name]| names.iter().filter_map(|name| key(name)).collect();
        Changed { shares: keys(&changed), told: keys(&told) }
    }

    /// The reason that the condition of a Service gives.
    pub(super) fn told(&self, service: &str) -> Option<Code> {
        self.told.lock().of(service)
    }

    /// What is in force, as text with so many bytes at most; `None` if no Service asks for it.
    pub(super) fn encoded(&self, most: usize) -> Option<String> {
        let state = self.state.lock();
        state.services().next()?;
        Some(state.encode(most))
    }

    /// Lets `show` see every zone of a Service that asks, by namespace, Service and zone.
    pub(super) fn each(&self, mut show: impl FnMut([&str; 3], u16)) {
        for (service, in_force) in self.state.lock().services() {
            let Some((namespace, name)) = service.split_once('/') else { continue };
            for (zone, known) in &in_force.zones {
                show([namespace, name, zone], known.percent);
            }
        }
    }
}

/// Says in the log what zones count for.
fn tell(service: &Name, in_force: Option<&InForce>) {
    let weighted = in_force.into_iter().flat_map(InForce::weighted);
    let zones: Vec<String> = weighted.map(|(zone, to)| format!("{zone}: {to} %")).collect();
    if zones.is_empty() {
        tracing::info!(%service, "the endpoints of all zones count the same again, whatever CPU they use");
    } else {
        let zones = zones.join(", ");
        tracing::info!(%service, zones, "the endpoints of zones count by the CPU that they use");
    }
}
