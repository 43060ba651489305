//! What is said about programs of a cluster that may not be seen.

use serde_json::{Value, json};
use zonewise_testbed::{User, eventually};

use crate::nodes::{TestNodes, cluster, service_object};
use crate::observe::looking::{allow_looking, kube_proxy_pod};
use crate::observe::run::{Ran, program};

/// What may not be read is unknown: no error, and nothing is made up.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_seen_is_unknown() {
    let cluster = cluster().await;
    allow_looking(&cluster, |object| {
        object["kind"].as_str().is_some_and(|kind| kind.starts_with("ClusterRole"))
    })
    .await;
    let mut nodes = TestNodes::new();
    let mut objects =
        vec![nodes.add(&cluster, "n1", "a"), service_object("web", "web", &json!({}))];
    objects.push(kube_proxy_pod("n1"));
    cluster.create(&objects).await.unwrap();
    // A new role takes a moment to have effect.
    let unknown = eventually(async || {
        let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
        let command = program(&["explain", "-o", "json", "--kubeconfig"]).arg(kubeconfig).output();
        let ran: Ran = command.unwrap().into();
        serde_json::from_str::<Value>(&ran.out).map_err(|_| ran.err)
    })
    .await;
    let environment = &unknown["environment"];
    assert_eq!(environment["controller"]["state"], "unknown", "{environment:#}");
    let why = "Leases of zonewise-system cannot be read: not allowed";
    assert_eq!(environment["controller"]["evidence"], why);
    assert_eq!(environment["builtInController"]["state"], "unknown");
    assert_eq!(environment["proxies"][0]["proxy"], "kube-proxy");
    assert_eq!(environment["proxies"][0]["mode"], Value::Null, "its ConfigMap may not be read");
}
