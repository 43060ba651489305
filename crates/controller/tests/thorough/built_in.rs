//! What writes slices in guard mode: Kubernetes' own controller.

use zonewise_testbed::{Cluster, Process};

/// How long a cluster is watched at rest.
pub(crate) const REST_SECONDS: u64 = 8;

pub(crate) type BuiltIn = Process;

pub(crate) async fn start(cluster: &Cluster, flags: &[&str]) -> BuiltIn {
    cluster.controller_manager(flags).unwrap()
}
