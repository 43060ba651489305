//! Going down in order.
//!
//! ```text
//!       SIGTERM, SIGINT             second signal
//!         or trigger()         or the grace period is over
//!  up ─────────────────► down ─────────────────────────────► forced
//!                   wait() returns                       force() returns
//!                   finish what was begun                leave at once
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
enum Stage {
    Up,
    Down { since: Instant },
    Forced,
}

/// Tells every task when to stop, and when to stop waiting.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: Arc<watch::Sender<Stage>>,
    grace: Option<Duration>,
}

impl Shutdown {
    /// Goes down with the first SIGTERM or SIGINT; the second one, or the end of `grace`, forces.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals(grace: Duration) -> io::Result<Self> {
        let shutdown = Self::manual().with_grace(grace);
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(shutdown.clone().obey(terminate, interrupt));
        Ok(shutdown)
    }

    /// Goes down only when [`trigger`](Self::trigger) is called, and waits without end.
    pub fn manual() -> Self {
        Self { stage: Arc::new(watch::Sender::new(Stage::Up)), grace: None }
    }

    /// Forces when this much time has passed since it went down. For this handle and its clones.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    async fn obey(self, mut terminate: Signal, mut interrupt: Signal) {
        next(&mut terminate, &mut interrupt).await;
        tracing::info!(grace = ?self.grace, "going down; a second signal forces it");
        self.trigger();
        next(&mut terminate, &mut interrupt).await;
        tracing::warn!("second signal: not waiting any longer");
        self.abort();
    }

    /// Goes down; nothing happens if it went down before.
    pub fn trigger(&self) {
        self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Up;
            if first {
                *stage = Stage::Down { since: Instant::now() };
            }
            first
        });
    }

    /// Goes down and does not wait: what the second signal does.
    pub fn abort(&self) {
        self.stage.send_replace(Stage::Forced);
    }

    /// Whether it is time to stop.
    pub fn is_down(&self) -> bool {
        *self.stage.borrow() != Stage::Up
    }

    /// Returns when it is time to stop.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            this.reached(|stage| stage != Stage::Up).await;
        }
    }

    /// Returns when there is no time left: a second signal, or the grace period is over.
    pub fn force(&self) -> impl Future<Output = ()> + Send + use<> {
        let this = self.clone();
        async move {
            if let Stage::Down { since } = this.reached(|stage| stage != Stage::Up).await {
                tokio::select! {
                    () = elapsed(since, this.grace) => {}
                    _ = this.reached(|stage| stage == Stage::Forced) => {}
                }
            }
        }
    }

    /// Lets `work` finish, but not past [`force`](Self::force); `None` if it was cut off.
    pub async fn grace<W: Future>(&self, work: W) -> Option<W::Output> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.force() => None,
        }
    }

    async fn reached(&self, wanted: impl Fn(Stage) -> bool) -> Stage {
        match self.stage.subscribe().wait_for(|stage| wanted(*stage)).await {
            Ok(stage) => *stage,
            // Only if the sender is gone, and `self` holds it.
            Err(_) => Stage::Forced,
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
    async fn every_clone_hears_of_it_early_or_late() {
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
