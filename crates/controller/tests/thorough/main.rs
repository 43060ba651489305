//! The controller beside Kubernetes' own programs and Prometheus, and what takes long in real time: the second tier.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

#[path = "../suite/common/mod.rs"]
mod common;

mod alerts;
mod autoscaling;
mod built_in;
mod cpu_use;
mod demand;
mod differential;
mod evacuation;
mod failing;
mod faults;
mod guard;
mod metrics;
mod prometheus;
mod real_server;
mod settling;
mod stored_demand;
mod traces;
