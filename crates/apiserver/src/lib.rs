//! An embedded Kubernetes API, in memory: for the lab, for demonstrations, for tests.
//!
//! ```text
//!  HTTP(S) ─► server ─► faults ─► request ─► api ─► store ─► watches
//!             tokens    delay,    path and    │     objects by kind, one version for all,
//!             TLS       errors    query       │     what happened lately
//!                                             ├─► patch, apply    what was sent, put onto what is stored (pure)
//!                                             ├─► strategy        defaults, checks, what may not change (pure)
//!                                             ├─► allocation      cluster addresses and node ports (pure)
//!                                             └─► table, discovery, openapi    what kubectl asks for (pure)
//! ```
//!
//! Objects are whole JSON values: nothing that a client wrote is lost, known to us or not.

pub mod allocation;
pub mod apply;
pub mod discovery;
pub mod kind;
pub mod openapi;
pub mod patch;
mod place;
pub mod problem;
mod schema;
pub mod select;
pub mod strategy;
mod stub;
mod syntax;
pub mod table;
pub use stub::{Config, Server};
