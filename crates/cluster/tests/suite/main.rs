//! The lease, and lists and watches, as others use them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod lease;
mod watch;
