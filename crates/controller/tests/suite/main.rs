//! The controller as a whole, against a real API server, and on a paused clock against the embedded one.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod access;
mod built_in;
mod common;
mod cpu_use;
mod demand;
mod evacuation;
mod events;
mod expressions;
mod faults;
mod guard;
mod live;
mod namespace;
mod paused;
mod real_server;
mod stored_demand;
mod switches;
