//! The test bed itself: real servers, their rights, their faults.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod access;
mod faults;
mod objects;
mod orphans;
mod pool;
