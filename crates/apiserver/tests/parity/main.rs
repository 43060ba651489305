//! The same requests for kube-apiserver and for the embedded server: the answers must be equal.
//!
//! ```text
//!  groups ─► requests ─┬─► kube-apiserver ──► answer ─► normal ─┬─► compare ─► differences that
//!  (tables)            └─► embedded server ─► answer ─► normal ─┘              are not listed fail
//!
//!  protobuf     both forms of objects, read and written by the embedded server's own code
//!  table        frames, and the fields of all messages
//!  normal       replaces what differs from run to run: versions, uids, times, allocated addresses
//!  differences  the list of accepted differences, shown in docs/apiserver.md
//!  watching     watches on both servers
//!  expired      both servers after a compaction
//!  embedded     what only the embedded server does: tokens, garbage collection, ending namespaces
//!  workloads    Deployments and ReplicaSets, which the embedded server keeps by itself
//!  schemas      the file of schemas is that of kube-apiserver
//!  faults       the faults of the embedded server
//! ```
//!
//! The second tier (`tests/thorough`) compares with the types of Kubernetes and with kubectl.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]
#![allow(clippy::too_many_lines, reason = "a table of requests is one function")]
#![allow(clippy::needless_pass_by_value, reason = "tables of requests read better without borrows")]

mod compare;
mod differences;
mod embedded;
mod expired;
mod faults;
mod groups;
mod normal;
mod protobuf;
mod requests;
mod schemas;
mod servers;
mod stream;
mod table;
mod watching;
mod workloads;
