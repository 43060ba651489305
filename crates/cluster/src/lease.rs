//! Leader election: of several candidates at most one may write, held by a Lease in the API server.
//!
//! The protocol is that of client-go, so that its tools and habits apply.
//!
//! ```text
//!  run ──drives──► Election (pure: what was seen, what to ask next) ◄──answers── LeaseStore
//!   │                  │ claim, write deadline
//!   ▼                  ▼
//!  release         Leadership ─► may_write(), claims()      held by everything that writes
//!  when leaving
//!
//!  leader    request sent ├────────── renew deadline 10 s ─────────┤ writes no more
//!            the record changes   ├────────────── duration 15 s ───────────────┤
//!  follower  sees the change        ├──────── duration 15 s, own clock ─────────┤ takes over
//! ```
//!
//! Why no two write at once: the leader counts from *before* it sent its last successful request,
//! the follower from *after* it saw what that request changed, and waits longer. No clock is compared
//! with another's; they only must not differ in speed by more than `duration / renew deadline`.
//! [`Leadership::may_write`] looks at the clock itself, so a task that hangs cannot keep a claim alive.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use zonewise_cluster::lease::{self, Config, unique_identity};
//!
//! let config = Config::new(unique_identity("node-1"));
//! let (last_write, writes_ended) = tokio::sync::oneshot::channel::<()>();
//! let shutdown = async { drop(writes_ended.await) };
//! let store = lease::api_store(client, &config);
//! let (leadership, campaign) = lease::run(store, config, shutdown)?;
//! let campaign = tokio::spawn(campaign);
//!
//! if leadership.may_write() { /* one write, with a timeout */ }
//! // … and in the end, when no write is under way:
//! drop(last_write);
//! campaign.await?;
//! # Ok(())
//! # }
//! ```
//!
//! What a lease cannot do: a write sent just before the deadline may arrive after it. Give writes less
//! time than `duration - renew deadline`, and let them carry resource versions. A machine that is
//! suspended stops its clock as well. And who deletes the Lease invites a new candidate to create it.

mod election;
mod store;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem::{Discriminant, discriminant};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use zonewise_common::name::SYSTEM_NAMESPACE;

pub use election::{Action, Answer, Election};
pub use store::{LeaseStore, StoreError, api_store};

/// How far apart candidates that start together drift: waits are longer by up to this part.
const JITTER: f64 = 0.2;

/// Which lease, who we are, and the three times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where the Lease is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Who we are. Two processes with one identity would both lead: see [`unique_identity`].
    pub identity: String,
    /// How long a leader that is silent keeps the others waiting; in whole seconds.
    pub duration: Duration,
    /// How long a leader writes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How long between two tries, to lead or to renew.
    pub retry_period: Duration,
}

impl Config {
    /// `zonewise-system/zonewise-controller` with the usual times: 15 s, 10 s, 2 s.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            namespace: SYSTEM_NAMESPACE.to_owned(),
            name: "zonewise-controller".to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Whether the promise can be kept with these values.
    ///
    /// # Errors
    /// If not, with the values.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (duration, deadline, retry) = (self.duration, self.renew_deadline, self.retry_period);
        if self.identity.is_empty() {
            return Err(ConfigError::Identity);
        }
        if duration.subsec_nanos() != 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(ConfigError::Seconds { duration });
        }
        let longest_wait = retry.saturating_add(retry / 5);
        if duration > deadline && deadline > longest_wait && !retry.is_zero() {
            Ok(())
        } else {
            Err(ConfigError::Order { duration, deadline, retry })
        }
    }
}

/// Times with which two could lead, or nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Each time must leave room for the next.
    #[error(
        "lease duration {duration:?}, renew deadline {deadline:?}, retry period {retry:?}: the \
         duration must be above the deadline, the deadline above 1.2 times the period, and that \
         above 0"
    )]
    Order {
        /// The lease duration.
        duration: Duration,
        /// The renew deadline.
        deadline: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// The Lease has whole seconds.
    #[error("lease duration {duration:?}: use whole seconds, up to 2147483647")]
    Seconds {
        /// The lease duration.
        duration: Duration,
    },
    /// An empty holder means that nobody holds the lease.
    #[error("the identity for leader election is empty: use the host's name and something unique")]
    Identity,
}

/// The host's name with a random suffix, so that no two processes have the same.
pub fn unique_identity(host: &str) -> String {
    format!("{host}_{:016x}", random())
}

/// The standard library's own source of randomness is enough to tell candidates apart.
fn random() -> u64 {
    RandomState::new().hash_one("lease")
}

/// Who leads, as far as this candidate knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// We do. Another `since` is another term: in between, another may have led.
    Leader {
        /// The start of the term.
        since: Instant,
    },
    /// Not us.
    Follower {
        /// Who does, if anybody.
        leader: Option<String>,
    },
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader { .. } => out.write_str("leading"),
            Self::Follower { leader: Some(leader) } => write!(out, "following {leader}"),
            Self::Follower { leader: None } => out.write_str("nobody is known to lead"),
        }
    }
}

/// The right to write, held by everything that writes. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    seat: Arc<Seat>,
}

#[derive(Debug)]
struct Seat {
    origin: Instant,
    /// Nanoseconds after `origin` until which writing is allowed.
    deadline: AtomicU64,
    claims: watch::Sender<Claim>,
}

impl Leadership {
    fn new(claim: Claim, deadline: u64) -> Self {
        let claims = watch::Sender::new(claim);
        let seat = Seat { origin: Instant::now(), deadline: AtomicU64::new(deadline), claims };
        Self { seat: Arc::new(seat) }
    }

    /// Without election: the only one, for ever.
    pub fn always() -> Self {
        Self::new(Claim::Leader { since: Instant::now() }, u64::MAX)
    }

    /// Whether a write may be sent now. Ask before each.
    pub fn may_write(&self) -> bool {
        nanos(self.seat.origin.elapsed()) < self.seat.deadline.load(SeqCst)
    }

    /// The claim now, and each change of it. It may lag behind [`may_write`](Self::may_write).
    pub fn claims(&self) -> watch::Receiver<Claim> {
        self.seat.claims.subscribe()
    }

    /// The deadline goes first: who hears of a claim can rely on it.
    fn set(&self, deadline: Option<Instant>, claim: Claim) {
        let nanos = deadline.map_or(0, |end| nanos(end.duration_since(self.seat.origin)));
        self.seat.deadline.store(nanos, SeqCst);
        self.seat.claims.send_if_modified(|current| {
            let changed = *current != claim;
            if changed {
                announce(current, &claim);
                *current = claim;
            }
            changed
        });
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn announce(before: &Claim, now: &Claim) {
    if matches!(before, Claim::Leader { .. }) && matches!(now, Claim::Follower { .. }) {
        tracing::warn!("not leading any more; {now}");
    } else {
        tracing::info!("leader election: {now}");
    }
}

/// Takes part in the election until `shutdown`, then gives the lease back so that a successor need
/// not wait. The future must be driven, on a task of its own; dropped, it gives up the claim, though
/// not the lease.
///
/// `shutdown` must come *after* the last write has ended: the successor starts at once.
///
/// # Errors
/// If the configuration cannot keep the promise.
pub fn run<S: LeaseStore>(
    store: S,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<(Leadership, impl Future<Output = ()>), ConfigError> {
    config.check()?;
    let leadership = Leadership::new(Claim::Follower { leader: None }, 0);
    let candidate = Candidate {
        store,
        release_limit: config.renew_deadline,
        lease: format!("{}/{}", config.namespace, config.name),
        election: Election::new(config, random()),
        seat: Occupied(leadership.clone()),
        complaint: Complaint::default(),
    };
    Ok((leadership, candidate.campaign(shutdown)))
}

/// A seat that is left when its candidate goes, in whatever way.
struct Occupied(Leadership);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.set(None, Claim::Follower { leader: None });
    }
}

struct Candidate<S> {
    store: S,
    release_limit: Duration,
    lease: String,
    election: Election,
    seat: Occupied,
    complaint: Complaint,
}

impl<S: LeaseStore> Candidate<S> {
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
            tracing::warn!(lease = self.lease, "not released in time: a successor has to wait");
        }
    }

    /// One wait or one request; false when there is nothing left to do.
    async fn step(&mut self) -> bool {
        let action = self.election.next(Instant::now(), Timestamp::now());
        self.publish();
        match action {
            Action::Wait(until) => sleep_until(until).await,
            Action::Done => return false,
            request => {
                let sent = Instant::now();
                let answer = self.ask(&request, self.election.patience(sent)).await;
                if let Some(news) = self.complaint.hear(&request, &answer) {
                    report(&self.lease, &news);
                }
                self.election.answered(sent, Instant::now(), answer);
                self.publish();
            }
        }
        true
    }

    /// The limit also bounds the client's own retries and a connection that hangs.
    async fn ask(&self, request: &Action, limit: Instant) -> Answer {
        let answer = async {
            match request {
                Action::Create(lease) => self.store.create(lease).await.map(Answer::Written),
                Action::Replace(lease) => self.store.replace(lease).await.map(Answer::Written),
                _ => self.store.get(self.election.name()).await.map(Answer::Found),
            }
        };
        match timeout_at(limit, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Failed(error),
            Err(_) => Answer::Failed(StoreError::Failed("no answer in time".to_owned())),
        }
    }

    fn publish(&self) {
        self.seat.0.set(self.election.write_deadline(), self.election.claim());
    }
}

/// Says what is wrong once, not every two seconds. By kind of request: who may read but not create
/// gets one answer of each in every try.
#[derive(Debug, Default)]
struct Complaint {
    last: Option<(Discriminant<Action>, StoreError)>,
}

#[derive(Debug, PartialEq)]
enum News<'a> {
    Trouble(&'a StoreError),
    Mended,
}

impl Complaint {
    fn hear<'a>(&mut self, request: &Action, answer: &'a Answer) -> Option<News<'a>> {
        let request = discriminant(request);
        match answer {
            // Part of the game.
            Answer::Failed(StoreError::Conflict | StoreError::Missing) => None,
            Answer::Failed(error) => {
                let heard = (request, error.clone());
                let news = self.last.as_ref() != Some(&heard);
                self.last = Some(heard);
                news.then_some(News::Trouble(error))
            }
            _ => self.last.take_if(|last| last.0 == request).map(|_| News::Mended),
        }
    }
}

fn report(lease: &str, news: &News<'_>) {
    match news {
        News::Trouble(error) => complain(lease, error),
        News::Mended => tracing::info!(lease, "lease requests succeed again"),
    }
}

fn complain(lease: &str, error: &StoreError) {
    if matches!(error, StoreError::Denied(_)) {
        tracing::error!(lease, %error, "cannot take part in leader election");
    } else {
        tracing::warn!(lease, %error, "lease request failed");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;

    use super::*;

    #[test]
    fn trouble_is_news_once_until_it_changes_or_ends() {
        let denied = || Answer::Failed(StoreError::Denied("leases is forbidden".to_owned()));
        let down = || Answer::Failed(StoreError::Failed("503".to_owned()));
        let (get, create) = (Action::Get, Action::Create(Lease::default()));
        let absent = || Answer::Found(None);
        let cases = [
            (&get, absent(), ""),
            (&create, denied(), "trouble"),
            // The next try: reading works, creating still does not.
            (&get, absent(), ""),
            (&create, denied(), ""),
            (&create, Answer::Failed(StoreError::Conflict), ""),
            (&create, down(), "trouble"),
            (&create, denied(), "trouble"),
            (&create, Answer::Written(Lease::default()), "mended"),
            (&create, Answer::Written(Lease::default()), ""),
        ];
        let mut complaint = Complaint::default();
        for (turn, (request, answer, expected)) in cases.iter().enumerate() {
            let heard = match complaint.hear(request, answer) {
                None => "",
                Some(News::Trouble(_)) => "trouble",
                Some(News::Mended) => "mended",
            };
            assert_eq!(heard, *expected, "turn {turn}");
        }
    }
}
