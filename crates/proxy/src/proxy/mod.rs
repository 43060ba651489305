//! The proxy's process: watches in, kernel out.
//!
//! ```text
//!  something changed ─► wait a moment for more ─► sync: dirty Services ─► routes ─► kernel
//!                                                  │                                 │
//!   every half second: are the tables there?       │      latencies, health ports, stale flows,
//!   every minute: are they what they should be?    │      affinity, what is applied ◄┘
//!   a second later: remove unused elements         └─ failed: everything stays as it was, tried again
//! ```
//!
//! * `start`: waiting for what the first sync needs.
//! * `schedule`: when the loop does what.
//! * `inputs`: configuration and objects as what the rules are made from.
//! * `ahead`: what is written of the first tables while the lists arrive.
//! * `machine`: the first sync, and following the node's addresses.
//! * `after_sync`: what follows a batch that the kernel has accepted.
//! * `stale_flows`: UDP flows that lead to endpoints that are gone.
//! * `upkeep`: regular checks of the tables.

mod after_sync;
mod ahead;
pub(crate) mod inputs;
mod machine;
mod schedule;
mod stale_flows;
mod start;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zonewise_cluster::watch::{Backoff, REWOUND};
use zonewise_common::clock;
use zonewise_common::name::Key;
use zonewise_common::proxy_report::DemandServer;
use zonewise_nft::Family;
use zonewise_telemetry::metrics::{self, MetricError, Registry};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_telemetry::tls::CertificateError;

use crate::config::Config;
use crate::connections::service_counts::ServiceCounts;
use crate::demand::{self, CountsPlace};
use crate::events::ServiceEvents;
use crate::features;
use crate::health::{
    BindError, Health, HealthPages, HealthPort, HealthPorts, MetricsPages, Moment, Served, serve,
};
use crate::host::{Host, blocking};
use crate::kernel::{Kernel, KernelError, KernelHandle, Update, Verification};
use crate::metrics::Metrics;
use crate::node::NodeInfo;
use crate::other_proxies::{self, OtherProxy};
use crate::published::Published;
use crate::report::Applied;
use crate::routes_page;
use crate::rules::entries;
use crate::rules::layout::{FAMILIES, family_name};
use crate::table_metrics;
use crate::timeline::Timeline;
use crate::watches::{ClusterView, Watches};
use ahead::Ahead;
use inputs::programmed_service;
use machine::TableInputs;
use schedule::{Due, Schedule};
use stale_flows::StaleFlows;
use start::Waiting;

/// Why the proxy ended, or could not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// A server could not start.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// The certificate of the server of counts cannot be made.
    #[error("counts by Service cannot be served: {0}")]
    Certificate(#[from] CertificateError),
    /// Two metrics have one name.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The kernel cannot be reached.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Local Pods were to be recognised by the node's Pod CIDRs, and it has none.
    #[error(
        "the node has no spec.podCIDRs, which --detect-local-mode=NodeCIDR needs: let the controller manager allocate \
         them (--allocate-node-cidrs), or choose another mode"
    )]
    NoPodCidrs,
    /// What is known is newer than what the API server has. The rules stay; after a restart everything is read afresh.
    #[error("{REWOUND}")]
    Rewound,
}

/// Runs on this machine until shutdown. The rules stay in the kernel. What the start spends time on is added to
/// `timeline`.
///
/// # Errors
/// If it cannot start.
pub async fn run(
    host: Host,
    client: Client,
    config: Config,
    take_over: bool,
    timeline: Timeline,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let others = timeline.phase("other proxies", || find_other_proxies(&host, take_over));
    report_features(&host, &timeline);
    let beginning = Instant::now();
    // Received from here on: without a handler SIGUSR1 would end the process.
    let verify_signal = signal(SignalKind::user_defined1()).ok();
    let registry = Registry::default();
    metrics::process(&registry, env!("CARGO_PKG_VERSION"))?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let health = host.with_health(Health::new(config.sync_period));
    let cluster = cluster_view(&config, &metrics, &timeline);
    let kernel = KernelHandle::default();
    let published = Arc::new(Published::default());
    let counts =
        table_metrics::register(&registry, &published, &cluster, host.network(), (&config).into())?;
    let mut servers = servers(&host, &config, &health, registry, &published, &cluster).await?;
    let place = serve_counts(&client, &config, counts, &cluster, &mut servers).await?;
    timeline.ended(beginning, "servers of health checks and metrics");
    let started = clock::now().as_microsecond();
    let mut watches =
        Watches::start(&client, &cluster, &config.node_name, config.proxy_name.as_deref());
    let work = async {
        let mut waiting = Waiting::new(&health);
        waiting.for_node(&config, &cluster).await?;
        let unknown = cluster.reader().location().clone();
        watches.follow(cluster.node().map_or(unknown, |node| node.location()));
        let (applied, _) = watch::channel(Applied::default());
        // They end with the work, however that ends.
        let mut beside = JoinSet::new();
        let events = ServiceEvents::new(client.clone());
        let families = families(host.has_ipv6());
        let (stale_flows, unsure) = StaleFlows::new(
            host.clone(),
            kernel.clone(),
            Arc::clone(&cluster),
            Arc::clone(&metrics),
            config.routing,
            families.clone(),
        );
        beside.spawn(stale_flows.clone().settle(client.clone(), unsure));
        let mut proxy = Proxy {
            host,
            config: &config,
            families,
            cluster: Arc::clone(&cluster),
            kernel,
            published,
            ahead: Ahead::default(),
            in_kernel: TableInputs::default(),
            rejected: BTreeMap::new(),
            stale_flows,
            health_checks: HealthChecks::new(health.clone()),
            reports: Reports { metrics, health: health.clone(), events, applied, started },
            schedule: Schedule::new(config.verify_period, verify_signal),
            verification: Verification::default(),
            other_proxies: if take_over { others } else { Vec::new() },
        };
        waiting.for_lists(&cluster, || proxy.write_ahead()).await;
        let (node, applied) = (this_node(&config, &cluster), proxy.reports.applied.subscribe());
        beside.spawn(crate::report::run(client.clone(), node, applied, place));
        proxy.work(&mut watches).await
    };
    let result = tokio::select! {
        biased;
        () = shutdown.wait() => Ok(()),
        () = cluster.rewound.notified() => Err(RunError::Rewound),
        result = work => result,
    };
    watches.stop();
    stop_all(servers).await;
    result
}

async fn stop_all(servers: Vec<Served>) {
    for server in servers {
        server.stop().await;
    }
}

fn cluster_view(config: &Config, metrics: &Arc<Metrics>, timeline: &Timeline) -> Arc<ClusterView> {
    let (metrics, timeline) = (Arc::clone(metrics), timeline.clone());
    let content_type = config.connection.content_type;
    ClusterView::new(&config.node_name, config.routing, content_type, metrics, timeline)
}

/// This node, by its configured name whatever is known of it.
fn this_node(config: &Config, cluster: &ClusterView) -> NodeInfo {
    NodeInfo { name: config.node_name.as_str().into(), ..cluster.node().unwrap_or_default() }
}

async fn servers(
    host: &Host,
    config: &Config,
    health: &Health,
    registry: Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
) -> Result<Vec<Served>, RunError> {
    let hard = config.bind_hard_fail;
    let mut servers = Vec::new();
    let pages = HealthPages::new(health.clone(), &registry)?;
    if let Some(address) = config.healthz {
        servers.push(serve("health checks", address, hard, pages).await?);
    }
    if let Some(address) = config.metrics {
        let pages = MetricsPages::new(registry, config.configz());
        let pages = with_routes(pages, published, cluster);
        if let Some(pages) = host.keep_pages(pages) {
            servers.push(serve("metrics", address, hard, pages).await?);
        }
    }
    Ok(servers)
}

/// Serves counts by Service, if that is configured. Returns where, for the Lease.
async fn serve_counts(
    client: &Client,
    config: &Config,
    counts: Arc<ServiceCounts>,
    cluster: &Arc<ClusterView>,
    servers: &mut Vec<Served>,
) -> Result<impl Fn() -> Option<DemandServer> + Send + use<>, RunError> {
    let place = demand::serve(client, config, counts, cluster).await?.map(|(served, place)| {
        servers.push(served);
        place
    });
    Ok(move || place.as_ref().and_then(CountsPlace::now))
}

/// Adds the page `/routes`.
pub(crate) fn with_routes(
    pages: MetricsPages,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
) -> MetricsPages {
    let (published, cluster) = (Arc::clone(published), Arc::clone(cluster));
    pages.with("/routes", move || routes_page::routes(&published, &cluster))
}

/// Logs what the kernel does not have. The start goes on meanwhile: what is missing shows in the rules as well.
fn report_features(host: &Host, timeline: &Timeline) {
    if host.is_simulated() {
        return;
    }
    let (network, timeline) = (host.network().clone(), timeline.clone());
    tokio::task::spawn_blocking(move || {
        timeline.phase("features of the kernel", || features::report(&network));
    });
}

/// Looks for the rules of other proxies, and logs what it finds.
fn find_other_proxies(host: &Host, take_over: bool) -> Vec<OtherProxy> {
    if host.is_simulated() {
        return Vec::new();
    }
    let found = other_proxies::find().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look for rules of another proxy");
        Vec::new()
    });
    for other in &found {
        tracing::warn!(take_over, "{other}");
    }
    found
}

fn families(has_ipv6: bool) -> Vec<Family> {
    FAMILIES.into_iter().filter(|family| *family == Family::Ip || has_ipv6).collect()
}

/// The sync loop and its state. Only its own task changes any of it; `cluster`, `kernel` and parts of
/// `reports` are shared with other tasks and have locks of their own.
struct Proxy<'a> {
    host: Host,
    config: &'a Config,
    /// IPv4, and IPv6 where the kernel has it.
    families: Vec<Family>,
    /// What the watches have learned. The loop takes changes from its index.
    cluster: Arc<ClusterView>,
    kernel: KernelHandle,
    /// What the pages show of the kernel's tables.
    published: Arc<Published>,
    /// What is written of the first tables before all lists have come.
    ahead: Ahead,
    /// What the tables in the kernel depend on besides Services. Written when the kernel has accepted
    /// it.
    in_kernel: TableInputs,
    /// Services that the kernel rejects, with its error. Written after every batch.
    rejected: BTreeMap<Key, String>,
    stale_flows: StaleFlows,
    health_checks: HealthChecks,
    reports: Reports,
    schedule: Schedule,
    /// How far the verification of the tables has come.
    verification: Verification,
    /// Whose rules are removed once ours are in place; empty then, and without `--take-over`.
    other_proxies: Vec<OtherProxy>,
}

/// The health checks of Services, for load balancers.
struct HealthChecks {
    servers: HealthPorts,
    /// By namespace and name of the Service. Follows its slices with every sync.
    services: BTreeMap<(String, String), HealthPort>,
}

impl HealthChecks {
    fn new(health: Health) -> Self {
        Self { servers: HealthPorts::new(health), services: BTreeMap::new() }
    }
}

/// Where the loop says what it does.
struct Reports {
    metrics: Arc<Metrics>,
    /// Behind `/healthz` and `/livez`.
    health: Health,
    events: ServiceEvents,
    /// Goes into the Lease that the controller reads.
    applied: watch::Sender<Applied>,
    /// When this process started, in microseconds since 1970: the latency of older changes is not
    /// measured.
    started: i64,
}

impl Proxy<'_> {
    async fn work(&mut self, watches: &mut Watches) -> Result<(), RunError> {
        let mut backoff = Backoff::default();
        self.families.iter().for_each(|family| {
            self.reports.health.updated(entries::routing_family(*family), Moment::now());
        });
        self.write_tables().await;
        self.cluster.timeline.finish();
        self.schedule.begin();
        loop {
            if !self.prepare_sync().await {
                continue;
            }
            self.queued();
            self.schedule.pause(self.config.min_sync_period).await;
            self.follow_node(watches);
            let result = self.sync().await;
            self.schedule.synced();
            match result {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    self.failed(&error);
                    sleep(backoff.next()).await;
                    self.cluster.changed.notify_one();
                }
            }
        }
    }

    /// Waits for something to do and does it, up to a sync: true if there is something to sync.
    async fn prepare_sync(&mut self) -> bool {
        match self.schedule.next(&self.cluster.changed).await {
            Due::Sync => return true,
            Due::RetryRejected => {
                self.cluster.index().mark_dirty(self.rejected.keys().cloned());
                return !self.rejected.is_empty();
            }
            Due::RemoveUnused => self.remove_unused(),
            Due::RemoveCounts => self.remove_counts(),
            Due::CheckTables => self.check_tables(),
            Due::CheckAddresses => self.check_addresses().await,
            Due::CheckFlows => blocking(|| self.stale_flows.check_again()),
            Due::KeepClients => self.keep_clients(),
            Due::Verify => self.verify(),
            Due::VerifyNow => self.verify_now(),
        }
        false
    }

    /// A change waits for a sync from now on.
    fn queued(&self) {
        let now = clock::now().as_millisecond() as f64 / 1000.0;
        for &family in &self.families {
            self.reports.health.queued(entries::routing_family(family), Moment::now());
            self.reports.metrics.queued.with([family_name(family)]).set(now);
        }
    }

    fn failed(&self, error: &KernelError) {
        tracing::error!(%error, "the kernel rejects the rules; those in place stay, and the change is tried again");
        for &family in &self.families {
            self.reports.metrics.failures.with([family_name(family)]).inc();
        }
    }

    /// Works on the kernel's tables. Netlink blocks, so the runtime moves other tasks off this thread.
    /// Does nothing while there are no tables.
    fn on_kernel<T: Default>(
        &self,
        work: impl FnOnce(&mut Kernel) -> Result<T, KernelError>,
    ) -> Result<T, KernelError> {
        blocking(|| self.kernel.with(work)).unwrap_or_else(|| Ok(T::default()))
    }

    /// The node's eligibility or its zone may have changed.
    fn follow_node(&mut self, watches: &mut Watches) {
        let Some(node) = self.cluster.node() else { return };
        self.reports.health.node_seen(node.eligible);
        if watches.follow(node.location()) {
            self.cluster.index().mark_all_dirty();
        }
    }

    /// Applies all changes since the last sync. When the kernel fails they are kept for the next one.
    async fn sync(&mut self) -> Result<(), KernelError> {
        let began = Instant::now();
        self.update_service_cidrs()?;
        self.update_node_settings()?;
        let changes = self.cluster.index().take_changes();
        self.reports.metrics.taken();
        let updates = self.updates(changes.services.iter());
        match self.on_kernel(|kernel| kernel.apply(updates)) {
            Ok(rejected) => {
                self.after_sync(&changes, rejected, began, false).await;
                Ok(())
            }
            Err(error) => {
                self.cluster.index().mark_dirty(changes.services);
                Err(error)
            }
        }
    }

    fn update_service_cidrs(&mut self) -> Result<(), KernelError> {
        let cidrs = self.service_cidrs();
        if cidrs != self.in_kernel.service_cidrs {
            self.on_kernel(|kernel| kernel.set_service_cidrs(cidrs.clone()))?;
            self.in_kernel.service_cidrs = cidrs;
        }
        Ok(())
    }

    fn update_node_settings(&mut self) -> Result<(), KernelError> {
        let settings = self.node_settings();
        self.on_kernel(|kernel| match *kernel.desired().node() == settings {
            true => Ok(()),
            false => kernel.set_node(settings),
        })
    }

    fn updates<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Vec<Update> {
        let reader = self.cluster.reader();
        let index = self.cluster.index();
        keys.map(|key| {
            (key.clone(), programmed_service(&index, &reader, &self.config.routing, key))
        })
        .collect()
    }
}
