//! The screen of `zonewise explain` for all Services.

use std::collections::BTreeSet;

use super::table::table;
use super::{BOLD, WARN, Width, clean, maybe_percent, paint};
use crate::explanation::Note;
use crate::overview::ServiceOverview;

/// The heuristics that have a column unless all are shown.
const SHOWN: [&str; 3] = ["auto", "same-zone", "balanced"];

/// Marks a Service with annotations or fields that are ignored.
const MARK: &str = "!";

/// The table, and the sum of all costs.
pub fn overview(lines: &[ServiceOverview], width: Width) -> String {
    let heuristics = heuristics(lines, width);
    let title = |name: &&str| format!("{} (MODEL)", name.to_uppercase());
    let titles: Vec<String> = heuristics.iter().map(title).collect();
    let mut header = vec!["SERVICE", "ASKED", "MODE", "REASON", "ENDPOINTS", "IN ZONE", "CROSSES"];
    header.extend(titles.iter().map(String::as_str));
    header.push("BEST SAFE");
    let priced = lines.iter().any(|line| line.cost.is_some());
    if priced {
        header.extend(["COST", "AT BEST"]);
    }
    let rows = lines.iter().map(|line| row(line, &heuristics, priced)).collect();
    let mut text = table(&header, 4, rows) + "\n";
    for line in lines {
        line.ignored.iter().for_each(|note| text.push_str(&ignored(&line.service, note)));
    }
    if priced {
        text.push_str(&format!("\n{}\n", paint(BOLD, &sum(lines))));
    }
    text
}

/// The line below the table about a key that is ignored.
fn ignored(service: &str, note: &Note) -> String {
    let (key, value) = (clean(&note.source), clean(&note.value));
    let mark = paint(WARN, MARK);
    format!("{mark} {}: {key} = {value}: {}\n", clean(service), clean(&note.sentence))
}

fn heuristics(lines: &[ServiceOverview], width: Width) -> Vec<&str> {
    if width == Width::Usual {
        return SHOWN.to_vec();
    }
    let all: BTreeSet<&str> =
        lines.iter().flat_map(|line| line.by_heuristic.keys()).map(|name| &**name).collect();
    all.into_iter().collect()
}

fn row(line: &ServiceOverview, heuristics: &[&str], priced: bool) -> Vec<String> {
    let modes = if line.modes.is_empty() { "-".into() } else { line.modes.join(",") };
    let mark = if line.ignored.is_empty() { String::new() } else { format!(" {MARK}") };
    let mut cells = vec![
        line.service.clone(),
        format!("{}{mark}", line.asked),
        modes,
        line.reason.to_string(),
        line.endpoints.to_string(),
        maybe_percent(line.in_zone),
        maybe_percent(line.cross_zone),
    ];
    let score = |name: &&str| maybe_percent(line.by_heuristic.get(*name).copied());
    cells.extend(heuristics.iter().map(score));
    cells.push(maybe_percent(line.best));
    if priced {
        let money = |of: fn(&crate::overview::Cost) -> f64| {
            line.cost.as_ref().map_or_else(|| "-".into(), |cost| format!("{:.2}", of(cost)))
        };
        cells.extend([money(|cost| cost.now), money(|cost| cost.best)]);
    }
    cells
}

fn sum(lines: &[ServiceOverview]) -> String {
    let costs = || lines.iter().filter_map(|line| line.cost.as_ref());
    let (now, best): (f64, f64) =
        (costs().map(|cost| cost.now).sum(), costs().map(|cost| cost.best).sum());
    format!(
        "per month: {now:.2} for traffic that crosses zones, {best:.2} at best, {:.2} can be saved",
        now - best
    )
}
