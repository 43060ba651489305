//! Inputs per second on one thread, per heuristic, on a slice of the large data set: the median of five turns.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops when it cannot go on"
)]

use std::hint::black_box;
use std::time::Instant;

use zonewise_simulator::dataset::Dataset;
use zonewise_simulator::evaluate::{Choice, NoRows, Options, Shard, evaluate};
use zonewise_topology::heuristics;

/// Number of shards that the large set is divided into: each has 77 chunks, spread evenly over it.
const SHARDS: u64 = 500;
const ROWS: u64 = 77 * 1024;
/// Measurements of each heuristic, in turns, so that a busy moment of the machine is shared by all.
const TURNS: usize = 5;

/// Inputs per second of one evaluation.
fn measure(choices: &[Choice]) -> f64 {
    let options =
        Options { shard: Shard { index: 1, count: SHARDS }, strict: false, progress: &|_| {} };
    let start = Instant::now();
    let dataset = Dataset::builtin("kep-large").unwrap();
    black_box(evaluate(dataset, choices, &options, &mut NoRows).unwrap());
    ROWS as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    // All work on this thread: inputs per second are inputs per CPU-second.
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().unwrap();
    let choices: Vec<_> = heuristics::names()
        .into_iter()
        .map(|name| (name, vec![Choice::parse(name).unwrap()]))
        .collect();
    let mut rates = vec![Vec::new(); choices.len()];
    for _ in 0..TURNS {
        for ((_, choices), rates) in choices.iter().zip(&mut rates) {
            rates.push(measure(choices));
        }
    }
    for ((name, _), mut rates) in choices.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name:<18} {:>12.0} inputs per second", rates[TURNS / 2]);
    }
}
