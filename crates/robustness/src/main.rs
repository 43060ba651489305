//! Runs seeds of the simulation: `make simulate-faults SEEDS=0..1000`.
#![allow(clippy::print_stdout, reason = "histories go to standard output")]

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use parking_lot::Mutex;
use zonewise_robustness::{Outcome, RunPlan, run};

/// Runs controllers, proxies, API server and kernels in a simulation with faults, once per seed.
///
/// A seed in which something does not hold is printed with all that happened, and the exit code is 1. The same seed
/// always has the same history.
#[derive(Parser)]
#[command(name = "simulate-faults")]
struct Arguments {
    /// A seed, or a range of seeds without its end (example: 0..1000)
    #[arg(default_value = "0..1000")]
    seeds: Seeds,
    /// How many things happen in each run
    #[arg(long, default_value_t = RunPlan::default().steps)]
    steps: u32,
    /// Print the history of every seed, not only of those that fail
    #[arg(long)]
    history: bool,
}

#[derive(Clone, Copy)]
struct Seeds {
    first: u64,
    end: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse().map_err(|_| format!("`{text}` is not a seed (examples: 7, 0..1000)"))
        };
        match text.split_once("..") {
            None => number(text).map(|seed: u64| Self { first: seed, end: seed.saturating_add(1) }),
            Some((first, end)) => {
                let seeds = Self { first: number(first)?, end: number(end)? };
                let some = seeds.first < seeds.end;
                some.then_some(seeds)
                    .ok_or_else(|| format!("`{text}` has no seed (example: 0..1000)"))
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let failed = Mutex::new(Vec::new());
    let next = AtomicU64::new(arguments.seeds.first);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let outcome = run(seed, RunPlan { steps: arguments.steps });
                    if arguments.history || outcome.violation.is_some() {
                        println!("{outcome}");
                    }
                    failed.lock().extend(failure(outcome));
                }
            });
        }
    });
    let (failed, tried) = (failed.into_inner(), arguments.seeds.end - arguments.seeds.first);
    println!("{tried} seeds, {} failed", failed.len());
    failed.iter().for_each(|failure| println!("  {failure}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A line about a run that failed.
fn failure(outcome: Outcome) -> Option<String> {
    outcome.violation.map(|violation| format!("seed {}: {violation}", outcome.seed))
}
