//! `zonewise lab` as people run it: the story, a second lab beside the first, one that is killed, and everything that may
//! be typed wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

mod memory;
mod rootless;
pub(crate) mod run;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use zonewise_netns::Namespace;
use zonewise_testbed::{User, objects};

use crate::nodes::plain_cluster;
use run::{LONG, PROGRAM, Running, lab, outline, scenario, story, summary, text};

const LABS: &str = "/run/zonewise-lab";

#[test]
fn the_story_holds_on_the_embedded_api_server() {
    assert_eq!(outline(&summary(&["--duration", "20s"])), story());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_others_use_is_refused() {
    let cluster = plain_cluster().await;
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
