//! The proxy with more Services, elements and clients than a node usually has, and with an API server that is restored.
//! `make test-all` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod affinity;
mod api_server;
mod budgets;
#[path = "../suite/common/mod.rs"]
mod common;
mod weights;
