//! Regular care for the tables: removing unused elements, checking that the tables are still there,
//! comparing them with what they should be.

use std::time::Duration;

use tokio::time::Instant;

use super::Proxy;
use super::schedule::KEEP_CLIENTS;
use crate::kernel::{Kept, Kernel, Repaired, Verification};
use crate::rules::layout::family_name;

/// How long a change may have to wait for a portion of this work.
const AT_ONCE: Duration = Duration::from_millis(5);

/// After such a portion, changes that have come get their turn.
const TURN: Duration = Duration::from_millis(1);

impl Proxy<'_> {
    /// Removes elements that nothing leads to any more.
    pub(super) fn remove_unused(&mut self) {
        self.schedule.removed_unused();
        if let Err(error) = self.on_kernel(Kernel::remove_unused) {
            tracing::warn!(%error, "cannot remove unused elements from the kernel's tables; comparing and repairing the tables");
            for &family in &self.families {
                self.reports.metrics.cleanup_failures.with([family_name(family)]).inc();
            }
            self.verify_now();
        }
    }

    /// Sees to it that elements and chains that nothing leads to any more are removed, if there are any.
    pub(super) fn remove_unused_later(&mut self) {
        if self.kernel.with(|kernel| kernel.unused()).is_some_and(|unused| unused > 0) {
            self.schedule.remove_unused_later();
        }
    }

    /// Are the tables still there? The kernel is asked only where it lets others remove them.
    pub(super) fn check_tables(&mut self) {
        self.report_idle();
        match self.on_kernel(Kernel::is_disturbed) {
            Ok(false) => {}
            Ok(true) => self.verify_now(),
            Err(error) => tracing::warn!(%error, "cannot check the kernel's tables"),
        }
    }

    /// When no change waits for a sync, everything the watches have delivered is applied, up to the
    /// version of their last bookmark.
    fn report_idle(&self) {
        let index = self.cluster.index();
        if index.is_clean() {
            self.report(index.version());
        }
    }

    /// Reports that this version is applied, but for Services that the kernel rejects.
    pub(super) fn report(&self, version: u64) {
        self.reports.applied.send_if_modified(|applied| {
            let now = applied.then(version, self.rejected.keys());
            let modified = *applied != now;
            *applied = now;
            modified
        });
    }

    /// Goes on looking after the clients that the kernel remembers for session affinity, for a moment: changes
    /// are applied in between. Those of Services that have changed come first; all others may take a hundredth
    /// of the time.
    pub(super) fn keep_clients(&mut self) {
        let began = Instant::now();
        let kept = self.on_kernel(|kernel| kernel.keep_clients(AT_ONCE).map(Some));
        match kept {
            Ok(Some(Kept::MoreUrgent)) => self.schedule.keep_clients_after(TURN),
            Ok(Some(Kept::More)) => self.schedule.keep_clients_after(began.elapsed() * 100),
            Ok(_) => {
                self.kernel.with(Kernel::look_at_all_clients);
                self.schedule.keep_clients_after(KEEP_CLIENTS);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot remove clients of removed endpoints from session affinity");
                self.schedule.keep_clients_after(KEEP_CLIENTS);
            }
        }
    }

    /// Goes on comparing the tables with what they should be, a portion at a time so that no change waits for
    /// it, and repairs them.
    pub(super) fn verify(&mut self) {
        let began = Instant::now();
        let mut verification = std::mem::take(&mut self.verification);
        let result = self.on_kernel(|kernel| kernel.verify(&mut verification, AT_ONCE));
        // Verification takes at most a hundredth of the time.
        let pause = began.elapsed() * 100;
        match result {
            Ok(None) => {
                self.verification = verification;
                self.schedule.verify_after(pause);
            }
            Ok(Some(repaired)) => {
                self.schedule.verify_after(self.config.verify_period.max(pause));
                self.verified(repaired);
                self.forget_zones();
                self.remove_counts();
            }
            Err(error) => {
                self.schedule.verify_after(self.config.verify_period.max(pause));
                self.failed(&error);
            }
        }
    }

    /// Gives back the numbers and the counters of zones that no slice names any more.
    fn forget_zones(&self) {
        let reader = self.cluster.reader();
        let unused = reader.unused_zones(&self.cluster.index().zones());
        match self.on_kernel(|kernel| kernel.remove_counters(&unused)) {
            Ok(removed) => reader.forget_zones(&removed),
            Err(error) => {
                tracing::warn!(%error, "cannot remove the counters of zones without endpoints");
            }
        }
    }

    /// Goes on removing what counts connections to addresses that no Service has any more, a portion at a time: changes
    /// are applied in between.
    pub(super) fn remove_counts(&mut self) {
        match self.on_kernel(Kernel::remove_counts) {
            Ok(more) => self.schedule.remove_counts_after(more.then_some(TURN)),
            Err(error) => {
                // The next verification comes back to it.
                self.schedule.remove_counts_after(None);
                tracing::warn!(%error, "cannot remove counters of Services that are gone");
            }
        }
    }

    /// Reads the tables as a whole, and repairs them.
    pub(super) fn verify_now(&mut self) {
        let began = Instant::now();
        self.verification = Verification::default();
        let result = self.on_kernel(Kernel::restore);
        self.schedule.verify_after(self.config.verify_period.max(began.elapsed() * 100));
        match result {
            Ok(repaired) => {
                // Who asks gets an answer, if there is nothing to repair, too.
                let (clean, took) = (repaired.is_clean(), began.elapsed());
                tracing::info!(clean, ?took, "tables read as a whole, as SIGUSR1 asks");
                self.verified(repaired);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn verified(&mut self, repaired: Repaired) {
        // An earlier attempt may have failed.
        self.remove_unused_later();
        if repaired.is_clean() {
            tracing::debug!("the kernel's tables are as they should be");
            return;
        }
        self.reports.metrics.ours.repaired.inc();
        tracing::warn!(
            ?repaired,
            "the kernel's tables were not as they should be (has another program changed them?): repaired"
        );
    }
}
