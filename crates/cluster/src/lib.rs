//! A client of the Kubernetes API: lists and watches, the lease, events, single requests.
//!
//! ```text
//!  connect   kubeconfig or service account ─► client
//!  watch     one kind of object: list, watch, recover          (bytes ─► small structs)
//!  events    events, counted instead of repeated
//!  lease     who may write
//!  api       single requests and the kinds of failure
//! ```

pub mod api;
pub mod connect;
pub mod events;
pub mod lease;
pub mod watch;
