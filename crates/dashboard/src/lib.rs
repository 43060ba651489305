//! A page that shows where the traffic of Services goes, why, and what would change it.
//!
//! ```text
//!  cluster ─► explain::live ─┐                     ┌─► Board: a line per Service, versions, history ─► stream
//!                            ├─► Snapshot ─► Hub ──┤
//!  files ─► explain::input ──┘                     └─► documents of explain, route, plan; what if ───► answers
//!                                                                      ▲
//!  lab ─► what the clients of the lab have measured ───────────────────┘ a stream beside it
//!
//!  browser ─► Access: who sees which namespaces ─► Api: paths ─► Hub
//!          └─► Assets: the page itself, in this program
//! ```
//!
//! Nothing is computed here. Every figure on the page is in a document of `zonewise_explain`, which runs the functions of
//! the controller and of the proxy.

mod access;
mod api;
mod assets;
mod board;
mod history;
mod hub;
mod memory;
mod serve;
mod stream;

pub use access::{Access, Allowed};
pub use hub::{Hub, Origin, View};
pub use serve::{Exposure, serve};
