//! The objects of a cluster that the control plane works with, as the small structs of
//! `zonewise_slices`.
//!
//! ```text
//!  index    Services, Pods, EndpointSlices and Nodes in memory, with lookups   (synchronous, no client)
//!  follow   the control plane's four watches, which fill the index
//!  service_cidrs   the ranges that ClusterIPs come from
//!  evacuation   ZoneEvacuations, and writes of them
//!  guard    writes of guard mode: allocations, floors, and touches that let the policy see a slice
//!  policy   writes of guard mode: its admission policy, and the bindings of that
//!  webhook  writes of guard mode: the webhook that takes the policy's place
//!  write    writes EndpointSlices, and conditions on Services
//!  demand   what decisions by measured demand used, as a ConfigMap
//! ```
//!
//! The proxy does not use this crate: it needs other, and fewer, fields of the same objects.

pub mod demand;
pub mod evacuation;
pub mod follow;
pub mod guard;
pub mod index;
pub mod policy;
mod service_cidrs;
pub mod webhook;
pub mod write;
