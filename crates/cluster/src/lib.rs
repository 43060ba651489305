//! A client of the Kubernetes API: lists and watches, leader election, events, single requests.
//!
//! ```text
//!  connect   kubeconfig or service account ─► client
//!  api       single requests, and the kinds of failure
//!  watch     lists and watches one resource, recovers from failures    (bytes ─► small structs)
//!  events    records events; repeated ones are counted
//!  lease     leader election: which replica may write
//!  review    who a client is and what it may read, by TokenReview and SubjectAccessReview
//!  prometheus  queries to a Prometheus
//!  pod_metrics  what the metrics API says of Pods
//!  access    the same for the clients of a server, remembered and limited
//! ```

pub mod access;
pub mod api;
pub mod connect;
pub mod events;
pub mod lease;
pub mod pod_metrics;
pub mod prometheus;
pub mod review;
pub mod watch;
