//! From reports to shares: windows, decisions, stored state, and the stability of the whole loop.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod account;
mod cpu_use;
mod cpu_use_stability;
mod failures;
mod fleet;
mod health;
mod health_stability;
mod page;
mod queries;
mod rates;
mod shares;
mod slices;
mod stability;
mod state;
mod traffic;
mod window;
