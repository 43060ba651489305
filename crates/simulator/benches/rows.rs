//! Inputs per second on one thread, per heuristic, on a slice of the large data set.

#![allow(missing_docs, reason = "the benchmark macros make items without documentation")]

use std::hint::black_box;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use zonewise_simulator::dataset::Dataset;
use zonewise_simulator::evaluate::{Choice, NoRows, Options, Shard, evaluate};
use zonewise_topology::heuristics;

/// One of so many shards: 77 chunks spread evenly over the large set.
const SHARDS: u64 = 500;
const ROWS: u64 = 77 * 1024;

fn rows_per_second(criterion: &mut Criterion) {
    // All work on this thread: inputs per second are inputs per CPU-second.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    let mut group = criterion.benchmark_group("inputs");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10).sampling_mode(SamplingMode::Flat);
    let options =
        Options { shard: Shard { index: 1, count: SHARDS }, strict: false, progress: &|_| {} };
    for name in heuristics::names() {
        let choices: Vec<Choice> = Choice::parse(name).into_iter().collect();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let dataset = Dataset::builtin("kep-large")?;
                black_box(evaluate(dataset, &choices, &options, &mut NoRows).ok())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, rows_per_second);
criterion_main!(benches);
