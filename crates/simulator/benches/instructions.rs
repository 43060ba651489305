//! Instructions per input: allocation, traffic and score of 1,024 inputs (one chunk of the large
//! data set's shape), per heuristic. Divide by 1,024 for one input.

#![allow(missing_docs, reason = "the benchmark macros make items without documentation")]
#![allow(clippy::disallowed_methods, reason = "the benchmark macros end the process themselves")]

use std::hint::black_box;

use gungraun::prelude::*;
use zonewise_simulator::dataset::random::Random;
use zonewise_simulator::dataset::ranges::NumberRange;
use zonewise_simulator::dataset::{CHUNK_ROWS, Columns, Dataset};
use zonewise_simulator::evaluate::{Choice, NoRows, Options, Shard, evaluate};
use zonewise_simulator::summary::Summary;

/// Everything on this thread: instructions of other threads are not counted.
fn setup(label: &str) -> (Dataset, Vec<Choice>) {
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    let random = Random {
        zones: 3,
        nodes: NumberRange::new(1, 10),
        endpoints: NumberRange::new(0, 100),
        rows: CHUNK_ROWS,
        seed: 1,
    };
    let dataset = Dataset::indexed("bench", Columns::numbered(3), Box::new(random));
    (dataset, Choice::parse(label).into_iter().collect())
}

#[library_benchmark(setup = setup)]
#[bench::random("random")]
#[bench::local("local")]
#[bench::local_shared("local-shared")]
#[bench::local_weighted("local-weighted")]
#[bench::local_opt("local-opt")]
#[bench::shared_global("shared-global")]
#[bench::shared_multizone("shared-multizone")]
#[bench::auto("auto")]
#[bench::local_subset("local-subset")]
#[bench::balanced("balanced")]
#[bench::balanced_hints("balanced-hints")]
fn inputs((dataset, choices): (Dataset, Vec<Choice>)) -> Option<Summary> {
    let options = Options { shard: Shard::WHOLE, strict: false, progress: &|_| {} };
    black_box(evaluate(dataset, &choices, &options, &mut NoRows).ok())
}

library_benchmark_group!(name = per_heuristic, benchmarks = inputs);
main!(library_benchmark_groups = per_heuristic);
