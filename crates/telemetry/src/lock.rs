//! A lock that outlives a panic elsewhere.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, and does not care whether another thread panicked while it held the lock: every value
/// behind one of our locks is whole after each single statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
