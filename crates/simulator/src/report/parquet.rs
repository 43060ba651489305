//! The summary, and rows, as Parquet: typed columns, Snappy, row groups of about a hundred thousand rows (bounded memory).

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::decimal::Decimal;
use crate::evaluate::{RowEncoder, RowOutcome, RowView};
use crate::summary::{Column, Summary};

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 17;

/// Encoded rows of one chunk.
pub struct Encoded {
    columns: Vec<Values>,
    rows: usize,
}

/// A column of values that may be missing.
enum Values {
    Text(Vec<ByteArray>),
    Whole(Vec<i64>),
    Number(Vec<Option<f64>>),
}

impl Values {
    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Text(into), Self::Text(from)) => into.extend(from),
            (Self::Whole(into), Self::Whole(from)) => into.extend(from),
            (Self::Number(into), Self::Number(from)) => into.extend(from),
            // The columns of a table never change their type.
            _ => {}
        }
    }

    fn write(&self, writer: &mut SerializedColumnWriter<'_>) -> parquet::errors::Result<()> {
        match self {
            Self::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, None, None)?;
            }
            Self::Whole(values) => {
                writer.typed::<Int64Type>().write_batch(values, None, None)?;
            }
            Self::Number(values) => {
                let present: Vec<f64> = values.iter().flatten().copied().collect();
                let levels: Vec<i16> =
                    values.iter().map(|value| i16::from(value.is_some())).collect();
                writer.typed::<DoubleType>().write_batch(&present, Some(&levels), None)?;
            }
        }
        Ok(())
    }

    fn column(&self, name: &str) -> parquet::errors::Result<Arc<Type>> {
        let (physical, repetition) = match self {
            Self::Text(_) => (Physical::BYTE_ARRAY, Repetition::REQUIRED),
            Self::Whole(_) => (Physical::INT64, Repetition::REQUIRED),
            Self::Number(_) => (Physical::DOUBLE, Repetition::OPTIONAL),
        };
        let logical = matches!(self, Self::Text(_)).then_some(LogicalType::String);
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(column))
    }
}

/// Writes a table in row groups.
struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> Writer<W> {
    fn new(out: W, title: &str, columns: &[(&str, Values)]) -> parquet::errors::Result<Self> {
        let fields = columns.iter().map(|(name, values)| values.column(name));
        let schema = Type::group_type_builder("zonewise")
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()?;
        let about = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(vec![
                about("zonewise.version", env!("CARGO_PKG_VERSION")),
                about("zonewise.dataset", title),
            ]))
            .build();
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        Ok(Self { file })
    }

    fn write_group<'a>(
        &mut self,
        columns: impl Iterator<Item = &'a Values>,
    ) -> parquet::errors::Result<()> {
        let mut group = self.file.next_row_group()?;
        for values in columns {
            if let Some(mut column) = group.next_column()? {
                values.write(&mut column)?;
                column.close()?;
            }
        }
        group.close()?;
        Ok(())
    }

    fn finish(self) -> parquet::errors::Result<()> {
        self.file.close().map(|_| ())
    }
}

fn text(value: &str) -> ByteArray {
    ByteArray::from(value.as_bytes().to_vec())
}

/// Writes the summary: one row per heuristic.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let heuristics = &summary.heuristics;
    let number = |value: fn(&crate::summary::HeuristicSummary) -> f64| {
        let of = |line: &crate::summary::HeuristicSummary| (line.valid > 0).then(|| value(line));
        Values::Number(heuristics.iter().map(of).collect())
    };
    let whole = |value: fn(&crate::summary::HeuristicSummary) -> u64| {
        Values::Whole(heuristics.iter().map(|line| value(line) as i64).collect())
    };
    let columns = [
        ("heuristic", Values::Text(heuristics.iter().map(|line| text(&line.heuristic)).collect())),
        ("valid", whole(|line| line.valid)),
        ("invalid", whole(|line| line.invalid)),
        ("failed", whole(|line| line.failed)),
        ("fell_back", whole(|line| line.fallbacks())),
        ("mean_score", number(|line| mean(&line.score, line.valid))),
        ("mean_in_zone_score", number(|line| mean(&line.in_zone, line.valid))),
        ("mean_deviation_score", number(|line| mean(&line.deviation, line.valid))),
        ("mean_slice_score", number(|line| mean(&line.slice, line.valid))),
        ("mean_max_deviation_pct", number(|line| mean(&line.max_deviation, line.valid))),
        ("mean_limit", number(|line| mean(&line.limit, line.valid))),
        ("mean_distance", number(|line| mean(&line.distance, line.valid))),
        ("min_score", number(|line| line.score.min.to_f64())),
        ("largest_max_deviation_pct", number(|line| line.max_deviation.max.to_f64())),
        ("rows_at_largest", whole(|line| line.max_deviation.at_max)),
    ];
    // Parquet wants a writer it can send between threads: the summary is small, so write it to
    // memory first.
    let mut buffer = Vec::new();
    let write = |buffer: &mut Vec<u8>| {
        let mut writer = Writer::new(buffer, &summary.dataset, &columns)?;
        writer.write_group(columns.iter().map(|(_, values)| values))?;
        writer.finish()
    };
    write(&mut buffer).map_err(io::Error::other)?;
    out.write_all(&buffer)
}

fn mean(column: &Column, rows: u64) -> f64 {
    column.mean(rows)
}

const TEXTS: [&str; 4] = ["name", "heuristic", "outcome", "reason"];
/// Beside the tool's columns.
const LIMIT: [&str; 2] = ["limit", "distance"];

/// Rows as Parquet.
pub struct ParquetRows<W: Write + Send> {
    writer: Writer<W>,
    pending: Vec<Values>,
    rows: usize,
}

fn empty_columns() -> Vec<(&'static str, Values)> {
    let texts = TEXTS.iter().map(|name| (*name, Values::Text(Vec::new())));
    let row = std::iter::once(("row", Values::Whole(Vec::new())));
    let names = RowOutcome::COLUMNS.iter().chain(&LIMIT);
    let numbers = names.map(|name| (*name, Values::Number(Vec::new())));
    texts.chain(row).chain(numbers).collect()
}

fn empty_values() -> Vec<Values> {
    empty_columns().into_iter().map(|(_, values)| values).collect()
}

impl<W: Write + Send> ParquetRows<W> {
    /// Begins a file.
    pub fn new(out: W, title: &str) -> io::Result<Self> {
        let writer = Writer::new(out, title, &empty_columns()).map_err(io::Error::other)?;
        Ok(Self { writer, pending: empty_values(), rows: 0 })
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.writer.finish().map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.writer.write_group(self.pending.iter()).map_err(io::Error::other)?;
            self.pending = empty_values();
            self.rows = 0;
        }
        Ok(())
    }
}

impl<W: Write + Send + Sync> RowEncoder for ParquetRows<W> {
    type Part = Encoded;
    const WANTED: bool = true;

    fn begin(&self) -> Encoded {
        Encoded { columns: empty_values(), rows: 0 }
    }

    fn encode(&self, part: &mut Encoded, row: &RowView<'_>) {
        part.rows += 1;
        let reason = row.reason.code().to_string();
        let (outcome, numbers) = scores(&row.outcome);
        let texts = [row.name, row.heuristic, outcome, &reason];
        let mut texts = texts.iter();
        let mut numbers = numbers.into_iter();
        for column in &mut part.columns {
            match column {
                Values::Text(values) => values.extend(texts.next().map(|value| text(value))),
                Values::Whole(values) => values.push(row.row as i64),
                Values::Number(values) => values.push(numbers.next().map(Decimal::to_f64)),
            }
        }
    }

    fn write(&mut self, part: Encoded) -> io::Result<()> {
        for (into, from) in self.pending.iter_mut().zip(part.columns) {
            into.append(from);
        }
        self.rows += part.rows;
        if self.rows >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }
}

/// The outcome's name, and the values of the columns of numbers, where it has any.
fn scores(outcome: &RowOutcome) -> (&'static str, Vec<Decimal>) {
    match outcome {
        RowOutcome::Scored { printed, .. } => {
            let beside = [printed.limit, printed.distance()];
            ("scored", outcome.values().into_iter().flatten().chain(beside).collect())
        }
        RowOutcome::Invalid => ("invalid", Vec::new()),
        RowOutcome::Failed => ("error", Vec::new()),
    }
}
