//! Connects everything: the watches, the queue, the workers, leader election and the health server.
//!
//! ```text
//!  watches ─► ServiceEnqueuer ─► Queue ─► Worker (N tasks) ─► Syncer
//! ```

mod enqueuer;
mod leader;

use std::sync::Arc;

use kube::Client;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use zonewise_cluster::access::{MEMORY, Protected, Reviewer};
use zonewise_cluster::lease::{self, Leadership};
use zonewise_cluster::watch::REWOUND;
use zonewise_common::keys::MANAGED_BY;
use zonewise_inventory::follow::WatchedIndex;
use zonewise_slices::settings::Settings;
use zonewise_telemetry::checks::Checks;
use zonewise_telemetry::health::{self, ListenError};
use zonewise_telemetry::metrics::{self, MetricError, Registry};
use zonewise_telemetry::server::{Protection, Server};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_telemetry::tls::{Certificate, CertificateError, Tls};

use crate::config::{Config, GuardConfig, Mode, Source};
use crate::demand::Demand;
use crate::evacuation::{EvacuationFollower, StoredEvacuations};
use crate::guard::{
    self, AdmissionKind, AllocationFollower, Allocations, Certificates, Policy, QuotaHolder,
    Reviews, Webhook,
};
use crate::metrics::Metrics;
use crate::status::enforced_reason;

use enqueuer::ServiceEnqueuer;
use leader::Controller;

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

/// Runs the controller until shutdown.
///
/// # Errors
/// If it cannot start, or loses the lease.
pub async fn run(client: Client, config: Config, shutdown: Shutdown) -> Result<(), RunError> {
    let (registry, checks) = (Registry::default(), Checks::default());
    metrics::process(&registry, env!("CARGO_PKG_VERSION"))?;
    let metrics = Arc::new(Metrics::new(&registry)?);
    let demand = Demand::new(&registry, &config.demand)?;
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

/// Whether zones can be emptied: the conditions of endpoints are ours.
fn can_evacuate(config: &Config) -> bool {
    config.mode == Mode::Controller && !config.settings.upstream
}
