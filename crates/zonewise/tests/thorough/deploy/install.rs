//! The chart on a real API server: what it finds out by itself, whether every object is valid, and what an installation
//! leaves behind. (No Pod runs here: there is no kubelet.)

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zonewise_testbed::objects::namespace;
use zonewise_testbed::{Cluster, User};

use super::chart::{PLACE, objects};
use super::helm;
use crate::observe::live;
use crate::observe::run::Ran;

pub(super) async fn cluster() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    cluster.create(&[namespace("zonewise-system")]).await.unwrap();
    cluster
}

fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> Ran {
    live::kubectl(cluster, cluster.directory(), arguments, input)
}

/// Runs Helm on the cluster.
pub(super) fn run_helm(cluster: &Cluster, arguments: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let home = cluster.directory().join("helm");
    let mut command = helm(arguments);
    command.args(["-n", "zonewise-system"]).env("KUBECONFIG", kubeconfig).env("HOME", home);
    command.output().unwrap().into()
}

/// Every object, with strict validation, as the API server would store it.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object() {
    let cluster = cluster().await;
    let common = ["resourceQuota.create=true", "networkPolicy.enabled=true", PLACE[0], PLACE[1]];
    let prometheus =
        ["monitoring.prometheus.serviceAccount=p", "monitoring.prometheus.namespace=m"];
    for mode in [
        "proxy.mode=replace",
        "proxy.mode=beside",
        "controller.mode=guard",
        "controller.mode=observe",
    ] {
        let values = [&common[..], &prometheus, &[mode]].concat();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects(&values)});
        let arguments =
            ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
        let ran = kubectl(&cluster, &arguments, &list.to_string());
        assert_eq!(ran.code, 0, "{mode}: {}", ran.err);
        assert!(!ran.err.to_lowercase().contains("warning"), "{mode}: {}", ran.err);
    }
}

fn config_map(name: &str, space: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space}, "data": data,
    })
}

/// The address of the API server and the range of Pods, of what a dry run of the installation shows.
fn found(cluster: &Cluster) -> Result<(String, String), String> {
    let arguments =
        ["install", "zonewise", "deploy/chart", "--dry-run=server", "--set", "proxy.mode=replace"];
    let ran = run_helm(cluster, &arguments);
    if ran.code != 0 {
        return Err(ran.err);
    }
    let after = |key: &str| {
        let line = ran.out.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {}", ran.out)).to_owned()
    };
    Ok((after("server: "), after("clusterCIDR: ")))
}

/// What a cluster says about itself need not be filled in.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_the_api_server_and_the_range_of_pods_are_found() {
    let cluster = cluster().await;
    let why = found(&cluster).unwrap_err();
    assert!(why.contains("proxy.apiServer is not set"), "{why}");

    let kubeconfig = |server: &str| {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    server: {server}\n  name: default\n"
        )
    };
    let kubeadm = "networking:\n  podSubnet: 10.1.0.0/16\n";
    let joining = json!({"kubeconfig": kubeconfig("https://192.0.2.1:6443")});
    let kube_public = [namespace("kube-public")];
    // The API server makes this namespace by itself, some time after its start.
    let _ = cluster.create(&kube_public).await;
    let maps = [
        config_map("cluster-info", "kube-public", &joining),
        config_map("kubeadm-config", "kube-system", &json!({"ClusterConfiguration": kubeadm})),
    ];
    cluster.create(&maps).await.unwrap();
    let expected = ("https://192.0.2.1:6443".to_owned(), "10.1.0.0/16".to_owned());
    assert_eq!(found(&cluster), Ok(expected));

    // What kube-proxy itself uses is nearer to what the proxy needs.
    let settings = json!({
        "kubeconfig.conf": kubeconfig("https://control-plane:6443"),
        "config.conf": "kind: KubeProxyConfiguration\nclusterCIDR: 10.2.0.0/16,fd00::/48\n",
    });
    cluster.create(&[config_map("kube-proxy", "kube-system", &settings)]).await.unwrap();
    let expected = ("https://control-plane:6443".to_owned(), "10.2.0.0/16,fd00::/48".to_owned());
    assert_eq!(found(&cluster), Ok(expected));
}

/// Names of all objects that can be listed, of all kinds but those that the API server makes for itself.
fn everything(cluster: &Cluster) -> BTreeSet<String> {
    let kinds = "serviceaccounts,configmaps,secrets,services,deployments,daemonsets,poddisruptionbudgets,\
        networkpolicies,resourcequotas,roles,rolebindings,clusterroles,clusterrolebindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,\
        mutatingadmissionpolicybindings,mutatingwebhookconfigurations,customresourcedefinitions,namespaces";
    let ran = kubectl(cluster, &["get", kinds, "-A", "-o", "name", "--ignore-not-found"], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn install_upgrade_roll_back_and_uninstall_leave_nothing() {
    let cluster = cluster().await;
    let before = everything(&cluster);
    let values = [&["proxy.mode=replace"], &PLACE[..]].concat().join(",");
    let run = |arguments: &[&str]| {
        let ran = run_helm(&cluster, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        ran.out
    };
    let image = || {
        let arguments = [
            "get",
            "daemonset",
            "zonewise-proxy",
            "-n",
            "zonewise-system",
            "-o",
            "jsonpath={.spec.template.spec.containers[0].image}",
        ];
        kubectl(&cluster, &arguments, "").out
    };
    let notes = run(&["install", "zonewise", "deploy/chart", "--set", &values]);
    for words in [
        "takes the place of kube-proxy on nodes with the label zonewise.dev/proxy=yes",
        "--controllers=*,-endpointslice-controller",
        "kubectl label namespace zonewise-system pod-security.kubernetes.io/enforce=privileged",
        "kubectl zonewise check",
    ] {
        assert!(notes.contains(words), "`{words}` is not in {notes}");
    }
    assert_eq!(image(), "zonewise:0.1.0");
    run(&["upgrade", "zonewise", "deploy/chart", "--reuse-values", "--set", "image.tag=next"]);
    assert_eq!(image(), "zonewise:next");
    run(&["rollback", "zonewise", "1"]);
    assert_eq!(image(), "zonewise:0.1.0");
    run(&["uninstall", "zonewise"]);
    let left: Vec<String> = everything(&cluster).difference(&before).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Helm keeps the definition of ZoneAllocations, which go with it; docs/guard.md says when to delete it.
#[tokio::test(flavor = "multi_thread")]
async fn guard_mode_leaves_the_definition_of_its_objects_and_nothing_else() {
    let cluster = cluster().await;
    let before = everything(&cluster);
    let left = || -> Vec<String> { everything(&cluster).difference(&before).cloned().collect() };
    for arguments in [
        &["install", "zonewise", "deploy/chart", "--set", "controller.mode=guard"][..],
        &["upgrade", "zonewise", "deploy/chart", "--reuse-values", "--set", "image.tag=next"],
        &["rollback", "zonewise", "1"],
        &["uninstall", "zonewise"],
    ] {
        let ran = run_helm(&cluster, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    }
    let definition = "customresourcedefinition.apiextensions.k8s.io/zoneallocations.zonewise.dev";
    assert_eq!(left(), [definition]);
    let ran = kubectl(&cluster, &["delete", "crd", "zoneallocations.zonewise.dev"], "");
    assert_eq!((ran.code, left()), (0, Vec::new()), "{}", ran.err);
}

/// The controller puts the certificate into a Secret that the chart creates empty.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_a_rollback_keep_the_certificate_of_the_webhook() {
    let cluster = cluster().await;
    let run = |arguments: &[&str]| {
        let ran = run_helm(&cluster, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    };
    let secret = |verb: &str, more: &[&str]| {
        let named = [verb, "secret", "zonewise-guard-webhook", "-n", "zonewise-system"];
        let ran = kubectl(&cluster, &[&named[..], more].concat(), "");
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let by_webhook = "controller.mode=guard,controller.configuration.guard.admission=webhook";
    run(&["install", "zonewise", "deploy/chart", "--set", by_webhook]);
    secret("patch", &["--type=merge", "-p", r#"{"data":{"tls.key":"a2V5"}}"#]);
    let is_kept =
        || assert_eq!(secret("get", &["-o", "jsonpath={.data}"]), r#"{"tls.key":"a2V5"}"#);
    run(&["upgrade", "zonewise", "deploy/chart", "--reuse-values", "--set", "image.tag=next"]);
    is_kept();
    run(&["rollback", "zonewise", "1"]);
    is_kept();
}
