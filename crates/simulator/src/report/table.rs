//! The summary for people.

use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use zonewise_topology::words::grouped_count;

use super::percent_of;
use crate::summary::{HeuristicSummary, Summary};

const HEADER: [&str; 9] = [
    "heuristic",
    "score",
    "in-zone",
    "overload",
    "slices",
    "gap to the optimum",
    "worst score",
    "largest overload",
    "fell back",
];

/// Writes it.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADER);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for heuristic in &summary.heuristics {
        table.add_row(row(heuristic));
    }
    writeln!(
        out,
        "{} of {}",
        grouped_count(summary.rows, "input"),
        summary.dataset.escape_debug()
    )?;
    writeln!(out, "{table}")?;
    footnotes(summary, out)
}

fn row(heuristic: &HeuristicSummary) -> Vec<String> {
    let name = heuristic.heuristic.escape_debug().to_string();
    let valid = heuristic.valid;
    if valid == 0 {
        let mut row = vec![name];
        row.resize(HEADER.len(), String::from("-"));
        return row;
    }
    let mean = |column: &crate::summary::Column| format!("{:.2}", column.mean(valid));
    let all = valid + heuristic.invalid + heuristic.failed;
    vec![
        name,
        mean(&heuristic.score),
        mean(&heuristic.in_zone),
        mean(&heuristic.deviation),
        mean(&heuristic.slice),
        mean(&heuristic.distance),
        format!("{:.2}", heuristic.score.min.to_f64()),
        format!("{:.2} %", heuristic.max_deviation.max.to_f64()),
        percent_of(heuristic.fallbacks(), all),
    ]
}

fn footnotes(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let most = summary.heuristics.iter().max_by_key(|heuristic| heuristic.valid);
    if let Some(most) = most.filter(|heuristic| heuristic.valid > 0) {
        let limit = most.limit.mean(most.valid);
        writeln!(
            out,
            "Average scores (0–100). Score = 45 % in-zone + 40 % overload + 15 % slices. The optimum, the best\n\
             that any router could score on these inputs, is {limit:.2}."
        )?;
    }
    for heuristic in &summary.heuristics {
        let name = heuristic.heuristic.escape_debug();
        if heuristic.invalid > 0 {
            let inputs = grouped_count(heuristic.invalid, "input");
            writeln!(out, "{name}: {inputs} with a zone that reaches no endpoint (invalid)")?;
        }
        if heuristic.failed > 0 {
            writeln!(out, "{name}: {} failed", grouped_count(heuristic.failed, "input"))?;
        }
    }
    if summary.left_out > 0 {
        writeln!(
            out,
            "{} left out because they could not be read",
            grouped_count(summary.left_out, "row")
        )?;
    }
    Ok(())
}
