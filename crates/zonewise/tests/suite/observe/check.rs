//! `zonewise check` on a real API server that has nothing of zonewise's.

use serde_json::{Value, json};
use zonewise_testbed::User;
use zonewise_testbed::objects::{node, pod};

use crate::nodes::plain_cluster;
use crate::observe::checking::{ZONES, check, manager, node_info, not_passed};
use crate::observe::schema::assert_valid;

/// Before the installation: a cluster with nothing in it is not ready, and each thing that is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn before_an_installation_a_cluster_is_judged_without_zonewise() {
    let cluster = plain_cluster().await;
    let (code, document) = check(&cluster, User::Admin, &["--pre"]);
    assert_valid("checks", &document);
    assert_eq!(code, 1);
    let names = |document: &Value| -> Vec<String> {
        not_passed(document).iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&document).contains(&"node-zones".to_owned()), "{document:#}");
    let nodes: Vec<Value> = ZONES
        .iter()
        .map(|zone| {
            let mut one = node(zone, zone, "4");
            one["status"]["nodeInfo"] = node_info("6.1.0-18-amd64");
            one
        })
        .collect();
    cluster.create(&nodes).await.unwrap();
    for zone in ZONES {
        let mut one = pod("kube-system", &format!("kube-proxy-{zone}"), "none", zone, "192.0.2.9");
        one["metadata"]["labels"] = json!({"k8s-app": "kube-proxy"});
        one["spec"]["containers"][0]["image"] = json!("kube-proxy:v1.36.4");
        cluster.create(&[one]).await.unwrap();
    }
    cluster.create(&[manager("--leader-elect=true")]).await.unwrap();
    let (code, document) = check(&cluster, User::Admin, &["--pre"]);
    assert_eq!((code, names(&document)), (0, vec!["network-plugin".to_owned()]), "{document:#}");
    let not_there = check(&cluster, User::Admin, &[]);
    let missing = not_passed(&not_there.1);
    assert!(missing.iter().any(|one| one["name"] == "namespace"
        && one["commands"][0].as_str().unwrap().contains("helm install")));
}
