//! The index and the lease, as others use them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod index;
mod lease;
