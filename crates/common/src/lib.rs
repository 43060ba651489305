//! What several crates must agree on, written once.
//!
//! ```text
//!  keys   labels, annotations and conditions of Kubernetes objects
//!  name   names, namespace and name together, unique ids
//! ```
//!
//! This crate uses none of the others, and every other crate may use it. Something belongs here when
//! two crates would otherwise each hold a copy that has to stay equal.

pub mod keys;
pub mod name;
