//! The controller as a whole, against a real API server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod access;
mod alerts;
mod autoscaling;
mod common;
mod cpu_use;
mod demand;
mod differential;
mod evacuation;
mod events;
mod expressions;
mod failing;
mod faults;
mod guard;
mod live;
mod metrics;
mod namespace;
mod prometheus;
mod real_server;
mod settling;
mod stored_demand;
mod switches;
mod traces;
