//! What Kubernetes' own end-to-end specs ask of a proxy, in namespaces. Which spec is proven where:
//! `docs/conformance.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod cluster;
mod distribution;
mod flows;
mod packets;
mod policies;
mod services;
