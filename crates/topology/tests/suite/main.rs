//! Decisions: recorded vectors, requirements, properties, documents.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

mod auto_golden;
mod balanced_hints;
mod common;
mod documents;
mod evaluation_tool;
#[cfg(feature = "expressions")]
mod expressions;
mod moving;
mod properties;
mod reasons;
mod requirements;
