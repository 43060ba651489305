//! Servers that say who they are and whom they see, and probes that ask them.
//!
//! ```text
//!   ask ── "ask" ──────────────────────────► Server
//!       ◄── "web-1 203.0.113.1" ─────────────     closes
//!
//!   Held ── "hold" ────────────────────────► Server
//!        ◄── "web-1 203.0.113.1" ────────────     stays, and answers the next line
//! ```
//!
//! Over UDP every datagram gets the line. A client that says nothing gets it after a second.

mod page;
mod probe;
mod server;

pub use page::page;
pub use probe::{
    Answer, Held, Protocol, ask_from, ask_here, ask_many, ask_many_udp, ask_tcp, ask_udp,
};
pub use server::Server;

/// Answer, and close.
const ASK: &str = "ask\n";
/// Answer, and stay.
const HOLD: &str = "hold\n";
