//! The one way to the kernel's tables, shared by the sync loop and the search for stale flows. Pages show
//! what is published instead (`crate::published`), because work on the tables may take seconds.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Kernel;

/// The kernel's tables. Clones are the same.
///
/// There are none before the first sync has written them and while they are replaced because options
/// have changed; only the sync loop writes them (`set`, `close`).
#[derive(Clone, Default)]
pub struct KernelHandle(Arc<Mutex<Option<Kernel>>>);

impl KernelHandle {
    /// Calls `work` with the tables, alone; `None` without calling it while there are no tables. Do not
    /// lock the index inside (see `watches/view.rs` for the order of locks).
    pub fn with<T>(&self, work: impl FnOnce(&mut Kernel) -> T) -> Option<T> {
        self.0.lock().as_mut().map(work)
    }

    /// The tables have been written.
    pub fn set(&self, kernel: Kernel) {
        *self.0.lock() = Some(kernel);
    }

    /// Closes the socket that owns the tables. They stay in the kernel, and the next socket may own
    /// them.
    pub(crate) fn close(&self) {
        *self.0.lock() = None;
    }
}
