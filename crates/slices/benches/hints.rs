//! What `auto` hints cost: the first plan of a Service, and the plan after one endpoint of many has changed,
//! each beside the reference. Both take turns, and medians are printed.
//!
//! ```text
//!              ours                                          reference
//!  hints alone a plan with hints less one without            TopologyCache.AddHints
//!  whole       plan: endpoints from Pods, comparing with     Reconciler.Reconcile, with a client that answers
//!              what is stored, deciding, packing             every write at once
//! ```
//!
//! `make bench` builds a program that runs the reference's code and passes its path as `HINTS_PEER`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark prints, and stops when it cannot go on"
)]

mod service;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use service::Prepared;

/// How often each measurement takes its turn.
const REPEATS: usize = 9;
/// How long a measurement takes.
const PERIOD: Duration = Duration::from_millis(60);

/// Nanoseconds per plan.
fn measure(prepared: &Prepared) -> f64 {
    let start = Instant::now();
    let mut plans = 0;
    while start.elapsed() < PERIOD {
        black_box(prepared.plan(plans));
        plans += 1;
    }
    start.elapsed().as_nanos() as f64 / plans as f64
}

/// Nanoseconds that the reference takes.
fn peer(situation: &str, part: &str, endpoints: usize) -> Option<f64> {
    let program = std::env::var_os("HINTS_PEER")?;
    let arguments = [situation, part, &endpoints.to_string()];
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The figures of one situation, in nanoseconds.
#[derive(Default)]
struct Figures {
    plain: Vec<f64>,
    auto: Vec<f64>,
    hints: Vec<f64>,
    upstream: Vec<f64>,
    peer_hints: Vec<f64>,
    peer_whole: Vec<f64>,
}

impl Figures {
    fn of(situation: &str, prepare: fn(&str, usize, bool) -> Prepared, endpoints: usize) -> Self {
        let [plain, auto, upstream] = [("Disabled", false), ("Auto", false), ("Auto", true)]
            .map(|(mode, upstream)| prepare(mode, endpoints, upstream));
        let mut figures = Self::default();
        for _ in 0..REPEATS {
            let (without, with) = (measure(&plain), measure(&auto));
            figures.plain.push(without);
            figures.auto.push(with);
            figures.hints.push(with - without);
            figures.upstream.push(measure(&upstream));
            figures.peer_hints.extend(peer(situation, "hints", endpoints));
            figures.peer_whole.extend(peer(situation, "whole", endpoints));
        }
        figures
    }

    fn row(&self, situation: &str, endpoints: usize) -> String {
        let own = |values: &[f64]| format!("{:.1}", median(values) / 1e3);
        let theirs = |values: &[f64], ours: &[f64]| {
            if values.is_empty() {
                return "not measured | -".into();
            }
            let times = median(values) / median(ours);
            format!("{:.1} | {times:.1}", median(values) / 1e3)
        };
        format!(
            "| {situation} | {endpoints} | {} | {} | {} | {} | {} | {} |",
            own(&self.plain),
            own(&self.auto),
            own(&self.upstream),
            theirs(&self.peer_whole, &self.auto),
            own(&self.hints),
            theirs(&self.peer_hints, &self.hints),
        )
    }
}

/// The JSON bytes that hints and zone shares add (requirement B19).
fn sizes() {
    let bytes = |annotation: (&str, &str)| -> (usize, usize) {
        let mut prepared = Prepared::first("Disabled", 100, false);
        prepared.service.annotations = std::iter::once(annotation).collect();
        let slice = prepared.plan(0).families.remove(0).creates.remove(0);
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
    println!("\nMicroseconds, medians of {REPEATS} turns");
    println!(
        "| plan | endpoints | without hints | with auto | with --compat upstream | reference | times faster | hints alone | reference | times faster |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for endpoints in [20, 100, 1000] {
        let figures = Figures::of("first", Prepared::first, endpoints);
        println!("{}", figures.row("first", endpoints));
    }
    for endpoints in [20, 100, 1000] {
        let figures = Figures::of("changed", Prepared::changed, endpoints);
        println!("{}", figures.row("one changed", endpoints));
    }
}
