//! `plan` and `explain` over the dump of a large cluster: time and memory, against the aims.
//!
//! ```text
//!  10,000 Services, 150,000 Pods, 300 Nodes ─► dump.json, dump.yaml ─► zonewise plan, explain
//! ```
//!
//! Run with `ZONEWISE_BINARY=target/release/zonewise cargo test --workspace --bench dumps`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and a failed unwrap is its failure report"
)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zonewise_testbed::Process;

const SERVICES: usize = 10_000;
const PODS_PER_SERVICE: usize = 15;
const SERVICES_PER_NAMESPACE: usize = 50;
const NODES: usize = 300;

/// What is aimed at.
const SECONDS: f64 = 5.0;
const MEGABYTES: f64 = 500.0;

fn main() {
    let Some(program) = std::env::var_os("ZONEWISE_BINARY").map(PathBuf::from) else {
        // `cargo test` runs benchmarks too; without a release build there is nothing to measure.
        println!("set ZONEWISE_BINARY to a release build to run this benchmark (make bench does)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("dump.json");
    write_json(&json);
    let yaml = folder.path().join("dump.yaml");
    write_yaml(&yaml);
    println!("{SERVICES} Services, {} Pods, {NODES} Nodes", SERVICES * PODS_PER_SERVICE);
    println!(
        "{:<34} {:>8} {:>10} {:>10} {:>12} {:>12}",
        "command", "MB read", "seconds", "peak MB", "of 5 s", "of 500 MB"
    );
    for (name, file) in [("JSON", &json), ("YAML", &yaml)] {
        let file = file.to_str().unwrap();
        measure(&program, name, &["plan", "-f", file], folder.path());
        measure(&program, name, &["plan", "-f", file, "-o", "json"], folder.path());
        measure(&program, name, &["explain", "-f", file], folder.path());
    }
}

fn measure(program: &Path, name: &str, arguments: &[&str], folder: &Path) {
    let begin = Instant::now();
    let mut process = Process::spawn(program, arguments, &[], &folder.join("log")).unwrap();
    let mut peak = 0;
    let status = loop {
        peak = process.peak_rss_bytes().unwrap_or(0).max(peak);
        if let Some(status) = process.ended().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let seconds = begin.elapsed().as_secs_f64();
    assert!(status.success(), "{}", process.log_tail());
    let (peak, read) =
        (peak as f64 / 1e6, Path::new(arguments[2]).metadata().unwrap().len() as f64 / 1e6);
    let shown = arguments
        .iter()
        .filter(|part| !part.starts_with('/'))
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    println!(
        "{:<34} {read:>8.0} {seconds:>10.2} {peak:>10.0} {:>11.2}x {:>11.2}x",
        format!("{shown} {name}"),
        seconds / SECONDS,
        peak / MEGABYTES
    );
}

/// The objects as a cluster would hold them, one by one.
fn objects() -> impl Iterator<Item = Value> {
    let nodes = (0..NODES).map(node);
    let services = (0..SERVICES).map(service);
    let pods = (0..SERVICES * PODS_PER_SERVICE).map(pod);
    nodes.chain(services).chain(pods)
}

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number}"), "labels": {"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": format!("zone-{}", number % 3)}},
        "status": {"allocatable": {"cpu": "15890m", "memory": "60Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn service(number: usize) -> Value {
    let asked = match number % 3 {
        0 => json!({"service.kubernetes.io/topology-mode": "Auto"}),
        1 => json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"}),
        _ => json!({}),
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("app-{number}"), "namespace": namespace(number), "uid": uid(1, number), "annotations": asked},
        "spec": {"clusterIP": format!("10.{}.{}.{}", 96 + number / 65_536, number / 256 % 256, number % 256), "ipFamilies": ["IPv4"], "selector": {"app": format!("app-{number}")}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}], "type": "ClusterIP"},
    })
}

fn pod(number: usize) -> Value {
    let service = number / PODS_PER_SERVICE;
    let app = format!("app-{service}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{app}-{}", number % PODS_PER_SERVICE), "namespace": namespace(service), "uid": uid(2, number), "labels": {"app": app, "pod-template-hash": "6d5f8c7b9"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": format!("node-{}", number % NODES), "containers": [{"name": "main", "image": "example.com/main:1", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}], "restartPolicy": "Always"},
        "status": {"phase": "Running", "podIP": ip(number), "podIPs": [{"ip": ip(number)}], "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]},
    })
}

fn namespace(service: usize) -> String {
    format!("team-{}", service / SERVICES_PER_NAMESPACE)
}

fn uid(kind: usize, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

fn ip(number: usize) -> String {
    format!("10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256)
}

fn write_json(path: &Path) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    out.write_all(b"{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[").unwrap();
    for (number, object) in objects().enumerate() {
        let comma = if number == 0 { "\n" } else { ",\n" };
        write!(out, "{comma}{object}").unwrap();
    }
    out.write_all(b"]}\n").unwrap();
    out.flush().unwrap();
}

fn write_yaml(path: &Path) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    out.write_all(b"apiVersion: v1\nitems:\n").unwrap();
    for object in objects() {
        let text = zonewise_explain::screens::yaml(&object).unwrap();
        for (number, line) in text.lines().enumerate() {
            writeln!(out, "{}{line}", if number == 0 { "- " } else { "  " }).unwrap();
        }
    }
    out.write_all(b"kind: List\n").unwrap();
    out.flush().unwrap();
}
