//! Sequences of states: what moves, what flips, what is written.

use crate::common::csv;
use zonewise_simulator::timeline::scenario::Scenario;
use zonewise_simulator::timeline::{Subject, TimelineResult, run};
use zonewise_topology::heuristics::parse;

fn scenario(text: &str) -> Scenario {
    Scenario::from_rows(csv(text), &mut |problem| panic!("{problem}")).unwrap()
}

fn run_one(scenario: &Scenario, label: &str) -> TimelineResult {
    let heuristic = parse(label).unwrap().into();
    run(scenario, &Subject::Heuristic { label: label.into(), heuristic })
}

fn moved(result: &TimelineResult) -> Vec<u64> {
    result.steps.iter().map(|step| step.moved).collect()
}

#[test]
fn b4_b5_hysteresis_keeps_hints_through_small_node_changes() {
    let steps = scenario(
        "name,a,b,c\nstart,6 6,6 6,6 6\nmore,9 6,6 6,6 6\nback,6 6,6 6,6 6\nmuch more,10 6,6 6,6 6\n",
    );
    let ours = run_one(&steps, "auto");
    assert_eq!((moved(&ours), ours.flips), (vec![0, 0, 0, 2], 0));
    // With one threshold for both, 29 % expected overload is already too much.
    assert_eq!(moved(&run_one(&steps, "auto:upstream=1"))[..2], [0, 1]);
}

#[test]
fn a8_padding_prevents_flips() {
    // Around the threshold of 9: 12 turns subsets on, 7 leaves them on, 6 turns them off.
    let steps = scenario(
        "name,a,b,c\n11,1 4,1 4,1 3\n12,1 4,1 4,1 4\n9,1 3,1 3,1 3\n7,1 3,1 2,1 2\n6,1 2,1 2,1 2\n11,1 4,1 4,1 3\n",
    );
    let result = run_one(&steps, "local-subset");
    let flipped: Vec<bool> = result.steps.iter().map(|step| step.flipped).collect();
    assert_eq!(flipped, [false, true, false, false, true, false]);
    // A rollout that swings around the threshold: without padding every swing is a flip.
    let swing = scenario(
        "name,a,b,c\n12,1 4,1 4,1 4\n8,1 3,1 3,1 2\n10,1 4,1 3,1 3\n8,1 3,1 3,1 2\n10,1 4,1 3,1 3\n",
    );
    let flips = |label| run_one(&swing, label).flips;
    assert_eq!((flips("local-subset"), flips("local-subset:padding=0")), (0, 4));
}

#[test]
fn a9_lazy_rebalance_writes_only_what_changed() {
    let steps = scenario("name,a,b,c\n12,1 4,1 4,1 4\n13,1 5,1 4,1 4\n14,1 5,1 5,1 4\n");
    let written: Vec<u64> =
        run_one(&steps, "local-subset").steps.iter().map(|step| step.groups_written).collect();
    assert_eq!(written, [3, 1, 1]);
    // Zone shares stand on every slice: any change rewrites them all, here the only one.
    let shares = run_one(&steps, "balanced");
    assert_eq!((shares.groups_written, shares.moved), (3, 0));
}

#[test]
fn a15_rolling_update_ends_well() {
    let rollout = Scenario::builtin("rolling-update").unwrap();
    for (label, limit) in
        [("auto", 0.3), ("local-subset", 0.5), ("balanced", 1e-9), ("balanced-hints", 0.3)]
    {
        let result = run_one(&rollout, label);
        let (first, last) = (&result.steps[0], &result.steps[result.steps.len() - 1]);
        assert_eq!((first.endpoints, last.endpoints), (12, 12));
        // The rollout leaves 5, 4 and 3 endpoints in the zones. No endpoint ends above the
        // heuristic's own limit, and at most one of twelve serves another zone.
        assert!(last.max_overload < Some(limit), "{label} {:?}", last.max_overload);
        assert!(last.in_zone >= Some(11.0 / 12.0 - 1e-9), "{label} {:?}", last.in_zone);
        assert_eq!(result.flips, 0, "{label}");
        assert_eq!(result.steps.iter().map(|step| step.arrived).sum::<u64>(), 24);
        assert_eq!(result.steps.iter().map(|step| step.departed).sum::<u64>(), 12);
    }
}

#[test]
fn e4_built_in_scenarios_lose_no_endpoint_and_no_zone() {
    for scenario in Scenario::BUILTIN {
        let name = scenario.name;
        let scenario = Scenario::builtin(name).unwrap();
        for label in zonewise_topology::heuristics::names() {
            let result = run_one(&scenario, label);
            for (step, state) in result.steps.iter().zip(&scenario.steps) {
                let endpoints: u64 = state.cells.iter().map(|cell| cell.endpoints).sum();
                assert_eq!(step.endpoints, endpoints, "{name} {label}");
            }
            assert_eq!(result.steps_invalid, 0, "{name} {label}");
        }
    }
    assert!(Scenario::builtin("earthquake").is_none());
}

#[test]
fn timelines_are_refused_where_they_make_no_sense() {
    let refuse = |dataset| Scenario::from_rows(dataset, &mut |_| {}).unwrap_err().to_string();
    let small = zonewise_simulator::dataset::Dataset::builtin("kep-small").unwrap();
    assert!(refuse(small).contains("independent of each other"));
    assert!(refuse(csv("name,a,a\nx,1 1,1 1\n")).contains("the same zone name"));
    assert!(refuse(csv("name,a\nx,1 20001\n")).contains("more than 20000 endpoints"));
}
