//! Where inputs come from. A data set is never in memory as a whole: inputs come in chunks of
//! [`CHUNK_ROWS`] rows, either computed from their number or read from a file.
//!
//! ```text
//!   ranges  kep-small, kep-medium, kep-large, --zones/--nodes/--endpoints   row number ─► row
//!   random  --random ROWS --seed S                                         row number ─► row
//!   csv     files in the evaluation tool's format, `representative`         in file order
//! ```

pub mod csv;
pub mod random;
pub mod ranges;

use std::io::Read;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zonewise_topology::region::Zone;

/// Rows in a chunk: the unit of parallel work and of sharding.
pub const CHUNK_ROWS: u64 = 1024;

/// The most zones an input may have.
pub(crate) const MAX_ZONES: usize = 10_000;

/// The most nodes, or endpoints, of one input: what doubles can count.
pub(crate) const LARGEST_SUM: u64 = 1 << 53;

/// One zone of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Nodes.
    pub nodes: u64,
    /// Endpoints.
    pub endpoints: u64,
}

/// The zones that the columns of an input stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Zone names, distinct, in byte order.
    pub names: Vec<Box<str>>,
    /// The zone of each column. A name that comes again stands for the same zone, and the last
    /// column counts.
    pub zone_of: Vec<usize>,
}

impl Columns {
    /// From the names in column order.
    pub fn new<S: AsRef<str>>(header: &[S]) -> Self {
        let mut names: Vec<Box<str>> = header.iter().map(|name| name.as_ref().into()).collect();
        names.sort();
        names.dedup();
        let place = |name: &S| names.partition_point(|known| **known < *name.as_ref());
        Self { zone_of: header.iter().map(place).collect(), names }
    }

    /// `zone1`, `zone2`, …
    pub fn numbered(zones: usize) -> Self {
        Self::new(&(1..=zones).map(|zone| format!("zone{zone}")).collect::<Vec<_>>())
    }

    /// Turns the cells of a row into zones, with traffic by number of nodes; returns the number of
    /// all endpoints. Of columns with the same name the last counts as the zone, but all count in
    /// the totals.
    #[inline]
    pub fn read(&self, cells: &[Cell], zones: &mut [Zone]) -> u64 {
        let nodes: u64 = cells.iter().map(|cell| cell.nodes).sum();
        for (cell, &zone) in cells.iter().zip(&self.zone_of) {
            let share = if nodes == 0 { 0.0 } else { cell.nodes as f64 / nodes as f64 };
            zones[zone] = Zone { share, nodes: cell.nodes, endpoints: cell.endpoints };
        }
        cells.iter().map(|cell| cell.endpoints).sum()
    }

    /// Whether a zone's name could equal the name of a shared group.
    pub(crate) fn may_clash(&self) -> bool {
        ["global", "merged", "shared"]
            .iter()
            .any(|label| self.names.iter().any(|name| name.starts_with(label)))
    }
}

/// A run of consecutive inputs.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Number of the first row.
    pub first_row: u64,
    /// Cells per row.
    pub width: usize,
    /// All cells, in column order.
    pub cells: Vec<Cell>,
    /// Names of the rows; empty where they can be computed.
    pub names: Vec<Box<str>>,
}

impl Chunk {
    /// Empties it.
    pub fn begin(&mut self, first_row: u64, width: usize) {
        self.first_row = first_row;
        self.width = width;
        self.cells.clear();
        self.names.clear();
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.cells.len() / self.width.max(1)
    }

    /// The cells of its `index`-th row.
    #[inline]
    pub fn row(&self, index: usize) -> &[Cell] {
        &self.cells[index * self.width..(index + 1) * self.width]
    }
}

/// Something wrong with an input, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error, Serialize, Deserialize)]
#[error("{place}: {message}")]
pub struct Problem {
    /// Line or row, to sort by.
    pub order: u64,
    /// File, line and column, or row.
    pub place: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Why a data set cannot be used at all.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// It cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its header is unusable.
    #[error(transparent)]
    Header(#[from] Problem),
    /// Ranges that make no sense.
    #[error("{0}")]
    Ranges(String),
    /// It cannot be run as a timeline.
    #[error("{0}")]
    Timeline(String),
}

/// Inputs whose number determines them.
pub trait Indexed: Send + Sync {
    /// How many rows there are.
    fn rows(&self) -> u64;
    /// Fills a chunk with `count` rows starting at `first_row`.
    fn fill(&self, first_row: u64, count: u64, chunk: &mut Chunk);
    /// A row's name.
    fn name(&self, row: u64) -> String;
}

/// A data set, ready to be run through.
pub struct Dataset {
    /// What users call it.
    pub title: String,
    /// Its zones.
    pub columns: Columns,
    /// Its rows.
    pub rows: Rows,
}

/// The rows of a data set.
pub enum Rows {
    /// Computed.
    Indexed(Box<dyn Indexed>),
    /// Read.
    Stream(Box<csv::Reader<Box<dyn Read + Send>>>),
}

/// Makes a built-in data set.
type Make = fn() -> Option<Dataset>;

impl Dataset {
    /// The built-in data sets: their names, and how to make them.
    const BUILTIN: [(&'static str, Make); 4] = [
        ("kep-small", || Some(Self::kep("kep-small", 20, false))),
        ("kep-medium", || Some(Self::kep("kep-medium", 50, false))),
        ("kep-large", || Some(Self::kep("kep-large", 100, true))),
        ("representative", Self::representative),
    ];

    /// A built-in data set.
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, make) = Self::BUILTIN.iter().find(|(known, _)| *known == name)?;
        make()
    }

    /// Names of the built-in data sets.
    pub fn builtin_names() -> [&'static str; 4] {
        Self::BUILTIN.map(|(name, _)| name)
    }

    fn kep(name: &str, endpoints: u64, high: bool) -> Self {
        let ranges = ranges::Ranges::kep(endpoints, high);
        Self::indexed(name, Columns::numbered(3), Box::new(ranges))
    }

    /// A data set of computed rows.
    pub fn indexed(title: &str, columns: Columns, rows: Box<dyn Indexed>) -> Self {
        Self { title: title.to_owned(), columns, rows: Rows::Indexed(rows) }
    }

    /// A data set in the evaluation tool's format. `bytes` is its length, where known.
    pub fn csv(
        title: &str,
        input: Box<dyn Read + Send>,
        bytes: Option<u64>,
    ) -> Result<Self, DatasetError> {
        let (columns, reader) = csv::Reader::open(title, input, bytes)?;
        Ok(Self { title: title.to_owned(), columns, rows: Rows::Stream(Box::new(reader)) })
    }

    fn representative() -> Option<Self> {
        let text: &[u8] = include_bytes!("representative.csv");
        Self::csv("representative", Box::new(text), Some(text.len() as u64)).ok()
    }
}
