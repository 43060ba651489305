//! What is done now and then: removing what nothing leads to, looking whether the tables are still
//! there, comparing them with what they should be.

use tokio::task::block_in_place;
use tokio::time::Instant;

use super::{Proxy, locked, name};
use crate::kernel::Mended;

impl Proxy<'_> {
    pub(super) fn sweep(&mut self) {
        self.sweep_at = None;
        let result = block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) => kernel.sweep(),
            None => Ok(()),
        });
        if let Err(error) = result {
            tracing::warn!(%error, "what nothing leads to could not be removed; mending");
            self.families()
                .for_each(|family| self.metrics.cleanup_failures.with([name(family)]).inc());
            self.verify();
        }
    }

    /// Is the table still there? Asked only where the kernel lets others take it away.
    pub(super) fn look(&mut self) {
        self.acknowledge();
        let disturbed = block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) => kernel.is_disturbed(),
            None => Ok(false),
        });
        match disturbed {
            Ok(false) => {}
            Ok(true) => self.verify(),
            Err(error) => tracing::warn!(%error, "the kernel's tables cannot be read"),
        }
    }

    /// Nothing is left to do: what the watches have seen is applied, bookmarks included.
    fn acknowledge(&self) {
        let index = self.known.index();
        if index.is_clean() {
            self.report(index.version());
        }
    }

    /// This version is applied, but for what the kernel refuses.
    pub(super) fn report(&self, version: u64) {
        self.applied.send_if_modified(|applied| {
            let now = applied.then(version, self.rejected.keys());
            let news = *applied != now;
            *applied = now;
            news
        });
    }

    /// Is everything in the kernel what it should be?
    pub(super) fn verify(&mut self) {
        let began = Instant::now();
        let result = block_in_place(|| match locked(&self.kernel).as_mut() {
            Some(kernel) => kernel.restore(),
            None => Ok(Mended::default()),
        });
        // A large table takes long to read: at most one part in a hundred of the time.
        self.verify_at = Instant::now() + self.config.verify_period.max(began.elapsed() * 100);
        match result {
            Ok(mended) => self.verified(mended),
            Err(error) => self.failed(&error),
        }
    }

    fn verified(&self, mended: Mended) {
        if mended.is_clean() {
            tracing::debug!("the kernel's tables are as they should be");
            return;
        }
        self.metrics.ours.mended.inc();
        tracing::warn!(?mended, "the kernel's tables were not as they should be: mended");
    }
}
