//! Who gets in: TLS is verified, and rights come only from roles.

use kube::Client;
use serde_json::{Value, json};
use zonewise_testbed::objects::namespace;
use zonewise_testbed::{Cluster, Objects, User};

#[tokio::test]
async fn certificates_and_roles_decide() {
    let cluster = Cluster::start().await.unwrap();
    the_server_is_the_pinned_version(&cluster).await;
    a_stranger_authority_is_refused(&cluster).await;
    the_kubeconfig_file_gets_in(&cluster).await;
    the_controller_gets_rights_from_roles_only(&cluster).await;
}

async fn the_server_is_the_pinned_version(cluster: &Cluster) {
    let version = cluster.admin().unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.36.4");
}

async fn a_stranger_authority_is_refused(cluster: &Cluster) {
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let address = format!("https://127.0.0.1:{}", cluster.port());
    let mut config = kube::Config::new(address.parse().unwrap());
    config.root_cert = Some(vec![stranger.cert.der().to_vec()]);
    let error = Client::try_from(config).unwrap().apiserver_version().await.unwrap_err();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
}

async fn the_kubeconfig_file_gets_in(cluster: &Cluster) {
    let path = cluster.kubeconfig(User::Admin).unwrap();
    let file = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let objects = Objects::new(Client::try_from(config).unwrap());
    assert!(objects.get("Namespace", None, "default").await.unwrap().is_some());
}

async fn the_controller_gets_rights_from_roles_only(cluster: &Cluster) {
    let controller = Objects::new(cluster.client(User::Controller).unwrap());
    let refusal = controller.list("Pod", None).await.unwrap_err().to_string();
    assert!(
        refusal.contains(User::Controller.name()) && refusal.contains("forbidden"),
        "{refusal}"
    );

    cluster.create(&[namespace("zonewise-system"), role(), binding()]).await.unwrap();
    // The server learns of roles by a watch of its own.
    while controller.list("Pod", None).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(controller.list("Node", None).await.is_err());
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "reads-pods" },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "reads-pods" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-pods",
        },
        "subjects": [{
            "kind": "ServiceAccount", "namespace": "zonewise-system", "name": "zonewise-controller",
        }],
    })
}
