//! The part of the screen of `zonewise explain` about measured demand.

use zonewise_demand::shares::{Held, PRIOR, ZoneDemand};
use zonewise_topology::reason::NOTHING_TO_DO;

use super::table::{fitted, narrower};
use super::{
    DIM, GOOD, WARN, Width, clean, counted, maybe_percent, paint, percent, signed_percent, time,
};
use crate::demand::{Demand, EndpointLoad, IfMeasured};

/// The number of endpoints that are named; the others are counted.
const NAMED: usize = 5;

/// The lines of the section.
pub(super) fn demand(demand: &Demand, width: Width) -> String {
    let colour = if demand.is_in_force() { GOOD } else { WARN };
    let code = paint(colour, &demand.reason.to_string());
    let mut lines = vec![format!("{code}: {} ({})", demand.sentence, demand.docs)];
    if demand.remedy != NOTHING_TO_DO && !demand.is_in_force() {
        lines.push(paint(DIM, demand.remedy));
    }
    lines.push(sample(demand));
    lines.extend(demand.held.map(|held| held_because(held).to_owned()));
    lines.push(rewrites(demand));
    lines.push(zones(demand, width));
    lines.extend(demand.if_measured.iter().flat_map(if_measured));
    lines.join("\n")
}

/// One line about a Service, for plans of many.
pub fn demand_line(service: &str, demand: &Demand) -> String {
    format!("demand of {}: {}: {}", clean(service), demand.reason, demand.sentence)
}

fn sample(demand: &Demand) -> String {
    let counted = counted(demand.sample, "connection");
    let weight = percent(demand.weight);
    let mut line = format!("{counted} remembered, weight {weight} (CPU counts as {PRIOR})");
    if let Some(age) = demand.age {
        line.push_str(&format!("; counted {} ago", time(age)));
    }
    if let Some(decided) = demand.decided {
        line.push_str(&format!(", decided {} ago", time(decided)));
    }
    line
}

fn held_because(held: Held) -> &'static str {
    match held {
        Held::SmallDifference => "the rest of the way to the target is not worth a rewrite",
        Held::ChangeLimit => "on the way to the target: shares may not change faster",
        Held::RewriteLimit => {
            "on the way to the target: there were too many rewrites lately, so the next one waits"
        }
    }
}

fn rewrites(demand: &Demand) -> String {
    let lately = counted(demand.rewrites_in_last_hour, "rewrite");
    match demand.rewrites_left {
        Some(left) => format!("{lately} in the last hour, {} more allowed at once", left.floor()),
        None => format!("{lately} in the last hour"),
    }
}

fn zones(demand: &Demand, width: Width) -> String {
    let mut header = vec!["ZONE", "BY CPU", "MEASURED", "TARGET", "IN FORCE"];
    let loads = demand.if_measured.as_ref();
    if loads.is_some() {
        header.extend(["OVERLOAD", "IF MEASURED"]);
    }
    let row = |zone: &ZoneDemand| {
        let mut cells = vec![
            zone.zone.to_string(),
            percent(zone.model),
            maybe_percent(zone.measured),
            percent(zone.target),
            percent(zone.in_force),
        ];
        if let Some(loads) = loads {
            let of_zone = loads.zones.iter().find(|load| *load.zone == *zone.zone);
            let cell = |load: Option<f64>| load.map_or_else(|| "-".into(), signed_percent);
            cells.push(cell(of_zone.map(|load| load.overload.in_force)));
            cells.push(cell(of_zone.map(|load| load.overload.if_measured)));
        }
        cells
    };
    let rows = demand.zones.iter().map(row).collect();
    fitted(&header, 1, rows, narrower(width, super::explanation::INDENT))
}

/// What would change if the measured shares were used as they are.
fn if_measured(change: &IfMeasured) -> Vec<String> {
    if change.endpoints.is_empty() {
        return vec![
            "with the measured shares as they are, no endpoint would get noticeably more or less"
                .into(),
        ];
    }
    let load = |load: &EndpointLoad| {
        let (now, then) = (load.overload.in_force, load.overload.if_measured);
        let word = if then > now { "more" } else { "less" };
        let (endpoint, zone) = (clean(&load.endpoint), clean(&load.zone));
        format!(
            "  {endpoint} in {zone} {word}: {} instead of {}",
            signed_percent(then),
            signed_percent(now)
        )
    };
    let in_zone = change.in_zone;
    let mut lines = vec![format!(
        "with the measured shares as they are, {} would stay in its zone instead of {}, and of the load, compared with the fair share, would get",
        maybe_percent(in_zone.if_measured),
        maybe_percent(in_zone.in_force)
    )];
    lines.extend(change.endpoints.iter().take(NAMED).map(load));
    let more = change.endpoints_in_all.saturating_sub(NAMED);
    if more > 0 {
        lines.push(format!("  and {more} more endpoints"));
    }
    lines
}
