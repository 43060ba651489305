//! Instructions of a plan, which are the same on a busy machine as on an idle one: the first plan of a Service
//! with 1,000 endpoints, and the plan after one of them was replaced (15 plans; divide by 15 for one). What
//! hints cost is the difference between `plain` and the others.

#![allow(missing_docs, reason = "the benchmark macros make items without documentation")]
#![allow(clippy::disallowed_methods, reason = "the benchmark macros end the process themselves")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops when it cannot go on")]

mod service;

use std::hint::black_box;

use gungraun::prelude::*;
use service::{Prepared, TURNS};
use zonewise_slices::plan::Plan;

const ENDPOINTS: usize = 1000;

fn first(mode: &str) -> Prepared {
    Prepared::first(mode, ENDPOINTS, false)
}

fn changed(mode: &str) -> Prepared {
    Prepared::changed(mode, ENDPOINTS, false)
}

#[library_benchmark(setup = first)]
#[bench::plain("Disabled")]
#[bench::auto("Auto")]
#[bench::balanced_hints("zonewise.dev/balanced-hints")]
fn first_plan(prepared: Prepared) -> (Plan, Prepared) {
    (black_box(prepared.plan(0)), prepared)
}

#[library_benchmark(setup = changed)]
#[bench::plain("Disabled")]
#[bench::auto("Auto")]
#[bench::balanced_hints("zonewise.dev/balanced-hints")]
fn one_changed(prepared: Prepared) -> Prepared {
    for turn in 0..TURNS {
        black_box(prepared.plan(turn));
    }
    prepared
}

library_benchmark_group!(name = plans, benchmarks = [first_plan, one_changed]);
main!(library_benchmark_groups = plans);
