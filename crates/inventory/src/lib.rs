//! What the control plane knows of a cluster, as the small structs of `zonewise_slices`.
//!
//! ```text
//!  index    Pods, Nodes, Services and slices, found by what they belong to   (synchronous, no client)
//!  follow   the control plane's four watches, folded into the index
//!  write    slices, and conditions of Services
//! ```
//!
//! The proxy does not use it: a node needs other fields of the same objects, and fewer of them.

pub mod follow;
pub mod index;
pub mod write;
