//! A multi-zone cluster on one Linux box: real kernel rules, real connections, no machine but this one.
//!
//! ```text
//!  scenario ─► runner ── acts: steps ─► hands ─► API server (embedded, or yours) ◄─ controller
//!                │                                    ▲        ▲
//!                │                       kubelet: Pods become   proxies: one per node,
//!                │                       namespaces with        inside its namespace
//!                │                       servers                     │
//!                │                                                   ▼
//!                ├── measure ◄── traffic: clients in every zone ─► kernel rules ─► servers
//!                ▼
//!              View ─► screen (terminal), picture (SVG), report (table, JSON)
//! ```
//!
//! Nothing has a name that the system knows: namespaces are descriptors of this process, and with it go
//! their links, rules and servers, however it ends.

pub mod api;
pub mod board;
pub mod cluster;
pub mod director;
pub mod home;
pub mod kubelet;
pub mod lab;
pub mod measure;
pub mod objects;
pub mod picture;
pub mod preflight;
pub mod proxies;
pub mod relay;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod screen;
pub mod terminal;
pub mod traffic;
pub mod view;
pub mod watcher;

mod words;
