//! Leader election: of several replicas at most one may write. A Lease object in the API server
//! says which one.
//!
//! The protocol is client-go's, so its tools work with our Lease too:
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go>
//!
//! ```text
//!  run ──drives──► Election (pure: what was seen, which request is next) ◄──answers── LeaseStore
//!   │                  │ claim, write deadline
//!   ▼                  ▼
//!  release         Leadership ─► may_write(), claims()      shared by everything that writes
//!  at shutdown
//!
//!  leader    request sent ├────────── renew deadline 10 s ─────────┤ writes no more
//!            the record changes   ├────────────── duration 15 s ───────────────┤
//!  follower  sees the change        ├──────── duration 15 s, own clock ─────────┤ takes over
//! ```
//!
//! Why two replicas never write at once: the leader counts its 10 s from *before* it sent the last
//! successful renewal, a follower counts its 15 s from *after* it saw the result of that renewal. No
//! machine's clock is compared with another's; their speeds only must not differ by more than
//! `duration / renew deadline`. [`Leadership::may_write`] reads the clock itself, so that a task that
//! hangs cannot keep a claim alive.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use zonewise_cluster::lease::{self, ElectionConfig, unique_identity};
//!
//! let config = ElectionConfig::new(unique_identity("node-1"));
//! let (last_write, writes_ended) = tokio::sync::oneshot::channel::<()>();
//! let shutdown = async { drop(writes_ended.await) };
//! let store = lease::api_store(client, &config);
//! let (leadership, campaign) = lease::run(store, config, || true, shutdown)?;
//! let campaign = tokio::spawn(campaign);
//!
//! if leadership.may_write() { /* one write, with a timeout */ }
//! // … and at shutdown, when no write is in flight any more:
//! drop(last_write);
//! campaign.await?;
//! # Ok(())
//! # }
//! ```
//!
//! What a lease cannot guarantee:
//!
//! * A write that is sent just before the deadline may arrive after it. Writes need a timeout below
//!   `duration - renew deadline`, and should carry resource versions.
//! * The clock of a suspended machine may stand still, and its claim does not expire in that time.
//! * When the Lease is deleted, a candidate that never saw it creates a new one at once, although the
//!   old leader may still write.

mod election;
mod store;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem::{Discriminant, discriminant};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use zonewise_common::clock;
use zonewise_common::name::{CONTROLLER_NAME, SYSTEM_NAMESPACE};

pub use election::{Action, Answer, Election};
pub use store::{ApiStore, LeaseStore, StoreError, api_store};

/// The retry period is extended at random by up to this fraction, so that candidates that started
/// together drift apart (client-go: `JitterFactor`, 1.2, in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go>).
const JITTER: f64 = 0.2;

/// Which Lease is used, the identity of this candidate, and the times of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Whether to create the namespace if it does not exist.
    pub create_namespace: bool,
    /// The name of the Lease.
    pub name: String,
    /// The identity of this candidate. It must be unique: two candidates with the same one would
    /// both lead. See [`unique_identity`].
    pub identity: String,
    /// How long followers wait after the last renewal they saw before one of them takes over; in
    /// whole seconds.
    pub duration: Duration,
    /// How long a leader may write after its last successful renewal.
    pub renew_deadline: Duration,
    /// The time between two attempts to acquire or renew the Lease.
    pub retry_period: Duration,
}

impl ElectionConfig {
    /// `zonewise-system/zonewise-controller`, with the times that Kubernetes' own components use:
    /// 15 s, 10 s and 2 s
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/component-base/config/v1alpha1/defaults.go>).
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: SYSTEM_NAMESPACE.to_owned(),
            create_namespace: false,
            name: CONTROLLER_NAME.to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Checks that at most one leader, and not none, is possible with these values.
    ///
    /// # Errors
    /// If not, with the values.
    pub fn check(&self) -> Result<(), ElectionConfigError> {
        let (duration, deadline, retry) = (self.duration, self.renew_deadline, self.retry_period);
        if self.identity.is_empty() {
            return Err(ElectionConfigError::Identity);
        }
        if duration.subsec_nanos() != 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(ElectionConfigError::Seconds { duration });
        }
        let longest_wait = retry.saturating_add(retry / 5);
        if duration > deadline && deadline > longest_wait && !retry.is_zero() {
            Ok(())
        } else {
            Err(ElectionConfigError::Order { duration, deadline, retry })
        }
    }
}

/// Why a configuration of leader election cannot be used: with it two replicas could lead, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionConfigError {
    /// The times are not in the order that the protocol needs.
    #[error(
        "lease duration {duration:?}, renew deadline {deadline:?}, retry period {retry:?}: the \
         duration must be longer than the deadline, the deadline longer than 1.2 times the \
         period, and the period longer than 0 (example: 15s, 10s, 2s)"
    )]
    Order {
        /// The lease duration.
        duration: Duration,
        /// The renew deadline.
        deadline: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// A Lease stores its duration in whole seconds.
    #[error("lease duration {duration:?} must be a whole number of seconds up to 2147483647")]
    Seconds {
        /// The lease duration.
        duration: Duration,
    },
    /// An empty holder means that the Lease is free.
    #[error("the identity for leader election is empty; use the host's name with a unique suffix")]
    Identity,
}

/// The host's name with a random suffix, so that no two processes have the same identity.
pub fn unique_identity(host: &str) -> String {
    format!("{host}_{:016x}", random())
}

/// A random number from the operating system, by way of the standard library's hash keys. Identities
/// must differ between machines, so a generator that is seeded from the clock is not enough.
fn random() -> u64 {
    RandomState::new().hash_one("lease")
}

/// The role of this candidate, as far as it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This candidate leads. A different `since` means a different term: another replica may have
    /// led in between.
    Leader {
        /// The start of the term.
        since: Instant,
    },
    /// This candidate does not lead.
    Follower {
        /// The identity of the leader, if there is one.
        leader: Option<String>,
    },
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader { .. } => out.write_str("this replica leads"),
            Self::Follower { leader: Some(leader) } => write!(out, "{leader} leads"),
            Self::Follower { leader: None } => out.write_str("no leader is known"),
        }
    }
}

/// Says whether this process may write. Cheap to clone; everything that writes holds one.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: Arc<LeadershipState>,
}

#[derive(Debug)]
struct LeadershipState {
    origin: Instant,
    /// Writing is allowed until so many nanoseconds after `origin`.
    deadline: AtomicU64,
    claims: watch::Sender<Claim>,
    /// See [`Leadership::obstacle`].
    obstacle: watch::Sender<Option<String>>,
}

impl Leadership {
    fn new(claim: Claim, deadline: u64) -> Self {
        let claims = watch::Sender::new(claim);
        let (deadline, obstacle) = (AtomicU64::new(deadline), watch::Sender::new(None));
        let origin = Instant::now();
        Self { state: Arc::new(LeadershipState { origin, deadline, claims, obstacle }) }
    }

    /// For a controller that runs without leader election: it may always write.
    pub fn always() -> Self {
        Self::new(Claim::Leader { since: Instant::now() }, u64::MAX)
    }

    /// Whether a write may be sent now. Must be called before every write.
    pub fn may_write(&self) -> bool {
        nanos(self.state.origin.elapsed()) < self.state.deadline.load(SeqCst)
    }

    /// The current claim, and every change of it. It may lag behind [`may_write`](Self::may_write).
    pub fn claims(&self) -> watch::Receiver<Claim> {
        self.state.claims.subscribe()
    }

    /// Why this candidate can neither lead nor follow until somebody changes the cluster, and what to
    /// change; `None` if nothing of that kind is known.
    pub fn obstacle(&self) -> Option<String> {
        self.state.obstacle.borrow().clone()
    }

    /// Publishes a deadline and a claim. The deadline first, so that a receiver of the claim
    /// [may write](Self::may_write) at once.
    fn set(&self, deadline: Option<Instant>, claim: Claim) {
        let nanos = deadline.map_or(0, |end| nanos(end.duration_since(self.state.origin)));
        self.state.deadline.store(nanos, SeqCst);
        self.state.claims.send_if_modified(|current| {
            let changed = *current != claim;
            if changed {
                log_change(current, &claim);
                *current = claim;
            }
            changed
        });
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn log_change(before: &Claim, now: &Claim) {
    if matches!(before, Claim::Leader { .. }) && matches!(now, Claim::Follower { .. }) {
        tracing::warn!("leader election: this replica no longer leads; {now}");
    } else {
        tracing::info!("leader election: {now}");
    }
}

/// Takes part in the election, while `fit` says that this candidate would be a good leader, until `shutdown`, then releases the Lease so that a successor need not
/// wait for it to expire. The returned future must run on a task of its own. When it is dropped, the
/// claim ends at once, but the Lease is not released.
///
/// `shutdown` must complete *after* the last write has ended, because the successor starts at once.
///
/// # Errors
/// If the configuration cannot be used.
pub fn run<S: LeaseStore>(
    store: S,
    config: ElectionConfig,
    fit: impl Fn() -> bool,
    shutdown: impl Future<Output = ()>,
) -> Result<(Leadership, impl Future<Output = ()>), ElectionConfigError> {
    config.check()?;
    let leadership = Leadership::new(Claim::Follower { leader: None }, 0);
    let candidate = Candidate {
        store,
        fit,
        release_limit: config.renew_deadline,
        lease: format!("{}/{}", config.namespace, config.name),
        // The seed spreads retries; unlike an identity it need not differ between machines.
        election: Election::new(config, fastrand::u64(..)),
        claim: ClaimGuard(leadership.clone()),
        failures: FailureLog::default(),
    };
    Ok((leadership, candidate.campaign(shutdown)))
}

/// Ends the claim when the candidate is dropped, for whatever reason.
struct ClaimGuard(Leadership);

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.0.set(None, Claim::Follower { leader: None });
    }
}

struct Candidate<S, F> {
    store: S,
    fit: F,
    release_limit: Duration,
    lease: String,
    election: Election,
    claim: ClaimGuard,
    failures: FailureLog,
}

impl<S: LeaseStore, F: Fn() -> bool> Candidate<S, F> {
    async fn campaign(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                _ = self.step() => {}
            }
        }
        self.election.leave();
        self.publish();
        let limit = self.release_limit;
        if timeout(limit, async { while self.step().await {} }).await.is_err() {
            tracing::warn!(
                lease = self.lease,
                "the lease could not be released in time; a successor has to wait until it expires"
            );
        }
    }

    /// Waits once or sends one request. Returns false when there is nothing left to do.
    async fn step(&mut self) -> bool {
        self.election.stand((self.fit)());
        let action = self.election.next(Instant::now(), clock::now());
        self.publish();
        match action {
            Action::Wait(until) => sleep_until(until).await,
            Action::Done => return false,
            request => {
                let sent = Instant::now();
                let answer = self.ask(&request, self.election.request_deadline(sent)).await;
                if let Some(change) = self.failures.observe(&request, &answer) {
                    change.log(&self.lease);
                    self.claim.0.state.obstacle.send_replace(change.obstacle());
                }
                self.election.answered(sent, Instant::now(), answer);
                self.publish();
            }
        }
        true
    }

    /// Sends a request. The deadline also bounds the client's own retries and connections that hang.
    async fn ask(&self, request: &Action, deadline: Instant) -> Answer {
        let answer = async {
            match request {
                Action::Create(lease) => self.store.create(lease).await.map(Answer::Written),
                Action::Replace(lease) => self.store.replace(lease).await.map(Answer::Written),
                _ => self.store.get(self.election.name()).await.map(Answer::Found),
            }
        };
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Failed(error),
            Err(_) => Answer::Failed(StoreError::Failed(
                "the API server did not answer in time".to_owned(),
            )),
        }
    }

    fn publish(&self) {
        self.claim.0.set(self.election.write_deadline(), self.election.claim());
    }
}

/// Decides which failures of requests are logged: each once when it begins, not again every two
/// seconds. Kept per kind of request, because a service account that may read but not create gets a
/// success and a failure in every attempt.
#[derive(Debug, Default)]
struct FailureLog {
    last: Option<(Discriminant<Action>, StoreError)>,
}

/// A change that is worth a line in the log.
#[derive(Debug, PartialEq)]
enum FailureChange<'a> {
    Failed(&'a StoreError),
    Recovered,
}

impl FailureLog {
    fn observe<'a>(&mut self, request: &Action, answer: &'a Answer) -> Option<FailureChange<'a>> {
        let request = discriminant(request);
        match answer {
            // Normal when several candidates compete.
            Answer::Failed(StoreError::Conflict | StoreError::Missing) => None,
            Answer::Failed(error) => {
                let failure = (request, error.clone());
                let new = self.last.as_ref() != Some(&failure);
                self.last = Some(failure);
                new.then_some(FailureChange::Failed(error))
            }
            _ => {
                // A Lease that exists need not be created any more.
                let found = matches!(answer, Answer::Found(Some(_)));
                let create = discriminant(&Action::Create(Lease::default()));
                self.last
                    .take_if(|(failed, _)| *failed == request || (found && *failed == create))
                    .map(|_| FailureChange::Recovered)
            }
        }
    }
}

impl FailureChange<'_> {
    fn obstacle(&self) -> Option<String> {
        match self {
            Self::Failed(error) if error.needs_help() => Some(error.to_string()),
            Self::Failed(_) | Self::Recovered => None,
        }
    }

    #[expect(clippy::cognitive_complexity, reason = "the lint counts what the macros expand to")]
    fn log(&self, lease: &str) {
        match self {
            Self::Failed(error) if error.needs_help() => {
                tracing::error!(lease, %error, "cannot take part in leader election");
            }
            Self::Failed(error) => tracing::warn!(lease, %error, "a request for the lease failed"),
            Self::Recovered => tracing::info!(lease, "requests for the lease succeed again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_until_it_changes_or_ends() {
        let denied = || Answer::Failed(StoreError::Denied("leases is forbidden".to_owned()));
        let down = || Answer::Failed(StoreError::Failed("503".to_owned()));
        let (get, create) = (Action::Get, Action::Create(Lease::default()));
        let absent = || Answer::Found(None);
        let cases = [
            (&get, absent(), ""),
            (&create, denied(), "failed"),
            // The next attempt: reading works, creating still does not.
            (&get, absent(), ""),
            (&create, denied(), ""),
            (&create, Answer::Failed(StoreError::Conflict), ""),
            (&create, down(), "failed"),
            (&create, denied(), "failed"),
            (&create, Answer::Written(Lease::default()), "recovered"),
            (&create, Answer::Written(Lease::default()), ""),
            // Another candidate could create it.
            (&create, denied(), "failed"),
            (&get, Answer::Found(Some(Lease::default())), "recovered"),
        ];
        let mut failures = FailureLog::default();
        for (turn, (request, answer, expected)) in cases.iter().enumerate() {
            let change = match failures.observe(request, answer) {
                None => "",
                Some(FailureChange::Failed(_)) => "failed",
                Some(FailureChange::Recovered) => "recovered",
            };
            assert_eq!(change, *expected, "turn {turn}");
        }
    }
}
