//! Which endpoints a node uses: test vectors recorded from kube-proxy, the tables of the Kubernetes
//! enhancement proposals, and what zonewise adds to them. Names of tests begin with the ids of the
//! requirements that they prove; docs/requirements.md lists them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod claims;
mod common;
mod frontends;
mod order;
mod ownership;
mod policies;
mod reader;
mod reasons;
mod recorded;
mod services;
mod shares;
mod skew;
mod slots;
mod subsets;
