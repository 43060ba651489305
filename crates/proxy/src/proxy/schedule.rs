//! When the sync loop does what.

use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, interval, interval_at, sleep_until};

/// How often the kernel is asked whether our tables are still there.
pub(super) const CHECK_TABLES: Duration = Duration::from_millis(500);
/// How long after their last use elements are removed: packets may still be on their way to them.
const REMOVE_UNUSED: Duration = Duration::from_secs(1);
/// How often the machine's addresses are read: NodePorts follow them.
const CHECK_ADDRESSES: Duration = Duration::from_secs(5);
/// How often Services that the kernel has rejected are tried again.
const RETRY_REJECTED: Duration = Duration::from_secs(60);

/// How often Services are looked at again that have UDP flows to endpoints in slices for other zones, or flows that
/// could not be read or removed.
const CHECK_FLOWS: Duration = Duration::from_secs(20);

/// How often all clients that the kernel remembers for session affinity are looked at.
pub(super) const KEEP_CLIENTS: Duration = Duration::from_secs(30);

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Services, the node or ServiceCIDRs have changed.
    Sync,
    /// Services that the kernel has rejected are to be tried again.
    RetryRejected,
    /// Elements that nothing leads to any more can be removed.
    RemoveUnused,
    /// There are more elements to remove that count connections to addresses which no Service has.
    RemoveCounts,
    /// Are our tables still there?
    CheckTables,
    /// Have the machine's addresses changed?
    CheckAddresses,
    /// Have UDP flows to endpoints in slices for other zones ended?
    CheckFlows,
    /// Clients that the kernel remembers for session affinity are to be looked at.
    KeepClients,
    /// It is time to go on comparing the tables with what they should be.
    Verify,
    /// SIGUSR1 has come: the tables are to be compared at once and as a whole.
    VerifyNow,
}

/// The timers of the sync loop.
pub(super) struct Schedule {
    check_tables: Interval,
    check_addresses: Interval,
    check_flows: Interval,
    retry_rejected: Interval,
    /// SIGUSR1; `None` if it cannot be received.
    verify_signal: Option<Signal>,
    verify_at: Instant,
    keep_clients_at: Instant,
    /// Set after a batch that leaves unused elements, `None` once they are removed.
    remove_unused_at: Option<Instant>,
    /// When to go on removing elements that count; `None` if all are removed.
    remove_counts_at: Option<Instant>,
    /// When the last sync ended.
    synced_at: Instant,
}

impl Schedule {
    pub(super) fn new(verify_period: Duration, verify_signal: Option<Signal>) -> Self {
        let now = Instant::now();
        Self {
            check_tables: interval(CHECK_TABLES),
            check_addresses: interval(CHECK_ADDRESSES),
            check_flows: interval_at(now + CHECK_FLOWS, CHECK_FLOWS),
            retry_rejected: interval_at(now + RETRY_REJECTED, RETRY_REJECTED),
            verify_signal,
            verify_at: now + verify_period,
            keep_clients_at: now + KEEP_CLIENTS,
            remove_unused_at: None,
            remove_counts_at: None,
            synced_at: now,
        }
    }

    /// The first sync, which may have taken long, is done: regular checks begin now.
    pub(super) fn begin(&mut self) {
        self.check_tables.reset_immediately();
        self.check_addresses.reset_immediately();
        self.retry_rejected.reset();
    }

    /// Waits until there is something to do.
    pub(super) async fn next(&mut self, changed: &Notify) -> Due {
        let (remove_unused, remove_counts) =
            (sleep_until_some(self.remove_unused_at), sleep_until_some(self.remove_counts_at));
        let signal = self.verify_signal.as_mut();
        // In this order, and not in a random one, so that a simulation can be repeated. Changes come last: the
        // others come at most once per period and so keep no change waiting, but an endless stream of
        // changes would keep them waiting.
        tokio::select! {
            biased;
            () = remove_unused => Due::RemoveUnused,
            () = remove_counts => Due::RemoveCounts,
            _ = self.check_tables.tick() => Due::CheckTables,
            _ = self.check_addresses.tick() => Due::CheckAddresses,
            _ = self.check_flows.tick() => Due::CheckFlows,
            () = sleep_until(self.keep_clients_at) => Due::KeepClients,
            () = sleep_until(self.verify_at) => Due::Verify,
            Some(()) = async { signal?.recv().await } => Due::VerifyNow,
            _ = self.retry_rejected.tick() => Due::RetryRejected,
            () = changed.notified() => Due::Sync,
        }
    }

    /// Waits until the next sync may begin: at once after a pause, otherwise `min_sync_period` after
    /// the last one, so that changes that come in the meantime are applied together.
    pub(super) async fn pause(&self, min_sync_period: Duration) {
        sleep_until(self.synced_at + min_sync_period).await;
    }

    pub(super) fn synced(&mut self) {
        self.synced_at = Instant::now();
    }

    pub(super) fn keep_clients_after(&mut self, pause: Duration) {
        self.keep_clients_at = Instant::now() + pause;
    }

    pub(super) fn verify_after(&mut self, period: Duration) {
        self.verify_at = Instant::now() + period;
    }

    /// There are elements to remove. An earlier date stays.
    pub(super) fn remove_unused_later(&mut self) {
        self.remove_unused_at.get_or_insert_with(|| Instant::now() + REMOVE_UNUSED);
    }

    pub(super) fn removed_unused(&mut self) {
        self.remove_unused_at = None;
    }

    /// There are more elements that count to be removed, after this pause; or none.
    pub(super) fn remove_counts_after(&mut self, pause: Option<Duration>) {
        self.remove_counts_at = pause.map(|pause| Instant::now() + pause);
    }
}

/// Waits for a time, or for ever.
async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that is done in portions goes on at once, and other work has its turn when all is done.
    #[tokio::test(start_paused = true)]
    async fn elements_that_count_are_removed_until_none_is_left() {
        let mut schedule = Schedule::new(Duration::from_secs(60), None);
        let changed = Notify::new();
        changed.notify_one();
        let portion = Duration::from_millis(1);
        let mut found = Vec::new();
        for more in [true, true, false] {
            schedule.remove_counts_after(more.then_some(portion));
            tokio::time::advance(portion).await;
            let due = loop {
                match schedule.next(&changed).await {
                    Due::CheckTables | Due::CheckAddresses => {}
                    due => break due,
                }
            };
            found.push(due);
        }
        assert_eq!(found, [Due::RemoveCounts, Due::RemoveCounts, Due::Sync]);
    }
}
