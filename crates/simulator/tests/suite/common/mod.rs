//! Builders for tests.
#![allow(dead_code, reason = "every test file uses some of these")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use zonewise_simulator::dataset::Dataset;
use zonewise_simulator::evaluate::{Choice, NoRows, Options, RowEncoder, Shard, evaluate};
use zonewise_simulator::report::csv::CsvRows;
use zonewise_simulator::summary::Summary;

pub(crate) fn choices(labels: &[&str]) -> Vec<Choice> {
    labels.iter().map(|label| Choice::parse(label).unwrap()).collect()
}

pub(crate) fn options(shard: Shard) -> Options<'static> {
    Options { shard, strict: false, progress: &|_| {} }
}

pub(crate) fn csv(text: &str) -> Dataset {
    let bytes = text.as_bytes().to_vec();
    Dataset::csv("in.csv", Box::new(std::io::Cursor::new(bytes)), Some(text.len() as u64)).unwrap()
}

pub(crate) fn run(dataset: Dataset, labels: &[&str]) -> Summary {
    evaluate(dataset, &choices(labels), &options(Shard::WHOLE), &mut NoRows).unwrap()
}

pub(crate) fn run_with<E: RowEncoder>(
    dataset: Dataset,
    labels: &[&str],
    encoder: &mut E,
) -> Summary {
    evaluate(dataset, &choices(labels), &options(Shard::WHOLE), encoder).unwrap()
}

/// The rows as CSV text.
pub(crate) fn rows(dataset: Dataset, labels: &[&str]) -> String {
    let mut out = Vec::new();
    let mut encoder = CsvRows::new(&mut out, labels.len() > 1).unwrap();
    run_with(dataset, labels, &mut encoder);
    String::from_utf8(out).unwrap()
}

/// Runs with so many threads.
pub(crate) fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// Per row: all endpoints, and whether the heuristic fell back.
pub(crate) fn rows_with_reasons(dataset: Dataset, label: &str) -> Vec<(u64, bool)> {
    use zonewise_simulator::evaluate::RowView;
    use zonewise_topology::reason::Outcome;

    struct Keep(Vec<(u64, bool)>);
    impl RowEncoder for Keep {
        type Part = Vec<(u64, bool)>;
        const WANTED: bool = true;
        fn begin(&self) -> Self::Part {
            Vec::new()
        }
        fn encode(&self, part: &mut Self::Part, row: &RowView<'_>) {
            let total = row.allocation.groups().iter().map(|group| group.size).sum();
            part.push((total, row.reason.outcome() == Outcome::Fallback));
        }
        fn write(&mut self, part: Self::Part) -> std::io::Result<()> {
            self.0.extend(part);
            Ok(())
        }
    }
    let mut keep = Keep(Vec::new());
    run_with(dataset, &[label], &mut keep);
    keep.0
}
