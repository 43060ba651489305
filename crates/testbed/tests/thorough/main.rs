//! The test bed with kube-controller-manager: the second tier.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod objects;
#[path = "../suite/objects.rs"]
mod without_controller;
