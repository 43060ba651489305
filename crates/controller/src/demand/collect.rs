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
    /// Takes an answer and the time that it took, or why there is none.
    ///
    /// # Errors
    /// If the proxy has not said what it was asked.
    fn take(
        &self,
        node: &Name,
        answer: Result<Bytes, Failure>,
        took: Duration,
    ) -> Result<(), Failure>;
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
        let mut pace = Pace { period: self.period, failures: 0 };
        sleep(pace.first(random_part)).await;
        loop {
            let answer = self.ask(&node, &mut asker, pace.failures > 0).await;
            sleep(pace.next(answer.is_ok(), random_part)).await;
        }
    }

    async fn ask(&self, node: &Name, asker: &mut Asker, suspect: bool) -> Result<(), Failure> {
        let turns = if suspect { &self.turns_of_suspects } else { &self.turns };
        let _turn = turns.acquire().await;
        let asked = Instant::now();
        let answer = match self.token.read() {
            Some(token) => asker.ask(&token).await,
            None => Err(Failure::NoToken),
        };
        self.answers.take(node, answer, asked.elapsed())
    }
}

/// When a proxy is asked. Every proxy has a time of its own, so that they are not all asked at once.
struct Pace {
    /// The shortest time between two questions.
    period: Duration,
    /// Failures in a row.
    failures: u32,
}

impl Pace {
    /// How long the first question waits. `random` gives a random part of a time.
    fn first(&self, random: impl Fn(Duration) -> Duration) -> Duration {
        random(self.period)
    }

    /// How long the next question waits after an answer, or after a failure.
    fn next(&mut self, answered: bool, random: impl Fn(Duration) -> Duration) -> Duration {
        self.failures = if answered { 0 } else { self.failures.saturating_add(1) };
        self.period * (1 << self.failures.min(MOST_DOUBLINGS)) + random(self.period / 4)
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

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    /// The times of questions, if answers come at once: that is when questions are closest together.
    fn questions(answers: &[bool], random: impl Fn(Duration) -> Duration + Copy) -> Vec<Duration> {
        let mut pace = Pace { period: PERIOD, failures: 0 };
        let mut asked = vec![pace.first(random)];
        for answered in answers {
            asked.push(asked[asked.len() - 1] + pace.next(*answered, random));
        }
        asked
    }

    #[test]
    fn a_proxy_is_asked_at_most_once_in_a_period_whatever_it_answers() {
        let patterns: [&[bool]; 4] = [&[true], &[false], &[true, false], &[false, false, true]];
        for pattern in patterns {
            let answers: Vec<bool> = pattern.iter().copied().cycle().take(240).collect();
            for random in [|_| Duration::ZERO, |time| time, random_part] {
                let asked = questions(&answers, random);
                let gaps = asked.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(gaps.clone().all(|gap| gap >= PERIOD), "{pattern:?}");
                assert!(asked[0] <= PERIOD);
                let longest = gaps.max().unwrap_or_default();
                assert!(longest <= PERIOD * 16 + PERIOD / 4, "{longest:?}");
            }
        }
    }

    #[test]
    fn failing_proxies_are_asked_less_and_less_until_they_answer() {
        let mut pace = Pace { period: PERIOD, failures: 0 };
        let waits: Vec<u64> = [false, false, false, false, false, true]
            .map(|answered| pace.next(answered, |_| Duration::ZERO).as_secs())
            .into();
        assert_eq!(waits, [30, 60, 120, 240, 240, 15]);
    }

    /// Many proxies that begin together do not stay together: at no second is much more than their part asked.
    #[test]
    fn proxies_are_spread_over_the_period() {
        const PROXIES: usize = 5_000;
        let mut seconds = [0_usize; 60];
        for _ in 0..PROXIES {
            for at in questions(&[true; 3], random_part) {
                if let Some(count) = seconds.get_mut(at.as_secs() as usize) {
                    *count += 1;
                }
            }
        }
        let most = seconds.iter().max().copied().unwrap_or_default();
        // An equal part is 333; six standard deviations more are chance.
        assert!(most < 333 + 6 * 18, "{most} in a second");
    }
}
