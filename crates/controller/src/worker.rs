//! A worker takes Services from the queue and syncs them, one after the other.
//!
//! ```text
//!  queue ─► sync ─┬─ ends, each write answered within a second ──────────────► next
//!                 └─ a write takes longer ─► the sync goes on beside it ─────► next
//! ```
//!
//! A webhook that hangs holds a write for seconds. Nobody knows that before the first write to it has timed out, and
//! by then as many writes as there are workers can be on their way to it. So a worker waits a second at most for an
//! answer ([`Progress`]) and then turns to the next Service, while the sync ends on its own. Its namespace gets few
//! workers from that moment on ([`Faults::slow`]): one namespace cannot keep the workers busy, whatever its webhooks
//! do.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::sleep;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, IndexListener};
use zonewise_telemetry::checks::Heartbeat;
use zonewise_telemetry::shutdown::Shutdown;

use crate::faults::{Faults, SyncFault};
use crate::progress::Progress;
use crate::queue::{Causes, Queue};
use crate::sync::{SyncOutcome, Syncer};

/// How many slow syncs a worker has beside the one that it waits for; with more it waits until one has ended. One write
/// times out after 4 s, so a worker that meets nothing but syncs with one write that hangs has so many.
const MOST_SLOW: usize = 4;
/// How often a worker without work gives a sign of life.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(60);

/// What a worker needs.
pub(crate) struct Worker<L> {
    pub(crate) syncer: Arc<Syncer<L>>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) shutdown: Shutdown,
}

/// The syncs that a worker has started. Each says whether the worker may go on.
type Syncs = JoinSet<ControlFlow<()>>;

impl<L: IndexListener> Worker<L> {
    /// Works until shutdown, or until this replica does not lead any more; ends when all of its syncs have.
    pub(crate) async fn run(self) {
        let worker = Arc::new(self);
        let mut syncs = Syncs::new();
        while worker.turn(&mut syncs).await.is_continue() {}
        while syncs.join_next().await.is_some() {}
    }

    /// Syncs the next Service.
    async fn turn(self: &Arc<Self>, syncs: &mut Syncs) -> ControlFlow<()> {
        self.heartbeat.beat();
        tokio::select! {
            biased;
            () = self.shutdown.wait() => return ControlFlow::Break(()),
            () = self.faults.wait() => {}
        }
        let (key, causes) = tokio::select! {
            biased;
            () = self.shutdown.wait() => return ControlFlow::Break(()),
            Some(ended) = syncs.join_next() => return ended.unwrap_or(ControlFlow::Break(())),
            next = self.queue.next() => next,
            () = sleep(HEARTBEAT_PERIOD) => return ControlFlow::Continue(()),
        };
        self.heartbeat.beat();
        if let Err(later) = self.faults.start(&key.0) {
            self.queue.add_for(key.clone(), causes, later);
            self.queue.done(&key);
            return ControlFlow::Continue(());
        }
        let (worker, namespace) = (Arc::clone(self), Name::clone(&key.0));
        let progress = Arc::new(Progress::start());
        let of_sync = Arc::clone(&progress);
        let sync = syncs.spawn(async move { worker.sync(&key, causes, &of_sync).await });
        wait(syncs, sync.id(), &progress, || self.faults.slow(&namespace)).await
    }

    async fn sync(&self, key: &Key, causes: Causes, progress: &Progress) -> ControlFlow<()> {
        let (namespace, queue, faults) = (&key.0, &self.queue, &self.faults);
        match self.syncer.sync(key, causes, progress).await {
            SyncOutcome::Done(again) => {
                faults.ended(namespace, SyncFault::None);
                if let Some(delay) = again {
                    queue.add(key.clone(), Cause::Quiet, delay);
                }
            }
            SyncOutcome::Retry(delay) => {
                faults.ended(namespace, SyncFault::None);
                queue.add(key.clone(), Cause::Service, delay);
            }
            SyncOutcome::Failed(delay, error) => {
                let pause = faults.ended(namespace, SyncFault::OneObject(&error));
                pause.inspect(|_| self.syncer.metrics.own.pauses.inc());
                queue.add(key.clone(), Cause::Service, delay.max(pause.unwrap_or_default()));
            }
            SyncOutcome::Unavailable(error) => {
                let pause = faults.ended(namespace, SyncFault::Server(&error));
                self.syncer.metrics.own.pauses.inc();
                queue.add(key.clone(), Cause::Service, pause.unwrap_or_default());
            }
            SyncOutcome::NotLeading => return ControlFlow::Break(()),
        }
        queue.done(key);
        ControlFlow::Continue(())
    }
}

/// Waits until a sync has ended or is slow. A slow one is reported by `on_slow`, and if there are too many slow ones, one of them has to
/// end as well.
async fn wait(
    syncs: &mut Syncs,
    sync: Id,
    progress: &Progress,
    on_slow: impl Fn(),
) -> ControlFlow<()> {
    let mut slow = false;
    while !slow || syncs.len() > MOST_SLOW {
        tokio::select! {
            biased;
            Some(ended) = syncs.join_next_with_id() => match ended {
                // One of the slow ones.
                Ok((id, ControlFlow::Continue(()))) if slow || id != sync => {}
                Ok((_, flow)) => return flow,
                // It has panicked: the process ends, as if the worker itself had.
                Err(_) => return ControlFlow::Break(()),
            },
            () = progress.slow(), if !slow => {
                slow = true;
                on_slow();
            }
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::progress::SLOW_ANSWER;

    /// Whether a worker finds a sync slow whose writes are answered after so many milliseconds each.
    async fn is_slow(writes: Vec<u64>) -> bool {
        let (mut syncs, progress) = (Syncs::new(), Arc::new(Progress::start()));
        let of_sync = Arc::clone(&progress);
        let sync = syncs.spawn(async move {
            for milliseconds in writes {
                sleep(Duration::from_millis(milliseconds)).await;
                of_sync.answered();
            }
            ControlFlow::Continue(())
        });
        let slow = Cell::new(false);
        let flow = wait(&mut syncs, sync.id(), &progress, || slow.set(true)).await;
        assert_eq!(flow, ControlFlow::Continue(()));
        assert_eq!(syncs.is_empty(), !slow.get(), "a slow sync goes on, any other has ended");
        slow.get()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_of_many_writes_is_slow_only_if_the_answers_are() {
        let slow = u64::try_from(SLOW_ANSWER.as_millis()).unwrap();
        let many = vec![20; 500];
        let rows = [
            ("nothing to write", vec![], false),
            ("many quick writes, ten times as long as a slow one", many.clone(), false),
            ("the first hangs", vec![2 * slow], true),
            ("one hangs after many quick ones", [many, vec![2 * slow]].concat(), true),
            ("each just in time", vec![slow - 1; 500], true),
            ("one of few just in time", vec![20, slow - 1, 20], false),
        ];
        for (what, writes, expected) in rows {
            assert_eq!(is_slow(writes).await, expected, "{what}");
        }
    }
}
