//! Nanoseconds per endpoint that `auto` hints cost: compared with a plan without hints, and with the time
//! that the reference takes for hints, measured in the same run.
//!
//! `make bench` builds a program that runs the reference's code and passes its path as `HINTS_PEER`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and stops when it cannot go on"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

/// Pods, two thirds of them in the first zone, as in the reference's program.
fn pods(count: usize) -> Vec<Arc<Pod>> {
    let zone = |n: usize| if n % 3 == 2 { ["b", "c"][n % 2] } else { "a" };
    let pod = |n: usize| {
        let ip = format!("10.0.{}.{}", n / 250, n % 250);
        let json = json!({
            "metadata": {"name": format!("pod-{n:05}"), "namespace": "ns", "uid": format!("uid-{n}")},
            "spec": {"nodeName": format!("node-{}", zone(n))},
            "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
        });
        Arc::new(serde_json::from_value(json).unwrap())
    };
    (0..count).map(pod).collect()
}

fn nodes() -> Nodes {
    let node = |(index, zone): (usize, &str)| -> Node {
        let json = json!({
            "metadata": {"name": format!("node-{zone}"), "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": (4 + index).to_string()}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        serde_json::from_value(json).unwrap()
    };
    let nodes: Vec<Node> = ["a", "b", "c"].into_iter().enumerate().map(node).collect();
    let by_name: BTreeMap<Name, Node> =
        nodes.into_iter().map(|node| (Name::clone(&node.name), node)).collect();
    Nodes::new(by_name, MissingCpu::Refuse)
}

fn service(mode: &str) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "annotations": {"service.kubernetes.io/topology-mode": mode}},
        "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"port": 80}]},
    }))
    .unwrap()
}

/// The plan of a Service that has no slices yet.
fn first_plan(service: &Service, pods: &[Arc<Pod>], nodes: &Nodes, settings: &Settings) -> Plan {
    let input =
        Input { service, pods, slices: &[], nodes, trigger: None, populated: true, quiet: false };
    plan(&input, &requested_routing(service, settings), settings)
}

/// Nanoseconds per endpoint of a first plan.
fn measure(endpoints: usize, mode: &str, upstream: bool) -> f64 {
    let (pods, nodes, service) = (pods(endpoints), nodes(), service(mode));
    let settings = Settings { upstream, ..Settings::default() };
    let rounds = 2_000_000 / endpoints;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(first_plan(&service, &pods, &nodes, &settings));
    }
    start.elapsed().as_nanos() as f64 / (rounds * endpoints) as f64
}

fn peer(endpoints: usize) -> Option<f64> {
    let program = std::env::var_os("HINTS_PEER")?;
    let output = Command::new(program).arg(endpoints.to_string()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// The JSON bytes that hints and zone shares add (requirement B19).
fn sizes() {
    let bytes = |annotation: (&str, &str)| -> (usize, usize) {
        let mut service = service("Disabled");
        service.annotations = std::iter::once(annotation).collect();
        let (pods, nodes, settings) = (pods(100), nodes(), Settings::default());
        let mut plan = first_plan(&service, &pods, &nodes, &settings);
        let slice = plan.families.remove(0).creates.remove(0);
        let shares = slice.annotations.get("zonewise.dev/zone-shares").map_or(0, str::len);
        (serde_json::to_string(&slice).unwrap().len(), shares)
    };
    let (plain, _) = bytes(("", ""));
    let (auto, _) = bytes(("service.kubernetes.io/topology-mode", "Auto"));
    let (_, shares) = bytes(("zonewise.dev/routing-preference", "zonewise.dev/balanced"));
    println!("\nJSON bytes, 100 endpoints in 3 zones with names of one letter");
    println!(
        "| slice without topology, per endpoint | hints add, per endpoint | zone shares add, per slice |"
    );
    println!("|---|---|---|");
    println!("| {} | {:.0} | {shares} |", plain / 100, (auto - plain) as f64 / 100.0);
}

fn main() {
    sizes();
    println!("ns per endpoint, first plan of a Service (hints = with hints - without)");
    println!(
        "| endpoints | plan without hints | with auto | hints | as the reference assigns | reference, hints alone | hints / reference |"
    );
    println!("|---|---|---|---|---|---|---|");
    for endpoints in [20, 100, 1000] {
        let plain = measure(endpoints, "Disabled", false);
        let auto = measure(endpoints, "Auto", false);
        let upstream = measure(endpoints, "Auto", true) - measure(endpoints, "Disabled", true);
        let peer = peer(endpoints);
        let theirs = peer.map_or("not measured".into(), |peer| format!("{peer:.0}"));
        let ratio = peer.map_or("-".into(), |peer| format!("{:.2}", (auto - plain) / peer));
        println!(
            "| {endpoints} | {plain:.0} | {auto:.0} | {:.0} | {upstream:.0} | {theirs} | {ratio} |",
            auto - plain
        );
    }
}
