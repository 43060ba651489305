//! Leaving a cluster as it was: the steps of docs/controller.md, with kubectl, and every object compared.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, service};
use zonewise_testbed::{Cluster, User, eventually};

use crate::common::{ROOT, Running, addresses, condition, nodes, slices, turn, zonal_pods};

const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const ELECTION: &str = "leaderElection: { leaderElect: true }\n";
/// Kinds whose objects are compared whole. Of all other kinds, the names are.
const WHOLE: [&str; 6] = ["Service", "Event", "Lease", "Pod", "Node", "ConfigMap"];

/// Services that ask for everything that zonewise writes. `topology-mode: Auto` is missing: the
/// reference writes events about it, and not the same at each start.
fn services() -> Vec<Value> {
    let asked = |name: &str, key: &str, value: &str| {
        let mut asked = service("shop", name, "web");
        asked["metadata"]["annotations"] = json!({ key: value });
        asked
    };
    let mut near = service("shop", "near", "web");
    near["spec"]["trafficDistribution"] = "PreferSameZone".into();
    let mut dual = asked("dual", SUBSETTING, "Require");
    dual["spec"]["ipFamilyPolicy"] = "RequireDualStack".into();
    vec![
        asked("subsets", SUBSETTING, "Auto"),
        asked("auto", PREFERENCE, "zonewise.dev/auto"),
        asked("balanced", PREFERENCE, "zonewise.dev/balanced"),
        asked("unknown", PREFERENCE, "Nearest"),
        near,
        dual,
        service("shop", "plain", "web"),
        service("shop", "empty", "nobody"),
    ]
}

/// A shell command with kubectl, as the admin, in the root of the repository.
fn shell(cluster: &Cluster, command: &str) -> Output {
    let programs = cluster.program("kubectl").parent().map(PathBuf::from).unwrap();
    let path = std::env::join_paths(
        [programs].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    Command::new("sh")
        .args(["-c", command])
        .current_dir(ROOT)
        .env("PATH", path.unwrap())
        .env("KUBECONFIG", cluster.kubeconfig(User::Admin).unwrap())
        .output()
        .unwrap()
}

fn run(cluster: &Cluster, command: &str) -> String {
    let output = shell(cluster, command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The commands of the section of the page, in their order.
fn documented() -> Vec<String> {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/controller.md")).unwrap();
    let (_, section) = page.split_once("### Leaving no trace\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let command = |line: &str| line.trim_start().strip_prefix("$ ").map(str::to_owned);
    section.lines().filter_map(command).collect()
}

/// Every object of the cluster: for kinds that are compared whole its content, for others its name.
fn everything(cluster: &Cluster) -> BTreeSet<String> {
    let kinds = run(cluster, "kubectl api-resources --verbs=list -o name");
    // Statuses of components are no stored objects.
    let kinds: Vec<&str> = kinds.lines().filter(|kind| *kind != "componentstatuses").collect();
    let list = run(cluster, &format!("kubectl get {} -A -o json", kinds.join(",")));
    let list: Value = serde_json::from_str(&list).unwrap();
    let (slices, others): (Vec<&Value>, Vec<&Value>) =
        list["items"].as_array().unwrap().iter().partition(|item| item["kind"] == "EndpointSlice");
    others.into_iter().map(comparable).chain(endpoints(&slices)).collect()
}

fn comparable(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    let mut object = object.clone();
    // The servers renew their own Leases all the time.
    let own = kind == "Lease" && object["metadata"]["namespace"] == "kube-system";
    if !WHOLE.contains(&kind) || own {
        let metadata = &object["metadata"];
        return format!("{kind} {} {}", metadata["namespace"], metadata["name"]);
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("generation");
    object.to_string()
}

/// Every endpoint with everything of its slice but what names that slice. The reference does not merge
/// slices: endpoints may be spread over more of them than before.
fn endpoints(slices: &[&Value]) -> Vec<String> {
    let mut all = Vec::new();
    for slice in slices {
        let mut rest = (*slice).clone();
        let endpoints = rest.as_object_mut().unwrap().remove("endpoints").unwrap_or_default();
        let metadata = rest["metadata"].as_object_mut().unwrap();
        let names_it = ["name", "uid", "creationTimestamp", "resourceVersion", "generation"];
        for field in names_it {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        all.push(rest.to_string());
        let each = endpoints.as_array().into_iter().flatten();
        all.extend(each.map(|endpoint| format!("{endpoint} in {rest}")));
    }
    all
}

async fn complete(cluster: &Cluster) {
    eventually(|| async {
        for service in services() {
            let name = service["metadata"]["name"].as_str().unwrap();
            let found = slices(cluster, "shop", name).await;
            let expected = if name == "empty" { 0 } else { 15 };
            if found.is_empty() || addresses(&found).len() != expected {
                return Err(format!("{name}: {found:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// Waits until the controller has written conditions, labels, shares, events and its Lease.
async fn wrote_everything(cluster: &Cluster) {
    eventually(|| async {
        for name in ["subsets", "auto", "balanced", "unknown", "dual"] {
            condition(cluster, "shop", name, "Ready")
                .await
                .ok_or(format!("{name}: no condition"))?;
        }
        let everything = everything(cluster);
        for trace in
            ["for-zone", "zone-shares", "zonewise.dev/component", "holderIdentity\":\"test"]
        {
            if !everything.iter().any(|object| object.contains(trace)) {
                return Err(format!("no object has {trace}"));
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_d16_e1_the_documented_steps_leave_no_trace() {
    let _turn = turn().await;
    let cluster = Cluster::start().await.unwrap();
    cluster.create(&nodes()).await.unwrap();
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 5)).await.unwrap();
    cluster.create(&services()).await.unwrap();
    let reference = cluster.controller_manager(&[]).unwrap();
    complete(&cluster).await;
    reference.stop().await.unwrap();
    let before = everything(&cluster);

    run(
        &cluster,
        "kubectl apply -f deploy/controller/rbac.yaml -f deploy/controller/controller.yaml",
    );
    let running = Running::start(&cluster, ELECTION).await;
    wrote_everything(&cluster).await;
    running.stop().await.unwrap();

    let [left, delete_controller, delete_events] = documented().try_into().unwrap();
    let running = Running::start(&cluster, &format!("{ELECTION}compat: upstream")).await;
    eventually(|| async {
        // grep ends with 1 when it counts 0.
        let count = String::from_utf8(shell(&cluster, &left).stdout).unwrap();
        if count == "0\n" { Ok(()) } else { Err(format!("{count} lines of ours are left")) }
    })
    .await;
    running.stop().await.unwrap();
    // A namespace is deleted by a controller of its own.
    let reference = cluster.controller_manager(&["--controllers=namespace-controller"]).unwrap();
    run(&cluster, &delete_controller);
    run(&cluster, &delete_events);
    complete(&cluster).await;
    reference.stop().await.unwrap();

    let after = everything(&cluster);
    let gone: Vec<&String> = before.difference(&after).collect();
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(gone.is_empty() && new.is_empty(), "before: {gone:#?}\nafter: {new:#?}");
    let writers =
        run(&cluster, "kubectl get services,endpointslices -A -o yaml --show-managed-fields");
    assert!(!writers.contains("zonewise-controller"), "{writers}");
}

/// Deletes two slices by hand: one that the controller has not written since its start ("found"), and
/// one that it has ("written"). Returns when the second is back.
async fn delete_both(cluster: &Cluster, round: &str) {
    let mut written = service("shop", "written", "web");
    written["metadata"]["labels"] = json!({ "round": round });
    cluster.update(&[written]).await.unwrap();
    eventually(|| async {
        let found = slices(cluster, "shop", "written").await;
        let label = found.iter().all(|slice| slice["metadata"]["labels"]["round"] == round);
        if label && found.len() == 1 { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    for name in ["found", "written"] {
        let gone = slices(cluster, "shop", name).await;
        cluster.delete(&gone).await.unwrap();
    }
    one_slice(cluster, "written").await;
}

async fn one_slice(cluster: &Cluster, service: &str) {
    eventually(|| async {
        match slices(cluster, "shop", service).await.len() {
            1 => Ok(()),
            other => Err(format!("{service} has {other} slices")),
        }
    })
    .await;
}

/// Makes any controller write the slice again.
async fn touch_found(cluster: &Cluster, round: &str) {
    let mut found = service("shop", "found", "web");
    found["metadata"]["labels"] = json!({ "touched": round });
    cluster.update(&[found]).await.unwrap();
    one_slice(cluster, "found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_brings_back_the_slices_that_the_reference_brings_back() {
    let _turn = turn().await;
    let cluster = crate::common::cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 1)).await.unwrap();
    cluster.create(&["found", "written"].map(|name| service("shop", name, "web"))).await.unwrap();
    let reference = cluster.controller_manager(&[]).unwrap();
    touch_found(&cluster, "first").await;
    reference.stop().await.unwrap();

    let running = Running::start(&cluster, "compat: upstream").await;
    delete_both(&cluster, "upstream").await;
    // The deletion of "found" was seen first, and both would have waited as long. A second deletion that
    // is repaired shows that the first has had its time.
    delete_both(&cluster, "upstream-again").await;
    let found = slices(&cluster, "shop", "found").await;
    assert!(found.is_empty(), "the reference does not bring it back, nor does upstream: {found:?}");
    touch_found(&cluster, "upstream").await;
    running.stop().await.unwrap();

    let running = Running::start(&cluster, "").await;
    delete_both(&cluster, "ours").await;
    one_slice(&cluster, "found").await;
    running.stop().await.unwrap();
}
