//! The tests of this crate.

mod real_kernel;
mod seeds;
