//! `zonewise lab` on a real API server, in other sizes, with every scenario, and with kubectl.

mod hot_zone;
#[path = "../../suite/lab/run.rs"]
pub(crate) mod run;

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use zonewise_testbed::User;

use crate::nodes::plain_cluster;
use run::{LONG, Running, lab, outline, scenario, story, summary, text};

#[tokio::test(flavor = "multi_thread")]
async fn the_story_holds_on_a_real_api_server_and_leaves_nothing_there() {
    let cluster = plain_cluster().await;
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let api = kubeconfig.to_str().unwrap().to_owned();
    let run = move || outline(&summary(&["--api", &api, "--duration", "20s"]));
    assert_eq!(tokio::task::spawn_blocking(run).await.unwrap(), story());
    for kind in ["Node", "Pod", "EndpointSlice", "Lease"] {
        // The API server has a Lease of its own elsewhere.
        let namespace = (kind == "Lease").then_some("zonewise-system");
        assert_eq!(cluster.list(kind, namespace).await.unwrap(), Vec::<Value>::new(), "{kind}");
    }
    let services = cluster.list("Service", None).await.unwrap();
    let names: Vec<&Value> = services.iter().map(|service| &service["metadata"]["name"]).collect();
    assert_eq!(names, ["kubernetes"]);
}

/// Other sizes than those that scenarios were written for: what is expected is computed for them.
#[test]
fn the_story_holds_in_other_sizes() {
    let large: &[&str] = &["--zones", "5", "--nodes", "3", "--services", "8"];
    for size in [large, &["--zones", "2"]] {
        let summary = summary(&[size, &["--duration", "25s"]].concat());
        assert_eq!(outline(&summary), story(), "{size:?}");
        assert_eq!(summary["resized"], true);
        let zones = if size == large { 5 } else { 2 };
        assert_eq!(summary["cluster"]["zones"], zones, "{size:?}");
        let expectations = summary["acts"][0]["expectations"].as_array().unwrap();
        assert_eq!(expectations[0]["expected"].as_str().unwrap().split(' ').nth(1), Some("zone"));
        assert!(expectations[0]["tolerance"].as_str().unwrap().ends_with(" %"), "{expectations:?}");
    }
}

/// The scenarios that come along, each in a short run.
#[test]
fn every_scenario_that_comes_along_holds() {
    for name in ["hot-zone", "tiny-service", "node-churn", "subsets"] {
        let summary = summary(&["--scenario", name, "--duration", "15s"]);
        assert_eq!(summary["held"], true, "{name}: {summary:#}");
        assert_eq!(summary["failed"], 0, "{name}: {summary:#}");
    }
}

const CUT: &str = "
title: Without warning
cluster: {zones: [{name: a, nodes: 1}, {name: b, nodes: 1}]}
services:
  - name: web
    endpoints: {a: 2, b: 2}
    connections: 100
    annotations: {zonewise.dev/routing-preference: zonewise.dev/balanced}
acts:
  - title: Cut
    look: Those who are left use what is left.
    do: [{cut: {zone: b}}]
    measure: 1s
    expect: {inZone: {atLeast: 100%}, failed: {atMost: 200}}
  - title: Back
    look: Nobody loses a connection on the way back.
    do: [{restore: {zone: b}}, {wait: 500ms}, {distribute: {service: web, value: PreferSameZone}}]
    measure: 1s
    expect: {inZone: {atLeast: 100%}, reason: [SharesBalanced]}
";

#[test]
fn a_zone_that_is_cut_off_comes_back() {
    let file = scenario(CUT);
    let summary = summary(&["--scenario", file.path().to_str().unwrap()]);
    assert_eq!(summary["held"], true, "{summary:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_changes_a_service_and_the_traffic_follows() {
    let kubectl = zonewise_testbed::program("kubectl").unwrap();
    let expected = "measure: 15s, expect: {inZone: {atLeast: 70%}}";
    let file = scenario(&LONG.replace("measure: 10m", expected));
    let (running, kubeconfig) = Running::start(file.path());
    let kubectl = |arguments: &[&str]| {
        let output = Command::new(&kubectl)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    kubectl(&[
        "annotate",
        "service",
        "web",
        "zonewise.dev/routing-preference=zonewise.dev/balanced",
    ]);
    let nodes = kubectl(&["get", "nodes", "-o", "name"]);
    assert_eq!(nodes, "node/a-1\nnode/b-1\n");
    // A Pod of one's own runs like any other.
    kubectl(&["run", "mine", "--image=any", "--port=8080", "--labels=app=mine"]);
    kubectl(&["wait", "pod/mine", "--for=condition=Ready", "--timeout=30s"]);
    kubectl(&["delete", "pod", "mine", "--timeout=60s"]);
    let (code, out, said) = running.end();
    assert_eq!(code, Some(0), "{out} {said}");
    // Half of it is at home without zone routing, all of it with: most of the time it was on.
    assert!(out.as_str().unwrap().contains("all expectations held"), "{out} {said}");
}

/// A Deployment of one's own: spread over the zones, called by its name from a zone, scaled, restarted, drained.
#[test]
fn a_deployment_runs_and_is_called_from_a_zone() {
    let program = zonewise_testbed::program("kubectl").unwrap();
    let file = scenario(LONG);
    let (running, kubeconfig) = Running::start(file.path());
    let kubectl = |line: &str| {
        let output = Command::new(&program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(line.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    // Pods that are being deleted are listed until they are gone.
    let run_on = |expected: &[&str]| {
        let mut found = Vec::new();
        for _ in 0..600 {
            let nodes = kubectl("get pods -l app=mine -o jsonpath={.items[*].spec.nodeName}");
            found = nodes.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
            found.sort();
            if found == expected {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("Pods run on {found:?} and not on {expected:?}");
    };
    kubectl("create deployment mine --image=any --replicas=4");
    kubectl("rollout status deployment/mine --timeout=180s");
    run_on(&["a-1", "a-1", "b-1", "b-1"]);
    kubectl("expose deployment mine --port=80");
    let pid = running.child.id().to_string();
    let call = || {
        let curl = ["curl", "-s", "--max-time", "10", "http://mine.default"];
        lab(&["exec", "a", "--lab", &pid, "--"]).args(curl).output().unwrap()
    };
    let mut answer = call();
    // Slices, rules and the name come a moment later.
    for _ in 0..600 {
        if answer.status.success() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        answer = call();
    }
    assert!(text(&answer.stdout).starts_with("mine-"), "{}", text(&answer.stderr));
    let wrong = lab(&["exec", "x", "--lab", &pid, "--", "true"]).output().unwrap();
    let said = text(&wrong.stderr);
    assert!(said.contains("the lab has no zone \"x\" (zones: a, b)"), "{said}");

    kubectl("scale deployment mine --replicas=2");
    kubectl("rollout status deployment/mine --timeout=180s");
    run_on(&["a-1", "b-1"]);
    kubectl("rollout restart deployment/mine");
    kubectl("rollout status deployment/mine --timeout=180s");
    kubectl("drain a-1 --force --ignore-daemonsets --timeout=180s");
    kubectl("rollout status deployment/mine --timeout=180s");
    run_on(&["b-1", "b-1"]);
    kubectl("delete deployment mine --timeout=180s");
    run_on(&[]);
    // A lab that is told to end leaves nothing.
    running.signal("-TERM");
    running.end();
    assert!(!kubeconfig.exists());
}
