//! A sample of seeds beside real kernels, so that those in memory stay true.

use zonewise_netns::Namespace;
use zonewise_robustness::{RealKernel, RunPlan, run_beside};

/// A kernel's tables in a network namespace of their own.
fn real_kernel() -> RealKernel {
    let namespace = Namespace::new("kernel").expect("network namespaces; this test needs root");
    Box::new(move |work| namespace.enter(work))
}

#[test]
fn real_kernels_answer_as_those_in_memory() {
    for seed in 1000..1006 {
        let kernels = [(); 3].map(|()| real_kernel()).into();
        let outcome = run_beside(seed, RunPlan::default(), kernels);
        assert!(outcome.violation.is_none(), "{outcome}");
    }
}
