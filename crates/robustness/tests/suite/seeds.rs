//! Seeds: everything holds, and the same seed has the same history.

use std::sync::atomic::{AtomicU64, Ordering};

use zonewise_robustness::{RunPlan, run};

/// How many seeds `make test` tries, and how long each run is.
const FEW: (u64, RunPlan) = (100, RunPlan { steps: 12 });
/// The most that `make test-long` tries.
const MOST: u64 = 10_000;

fn seeds() -> (u64, RunPlan) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    cases.map_or(FEW, |cases: u64| (cases.min(MOST), RunPlan::default()))
}

#[test]
fn everything_holds_for_every_seed() {
    let ((count, plan), next) = (seeds(), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return;
            }
            let outcome = run(seed, plan);
            assert!(outcome.violation.is_none(), "{outcome}");
        }
    };
    std::thread::scope(|scope| [(); 2].map(|()| scope.spawn(work)).map(drop));
}

#[test]
fn the_same_seed_has_the_same_history() {
    for seed in [1, 12] {
        let (first, second) = (run(seed, RunPlan::default()), run(seed, RunPlan::default()));
        let differs = first.history.iter().zip(&second.history).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first, second);
        assert!(first.history.len() > 100, "{first}");
    }
}
