//! Orderly shutdown.
//!
//! ```text
//!            SIGTERM, SIGINT                   second signal
//!              or trigger()              or the grace period is over
//!  running ─────────────────► shutting down ───────────────────────────► forced
//!                             wait() returns                        force() returns
//!                             finish the work in progress           exit at once
//! ```
//!
//! A [`Shutdown`] is cheap to clone; every task gets one.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    ShuttingDown { since: Instant },
    Forced,
}

/// Tells every task when to stop, and when to stop waiting for others.
#[derive(Clone, Debug)]
pub struct Shutdown {
    state: Arc<watch::Sender<State>>,
    grace: Option<Duration>,
}

impl Shutdown {
    /// Shuts down on the first SIGTERM or SIGINT; the second one, or the end of `grace`, forces it.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals(grace: Duration) -> io::Result<Self> {
        let shutdown = Self::manual().with_grace(grace);
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(shutdown.clone().follow_signals(terminate, interrupt));
        Ok(shutdown)
    }

    /// Shuts down only when [`trigger`](Self::trigger) is called, without a grace period.
    pub fn manual() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::Running)), grace: None }
    }

    /// Sets the grace period of this handle and its future clones.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    async fn follow_signals(self, mut terminate: Signal, mut interrupt: Signal) {
        next(&mut terminate, &mut interrupt).await;
        tracing::info!(grace = ?self.grace, "shutting down; a second signal ends the process at once");
        self.trigger();
        next(&mut terminate, &mut interrupt).await;
        tracing::warn!("second signal: ending at once");
        self.abort();
    }

    /// Starts the shutdown, if it has not started yet.
    pub fn trigger(&self) {
        self.state.send_if_modified(|state| {
            let first = *state == State::Running;
            if first {
                *state = State::ShuttingDown { since: Instant::now() };
            }
            first
        });
    }

    /// Forces the shutdown, as the second signal does.
    pub fn abort(&self) {
        self.state.send_replace(State::Forced);
    }

    /// Whether the shutdown has started.
    pub fn is_down(&self) -> bool {
        *self.state.borrow() != State::Running
    }

    /// Returns when the shutdown starts.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            this.reached(|state| state != State::Running).await;
        }
    }

    /// Returns when the shutdown is forced: by a second signal, or because the grace period is over.
    pub fn force(&self) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            if let State::ShuttingDown { since } =
                this.reached(|state| state != State::Running).await
            {
                tokio::select! {
                    biased;
                    () = elapsed(since, this.grace) => {}
                    _ = this.reached(|state| state == State::Forced) => {}
                }
            }
        }
    }

    /// Runs `work` until the shutdown is forced; `None` if it had not finished by then.
    pub async fn grace<W: Future>(&self, work: W) -> Option<W::Output> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.force() => None,
        }
    }

    async fn reached(&self, wanted: impl Fn(State) -> bool) -> State {
        match self.state.subscribe().wait_for(|state| wanted(*state)).await {
            Ok(state) => *state,
            // The channel is never closed: `self` holds its sender.
            Err(_) => State::Forced,
        }
    }
}

async fn elapsed(since: Instant, grace: Option<Duration>) {
    match grace.and_then(|grace| since.checked_add(grace)) {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn every_clone_learns_of_it_early_or_late() {
        let shutdown = Shutdown::manual().with_grace(GRACE);
        let early = tokio::spawn(shutdown.wait());
        assert!(!shutdown.is_down());
        shutdown.clone().trigger();
        early.await.unwrap();
        shutdown.wait().await;
        assert!(shutdown.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn force_comes_with_the_end_of_the_grace_period() {
        let shutdown = Shutdown::manual().with_grace(GRACE);
        let start = Instant::now();
        shutdown.trigger();
        tokio::time::advance(Duration::from_secs(5)).await;
        shutdown.trigger();
        shutdown.force().await;
        let waited = start.elapsed();
        assert!(waited >= GRACE && waited < GRACE + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn abort_forces_at_once() {
        let shutdown = Shutdown::manual().with_grace(GRACE);
        let forced = tokio::spawn(shutdown.force());
        let start = Instant::now();
        shutdown.trigger();
        shutdown.abort();
        forced.await.unwrap();
        shutdown.wait().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn work_gets_the_grace_period_and_no_more() {
        let shutdown = Shutdown::manual().with_grace(GRACE);
        shutdown.trigger();
        let quick = async {
            tokio::time::sleep(GRACE / 2).await;
            7
        };
        assert_eq!(shutdown.grace(quick).await, Some(7));
        assert_eq!(shutdown.grace(std::future::pending::<()>()).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_outlives_the_other_handles() {
        let shutdown = Shutdown::manual().with_grace(GRACE);
        let waiter = tokio::spawn(shutdown.wait());
        drop(shutdown);
        tokio::time::sleep(GRACE).await;
        assert!(!waiter.is_finished(), "a dropped handle is no signal");
        waiter.abort();
    }
}
