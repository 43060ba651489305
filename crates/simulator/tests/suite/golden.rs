//! The evaluation tool's own results: 200 inputs × 7 algorithms, with groups, and `local` with other
//! starting multiples.

use std::collections::BTreeMap;
use std::io;

use zonewise_simulator::dataset::Dataset;
use zonewise_simulator::decimal::Decimal;
use zonewise_simulator::evaluate::{
    Choice, Options, RowEncoder, RowOutcome, RowView, Shard, evaluate,
};

const ALGORITHMS: [(&str, &str); 7] = [
    ("Original", "random"),
    ("Local", "local"),
    ("LocalShared", "local-shared"),
    ("LocalWeighted", "local-weighted"),
    ("LocalOpt", "local-opt"),
    ("SharedGlobal", "shared-global"),
    ("SharedMultiZone", "shared-multizone"),
];

#[derive(Debug, PartialEq)]
struct Group {
    label: String,
    contents: BTreeMap<String, u64>,
    weights: BTreeMap<String, f64>,
}

#[derive(Debug)]
struct Result {
    outcome: &'static str,
    values: Vec<Decimal>,
    slices: u64,
    groups: Vec<Group>,
}

/// Keeps every row with its groups.
#[derive(Default)]
struct Keep(BTreeMap<(String, String), Result>);

impl RowEncoder for Keep {
    type Part = Vec<((String, String), Result)>;
    const WANTED: bool = true;

    fn begin(&self) -> Self::Part {
        Vec::new()
    }

    fn encode(&self, part: &mut Self::Part, row: &RowView<'_>) {
        let outcome = match row.outcome {
            RowOutcome::Scored { .. } => "ok",
            RowOutcome::Invalid => "invalid",
            RowOutcome::Failed => "no-end",
        };
        let values = row.outcome.values().into_iter().flatten().collect();
        let result =
            Result { outcome, values, slices: row.allocation.slices(), groups: groups(row) };
        part.push(((row.name.to_owned(), row.heuristic.to_owned()), result));
    }

    fn write(&mut self, part: Self::Part) -> io::Result<()> {
        self.0.extend(part);
        Ok(())
    }
}

fn groups(row: &RowView<'_>) -> Vec<Group> {
    let allocation = row.allocation;
    let name = |zone: usize| row.zones[zone].to_string();
    let mut groups: Vec<Group> = allocation
        .groups()
        .iter()
        .enumerate()
        .map(|(index, group)| Group {
            label: allocation.label_text(group, row.zones),
            contents: allocation
                .contents_of(index)
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(zone, &count)| (name(zone), count))
                .collect(),
            weights: allocation
                .weights_of(index)
                .iter()
                .enumerate()
                .filter(|(_, weight)| **weight != 0.0)
                .map(|(zone, &weight)| (name(zone), weight))
                .collect(),
        })
        .collect();
    groups.sort_by(|a, b| a.label.cmp(&b.label));
    groups
}

/// `label {source:count ...} [zone:weight ...]; …`
fn parse_groups(text: &str) -> Vec<Group> {
    let pairs = |text: &str| -> Vec<(String, String)> {
        text.split_whitespace()
            .map(|pair| pair.rsplit_once(':').unwrap())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    };
    text.split("; ")
        .filter(|group| !group.is_empty())
        .map(|group| {
            let (label, rest) = group.split_once(" {").unwrap();
            let (contents, weights) = rest.split_once("} [").unwrap();
            let weights = weights.strip_suffix(']').unwrap();
            let count = |(zone, count): (String, String)| (zone, count.parse().unwrap());
            let weight = |(zone, weight): (String, String)| (zone, weight.parse().unwrap());
            Group {
                label: label.to_owned(),
                contents: pairs(contents).into_iter().map(count).collect(),
                weights: pairs(weights).into_iter().map(weight).collect(),
            }
        })
        .collect()
}

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/simulator")
}

fn run(labels: &[String]) -> BTreeMap<(String, String), Result> {
    let choices: Vec<Choice> = labels.iter().map(|label| Choice::parse(label).unwrap()).collect();
    let mut kept = Keep::default();
    let options = Options { shard: Shard::WHOLE, strict: false, progress: &|_| {} };
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if file.starts_with("input-") {
            let input = Box::new(std::fs::File::open(&path).unwrap());
            let dataset = Dataset::csv(&file, input, None).unwrap();
            evaluate(dataset, &choices, &options, &mut kept).unwrap();
        }
    }
    kept.0
}

fn records(file: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(folder().join(file)).unwrap();
    reader.deserialize().map(|record| record.unwrap()).collect()
}

fn compare(record: &BTreeMap<String, String>, result: Option<&Result>, what: &str) {
    let outcome = record["outcome"].as_str();
    assert_eq!(result.map_or("dropped", |result| result.outcome), outcome, "{what}");
    if outcome != "ok" {
        return;
    }
    for (column, ours) in RowOutcome::COLUMNS.iter().zip(&result.unwrap().values) {
        let theirs: f64 = record[*column].parse().unwrap();
        assert!((ours.to_f64() - theirs).abs() < 0.000_15, "{what} {column}: {ours} {theirs}");
    }
}

#[test]
fn a20_scores_of_all_golden_inputs() {
    let results = run(&ALGORITHMS.map(|(_, name)| name.to_owned()));
    let records = records("vectors.csv");
    assert_eq!(records.len(), 1400);
    for record in &records {
        let (_, name) = ALGORITHMS.iter().find(|(tool, _)| *tool == record["algorithm"]).unwrap();
        let what = format!("{} {name}", record["id"]);
        compare(record, results.get(&(record["id"].clone(), (*name).to_owned())), &what);
    }
}

#[test]
fn a18_groups_of_all_golden_inputs() {
    let results = run(&ALGORITHMS.map(|(_, name)| name.to_owned()));
    let mut compared = 0;
    for record in records("groups.csv") {
        let (_, name) = ALGORITHMS.iter().find(|(tool, _)| *tool == record["algorithm"]).unwrap();
        let what = format!("{} {name}", record["id"]);
        let Some(result) = results.get(&(record["id"].clone(), (*name).to_owned())) else {
            assert_eq!(record["slice_groups"], "", "{what}: no result");
            continue;
        };
        if result.outcome == "no-end" {
            continue;
        }
        let expected = parse_groups(&record["slice_groups"]);
        let close = |ours: &Group, theirs: &Group| {
            ours.label == theirs.label
                && ours.contents == theirs.contents
                && ours.weights.len() == theirs.weights.len()
                && ours
                    .weights
                    .iter()
                    .zip(&theirs.weights)
                    .all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-12)
        };
        let same = result.groups.len() == expected.len()
            && result.groups.iter().zip(&expected).all(|(a, b)| close(a, b));
        assert!(same, "{what}\n ours: {:?}\n tool: {expected:?}", result.groups);
        assert_eq!(result.slices.to_string(), record["endpoint_slices"], "{what}");
        compared += 1;
    }
    assert!(compared > 1380, "only {compared} compared");
}

#[test]
fn a7_local_with_other_starting_multiples() {
    let starts = ["0", "1", "2", "4", "5"];
    let results = run(&starts.map(|start| format!("local:start={start}")));
    let records = records("vectors-local-start.csv");
    assert_eq!(records.len(), 1000);
    for record in &records {
        let label = format!("local:start={}", record["start_multiple"]);
        let what = format!("{} {label}", record["id"]);
        compare(record, results.get(&(record["id"].clone(), label)), &what);
    }
}
