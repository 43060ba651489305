//! The rights of a proxy on a real API server.

use std::path::Path;

use serde_json::Value;
use zonewise_testbed::{Cluster, manifests};

/// The proxy's role. Its admission policy compares with the node that a token is bound to, and those of the testbed are
/// bound to none.
pub(crate) async fn apply_roles(cluster: &Cluster) {
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/proxy/rbac.yaml");
    let roles = manifests(roles).unwrap();
    let no_policy = |object: &Value| {
        object["kind"].as_str() != Some("ValidatingAdmissionPolicy")
            && object["kind"].as_str() != Some("ValidatingAdmissionPolicyBinding")
    };
    for object in roles.into_iter().filter(no_policy) {
        cluster.create(&[object]).await.unwrap();
    }
}
