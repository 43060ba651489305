//! `plan`, `route`, `explain` and `lint` as people use them: every screen, wrong input, and whether what
//! is advised works.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod addresses;
mod advice;
mod answers;
mod check;
pub(crate) mod checking;
#[cfg(feature = "expressions")]
mod expressions;
mod input;
mod kinds;
mod lint;
mod live;
pub(crate) mod looking;
mod pages;
pub(crate) mod run;
mod running;
pub(crate) mod schema;
mod schemas;
mod screens;
pub(crate) mod shop;
