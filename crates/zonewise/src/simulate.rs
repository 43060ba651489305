//! `zonewise simulate`: from arguments to a run, from a run to an output.

pub(crate) mod args;
mod destination;
mod progress;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use zonewise_simulator::dataset::random::Random;
use zonewise_simulator::dataset::ranges::Ranges;
use zonewise_simulator::dataset::{Columns, Dataset, DatasetError, Problem, Rows};
use zonewise_simulator::evaluate::{
    Choice, NoRows, Options, Progress, RowEncoder, RunError, Shard, evaluate,
};
use zonewise_simulator::part::{self, Part};
use zonewise_simulator::published;
use zonewise_simulator::report::csv::CsvRows;
use zonewise_simulator::report::json::JsonRows;
#[cfg(feature = "parquet")]
use zonewise_simulator::report::parquet::ParquetRows;
use zonewise_simulator::report::{self, Format};
use zonewise_simulator::summary::Summary;
use zonewise_simulator::timeline::{self, Subject, scenario::Scenario};
use zonewise_topology::expression::Library;
use zonewise_topology::words::counted;

use self::args::{Evaluate, Heuristics, Input, Output, OutputFormat, Simulate, SimulateCommand};
use self::destination::Destination;
use self::progress::{Bar, Work};
use crate::args::Usage;
use crate::output::complain;

/// Runs `zonewise simulate`.
pub(crate) fn run(arguments: Box<Simulate>) -> Result<()> {
    let Simulate { command, evaluate } = *arguments;
    match command {
        None => run_evaluate(evaluate),
        Some(SimulateCommand::Merge { files, output }) => merge(&files, &output),
        Some(SimulateCommand::Timeline { scenario, heuristics, format, strict }) => {
            run_timeline(&scenario, &heuristics, format.into(), strict)
        }
        Some(SimulateCommand::Published { small }) => run_published(small),
    }
}

fn run_evaluate(arguments: Evaluate) -> Result<()> {
    let Evaluate { input, heuristics, output, rows, shard, strict, threads } = arguments;
    let format = Format::from(output.format);
    check_format(output.format, rows, shard.is_some())?;
    let library = library(heuristics.config.as_deref())?;
    let labels = heuristics.labels(&library)?;
    let dataset = dataset(&input)?;
    let choices = choices(&labels, &library, &dataset.columns)?;
    let mut destination = open(&output)?;
    let job = Job { choices, shard, strict, threads };
    if rows {
        return write_rows(&job, dataset, output.format, destination);
    }
    let summary = job.run(dataset, &mut NoRows)?;
    match shard {
        Some(shard) => writeln!(destination, "{}", Part::new(shard, summary).to_json())?,
        None => report::write_summary(&summary, format, &mut destination)?,
    }
    destination.finish()
}

/// Rows are for programs; the partial result of a shard has one form.
fn check_format(format: OutputFormat, rows: bool, shard: bool) -> Result<(), Usage> {
    let for_people = matches!(format, OutputFormat::Table | OutputFormat::Html);
    if rows && for_people {
        let message = "rows are written as csv, json or parquet; add -o csv, or leave out --rows";
        return Err(Usage(message.to_owned()));
    }
    if shard && !rows && !matches!(format, OutputFormat::Table | OutputFormat::Json) {
        let message = "a shard's partial result is JSON; choose the format when merging";
        return Err(Usage(message.to_owned()));
    }
    Ok(())
}

fn open(output: &Output) -> Result<Destination> {
    Format::from(output.format).check_built_in()?;
    let destination = Destination::open(output.to.as_deref())?;
    if output.format == OutputFormat::Parquet && !destination.binary_is_fine() {
        bail!("Parquet is a binary format; add --to FILE or redirect standard output");
    }
    Ok(destination)
}

/// Heuristics and how to run them.
struct Job {
    choices: Vec<Choice>,
    shard: Option<Shard>,
    strict: bool,
    threads: Option<u16>,
}

impl Job {
    /// Runs on the asked number of threads, with a progress bar, and prints warnings about problems.
    fn run<E: RowEncoder + Send>(&self, dataset: Dataset, encoder: &mut E) -> Result<Summary> {
        let shard = self.shard.unwrap_or(Shard::WHOLE);
        let bar = Bar::new(&match &dataset.rows {
            Rows::Indexed(rows) => Work::Inputs(rows.rows() / shard.count),
            Rows::Stream(_) => Work::File,
        });
        let progress = |progress| bar.advance(progress);
        let options = Options { shard, strict: self.strict, progress: &progress };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads.map_or(0, usize::from))
            .build()
            .context("cannot start threads")?;
        let result = threads.install(|| evaluate(dataset, &self.choices, &options, encoder));
        bar.clear();
        let summary = result.map_err(explain)?;
        warn_about_problems(&summary);
        Ok(summary)
    }
}

/// Adds the remedy. The cause of a failed write stays visible: `main` ignores a closed pipe.
fn explain(error: RunError) -> anyhow::Error {
    match error {
        RunError::Strict(_) => anyhow::Error::new(error)
            .context("a row cannot be used; correct it, or leave out --strict to skip it"),
        RunError::Write(cause) => anyhow::Error::new(cause).context("cannot write the rows"),
        RunError::Dataset(cause) => cause.into(),
    }
}

fn warn_about_problems(summary: &Summary) {
    for problem in &summary.problems {
        complain(&format!("warning: {problem}"));
    }
    let failed: u64 = summary.heuristics.iter().map(|line| line.failed).sum();
    let all = summary.left_out + failed;
    if all > summary.problems.len() as u64 {
        complain(&format!(
            "warning: {all} problems in all; the first {} are shown",
            summary.problems.len()
        ));
    }
}

fn write_rows(
    job: &Job,
    dataset: Dataset,
    format: OutputFormat,
    mut destination: Destination,
) -> Result<()> {
    match format {
        OutputFormat::Csv => {
            let several = job.choices.len() > 1;
            job.run(dataset, &mut CsvRows::new(&mut destination, several)?)?;
        }
        OutputFormat::Json => {
            let mut rows = JsonRows::new(&mut destination)?;
            job.run(dataset, &mut rows)?;
            rows.finish()?;
        }
        #[cfg(feature = "parquet")]
        OutputFormat::Parquet => {
            let mut rows = ParquetRows::new(&mut destination, &dataset.title)?;
            job.run(dataset, &mut rows)?;
            rows.finish()?;
        }
        #[cfg(not(feature = "parquet"))]
        OutputFormat::Parquet => return Err(report::NotBuiltIn.into()),
        // Refused before anything was run.
        OutputFormat::Table | OutputFormat::Html => {}
    }
    destination.finish()
}

/// Heuristics by label. Custom ones name zones, which the simulator knows by number only.
fn choices(labels: &[String], library: &Library, columns: &Columns) -> Result<Vec<Choice>> {
    let choice = |label: &String| -> Result<Choice> {
        let heuristic = library.parse_for(label, &columns.names)?;
        Ok(Choice { label: label.clone(), heuristic })
    };
    labels.iter().map(choice).collect()
}

fn dataset(input: &Input) -> Result<Dataset> {
    let Input { dataset, zones, nodes, endpoints, random, seed } = input;
    let (Some(zones), Some(nodes), Some(endpoints)) = (*zones, *nodes, *endpoints) else {
        return named_dataset(dataset.as_deref().unwrap_or("kep-small"));
    };
    let title = format!("{}, nodes {nodes}, endpoints {endpoints}", counted(zones, "zone"));
    let columns = || Columns::numbered(zones);
    let wrong = |error: DatasetError| Usage(error.to_string());
    match *random {
        Some(rows) => {
            let random = Random { zones, nodes, endpoints, rows, seed: *seed };
            let random = random.checked().map_err(wrong)?;
            let title = format!("{} (seed {seed}) of {title}", counted(rows, "random input"));
            Ok(Dataset::indexed(&title, columns(), Box::new(random)))
        }
        None => {
            let ranges = Ranges::new(zones, nodes, endpoints).map_err(wrong)?;
            Ok(Dataset::indexed(&title, columns(), Box::new(ranges)))
        }
    }
}

fn named_dataset(name: &str) -> Result<Dataset> {
    match Dataset::builtin(name) {
        Some(dataset) => Ok(dataset),
        None => file_dataset(name, &Dataset::builtin_names()),
    }
}

fn file_dataset(name: &str, builtin: &[&str]) -> Result<Dataset> {
    if name == "-" {
        return Ok(Dataset::csv("standard input", Box::new(io::stdin()), None)?);
    }
    let opened = File::open(Path::new(name)).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened
        .with_context(|| format!("cannot read file `{name}` (built in: {})", builtin.join(", ")))?;
    if metadata.is_dir() {
        bail!("cannot read `{name}`: it is a folder; name a CSV file");
    }
    let input: Box<dyn Read + Send> = Box::new(file);
    Ok(Dataset::csv(name, input, Some(metadata.len()))?)
}

fn merge(files: &[PathBuf], output: &Output) -> Result<()> {
    let mut parts = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let part = Part::read(&name, &text)?;
        parts.push((name, part));
    }
    let summary = part::merge(parts)?;
    let mut destination = open(output)?;
    report::write_summary(&summary, output.format.into(), &mut destination)?;
    destination.finish()
}

/// The built-in heuristics and those of a configuration file, if one is given.
fn library(path: Option<&Path>) -> Result<Library> {
    let file = path.map(zonewise_controller::config::File::read).transpose()?.unwrap_or_default();
    Ok(file.library()?)
}

fn run_timeline(name: &str, heuristics: &Heuristics, format: Format, strict: bool) -> Result<()> {
    let library = library(heuristics.config.as_deref())?;
    let labels = heuristics.labels(&library)?;
    let mut problems: Vec<Problem> = Vec::new();
    let scenario = match Scenario::builtin(name) {
        Some(scenario) => scenario,
        None => {
            let builtin = Scenario::BUILTIN.map(|scenario| scenario.name);
            let dataset = file_dataset(name, &builtin)?;
            Scenario::from_rows(dataset, &mut |problem| problems.push(problem))?
        }
    };
    let mut subjects = vec![Subject::Reference];
    for label in labels {
        let heuristic = library.parse(&label)?.into();
        subjects.push(Subject::Heuristic { label, heuristic });
    }
    if let Some(problem) = problems.first().filter(|_| strict) {
        return Err(explain(RunError::Strict(problem.clone())));
    }
    for problem in &problems {
        complain(&format!("warning: {problem}"));
    }
    let bar = Bar::new(&Work::Heuristics(subjects.len() as u64));
    let run = |subject| {
        let result = timeline::run(&scenario, subject);
        bar.advance(Progress { rows: 1, read: None });
        result
    };
    let results: Vec<_> = subjects.iter().map(run).collect();
    bar.clear();
    let mut destination = Destination::open(None)?;
    report::timeline::write(&scenario, &results, format, &mut destination)?;
    destination.finish()
}

fn run_published(small_only: bool) -> Result<()> {
    let mut out = Destination::open(None)?;
    let job = |labels: &[&str]| -> Result<Job> {
        let choices = labels.iter().map(|label| Choice::parse(label)).collect::<Result<_, _>>()?;
        Ok(Job { choices, shard: None, strict: false, threads: None })
    };
    writeln!(
        out,
        "# The published tables and ours\n\n\
         Written by `zonewise simulate published`, which fails if a published figure differs.\n\n\
         ## Starting thresholds, small data set (389,400 inputs)\n\n\
         KEP-2004's figures are the weighted sums of the three means after rounding them to two\n\
         decimals. The means of the totals differ from them in one last digit: 72.56 for `random`.\n"
    )?;
    let summary =
        job(&published::small_heuristics())?.run(named_dataset("kep-small")?, &mut NoRows)?;
    let mut missed = published::compare_small(&summary, &mut out)?;
    if !small_only {
        writeln!(
            out,
            "\n## Large data set (39,273,145 inputs)\n\n\
             Ours = published, where there is a published figure. `auto`, `balanced-hints` and `balanced` are\n\
             not in the document; `balanced` is the best any router can score.\n"
        )?;
        let summary =
            job(&published::large_heuristics())?.run(named_dataset("kep-large")?, &mut NoRows)?;
        missed += published::compare_large(&summary, &mut out)?;
    }
    out.finish()?;
    if missed > 0 {
        bail!("our figures differ from the published ones: {}", counted(missed, "difference"));
    }
    Ok(())
}
