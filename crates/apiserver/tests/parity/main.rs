//! One suite for two servers: the real kube-apiserver, and ours. What the one answers, the other
//! answers too.
//!
//! ```text
//!  groups ─► requests ─┬─► kube-apiserver ─► answer ─► normal ─┬─► compare ─► none but those listed
//!  (tables)            └─► zonewise_apiserver ► answer ► normal ┘              (differences.rs, docs/apiserver.md)
//!
//!  watching   watches on both          kubectl   the stock program on both
//!  embedded   what only ours does: faults, tokens, garbage collection, the end of namespaces
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]
#![allow(clippy::needless_pass_by_value, reason = "tables of requests read better without borrows")]

mod compare;
mod differences;
mod embedded;
mod expired;
mod faults;
mod groups;
mod kubectl;
mod normal;
mod requests;
mod servers;
mod stream;
mod watching;
