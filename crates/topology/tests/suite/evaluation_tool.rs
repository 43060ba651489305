//! The evaluation tool's own groups and traffic for 200 inputs and 7 algorithms, and for `local` with other starting
//! multiples (`testdata/simulator/`). The simulator's tests compare its scores with the same data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{decide, zones};
use zonewise_topology::allocation::Allocation;
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::{Region, Zone};
use zonewise_topology::traffic::TrafficModel;

fn name_of(algorithm: &str) -> &'static str {
    match algorithm {
        "Original" => "random",
        "Local" => "local",
        "LocalShared" => "local-shared",
        "LocalWeighted" => "local-weighted",
        "LocalOpt" => "local-opt",
        "SharedGlobal" => "shared-global",
        "SharedMultiZone" => "shared-multizone",
        _ => panic!("unknown algorithm {algorithm}"),
    }
}

fn records(file: &str) -> Vec<BTreeMap<String, String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/simulator");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let header: Vec<String> = lines.next().unwrap().collect();
    lines.map(|cells| header.iter().cloned().zip(cells).collect()).collect()
}

/// Zones in the byte order of their names. `None` for rows that the tool dropped, and where a name comes twice or is that
/// of a group: the tool mixes them up then, and the simulator with it.
fn input(record: &BTreeMap<String, String>) -> Option<(Vec<String>, Vec<Zone>)> {
    if record["outcome"] == "dropped" {
        return None;
    }
    let names = record["zone_names"].split(';').map(str::to_owned);
    let cells = record["nodes_endpoints"].split(';').map(|cell| {
        let (nodes, endpoints) = cell.split_once(' ').unwrap();
        (nodes.parse().unwrap(), endpoints.parse().unwrap())
    });
    let mut sorted: Vec<(String, (u64, u64))> = names.zip(cells).collect();
    sorted.sort();
    let unique: BTreeSet<&String> = sorted.iter().map(|(name, _)| name).collect();
    let is_unique = unique.len() == sorted.len() && !unique.contains(&"global".to_owned());
    let (names, cells): (Vec<String>, Vec<(u64, u64)>) = sorted.into_iter().unzip();
    is_unique.then(|| (names, zones(&cells)))
}

/// `label {source:count ...} [zone:traffic-weight ...]; ...`, sorted by label.
fn groups(allocation: &Allocation, names: &[String]) -> String {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (index, group) in allocation.groups().iter().enumerate() {
        let named = |values: Vec<String>| {
            let named = names.iter().zip(values).filter(|(_, value)| value != "0");
            named.map(|(name, value)| format!("{name}:{value}")).collect::<Vec<String>>().join(" ")
        };
        let contents = allocation.contents_of(index).iter().map(u64::to_string);
        let weights = allocation.weights_of(index).iter().map(f64::to_string);
        let text = format!("{{{}}} [{}]", named(contents.collect()), named(weights.collect()));
        groups.push((allocation.label_text(group, names), text));
    }
    groups.sort();
    let lines: Vec<String> = groups.iter().map(|(label, text)| format!("{label} {text}")).collect();
    lines.join("; ")
}

/// Texts are the same, but for the last digits of traffic weights.
fn is_close(ours: &str, theirs: &str) -> bool {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let (ours, theirs) = (words(ours), words(theirs));
    let weight = |word: &str| -> Option<(String, f64)> {
        let (zone, weight) = word.trim_end_matches([';', ']']).rsplit_once(':')?;
        Some((zone.to_owned(), weight.parse().ok()?))
    };
    let close = |(ours, theirs): (&String, &String)| {
        ours == theirs
            || weight(ours).zip(weight(theirs)).is_some_and(|((zone, ours), (same, theirs))| {
                zone == same && (ours - theirs).abs() < 1e-12
            })
    };
    ours.len() == theirs.len() && ours.iter().zip(&theirs).all(close)
}

fn compare(
    record: &BTreeMap<String, String>,
    zones: &[Zone],
    (reason, allocation): &(Reason, Allocation),
) {
    let what = format!("{} {reason}", record["id"]);
    let region = Region::of(zones);
    let failed = reason.outcome() == Outcome::Failed;
    assert_eq!(failed, record["outcome"] == "no-end", "{what}");
    let mut model = TrafficModel::new();
    let traffic = model.run(&region, allocation).filter(|_| !failed);
    let Some(traffic) = traffic.filter(|_| record["outcome"] == "ok") else {
        assert_ne!(record["outcome"], "ok", "{what}");
        return;
    };
    let spread = model.spread(&region, allocation, traffic.mean_deviation);
    let figures = [
        ("max_deviation_pct", traffic.max_overload * 100.0),
        ("mean_deviation_pct", traffic.mean_deviation * 100.0),
        ("sd_of_deviation", spread),
    ];
    for (column, ours) in figures {
        let theirs: f64 = record[column].parse().unwrap();
        assert!((ours - theirs).abs() < 0.000_15, "{what} {column}: {ours} {theirs}");
    }
}

#[test]
fn a18_a20_groups_and_traffic_are_those_of_the_tool() {
    let groups_of: BTreeMap<(String, String), String> = records("groups.csv")
        .into_iter()
        .map(|mut record| {
            let mut take = |column| record.remove(column).unwrap();
            ((take("id"), take("algorithm")), take("slice_groups"))
        })
        .collect();
    let mut compared = 0;
    for record in records("vectors.csv") {
        let Some((names, zones)) = input(&record) else { continue };
        let decided = decide(name_of(&record["algorithm"]), &Region::of(&zones), None);
        compare(&record, &zones, &decided);
        if record["outcome"] != "no-end" {
            let theirs = &groups_of[&(record["id"].clone(), record["algorithm"].clone())];
            let ours = groups(&decided.1, &names);
            assert!(
                is_close(&ours, theirs),
                "{} {}\n ours: {ours}\n tool: {theirs}",
                record["id"],
                record["algorithm"]
            );
            compared += 1;
        }
    }
    assert!(compared > 1300, "only {compared} compared");
}

#[test]
fn a7_local_with_other_starting_multiples() {
    let mut compared = 0;
    for record in records("vectors-local-start.csv") {
        let Some((_, zones)) = input(&record) else {
            continue;
        };
        let name = format!("local:start={}", record["start_multiple"]);
        compare(&record, &zones, &decide(&name, &Region::of(&zones), None));
        compared += 1;
    }
    assert!(compared > 900, "only {compared} compared");
}
