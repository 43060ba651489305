//! Pods, Services and existing slices in; a plan of EndpointSlice writes out. Pure: no I/O, no
//! clock, no Kubernetes client.
//!
//! ```text
//!  node service pod slice   Kubernetes JSON ⇄ small structs: only what we use
//!  asked                    what a Service asks for, and which of its keys wins
//!  desired ports            Pods ─► endpoints and the ports they serve
//!  decide                   heuristic ─► hints, subsets or zone shares, endpoint by endpoint
//!  pack                     endpoints ─► slices, with the fewest writes
//!  upstream                 the reference's own way to hints (`--compat upstream`)
//!  plan                     all of it
//! ```

pub mod asked;
mod decide;
mod desired;
pub mod labels;
pub mod node;
mod pack;
pub mod plan;
pub mod pod;
mod ports;
pub mod service;
pub mod settings;
pub mod slice;
pub mod upstream;
pub mod wire;
