//! Objects get in, and are counted.

use serde_json::{Value, json};
use zonewise_testbed::objects::{node, pod, service};
use zonewise_testbed::{Cluster, manifests};

#[tokio::test]
async fn objects_are_written_and_counted() {
    let cluster = Cluster::start().await.unwrap();
    pods_keep_the_status_they_were_created_with(&cluster).await;
    requests_are_counted(&cluster).await;
    services_have_two_families(&cluster).await;
    manifests_of_the_repository_are_admitted(&cluster).await;
}

pub(crate) async fn pods_keep_the_status_they_were_created_with(cluster: &Cluster) -> Vec<Value> {
    let nodes = [node("n1", "a", "4"), node("n2", "b", "3500m")];
    let pods: Vec<Value> = (1..=40)
        .map(|i| pod("default", &format!("web-{i}"), "web", "n1", &format!("10.0.0.{i}")))
        .collect();
    cluster.create(&nodes).await.unwrap();
    cluster.create(&pods).await.unwrap();

    let stored = cluster.objects().unwrap().get("Pod", Some("default"), "web-7").await.unwrap();
    let stored = stored.unwrap();
    assert_eq!(stored["status"]["podIPs"], json!([{ "ip": "10.0.0.7" }]));
    let ready = &stored["status"]["conditions"][1];
    assert_eq!((&ready["type"], &ready["status"]), (&"Ready".into(), &"True".into()));
    let stored = cluster.list("Node", None).await.unwrap();
    assert_eq!(stored[1]["status"]["allocatable"]["cpu"], "3500m");
    pods
}

pub(crate) async fn requests_are_counted(cluster: &Cluster) {
    let counts = cluster.request_counts().await.unwrap();
    let count = |verb: &str, code: &str| {
        counts.get(&(verb.to_owned(), "pods".to_owned(), code.to_owned())).copied()
    };
    assert_eq!((count("POST", "201"), count("PUT", "200")), (Some(40), Some(40)));
}

pub(crate) async fn services_have_two_families(cluster: &Cluster) {
    let mut both = service("default", "both", "none");
    both["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    cluster.create(&[both]).await.unwrap();
    let stored = cluster.objects().unwrap().get("Service", Some("default"), "both").await.unwrap();
    assert_eq!(stored.unwrap()["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
}

pub(crate) async fn manifests_of_the_repository_are_admitted(cluster: &Cluster) {
    let file = cluster.directory().join("two.yaml");
    let text = "# one\napiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n---\n\
                apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: web }\n---\n";
    std::fs::write(&file, text).unwrap();
    let documents = manifests(&file).unwrap();
    cluster.create(&documents).await.unwrap();
    let account = cluster.objects().unwrap().get("ServiceAccount", Some("default"), "web").await;
    assert!(account.unwrap().is_some());
    assert!(!manifests("deploy/simulate-job.yaml").unwrap().is_empty());
}
