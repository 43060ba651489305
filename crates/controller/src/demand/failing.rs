//! Zones whose endpoints fail: what they count for, of the Services that ask for it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use zonewise_common::name::{Key, Name};
use zonewise_demand::failures::Failures;
use zonewise_demand::health::{HealthState, InForce, Seen};

use super::{Endpoints, key, now};

/// What the zones of Services count for.
#[derive(Default)]
pub(super) struct FailingZones {
    state: Mutex<HealthState>,
}

impl FailingZones {
    /// Goes on with what the leader before has stored.
    pub(super) fn restore(&self, state: HealthState) {
        *self.state.lock() = state;
    }

    /// What the zones of a Service count for, in percent; `None` if all count in full.
    pub(super) fn percents(&self, service: &str) -> Option<Vec<(Name, u8)>> {
        let state = self.state.lock();
        let in_force = state.of(service).filter(|in_force| in_force.is_lowered())?;
        Some(lowered(in_force).map(|(zone, percent)| (Name::clone(zone), percent)).collect())
    }

    /// Decides anew, for these Services. Returns those for which something has changed.
    pub(super) fn decide(
        &self,
        services: &BTreeSet<Key>,
        failures: Option<&Failures>,
        endpoints: &Endpoints<'_>,
    ) -> Vec<Key> {
        let known: Vec<(Name, BTreeMap<Name, u64>)> = services
            .iter()
            .map(|service @ (namespace, name)| {
                (format!("{namespace}/{name}").as_str().into(), endpoints(service))
            })
            .collect();
        let seen = known.iter().map(|(service, endpoints)| {
            let failures = failures.and_then(|failures| failures.of(service));
            (service, Seen { failures, endpoints })
        });
        let mut state = self.state.lock();
        let judgements = state.decide(seen, now());
        let changed = judgements.into_iter().filter(|(_, judgement)| judgement.changed);
        let changed: Vec<Name> = changed.map(|(service, _)| service).collect();
        for service in &changed {
            tell(service, state.of(service));
        }
        changed.iter().filter_map(|service| key(service)).collect()
    }

    /// What is in force, as text; `None` if all zones count in full.
    pub(super) fn encoded(&self) -> Option<String> {
        let state = self.state.lock();
        state.lowered().next()?;
        Some(state.encode())
    }

    /// Lets `show` see every zone that counts for less, by namespace, Service and zone.
    pub(super) fn each(&self, mut show: impl FnMut([&str; 3], u8)) {
        for (service, in_force) in self.state.lock().lowered() {
            let Some((namespace, name)) = service.split_once('/') else { continue };
            for (zone, percent) in lowered(in_force) {
                show([namespace, name, zone], percent);
            }
        }
    }
}

fn lowered(in_force: &InForce) -> impl Iterator<Item = (&Name, u8)> {
    in_force.lowered().map(|(name, zone)| (name, zone.percent))
}

/// Says in the log what zones count for.
fn tell(service: &Name, in_force: Option<&InForce>) {
    let zones: Vec<String> = in_force
        .into_iter()
        .flat_map(lowered)
        .map(|(zone, percent)| format!("{zone}: {percent} %"))
        .collect();
    if zones.is_empty() {
        tracing::info!(%service, "all zones count in full again: connections to their endpoints fail no more often than elsewhere");
    } else {
        let zones = zones.join(", ");
        tracing::info!(%service, zones, "zones count for less, because more connections to their endpoints fail than elsewhere");
    }
}
