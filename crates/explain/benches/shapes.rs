//! `explain` of one Service in clusters with many zones: objects as JSON in, the document and the
//! screen out, with proxies, advice and losses.
//!
//! Run with `cargo bench --package zonewise-explain --bench shapes`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and a failed unwrap is its failure report"
)]

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use zonewise_explain::input::{self, Options};
use zonewise_explain::screens::{self, Width};
use zonewise_explain::{Depth, Environment, Planner, ProxyKind, SnapshotBuilder, explain};
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

/// Numbers of zones, and the seconds that are aimed at.
const SHAPES: [(usize, f64); 3] = [(3, 0.1), (100, 0.5), (400, 3.0)];

/// What the Service asks for, and the Pods in a zone.
const ASKED: [(&str, &str, usize); 6] = [
    ("Auto, in force", "Auto", 3),
    ("Auto, too few endpoints", "Auto", 0),
    ("balanced", "zonewise.dev/balanced", 2),
    ("Zone", "Zone", 2),
    ("local-shared", "zonewise.dev/local-shared", 2),
    ("local-subset", "zonewise.dev/local-subset", 6),
];

fn main() {
    // `cargo test` runs benchmarks too, without this argument and without optimisation.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("run this benchmark with cargo bench");
        return;
    }
    println!("{:<26} {:>6} {:>8} {:>9} {:>10}", "asked", "zones", "reason", "seconds", "of aim");
    for (name, value, pods) in ASKED {
        for (zones, aim) in SHAPES {
            let dump = dump(value, zones, pods);
            let begin = Instant::now();
            let (reason, bytes) = explained(&dump);
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "{name:<26} {zones:>6} {reason} {seconds:>9.3} {:>9.2}x ({bytes} B)",
                seconds / aim
            );
        }
    }
}

/// The reason, and the size of the document and the screen.
fn explained(dump: &str) -> (String, usize) {
    let mut builder = SnapshotBuilder::default();
    let options = Options { keep_json: true };
    input::read("dump", dump.as_bytes(), &options, &mut |item| builder.add(item), &|_| ()).unwrap();
    let (snapshot, _) = builder.finish(MissingCpu::Refuse);
    let planner = Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::Refuse,
        depth: Depth::Full,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    };
    let service = Arc::clone(snapshot.services().next().unwrap());
    let view = planner.controller_view(&snapshot, &service);
    let decision = view.decide();
    let proxies = snapshot.proxy_view(&service);
    let explained = explain(&view, &decision, &proxies, &planner).unwrap();
    let document = serde_json::to_string(&explained).unwrap();
    let screen = screens::explanation(&explained, &planner.environment, Width::Usual);
    (explained.numbers.reason.to_string(), document.len() + screen.len())
}

/// Two nodes in every zone, of different size from zone to zone; so many Pods in every zone, and a few
/// more in some.
fn dump(asked: &str, zones: usize, pods: usize) -> String {
    let annotations = match asked {
        "Auto" => json!({"service.kubernetes.io/topology-mode": "Auto"}),
        _ => json!({"zonewise.dev/routing-preference": asked}),
    };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "annotations": annotations},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    })];
    for zone in 0..zones {
        for number in 0..2 {
            objects.push(node(zone, number));
        }
        for _ in 0..pods + usize::from(zone % 3 == 0) {
            objects.push(pod(objects.len(), zone));
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

fn node(zone: usize, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("n{zone}-{number}"), "labels": {"topology.kubernetes.io/zone": format!("zone-{zone:03}")}},
        "status": {"allocatable": {"cpu": format!("{}m", 8000 + zone * 5)}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(number: usize, zone: usize) -> Value {
    let ip = format!("10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("pod-{number}"), "labels": {"app": "web"}},
        "spec": {"nodeName": format!("n{zone}-{}", number % 2), "containers": []},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
