//! Results as text and files: one file per format.

pub mod csv;
mod html;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod table;
pub mod timeline;

use std::io::{self, Write};

use thiserror::Error;
use zonewise_topology::words::fine_percent;

use crate::summary::Summary;

/// The formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, on a terminal.
    Table,
    /// Comma-separated values.
    Csv,
    /// For programs.
    Json,
    /// One page with tables, distributions and pictures.
    Html,
    /// Columns, for data tools. Needs the cargo feature `parquet`.
    Parquet,
}

impl Format {
    /// The formats that this build can write.
    pub const BUILT_IN: &'static [Self] = &[
        Self::Table,
        Self::Csv,
        Self::Json,
        Self::Html,
        #[cfg(feature = "parquet")]
        Self::Parquet,
    ];

    /// Refuses a format that this build cannot write.
    pub fn check_built_in(self) -> Result<(), NotBuiltIn> {
        if Self::BUILT_IN.contains(&self) { Ok(()) } else { Err(NotBuiltIn) }
    }
}

/// A report was asked for in a format that this build cannot write.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "this build cannot write Parquet; use a build with the cargo feature `parquet` (it is on by \
     default), or choose another format"
)]
pub struct NotBuiltIn;

/// Writes a summary.
pub fn write_summary(summary: &Summary, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => table::write(summary, out),
        Format::Csv => csv::write(summary, out),
        Format::Json => json::write(summary, out),
        Format::Html => html::write(summary, out),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(summary, out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(io::Error::new(io::ErrorKind::Unsupported, NotBuiltIn)),
    }
}

/// A part of a whole, in percent with one decimal.
fn percent_of(part: u64, whole: u64) -> String {
    fine_percent((whole > 0).then(|| part as f64 / whole as f64))
}
