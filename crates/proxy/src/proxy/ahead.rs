//! The first tables are written while the lists are still arriving.
//!
//! ```text
//!  list of Services  ▆▆▆▆▆▆▆▆▆▆
//!  list of slices       ▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆
//!  elements                ▆▆ ▆▆ ▆▆ ▆▆ ▆▆▆  then base chains: from here on packets enter the tables
//! ```
//!
//! A Service is written when it and some slice of it have come. What comes later about it is a change like any other. This
//! is done only where there are no tables yet: others work, and are replaced or corrected in one batch.

use std::time::Duration;

use tokio::time::Instant;
use zonewise_common::name::Key;

use super::Proxy;
use super::machine::TableInputs;
use crate::host::blocking;
use crate::index::PORTION;
use crate::kernel::{Kernel, KernelError, Update};
use crate::rules::entries::NodeSettings;

/// How far the first tables are.
#[derive(Default)]
pub(super) enum Ahead {
    /// Nothing is written.
    #[default]
    NotBegun,
    /// Tables that no packet enters yet.
    Begun(Box<Tables>),
    /// There are other tables, or the kernel refuses ours: all is written at once when all has come.
    Impossible,
}

/// Tables that no packet enters yet.
pub(super) struct Tables {
    kernel: Kernel,
    /// What they depend on.
    inputs: TableInputs,
    /// How long it took to write them so far.
    took: Duration,
}

impl Tables {
    /// The tables with the last Services, if they are right for what is known by now; also how long it took to write
    /// what was written before.
    pub(super) fn completed(
        self,
        inputs: &TableInputs,
        settings: &NodeSettings,
        updates: impl FnOnce() -> Vec<Update>,
    ) -> Option<(Kernel, Duration)> {
        let Self { mut kernel, inputs: known, took } = self;
        let same = known == *inputs && kernel.desired().node() == settings;
        let completed = same.then(|| kernel.complete(updates()))?;
        completed.inspect_err(given_up).ok()?;
        Some((kernel, took))
    }
}

fn given_up(error: &KernelError) {
    tracing::warn!(%error, "the kernel rejects a part of the tables: writing them as a whole when all lists have come");
}

impl Proxy<'_> {
    /// Writes the Services that have come since the last call, if there are enough of them and no tables.
    pub(super) fn write_ahead(&mut self) {
        let began = Instant::now();
        if matches!(self.ahead, Ahead::Impossible) || !self.cluster.has_listed_ranges() {
            return;
        }
        let Some(arrived) = self.cluster.index().take_arrived() else { return };
        let tables = match std::mem::take(&mut self.ahead) {
            Ahead::Begun(tables) => Ok(Some(tables)),
            Ahead::NotBegun | Ahead::Impossible => blocking(|| self.begin_tables()),
        };
        let written = tables.map(|tables| tables.map(|tables| self.add_to(tables, &arrived)));
        self.ahead = match written {
            Ok(Some(Ok(mut tables))) => {
                tables.took += began.elapsed();
                self.cluster.timeline.ended(began, format!("rules of {} Services", arrived.len()));
                Ahead::Begun(tables)
            }
            Ok(Some(Err(error))) | Err(error) => {
                given_up(&error);
                Ahead::Impossible
            }
            Ok(None) => Ahead::Impossible,
        };
        if matches!(self.ahead, Ahead::Impossible) {
            self.cluster.index().mark_dirty(arrived);
        }
    }

    /// New tables without Services; `None` if there are tables already.
    fn begin_tables(&self) -> Result<Option<Box<Tables>>, KernelError> {
        let inputs = self.table_inputs();
        let mut kernel = self.open_kernel(&inputs, self.node_settings())?;
        let begun = kernel.begin(inputs.service_cidrs.clone())?;
        Ok(begun.then(|| Box::new(Tables { kernel, inputs, took: Duration::ZERO })))
    }

    fn add_to(&self, mut tables: Box<Tables>, keys: &[Key]) -> Result<Box<Tables>, KernelError> {
        // The watches cannot use the index while routes are computed: so not for long at a time.
        for portion in keys.chunks(PORTION) {
            let updates = self.updates(portion.iter());
            blocking(|| tables.kernel.add(updates))?;
        }
        Ok(tables)
    }
}
