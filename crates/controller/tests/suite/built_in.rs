//! What writes slices in guard mode: our controller in `--compat upstream` in place of Kubernetes' own, with the rights of that.
//!
//! `differential` of the second tier holds the two equal, and the tests of guard mode run there beside the real one.

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use zonewise_testbed::{Cluster, User};

use crate::common::{Running, config};

/// How long a cluster is watched at rest.
pub(crate) const REST_SECONDS: u64 = 1;

/// Ends when it is dropped.
pub(crate) struct BuiltIn {
    _running: Running,
}

pub(crate) async fn start(cluster: &Cluster, flags: &[&str]) -> BuiltIn {
    assert_eq!(flags, [""; 0], "only the real controller has flags");
    // The informers of kube-controller-manager have the rights to watch.
    let rules = json!([{
        "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"],
    }]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "informers" }, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "informers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "informers" },
        "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": User::BuiltInController.name() }],
    });
    cluster.create(&[role, binding]).await.unwrap();
    let client = cluster.client(User::BuiltInController).unwrap();
    let without_status = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            // The built-in controller writes no conditions, and leaves those of others alone.
            if request.uri().path().ends_with("/status") {
                return Ok(Response::new(Body::from(b"{}".to_vec())));
            }
            client.send(request).await
        }
    });
    let client = Client::new(without_status, "default");
    BuiltIn { _running: Running::with_client(client, config("compat: upstream")) }
}
