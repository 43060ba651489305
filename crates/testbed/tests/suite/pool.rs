//! Clusters that tests share are as new for each of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Cluster, Lent, Options, Pool};

const KINDS: [&str; 9] = [
    "Namespace",
    "Node",
    "Pod",
    "Service",
    "Event",
    "ConfigMap",
    "ClusterRole",
    "Lease",
    "CustomResourceDefinition",
];

static POOL: Pool = Pool::new();

async fn lend() -> Lent {
    let set_up = async |cluster: &Cluster| {
        cluster.create(&[namespace("base")]).await?;
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "base", "name": "settings"},
            "data": {"a": "1"},
        });
        cluster.create(&[settings, service("base", "web", "web"), node("n1", "a", "4")]).await
    };
    POOL.lend(Options::default(), set_up).await.unwrap()
}

/// What is stored, without what differs when it is written again.
async fn stored(cluster: &Cluster) -> BTreeMap<String, Value> {
    let mut stored = BTreeMap::new();
    for kind in KINDS {
        for mut object in cluster.list(kind, None).await.unwrap() {
            let metadata = object["metadata"].as_object_mut().unwrap();
            let name = format!(
                "{kind} {} {}",
                metadata["name"],
                metadata.get("namespace").unwrap_or(&Value::Null)
            );
            if name.contains("\"kube-") {
                continue;
            }
            for field in
                ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"]
            {
                metadata.remove(field);
            }
            stored.insert(name, object);
        }
    }
    stored
}

/// A definition of a kind of its own, and an object of that.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "zoneallocations.zonewise.dev"},
        "spec": {
            "group": "zonewise.dev", "scope": "Namespaced",
            "names": {"plural": "zoneallocations", "kind": "ZoneAllocation"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[tokio::test]
async fn a_lent_cluster_is_put_back_before_the_next_test() {
    let cluster = lend().await;
    let (port, before) = (cluster.port(), stored(&cluster).await);
    let mut left = vec![namespace("shop"), definition()];
    left.extend((0..20).map(|n| pod("shop", &format!("web-{n}"), "web", "n1", "10.0.0.1")));
    left.extend([service("shop", "web", "web"), service("default", "api", "api")]);
    left.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "left"}, "rules": [],
    }));
    cluster.create(&left).await.unwrap();
    // What was there is changed, is gone, and is another one of the same name.
    cluster.update(&[node("n1", "z", "8")]).await.unwrap();
    let gone = json!({"kind": "ConfigMap", "metadata": {"namespace": "base", "name": "settings"}});
    cluster.delete(&[gone, service("base", "web", "web")]).await.unwrap();
    cluster.create(&[service("base", "web", "other")]).await.unwrap();
    drop(cluster);

    let cluster = lend().await;
    assert_eq!(cluster.port(), port, "the same cluster");
    assert_eq!(stored(&cluster).await, before);
    let other = lend().await;
    assert_ne!(other.port(), port, "a lent cluster has one test");
    drop(other);

    // A failed test may have left anything.
    let failed = tokio::spawn(async move {
        let _cluster = cluster;
        panic!("a test fails");
    });
    assert!(failed.await.unwrap_err().is_panic());
    assert_ne!(lend().await.port(), port, "it is not lent again");
}
