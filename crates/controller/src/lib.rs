//! The control plane: keeps the EndpointSlices of every Service right, and says why they are as
//! they are.
//!
//! ```text
//!  watches ─► index ─► queue ─► sync (N workers) ─► API server
//!                ▲                  │
//!                └── own writes ────┤─► conditions, events, metrics
//!  nodes ─► capacity ─► Services whose routing depends on it ─► queue
//!  Leases of proxies ─► how far they are ─► Services that wait for them ─► queue
//!  lease ─► who may write
//! ```
//!
//! Everything that decides is in `slices` and `topology`; this crate moves data and keeps time.

pub mod config;
mod controller;
mod memory;
mod metrics;
mod proxies;
mod queue;
mod sync;
mod tell;
mod trigger;

pub use controller::{RunError, run};
