//! A snapshot of cluster objects in; plans, routes and explanations out.
//!
//! The same pure functions that the controller and the proxy run, so that what is said is what
//! happens.
//!
//! ```text
//!  files, dumps ─► input ─┐
//!                         ├─► Snapshot ─► plan, route, explain
//!  API server ────────────┘
//! ```

pub mod input;
