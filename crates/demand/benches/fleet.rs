//! The arithmetic of a large cluster: the reports of 5,000 nodes are read, added up, and decided by. No connection is made.
//!
//! ```text
//!  cargo bench --package zonewise-demand --bench fleet
//! ```
#![allow(clippy::print_stdout, reason = "the table is the product")]
#![allow(clippy::print_stderr, reason = "a run takes a minute and must show that it moves")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use zonewise_demand::Millis;
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_demand::state::State;
use zonewise_demand::window::{MAX_SERVICES, Window};
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NODES: usize = 5_000;
const SERVICES: usize = 10_000;
/// Services that a node uses: as usual, and all of them.
const USED: [usize; 2] = [200, SERVICES];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Between two rounds of questions.
const PERIOD: Millis = 15_000;
const START: Millis = 1_763_430_000_000;

fn service(number: usize) -> Box<str> {
    format!("namespace-{:03}/service-with-a-name-{number:05}", number % 100).into()
}

fn zone_of(node: usize) -> &'static str {
    ZONES[node % ZONES.len()]
}

/// The report of a node in a round. The Services of nodes overlap: a node uses every so many.
fn report(node: usize, used: usize, round: u64) -> Result<String> {
    let step = SERVICES / used;
    let services = (0..used).map(|n| {
        let number = (node + n * step) % SERVICES;
        let counted = |zone: usize| {
            let connections = 1_000 * round + ((node + number + zone) % 97) as u64;
            Counts { connections, bytes_to: 400 * connections, bytes_from: 8_000 * connections }
        };
        let zones = ZONES.iter().enumerate().map(|(zone, name)| ((*name).into(), counted(zone)));
        (service(number), zones.collect::<BTreeMap<_, _>>())
    });
    let report = Report {
        version: VERSION,
        node: name(node),
        zone: zone_of(node).into(),
        started: 1,
        sequence: round,
        services: services.collect(),
        failed: BTreeMap::new(),
        unassigned: 0,
    };
    Ok(report.write()?)
}

fn name(node: usize) -> Box<str> {
    format!("node-{node:04}").into()
}

/// What a round costs.
#[derive(Default)]
struct Cost {
    bytes: usize,
    read: Duration,
    decided: Duration,
    text: usize,
    kibibytes: f64,
}

fn timed<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    *spent += begun.elapsed();
    result
}

/// Resident memory of this process.
fn kibibytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(number.parse()?)
}

/// The second round: the first is a baseline.
fn cost(used: usize) -> Result<Cost> {
    let names: Vec<Box<str>> = (0..NODES).map(name).collect();
    let capacities: Vec<NodeCapacity<'_>> = (0..NODES)
        .map(|node| NodeCapacity {
            name: &names[node],
            zone: Some(zone_of(node)),
            cpu_milli: Some(16_000),
            ready: true,
            control_plane: false,
        })
        .collect();
    let model = Capacity::of(&capacities, MissingCpu::Refuse);
    let before = kibibytes()?;
    let (mut window, mut state) = (Window::new(), State::default());
    let measured: Vec<Box<str>> = (0..SERVICES).map(service).collect();
    window.set_services(measured.iter().map(|name| &**name));
    window.set_nodes(&capacities);
    let mut cost = Cost::default();
    for round in 1..=2 {
        let now = START + round * PERIOD;
        cost = Cost::default();
        for (node, name) in names.iter().enumerate() {
            let text = report(node, used, round)?;
            cost.bytes += text.len();
            timed(&mut cost.read, || -> Result<()> {
                Ok(window.add(name, &Report::read(text.as_bytes())?, now)?)
            })?;
        }
        timed(&mut cost.decided, || state.decide(&model, &window.measure(&model, now), now));
    }
    cost.kibibytes = kibibytes()? - before;
    cost.text = state.encode().len();
    Ok(cost)
}

fn main() -> Result<()> {
    eprintln!("reports of {NODES} nodes");
    let costs = USED.map(cost).into_iter().collect::<Result<Vec<_>>>()?;
    let mebibytes = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
    let row = |what: &str, figure: &dyn Fn(&Cost) -> String| {
        let figures: String = costs.iter().map(|cost| format!(" {:>10} |", figure(cost))).collect();
        println!("| {what:<33} |{figures}");
    };
    let period = PERIOD as f64 / 1000.0;
    let of_a_core = |cost: &Cost| (cost.read + cost.decided).as_secs_f64() / period;
    println!(
        "{NODES} nodes, {SERVICES} Services of which {MAX_SERVICES} are measured, {} zones\n",
        ZONES.len()
    );
    let [usual, most] = USED;
    println!("| Services that a node uses         | {usual:>10} | {most:>10} |");
    println!("|-----------------------------------|-----------:|-----------:|");
    row("an answer", &|cost| format!("{:.1} kB", cost.bytes as f64 / NODES as f64 / 1000.0));
    row("answers, per second", &|cost| mebibytes(cost.bytes as f64 / period));
    row("reading and adding an answer", &|cost| {
        format!("{:.2} ms", cost.read.as_secs_f64() * 1000.0 / NODES as f64)
    });
    row("deciding, once in 15 s", &|cost| format!("{:.0} ms", cost.decided.as_secs_f64() * 1000.0));
    row("CPU of one core", &|cost| format!("{:.1} %", 100.0 * of_a_core(cost)));
    row("memory for counters and decisions", &|cost| mebibytes(cost.kibibytes * 1024.0));
    row("stored text", &|cost| mebibytes(cost.text as f64));
    Ok(())
}
