//! What comes in as manifests and dumps, and that all answers agree.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod agreement;
mod check;
mod common;
mod cpu_use;
mod demand;
mod failing;
mod input;
mod of_one;
mod top;
mod truth;
mod weights;
mod what_if;
