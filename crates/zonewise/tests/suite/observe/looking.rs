//! Who only looks at a cluster, and what runs in one.

use serde_json::{Value, json};
use zonewise_testbed::{Cluster, manifests};

const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/observer/rbac.yaml");

/// The roles of those who only look, without the namespace, which other roles have brought along.
pub(crate) async fn allow_looking(cluster: &Cluster, wanted: impl Fn(&Value) -> bool) {
    let mut roles = manifests(ROLES).unwrap();
    roles.retain(|object| object["kind"] != "Namespace" && wanted(object));
    cluster.create(&roles).await.unwrap();
}

/// The Pod of kube-proxy on a node, as kubeadm makes it.
pub(crate) fn kube_proxy_pod(node: &str) -> Value {
    let mut pod = zonewise_testbed::objects::pod(
        "kube-system",
        &format!("kube-proxy-{node}"),
        "kube-proxy",
        node,
        "192.0.2.9",
    );
    pod["metadata"]["labels"] = json!({"k8s-app": "kube-proxy"});
    pod
}
