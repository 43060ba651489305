//! Promises of the repository itself that need no other crate: dependencies between our crates are as
//! ARCHITECTURE.md says, every dependency is used, and every script can be parsed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod dependencies;
#[path = "../../../zonewise/tests/suite/repository/files.rs"]
mod files;
mod scripts;
