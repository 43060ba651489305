//! The same bytes whatever the threads, shards, columns and chunks.

use crate::common::{choices, csv, options, rows, run, with_threads};
use proptest::prelude::*;
use zonewise_simulator::dataset::random::Random;
use zonewise_simulator::dataset::ranges::NumberRange;
use zonewise_simulator::dataset::{Columns, Dataset};
use zonewise_simulator::evaluate::{NoRows, Shard, evaluate};
use zonewise_simulator::part::{MergeError, Part, merge};
use zonewise_simulator::report::{Format, write_summary};
use zonewise_simulator::summary::Summary;
use zonewise_topology::heuristics;

fn random(rows: u64) -> Dataset {
    let random = Random {
        zones: 4,
        nodes: NumberRange::new(0, 9),
        endpoints: NumberRange::new(0, 40),
        rows,
        seed: 7,
    };
    Dataset::indexed("random", Columns::numbered(4), Box::new(random))
}

/// A file with good rows, bad rows and rows on which a heuristic fails.
fn mixed() -> String {
    let mut text = String::from("name,b,a,c\n");
    for row in 0..5000u64 {
        match row % 97 {
            5 => text.push_str(&format!("bad{row},1 1,x,1 1\n")),
            9 => text.push_str(&format!("idle{row},0 4,0 4,0 {row}\n")),
            _ => {
                let cell = |salt: u64| format!("{} {}", (row * salt) % 11, (row * salt) % 31);
                text.push_str(&format!("row{row},{},{},{}\n", cell(7), cell(13), cell(3)));
            }
        }
    }
    text
}

fn all_reports(summary: &Summary) -> Vec<Vec<u8>> {
    let report = |format: &Format| {
        let mut out = Vec::new();
        write_summary(summary, *format, &mut out).unwrap();
        out
    };
    Format::BUILT_IN.iter().map(report).collect()
}

#[test]
fn a21_threads_do_not_change_a_byte() {
    let names = heuristics::names();
    let one = with_threads(1, || (run(random(9000), &names), rows(csv(&mixed()), &names)));
    for threads in [2, 3, 7] {
        let many =
            with_threads(threads, || (run(random(9000), &names), rows(csv(&mixed()), &names)));
        assert_eq!(all_reports(&one.0), all_reports(&many.0), "{threads} threads");
        assert!(one.1 == many.1, "{threads} threads: rows differ");
    }
}

#[test]
fn a21_merged_shards_equal_the_whole() {
    let names = heuristics::names();
    let text = mixed();
    let datasets: [&dyn Fn() -> Dataset; 3] =
        [&|| random(9000), &|| csv(&text), &|| Dataset::builtin("representative").unwrap()];
    for dataset in datasets {
        let whole = run(dataset(), &names);
        for count in [1, 2, 5] {
            let mut parts: Vec<(String, Part)> = (0..count)
                .map(|index| {
                    let shard = Shard { index, count };
                    let summary =
                        evaluate(dataset(), &choices(&names), &options(shard), &mut NoRows)
                            .unwrap();
                    let text = serde_json::to_vec(&Part::new(shard, summary)).unwrap();
                    (format!("part-{index}"), Part::read("part", &text).unwrap())
                })
                .collect();
            parts.reverse();
            let merged = merge(parts).unwrap();
            assert_eq!(all_reports(&merged), all_reports(&whole), "{} in {count}", whole.dataset);
        }
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let part = |dataset: Dataset, labels: &[&str], index, count| {
        let shard = Shard { index, count };
        let summary = evaluate(dataset, &choices(labels), &options(shard), &mut NoRows).unwrap();
        (format!("{index}-of-{count}"), Part::new(shard, summary))
    };
    let first = || part(random(3000), &["random"], 0, 3);
    let refused = |parts| merge(parts).unwrap_err().to_string();
    assert_eq!(merge(Vec::new()), Err(MergeError::Nothing));
    assert_eq!(refused(vec![first()]), "incomplete: of 3 shards these are missing: 1, 2");
    assert_eq!(refused(vec![first(), first()]), "0-of-3: shard 0 of 3 is there already, in 0-of-3");
    assert_eq!(
        refused(vec![first(), part(random(3000), &["random"], 1, 4)]),
        "1-of-4: made with a different number of shards than 0-of-3; run all shards with the same arguments"
    );
    assert!(
        refused(vec![first(), part(random(3000), &["local"], 1, 3)])
            .contains("a different set of heuristics")
    );
    assert!(
        refused(vec![first(), part(csv("name,a\nx,1 1\n"), &["random"], 1, 3)])
            .contains("a different data set")
    );
    for (text, why) in [
        (&b"{"[..], "EOF while parsing"),
        (b"{\"kind\":\"Simulation\"}", "missing field"),
        (b"[]", "invalid length"),
    ] {
        let error = Part::read("p.json", text).unwrap_err().to_string();
        assert!(
            error.starts_with("p.json: not a partial result") && error.contains(why),
            "{error}"
        );
    }
    let (_, good) = first();
    let mut value = serde_json::to_value(&good).unwrap();
    value["summary"]["heuristics"][0]["histogram"] = serde_json::json!([1, 2]);
    let error = Part::read("p.json", value.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.contains("its tables do not have the expected shape"), "{error}");
}

#[test]
fn the_same_seed_draws_the_same_inputs_and_another_does_not() {
    let draw = |seed| {
        let random = Random {
            zones: 3,
            nodes: NumberRange::new(1, 5),
            endpoints: NumberRange::new(0, 9),
            rows: 500,
            seed,
        };
        rows(Dataset::indexed("r", Columns::numbered(3), Box::new(random)), &["random"])
    };
    assert!(draw(1) == draw(1) && draw(1) != draw(2));
}

proptest! {
    /// Names decide, not columns: shuffling columns changes nothing, and neither do new names that
    /// sort the same way.
    #[test]
    fn permutation_and_renaming_of_zones(
        cells in prop::collection::vec((0u64..9, 0u64..40), 1..7),
        order in Just((0..7usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let order: Vec<usize> = order.into_iter().filter(|&zone| zone < cells.len()).collect();
        let table = |order: &[usize], name: &dyn Fn(usize) -> String| {
            let header: Vec<String> = order.iter().map(|&zone| name(zone)).collect();
            let row: Vec<String> =
                order.iter().map(|&zone| format!("{} {}", cells[zone].0, cells[zone].1)).collect();
            format!("name,{}\nx,{}\n", header.join(","), row.join(","))
        };
        let straight: Vec<usize> = (0..cells.len()).collect();
        let usual = |zone: usize| format!("zone{zone}");
        let renamed = |zone: usize| format!("{}-{zone}", ["a", "b", "c", "d", "e", "f", "g"][zone]);
        let names = heuristics::names();
        let expected = rows(csv(&table(&straight, &usual)), &names);
        prop_assert_eq!(&rows(csv(&table(&order, &usual)), &names), &expected);
        prop_assert_eq!(&rows(csv(&table(&order, &renamed)), &names), &expected);
    }
}
