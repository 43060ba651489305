//! The summary, and rows, as comma-separated values.

use std::io::{self, Write};

use crate::dataset::csv::quote;
use crate::evaluate::{RowEncoder, RowOutcome, RowView};
use crate::summary::{HeuristicSummary, Summary};

/// Writes the summary: one line per heuristic, means with six decimals.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "heuristic,rows,valid,invalid,failed,fell_back,mean_score,mean_in_zone_score,\
         mean_deviation_score,mean_slice_score,mean_max_deviation_pct,mean_limit,mean_distance,\
         min_score,max_score,min_in_zone_score,min_deviation_score,min_slice_score,\
         largest_max_deviation_pct,rows_at_largest"
    )?;
    summary.heuristics.iter().try_for_each(|heuristic| line(summary.rows, heuristic, out))
}

fn line(rows: u64, summary: &HeuristicSummary, out: &mut dyn Write) -> io::Result<()> {
    let HeuristicSummary { valid, invalid, failed, .. } = *summary;
    let name = quote(&summary.heuristic);
    write!(out, "{name},{rows},{valid},{invalid},{failed},{}", summary.fallbacks())?;
    if valid == 0 {
        return writeln!(out, ",,,,,,,,,,,,,,");
    }
    let means = [
        &summary.score,
        &summary.in_zone,
        &summary.deviation,
        &summary.slice,
        &summary.max_deviation,
        &summary.limit,
        &summary.distance,
    ];
    for column in means {
        write!(out, ",{:.6}", column.mean(valid))?;
    }
    writeln!(
        out,
        ",{},{},{},{},{},{},{}",
        summary.score.min,
        summary.score.max,
        summary.in_zone.min,
        summary.deviation.min,
        summary.slice.min,
        summary.max_deviation.max,
        summary.max_deviation.at_max
    )
}

/// Rows as the evaluation tool prints them. With several heuristics a first column tells which.
pub struct CsvRows<W> {
    out: W,
    several: bool,
}

impl<W: Write> CsvRows<W> {
    /// Writes the header.
    pub fn new(mut out: W, several: bool) -> io::Result<Self> {
        let first = if several { "heuristic," } else { "" };
        writeln!(out, "{first}name,{}", RowOutcome::COLUMNS.join(","))?;
        Ok(Self { out, several })
    }
}

impl<W: Write + Sync> RowEncoder for CsvRows<W> {
    type Part = Vec<u8>;
    const WANTED: bool = true;

    fn begin(&self) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&self, part: &mut Vec<u8>, row: &RowView<'_>) {
        if self.several {
            part.extend_from_slice(quote(row.heuristic).as_bytes());
            part.push(b',');
        }
        part.extend_from_slice(quote(row.name).as_bytes());
        match row.outcome.values() {
            Some(values) => {
                for value in values {
                    part.push(b',');
                    value.append_to(part);
                }
            }
            None => {
                let invalid = row.outcome == RowOutcome::Invalid;
                let word = if invalid { ",invalid" } else { ",error" };
                part.extend_from_slice(word.repeat(RowOutcome::COLUMNS.len()).as_bytes());
            }
        }
        part.push(b'\n');
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        self.out.write_all(&part)
    }
}
