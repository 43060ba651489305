//! The recorded vectors of the reference, run through the commands as people run them. A process takes as long to start as
//! a hundred decisions, so here a sample of the plans is asked of it; `thorough` asks all of them. The functions behind the
//! command prove every vector: `recorded::recorded_sequences_end_as_recorded` of the crate `slices` and
//! `auto_golden::b2_b3_recorded_decisions_of_the_reference` of the crate `topology`.

mod asked;

use asked::compare::{assert_each, cases};

/// One of so many vectors is in a sample.
const ONE_OF: usize = 20;

#[test]
fn plan_ends_a_sample_of_the_recorded_sequences_as_recorded() {
    let sample: Vec<_> = cases().into_iter().step_by(ONE_OF).collect();
    assert_eq!(sample.len(), 15);
    assert_each(&asked::planned(sample));
}

#[test]
fn b2_plan_gives_hints_as_the_reference_does_in_a_sample() {
    let sample: Vec<_> = asked::decisions().into_iter().step_by(ONE_OF).collect();
    assert_eq!(sample.len(), 100);
    asked::hints_are_as_recorded(&sample);
}

#[test]
fn d1_d3_d4_b10_route_uses_the_endpoints_the_reference_uses() {
    let choices = asked::choices();
    assert_eq!(choices.len(), 2000);
    asked::endpoints_are_as_recorded(&choices);
}
