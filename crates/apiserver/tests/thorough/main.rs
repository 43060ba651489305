//! The second tier: the same requests for both servers, read with the types of Kubernetes; the stock kubectl and
//! kube-controller-manager on the embedded server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]
#![allow(clippy::too_many_lines, reason = "a table of requests is one function")]
#![allow(clippy::needless_pass_by_value, reason = "tables of requests read better without borrows")]
#![allow(dead_code, reason = "modules of the other suite have parts that only its tests use")]

#[path = "../parity/compare.rs"]
mod compare;
#[path = "../parity/differences.rs"]
mod differences;
mod embedded;
#[path = "../parity/expired.rs"]
mod expired;
#[path = "../parity/groups/mod.rs"]
mod groups;
mod kubectl;
#[path = "../parity/normal.rs"]
mod normal;
mod protobuf;
#[path = "../parity/requests.rs"]
mod requests;
#[path = "../parity/servers.rs"]
mod servers;
#[path = "../parity/stream.rs"]
mod stream;
#[path = "../parity/table.rs"]
mod table;
#[path = "../parity/watching.rs"]
mod watching;
