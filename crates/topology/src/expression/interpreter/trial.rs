//! A few regions that every expression is tried on before it is accepted.
//!
//! Types are checked before; what is left are failures that depend on the data: a list that is too
//! short, a division by zero, a negative share. Some of that may be meant (`zones[1]` cannot be
//! where there is one zone only), so an expression is refused when it works nowhere.

use super::evaluate::{Failure, Input, Program, names_for};
use super::problem::Problem;
use super::refusal;
use crate::number::to_f64;
use crate::reason::Fault;
use crate::region::{Region, Zone};

/// Endpoints per zone: three zones, one, none at all, no endpoints, a zone without, and many.
const REGIONS: [&[u64]; 6] = [
    &[4, 4, 4],
    &[3],
    &[],
    &[0, 0, 0],
    &[5, 0, 2],
    &[83, 84, 83, 84, 83, 84, 83, 84, 83, 84, 83, 82],
];

/// Tries an expression; the first problem if it works nowhere.
pub(super) fn run(program: &Program) -> Result<(), Problem> {
    let mut first = None;
    for endpoints in REGIONS {
        match attempt(program, endpoints) {
            Ok(()) => return Ok(()),
            Err(failure) => first = first.or_else(|| problem(program, failure)),
        }
    }
    first.map_or(Ok(()), Err)
}

fn attempt(program: &Program, endpoints: &[u64]) -> Result<(), Failure> {
    let share = 1.0 / to_f64(endpoints.len() as u64);
    let zones: Vec<Zone> =
        endpoints.iter().map(|&endpoints| Zone { share, nodes: 2, endpoints }).collect();
    let region = Region::of(&zones);
    if let Some(reason) = refusal(program, &region) {
        return Err(reason.into());
    }
    let names = names_for(&[], &region);
    match program.run(&Input { region: &region, names: &names, pinpoint: true }) {
        Ok(_) => Ok(()),
        // Real zones have other names.
        Err(failure) if failure.fault() == Some(Fault::UnknownZone) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// What to report; nothing about regions on which no expression is evaluated.
fn problem(program: &Program, failure: Failure) -> Option<Problem> {
    let fault = failure.fault()?;
    let whole = || Problem::at(program.syntax.start(), fault.to_string());
    let Problem { offset, message } = failure.problem.unwrap_or_else(whole);
    Some(Problem { offset, message: format!("never works: {message}") })
}
