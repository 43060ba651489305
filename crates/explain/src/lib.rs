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

pub mod change;
pub mod cost;
pub mod explanation;
pub mod input;
pub mod live;
pub mod margin;
pub mod matrix;
mod names;
pub mod overview;
pub mod plan;
pub mod route;
pub mod scene;
pub mod screens;
pub mod shell;
pub mod snapshot;
pub mod view;
pub mod ways;
