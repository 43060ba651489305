//! The controller as a whole, against a real API server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod common;
mod differential;
mod faults;
mod real_server;
mod settling;
