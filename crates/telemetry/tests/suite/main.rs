//! The health server and the metrics, over real connections.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod health;
mod metrics;
