//! The tests of this crate.

mod seeds;
