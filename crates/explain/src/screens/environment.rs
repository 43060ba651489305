//! What runs in the cluster, in a line or two; and Services whose slices the controller does not write.

use super::{BOLD, DIM, WARN, Width, clean, fit, matrix, paint};
use crate::environment::{Environment, FactSource, RunState};
use crate::unmanaged::Unmanaged;
use crate::verdict::{State, Verdict};

/// What runs, and how to say what cannot be seen.
pub fn environment(environment: &Environment, width: Width) -> String {
    fit(&seen(environment), width)
}

fn seen(environment: &Environment) -> String {
    let summary = paint(DIM, &format!("here: {}", clean(&environment.summary())));
    let unseen = environment.controller.state == RunState::Unknown;
    match environment.source {
        FactSource::Files if unseen => format!(
            "{summary}\n{}",
            paint(DIM, "      --as-if controller,proxy answers as if zonewise ran there")
        ),
        _ => summary,
    }
}

/// Who decides what a plan contains, and whether that controller runs.
pub fn planned_by(here: &Environment, width: Width) -> String {
    let name = here.decider.name();
    let line = if here.has_decider() {
        format!("what {name} writes")
    } else {
        format!("what {name} would write if it ran here")
    };
    headed(&line, here, width)
}

/// The same for guard mode, which writes no slices.
pub fn planned_for_guard(here: &Environment, width: Width) -> String {
    let puts = if here.has_controller() { "puts" } else { "would put" };
    let line =
        format!("what guard mode {puts} into the slices that the built-in controller writes");
    headed(&line, here, width)
}

fn headed(line: &str, here: &Environment, width: Width) -> String {
    format!("{}\n{}", paint(BOLD, line), environment(here, width))
}

/// The verdict and its reason: the first two lines about a Service.
pub(super) fn verdict(service: &str, verdict: &Verdict) -> String {
    let style = match verdict.state {
        State::Active => super::GOOD,
        State::NotActive | State::NotApplicable => BOLD,
        State::PartlyActive | State::Local | State::Unknown => WARN,
    };
    format!(
        "{}\nwhy: {}",
        paint(style, &format!("{}: {}", clean(service), clean(&verdict.sentence))),
        clean(&verdict.why)
    )
}

/// The screen of a Service whose slices the controller does not write.
pub fn unmanaged(unmanaged: &Unmanaged, here: &Environment, width: Width) -> String {
    let slices = match unmanaged.slices.as_slice() {
        [] => "none".into(),
        names => clean(&names.join(", ")),
    };
    let traffic = unmanaged.traffic.as_ref();
    let traffic = traffic.map_or_else(String::new, |one| format!("\n{}", matrix(one, width)));
    let first = format!(
        "{}\n{}\n\nslices of others: {slices}\n",
        verdict(&unmanaged.service, &unmanaged.verdict),
        seen(here)
    );
    fit(&first, width) + &traffic
}
