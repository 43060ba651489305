//! `zonewise lab` as people run it: the story on both API servers, a second lab beside the first, one
//! that is killed, and everything that may be typed wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod hot_zone;
mod memory;
mod rootless;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_testbed::{Cluster, User, objects};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
const LABS: &str = "/run/zonewise-lab";

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that ends by itself, and what it says about itself.
fn summary(arguments: &[&str]) -> Value {
    let output = lab(arguments).args(["-o", "json"]).output().unwrap();
    let said = text(&output.stderr);
    let summary: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {said}", text(&output.stdout)));
    assert!(output.status.success(), "{summary:#} {said}");
    summary
}

/// The acts of the story, each with whether it held, and the connections that failed.
fn outline(summary: &Value) -> Value {
    let acts = summary["acts"].as_array().unwrap().iter();
    let acts: Vec<&Value> = acts.map(|act| &act["title"]).collect();
    json!({"acts": acts, "held": summary["held"], "failed": summary["failed"]})
}

fn story() -> Value {
    json!({
        "acts": [
            "No topology", "Topology-mode Auto", "Balanced", "A zone loses its endpoints",
            "A zone goes away", "And comes back", "Rolling update", "Pods come up one by one",
        ],
        "held": true,
        "failed": 0,
    })
}

#[test]
fn the_story_holds_on_the_embedded_api_server() {
    assert_eq!(outline(&summary(&["--duration", "20s"])), story());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_holds_on_a_real_api_server_and_leaves_nothing_there() {
    let cluster = Cluster::start().await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_others_use_is_refused() {
    let cluster = Cluster::start().await.unwrap();
    cluster.create(&[objects::node("theirs", "a", "4")]).await.unwrap();
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let run = move || lab(&["--api", kubeconfig.to_str().unwrap(), "--duration", "5s"]).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("holds 1 Nodes and 0 Services that are not a lab's (theirs, …)"),
        "{said}"
    );
    assert!(said.contains("--force"), "{said}");
    let nodes = cluster.list("Node", None).await.unwrap();
    assert_eq!(nodes.len(), 1, "theirs is still there, and alone");
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

/// Where the kernel can delay packets, it plays as well; where it cannot, that is said before anything is made.
#[test]
fn zones_may_be_some_way_off() {
    let arguments = ["--delay", "4ms", "--scenario", "tiny-service", "--duration", "8s"];
    let scratch = Namespace::new("scratch").unwrap();
    if scratch.delay("lo", Duration::from_millis(1)).is_ok() {
        assert_eq!(summary(&arguments)["held"], true);
        return;
    }
    let output = lab(&arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("this machine lacks what a lab needs:\n  delays (netem)"), "{said}");
    assert!(said.contains("modprobe sch_netem"), "{said}");
}

// === labs that run beside each other, and labs that are killed ===

struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    /// Starts a lab with one long act, and waits until its cluster is up.
    fn start(scenario: &Path) -> (Self, PathBuf) {
        let mut command = lab(&["--scenario", scenario.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("--kubeconfig=") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the lab ended before it was up");
        }
        let (_, path) = line.split_once("--kubeconfig=").unwrap();
        let path = PathBuf::from(path.split_whitespace().next().unwrap());
        (Self { child, said }, path)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> (Option<i32>, Value, String) {
        let (mut out, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), json!(out), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LONG: &str = "
title: Long
cluster: {zones: [{name: a, nodes: 1}, {name: b, nodes: 1}]}
services: [{name: web, endpoints: {a: 2, b: 2}, connections: 100}]
acts: [{title: Long, measure: 10m}]
";

fn scenario(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// What the system knows of network namespaces, tables and links of its own.
fn host() -> Vec<String> {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        text(&output.unwrap_or_else(|error| panic!("{program} is needed: {error}")).stdout)
    };
    let names = std::fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let links = std::fs::read_dir("/sys/class/net").unwrap();
    let mut links: Vec<String> =
        links.map(|link| link.unwrap().file_name().into_string().unwrap()).collect();
    links.sort();
    vec![names.to_string(), run("nft", &["list", "tables"]), links.join(" ")]
}

/// One line of `lab clean` about a process.
fn about(cleaned: &Output, pid: u32) -> Vec<String> {
    let said = text(&cleaned.stdout);
    let of = |line: &&str| line.contains(&format!("process {pid}"));
    said.lines().filter(of).map(str::to_owned).collect()
}

#[test]
fn two_labs_beside_each_other_one_killed_the_other_ended() {
    let before = host();
    let file = scenario(LONG);
    let (first, one) = Running::start(file.path());
    let (second, two) = Running::start(file.path());
    assert_ne!(one, two);
    assert_eq!(host(), before, "nothing of a lab has a name on this box");
    let (killed, alive) = (first.child.id(), second.child.id());

    first.signal("-KILL");
    drop(first);
    assert!(one.exists(), "a lab that was killed leaves its directory");
    let cleaned = lab(&["clean"]).output().unwrap();
    assert_eq!(
        about(&cleaned, killed),
        [format!("removed the directory of the lab of process {killed}")]
    );
    assert_eq!(
        about(&cleaned, alive),
        [format!("process {alive} is a lab that runs: left alone (end it with q or Ctrl-C)")]
    );
    assert!(!one.exists() && two.exists());

    second.signal("-TERM");
    let (code, out, said) = second.end();
    assert_eq!(code, Some(1), "an act that was cut short did not hold: {out} {said}");
    assert!(!two.exists() && !Path::new(LABS).join(alive.to_string()).exists());
    assert_eq!(host(), before);
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

/// On a terminal: the screen comes, `q` leaves, and the terminal is as it was.
#[test]
fn a_terminal_shows_the_matrix_and_q_leaves() {
    let line = format!("stty cols 120 rows 40; exec {PROGRAM} lab");
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is needed: apt-get install bsdutils");
    let (mut out, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    let mut chunk = [0; 4096];
    while !text(&seen).contains("zone to zone") {
        let length = out.read(&mut chunk).unwrap();
        assert!(length > 0, "{}", text(&seen));
        seen.extend_from_slice(&chunk[..length]);
    }
    child.stdin.take().unwrap().write_all(b"q").unwrap();
    out.read_to_end(&mut seen).unwrap();
    let status = child.wait().unwrap();
    let shown = text(&seen);
    assert!(status.success(), "{shown}");
    let (_, after) = shown.rsplit_once("\u{1b}[?1049l").expect("the screen of before is back");
    assert!(after.contains("From chance to balance"), "{after}");
}

// === wrong input ===

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_is_wrong_with_a_scenario_is_said_before_anything_is_made() {
    let rows = [
        ("title: x\ncluster: [", ".yaml:2:"),
        (
            &LONG.replace("connections: 100", "connections: 1e9"),
            "connections: 1000000000 per second",
        ),
        (&LONG.replace("b: 2}", "z: 2}"), "there is no zone \"z\" (zones: a, b)"),
        (&LONG.replace("nodes: 1}]", "nodes: 9999}]"), "nodes are more than the 250 that fit"),
        (&LONG.replace("name: web", "name: \"../etc\""), "a name has lower-case letters"),
        (&LONG.replace("measure: 10m", "measure: 10"), "is not a duration"),
        (&LONG.replace("measure: 10m", "measure: 10m, wait: 1s"), "wait"),
        (
            &LONG.replace("measure: 10m", "measure: 10m, expect: {reason: [Nonsense]}"),
            "\"Nonsense\" is not a reason code",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, do: [{drain: {zone: x}}]"),
            "there is no zone \"x\"",
        ),
        (&LONG.replace("connections: 100", "connections: 1e-19"), "is neither 0 nor between"),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{cut: {zone: a}}, {drain: {zone: a}}]",
            ),
            "zone \"a\" is already drained or cut off",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, do: [{restore: {zone: a}}]"),
            "it was not drained or cut off",
        ),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{drain: {zone: a}}, {scale: {service: web, zone: a, to: 1}}]",
            ),
            "restore it first",
        ),
        (
            &LONG.replace("connections: 100", "connections: 100, callers: {z: 1}"),
            "callers: there is no zone \"z\" (zones: a, b)",
        ),
        (
            &LONG.replace("connections: 100", "connections: 100, callers: {a: -1}"),
            "callers: -1 of zone \"a\" is not between 0 and 1000",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, do: [{callers: {a: 0}}]"),
            "callers: no zone makes connections",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, do: [{callers: {}}]"),
            "callers: name a zone",
        ),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{unchanged: {span: 9s, atMost: 5s}}]",
            ),
            "unchanged: a span of 9s does not fit into 5s",
        ),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{unchanged: {span: 9s, atMost: 2h}}]",
            ),
            "unchanged: atMost 2h0m0s is longer than an hour",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, beside: [{inZone: {atLeast: 1%}}]"),
            "beside: name the Service",
        ),
        (
            &LONG.replace("measure: 10m", "measure: 10m, beside: [{service: webb}]"),
            "there is no Service \"webb\"",
        ),
        ("title: empty\ncluster: {zones: []}\nservices: []\nacts: []\n", "at least one zone"),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{scale: {service: web, zone: a, to: -1}}]",
            ),
            "not a whole number, 0 or more",
        ),
        (
            &LONG.replace(
                "connections: 100",
                "connections: 100, annotations: {zonewise.dev/routing-preference: zonewise.dev/balancd}",
            ),
            "did you mean `zonewise.dev/balanced`?",
        ),
        (
            &LONG.replace(
                "measure: 10m",
                "measure: 10m, do: [{distribute: {service: web, value: PreferNear}}]",
            ),
            "trafficDistribution=PreferNear",
        ),
    ];
    for (content, expected) in rows {
        let file = scenario(content);
        let output = lab(&["--scenario", file.path().to_str().unwrap(), "--duration", "1s"])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {said}");
        assert!(said.contains(expected), "{content}: {said}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let rows: [(&[&str], i32, &str); 8] = [
        (
            &["--scenario", "nonsense"],
            2,
            "not a built-in scenario (story, hot-zone, hot-zone-measured, tiny-service, node-churn, subsets)",
        ),
        (&["--duration", "soon"], 2, "is not a duration"),
        (&["--nodes", "100", "--duration", "1s"], 2, "300 nodes are more than the 250"),
        (&["--zones", "0", "--duration", "1s"], 2, "--zones 0: not between 1 and 26"),
        (&["--zones", "1", "--duration", "1s"], 2, "without an endpoint: play it with more zones"),
        (&["exec", "a", "--lab", "1", "--", "true"], 1, "no lab runs in process 1"),
        (
            &["--api", "/nowhere/kubeconfig", "--duration", "1s"],
            1,
            "cannot use the kubeconfig /nowhere/kubeconfig",
        ),
        (
            &["--scenario", "hot-zone-measured", "--api", "/nowhere/kubeconfig"],
            1,
            "this scenario measures demand, for which the lab makes a token at its own API server: leave out --api",
        ),
    ];
    for (arguments, code, expected) in rows {
        let output = lab(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn whoever_is_not_root_is_told_what_to_do() {
    let output = rootless::forbidden(&["lab", "--kernel", "real", "--duration", "1s"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "a lab on this machine's kernel needs root here: the setting user.max_user_namespaces=0 forbids";
    assert!(said.contains(why) && said.contains("--duration 1s"), "{said}");
    assert!(said.contains("\n  sudo /"), "{said}");
    assert!(said.contains("stay as they are"), "{said}");
}
