//! The cluster: watches folded into compact indexes, the lease, events and writes.
//!
//! ```text
//!  connect   kubeconfig or service account ─► client
//!  watch     one kind of object: list, watch, recover          (bytes ─► small structs)
//!  index     what is known, found by what it belongs to        (synchronous, no client)
//!  follow    the control plane's watches and their index
//!  write     slices and conditions
//!  events    events, counted instead of repeated
//!  lease     who may write
//!  api       single requests and the kinds of failure
//! ```

pub mod api;
pub mod connect;
pub mod events;
pub mod follow;
pub mod index;
pub mod lease;
pub mod watch;
pub mod write;
