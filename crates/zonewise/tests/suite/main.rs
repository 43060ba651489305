//! The program as people run it, and the whole line on a real API server and a real kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod cluster;
mod controller;
mod dashboard;
mod evacuate;
#[cfg(feature = "expressions")]
mod expressions;
mod guard;
mod lab;
mod machine;
mod nodes;
mod observe;
mod proxy;
mod simulate;
mod skew;
mod subsets;
mod switches;
mod takeover;
mod vectors;
