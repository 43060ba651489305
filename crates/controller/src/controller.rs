//! Connects everything: the watches, the queue, the workers, leader election and the health server.
//!
//! ```text
//!  watches ─► ServiceEnqueuer ─► Queue ─► Worker (N tasks) ─► Syncer
//! ```

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zonewise_cluster::access::{MEMORY, Protected, Reviewer};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::events::{EventRecorder, Reporter};
use zonewise_cluster::lease::{self, Claim, Leadership};
use zonewise_cluster::watch::{REWOUND, SERVICE_CIDRS};
use zonewise_common::keys::{CONTROLLER, MANAGED_BY};
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_inventory::index::NodeChange;
use zonewise_inventory::write::SliceWriter;
use zonewise_slices::node::Nodes;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::settings::Settings;
use zonewise_slices::upstream::is_overloaded;
use zonewise_telemetry::checks::{Checks, Readiness};
use zonewise_telemetry::health::{self, ListenError};
use zonewise_telemetry::metrics::{self, MetricError, Registry};
use zonewise_telemetry::server::{Protection, Server};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_telemetry::tls::{Certificate, CertificateError, Tls};

use crate::config::{Config, ConfigFile, GuardConfig, Mode, Source};
use crate::demand::{Demand, Lead};
use crate::evacuation::{Driver, EvacuationFollower, StoredEvacuations};
use crate::faults::Faults;
use crate::guard::{
    self, AdmissionKind, AllocationFollower, Allocations, Certificates, Guard, Keeper, Policy,
    QuotaHolder, Reviews, Webhook,
};
use crate::metrics::Metrics;
use crate::proxies::ProxyReadiness;
use crate::queue::Queue;
use crate::state::ServiceStates;
use crate::status::enforced_reason;
use crate::sync::{Role, Syncer};
use crate::worker::Worker;

/// Why the controller ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The server of health or of metrics could not start.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificate of the metrics cannot be used.
    #[error("the metrics cannot be served: {0}")]
    Certificate(#[from] CertificateError),
    /// Two metrics have the same name.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The cluster lacks something that guard mode needs.
    #[error("guard mode: {0}")]
    Guard(String),
    /// The configuration of leader election cannot be used.
    #[error("leader election: {0}")]
    Lease(#[from] lease::ElectionConfigError),
    /// The lease could not be renewed in time. After a restart the process is a candidate again.
    #[error(
        "the lease could not be renewed in time and another replica may lead now; this process ends and must be restarted"
    )]
    LeaseLost,
    /// What is known is newer than what the API server has. After a restart everything is read afresh.
    #[error("{REWOUND}")]
    Rewound,
}

/// The component that events are reported by. It is the reference's, so that filters keep working.
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

/// Runs the controller until shutdown.
///
/// # Errors
/// If it cannot start, or loses the lease.
pub async fn run(client: Client, config: Config, shutdown: Shutdown) -> Result<(), RunError> {
    let (registry, checks) = (Registry::default(), Checks::default());
    metrics::process(&registry, env!("CARGO_PKG_VERSION"))?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let demand = Demand::new(&registry, config.demand.source)?;
    let enqueuer = ServiceEnqueuer::new(&config, Arc::clone(&metrics), &checks);
    metrics.computed(&registry, &enqueuer.states, &enqueuer.queue)?;
    let watched = WatchedIndex::new(enqueuer);
    let settings = watch::Sender::new(Arc::new(config.settings.clone()));
    Metrics::stored(&registry, stored_endpoints(&watched, settings.subscribe()))?;
    let released = Shutdown::manual();
    let candidate = Arc::clone(&watched);
    let fit = move || candidate.listener.is_current();
    let (leadership, campaign) = campaign(&client, &config, fit, &released)?;
    let election = leadership.clone();
    checks.readiness_when("leader election", move || election.obstacle().map_or(Ok(()), Err));
    let health = health::serve(config.health_address, checks.clone(), &shutdown).await?;
    let protection = protection(&client, config.metrics_certificate.clone())?;
    let metrics_server =
        health::serve_metrics(config.metrics_address, registry.clone(), protection).await?;
    // Health is served by now: the check waits for an API server that does not answer.
    let Some(by_webhook) = by_webhook(&client, &config, &shutdown).await? else { return Ok(()) };
    let campaign = tokio::spawn(campaign);
    let mut watches = watched.start(&client, config.content_type);
    let allocations = Arc::new(Allocations::default());
    let started =
        Started { client: &client, leadership: &leadership, registry: &registry, checks: &checks };
    let (admission, webhook) =
        started.admission(by_webhook.then_some(&config.guard), &allocations, &mut watches).await?;
    let policy = Arc::new(Policy::new(config.guard.max_service_names, admission));
    let evacuations = started.evacuations(&config, &watched, &mut watches)?;
    watch_for_own_slices(&client, &config, &watched, &metrics, &mut watches);
    if config.mode == Mode::Guard {
        let known = (Arc::clone(&allocations), Arc::clone(&watched));
        let services = Arc::clone(&watched);
        let reasons =
            move || services.index().services().filter_map(|one| enforced_reason(one)).collect();
        Metrics::guarded(&registry, &policy, move || in_force(&known.0, &known.1)(), reasons)?;
        let (allocations, watched) = (Arc::clone(&allocations), Arc::clone(&watched));
        watches.spawn(AllocationFollower { allocations, watched }.follow(client.clone()));
    }
    let controller = Controller {
        client,
        config,
        settings,
        watched,
        evacuations,
        allocations,
        policy,
        demand,
        leadership,
        checks,
        shutdown,
    };
    let result = controller.work(&metrics).await;
    drop(watches);
    released.trigger();
    // The lease is released after the last write, because another replica then starts at once.
    let _ = campaign.await;
    if let Some(webhook) = webhook {
        webhook.stop().await;
    }
    metrics_server.stop().await;
    health.stop().await;
    result
}

/// Starts the watches that only some modes need.
fn watch_for_own_slices(
    client: &Client,
    config: &Config,
    watched: &Arc<WatchedIndex<ServiceEnqueuer>>,
    metrics: &Arc<Metrics>,
    watches: &mut JoinSet<()>,
) {
    let form = config.content_type;
    let own_slices = config.mode == Mode::Controller && !config.settings.upstream;
    if own_slices || config.demand.source == Source::Proxies {
        let readiness = Arc::clone(&watched.listener.readiness);
        watches.spawn(readiness.follow(client.clone(), form, Arc::clone(metrics)));
    }
    if own_slices {
        // Events about refused addresses name what proxies refuse.
        watches.spawn(Arc::clone(watched).follow_service_cidrs(client.clone(), form));
    }
}

/// In guard mode: whether the webhook takes the place of the admission policy. `None` if the process is to end first.
async fn by_webhook(
    client: &Client,
    config: &Config,
    shutdown: &Shutdown,
) -> Result<Option<bool>, RunError> {
    if config.mode != Mode::Guard {
        return Ok(Some(false));
    }
    tokio::select! {
        checked = guard::check(client, config.guard.admission) => checked.map(Some).map_err(RunError::Guard),
        () = shutdown.wait() => Ok(None),
    }
}

/// What a start has made so far.
struct Started<'a> {
    client: &'a Client,
    leadership: &'a Leadership,
    registry: &'a Registry,
    checks: &'a Checks,
}

impl Started<'_> {
    /// The zones that are being emptied, as a task of the set follows them. None where that cannot be done.
    fn evacuations(
        &self,
        config: &Config,
        watched: &Arc<WatchedIndex<ServiceEnqueuer>>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Arc<StoredEvacuations>, MetricError> {
        let evacuations = Arc::new(StoredEvacuations::default());
        if can_evacuate(config) {
            let known = Arc::clone(&evacuations);
            Metrics::evacuated(self.registry, move || known.percentages())?;
            let follower = EvacuationFollower {
                evacuations: Arc::clone(&evacuations),
                watched: Arc::clone(watched),
                zones_changed: zones_changed(watched),
            };
            tasks.spawn(follower.follow(self.client.clone()));
        }
        Ok(evacuations)
    }

    /// What puts hints into slices in guard mode; the webhook where one is configured, with its server.
    async fn admission(
        &self,
        webhook: Option<&GuardConfig>,
        allocations: &Arc<Allocations>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(AdmissionKind, Option<Server>), RunError> {
        let Some(config) = webhook else { return Ok((AdmissionKind::Policy, None)) };
        let (admission, server) = self.webhook(config, allocations, tasks).await?;
        Ok((admission, Some(server)))
    }

    /// Starts the webhook of guard mode. Its certificate is looked after by tasks of the set.
    async fn webhook(
        &self,
        config: &GuardConfig,
        allocations: &Arc<Allocations>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(AdmissionKind, Server), RunError> {
        let answered = Metrics::reviews(self.registry)?;
        let tls = Arc::new(Tls::new(Certificate::SelfSigned)?);
        let reviews = Reviews { allocations: Arc::clone(allocations), answered };
        let server = guard::serve(config.webhook_address, &tls, reviews).await?;
        let (served, seen) = watch::channel(None);
        let (installed, accepted) = watch::channel(None);
        let target = config.webhook_target.clone();
        let (client, leadership) = (self.client.clone(), self.leadership.clone());
        let host = target.host().to_owned();
        let certificates =
            Certificates { client, leadership, host, tls, served, installed: accepted };
        tasks.spawn(certificates.keep());
        let (leadership, certificate) = (self.leadership.clone(), seen.clone());
        self.checks.readiness_when("webhook", move || {
            // Only the leader makes one; where the leader is of the configuration before, it makes none, and has to
            // go for another one to lead.
            if certificate.borrow().is_some() || !leadership.may_write() {
                return Ok(());
            }
            Err("no certificate yet; the log says why".to_owned())
        });
        Ok((AdmissionKind::Webhook(Webhook { target, served: seen, installed }), server))
    }
}

const METRICS: Protected = Protected {
    path: "/metrics",
    what: "the metrics",
    role: "zonewise-metrics-reader",
    audience: None,
    admitted_for: MEMORY,
};

/// What keeps metrics from those who may not read them, if they are served with a certificate.
fn protection(
    client: &Client,
    certificate: Option<Certificate>,
) -> Result<Option<Protection>, CertificateError> {
    let Some(certificate) = certificate else { return Ok(None) };
    let tls = Arc::new(Tls::new(certificate)?);
    Ok(Some(Protection { tls, access: Arc::new(Reviewer::new(client.clone(), METRICS)) }))
}

/// The Services whose hints are in force in guard mode.
fn in_force<'a>(
    allocations: &'a Allocations,
    watched: &'a WatchedIndex<ServiceEnqueuer>,
) -> impl Fn() -> Vec<QuotaHolder> + 'a {
    || allocations.in_force(|key| watched.index().service(key).is_some())
}

/// Makes the nodes known anew, with the zones that are being emptied.
fn zones_changed(watched: &Arc<WatchedIndex<ServiceEnqueuer>>) -> Box<dyn Fn() + Send + Sync> {
    let watched = Arc::clone(watched);
    Box::new(move || watched.listener.nodes_changed.notify_one())
}

/// Counts the endpoints in all slices that this controller manages.
fn stored_endpoints(
    watched: &Arc<WatchedIndex<ServiceEnqueuer>>,
    settings: watch::Receiver<Arc<Settings>>,
) -> impl Fn() -> usize + Send + Sync + 'static {
    let watched = Arc::clone(watched);
    move || {
        let settings = Arc::clone(&settings.borrow());
        let index = watched.index();
        let managed = index.slices().filter(|slice| settings.manages(slice.labels.get(MANAGED_BY)));
        managed.map(|slice| slice.endpoints.len()).sum()
    }
}

type Campaign = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn campaign(
    client: &Client,
    config: &Config,
    fit: impl Fn() -> bool + Send + Sync + 'static,
    released: &Shutdown,
) -> Result<(Leadership, Campaign), lease::ElectionConfigError> {
    match &config.lease {
        None => Ok((Leadership::always(), Box::pin(async {}))),
        Some(lease) => {
            let store = lease::api_store(client.clone(), lease);
            let (leadership, campaign) = lease::run(store, lease.clone(), fit, released.wait())?;
            Ok((leadership, Box::pin(campaign)))
        }
    }
}

// === what the watches report ===

/// Puts the Services that a change concerns into the queue.
struct ServiceEnqueuer {
    queue: Arc<Queue>,
    states: Arc<ServiceStates>,
    readiness: Arc<ProxyReadiness>,
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
    complete: watch::Sender<bool>,
    /// Nodes that were added or deleted, or whose zone or region has changed.
    moved: Mutex<BTreeSet<Name>>,
    nodes_changed: Notify,
    /// The API server has older data than before.
    rewound: Notify,
    ready: OnceLock<Readiness>,
}

/// The number of resources that have to be listed: Services, Pods, EndpointSlices and Nodes, and ZoneAllocations in
/// guard mode, or ZoneEvacuations where zones can be emptied.
fn resources(config: &Config) -> usize {
    4 + usize::from(config.mode == Mode::Guard) + usize::from(can_evacuate(config))
}

/// Whether zones can be emptied: the conditions of endpoints are ours.
fn can_evacuate(config: &Config) -> bool {
    config.mode == Mode::Controller && !config.settings.upstream
}

impl ServiceEnqueuer {
    fn new(config: &Config, metrics: Arc<Metrics>, checks: &Checks) -> Self {
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
    fn is_current(&self) -> bool {
        !*self.complete.borrow() || self.interrupted.lock().is_empty()
    }

    /// How long a Service waits before it is synced, so that changes that belong together are one write.
    fn delay(&self, cause: Cause, service: &Key) -> Duration {
        match cause {
            Cause::Service | Cause::Nodes | Cause::Quiet => Duration::ZERO,
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

// === the leader's work ===

struct Controller {
    client: Client,
    config: Config,
    /// The settings that are in force: those of `config` until the file changes.
    settings: watch::Sender<Arc<Settings>>,
    watched: Arc<WatchedIndex<ServiceEnqueuer>>,
    /// The zones that are being emptied, and how far that is.
    evacuations: Arc<StoredEvacuations>,
    /// Only in guard mode: the stored allocations.
    allocations: Arc<Allocations>,
    /// Only in guard mode: the admission policy and its bindings.
    policy: Arc<Policy>,
    demand: Arc<Demand>,
    leadership: Leadership,
    checks: Checks,
    shutdown: Shutdown,
}

impl Controller {
    async fn work(&self, metrics: &Arc<Metrics>) -> Result<(), RunError> {
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
        self.lead(metrics, (nodes, receiver), &mut file, &mut claims).await
    }

    /// What the leader does, until it leads no more or the process is to end.
    async fn lead(
        &self,
        metrics: &Arc<Metrics>,
        (nodes, receiver): (watch::Sender<Arc<Nodes>>, watch::Receiver<Arc<Nodes>>),
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
            () = demand.measure(&nodes, |services| self.watched.listener.changed(Cause::Nodes, services)) => Ok(()),
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
