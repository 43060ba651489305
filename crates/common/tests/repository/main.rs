//! Promises of the repository itself that need no other crate: dependencies between our crates are as
//! ARCHITECTURE.md says, every dependency is used, every script can be parsed, and docs/requirements.md names the tests
//! that there are.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod dependencies;
mod files;
mod requirements;
mod scripts;
