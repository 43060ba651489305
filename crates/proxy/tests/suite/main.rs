//! The proxy on the real kernel: tables, packets, health checks, configuration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod affinity;
mod api_server;
mod budgets;
mod common;
mod config;
mod conformance;
mod counting;
mod counting_bytes;
mod counting_failed;
mod demand;
mod faults;
mod features;
mod health;
mod kernel;
mod law;
mod lost_answers;
mod other_proxies;
mod pages;
mod requests;
mod start;
mod topology;
mod walks;
mod weights;
