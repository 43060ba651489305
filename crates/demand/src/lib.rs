//! From connections that proxies count to the part of a Service's traffic that each zone sends.
//!
//! ```text
//!  proxy, every 15 s ─► Report: connections of each Service since the counters began
//!                          │
//!                          ▼
//!                       Window: connections per second of each Service, by the zone of the node that reports
//!                          │ Measurement
//!                          ▼
//!  Capacity (the model) ─► shares ─► Decision: shares in force, and why ─► Capacity with these shares
//!                          ▲    │
//!                          └────┴─ State: what is in force, stored in the cluster
//! ```
//!
//! - `report` is what a proxy says, and how it is written and read.
//! - `window` turns counters into rates, node by node.
//! - `plausible` bounds what a single node can claim.
//! - `shares` blends what is measured with the model, and decides when shares in force change.
//! - `state` is what is in force, for all Services, as text.
//!
//! Pure functions: no I/O and no clock. Times are milliseconds since 1970 and come from the caller. A clock that
//! is set back stands still here.

pub mod plausible;
pub mod report;
pub mod shares;
pub mod state;
pub mod window;

/// Milliseconds since 1970.
pub type Millis = u64;

/// The seconds from one time to a later one; none if it is not later.
fn seconds(from: Millis, to: Millis) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}
