//! The program beside the reference's programs, in real time and in all sizes: what needs long, or more programs than
//! kube-apiserver, etcd and Chromium. `make test-all` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod cluster;
mod dashboard;
mod demand;
mod deploy;
mod differential;
mod early_connections;
mod evacuate;
mod gates;
mod guard;
mod lab;
#[path = "../suite/nodes/mod.rs"]
mod nodes;
mod observe;
mod skew;
mod subsets;
mod tables;
mod takeover;
mod vectors;
