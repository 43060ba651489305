//! The tests of this crate.
#![allow(clippy::expect_used, reason = "a failed expect is the failure report")]

mod real_kernel;
mod seeds;
