//! What subsets save: how many EndpointSlices, and how many bytes of them, one node receives when its proxy
//! starts and while endpoints change, without and with subsets, beside the ideal of one part per zone
//! (KEP-2030).
//!
//! ```text
//!  measured:  the controller's plan ─► kube-apiserver ─► relay (counts bytes) ─► a proxy's watches × 100
//!  computed:  the controller's plan ─► size of the objects × 10,000 Services
//! ```
//!
//! Run with `ZONEWISE_REFERENCE=$(scripts/reference thorough) cargo test --workspace --bench subsets`.
//! `UPDATE_DOCS=1` renews `docs/pictures/subsets.svg`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and a failed unwrap is its failure report"
)]

mod chart;
mod live;
mod model;

use std::path::Path;

use zonewise_testbed::table;
use zonewise_topology::words::grouped;

use live::Live;
use model::Model;

const ZONES: [usize; 5] = [1, 2, 3, 5, 10];
/// The nodes of the cluster that is computed.
const LARGE_NODES: usize = 5_000;

/// What one node receives.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    objects: f64,
    bytes: f64,
}

impl Received {
    fn over(self, other: Self) -> Self {
        Self { objects: self.objects / other.objects, bytes: self.bytes / other.bytes }
    }
}

/// At the start of a proxy, and during 100 changes.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    start: Received,
    changes: Received,
}

/// The same number of zones, without and with subsets.
struct Row {
    zones: usize,
    without: Costs,
    with: Costs,
}

impl Row {
    fn start(&self) -> Received {
        self.with.start.over(self.without.start)
    }

    fn changes(&self) -> Received {
        self.with.changes.over(self.without.changes)
    }
}

fn main() {
    if std::env::var_os("ZONEWISE_REFERENCE").is_none() {
        // `cargo test` runs benchmarks too; without the reference's programs there is nothing to measure.
        println!(
            "set ZONEWISE_REFERENCE to the reference's programs to run this benchmark (make bench does)"
        );
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut measured = Vec::new();
    let mut added = 0.0;
    for zones in ZONES {
        eprintln!("measuring with zones: {zones}");
        let live = runtime.block_on(Live::measure(zones));
        added = live.added_by_the_server;
        measured.push(live.row);
    }
    let computed: Vec<Row> =
        ZONES.iter().map(|zones| Model::large(*zones).row(*zones, added)).collect();
    println!("\nmeasured: {} nodes, {}", live::NODES, Model::small(3).describe());
    print(&measured, live::NODES);
    println!(
        "\ncomputed: {} ({added:.0} bytes of each object are added by the API server)",
        Model::large(3).describe()
    );
    print(&computed, LARGE_NODES);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/subsets.svg");
        std::fs::write(path, chart::svg(&measured, &computed)).unwrap();
    }
}

/// Prints what one node receives, and all of them together.
fn print(rows: &[Row], nodes: usize) {
    let nodes = nodes as f64;
    let header = [
        "zones",
        "start: slices",
        "start: KB",
        "part",
        "100 changes: slices",
        "100 changes: KB",
        "part",
        "ideal",
        "all nodes, start: MB",
        "100 changes: MB",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for row in rows {
        let both = |pick: &dyn Fn(&Costs) -> f64| {
            format!("{} → {}", short(pick(&row.without)), short(pick(&row.with)))
        };
        lines.push(vec![
            row.zones.to_string(),
            both(&|costs| costs.start.objects),
            both(&|costs| costs.start.bytes / 1e3),
            format!("{:.2}", row.start().bytes),
            both(&|costs| costs.changes.objects),
            both(&|costs| costs.changes.bytes / 1e3),
            format!("{:.2}", row.changes().bytes),
            format!("{:.2}", 1.0 / row.zones as f64),
            both(&|costs| costs.start.bytes * nodes / 1e6),
            both(&|costs| costs.changes.bytes * nodes / 1e6),
        ]);
    }
    println!("{}", table::markdown(&lines));
}

/// A number with two digits at least, and groups of three.
fn short(number: f64) -> String {
    match number {
        ..9.95 => format!("{number:.2}"),
        ..99.5 => format!("{number:.1}"),
        _ => grouped(number.round() as u64),
    }
}
