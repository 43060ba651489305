//! What a run found, in a form that can be merged: sums of whole numbers, extremes and counts, so
//! that any division into threads and shards gives the same bytes.

use serde::{Deserialize, Serialize};
use zonewise_topology::reason::{Code, TABLE};

use crate::dataset::{Cell, Problem};
use crate::decimal::{Decimal, SCALE};
use crate::score::Scores;

/// Worst inputs kept per heuristic.
const WORST_KEPT: usize = 5;
/// Problems kept with their text; the others are only counted.
pub(crate) const PROBLEMS_KEPT: usize = 20;
/// Bins of one point of score: below 0, then 0 to 100 inclusive.
pub(crate) const BINS: usize = 102;

/// Sum, smallest and largest of a column of printed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The sum, in ten-thousandths.
    pub sum: i128,
    /// The smallest value.
    pub min: Decimal,
    /// The largest value.
    pub max: Decimal,
    /// Rows that have the largest value.
    pub at_max: u64,
}

impl Default for Column {
    fn default() -> Self {
        Self { sum: 0, min: Decimal(i64::MAX), max: Decimal(i64::MIN), at_max: 0 }
    }
}

impl Column {
    #[inline]
    fn add(&mut self, value: Decimal) {
        self.sum += i128::from(value.0);
        self.min = self.min.min(value);
        if value > self.max {
            self.max = value;
            self.at_max = 0;
        }
        self.at_max += u64::from(value == self.max);
    }

    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        let at_max = |column: &Self, max| if column.max == max { column.at_max } else { 0 };
        let max = self.max.max(other.max);
        self.at_max = at_max(self, max) + at_max(other, max);
        self.max = max;
    }

    /// The mean over `rows` rows.
    pub fn mean(&self, rows: u64) -> f64 {
        if rows == 0 { 0.0 } else { self.sum as f64 / SCALE as f64 / rows as f64 }
    }
}

/// The printed values of one scored row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Printed {
    /// Total score.
    pub score: Decimal,
    /// In-zone score.
    pub in_zone: Decimal,
    /// Deviation score.
    pub deviation: Decimal,
    /// Slice score.
    pub slice: Decimal,
    /// Largest overload, percent.
    pub max_deviation: Decimal,
    /// The best score possible.
    pub limit: Decimal,
}

impl Printed {
    /// Rounds scores as they are printed.
    #[inline]
    pub fn new(scores: &Scores, limit: Decimal) -> Self {
        Self {
            score: Decimal::round(scores.total),
            in_zone: Decimal::round(scores.in_zone),
            deviation: Decimal::round(scores.deviation),
            slice: Decimal::round(scores.slice),
            max_deviation: Decimal::round(scores.max_deviation),
            limit,
        }
    }

    /// How far the score is from the best possible.
    #[inline]
    pub fn distance(&self) -> Decimal {
        Decimal(self.limit.0.saturating_sub(self.score.0))
    }
}

/// An input that scored badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstRow {
    /// Its score.
    pub score: Decimal,
    /// Its number.
    pub row: u64,
    /// Its name.
    pub name: String,
    /// Its zones, in column order.
    pub cells: Vec<Cell>,
    /// Why it was routed as it was.
    pub reason: String,
}

impl WorstRow {
    /// A row whose name and cells are still to be filled in.
    pub fn new(score: Decimal, row: u64, reason: Code) -> Self {
        Self { score, row, name: String::new(), cells: Vec::new(), reason: reason.to_string() }
    }
}

/// What one heuristic did over all rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeuristicSummary {
    /// The heuristic, as asked for.
    pub heuristic: String,
    /// Rows with a score.
    pub valid: u64,
    /// Rows in which some zone reaches no endpoint.
    pub invalid: u64,
    /// Rows for which there is no allocation.
    pub failed: u64,
    /// Rows per reason, in the order of the table of reasons.
    pub reasons: Vec<u64>,
    /// Total score.
    pub score: Column,
    /// In-zone score.
    pub in_zone: Column,
    /// Deviation score.
    pub deviation: Column,
    /// Slice score.
    pub slice: Column,
    /// Largest overload, percent.
    pub max_deviation: Column,
    /// Best score possible.
    pub limit: Column,
    /// Distance of the score from the best possible.
    pub distance: Column,
    /// Rows per whole point of total score.
    pub histogram: Vec<u64>,
    /// The rows with the lowest scores.
    pub worst: Vec<WorstRow>,
}

impl HeuristicSummary {
    /// Nothing seen yet.
    pub fn new(heuristic: &str) -> Self {
        Self {
            heuristic: heuristic.to_owned(),
            valid: 0,
            invalid: 0,
            failed: 0,
            reasons: vec![0; TABLE.len()],
            score: Column::default(),
            in_zone: Column::default(),
            deviation: Column::default(),
            slice: Column::default(),
            max_deviation: Column::default(),
            limit: Column::default(),
            distance: Column::default(),
            histogram: vec![0; BINS],
            worst: Vec::new(),
        }
    }

    /// Adds a scored row.
    #[inline]
    pub fn add(&mut self, printed: &Printed) {
        self.valid += 1;
        self.score.add(printed.score);
        self.in_zone.add(printed.in_zone);
        self.deviation.add(printed.deviation);
        self.slice.add(printed.slice);
        self.max_deviation.add(printed.max_deviation);
        self.limit.add(printed.limit);
        self.distance.add(printed.distance());
        let points = printed.score.0.div_euclid(SCALE).clamp(-1, BINS as i64 - 2);
        self.histogram[(points + 1) as usize] += 1;
    }

    /// Whether a row with this score belongs to the worst. Equal scores: the earlier row stays.
    #[inline]
    pub(crate) fn is_among_worst(&self, score: Decimal) -> bool {
        self.worst.len() < WORST_KEPT || self.worst.last().is_some_and(|last| score < last.score)
    }

    /// Adds a row to the worst.
    pub(crate) fn add_worst(&mut self, row: WorstRow) {
        let place =
            self.worst.partition_point(|known| (known.score, known.row) <= (row.score, row.row));
        self.worst.insert(place, row);
        self.worst.truncate(WORST_KEPT);
    }

    /// Adds what was found elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.valid += other.valid;
        self.invalid += other.invalid;
        self.failed += other.failed;
        add_each(&mut self.reasons, &other.reasons);
        add_each(&mut self.histogram, &other.histogram);
        self.score.merge(&other.score);
        self.in_zone.merge(&other.in_zone);
        self.deviation.merge(&other.deviation);
        self.slice.merge(&other.slice);
        self.max_deviation.merge(&other.max_deviation);
        self.limit.merge(&other.limit);
        self.distance.merge(&other.distance);
        for row in other.worst {
            self.add_worst(row);
        }
    }

    /// Rows per reason, most frequent first.
    pub fn reasons(&self) -> Vec<(Code, u64)> {
        let mut reasons: Vec<(Code, u64)> = TABLE
            .iter()
            .map(|entry| entry.code)
            .zip(self.reasons.iter().copied())
            .filter(|(_, rows)| *rows > 0)
            .collect();
        reasons.sort_by_key(|(code, rows)| (std::cmp::Reverse(*rows), *code));
        reasons
    }

    /// Rows in which the heuristic did not take effect.
    pub fn fallbacks(&self) -> u64 {
        use zonewise_topology::reason::Outcome::Fallback;
        let fallback = |(code, _): &(Code, u64)| code.entry().outcome == Fallback;
        self.reasons().iter().filter(|entry| fallback(entry)).map(|(_, rows)| rows).sum()
    }
}

fn add_each(into: &mut [u64], from: &[u64]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into += from;
    }
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// What the data set is called.
    pub dataset: String,
    /// Zone names, in column order.
    pub zones: Vec<String>,
    /// Rows that were run.
    pub rows: u64,
    /// Rows that could not be used.
    pub left_out: u64,
    /// The first of the problems met.
    pub problems: Vec<Problem>,
    /// Per heuristic.
    pub heuristics: Vec<HeuristicSummary>,
}

impl Summary {
    /// Nothing run yet.
    pub fn new(dataset: &str, zones: Vec<String>, heuristics: &[&str]) -> Self {
        Self {
            dataset: dataset.to_owned(),
            zones,
            rows: 0,
            left_out: 0,
            problems: Vec::new(),
            heuristics: heuristics.iter().map(|label| HeuristicSummary::new(label)).collect(),
        }
    }

    /// Whether all tables have their full length (a file from elsewhere may not).
    pub(crate) fn is_consistent(&self) -> bool {
        self.heuristics
            .iter()
            .all(|line| line.reasons.len() == TABLE.len() && line.histogram.len() == BINS)
    }

    /// Keeps the first problems.
    pub fn note(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
        self.problems.sort();
        self.problems.truncate(PROBLEMS_KEPT);
    }

    /// Adds what was found elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.left_out += other.left_out;
        self.note(other.problems);
        for (into, from) in self.heuristics.iter_mut().zip(other.heuristics) {
            into.merge(from);
        }
    }
}
