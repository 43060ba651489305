//! Runs heuristics over a data set, in parallel, and collects what came of it.
//!
//! ```text
//!   data set ─► wave of chunks ─► threads: decode, allocate, send traffic, score ─► Summary
//!                                                               └─► encoded rows, in order
//! ```
//!
//! Per row nothing is allocated, no string is touched and no map is looked up. Results do not
//! depend on the number of threads: summaries are sums of whole numbers, rows are written in order.

use std::io;

use rayon::prelude::*;
use thiserror::Error;
use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::heuristic::{Case, Heuristic};
use zonewise_topology::heuristics;
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::{Region, Zone};
use zonewise_topology::traffic::{Traffic, TrafficModel};

use crate::dataset::{
    CHUNK_ROWS, Chunk, Columns, Dataset, DatasetError, Indexed, Problem, Rows, csv,
};
use crate::decimal::Decimal;
use crate::score::{limit, score};
use crate::summary::{HeuristicSummary, PROBLEMS_KEPT, Printed, Summary, WorstRow};

/// A heuristic, and what the user called it.
pub struct Choice {
    /// As written, with parameters.
    pub label: String,
    /// The heuristic.
    pub heuristic: Box<dyn Heuristic>,
}

impl Choice {
    /// From a name of the table of heuristics.
    pub fn parse(label: &str) -> Result<Self, heuristics::ParseError> {
        Ok(Self { label: label.to_owned(), heuristic: heuristics::parse(label)? })
    }
}

/// Which part of the work to do: every `count`-th chunk, starting at `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Counted from 0.
    pub index: u64,
    /// How many shards there are.
    pub count: u64,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    fn contains(&self, chunk: u64) -> bool {
        chunk % self.count == self.index
    }
}

/// How to run.
pub struct Options<'a> {
    /// Which part to do.
    pub shard: Shard,
    /// Stop at the first row that cannot be used.
    pub strict: bool,
    /// Called now and then with how far the run is.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Rows run since the last report.
    pub rows: u64,
    /// Part of the input read, 0 to 1, for inputs of unknown length.
    pub read: Option<f64>,
}

/// Why a run ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// The data set.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A row, and rows may not fail.
    #[error("{0}")]
    Strict(Problem),
    /// The rows could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// One row and one heuristic.
pub struct RowView<'a> {
    /// The row's number.
    pub row: u64,
    /// The row's name.
    pub name: &'a str,
    /// The zones' names, in byte order.
    pub zones: &'a [Box<str>],
    /// The heuristic, as asked for.
    pub heuristic: &'a str,
    /// Its scores.
    pub outcome: RowOutcome,
    /// Why it did what it did.
    pub reason: Reason,
    /// What it did; not meaningful when the outcome is [`RowOutcome::Failed`].
    pub allocation: &'a Allocation,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// It has scores.
    Scored {
        /// Scores as printed.
        printed: Printed,
        /// Mean distance from the fair share, percent.
        mean_deviation: Decimal,
        /// Spread of the deviations.
        deviation_spread: Decimal,
    },
    /// Some zone reaches no endpoint.
    Invalid,
    /// There is no allocation.
    Failed,
}

impl RowOutcome {
    /// Names of the columns that the evaluation tool prints.
    pub const COLUMNS: [&'static str; 7] = [
        "score",
        "in_zone_score",
        "deviation_score",
        "slice_score",
        "max_deviation_pct",
        "mean_deviation_pct",
        "sd_of_deviation",
    ];

    /// The values of those columns, if the row has scores.
    pub fn values(&self) -> Option<[Decimal; 7]> {
        match *self {
            Self::Scored { printed, mean_deviation, deviation_spread } => Some([
                printed.score,
                printed.in_zone,
                printed.deviation,
                printed.slice,
                printed.max_deviation,
                mean_deviation,
                deviation_spread,
            ]),
            Self::Invalid | Self::Failed => None,
        }
    }
}

/// Turns rows into bytes, on many threads; writes them in order, on one.
pub trait RowEncoder: Sync {
    /// Encoded rows of one chunk.
    type Part: Send;
    /// Whether rows are wanted at all.
    const WANTED: bool;
    /// An empty part.
    fn begin(&self) -> Self::Part;
    /// Adds a row.
    fn encode(&self, part: &mut Self::Part, row: &RowView<'_>);
    /// Writes a part.
    fn write(&mut self, part: Self::Part) -> io::Result<()>;
}

/// Only the summary is wanted.
pub struct NoRows;

impl RowEncoder for NoRows {
    type Part = ();
    const WANTED: bool = false;
    fn begin(&self) {}
    fn encode(&self, (): &mut (), _row: &RowView<'_>) {}
    fn write(&mut self, (): ()) -> io::Result<()> {
        Ok(())
    }
}

/// Runs all heuristics over (a shard of) a data set.
pub fn evaluate<E: RowEncoder>(
    dataset: Dataset,
    choices: &[Choice],
    options: &Options<'_>,
    encoder: &mut E,
) -> Result<Summary, RunError> {
    let labels: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
    let columns = dataset.columns;
    let zones = columns.zone_of.iter().map(|&zone| columns.names[zone].to_string()).collect();
    let setup = Setup { columns: &columns, clash: columns.may_clash(), choices };
    let mut run =
        Run { setup, options, encoder, summary: Summary::new(&dataset.title, zones, &labels) };
    match dataset.rows {
        Rows::Indexed(rows) => run.indexed(rows.as_ref())?,
        Rows::Stream(reader) => run.stream(*reader)?,
    }
    Ok(run.summary)
}

/// What every thread needs to know.
#[derive(Clone, Copy)]
struct Setup<'a> {
    columns: &'a Columns,
    clash: bool,
    choices: &'a [Choice],
}

struct Run<'a, E> {
    setup: Setup<'a>,
    options: &'a Options<'a>,
    encoder: &'a mut E,
    summary: Summary,
}

/// The result of one chunk.
struct ChunkResult<P> {
    rows: u64,
    heuristics: Vec<HeuristicSummary>,
    problems: Vec<Problem>,
    encoded: P,
}

impl<E: RowEncoder> Run<'_, E> {
    /// Chunks that are worked on at once: few where rows are kept until they are written.
    fn wave_chunks() -> usize {
        rayon::current_num_threads() * if E::WANTED { 4 } else { 64 }
    }

    fn indexed(&mut self, rows: &dyn Indexed) -> Result<(), RunError> {
        let total = rows.rows();
        let shard = self.options.shard;
        let chunks = total.div_ceil(CHUNK_ROWS);
        let mut next = shard.index;
        while next < chunks {
            let wave: Vec<u64> =
                (next..chunks).step_by(shard.count as usize).take(Self::wave_chunks()).collect();
            next = next.saturating_add((wave.len() as u64).saturating_mul(shard.count));
            let (setup, encoder, progress) = (self.setup, &*self.encoder, self.options.progress);
            let parts = wave
                .into_par_iter()
                .map_init(
                    || (Worker::new(), Chunk::default()),
                    |(worker, chunk), number| {
                        rows.fill(number * CHUNK_ROWS, CHUNK_ROWS, chunk);
                        let part = worker.chunk(setup, chunk, encoder, |row| rows.name(row));
                        progress(Progress { rows: part.rows, read: None });
                        part
                    },
                )
                .collect();
            self.take(parts)?;
        }
        Ok(())
    }

    fn stream<R: io::Read + Send>(&mut self, mut reader: csv::Reader<R>) -> Result<(), RunError> {
        let mut number = 0;
        let mut wave = self.read_wave(&mut reader, &mut number)?;
        while !wave.is_empty() {
            let (setup, encoder) = (self.setup, &*self.encoder);
            let (parts, next) = rayon::join(
                || {
                    wave.par_iter()
                        .map_init(Worker::new, |worker, chunk| {
                            let name = |row: u64| {
                                String::from(&*chunk.names[(row - chunk.first_row) as usize])
                            };
                            worker.chunk(setup, chunk, encoder, name)
                        })
                        .collect::<Vec<_>>()
                },
                || read_wave(&mut reader, &mut number, self.options.shard, Self::wave_chunks()),
            );
            let rows = parts.iter().map(|part| part.rows).sum();
            (self.options.progress)(Progress { rows, read: reader.progress() });
            self.take(parts)?;
            wave = self.accept(next)?;
        }
        Ok(())
    }

    fn read_wave<R: io::Read>(
        &mut self,
        reader: &mut csv::Reader<R>,
        number: &mut u64,
    ) -> Result<Vec<Chunk>, RunError> {
        self.accept(read_wave(reader, number, self.options.shard, Self::wave_chunks()))
    }

    /// Notes the problems of a wave. Every shard reads the whole file; only the first reports it.
    fn accept(&mut self, wave: WaveResult) -> Result<Vec<Chunk>, RunError> {
        let (chunks, problems) = wave?;
        if self.options.shard.index == 0 || self.options.strict {
            self.summary.left_out += problems.count;
            self.report(problems.first)?;
        }
        Ok(chunks)
    }

    fn take(&mut self, parts: Vec<ChunkResult<E::Part>>) -> Result<(), RunError> {
        for part in parts {
            self.summary.rows += part.rows;
            for (into, from) in self.summary.heuristics.iter_mut().zip(part.heuristics) {
                into.merge(from);
            }
            self.report(part.problems)?;
            self.encoder.write(part.encoded)?;
        }
        Ok(())
    }

    fn report(&mut self, problems: Vec<Problem>) -> Result<(), RunError> {
        match problems.first() {
            Some(problem) if self.options.strict => Err(RunError::Strict(problem.clone())),
            _ => {
                self.summary.note(problems);
                Ok(())
            }
        }
    }
}

/// Problems met while reading.
#[derive(Default)]
struct ReadProblems {
    first: Vec<Problem>,
    count: u64,
}

type WaveResult = Result<(Vec<Chunk>, ReadProblems), DatasetError>;

fn read_wave<R: io::Read>(
    reader: &mut csv::Reader<R>,
    number: &mut u64,
    shard: Shard,
    chunks: usize,
) -> WaveResult {
    let mut wave = Vec::new();
    let mut problems = ReadProblems::default();
    while wave.len() < chunks {
        let mut chunk = Chunk::default();
        reader.fill(CHUNK_ROWS, &mut chunk, &mut |problem| {
            problems.count += 1;
            if problems.first.len() < PROBLEMS_KEPT {
                problems.first.push(problem);
            }
        })?;
        if chunk.rows() == 0 {
            break;
        }
        if shard.contains(*number) {
            wave.push(chunk);
        }
        *number += 1;
    }
    Ok((wave, problems))
}

/// The buffers of one thread.
struct Worker {
    allocation: Allocation,
    model: TrafficModel,
    /// Zones of the rows at hand, row by row.
    zones: Vec<Zone>,
    inputs: Vec<Input>,
}

/// One row, read.
#[derive(Clone, Copy)]
struct Input {
    /// All endpoints.
    total: u64,
    /// The best score possible.
    limit: Decimal,
}

/// A row to be run.
struct Row<'a, N> {
    number: u64,
    region: Region<'a>,
    limit: Decimal,
    name: &'a N,
}

impl Worker {
    fn new() -> Self {
        Self {
            allocation: Allocation::new(),
            model: TrafficModel::new(),
            zones: Vec::new(),
            inputs: Vec::new(),
        }
    }

    fn chunk<E: RowEncoder>(
        &mut self,
        setup: Setup<'_>,
        chunk: &Chunk,
        encoder: &E,
        name: impl Fn(u64) -> String,
    ) -> ChunkResult<E::Part> {
        let heuristics = setup.choices.iter().map(|choice| HeuristicSummary::new(&choice.label));
        let mut part = ChunkResult {
            rows: chunk.rows() as u64,
            heuristics: heuristics.collect(),
            problems: Vec::new(),
            encoded: encoder.begin(),
        };
        // Rows are written one by one. Where only sums are wanted, one heuristic after the other
        // over a block of rows keeps its code and branches warm.
        let block = if E::WANTED { 1 } else { 128 };
        for first in (0..chunk.rows()).step_by(block) {
            let rows = first..chunk.rows().min(first + block);
            self.load(setup.columns, chunk, rows.clone());
            self.run_block(setup, chunk.first_row + first as u64, encoder, &name, &mut part);
        }
        for row in part.heuristics.iter_mut().flat_map(|summary| &mut summary.worst) {
            row.name = name(row.row);
            row.cells = chunk.row((row.row - chunk.first_row) as usize).to_vec();
        }
        part
    }

    fn load(&mut self, columns: &Columns, chunk: &Chunk, rows: std::ops::Range<usize>) {
        let width = columns.names.len();
        self.zones.clear();
        self.zones.resize(rows.len() * width, Zone::default());
        self.inputs.clear();
        for (zones, index) in self.zones.chunks_exact_mut(width).zip(rows) {
            let total = columns.read(chunk.row(index), zones);
            let region = Region { zones, total, unplaced: 0, unknown_nodes: 0 };
            let limit = Decimal::round(limit(&region).unwrap_or(0.0));
            self.inputs.push(Input { total, limit });
        }
    }

    /// Runs every heuristic over the rows that were read.
    fn run_block<E: RowEncoder>(
        &mut self,
        setup: Setup<'_>,
        first_row: u64,
        encoder: &E,
        name: &impl Fn(u64) -> String,
        part: &mut ChunkResult<E::Part>,
    ) {
        let zones = std::mem::take(&mut self.zones);
        let inputs = std::mem::take(&mut self.inputs);
        for (index, choice) in setup.choices.iter().enumerate() {
            let rows = zones.chunks_exact(setup.columns.names.len()).zip(&inputs);
            for (number, (zones, &Input { total, limit })) in (first_row..).zip(rows) {
                let region = Region { zones, total, unplaced: 0, unknown_nodes: 0 };
                let row = Row { number, region, limit, name };
                self.row(setup, choice, &row, encoder, part, index);
            }
        }
        self.zones = zones;
        self.inputs = inputs;
    }

    #[inline]
    fn row<E: RowEncoder, N: Fn(u64) -> String>(
        &mut self,
        setup: Setup<'_>,
        choice: &Choice,
        row: &Row<'_, N>,
        encoder: &E,
        part: &mut ChunkResult<E::Part>,
        index: usize,
    ) {
        let region = &row.region;
        let reason = choice.heuristic.allocate(&Case::fresh(*region), &mut self.allocation);
        if setup.clash && matches!(self.allocation.carrier(), Carrier::Plain | Carrier::Subsets) {
            self.allocation.drop_shadowed(&setup.columns.names);
        }
        let failed = reason.outcome() == Outcome::Failed;
        let traffic = if failed { None } else { self.model.run(region, &self.allocation) };
        let scored = traffic.map(|traffic| {
            (traffic, Printed::new(&score(region, &self.allocation, &traffic), row.limit))
        });
        let summary = &mut part.heuristics[index];
        summary.reasons[reason.code() as usize] += 1;
        match &scored {
            Some((_, printed)) => {
                summary.add(printed);
                if summary.is_among_worst(printed.score) {
                    summary.add_worst(WorstRow::new(printed.score, row.number, reason.code()));
                }
            }
            None if failed => {
                summary.failed += 1;
                note(&mut part.problems, || failure(row, &choice.label, &reason));
            }
            None => summary.invalid += 1,
        }
        if E::WANTED {
            let outcome = self.outcome(region, scored, failed);
            let view = RowView {
                row: row.number,
                name: &(row.name)(row.number),
                zones: &setup.columns.names,
                heuristic: &choice.label,
                outcome,
                reason,
                allocation: &self.allocation,
            };
            encoder.encode(&mut part.encoded, &view);
        }
    }

    fn outcome(
        &mut self,
        region: &Region<'_>,
        scored: Option<(Traffic, Printed)>,
        failed: bool,
    ) -> RowOutcome {
        match scored {
            Some((traffic, printed)) => RowOutcome::Scored {
                printed,
                mean_deviation: Decimal::round(traffic.mean_deviation * 100.0),
                deviation_spread: Decimal::round(self.model.spread(
                    region,
                    &self.allocation,
                    traffic.mean_deviation,
                )),
            },
            None if failed => RowOutcome::Failed,
            None => RowOutcome::Invalid,
        }
    }
}

fn note(problems: &mut Vec<Problem>, problem: impl FnOnce() -> Problem) {
    if problems.len() < PROBLEMS_KEPT {
        problems.push(problem());
    }
}

fn failure<N: Fn(u64) -> String>(row: &Row<'_, N>, heuristic: &str, reason: &Reason) -> Problem {
    let name = (row.name)(row.number);
    Problem {
        order: row.number,
        place: format!("row {} (`{}`)", row.number, name.escape_debug()),
        message: format!("{heuristic}: {reason}; {}", reason.code().entry().remedy),
    }
}
