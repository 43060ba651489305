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

pub mod measure;
pub mod picture;
pub mod report;
pub mod scenario;
pub mod screen;
pub mod view;

mod words;
