//! What is sent to the kernel over netlink, compared with what the kernel holds and `nft` lists.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod common;
mod conntrack;
mod everything;
mod kernel;
mod listing;
mod simulated;
