//! The lab on a kernel in memory: the same story, and the same shares as stored slices and as the real kernel.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::run::{PROGRAM, Running, lab, outline, scenario, story, summary, text};

#[test]
fn the_story_holds_on_a_kernel_in_memory() {
    let summary = summary(&["--kernel", "memory", "--duration", "8s"]);
    assert_eq!(outline(&summary), story());
    assert_eq!(summary["kernel"], "memory");
}

/// Shares of zones that need weights: two draws for every connection.
const UNEVEN: &str = "
title: Uneven
cluster: {zones: [{name: a, nodes: 2}, {name: b, nodes: 1}, {name: c, nodes: 1}]}
services:
  - name: web
    endpoints: {a: 2, b: 3, c: 2}
    connections: 800
    annotations: {zonewise.dev/routing-preference: zonewise.dev/balanced}
acts:
  - title: Uneven
    measure: 4s
    expect: {overload: {atMost: 2%}, reason: [SharesBalanced]}
";

/// What a run counted, and what `zonewise route --matrix` computed from the slices that were stored then.
struct Run {
    counted: Vec<Vec<f64>>,
    computed: Vec<Vec<f64>>,
}

const ZONES: [&str; 3] = ["a", "b", "c"];

fn run(kernel: &str) -> Run {
    let file = scenario(UNEVEN);
    let path = file.path().to_str().unwrap();
    let mut command = lab(&["--kernel", kernel, "--scenario", path, "-o", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("--kubeconfig=") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the lab ended before it was up");
    }
    let (_, rest) = line.split_once("--kubeconfig=").unwrap();
    let kubeconfig = PathBuf::from(rest.split_whitespace().next().unwrap());
    let running = Running { child, said };
    let computed = computed(&kubeconfig);
    let (code, out, said) = running.end();
    let summary: Value = serde_json::from_str(out.as_str().unwrap()).unwrap();
    assert_eq!(code, Some(0), "{kernel}: {summary:#} {said}");
    assert_eq!((&summary["kernel"], &summary["failed"]), (&kernel.into(), &0.into()));
    let rows = summary["acts"][0]["matrix"]["connections"].as_array().unwrap();
    let numbers = |row: &Value| -> Vec<f64> {
        row.as_array().unwrap().iter().map(|count| count.as_f64().unwrap()).collect()
    };
    Run { counted: rows.iter().map(numbers).collect(), computed }
}

/// The shares that lead from each zone to each, by the slices that are stored. The controller writes them a moment after the
/// Service was made, so they are read until they are there and stay the same.
fn computed(kubeconfig: &Path) -> Vec<Vec<f64>> {
    let (mut before, mut told) = (Vec::new(), String::new());
    for _ in 0..100 {
        let output = Command::new(PROGRAM)
            .args(["route", "--matrix", "--service", "default/web", "-o", "json"])
            .args(["--as-if", "controller,proxy", "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .unwrap();
        told = format!("{} {}", text(&output.stdout), text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = document["matrices"][0]["from"].as_array().cloned().unwrap_or_default();
        let share = |row: &Value, zone: &str| row["to"][zone].as_f64().unwrap_or(0.0);
        let row = |row: &Value| ZONES.iter().map(|zone| share(row, zone)).collect();
        let now: Vec<Vec<f64>> = rows.iter().map(row).collect();
        let has_shares =
            rows.len() == ZONES.len() && rows.iter().any(|row| row["mode"] == "shares");
        if has_shares && now == before {
            return now;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(300));
    }
    panic!("no shares are stored: {told}");
}

/// Four standard deviations of a share that is counted among so many connections.
fn chance(share: f64, connections: f64) -> f64 {
    4.0 * (share * (1.0 - share) / connections).sqrt()
}

/// Both kernels lead the parts of each zone's connections to each zone that the stored slices ask for. Weights are exact to 1 %.
#[test]
fn both_kernels_follow_the_stored_slices() {
    const ROUNDED: f64 = 0.01;
    let [memory, real] = ["memory", "real"].map(run);
    assert_eq!(memory.computed, real.computed, "the same controller, the same objects");
    for (kernel, run) in [("memory", &memory), ("real", &real)] {
        for (from, row) in run.counted.iter().enumerate() {
            let all: f64 = row.iter().sum();
            for (to, count) in row.iter().enumerate() {
                let (expected, found) = (run.computed[from][to], count / all);
                let context =
                    format!("{kernel}, {} to {}: {found} of {expected}", ZONES[from], ZONES[to]);
                assert!((found - expected).abs() <= chance(expected, all) + ROUNDED, "{context}");
                let is_used = expected > 0.0;
                assert_eq!(*count > 0.0, is_used, "{context}");
            }
        }
    }
}

/// What a kernel in memory does not have is said before anything is made.
#[test]
fn what_needs_the_real_kernel_says_so() {
    let rows: [(&[&str], i32, &str); 3] = [
        (
            &["--kernel", "memory", "--delay", "2ms"],
            2,
            "there is no delay between zones: play it with --kernel real",
        ),
        (
            &["--kernel", "memory", "--scenario", "hot-zone-measured"],
            2,
            "there is no measured demand: play it with --kernel real",
        ),
        (&["--kernel", "imaginary"], 2, "possible values: auto, real, memory"),
    ];
    for (arguments, code, expected) in rows {
        let output = lab(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
