//! Everything that talks to the API server: watches, the index that they fill, writes, events and
//! leader election.
//!
//! ```text
//!  connect   kubeconfig or service account ─► client
//!  api       single requests, and the kinds of failure
//!  watch     lists and watches one resource, recovers from failures    (bytes ─► small structs)
//!  index     Services, Pods, slices and nodes in memory                (synchronous, no client)
//!  follow    the control plane's watches, which fill the index
//!  write     writes slices, and conditions on Services
//!  events    records events; repeated ones are counted
//!  lease     leader election: which replica may write
//! ```

pub mod api;
pub mod connect;
mod cut;
pub mod events;
pub mod follow;
pub mod index;
pub mod lease;
pub mod watch;
pub mod write;
