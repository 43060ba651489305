//! The lease, lists and watches, and lists of PodMetrics, as others use them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod lease;
mod pod_metrics;
mod server;
mod watch;
