//! The shell: wires watches, queue, workers, lease and the health server together.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kube::Client;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::events::Recorder;
use zonewise_cluster::lease::{self, Claim, Leadership};
use zonewise_cluster::watch::Backoff;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, Followed, Listener};
use zonewise_inventory::index::NodeChange;
use zonewise_slices::asked::asked;
use zonewise_slices::node::Nodes;
use zonewise_slices::upstream::is_overloaded;
use zonewise_telemetry::checks::{Checks, Readiness};
use zonewise_telemetry::health::{self, ListenError};
use zonewise_telemetry::metrics::{self, MetricError, Registry};
use zonewise_telemetry::shutdown::Shutdown;

use crate::config::Config;
use crate::memory::Memories;
use crate::metrics::Metrics;
use crate::proxies::Reports;
use crate::queue::Queue;
use crate::sync::{Ended, Syncer};

/// Why the controller ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The health server could not start.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Two metrics have one name.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The times of leader election do not fit together.
    #[error("leader election: {0}")]
    Lease(#[from] lease::ConfigError),
    /// Another replica leads now; a restart makes this one a candidate again.
    #[error(
        "the lease was lost: another replica may lead now; this process ends so that it can start anew"
    )]
    LeaseLost,
}

/// The name under which events are recorded; the reference's, so that filters keep working.
const COMPONENT: &str = "endpoint-slice-controller";
/// Node changes within this time are one.
const NODES_SETTLE: Duration = Duration::from_millis(100);
/// Values nobody uses any more are forgotten this often.
const SWEEP: Duration = Duration::from_secs(600);
/// Everything is looked at again this often, whatever the watches say.
const RESYNC: Duration = Duration::from_secs(12 * 3600);

/// Runs until shutdown.
///
/// # Errors
/// If it cannot start, or loses the lease.
pub async fn run(client: Client, config: Config, shutdown: Shutdown) -> Result<(), RunError> {
    let (registry, checks) = (Registry::default(), Checks::default());
    metrics::process(&registry, env!("CARGO_PKG_VERSION"))?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let ear = Ear::new(&config, Arc::clone(&metrics), &checks);
    metrics.computed(&registry, &ear.memories, &ear.queue)?;
    let server = health::serve(config.metrics_address, registry, checks, &shutdown).await?;
    let released = Shutdown::manual();
    let (leadership, campaign) = campaign(&client, &config, &released)?;
    let campaign = tokio::spawn(campaign);
    let followed = Followed::new(ear);
    let mut watches = followed.start(&client);
    if !config.settings.upstream {
        let reports = Arc::clone(&followed.listener.reports);
        watches.spawn(reports.follow(client.clone(), Arc::clone(&metrics)));
    }
    let controller = Controller { client, config, followed, leadership, shutdown };
    let result = controller.work(&metrics).await;
    drop(watches);
    released.trigger();
    // The lease is given back only after the last write.
    let _ = campaign.await;
    server.stop().await;
    result
}

type Campaign = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn campaign(
    client: &Client,
    config: &Config,
    released: &Shutdown,
) -> Result<(Leadership, Campaign), lease::ConfigError> {
    match &config.lease {
        None => Ok((Leadership::always(), Box::pin(async {}))),
        Some(lease) => {
            let store = lease::api_store(client.clone(), lease);
            let (leadership, campaign) = lease::run(store, lease.clone(), released.wait())?;
            Ok((leadership, Box::pin(campaign)))
        }
    }
}

// === what the watches report ===

/// Turns what the watches report into work.
struct Ear {
    queue: Arc<Queue>,
    memories: Arc<Memories>,
    reports: Arc<Reports>,
    metrics: Arc<Metrics>,
    batch: Duration,
    upstream: bool,
    /// Kinds that have been listed.
    listed: Mutex<BTreeSet<&'static str>>,
    complete: watch::Sender<bool>,
    moved: Mutex<BTreeSet<Name>>,
    nodes_changed: Notify,
    ready: OnceLock<Readiness>,
}

const KINDS: usize = 4;

impl Ear {
    fn new(config: &Config, metrics: Arc<Metrics>, checks: &Checks) -> Self {
        let ready = OnceLock::new();
        let _ = ready.set(checks.readiness("watches"));
        Self {
            queue: Arc::default(),
            memories: Arc::default(),
            reports: Arc::default(),
            metrics,
            batch: config.batch_period,
            upstream: config.settings.upstream,
            listed: Mutex::default(),
            complete: watch::Sender::new(false),
            moved: Mutex::default(),
            nodes_changed: Notify::new(),
            ready,
        }
    }

    fn delay(&self, cause: Cause, service: &Key) -> Duration {
        match cause {
            Cause::Service | Cause::Nodes => Duration::ZERO,
            Cause::Pods => {
                let now = Instant::now();
                self.memories.with(service, |memory| memory.gathering(now)).max(self.batch)
            }
            Cause::Slices => {
                let patience = self.memories.with(service, |memory| memory.rival.patience());
                patience.max(self.batch)
            }
        }
    }
}

impl Listener for Ear {
    fn changed(&self, cause: Cause, services: Vec<Key>) {
        // Until everything is known, nothing can be judged; then every Service is looked at.
        if !*self.complete.borrow() {
            return;
        }
        for service in services {
            let delay = self.delay(cause, &service);
            self.queue.add(service, cause, delay);
        }
    }

    fn service_gone(&self, service: &Key) {
        self.memories.forget(service);
        self.reports.forget(service);
    }

    fn node_changed(&self, node: &Name, change: NodeChange) {
        let noticed =
            if self.upstream { change.reference } else { change.capacity || change.place };
        if change.place {
            self.moved.lock().unwrap_or_else(PoisonError::into_inner).insert(Name::clone(node));
        }
        if noticed {
            self.nodes_changed.notify_one();
        }
    }

    fn listed(&self, resource: &'static str) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.insert(resource) && listed.len() == KINDS {
            tracing::info!("everything is listed");
            self.complete.send_replace(true);
        }
    }

    fn health(&self, resource: &'static str, health: Result<(), &ApiError>) {
        if health.is_err() {
            self.metrics.ours.watch_failures.with([resource]).inc();
        }
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).len();
        let Some(ready) = self.ready.get() else { return };
        match health {
            // Once everything is known, old knowledge beats none: it stays ready.
            _ if listed == KINDS => ready.set(Ok(())),
            Ok(()) => ready.set(Err(&format!("{listed} of {KINDS} kinds are listed"))),
            Err(error) => ready.set(Err(&format!("{resource}: {error}"))),
        }
    }

    fn unreadable(&self, resource: &'static str, (namespace, name): &Key, error: &str) {
        self.metrics.ours.unreadable.with([resource]).inc();
        tracing::warn!(resource, %namespace, %name, error, "an object cannot be read; what was known of it stays");
    }
}

// === the work ===

struct Controller {
    client: Client,
    config: Config,
    followed: Arc<Followed<Ear>>,
    leadership: Leadership,
    shutdown: Shutdown,
}

impl Controller {
    async fn work(&self, metrics: &Arc<Metrics>) -> Result<(), RunError> {
        let mut complete = self.followed.listener.complete.subscribe();
        tokio::select! {
            _ = complete.wait_for(|complete| *complete) => {}
            () = self.shutdown.wait() => return Ok(()),
        }
        let (nodes, receiver) = watch::channel(Arc::new(self.nodes()));
        let mut claims = self.leadership.claims();
        tokio::select! {
            _ = claims.wait_for(|claim| matches!(claim, Claim::Leader { .. })) => {}
            () = self.follow_nodes(&nodes) => {}
            () = self.shutdown.wait() => return Ok(()),
        }
        metrics.leading.store(true, Ordering::Relaxed);
        nodes.send_replace(Arc::new(self.nodes()));
        self.look_at_proxies();
        self.look_at_everything();
        let workers = self.workers(metrics, receiver);
        let lost = async {
            claims.wait_for(|claim| matches!(claim, Claim::Follower { .. })).await.is_ok()
        };
        let result = tokio::select! {
            _ = lost => Err(RunError::LeaseLost),
            () = self.follow_nodes(&nodes) => Ok(()),
            () = self.follow_proxies() => Ok(()),
            () = self.housekeeping() => Ok(()),
            () = self.shutdown.wait() => Ok(()),
        };
        metrics.leading.store(false, Ordering::Relaxed);
        self.stop(workers).await;
        result
    }

    fn nodes(&self) -> Nodes {
        let nodes = self.followed.index().nodes().clone();
        Nodes::new(nodes, self.config.missing_cpu)
    }

    fn look_at_everything(&self) {
        let keys: Vec<Key> = {
            let index = self.followed.index();
            index
                .services()
                .map(|service| (Name::clone(&service.namespace), Name::clone(&service.name)))
                .collect()
        };
        for key in keys {
            self.followed.listener.queue.add(key, Cause::Service, Duration::ZERO);
        }
    }

    fn workers(&self, metrics: &Arc<Metrics>, nodes: watch::Receiver<Arc<Nodes>>) -> JoinSet<()> {
        let ear = &self.followed.listener;
        let syncer = Arc::new(Syncer {
            client: self.client.clone(),
            settings: self.config.settings.clone(),
            followed: Arc::clone(&self.followed),
            nodes,
            memories: Arc::clone(&ear.memories),
            reports: Arc::clone(&ear.reports),
            metrics: Arc::clone(metrics),
            events: Recorder::start(self.client.clone(), COMPONENT),
            leadership: self.leadership.clone(),
        });
        let pause = Arc::new(Pause::default());
        let mut workers = JoinSet::new();
        for _ in 0..self.config.workers {
            let (syncer, queue) = (Arc::clone(&syncer), Arc::clone(&ear.queue));
            workers.spawn(worker(syncer, queue, Arc::clone(&pause), self.shutdown.clone()));
        }
        workers
    }

    /// Lets writes under way end.
    async fn stop(&self, mut workers: JoinSet<()>) {
        const LAST_WRITES: Duration = Duration::from_secs(5);
        self.shutdown.trigger();
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WRITES, ended).await.is_err() {
            tracing::warn!("a write did not end in time");
        }
    }

    /// Keeps capacity up to date and brings up the Services that care.
    async fn follow_nodes(&self, nodes: &watch::Sender<Arc<Nodes>>) {
        let ear = &self.followed.listener;
        loop {
            ear.nodes_changed.notified().await;
            sleep(NODES_SETTLE).await;
            let now = Arc::new(self.nodes());
            let before = nodes.send_replace(Arc::clone(&now));
            let moved =
                std::mem::take(&mut *ear.moved.lock().unwrap_or_else(PoisonError::into_inner));
            let services = if self.config.settings.upstream {
                self.overloaded(&now)
            } else {
                self.concerned(&before, &now, &moved)
            };
            for service in services {
                ear.queue.add(service, Cause::Nodes, Duration::ZERO);
            }
        }
    }

    /// Brings up the Services that proxies have caught up with, or that nobody reports about any more.
    async fn follow_proxies(&self) {
        loop {
            self.followed.listener.reports.settled().await;
            self.look_at_proxies();
        }
    }

    fn look_at_proxies(&self) {
        let ear = &self.followed.listener;
        for service in ear.reports.look() {
            ear.queue.add(service, Cause::Service, Duration::ZERO);
        }
    }

    /// As the reference: Services with hints that the nodes' new shares overload.
    fn overloaded(&self, nodes: &Nodes) -> BTreeSet<Key> {
        let memories = self.followed.listener.memories.lock();
        let overloaded = |memory: &crate::memory::Memory| {
            memory.allocated.iter().any(|allocated| is_overloaded(allocated, nodes))
        };
        memories
            .iter()
            .filter(|(_, memory)| overloaded(memory))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Services with Pods on nodes that came, went or moved, and those that go by capacity, if it
    /// changed. Most of them will find that nothing is to be written.
    fn concerned(&self, before: &Nodes, now: &Nodes, moved: &BTreeSet<Name>) -> BTreeSet<Key> {
        let index = self.followed.index();
        let mut services: BTreeSet<Key> = BTreeSet::new();
        for node in moved {
            services.append(&mut index.services_on(node));
        }
        if before.zones != now.zones
            || before.zones_counted != now.zones_counted
            || before.regions_counted != now.regions_counted
        {
            let depends = index
                .services()
                .filter(|service| asked(service, &self.config.settings).choice.depends_on_nodes());
            services.extend(
                depends
                    .map(|service| (Name::clone(&service.namespace), Name::clone(&service.name))),
            );
        }
        services
    }

    async fn housekeeping(&self) {
        let mut last = Instant::now();
        loop {
            sleep(SWEEP).await;
            self.followed.index().sweep();
            if last.elapsed() > RESYNC {
                last = Instant::now();
                self.look_at_everything();
            }
        }
    }
}

async fn worker(
    syncer: Arc<Syncer<Ear>>,
    queue: Arc<Queue>,
    pause: Arc<Pause>,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = pause.over() => {}
        }
        let (key, causes) = tokio::select! {
            () = shutdown.wait() => return,
            next = queue.next() => next,
        };
        match syncer.sync(&key, causes).await {
            Ended::Well => pause.worked(),
            Ended::Again(delay) => {
                pause.worked();
                queue.add(key.clone(), Cause::Service, delay);
            }
            Ended::Unavailable(error) => {
                let delay = pause.failed(&error);
                queue.add(key.clone(), Cause::Service, delay);
            }
            Ended::NotLeading => return,
        }
        queue.done(&key);
    }
}

/// While the API server cannot be reached, all workers wait together: ten thousand Services must
/// not mean ten thousand attempts.
#[derive(Default)]
struct Pause {
    state: Mutex<(Option<Instant>, Backoff)>,
}

impl Pause {
    async fn over(&self) {
        let until = self.state.lock().unwrap_or_else(PoisonError::into_inner).0;
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    fn worked(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = None;
        state.1.reset();
    }

    fn failed(&self, error: &str) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(until) = state.0.filter(|until| *until > now) {
            return until - now;
        }
        let delay = state.1.next();
        state.0 = Some(now + delay);
        tracing::warn!(error, seconds = delay.as_secs_f64(), "no write succeeds now; waiting");
        delay
    }
}
