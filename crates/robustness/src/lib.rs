//! The whole path in one deterministic simulation: the controller and the proxy as they are, on an API server and
//! kernels in memory, with faults.
//!
//! ```text
//!  seed ─► driver: Services, Pods, faults, crashes
//!            │
//!            ▼
//!   API server (in memory) ◄── wire: delays, errors, partitions ──► controllers (2)
//!            ▲                                                        one leads
//!            └──────────────── wire ──► proxies (3 zones) ──► kernels (in memory), with errors
//!                                                               │
//!   model: what the driver did ─────► invariants ◄──────────────┘ after every commit
//! ```
//!
//! A run is one thread: a tokio runtime of one thread with a paused clock, the seed in every random generator, the
//! wall clock derived from the paused one. So the same seed has the same history, line by line, and a failure can be
//! looked at as often as needed.
//!
//! * [`run`]: one seed from start to end. `driver`: what happens in it. `processes`: the controllers and proxies that run in it.
//! * `wire`: requests on their way to the API server. `history`: what happened, for people.
//! * `rest`: what has to hold when nothing happens any more. `documents`: what `plan` and `explain` say then.
//! * `model`: what the driver did to the cluster, and what has to hold because of it.
#![allow(
    clippy::expect_used,
    reason = "a simulation that cannot start has nothing to tell but why"
)]

mod documents;
mod driver;
mod history;
mod model;
mod objects;
mod processes;
mod rest;
mod run;
mod wire;

pub use run::{Outcome, RealKernel, RunPlan, run, run_beside};
