//! Who waits when writes fail.
//!
//! ```text
//!  the server cannot be reached, is overloaded,   ─► all workers wait together
//!  does not accept the credentials
//!  one object's write fails or takes too long     ─► that Service is tried again later (`sync`), and few workers at
//!  (a webhook of its namespace)                      a time work for its namespace, so that others are not delayed
//!  a sync takes longer than a worker waits        ─► few workers at a time work for its namespace
//!  such writes fail in several namespaces, and    ─► as if the server could not be reached
//!  none succeeds
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use zonewise_cluster::watch::Backoff;
use zonewise_common::name::Name;

/// For how long after a failed write a namespace gets few workers.
const MEMORY: Duration = Duration::from_secs(600);
/// For how long after a slow sync a namespace gets few workers: not as long, because a server that was slow for a
/// moment makes namespaces slow that have nothing to do with it.
const SLOW_MEMORY: Duration = Duration::from_secs(10);
/// When a Service for which there was no worker is looked at again.
const NEXT_TURN: Duration = Duration::from_millis(200);
/// Writes that fail in so many namespaces, with no sync that succeeds in between, are the server's fault.
const SEVERAL: usize = 3;

/// How a sync ended, as far as other Services are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SyncFault<'a> {
    /// It was not disturbed, or only by what the Service itself says.
    None,
    /// The write of one object failed on the server's side, or took too long.
    OneObject(&'a str),
    /// The server cannot take any write.
    Server(&'a str),
}

/// The workers, and the faults that they have met.
#[derive(Debug)]
pub(crate) struct Faults {
    workers: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Until when all workers wait.
    paused: Option<Instant>,
    backoff: Backoff,
    /// Whether the log says already why they wait.
    logged: bool,
    /// Namespaces in which writes have failed since the last sync that succeeded.
    failing: BTreeSet<Name>,
    namespaces: BTreeMap<Name, Namespace>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Namespace {
    /// Workers that sync a Service of it.
    running: usize,
    /// Until when it gets few workers, because a write has failed or was slow.
    limited: Option<Instant>,
}

impl Namespace {
    fn is_limited(&self, now: Instant) -> bool {
        self.limited.is_some_and(|until| now < until)
    }

    fn limit(&mut self, until: Instant) {
        self.limited = self.limited.max(Some(until));
    }
}

impl Faults {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, state: Mutex::default() }
    }

    /// Waits while all workers have to wait.
    pub(crate) async fn wait(&self) {
        let paused = self.state.lock().paused;
        if let Some(until) = paused {
            sleep_until(until).await;
        }
    }

    /// Starts a sync in a namespace; [`Self::ended`] must follow. If its writes fail or are slow, one worker at a
    /// time works for it, and half of the workers for all such namespaces.
    ///
    /// # Errors
    /// When to try again, if enough workers work for such namespaces already.
    pub(crate) fn start(&self, namespace: &Name) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let known = state.namespaces.get(namespace).copied().unwrap_or_default();
        if known.is_limited(now) {
            let limited = state.namespaces.values().filter(|known| known.is_limited(now));
            let busy: usize = limited.map(|known| known.running).sum();
            if known.running > 0 || busy >= (self.workers / 2).max(1) {
                return Err(NEXT_TURN);
            }
        }
        state.namespaces.entry(Name::clone(namespace)).or_default().running += 1;
        Ok(())
    }

    /// A sync takes so long that its worker turns to another Service. [`Self::ended`] follows when it has ended.
    pub(crate) fn slow(&self, namespace: &Name) {
        let until = Instant::now() + SLOW_MEMORY;
        let mut state = self.state.lock();
        let known = state.namespaces.entry(Name::clone(namespace)).or_default();
        known.limit(until);
    }

    /// A sync has ended. Returns for how long all workers wait, if they have to.
    pub(crate) fn ended(&self, namespace: &Name, fault: SyncFault<'_>) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let known = state.namespaces.entry(Name::clone(namespace)).or_default();
        known.running = known.running.saturating_sub(1);
        if matches!(fault, SyncFault::OneObject(_)) {
            known.limit(now + MEMORY);
        }
        state.namespaces.retain(|_, known| known.running > 0 || known.is_limited(now));
        match fault {
            SyncFault::None => {
                (state.paused, state.logged) = (None, false);
                state.failing.clear();
                state.backoff.reset();
                None
            }
            SyncFault::OneObject(error) => {
                state.failing.insert(Name::clone(namespace));
                (state.failing.len() >= SEVERAL).then(|| state.pause(error, now))
            }
            SyncFault::Server(error) => Some(state.pause(error, now)),
        }
    }
}

impl State {
    fn pause(&mut self, error: &str, now: Instant) -> Duration {
        if let Some(until) = self.paused.filter(|until| *until > now) {
            return until - now;
        }
        let delay = self.backoff.next();
        self.paused = Some(now + delay);
        if std::mem::replace(&mut self.logged, true) {
            tracing::debug!(error, seconds = delay.as_secs_f64(), "all workers go on waiting");
        } else {
            tracing::warn!(
                error,
                "all writes to the API server fail; all workers wait and try again, with growing pauses"
            );
        }
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.into()
    }

    fn fails(faults: &Faults, namespace: &str) -> bool {
        faults.start(&name(namespace)).unwrap();
        faults.ended(&name(namespace), SyncFault::OneObject("webhook")).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_whose_writes_fail_pauses_nobody() {
        let faults = Faults::new(6);
        assert!(!(0..100).any(|_| fails(&faults, "bad")));
        assert!(!fails(&faults, "worse"));
        assert!(fails(&faults, "third"), "three namespaces, and no success in between");
        faults.start(&name("good")).unwrap();
        faults.ended(&name("good"), SyncFault::None);
        assert!(!fails(&faults, "fourth"), "some writes succeed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_namespace_gets_one_worker_and_all_of_them_half() {
        let faults = Faults::new(6);
        for namespace in ["a", "b", "c", "d"] {
            fails(&faults, namespace);
        }
        let started = |namespace| faults.start(&name(namespace)).is_ok();
        assert_eq!(["a", "a", "b", "c", "d"].map(started), [true, false, true, true, false]);
        assert_eq!([(); 6].map(|()| started("good")), [true; 6]);
        faults.ended(&name("a"), SyncFault::None);
        assert!(started("d"));
        // They are forgotten after a while.
        tokio::time::advance(MEMORY).await;
        assert!(started("a") && started("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_namespace_gets_one_worker_until_it_is_quick_again() {
        let faults = Faults::new(6);
        let started = || faults.start(&name("slow")).is_ok();
        assert!(started() && started(), "nothing is known about it");
        faults.slow(&name("slow"));
        assert!(!started());
        for _ in 0..2 {
            faults.ended(&name("slow"), SyncFault::None);
        }
        assert!(started() && !started(), "one at a time");
        tokio::time::advance(SLOW_MEMORY).await;
        assert!(started());
        // A failure is remembered for longer, and being slow afterwards does not shorten that.
        faults.ended(&name("slow"), SyncFault::OneObject("webhook"));
        faults.slow(&name("slow"));
        tokio::time::advance(SLOW_MEMORY).await;
        assert!(!started());
    }

    #[tokio::test(start_paused = true)]
    async fn all_wait_for_a_server_that_is_not_there() {
        let faults = Faults::new(2);
        faults.start(&name("a")).unwrap();
        let delay = faults.ended(&name("a"), SyncFault::Server("gone")).unwrap();
        let start = Instant::now();
        faults.wait().await;
        assert!(start.elapsed() >= delay);
    }
}
