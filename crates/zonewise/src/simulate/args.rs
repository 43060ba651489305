//! The arguments of `zonewise simulate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use zonewise_simulator::dataset::ranges::NumberRange;
use zonewise_simulator::evaluate::Shard;
use zonewise_simulator::report::Format;
use zonewise_simulator::timeline::scenario::Scenario;
use zonewise_topology::expression::Library;
use zonewise_topology::heuristics;

use crate::args::Usage;

#[derive(Args)]
#[command(
    after_help = simulate_examples(),
    after_long_help = format!("{}\n\n{}", heuristics_help(), simulate_examples()),
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    pub(crate) command: Option<SimulateCommand>,
    #[command(flatten)]
    pub(crate) evaluate: Evaluate,
}

#[derive(Args)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    pub(crate) input: Input,
    #[command(flatten)]
    pub(crate) heuristics: Heuristics,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Write every row, not only the summary; needs -o csv, json (with groups) or parquet
    #[arg(long)]
    pub(crate) rows: bool,
    /// Run only part I of N (counted from 0) and write a partial result for `simulate merge`;
    /// with --rows, only that part's rows
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
    /// Stop at the first row that cannot be used
    #[arg(long)]
    pub(crate) strict: bool,
    /// Threads to use [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

#[derive(Args)]
pub(crate) struct Input {
    /// kep-small, kep-medium, kep-large, representative, or a CSV file in the evaluation tool's
    /// format (`name,zone1,…` then `row,nodes endpoints,…`); `-` reads standard input
    /// [default: kep-small]
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["zones", "nodes", "endpoints", "random"])]
    pub(crate) dataset: Option<String>,
    /// Generate inputs with this number of zones
    #[arg(long, value_name = "N", requires_all = ["nodes", "endpoints"])]
    pub(crate) zones: Option<usize>,
    /// Nodes per zone: a number or a range such as 1..10 or 10..100:10
    #[arg(long, value_name = "RANGE", requires_all = ["zones", "endpoints"])]
    pub(crate) nodes: Option<NumberRange>,
    /// Endpoints per zone, likewise
    #[arg(long, value_name = "RANGE", requires_all = ["zones", "nodes"])]
    pub(crate) endpoints: Option<NumberRange>,
    /// Draw this number of random inputs from the ranges instead of taking all combinations
    #[arg(long, value_name = "ROWS", requires = "zones")]
    pub(crate) random: Option<u64>,
    /// Seed of the random inputs: the same seed gives the same inputs
    #[arg(long, value_name = "N", requires = "random", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct Heuristics {
    /// A heuristic, with parameters as `name:parameter=value,…`; may be given several times
    /// [default: all]
    #[arg(long = "heuristic", value_name = "NAME")]
    names: Vec<String>,
    /// Configuration file (ControllerConfiguration) with heuristics of your own, for --heuristic
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// For `balanced`: load above its fair share that an endpoint may get (0.1 for 10 %)
    #[arg(long, value_name = "THETA", value_parser = overload, allow_negative_numbers = true)]
    max_overload: Option<f64>,
}

impl Heuristics {
    /// The heuristics to run, with their parameters, each once.
    pub(crate) fn labels(&self, library: &Library) -> Result<Vec<String>, Usage> {
        let names: Vec<String> = if self.names.is_empty() {
            heuristics::names()
                .into_iter()
                .chain(library.custom_names())
                .map(String::from)
                .collect()
        } else {
            self.names.clone()
        };
        if let Some(error) = names.iter().find_map(|name| library.parse(name).err()) {
            return Err(Usage(error.to_string()));
        }
        if self.max_overload.is_some() && !names.iter().any(|name| name == "balanced") {
            return Err(Usage(String::from(
                "--max-overload is for the heuristic `balanced` without parameters; add \
                 --heuristic balanced or leave it out",
            )));
        }
        let given = |name: String| match self.max_overload {
            Some(theta) if name == "balanced" => format!("balanced:max-overload={theta}"),
            _ => name,
        };
        let labels: Vec<String> = names.into_iter().map(given).collect();
        match labels.iter().enumerate().find(|(index, label)| labels[..*index].contains(label)) {
            Some((_, twice)) => Err(Usage(format!("--heuristic {twice} is given twice"))),
            None => Ok(labels),
        }
    }
}

#[derive(Args)]
pub(crate) struct Output {
    /// How to write the result
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) format: OutputFormat,
    /// Write to a file instead of standard output; it appears only when it is complete
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Csv,
    Json,
    Html,
    Parquet,
}

impl From<OutputFormat> for Format {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Table => Self::Table,
            OutputFormat::Csv => Self::Csv,
            OutputFormat::Json => Self::Json,
            OutputFormat::Html => Self::Html,
            OutputFormat::Parquet => Self::Parquet,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum SimulateCommand {
    /// Put the partial results of `simulate --shard` together
    Merge {
        /// The files that the shards wrote
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Run a sequence of states and report churn (endpoints moved, flips, slices written) and quality
    #[command(after_help = timeline_help())]
    Timeline {
        /// one-by-one, rolling-update, autoscaling, node-loss, or a CSV file whose rows are the states, one
        /// after the other; `-` reads standard input
        #[arg(long, value_name = "NAME|FILE", default_value = "rolling-update")]
        scenario: String,
        #[command(flatten)]
        heuristics: Heuristics,
        /// How to write the result: table, csv or json
        #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
        format: TimelineFormat,
        /// Stop at the first row that cannot be used
        #[arg(long)]
        strict: bool,
    },
    /// Compare with the tables published in KEP-2004; fails if a published figure is not met
    Published {
        /// Only the table of starting thresholds (seconds instead of a minute)
        #[arg(long)]
        small: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum TimelineFormat {
    Table,
    Csv,
    Json,
}

impl From<TimelineFormat> for Format {
    fn from(format: TimelineFormat) -> Self {
        match format {
            TimelineFormat::Table => Self::Table,
            TimelineFormat::Csv => Self::Csv,
            TimelineFormat::Json => Self::Json,
        }
    }
}

fn overload(text: &str) -> Result<f64, String> {
    let wrong = || format!("expected a number of at least 0 such as 0.1 for 10 %, found `{text}`");
    let value: f64 = text.parse().map_err(|_| wrong())?;
    heuristics::parse(&format!("balanced:max-overload={value}")).map(|_| value).map_err(|_| wrong())
}

/// More would be smaller than a chunk of the largest published data set.
const MOST_SHARDS: u64 = 30_000;

fn shard(text: &str) -> Result<Shard, String> {
    let wrong = || format!("expected I/N with I from 0 to N-1, such as 0/4; found `{text}`");
    let (index, count) = text.split_once('/').ok_or_else(wrong)?;
    let number = |part: &str| part.parse::<u64>().map_err(|_| wrong());
    let shard = Shard { index: number(index)?, count: number(count)? };
    if shard.count > MOST_SHARDS {
        return Err(format!("at most {MOST_SHARDS} shards are possible"));
    }
    if shard.index < shard.count { Ok(shard) } else { Err(wrong()) }
}

fn heuristics_help() -> String {
    let mut text = String::from("Heuristics:");
    for entry in &heuristics::TABLE {
        text.push_str(&format!("\n  {:<17} {}", entry.name, entry.summary));
        for parameter in entry.parameters {
            let default = parameter.default.map_or_else(String::new, |value| format!(" [{value}]"));
            text.push_str(&format!(
                "\n  {:<17}   :{}=  {}{default}",
                "", parameter.name, parameter.summary
            ));
        }
    }
    text
}

fn simulate_examples() -> &'static str {
    "Examples:
  zonewise simulate
  zonewise simulate --dataset kep-large --heuristic auto --heuristic balanced
  zonewise simulate --zones 4 --nodes 2..6 --endpoints 0..12 -o html --to report.html
  zonewise simulate --dataset mine.csv --heuristic local -o csv --rows
  zonewise simulate --config controller.yaml --heuristic example.com/mine
  zonewise simulate --dataset kep-large --shard 0/2 --to part-0.json
  zonewise simulate merge part-*.json"
}

fn timeline_help() -> String {
    let mut text = String::from("Scenarios:");
    for scenario in Scenario::BUILTIN {
        let (name, summary) = (scenario.name, scenario.summary);
        text.push_str(&format!("\n  {name:<17} {summary}"));
    }
    text
}
