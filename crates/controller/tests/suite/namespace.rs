//! A cluster without the namespace of the Lease: what is missing is said, and created where that is asked
//! for and allowed.

use serde_json::{Value, json};
use zonewise_testbed::objects::namespace;
use zonewise_testbed::{Cluster, User, eventually};

use crate::common::{Running, bare, turn};

const SYSTEM: &str = "zonewise-system";

/// Waits until the page of readiness contains a text.
async fn readyz(running: &Running, expected: &str) {
    eventually(|| async {
        let page = running.page("/readyz?verbose").await.map_err(|error| error.to_string())?;
        if page.contains(expected) { Ok(()) } else { Err(format!("{page} without {expected}")) }
    })
    .await;
}

async fn leads(running: &Running) {
    eventually(|| async {
        let leader = running.metric("zonewise_leader").await;
        if leader.get("") == Some(&1.0) { Ok(()) } else { Err(format!("{leader:?}")) }
    })
    .await;
    readyz(running, "[+]leader election ok").await;
}

async fn namespaces(cluster: &Cluster) -> Vec<Value> {
    let all = cluster.list("Namespace", None).await.unwrap();
    all.into_iter().filter(|one| one["metadata"]["name"] == SYSTEM).collect()
}

/// The right to use Leases, in every namespace, for the controller's service account.
fn lease_rights() -> [Value; 2] {
    let rules = json!([{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["create", "get", "update", "list", "watch"],
    }]);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "leases" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "leases" },
        "subjects": [{ "kind": "ServiceAccount", "name": "zonewise-controller", "namespace": SYSTEM }],
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "leases" }, "rules": rules,
    });
    [role, binding]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_namespace_is_named_with_the_command_that_repairs_it() {
    let _turn = turn().await;
    let cluster = bare().await;
    let running = Running::start_as(&cluster, User::Admin, "leaderElection: {}").await;
    readyz(&running, "[-]leader election failed: the namespace zonewise-system does not exist")
        .await;
    readyz(&running, "`kubectl create namespace zonewise-system`").await;
    cluster.create(&[namespace(SYSTEM)]).await.unwrap();
    leads(&running).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_is_created_where_that_is_asked_for_and_allowed() {
    let _turn = turn().await;
    let cluster = bare().await;
    let create = "leaderElection: { createNamespace: true }";
    cluster.create(&lease_rights()).await.unwrap();
    let refused = Running::start(&cluster, create).await;
    readyz(&refused, "[-]leader election failed: the namespace zonewise-system does not exist and could not be created: ").await;
    readyz(&refused, "cannot create resource").await;
    assert_eq!(namespaces(&cluster).await, [json!(null); 0]);

    let allowed = Running::start_as(&cluster, User::Admin, create).await;
    leads(&allowed).await;
    assert_eq!(namespaces(&cluster).await.len(), 1);
    // The other replica has nothing to complain about any more.
    readyz(&refused, "[+]leader election ok").await;
    refused.stop().await.unwrap();
    allowed.stop().await.unwrap();
}
