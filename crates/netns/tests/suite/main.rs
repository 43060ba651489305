//! Network namespaces as nodes, Pods and clients, on the real kernel.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod namespace;
mod network;
mod verdicts;
