//! The page of one namespace.

use serde_json::{Value, json};
use zonewise_testbed::User;
use zonewise_testbed::objects::{namespace, service};

use super::page::{Dashboard, tab};
use crate::nodes::plain_cluster;

/// Somebody may read one namespace, and the nodes.
#[tokio::test(flavor = "multi_thread")]
async fn rights_in_one_namespace_are_enough_for_its_page() {
    let cluster = plain_cluster().await;
    let watches = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
    let role = |kind: &str, rules: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": "looks", "namespace": if kind == "Role" { "shop" } else { "" }}, "rules": rules})
    };
    let binding = |kind: &str, of: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": "looks", "namespace": if kind == "RoleBinding" { "shop" } else { "" }},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": "looks"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": User::Observer.name()}]})
    };
    let objects = [
        namespace("shop"),
        namespace("secret"),
        service("shop", "web", "web"),
        service("secret", "hidden", "web"),
        role("ClusterRole", json!([watches("", &["nodes"])])),
        binding("ClusterRoleBinding", "ClusterRole"),
        role(
            "Role",
            json!([
                watches("", &["services", "pods"]),
                watches("discovery.k8s.io", &["endpointslices"])
            ]),
        ),
        binding("RoleBinding", "Role"),
    ];
    cluster.create(&objects).await.unwrap();
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    let dashboard = Dashboard::start(&["--kubeconfig", kubeconfig.to_str().unwrap(), "-n", "shop"]);
    let mut tab = tab(&dashboard, "");
    tab.until_text(".list", "shop/web").unwrap();
    assert!(!tab.text(".list").unwrap().contains("hidden"));
}
