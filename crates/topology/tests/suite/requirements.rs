//! The design documents' requirements, by id. A4–A10 and A19, A25: KEP-2004; B2–B14: KEP-2433.

use std::collections::BTreeMap;

use crate::common::{allocate, away, decide, sizes, zones};
use zonewise_topology::allocation::Carrier;
use zonewise_topology::capacity::{Basis, Capacity, LeftOut, MissingCpu, NodeCapacity, WhyLeftOut};
use zonewise_topology::heuristic::Assignment;
use zonewise_topology::heuristics;
use zonewise_topology::reason::{Code, Outcome, Reason};
use zonewise_topology::region::{Region, Situation};
use zonewise_topology::threshold::Start;
use zonewise_topology::traffic::TrafficModel;

/// (nodes or cores, endpoints) per zone.
type Cells = &'static [(u64, u64)];

fn node<'a>(name: &'a str, zone: &'a str, cpu_milli: u64) -> NodeCapacity<'a> {
    let cpu_milli = Some(cpu_milli).filter(|cpu| *cpu > 0);
    NodeCapacity { name, zone: Some(zone), cpu_milli, ready: true, control_plane: false }
}

fn shares(capacity: &Capacity) -> Vec<(&str, f64)> {
    capacity.zones.iter().map(|zone| (&*zone.name, zone.share)).collect()
}

/// Zones a, b, c with (CPU cores, endpoints); a zone without cores has no node.
fn by_cpu(cells: &[(u64, u64)]) -> Situation {
    let names = ["a", "b", "c", "d"];
    let nodes: Vec<NodeCapacity<'_>> = cells
        .iter()
        .zip(names)
        .filter(|(cell, _)| cell.0 > 0)
        .map(|(cell, name)| node(name, name, cell.0 * 1000))
        .collect();
    let endpoints: BTreeMap<Box<str>, u64> =
        cells.iter().zip(names).map(|(cell, name)| (name.into(), cell.1)).collect();
    Situation::new(&Capacity::of(&nodes, MissingCpu::Refuse), &endpoints, 0)
}

#[test]
fn a4_expected_endpoints_follow_cpu_and_else_node_count() {
    let mut nodes = vec![node("1", "a", 3000), node("2", "a", 1000), node("3", "b", 4000)];
    let by_cpu = Capacity::of(&nodes, MissingCpu::CountNodes);
    assert_eq!((shares(&by_cpu), by_cpu.basis), (vec![("a", 0.5), ("b", 0.5)], Basis::Cpu));
    nodes.push(node("4", "b", 0));
    nodes.push(node("5", "b", 4000));
    let by_count = Capacity::of(&nodes, MissingCpu::CountNodes);
    assert_eq!((shares(&by_count), by_count.basis), (vec![("a", 0.4), ("b", 0.6)], Basis::Nodes));
    let situation = Situation::new(&by_count, &BTreeMap::from([("a".into(), 10)]), 0);
    assert_eq!((situation.region().expected(0), situation.region().expected(1)), (4.0, 6.0));
    assert_eq!(by_count.unusable_nodes(), 0);
}

#[test]
fn a5_receivers_and_donors_take_turns() {
    // (nodes, endpoints) → endpoints per subset. Padding 0 and a low threshold: the algorithm alone.
    let rows: [(Cells, &[u64]); 6] = [
        (&[(21, 11), (21, 11), (20, 9)], &[10, 11, 10]),
        (&[(1, 9), (1, 0), (1, 0)], &[3, 3, 3]),
        (&[(1, 5), (1, 3), (1, 2)], &[4, 3, 3]),
        (&[(1, 4), (1, 4), (1, 4)], &[4, 4, 4]),
        (&[(2, 12), (1, 0), (1, 0)], &[6, 3, 3]),
        (&[(1, 10), (1, 6), (1, 2)], &[6, 6, 6]),
    ];
    for (cells, expected) in rows {
        let (reason, allocation) = allocate("local-subset:threshold=1,padding=0", cells);
        assert_eq!(sizes(&allocation), expected, "{cells:?}: {reason}");
        assert_eq!(allocation.carrier(), Carrier::Subsets);
    }
}

#[test]
fn a5_differs_from_the_evaluation_tool() {
    let cells = [(21, 11), (21, 11), (20, 9)];
    let tool = sizes(&allocate("local", &cells).1);
    let text = sizes(&allocate("local-subset:threshold=1,padding=0", &cells).1);
    assert_eq!((tool, text), (vec![11, 11, 9], vec![10, 11, 10]));
}

#[test]
fn a6_overload_threshold_is_50_percent_and_inclusive() {
    // 3 expected each; a zone with 2 has exactly 50 % overload: that is too much.
    let (_, allocation) = allocate("local-subset:threshold=1,padding=0", &[(1, 5), (1, 2), (1, 2)]);
    assert_eq!(sizes(&allocation), [3, 3, 3]);
    // Below 50 % nothing moves for overload, and both are at the floor of 3.33.
    let (_, allocation) = allocate("local-subset:threshold=1,padding=0", &[(1, 4), (1, 3), (1, 3)]);
    assert_eq!(sizes(&allocation), [4, 3, 3]);
    // Donors with negative overload give first, the richest of them foremost: b gives to c until it
    // has no more than a, then both take turns.
    let (_, allocation) =
        allocate("local-subset:threshold=1,padding=0", &[(3, 10), (3, 13), (3, 1)]);
    assert_eq!(sizes(&allocation), [8, 8, 8]);
    assert_eq!((allocation.content(2, 0), allocation.content(2, 1)), (2, 5));
    // Only then donors that stay below the threshold. Six tiny zones cannot give their only endpoint;
    // a has 8 of 9.7 expected, b 6 (62 % overload): a gives although it has too few itself.
    let tiny = [(1, 1); 6];
    let cells = [&[(97, 8), (97, 6)][..], &tiny[..]].concat();
    let (reason, allocation) = allocate("local-subset:threshold=1,padding=0", &cells);
    assert_eq!(reason, Reason::SubsetsAssigned { moved: 1 });
    assert_eq!(sizes(&allocation), [7, 7, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a7_starting_threshold_defaults_to_three_per_zone() {
    assert_eq!(Start::default_for(3), Start { threshold: 9, padding: 3 });
    let rows = [
        (None, None, (9, 3), vec![]),
        (Some("20"), None, (20, 3), vec![]),
        (Some(" 6 "), Some("0"), (6, 0), vec![]),
        (Some("0"), None, (9, 3), vec![Code::StartingThresholdInvalid]),
        (
            Some("-4"),
            Some("many"),
            (9, 3),
            vec![Code::StartingThresholdInvalid, Code::PaddingInvalid],
        ),
        (Some(""), Some("-1"), (9, 3), vec![Code::StartingThresholdInvalid, Code::PaddingInvalid]),
        (Some("99999999999999999999"), None, (9, 3), vec![Code::StartingThresholdInvalid]),
    ];
    for (threshold, padding, (expected, pad), codes) in rows {
        let (start, reasons) = Start::resolve(3, threshold, padding);
        assert_eq!(start, Start { threshold: expected, padding: pad }, "{threshold:?} {padding:?}");
        assert_eq!(reasons.iter().map(Reason::code).collect::<Vec<_>>(), codes);
    }
}

#[test]
fn a8_padding_keeps_the_state_in_between() {
    // The document's examples: (threshold, padding) → on at, off at.
    // Without padding the state only depends on the threshold: nothing flaps.
    for (threshold, padding, on_at, off_at) in
        [(9, 3, 12, 6), (6, 3, 9, 3), (5, 9, 14, 0), (9, 0, 9, 8)]
    {
        let start = Start { threshold, padding };
        for endpoints in 0..20 {
            assert_eq!(start.is_on(endpoints, false), endpoints >= on_at, "{endpoints} from off");
            assert_eq!(start.is_on(endpoints, true), endpoints > off_at, "{endpoints} from on");
        }
    }
}

#[test]
fn a8_subsets_appear_at_12_and_vanish_at_6() {
    let on = |total: u64, previous: Option<&Assignment>| {
        let each = [total - 2 * (total / 3), total / 3, total / 3];
        let zones = zones(&each.map(|endpoints| (1, endpoints)));
        decide("local-subset", &Region::of(&zones), previous).0.outcome() == Outcome::InForce
    };
    let was_on = Assignment::empty(3);
    for endpoints in 1..20 {
        assert_eq!(on(endpoints, None), endpoints >= 12, "{endpoints} from off");
        assert_eq!(on(endpoints, Some(&was_on)), endpoints > 6, "{endpoints} from on");
    }
}

#[test]
fn a9_an_update_that_breaks_no_threshold_changes_nothing_else() {
    let before = zones(&[(1, 8), (1, 4), (1, 0)]);
    let (_, allocation) = decide("local-subset", &Region::of(&before), None);
    assert_eq!(sizes(&allocation), [4, 4, 4]);
    let mut previous = Assignment::from(&allocation);
    // One endpoint arrives in zone b: it joins b's subset, the four of c stay from a.
    let arrived = zones(&[(1, 8), (1, 5), (1, 0)]);
    let (reason, allocation) = decide("local-subset", &Region::of(&arrived), Some(&previous));
    assert_eq!(reason.code(), Code::SubsetsKept);
    assert_eq!((sizes(&allocation), away(&allocation)), (vec![4, 5, 4], 4));
    // Two of the four that serve c leave: c would be overloaded by 100 %. Everything is rebalanced.
    previous = Assignment::empty(3);
    previous.add(0, 0, 4);
    previous.add(0, 2, 2);
    previous.add(1, 1, 5);
    let left = zones(&[(1, 6), (1, 5), (1, 0)]);
    let (reason, allocation) = decide("local-subset", &Region::of(&left), Some(&previous));
    assert_eq!(reason.code(), Code::SubsetsAssigned);
    assert_eq!(sizes(&allocation), [4, 4, 3]);
}

#[test]
fn a10_endpoints_without_a_zone_go_where_they_are_needed_most() {
    let zones = zones(&[(1, 5), (1, 4), (1, 2)]);
    let region = Region { zones: &zones, total: 14, unplaced: 3, unknown_nodes: 0 };
    for name in ["local-subset", "require-zone"] {
        let (reason, allocation) = decide(name, &region, None);
        assert_eq!(sizes(&allocation), [5, 5, 4], "{name}: {reason}");
        assert_eq!((allocation.content(1, 3), allocation.content(2, 3)), (1, 2), "{name}");
    }
}

#[test]
fn a19_worked_examples() {
    // Ten endpoints, 3.3 expected each: zone a gives one to c.
    let ten = [(1, 5), (1, 3), (1, 2)];
    let (_, allocation) = allocate("local-subset:threshold=9,padding=0", &ten);
    assert_eq!((sizes(&allocation), away(&allocation)), (vec![4, 3, 3], 1));
    // Five endpoints, 1.67 expected each: some zone is left with one, 67 % overload.
    let five = [(1, 2), (1, 2), (1, 1)];
    let (reason, allocation) = allocate("local-subset:threshold=1,padding=0", &five);
    let Reason::OverloadTooHigh { zone, expected, present, limit } = reason else {
        panic!("{reason}");
    };
    assert_eq!((zone, present, limit), (2, 1, 0.5));
    assert!((expected / present as f64 - 1.0 - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(allocation.carrier(), Carrier::Plain);
}

/// Few and many nodes, random and imbalanced endpoints, zones without endpoints: every heuristic
/// alone keeps all endpoints and serves every zone.
#[test]
fn a25_each_approach_alone() {
    let inputs: [&[(u64, u64)]; 8] = [
        &[(1, 4), (1, 4), (1, 4)],
        &[(200, 4), (150, 5), (170, 6)],
        &[(5, 30), (5, 2), (5, 1)],
        &[(5, 40), (5, 0), (5, 0)],
        &[(1, 300), (20, 7), (3, 0), (9, 55)],
        &[(4, 1), (4, 1)],
        &[(3, 12)],
        &[(2, 101), (2, 100), (2, 99)],
    ];
    for name in heuristics::names() {
        for cells in inputs {
            let (reason, allocation) = allocate(name, cells);
            let total: u64 = cells.iter().map(|cell| cell.1).sum();
            let placed: u64 = allocation.groups().iter().map(|group| group.size).sum();
            assert_eq!(placed, total, "{name} {cells:?}: {reason}");
            let served = TrafficModel::new().run(&Region::of(&zones(cells)), &allocation).is_some();
            assert!(served, "{name} {cells:?}");
        }
    }
}

#[test]
fn b3_b11_b18_only_ready_worker_nodes_count() {
    let not_ready = NodeCapacity { ready: false, ..node("not-ready", "a", 1000) };
    let control = NodeCapacity { control_plane: true, ..node("control", "b", 1000) };
    let nodes = [
        node("a1", "a", 1000),
        node("a2", "a", 1000),
        node("a3", "a", 1000),
        node("a4", "a", 2000),
        node("b1", "b", 3000),
        node("b2", "b", 1500),
        node("c1", "c", 500),
        not_ready,
        control,
    ];
    let capacity = Capacity::of(&nodes, MissingCpu::Refuse);
    assert_eq!(shares(&capacity), [("a", 0.5), ("b", 0.45), ("c", 0.05)]);
    let left = |node: &str, why| LeftOut { node: node.into(), why };
    let expected =
        [left("not-ready", WhyLeftOut::NotReady), left("control", WhyLeftOut::ControlPlane)];
    assert_eq!(capacity.left_out, expected);
    assert_eq!(capacity.unusable_nodes(), 0);
}

#[test]
fn b6_nodes_without_zone_or_cpu() {
    let zoneless = NodeCapacity { zone: None, ..node("zoneless", "", 1000) };
    let nameless = NodeCapacity { zone: Some(""), ..zoneless };
    for bad in [zoneless, nameless, node("dull", "a", 0)] {
        let nodes = [node("1", "a", 1000), node("2", "b", 1000), bad];
        let refused = Capacity::of(&nodes, MissingCpu::Refuse);
        assert_eq!(refused.unusable_nodes(), 1, "{bad:?}");
        let endpoints = BTreeMap::from([("a".into(), 4), ("b".into(), 4)]);
        let situation = Situation::new(&refused, &endpoints, 0);
        let (reason, _) = decide("auto", &situation.region(), None);
        assert_eq!(reason, Reason::NodeInformationMissing { nodes: 1 });
        // KEP-2433's own unit-test row: all nodes are treated as equal instead.
        let counted = Capacity::of(&nodes, MissingCpu::CountNodes);
        assert_eq!(counted.unusable_nodes(), 0);
        let situation = Situation::new(&counted, &endpoints, 0);
        assert_eq!(decide("auto", &situation.region(), None).0.outcome(), Outcome::InForce);
    }
    let (reason, _) = allocate("auto", &[(3, 9)]);
    assert_eq!(reason, Reason::OneZoneOnly);
}

#[test]
fn b8_unit_test_table() {
    // (cores, endpoints) per zone → hints?
    let rows: [(&str, Cells, bool); 9] = [
        ("2 endpoints, 3 zones", &[(1, 1), (1, 1), (1, 0)], false),
        ("3 endpoints, 3 zones", &[(1, 1), (1, 1), (1, 1)], true),
        ("4 endpoints, 3 zones", &[(1, 2), (1, 1), (1, 1)], false),
        ("4 endpoints, 2 zones", &[(1, 3), (1, 1)], true),
        ("4 endpoints from one zone, 2 zones", &[(1, 4), (1, 0)], true),
        ("4 endpoints, 3 zones, one of double cores", &[(2, 2), (1, 1), (1, 1)], true),
        (
            "400 endpoints, 4 zones slightly different",
            &[(10, 90), (11, 110), (9, 95), (10, 105)],
            true,
        ),
        ("one zone", &[(4, 12)], false),
        ("two zones", &[(4, 12), (4, 12)], true),
    ];
    for (what, cells, hints) in rows {
        let (reason, allocation) = decide("auto", &by_cpu(cells).region(), None);
        assert_eq!(reason.outcome() == Outcome::InForce, hints, "{what}: {reason}");
        assert_eq!(allocation.carrier() == Carrier::Hints, hints, "{what}");
    }
}

/// Node changes: (cores, endpoints) per zone and the hints in force → what happens.
#[test]
fn b4_b5_b8_node_changes_with_and_without_a_transition() {
    let (reason, allocation) = decide("auto", &by_cpu(&[(6, 6), (6, 6), (6, 6)]).region(), None);
    assert_eq!(reason, Reason::HintsAssigned { moved: 0 });
    let hints = Assignment::from(&allocation);
    let after = |cores: [u64; 3]| {
        let cells: Vec<(u64, u64)> = cores.iter().map(|&cores| (cores, 6)).collect();
        decide("auto", &by_cpu(&cells).region(), Some(&hints))
    };
    // 8 of 20 cores: 7.2 expected of 6, 20 %. A first decision would move one; this one does not.
    let (reason, allocation) = after([8, 6, 6]);
    assert_eq!((reason.code(), away(&allocation)), (Code::HintsKept, 0));
    // 10 of 22 cores: 8.2 expected of 6, 36 %: above 30 %, so endpoints are redistributed.
    let (reason, allocation) = after([10, 6, 6]);
    assert_eq!((reason.code(), sizes(&allocation)), (Code::HintsAssigned, vec![8, 5, 5]));
    // A zone loses all its nodes: what served it serves the others.
    let (reason, _) = after([6, 6, 0]);
    assert_eq!(reason.code(), Code::HintsAssigned);
}

#[test]
fn b4_hints_enter_below_20_percent_and_leave_at_30() {
    // Two equal zones, five endpoints: 2.5 expected, one zone gets 2: 25 %.
    let five = zones(&[(1, 3), (1, 2)]);
    let (reason, _) = decide("auto", &Region::of(&five), None);
    assert_eq!(reason, Reason::TooFewForBalance { endpoints: 5, minimums: 6, limit: 0.2 });
    let mut hints = Assignment::empty(2);
    hints.add(0, 0, 3);
    hints.add(1, 1, 2);
    let (reason, allocation) = decide("auto", &Region::of(&five), Some(&hints));
    assert_eq!(reason, Reason::HintsKept { highest_overload: 0.25, limit: 0.3 });
    assert_eq!(sizes(&allocation), [3, 2]);
    // As the reference: one threshold, so they go.
    let (reason, _) = decide("auto:upstream=1", &Region::of(&five), Some(&hints));
    assert_eq!(reason.code(), Code::TooFewForBalance);
    // Three endpoints, 1.5 expected, one zone has 1: 50 %, and no division brings it below 20 %.
    let three = zones(&[(1, 2), (1, 1)]);
    let mut hints = Assignment::empty(2);
    hints.add(0, 0, 2);
    hints.add(1, 1, 1);
    let (reason, allocation) = decide("auto", &Region::of(&three), Some(&hints));
    assert_eq!((reason.code(), allocation.carrier()), (Code::TooFewForBalance, Carrier::Plain));
}

#[test]
fn b8_additions_and_removals_that_need_redistribution() {
    let mut hints = Assignment::empty(2);
    hints.add(0, 0, 4);
    hints.add(1, 1, 4);
    // Eight arrive in zone a: they serve a, and b expects 8 of its 4. Redistribution.
    let (reason, allocation) =
        decide("auto", &Region::of(&zones(&[(1, 12), (1, 4)])), Some(&hints));
    assert_eq!((reason.code(), sizes(&allocation)), (Code::HintsAssigned, vec![8, 8]));
    // Three of b leave: b expects 2.5 of its 1. Redistribution, one of a serves b.
    let mut hints = Assignment::empty(2);
    hints.add(0, 0, 5);
    hints.add(1, 1, 1);
    let (reason, allocation) = decide("auto", &Region::of(&zones(&[(1, 5), (1, 1)])), Some(&hints));
    assert_eq!((reason.code(), sizes(&allocation)), (Code::HintsAssigned, vec![3, 3]));
}

#[test]
fn b14_the_document_s_examples() {
    let situation = by_cpu(&[(20, 10), (16, 0), (14, 0)]);
    let shares: Vec<f64> = situation.zones.iter().map(|zone| zone.share).collect();
    assert_eq!(shares, [0.40, 0.32, 0.28]);
    let (_, allocation) = decide("auto", &situation.region(), None);
    assert_eq!(sizes(&allocation), [4, 3, 3]);
    let (_, allocation) = decide("auto", &by_cpu(&[(2, 6), (1, 3)]).region(), None);
    assert_eq!(sizes(&allocation), [6, 3]);
    let (reason, _) = decide("auto", &by_cpu(&[(2, 1), (1, 1)]).region(), None);
    assert_eq!(reason, Reason::TooFewForBalance { endpoints: 2, minimums: 3, limit: 0.2 });
}

/// Derived examples of the reference's behaviour: (cores, endpoints) → hints per zone.
#[test]
fn b2_derived_examples_of_the_reference() {
    let rows: [(Cells, &[u64]); 12] = [
        (&[(1, 9), (1, 0), (1, 0)], &[3, 3, 3]),
        (&[(1, 7), (1, 0), (1, 0)], &[3, 2, 2]),
        (&[(1, 10), (1, 0), (1, 0)], &[4, 3, 3]),
        (&[(1, 5), (1, 2), (1, 3)], &[4, 3, 3]),
        (&[(35, 5), (35, 2), (30, 3)], &[4, 3, 3]),
        (&[(20, 10), (16, 0), (14, 0)], &[4, 3, 3]),
        (&[(2, 4), (1, 0), (1, 0)], &[2, 1, 1]),
        (&[(50, 4), (45, 3), (5, 3)], &[5, 4, 1]),
        (&[(50, 7), (45, 7), (5, 6)], &[10, 9, 1]),
        (&[(1, 4), (1, 0)], &[2, 2]),
        (&[(2, 5), (3, 0)], &[2, 3]),
        (&[(1, 14), (1, 0), (1, 0)], &[5, 5, 4]),
    ];
    for (cells, expected) in rows {
        for name in ["auto", "auto:upstream=1"] {
            let (reason, allocation) = decide(name, &by_cpu(cells).region(), None);
            assert_eq!(sizes(&allocation), expected, "{name} {cells:?}: {reason}");
        }
    }
    // Zone d has endpoints and no usable node: the reference leaves them unused by others.
    let with_d = zones(&[(1, 2), (1, 2), (0, 2)]);
    let sizes_of = |name: &str| sizes(&decide(name, &Region::of(&with_d), None).1);
    assert_eq!(sizes_of("auto:upstream=1"), [2, 2, 2]);
    assert_eq!(sizes_of("auto"), [3, 3, 0]);
}

/// Feasible numbers of endpoints for equal zones, doubles and all.
#[test]
fn b4_infeasible_numbers_for_equal_zones() {
    let rows: [(usize, &[u64]); 7] = [
        (2, &[3, 5]),
        (3, &[4, 5, 8, 11]),
        (4, &[5, 6, 7, 10, 11, 15]),
        (5, &[6, 7, 8, 9, 12, 13, 14, 19, 24]),
        (6, &[8, 9, 10, 11, 15, 16, 17, 22, 23, 29]),
        (7, &[9, 10, 11, 12, 13, 17, 18, 19, 20, 26, 27, 34]),
        (8, &[10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 29, 30, 31, 39]),
    ];
    for (count, infeasible) in rows {
        let refused: Vec<u64> = (count as u64..400)
            .filter(|&endpoints| {
                let mut cells = vec![(1, 0); count];
                cells[0].1 = endpoints;
                allocate("auto", &cells).0.outcome() == Outcome::Fallback
            })
            .collect();
        assert_eq!(refused, infeasible, "{count} zones");
    }
}
