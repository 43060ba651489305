//! Servers that answer with their name and the source address they see, and probes that call them.
//!
//! ```text
//!   probe_tcp ────── "ask" ────────────────────► Server
//!             ◄───── "web-1 203.0.113.1" ─────── closes the connection
//!
//!   OpenConnection ─ "hold" ───────────────────► Server
//!             ◄───── "web-1 203.0.113.1" ─────── keeps it open and answers the next line
//! ```
//!
//! Over UDP the server answers every datagram. A TCP client that sends nothing is answered after a
//! second.

mod http;
mod probe;
mod server;

pub use http::http_get;
pub use probe::{
    OpenConnection, ProbeResult, Protocol, probe_from, probe_tcp, probe_tcp_here, probe_tcp_many,
    probe_udp, probe_udp_many,
};
pub use server::Server;

/// Request: answer, then close the connection.
const ASK: &str = "ask\n";
/// Request: answer, and keep the connection open.
const HOLD: &str = "hold\n";
