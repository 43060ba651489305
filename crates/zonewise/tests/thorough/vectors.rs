//! All recorded vectors of the reference for plans, run through the command as people run it.

#[path = "../suite/vectors/asked.rs"]
mod asked;

use asked::compare::{assert_all, cases};

#[test]
fn plan_ends_the_recorded_sequences_as_recorded() {
    assert_all(&asked::planned(cases()));
}

#[test]
fn b2_plan_gives_hints_as_the_reference_does() {
    let decisions = asked::decisions();
    assert_eq!(decisions.len(), 2000);
    asked::hints_are_as_recorded(&decisions);
}
