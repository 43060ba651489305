//! The published figures, on the small data set; the large one is `make simulate-kep`.

use crate::common::run;
use zonewise_simulator::dataset::Columns;
use zonewise_simulator::dataset::Dataset;
use zonewise_simulator::dataset::ranges::{NumberRange, Ranges};
use zonewise_simulator::published;
use zonewise_topology::heuristics;

fn small() -> Dataset {
    Dataset::builtin("kep-small").unwrap()
}

#[test]
fn a22_starting_thresholds_of_the_document() {
    let summary = run(small(), &published::small_heuristics());
    let mut table = Vec::new();
    assert_eq!(published::compare_small(&summary, &mut table).unwrap(), 0);
    // The slip of the document: the mean of the totals is 72.56, from rounded means it is 72.55.
    let text = String::from_utf8(table).unwrap();
    assert!(text.contains("| random | 72.55 | 72.55 | 72.5563 |"), "{text}");
}

#[test]
fn a22_every_algorithm_on_the_small_set() {
    let rows = [
        ("random", [72.5563, 39.0140, 100.0, 100.0, 0.0]),
        ("local", [80.0738, 84.3800, 92.1921, 34.8399, 9.3294]),
        ("local-shared", [80.8002, 84.0380, 94.8099, 33.7274, 6.2505]),
        ("local-weighted", [80.8054, 82.9784, 100.0, 23.1011, 0.0]),
        ("local-opt", [79.7870, 82.0936, 97.3291, 26.0883, 3.5860]),
        ("shared-global", [72.5563, 39.0140, 100.0, 100.0, 0.0]),
        ("shared-multizone", [72.5563, 39.0140, 100.0, 100.0, 0.0]),
        // Not published: the provable maximum.
        ("balanced", [92.3403, 82.9784, 100.0, 100.0, 0.0]),
    ];
    let summary = run(small(), &rows.map(|(name, _)| name));
    assert_eq!(summary.rows, 389_400);
    for (line, (name, expected)) in summary.heuristics.iter().zip(rows) {
        assert_eq!((line.valid, line.invalid, line.failed), (389_400, 0, 0), "{name}");
        let columns =
            [&line.score, &line.in_zone, &line.deviation, &line.slice, &line.max_deviation];
        for (column, expected) in columns.iter().zip(expected) {
            assert_eq!(
                format!("{:.4}", column.mean(line.valid)),
                format!("{expected:.4}"),
                "{name}"
            );
        }
    }
}

/// No heuristic beats the limit, and `balanced` reaches it. A score has four decimals, the limit
/// too: they may differ by the last one.
#[test]
fn a20_nothing_scores_above_the_limit() {
    let summary = run(small(), &heuristics::names());
    for line in &summary.heuristics {
        assert!(line.distance.min.0 >= -1, "{} by {}", line.heuristic, line.distance.min);
    }
    let balanced = summary.heuristics.iter().find(|line| line.heuristic == "balanced").unwrap();
    assert!(balanced.distance.max.0 <= 1, "{}", balanced.distance.max);
}

/// Zones without nodes, without endpoints, with names that come again: the limit holds there too.
#[test]
fn a20_nothing_scores_above_the_limit_on_odd_inputs() {
    let odd = [
        "name,a,a,b\nx,1 1,5 5,5 5\ny,3 10,4 9,2 10\nz,9 1,1 9,1 1\n",
        "name,a,b,c\nx,0 4,0 5,0 6\ny,0 4,3 0,3 0\nz,5 1,0 9,0 0\n",
    ];
    for text in odd {
        let summary = run(crate::common::csv(text), &heuristics::names());
        for line in summary.heuristics.iter().filter(|line| line.valid > 0) {
            assert!(
                line.distance.min.0 >= -1,
                "{} by {}: {text}",
                line.heuristic,
                line.distance.min
            );
        }
    }
}

/// "Fewer than 3 endpoints per zone: a high (≈50 %) probability" of no hints, says the page on
/// Topology Aware Routing. Over all placements of 3 to 8 endpoints in three zones that is right;
/// docs/simulator.md shows it number by number.
#[test]
fn e5_the_page_s_claim_about_few_endpoints() {
    let fallbacks = |nodes: NumberRange, totals: std::ops::RangeInclusive<u64>| {
        let ranges = Ranges::new(3, nodes, NumberRange::new(0, 8)).unwrap();
        let dataset = Dataset::indexed("few", Columns::numbered(3), Box::new(ranges));
        let rows = crate::common::rows_with_reasons(dataset, "auto");
        let few: Vec<&(u64, bool)> =
            rows.iter().filter(|(total, _)| totals.contains(total)).collect();
        let without = few.iter().filter(|(_, fell_back)| *fell_back).count();
        (without as f64 / few.len() as f64 * 1000.0).round() / 10.0
    };
    let (equal, unequal) = (NumberRange::new(5, 5), NumberRange::new(1, 10));
    assert_eq!((fallbacks(equal, 3..=8), fallbacks(unequal, 3..=8)), (51.4, 47.2));
    assert_eq!((fallbacks(equal, 9..=24), fallbacks(unequal, 9..=24)), (9.7, 3.0));
}
