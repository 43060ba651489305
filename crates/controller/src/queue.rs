//! The queue of Services that have to be synced. Each Service is in it at most once and leaves it when
//! its delay is over.
//!
//! A Service that is added again while it waits keeps the earlier time. One that is added while a worker
//! syncs it is synced again afterwards, never by two workers at once. (client-go's workqueue does the
//! same; this one also remembers why a Service was added.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use zonewise_common::name::Key;
use zonewise_inventory::follow::Cause;

/// Services that have to be synced.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeSet<(Instant, Key)>,
    entries: BTreeMap<Key, Entry>,
    added: u64,
}

#[derive(Debug, Default)]
struct Entry {
    due: Option<Instant>,
    running: bool,
    causes: Causes,
}

/// Why a Service is synced: a set of [`Cause`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes(u16);

impl Causes {
    fn add(&mut self, cause: Cause) {
        self.0 |= Self::bit(cause);
    }

    fn bit(cause: Cause) -> u16 {
        1 << cause as u8
    }

    /// Those that slices may follow from; `None` if nothing of that kind has changed.
    pub(crate) fn changed(self) -> Option<Self> {
        let changed = self.0 & !(Self::bit(Cause::Quiet) | Self::bit(Cause::Conditions));
        (changed != 0).then_some(Self(changed))
    }

    fn only(self, causes: u16) -> bool {
        self.changed().is_some_and(|changed| changed.0 & !causes == 0)
    }

    /// Whether the only change is another program's write.
    pub(crate) fn only_slices(self) -> bool {
        self.only(Self::bit(Cause::Slices))
    }

    /// Whether nothing has changed but one or more of these.
    pub(crate) fn only_among(self, causes: impl IntoIterator<Item = Cause>) -> bool {
        self.only(Self::from_iter(causes).0)
    }
}

impl FromIterator<Cause> for Causes {
    fn from_iter<T: IntoIterator<Item = Cause>>(all: T) -> Self {
        let mut causes = Self::default();
        all.into_iter().for_each(|cause| causes.add(cause));
        causes
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a Service that is due after `delay`.
    pub(crate) fn add(&self, key: Key, cause: Cause, delay: Duration) {
        self.add_for(key, Causes::from_iter([cause]), delay);
    }

    /// Adds a Service that is due after `delay`, for these causes.
    pub(crate) fn add_for(&self, key: Key, causes: Causes, delay: Duration) {
        let due = Instant::now() + delay;
        let mut guard = self.state();
        let state = &mut *guard;
        let entry = state.entries.entry(key.clone()).or_default();
        entry.causes.0 |= causes.0;
        state.added += 1;
        let earlier = entry.due.is_some_and(|known| known <= due);
        if earlier {
            return;
        }
        if let Some(later) = entry.due.replace(due) {
            state.waiting.remove(&(later, key.clone()));
        }
        if !entry.running {
            state.waiting.insert((due, key));
            drop(guard);
            self.wake.notify_one();
        }
    }

    /// Waits for the next Service that is due.
    pub(crate) async fn next(&self) -> (Key, Causes) {
        loop {
            let due = match self.take() {
                Ok(next) => return next,
                Err(due) => due,
            };
            match due {
                Some(due) => tokio::select! {
                    biased;
                    () = sleep_until(due) => {}
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// The next Service that is due, or the time when one will be.
    fn take(&self) -> Result<(Key, Causes), Option<Instant>> {
        let mut guard = self.state();
        let state = &mut *guard;
        let first = state.waiting.first().map(|(due, _)| *due);
        if first.is_none_or(|due| due > Instant::now()) {
            return Err(first);
        }
        let Some((_, key)) = state.waiting.pop_first() else { return Err(None) };
        let entry = state.entries.entry(key.clone()).or_default();
        entry.due = None;
        entry.running = true;
        let causes = std::mem::take(&mut entry.causes);
        let more = !state.waiting.is_empty();
        drop(guard);
        if more {
            // Another worker may sleep until a later time than the next Service is due.
            self.wake.notify_one();
        }
        Ok((key, causes))
    }

    /// Marks the sync of a Service as ended.
    pub(crate) fn done(&self, key: &Key) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        match entry.due {
            Some(due) => {
                state.waiting.insert((due, key.clone()));
                drop(guard);
                self.wake.notify_one();
            }
            None => {
                state.entries.remove(key);
            }
        }
    }

    /// The number of Services that are due and wait for a worker.
    pub(crate) fn depth(&self) -> usize {
        let now = Instant::now();
        self.state().waiting.iter().take_while(|(due, _)| *due <= now).count()
    }

    /// How often Services were added.
    pub(crate) fn added(&self) -> u64 {
        self.state().added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_comes_once_at_its_earliest_time() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add(key("a"), Cause::Pods, Duration::from_secs(5));
        queue.add(key("a"), Cause::Pods, Duration::from_secs(1));
        queue.add(key("a"), Cause::Pods, Duration::from_secs(9));
        queue.add(key("b"), Cause::Service, Duration::ZERO);
        assert_eq!(queue.next().await.0, key("b"));
        assert_eq!(queue.next().await.0, key("a"));
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        queue.done(&key("a"));
        queue.done(&key("b"));
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_it_is_worked_on_comes_again() {
        let queue = Queue::default();
        queue.add(key("a"), Cause::Slices, Duration::ZERO);
        let (first, causes) = queue.next().await;
        assert!(causes.only_slices());
        queue.add(key("a"), Cause::Slices, Duration::ZERO);
        queue.add(key("a"), Cause::Pods, Duration::ZERO);
        assert_eq!(queue.depth(), 0, "never two workers on one Service");
        queue.done(&first);
        let (_, causes) = queue.next().await;
        assert!(!causes.only_slices());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_waits_for_quiet_is_no_backlog_and_hides_no_other_writer() {
        let queue = Queue::default();
        queue.add(key("a"), Cause::Quiet, Duration::from_secs(15));
        assert_eq!(queue.depth(), 0);
        queue.add(key("a"), Cause::Slices, Duration::ZERO);
        assert_eq!(queue.depth(), 1);
        let (_, causes) = queue.next().await;
        assert!(causes.only_slices());
    }
}
