//! The summary, and rows with their groups, as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use zonewise_common::document::{API_VERSION, Document};
use zonewise_topology::reason::{Code, Reason};

use crate::dataset::{Cell, Problem};
use crate::decimal::Decimal;
use crate::evaluate::{RowEncoder, RowOutcome, RowView};
use crate::summary::{Column, HeuristicSummary, Summary};

/// Writes the summary as one document.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document::new("Simulation", Content::new(summary)))?;
    writeln!(out)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    dataset: &'a str,
    zones: &'a [String],
    rows: u64,
    left_out: u64,
    problems: Vec<ProblemLine<'a>>,
    heuristics: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct ProblemLine<'a> {
    place: &'a str,
    message: &'a str,
}

impl<'a> Content<'a> {
    fn new(summary: &'a Summary) -> Self {
        let line =
            |problem: &'a Problem| ProblemLine { place: &problem.place, message: &problem.message };
        Self {
            dataset: &summary.dataset,
            zones: &summary.zones,
            rows: summary.rows,
            left_out: summary.left_out,
            problems: summary.problems.iter().map(line).collect(),
            heuristics: summary.heuristics.iter().map(Line::new).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    heuristic: &'a str,
    valid: u64,
    invalid: u64,
    failed: u64,
    fell_back: u64,
    score: Option<Stats>,
    in_zone: Option<Stats>,
    deviation: Option<Stats>,
    slice: Option<Stats>,
    max_deviation_pct: Option<Stats>,
    rows_at_largest_max_deviation: u64,
    limit: Option<Stats>,
    distance: Option<Stats>,
    reasons: BTreeMap<Code, u64>,
    /// Rows per whole point of score: below 0, then from 0 to 100.
    histogram: &'a [u64],
    worst: Vec<Worst<'a>>,
}

#[derive(Serialize)]
struct Stats {
    mean: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Worst<'a> {
    name: &'a str,
    row: u64,
    score: f64,
    zones: &'a [Cell],
    reason: &'a str,
}

impl<'a> Line<'a> {
    fn new(summary: &'a HeuristicSummary) -> Self {
        let valid = summary.valid;
        let stats = |column: &Column| {
            (valid > 0).then(|| Stats {
                mean: six_decimals(column.mean(valid)),
                min: column.min.to_f64(),
                max: column.max.to_f64(),
            })
        };
        let worst = summary.worst.iter().map(|row| Worst {
            name: &row.name,
            row: row.row,
            score: row.score.to_f64(),
            zones: &row.cells,
            reason: &row.reason,
        });
        Self {
            heuristic: &summary.heuristic,
            valid,
            invalid: summary.invalid,
            failed: summary.failed,
            fell_back: summary.fallbacks(),
            score: stats(&summary.score),
            in_zone: stats(&summary.in_zone),
            deviation: stats(&summary.deviation),
            slice: stats(&summary.slice),
            max_deviation_pct: stats(&summary.max_deviation),
            rows_at_largest_max_deviation: summary.max_deviation.at_max,
            limit: stats(&summary.limit),
            distance: stats(&summary.distance),
            reasons: summary.reasons().into_iter().collect(),
            histogram: &summary.histogram,
            worst: worst.collect(),
        }
    }
}

fn six_decimals(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Rows as one JSON document, one row per line, written as they come.
pub struct JsonRows<W> {
    out: W,
    any: bool,
}

impl<W: Write> JsonRows<W> {
    /// Begins the document.
    pub fn new(mut out: W) -> io::Result<Self> {
        write!(out, "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"SimulationRows\",\"rows\":[")?;
        Ok(Self { out, any: false })
    }

    /// Ends the document.
    pub fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    name: &'a str,
    heuristic: &'a str,
    outcome: &'static str,
    #[serde(flatten)]
    scores: Option<RowScores>,
    reason: &'a Reason,
    slices: u64,
    groups: Vec<Group>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RowScores {
    score: f64,
    in_zone_score: f64,
    deviation_score: f64,
    slice_score: f64,
    max_deviation_pct: f64,
    mean_deviation_pct: f64,
    sd_of_deviation: f64,
    limit: f64,
    distance: f64,
}

#[derive(Serialize)]
struct Group {
    label: String,
    endpoints: BTreeMap<String, u64>,
    weights: BTreeMap<String, f64>,
}

impl<'a> Row<'a> {
    fn new(view: &'a RowView<'_>) -> Self {
        let (outcome, scores) = match view.outcome {
            RowOutcome::Scored { printed, mean_deviation, deviation_spread } => (
                "scored",
                Some(RowScores {
                    score: printed.score.to_f64(),
                    in_zone_score: printed.in_zone.to_f64(),
                    deviation_score: printed.deviation.to_f64(),
                    slice_score: printed.slice.to_f64(),
                    max_deviation_pct: printed.max_deviation.to_f64(),
                    mean_deviation_pct: mean_deviation.to_f64(),
                    sd_of_deviation: deviation_spread.to_f64(),
                    limit: printed.limit.to_f64(),
                    distance: Decimal::to_f64(printed.distance()),
                }),
            ),
            RowOutcome::Invalid => ("invalid", None),
            RowOutcome::Failed => ("error", None),
        };
        let failed = view.outcome == RowOutcome::Failed;
        Self {
            name: view.name,
            heuristic: view.heuristic,
            outcome,
            scores,
            reason: &view.reason,
            slices: if failed { 0 } else { view.allocation.slices() },
            groups: if failed { Vec::new() } else { groups(view) },
        }
    }
}

/// The groups by label; what is zero is left out.
fn groups(view: &RowView<'_>) -> Vec<Group> {
    let allocation = view.allocation;
    let name = |zone: usize| view.zones.get(zone).map_or("", |name| name).to_owned();
    let mut groups: Vec<Group> = allocation
        .groups()
        .iter()
        .enumerate()
        .map(|(index, group)| {
            let contents = allocation.contents_of(index).iter().enumerate();
            let weights = allocation.weights_of(index).iter().enumerate();
            Group {
                label: allocation.label_text(group, view.zones),
                endpoints: contents
                    .filter(|(_, count)| **count > 0)
                    .map(|(zone, &count)| (name(zone), count))
                    .collect(),
                weights: weights
                    .filter(|(_, weight)| **weight != 0.0)
                    .map(|(zone, &weight)| (name(zone), weight))
                    .collect(),
            }
        })
        .collect();
    groups.sort_by(|a, b| a.label.cmp(&b.label));
    groups
}

impl<W: Write + Sync> RowEncoder for JsonRows<W> {
    type Part = Vec<u8>;
    const WANTED: bool = true;

    fn begin(&self) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&self, part: &mut Vec<u8>, row: &RowView<'_>) {
        part.extend_from_slice(b",\n");
        // Strings, numbers and maps with string keys, into a Vec: this cannot fail.
        let _ = serde_json::to_writer(part, &Row::new(row));
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let skip = usize::from(!self.any);
        self.any = true;
        self.out.write_all(&part[skip..])
    }
}
