//! The leader's work: it follows nodes, proxies and the configuration file, and runs the workers that sync Services.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zonewise_cluster::events::{EventRecorder, Reporter};
use zonewise_cluster::lease::{Claim, Leadership};
use zonewise_common::keys::CONTROLLER;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_inventory::write::SliceWriter;
use zonewise_slices::node::Nodes;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::settings::Settings;
use zonewise_slices::upstream::is_overloaded;
use zonewise_telemetry::checks::Checks;
use zonewise_telemetry::shutdown::Shutdown;

use crate::config::{Config, ConfigFile, Mode};
use crate::demand::{Demand, Lead};
use crate::evacuation::{Driver, StoredEvacuations};
use crate::faults::Faults;
use crate::guard::{Allocations, Guard, Keeper, Policy};
use crate::metrics::Metrics;
use crate::sync::{Role, Syncer};
use crate::worker::Worker;

use super::enqueuer::ServiceEnqueuer;
use super::{RunError, in_force, zones_changed};

/// The component that events are reported by. It is the reference's
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/endpointslice/endpointslice_controller.go>),
/// so that filters keep working.
const COMPONENT: &str = "endpoint-slice-controller";
/// Changes of nodes within this time are handled together.
const NODE_BATCH_PERIOD: Duration = Duration::from_millis(100);
/// How often shared values that no object uses any more are freed.
const SWEEP_PERIOD: Duration = Duration::from_secs(600);
/// How often the configuration file is looked at.
const CONFIG_PERIOD: Duration = Duration::from_secs(5);
/// A worker whose last sign of life is older than this hangs, which a restart repairs. Every request of a sync ends by
/// itself after at most 30 s.
const WORKER_LIMIT: Duration = Duration::from_secs(900);
/// How often all Services are synced again, even without a change.
const RESYNC_PERIOD: Duration = Duration::from_secs(12 * 3600);

pub(super) struct Controller {
    pub(super) client: Client,
    pub(super) config: Config,
    /// The settings that are in force: those of `config` until the file changes.
    pub(super) settings: watch::Sender<Arc<Settings>>,
    pub(super) watched: Arc<WatchedIndex<ServiceEnqueuer>>,
    /// The zones that are being emptied, and how far that is.
    pub(super) evacuations: Arc<StoredEvacuations>,
    /// Only in guard mode: the stored allocations.
    pub(super) allocations: Arc<Allocations>,
    /// Only in guard mode: the admission policy and its bindings.
    pub(super) policy: Arc<Policy>,
    pub(super) demand: Arc<Demand>,
    pub(super) leadership: Leadership,
    pub(super) checks: Checks,
    pub(super) shutdown: Shutdown,
}

impl Controller {
    pub(super) async fn work(&self, metrics: &Arc<Metrics>) -> Result<(), RunError> {
        if !self.lists_are_complete().await? {
            return Ok(());
        }
        let (nodes, receiver) = watch::channel(Arc::new(self.nodes()));
        let mut file = self.config.file.clone();
        let mut claims = self.leadership.claims();
        tokio::select! {
            biased;
            _ = claims.wait_for(|claim| matches!(claim, Claim::Leader { .. })) => {}
            () = self.follow_nodes(&nodes) => {}
            () = self.follow_configuration(&mut file, metrics) => {}
            () = self.rewound() => return Err(RunError::Rewound),
            () = self.shutdown.wait() => return Ok(()),
        }
        metrics.leading.store(true, Ordering::Relaxed);
        self.lead(metrics, nodes, receiver, &mut file, &mut claims).await
    }

    /// What the leader does, until it leads no more or the process is to end.
    async fn lead(
        &self,
        metrics: &Arc<Metrics>,
        nodes: watch::Sender<Arc<Nodes>>,
        receiver: watch::Receiver<Arc<Nodes>>,
        file: &mut Option<ConfigFile>,
        claims: &mut watch::Receiver<Claim>,
    ) -> Result<(), RunError> {
        let demand = self.lead_demand();
        demand.restore().await;
        nodes.send_replace(Arc::new(self.nodes()));
        self.enqueue_by_proxy_reports();
        self.enqueue_all();
        let events = EventRecorder::start(self.client.clone(), self.reporter());
        let driver = self.driver(receiver.clone(), &events);
        let mut workers = self.workers(metrics, receiver, events);
        let lost = async {
            claims.wait_for(|claim| matches!(claim, Claim::Follower { .. })).await.is_ok()
        };
        let result = tokio::select! {
            biased;
            _ = lost => Err(RunError::LeaseLost),
            () = self.rewound() => Err(RunError::Rewound),
            // Workers end when the process shuts down, and when they may not write any more, even if the change of
            // the leader was not seen.
            _ = workers.join_next() => if self.shutdown.is_down() { Ok(()) } else { Err(RunError::LeaseLost) },
            () = self.follow_nodes(&nodes) => Ok(()),
            () = self.follow_proxies() => Ok(()),
            () = self.keep_objects(&driver) => Ok(()),
            () = demand.measure(&nodes, |cause, services| self.watched.listener.changed(cause, services)) => Ok(()),
            () = self.follow_configuration(file, metrics) => Ok(()),
            () = self.housekeeping() => Ok(()),
            () = self.shutdown.wait() => Ok(()),
        };
        metrics.leading.store(false, Ordering::Relaxed);
        tokio::join!(self.stop(workers), demand.finish());
        result
    }

    fn lead_demand(&self) -> Lead<'_, ServiceEnqueuer> {
        Lead {
            demand: &self.demand,
            mode: self.config.mode,
            config: &self.config.demand,
            client: &self.client,
            leadership: &self.leadership,
            watched: &self.watched,
            proxies: &self.watched.listener.readiness,
            settings: self.settings.subscribe(),
            stored: Mutex::default(),
        }
    }

    /// Waits until everything is listed. False if the process is to end before that.
    async fn lists_are_complete(&self) -> Result<bool, RunError> {
        let mut complete = self.watched.listener.complete.subscribe();
        tokio::select! {
            biased;
            _ = complete.wait_for(|complete| *complete) => Ok(true),
            () = self.rewound() => Err(RunError::Rewound),
            () = self.shutdown.wait() => Ok(false),
        }
    }

    async fn rewound(&self) {
        self.watched.listener.rewound.notified().await;
    }

    fn nodes(&self) -> Nodes {
        let nodes = self.watched.index().nodes().clone();
        Nodes::new(nodes, self.config.missing_cpu).evacuating(self.evacuations.in_force())
    }

    fn enqueue_all(&self) {
        let keys: Vec<Key> = {
            let index = self.watched.index();
            index
                .services()
                .map(|service| (Name::clone(&service.namespace), Name::clone(&service.name)))
                .collect()
        };
        for key in keys {
            self.watched.listener.queue.add(key, Cause::Service, Duration::ZERO);
        }
    }

    /// Events carry a label of ours, except those that are to be exactly the reference's.
    fn reporter(&self) -> Reporter {
        let label = (!self.config.settings.upstream).then_some(CONTROLLER);
        Reporter { component: COMPONENT, label }
    }

    /// What takes evacuations forward. Where zones cannot be emptied there are none.
    fn driver(
        &self,
        nodes: watch::Receiver<Arc<Nodes>>,
        events: &EventRecorder,
    ) -> Driver<ServiceEnqueuer> {
        Driver {
            client: self.client.clone(),
            leadership: self.leadership.clone(),
            evacuations: Arc::clone(&self.evacuations),
            watched: Arc::clone(&self.watched),
            nodes,
            settings: self.settings.subscribe(),
            readiness: Arc::clone(&self.watched.listener.readiness),
            demand: Arc::clone(&self.demand),
            events: events.clone(),
            zones_changed: zones_changed(&self.watched),
        }
    }

    fn workers(
        &self,
        metrics: &Arc<Metrics>,
        nodes: watch::Receiver<Arc<Nodes>>,
        events: EventRecorder,
    ) -> JoinSet<()> {
        let enqueuer = &self.watched.listener;
        let syncer = Arc::new(Syncer {
            client: self.client.clone(),
            writer: SliceWriter::new(self.client.clone(), self.config.content_type),
            settings: self.settings.subscribe(),
            watched: Arc::clone(&self.watched),
            nodes,
            states: Arc::clone(&enqueuer.states),
            readiness: Arc::clone(&enqueuer.readiness),
            demand: Arc::clone(&self.demand),
            metrics: Arc::clone(metrics),
            events,
            leadership: self.leadership.clone(),
            role: match self.config.mode {
                Mode::Controller => Role::Controller,
                Mode::Guard => {
                    Role::Guard(Guard::new(Arc::clone(&self.allocations), Arc::clone(&self.policy)))
                }
                Mode::Observe => Role::Observer,
            },
        });
        let faults = Arc::new(Faults::new(self.config.workers));
        let mut workers = JoinSet::new();
        for number in 1..=self.config.workers {
            let (syncer, queue) = (Arc::clone(&syncer), Arc::clone(&enqueuer.queue));
            let heartbeat = self.checks.heartbeat(&format!("worker {number}"), WORKER_LIMIT);
            let (faults, shutdown) = (Arc::clone(&faults), self.shutdown.clone());
            workers.spawn(Worker { syncer, queue, faults, heartbeat, shutdown }.run());
        }
        workers
    }

    /// Stops the workers and waits for writes that are in flight.
    async fn stop(&self, mut workers: JoinSet<()>) {
        const LAST_WRITES: Duration = Duration::from_secs(5);
        self.shutdown.trigger();
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WRITES, ended).await.is_err() {
            tracing::warn!("a write did not end within 5 s after the shutdown");
        }
    }

    /// Keeps the capacity of zones up to date and enqueues the Services that depend on it.
    async fn follow_nodes(&self, nodes: &watch::Sender<Arc<Nodes>>) {
        let enqueuer = &self.watched.listener;
        loop {
            enqueuer.nodes_changed.notified().await;
            sleep(NODE_BATCH_PERIOD).await;
            let now = Arc::new(self.nodes());
            let before = nodes.send_replace(Arc::clone(&now));
            let moved = std::mem::take(&mut *enqueuer.moved.lock());
            let services = if self.config.settings.upstream {
                self.overloaded(&now)
            } else {
                self.concerned(&before, &now, &moved)
            };
            for service in services {
                enqueuer.queue.add(service, Cause::Nodes, Duration::ZERO);
            }
        }
    }

    /// Looks after the objects that are not about a single Service; never ends.
    async fn keep_objects(&self, driver: &Driver<ServiceEnqueuer>) {
        tokio::join!(self.keep_policy(), driver.drive());
    }

    /// In guard mode: keeps the admission policy in place. When it was not, slices may have been written without it.
    async fn keep_policy(&self) {
        if self.config.mode != Mode::Guard {
            return std::future::pending().await;
        }
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        let keeper = Keeper { client, leadership, policy: Arc::clone(&self.policy) };
        let admitted = |services: Vec<Key>| self.watched.listener.changed(Cause::Service, services);
        keeper
            .keep(in_force(&self.allocations, &self.watched), || self.enqueue_all(), admitted)
            .await;
    }

    /// Enqueues the Services whose condition `Ready` changes because of what the proxies report.
    async fn follow_proxies(&self) {
        loop {
            self.watched.listener.readiness.next_change().await;
            self.enqueue_by_proxy_reports();
        }
    }

    fn enqueue_by_proxy_reports(&self) {
        let enqueuer = &self.watched.listener;
        for service in enqueuer.readiness.refresh() {
            enqueuer.queue.add(service, Cause::Service, Duration::ZERO);
        }
    }

    /// With `upstream`: the Services whose hints do not fit the new capacity of zones.
    fn overloaded(&self, nodes: &Nodes) -> BTreeSet<Key> {
        let states = self.watched.listener.states.lock();
        let overloaded = |state: &crate::state::ServiceState| {
            state.hints_per_zone.iter().any(|hints_per_zone| is_overloaded(hints_per_zone, nodes))
        };
        states.iter().filter(|(_, state)| overloaded(state)).map(|(key, _)| key.clone()).collect()
    }

    /// Services with Pods on nodes that were added or deleted or have changed their zone, and if the
    /// capacity has changed, all Services whose routing depends on it. For most of them the sync finds
    /// that nothing has to be written.
    fn concerned(&self, before: &Nodes, now: &Nodes, moved: &BTreeSet<Name>) -> BTreeSet<Key> {
        let index = self.watched.index();
        let mut services: BTreeSet<Key> = BTreeSet::new();
        for node in moved {
            services.append(&mut index.services_on(node));
        }
        let evacuated = before.evacuations.zones().chain(now.evacuations.zones());
        for zone in
            evacuated.filter(|_| before.evacuations != now.evacuations).map(|(zone, _)| zone)
        {
            let nodes = now.by_name.values().filter(|node| node.zone.as_ref() == Some(zone));
            services.extend(nodes.flat_map(|node| index.services_on(&node.name)));
        }
        if before.zones != now.zones
            || before.zones_counted != now.zones_counted
            || before.regions_counted != now.regions_counted
        {
            let settings = Arc::clone(&self.settings.borrow());
            let depends = index
                .services()
                .filter(|service| requested_routing(service, &settings).choice.depends_on_nodes());
            services.extend(
                depends
                    .map(|service| (Name::clone(&service.namespace), Name::clone(&service.name))),
            );
        }
        services
    }

    /// Puts a changed configuration file in force.
    async fn follow_configuration(&self, file: &mut Option<ConfigFile>, metrics: &Metrics) {
        let Some(file) = file else { return std::future::pending().await };
        loop {
            sleep(CONFIG_PERIOD).await;
            let result = match file.changed() {
                None => continue,
                Some(Ok(config)) => {
                    self.put_in_force(config.settings);
                    "success"
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "the changed configuration cannot be used; the one before stays in force");
                    "error"
                }
            };
            metrics.own.reloads.with([result]).inc();
        }
    }

    /// What is written, and whether to behave as the reference, is decided at the start.
    fn put_in_force(&self, settings: Settings) {
        let Settings { upstream, guard, .. } = self.config.settings;
        if settings.upstream != upstream || settings.guard != guard {
            tracing::warn!("a change of `compat` or `mode` takes effect after a restart");
        }
        self.settings.send_replace(Arc::new(Settings { upstream, guard, ..settings }));
        tracing::info!("the changed configuration is in force");
        self.enqueue_all();
    }

    async fn housekeeping(&self) {
        let mut last = Instant::now();
        loop {
            sleep(SWEEP_PERIOD).await;
            self.watched.index().sweep();
            if last.elapsed() > RESYNC_PERIOD {
                last = Instant::now();
                self.enqueue_all();
            }
        }
    }
}
