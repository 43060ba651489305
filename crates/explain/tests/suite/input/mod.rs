//! Manifests and dumps: what is read from them, and what is said about those that are wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod common;
mod faults;
mod hostile;
mod nulls;
mod shapes;
