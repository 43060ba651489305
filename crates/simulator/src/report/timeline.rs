//! Timelines as table, CSV and JSON.

use std::io::{self, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use zonewise_common::document::Document;
use zonewise_topology::words::{fine_percent, grouped_count};

use super::Format;
use crate::dataset::csv::quote;
use crate::timeline::scenario::Scenario;
use crate::timeline::{StepResult, TimelineResult};

#[derive(Serialize)]
struct Content<'a> {
    scenario: &'a str,
    heuristics: &'a [TimelineResult],
}

/// Writes the results of a scenario. Only table, CSV and JSON show steps.
pub fn write(
    scenario: &Scenario,
    results: &[TimelineResult],
    format: Format,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Csv => csv(results, out),
        Format::Json => {
            let content = Content { scenario: &scenario.title, heuristics: results };
            let document = Document::new("Timeline", content);
            serde_json::to_writer_pretty(&mut *out, &document)?;
            writeln!(out)
        }
        Format::Table | Format::Html | Format::Parquet => table(scenario, results, out),
    }
}

fn table(scenario: &Scenario, results: &[TimelineResult], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "heuristic",
        "moved",
        "flips",
        "written",
        "in-zone",
        "largest overload",
        "active",
        "unserved",
        "then written",
        "then in-zone",
        "then overload",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for result in results {
        table.add_row([
            result.heuristic.escape_debug().to_string(),
            result.moved.to_string(),
            result.flips.to_string(),
            result.groups_written.to_string(),
            fine_percent(result.mean_in_zone),
            fine_percent(result.largest_overload),
            format!("{}/{}", result.steps_in_force, result.steps.len()),
            result.steps_invalid.to_string(),
            result.quiet.groups_written.to_string(),
            fine_percent(result.quiet.in_zone),
            fine_percent(result.quiet.max_overload),
        ]);
    }
    let steps = grouped_count(scenario.steps.len() as u64, "step");
    writeln!(out, "{}: {steps}", scenario.title.escape_debug())?;
    writeln!(out, "{table}")?;
    writeln!(
        out,
        "moved: endpoints that stayed but now serve other zones; flips: zone routing went on or off;\n\
         written: slices (at most 100 endpoints each) written; active: steps with zone routing on;\n\
         unserved: steps without endpoints or nodes; in-zone: mean over the other steps;\n\
         then: once nothing changes any more; reference: the controller of Kubernetes with topology-mode Auto."
    )
}

fn csv(results: &[TimelineResult], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "heuristic,step,endpoints,arrived,departed,moved,flipped,groups_written,in_zone,max_overload,reason"
    )?;
    for result in results {
        for step in result.steps.iter().chain([&result.quiet]) {
            line(&result.heuristic, step, out)?;
        }
    }
    Ok(())
}

fn line(heuristic: &str, step: &StepResult, out: &mut dyn Write) -> io::Result<()> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{}",
        quote(heuristic),
        quote(&step.step),
        step.endpoints,
        step.arrived,
        step.departed,
        step.moved,
        step.flipped,
        step.groups_written,
        number(step.in_zone),
        number(step.max_overload),
        step.reason
    )
}
