//! A multi-zone cluster on one Linux machine, with real kernel rules and real connections.
//!
//! ```text
//!  scenario ─► runner ── acts: steps ─► director ─► API server (embedded, or yours) ◄─ controller
//!                │                                    ▲        ▲
//!                │                       kubelet: Pods become   proxies: one per node,
//!                │                       namespaces with        inside its namespace
//!                │                       servers                     │
//!                │                                                   ▼
//!                ├── board   ◄── traffic: clients in every zone ─► kernel rules ─► servers
//!                ▼
//!              View ─► screen (terminal), page (browser), picture (SVG), report (table, JSON)
//! ```
//!
//! Network namespaces exist only as open descriptors of this process. However the process ends, the kernel
//! removes them, and with them their links, rules and servers.

mod api;
mod board;
mod cluster;
mod director;
pub mod directory;
mod ground;
mod inside;
mod kubelet;
pub mod lab;
mod measure;
mod objects;
mod page;
mod picture;
mod prediction;
pub mod preflight;
mod proxies;
mod relay;
pub mod report;
pub mod rights;
mod runner;
pub mod scenario;
mod scheduler;
mod screen;
mod size;
mod terminal;
mod traffic;
pub mod view;
mod watcher;
mod words;

pub use api::Api;
pub use cluster::clear;
pub use zonewise_netns::{enter_user_namespace, exec};

/// What the tests of the screen draw with.
#[doc(hidden)]
pub mod testing {
    pub use crate::measure::Matrix;
    pub use crate::picture::{side_by_side, svg};
    pub use crate::screen::{draw, monochrome, paint};
}
