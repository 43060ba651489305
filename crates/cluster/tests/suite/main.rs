//! The lease as others use it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod lease;
