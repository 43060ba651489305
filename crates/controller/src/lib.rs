//! The control plane: writes the EndpointSlices of every Service, and explains them with conditions,
//! events and metrics.
//!
//! ```text
//!  watches ─► index ─► queue ─► sync (N workers) ─► API server
//!                ▲                  │
//!                └── own writes ────┤─► conditions, events, metrics
//!  nodes ─► capacity ─► Services whose routing depends on it ─► queue
//!  Leases of proxies ─► versions they have applied ─► Services that wait for these ─► queue
//!  ZoneEvacuations ─► zones that are being emptied ─► Services with Pods there ─► queue
//!  counts of proxies ─► measured demand ─► Services whose shares change ─► queue
//!  the controller's own Lease ─► which replica may write
//! ```
//!
//! This is the mode `controller`. In the mode `guard` a sync writes hints into the slices of the built-in controller, by
//! way of an admission policy (see [`guard`]); in the mode `observe` it writes nothing.
//!
//! All decisions are made in the crates `slices` and `topology`. This crate moves data between them and
//! the API server, and decides when.

mod because;
pub mod config;
mod controller;
mod demand;
pub mod evacuation;
mod faults;
pub mod guard;
mod metrics;
mod progress;
mod proxies;
mod queue;
mod state;
mod status;
mod sync;
mod trigger;
mod worker;

pub use controller::{RunError, run};
