//! All combinations of node and endpoint numbers within ranges.
//!
//! Zones are interchangeable, so only non-decreasing sequences are taken (combinations with
//! repetition), in lexicographic order. A sequence is computed from its number: nothing is stored,
//! and any part of the set can be produced anywhere.

use super::{Cell, Chunk, DatasetError, Indexed};

/// Values from `first` to at most `last`, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// The first value.
    pub first: u64,
    /// No value is larger.
    pub last: u64,
    /// Distance between values.
    pub step: u64,
}

impl NumberRange {
    /// `first..=last`.
    pub fn new(first: u64, last: u64) -> Self {
        Self { first, last, step: 1 }
    }

    /// How many values there are; at least one.
    pub fn count(&self) -> u64 {
        (self.last - self.first) / self.step + 1
    }

    fn value(&self, index: u64) -> u64 {
        self.first + index * self.step
    }
}

impl std::str::FromStr for NumberRange {
    type Err = String;

    /// `7`, `1..10` or `100..996:7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: expected a number or a range such as 1..10 or 0..100:5");
        let number = |part: &str| part.trim().parse::<u64>().map_err(|_| wrong());
        let (range, step) = match text.split_once(':') {
            Some((range, step)) => (range, number(step)?),
            None => (text, 1),
        };
        let (first, last) = match range.split_once("..") {
            Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
            None => (number(range)?, number(range)?),
        };
        if step == 0 {
            return Err(format!("`{text}`: the step must be at least 1"));
        }
        if first > last {
            return Err(format!("`{text}`: the range ends before it begins"));
        }
        if last > Self::LARGEST {
            return Err(format!("`{text}`: numbers go up to {}", Self::LARGEST));
        }
        Ok(Self { first, last, step })
    }
}

impl NumberRange {
    const LARGEST: u64 = 1_000_000_000_000;
}

/// Refuses numbers that inputs cannot have.
pub(super) fn check(
    zones: usize,
    nodes: NumberRange,
    endpoints: NumberRange,
) -> Result<(), DatasetError> {
    if zones == 0 || zones > super::MAX_ZONES {
        let message = format!("expected 1 to {} zones, found {zones}", super::MAX_ZONES);
        return Err(DatasetError::Ranges(message));
    }
    let most = nodes.last.max(endpoints.last).saturating_mul(zones as u64);
    if most > super::LARGEST_SUM {
        let message = format!("numbers of an input add up to at most 2^53; these reach {most}");
        return Err(DatasetError::Ranges(message));
    }
    Ok(())
}

impl std::fmt::Display for NumberRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.count(), self.step) {
            (1, _) => write!(f, "{}", self.first),
            (_, 1) => write!(f, "{}..{}", self.first, self.last),
            (_, step) => write!(f, "{}..{}:{step}", self.first, self.last),
        }
    }
}

/// Node combinations × endpoint combinations, named as in the published data sets.
#[derive(Clone, Copy, Debug)]
struct Section {
    nodes: NumberRange,
    endpoints: NumberRange,
    /// Leaves out the combination without any endpoint (the first one).
    skip_zero: bool,
    /// Rows are called `7-high` instead of `7-(1, 1, 1)`.
    high: bool,
}

/// One or more sections, one after the other.
#[derive(Clone, Debug)]
pub struct Ranges {
    zones: usize,
    sections: Vec<(Section, u64)>,
    rows: u64,
}

impl Ranges {
    /// The published sets: three zones of 1 to 10 nodes, 0 to `endpoints` endpoints; the large one
    /// has a section of large numbers at its end.
    pub(super) fn kep(endpoints: u64, high: bool) -> Self {
        let usual = Section {
            nodes: NumberRange::new(1, 10),
            endpoints: NumberRange::new(0, endpoints),
            skip_zero: true,
            high: false,
        };
        let large = Section {
            nodes: NumberRange::new(30, 30),
            endpoints: NumberRange { first: 100, last: 996, step: 7 },
            skip_zero: false,
            high: true,
        };
        let sections = if high { vec![usual, large] } else { vec![usual] };
        // Three zones: the counts are small.
        Self::build(3, &sections).unwrap_or(Self { zones: 3, sections: Vec::new(), rows: 0 })
    }

    /// All combinations for a number of zones.
    pub fn new(
        zones: usize,
        nodes: NumberRange,
        endpoints: NumberRange,
    ) -> Result<Self, DatasetError> {
        check(zones, nodes, endpoints)?;
        let section = Section { nodes, endpoints, skip_zero: endpoints.first == 0, high: false };
        Self::build(zones, &[section]).ok_or_else(|| {
            DatasetError::Ranges(format!(
                "{zones} zones with {} node and {} endpoint numbers give more than 2^63 rows; \
                 narrow the ranges or use --random",
                nodes.count(),
                endpoints.count()
            ))
        })
    }

    fn build(zones: usize, sections: &[Section]) -> Option<Self> {
        let mut rows = 0u64;
        let mut sized = Vec::new();
        for section in sections {
            let count = combinations(section.nodes.count(), zones)?
                .checked_mul(section.rows_per_node_combination(zones)?)?;
            rows = rows.checked_add(count)?;
            sized.push((*section, count));
        }
        (rows <= i64::MAX as u64).then_some(Self { zones, sections: sized, rows })
    }

    /// The section of a row, its number there, and how many rows the section has from there on.
    fn locate(&self, mut row: u64) -> Option<(&Section, u64, u64)> {
        for (section, count) in &self.sections {
            if row < *count {
                return Some((section, row, count - row));
            }
            row -= count;
        }
        None
    }
}

impl Section {
    fn rows_per_node_combination(&self, zones: usize) -> Option<u64> {
        combinations(self.endpoints.count(), zones).map(|all| all - u64::from(self.skip_zero))
    }

    /// Number of the node combination and number of the row within it.
    fn split(&self, row: u64, zones: usize) -> (u64, u64) {
        let per = self.rows_per_node_combination(zones).unwrap_or(1).max(1);
        (row / per, row % per)
    }
}

/// A place in a section: both combinations, to be stepped from row to row.
struct Cursor {
    nodes: Vec<u64>,
    endpoints: Vec<u64>,
}

impl Cursor {
    fn at(section: &Section, row: u64, zones: usize) -> Self {
        let (node, endpoint) = section.split(row, zones);
        Self {
            nodes: combination(section.nodes.count(), zones, node),
            endpoints: combination(
                section.endpoints.count(),
                zones,
                endpoint + u64::from(section.skip_zero),
            ),
        }
    }

    fn push(&self, section: &Section, cells: &mut Vec<Cell>) {
        cells.extend(self.nodes.iter().zip(&self.endpoints).map(|(&nodes, &endpoints)| Cell {
            nodes: section.nodes.value(nodes),
            endpoints: section.endpoints.value(endpoints),
        }));
    }

    fn step(&mut self, section: &Section) {
        if !next(&mut self.endpoints, section.endpoints.count()) {
            self.endpoints.fill(0);
            if section.skip_zero {
                next(&mut self.endpoints, section.endpoints.count());
            }
            next(&mut self.nodes, section.nodes.count());
        }
    }
}

impl Indexed for Ranges {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn fill(&self, first_row: u64, count: u64, chunk: &mut Chunk) {
        chunk.begin(first_row, self.zones);
        let mut row = first_row;
        let end = (first_row + count).min(self.rows);
        while let Some((section, within, left)) = self.locate(row).filter(|_| row < end) {
            let left = left.min(end - row);
            let mut cursor = Cursor::at(section, within, self.zones);
            for _ in 0..left {
                cursor.push(section, &mut chunk.cells);
                cursor.step(section);
            }
            row += left;
        }
    }

    fn name(&self, row: u64) -> String {
        let Some((section, within, _)) = self.locate(row) else {
            return row.to_string();
        };
        let (node, number) = section.split(within, self.zones);
        if section.high {
            return format!("{number}-high");
        }
        let nodes: Vec<String> = combination(section.nodes.count(), self.zones, node)
            .iter()
            .map(|&index| section.nodes.value(index).to_string())
            .collect();
        format!("{number}-({})", nodes.join(", "))
    }
}

/// How many non-decreasing sequences of `length` over `values` values there are.
fn combinations(values: u64, length: usize) -> Option<u64> {
    let mut count = 1u128;
    for index in 0..length as u128 {
        count = count.checked_mul(u128::from(values) + index)? / (index + 1);
        if count > i64::MAX as u128 {
            return None;
        }
    }
    u64::try_from(count).ok()
}

/// The `number`-th non-decreasing sequence, as indexes of values.
fn combination(values: u64, length: usize, mut number: u64) -> Vec<u64> {
    let mut sequence = Vec::with_capacity(length);
    let mut low = 0;
    for position in 0..length {
        loop {
            let with_low = combinations(values - low, length - position - 1).unwrap_or(u64::MAX);
            if number < with_low || low + 1 >= values {
                break;
            }
            number -= with_low;
            low += 1;
        }
        sequence.push(low);
    }
    sequence
}

/// Steps to the next sequence; false after the last.
fn next(sequence: &mut [u64], values: u64) -> bool {
    let Some(position) = sequence.iter().rposition(|&index| index + 1 < values) else {
        return false;
    };
    let value = sequence[position] + 1;
    sequence[position..].fill(value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a21_row_counts_of_the_published_sets() {
        let rows = |endpoints, high| Ranges::kep(endpoints, high).rows();
        assert_eq!(rows(20, false), 389_400);
        assert_eq!(rows(50, false), 5_153_500);
        assert_eq!(rows(100, true), 39_273_145);
    }

    #[test]
    fn a21_names_and_first_rows() {
        let large = Ranges::kep(100, true);
        let mut chunk = Chunk::default();
        large.fill(176_849, 2, &mut chunk);
        let cell = |nodes, endpoints| Cell { nodes, endpoints };
        assert_eq!(large.name(176_849), "176849-(1, 1, 1)");
        assert_eq!(chunk.row(0), [cell(1, 100), cell(1, 100), cell(1, 100)]);
        assert_eq!(large.name(176_850), "0-(1, 1, 2)");
        assert_eq!(chunk.row(1), [cell(1, 0), cell(1, 0), cell(2, 1)]);
        large.fill(39_273_144, 10, &mut chunk);
        assert_eq!(large.name(39_273_144), "366144-high");
        assert_eq!((chunk.rows(), chunk.row(0)), (1, &[cell(30, 996); 3][..]));
    }

    #[test]
    fn a_chunk_may_cross_sections() {
        let large = Ranges::kep(100, true);
        let mut chunk = Chunk::default();
        large.fill(220 * 176_850 - 1, 2, &mut chunk);
        assert_eq!(chunk.rows(), 2);
        assert_eq!(chunk.row(0)[0], Cell { nodes: 10, endpoints: 100 });
        assert_eq!(chunk.row(1)[0], Cell { nodes: 30, endpoints: 100 });
    }

    #[test]
    fn ranges_are_read_and_refused() {
        assert_eq!("1..10".parse(), Ok(NumberRange::new(1, 10)));
        assert_eq!("100..996:7".parse(), Ok(NumberRange { first: 100, last: 996, step: 7 }));
        assert_eq!("5".parse(), Ok(NumberRange::new(5, 5)));
        for wrong in ["", "a", "3..1", "1..5:0", "-1..2", "1...3", "0..99999999999999"] {
            assert!(wrong.parse::<NumberRange>().is_err(), "{wrong}");
        }
        assert!(Ranges::new(200, NumberRange::new(1, 100), NumberRange::new(0, 100)).is_err());
        assert!(Ranges::new(0, NumberRange::new(1, 2), NumberRange::new(0, 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_row_can_be_reached_directly(zones in 1usize..5, nodes in 1u64..5, endpoints in 1u64..7, row: u64) {
            let ranges = Ranges::new(zones, NumberRange::new(1, nodes), NumberRange::new(0, endpoints)).unwrap();
            let (mut all, mut one) = (Chunk::default(), Chunk::default());
            ranges.fill(0, ranges.rows(), &mut all);
            prop_assert_eq!(all.rows() as u64, ranges.rows());
            let row = row % ranges.rows();
            ranges.fill(row, 1, &mut one);
            prop_assert_eq!(all.row(row as usize), one.row(0));
        }
    }
}
