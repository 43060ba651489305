//! What the watches report: which Services a change concerns, which resources are listed and which watches are
//! interrupted.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::SERVICE_CIDRS;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, IndexListener};
use zonewise_inventory::index::NodeChange;
use zonewise_telemetry::checks::{Checks, Readiness};

use crate::config::{Config, Mode};
use crate::metrics::Metrics;
use crate::proxies::ProxyReadiness;
use crate::queue::Queue;
use crate::state::ServiceStates;

use super::can_evacuate;

/// Puts the Services that a change concerns into the queue.
pub(super) struct ServiceEnqueuer {
    pub(super) queue: Arc<Queue>,
    pub(super) states: Arc<ServiceStates>,
    pub(super) readiness: Arc<ProxyReadiness>,
    metrics: Arc<Metrics>,
    batch: Duration,
    upstream: bool,
    /// The number of resources that have to be listed.
    resources: usize,
    /// Resources that have been listed.
    listed: Mutex<BTreeSet<&'static str>>,
    /// Resources whose watch is interrupted.
    interrupted: Mutex<BTreeSet<&'static str>>,
    /// Whether all resources have been listed.
    pub(super) complete: watch::Sender<bool>,
    /// Nodes that were added or deleted, or whose zone or region has changed.
    pub(super) moved: Mutex<BTreeSet<Name>>,
    pub(super) nodes_changed: Notify,
    /// The API server has older data than before.
    pub(super) rewound: Notify,
    ready: OnceLock<Readiness>,
}

/// The number of resources that have to be listed: Services, Pods, EndpointSlices and Nodes, and ZoneAllocations in
/// guard mode, or ZoneEvacuations where zones can be emptied.
fn resources(config: &Config) -> usize {
    4 + usize::from(config.mode == Mode::Guard) + usize::from(can_evacuate(config))
}

impl ServiceEnqueuer {
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>, checks: &Checks) -> Self {
        let ready = OnceLock::new();
        let _ = ready.set(checks.readiness("watches"));
        Self {
            queue: Arc::default(),
            states: Arc::default(),
            readiness: Arc::default(),
            metrics,
            batch: config.batch_period,
            upstream: config.settings.upstream,
            resources: resources(config),
            listed: Mutex::default(),
            interrupted: Mutex::default(),
            complete: watch::Sender::new(false),
            moved: Mutex::default(),
            nodes_changed: Notify::new(),
            rewound: Notify::new(),
            ready,
        }
    }

    /// Without ServiceCIDRs plans are the same.
    fn note_interruption(&self, resource: &'static str, is_interrupted: bool) {
        let mut interrupted = self.interrupted.lock();
        if is_interrupted && resource != SERVICE_CIDRS.name {
            interrupted.insert(resource);
        } else {
            interrupted.remove(resource);
        }
    }

    /// Whether what is known is up to date, or will be before anything is written. A replica that has missed changes
    /// does not become the leader: it would undo what the last one has written since.
    pub(super) fn is_current(&self) -> bool {
        !*self.complete.borrow() || self.interrupted.lock().is_empty()
    }

    /// How long a Service waits before it is synced, so that changes that belong together are one write.
    fn delay(&self, cause: Cause, service: &Key) -> Duration {
        match cause {
            Cause::Service
            | Cause::Nodes
            | Cause::Demand
            | Cause::FailingZones
            | Cause::CpuUse
            | Cause::Conditions
            | Cause::Quiet => Duration::ZERO,
            Cause::Pods => {
                let now = Instant::now();
                self.states.with(service, |state| state.batch_delay(now)).max(self.batch)
            }
            Cause::Slices => {
                let delay =
                    self.states.with(service, |state| state.second_writer.correction_delay());
                delay.max(self.batch)
            }
        }
    }
}

impl IndexListener for ServiceEnqueuer {
    fn changed(&self, cause: Cause, services: Vec<Key>) {
        // Before all resources are listed no plan would be right. After that all Services are synced.
        if !*self.complete.borrow() {
            return;
        }
        for service in services {
            let delay = self.delay(cause, &service);
            self.queue.add(service, cause, delay);
        }
    }

    /// The reference does not notice when a slice is deleted that it has not written since its start.
    fn slice_deleted(&self, service: Key, written_here: bool) {
        if written_here || !self.upstream {
            self.changed(Cause::Slices, vec![service]);
        }
    }

    fn service_gone(&self, service: &Key) {
        self.states.forget(service);
        self.readiness.forget(service);
    }

    fn node_changed(&self, node: &Name, change: NodeChange) {
        let relevant =
            if self.upstream { change.reference } else { change.capacity || change.location };
        if change.location {
            self.moved.lock().insert(Name::clone(node));
        }
        if relevant {
            self.nodes_changed.notify_one();
        }
    }

    fn listed(&self, resource: &'static str) {
        let mut listed = self.listed.lock();
        if listed.insert(resource) && listed.len() == self.resources {
            tracing::info!(resources = ?*listed, "the first lists of all resources are complete");
            self.complete.send_replace(true);
        }
    }

    fn health(&self, resource: &'static str, health: Result<(), &ApiError>) {
        if health.is_err() {
            self.metrics.own.watch_failures.with([resource]).inc();
        }
        self.note_interruption(resource, health.is_err());
        let listed = self.listed.lock().len();
        let Some(ready) = self.ready.get() else { return };
        match health {
            // Once everything is listed it stays ready: what is known may be old, but it can be used.
            _ if listed == self.resources => ready.set(Ok(())),
            Ok(()) => {
                ready.set(Err(&format!("{listed} of {} resources are listed", self.resources)));
            }
            Err(error) => ready.set(Err(&format!("{resource}: {error}"))),
        }
    }

    fn rewound(&self) {
        self.rewound.notify_one();
    }

    fn unreadable(&self, resource: &'static str, (namespace, name): &Key, error: &str) {
        self.metrics.own.unreadable.with([resource]).inc();
        tracing::warn!(resource, %namespace, %name, error, "an object cannot be decoded; its last known state is used");
    }
}
