//! Asks all proxies for their counts, each at its own pace.
//!
//! ```text
//!  Leases of proxies, Nodes ─► targets ─► a task per proxy: wait, ask, hand over ─► Answers
//!                                              ▲                    │
//!                                              └── longer after each failure
//! ```
//!
//! A proxy that does not answer, or answers nonsense, is asked less and less often. It then waits for its turn among its
//! like, so that many of them do not keep the others waiting.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use zonewise_cluster::watch::random_part;
use zonewise_common::name::Name;
use zonewise_demand::report::MAX_BYTES;

use super::ask::{Asker, Failure, Target};

/// How often proxies that come and go are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// How many proxies are asked at once.
const AT_ONCE: usize = 64;
/// How many of those that have failed before are asked at once.
const SUSPECTS_AT_ONCE: usize = 8;
/// The pause doubles with each failure, so often.
const MOST_DOUBLINGS: u32 = 4;
/// How long a token is used before its file is read again. The kubelet replaces the file long before it expires.
const TOKEN_PERIOD: Duration = Duration::from_secs(60);

/// Takes what proxies answer.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Takes an answer, or why there is none.
    ///
    /// # Errors
    /// If the proxy has not said what it was asked.
    fn take(&self, node: &Name, answer: Result<Bytes, Failure>) -> Result<(), Failure>;
    /// The proxy of a node is not asked any more.
    fn forget(&self, node: &Name);
}

/// Asks proxies.
pub(crate) struct Collector<A> {
    /// The shortest time between two questions to a proxy.
    period: Duration,
    token: TokenFile,
    answers: Arc<A>,
    turns: Semaphore,
    turns_of_suspects: Semaphore,
}

impl<A: Answers> Collector<A> {
    pub(crate) fn new(period: Duration, token_file: PathBuf, answers: Arc<A>) -> Self {
        Self {
            period,
            token: TokenFile { path: token_file, read: Mutex::default() },
            answers,
            turns: Semaphore::new(AT_ONCE),
            turns_of_suspects: Semaphore::new(SUSPECTS_AT_ONCE),
        }
    }

    /// Asks the proxies that `targets` has, by node, until the future is dropped.
    pub(crate) async fn collect(
        self: Arc<Self>,
        targets: impl Fn() -> BTreeMap<Name, Target> + Send,
    ) {
        let mut tasks = JoinSet::new();
        let mut asked: BTreeMap<Name, (Target, AbortHandle)> = BTreeMap::new();
        loop {
            let wanted = targets();
            asked.retain(|node, (target, task)| {
                let stays = wanted.get(node) == Some(target);
                if !stays {
                    task.abort();
                    self.answers.forget(node);
                }
                stays
            });
            for (node, target) in wanted {
                asked.entry(node).or_insert_with_key(|node| {
                    let follow = Arc::clone(&self).follow(Name::clone(node), target);
                    (target, tasks.spawn(follow))
                });
            }
            while tasks.try_join_next().is_some() {}
            sleep(LOOK.min(self.period)).await;
        }
    }

    /// Asks one proxy again and again.
    async fn follow(self: Arc<Self>, node: Name, target: Target) {
        let mut asker = match Asker::new(target, MAX_BYTES) {
            Ok(asker) => asker,
            Err(error) => {
                return tracing::error!(%node, %error, "TLS to a proxy cannot be set up, to ask it for its counts");
            }
        };
        sleep(random_part(self.period)).await;
        let mut failures = 0;
        loop {
            failures = match self.ask(&node, &mut asker, failures > 0).await {
                Ok(()) => 0,
                Err(_) => failures + 1,
            };
            sleep(self.pause(failures)).await;
        }
    }

    async fn ask(&self, node: &Name, asker: &mut Asker, suspect: bool) -> Result<(), Failure> {
        let turns = if suspect { &self.turns_of_suspects } else { &self.turns };
        let _turn = turns.acquire().await;
        let answer = match self.token.read() {
            Some(token) => asker.ask(&token).await,
            None => Err(Failure::NoToken),
        };
        self.answers.take(node, answer)
    }

    /// How long a proxy is left alone after so many failures in a row.
    fn pause(&self, failures: u32) -> Duration {
        self.period * (1 << failures.min(MOST_DOUBLINGS)) + random_part(self.period / 4)
    }
}

/// The file with the token that proxies accept.
struct TokenFile {
    path: PathBuf,
    read: Mutex<Option<(Instant, Arc<str>)>>,
}

impl TokenFile {
    /// The token; `None` if the file cannot be read, or has none.
    fn read(&self) -> Option<Arc<str>> {
        let mut read = self.read.lock();
        if let Some((at, token)) = &*read
            && at.elapsed() < TOKEN_PERIOD
        {
            return Some(Arc::clone(token));
        }
        let text = std::fs::read_to_string(&self.path).ok()?;
        let token: Arc<str> = Some(text.trim()).filter(|token| !token.is_empty())?.into();
        *read = Some((Instant::now(), Arc::clone(&token)));
        Some(token)
    }
}
