//! Single decisions: how much is believed, when shares change, and what is said about it.

use std::collections::BTreeSet;

use zonewise_demand::plausible::Largest;
use zonewise_demand::shares::{Decision, Held, InForce, shares};
use zonewise_demand::window::Measured;
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};
use zonewise_topology::reason::{Code, Reason};

use crate::fleet::{INTERVAL, START};

/// Two zones: three quarters of the cores are in the first.
fn model() -> Capacity {
    let node = |name, zone, cpu| NodeCapacity {
        name,
        zone: Some(zone),
        cpu_milli: Some(cpu),
        ready: true,
        control_plane: false,
    };
    Capacity::of(&[node("n1", "a", 3000), node("n2", "b", 1000)], MissingCpu::Refuse)
}

/// What both zones send, with so many connections since last time; many nodes, none silent.
fn measured(rates: &[f64; 2], sample: u64) -> Measured<'_> {
    Measured { rates, largest: None, sample, silent: &[0.0, 0.0] }
}

/// Decided an interval ago: these shares, and a memory of so many connections in the same proportion.
fn before(first: u32, sample: f64) -> InForce {
    let part = f64::from(first) / 1e6;
    InForce {
        shares: vec![first, 1_000_000 - first],
        memory: vec![sample * part, sample * (1.0 - part)],
        moving: false,
        rewrites_left: 12.0,
        measured: START,
        decided: START,
    }
}

fn decide(measured: &Measured<'_>, before: Option<&InForce>) -> (Option<InForce>, Decision) {
    shares(&model(), measured, before, START + INTERVAL)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[test]
fn the_weight_grows_with_the_sample() {
    let rows = [(0, 0.0, 0.75), (50, 0.5, 0.5), (450, 0.9, 0.301), (9950, 0.995, 0.253)];
    for (sample, weight, target) in rows {
        let (_, decision) = decide(&measured(&[1.0, 3.0], sample), None);
        let first = &decision.zones[0];
        assert_eq!((rounded(decision.weight), rounded(first.target)), (weight, target), "{sample}");
        assert_eq!(first.in_force, 0.75, "the first decision changes nothing yet");
        assert_eq!(first.measured, (sample > 0).then_some(0.25));
    }
}

#[test]
fn a_service_without_connections_leaves_no_state() {
    let (in_force, decision) = decide(&measured(&[0.0, 0.0], 0), None);
    assert_eq!(in_force, None);
    assert_eq!(decision.reason, Reason::TooFewConnections { connections: 0, enough: 50 });
    assert!(!decision.rewritten && decision.held.is_none() && decision.age.is_none());
}

#[test]
fn memory_is_long_while_connections_agree_with_it_and_short_when_they_do_not() {
    let sum = |rates: &[f64; 2], sample, before: &InForce| {
        let (in_force, _) = decide(&measured(rates, sample), Some(before));
        in_force.unwrap().memory.iter().sum::<f64>().round()
    };
    let kept_slowly = |sample: f64| (sample * (-0.05f64).exp()).round();
    let (agreeing, different) = ([3.0, 1.0], [1.0, 3.0]);
    assert_eq!(sum(&agreeing, 6000, &before(750_000, 9000.0)), 6000.0 + kept_slowly(9000.0));
    // A memory that always forgets fast has 29 % of what comes in an interval.
    assert_eq!(sum(&different, 6000, &before(750_000, 90_000.0)), 6000.0 + 1723.0);
    assert_eq!(sum(&different, 300, &before(750_000, 700.0)), 500.0, "as much as is enough");
    assert_eq!(sum(&different, 4, &before(750_000, 300.0)), 4.0 + kept_slowly(300.0), "chance");
    assert_eq!(sum(&different, 0, &before(750_000, 9000.0)), kept_slowly(9000.0), "no news");
    let restless = InForce { rewrites_left: 3.5, ..before(750_000, 9000.0) };
    let kept = 6000.0 + kept_slowly(9000.0);
    assert_eq!(sum(&different, 6000, &restless), kept, "many rewrites lately");
}

#[test]
fn small_differences_are_not_worth_a_rewrite_and_movement_is_finished() {
    let many = 1_000_000;
    let off = |share: f64, before: &InForce| {
        let (after, decision) = decide(&measured(&[share, 1.0 - share], many), Some(before));
        (after.unwrap().moving, decision.held)
    };
    // All news that surprise are believed at once; those that do not are the mean of memory and news.
    let resting = before(500_000, 1e6);
    assert_eq!(off(0.507, &resting), (false, Some(Held::SmallDifference)));
    assert_eq!(off(0.55, &resting), (false, None));
    let moving = InForce { moving: true, ..before(500_000, 1e6) };
    assert_eq!(off(0.511, &moving), (false, None), "half a step is enough to go on");
    assert_eq!(off(0.504, &moving), (false, Some(Held::SmallDifference)));
    // Beside the model, 600 connections are off by 3 %; chance alone makes 4 % of so few.
    let (after, decision) = decide(&measured(&[0.51, 0.49], 600), Some(&before(500_000, 0.0)));
    assert_eq!((after.unwrap().moving, decision.held), (false, Some(Held::SmallDifference)));
}

#[test]
fn change_is_limited_in_speed_and_in_number() {
    let all = measured(&[1.0, 0.0], 1_000_000);
    let resting = before(500_000, 1e6);
    let (after, decision) = decide(&all, Some(&resting));
    assert_eq!(after.as_ref().unwrap().shares, [650_000, 350_000], "1 % in a second");
    assert_eq!((decision.held, decision.rewritten), (Some(Held::ChangeLimit), true));
    assert_eq!(decision.reason.code(), Code::DemandChangeLimited);
    assert_eq!(after.unwrap().rewrites_left, 11.0);
    let paused = InForce { decided: START - 3_600_000, ..resting.clone() };
    assert_eq!(decide(&all, Some(&paused)).0.unwrap().shares, [997_988, 2_012], "a minute at most");
    let spent = InForce { rewrites_left: 0.5, ..resting };
    let (after, decision) = decide(&all, Some(&spent));
    assert_eq!(after.as_ref().unwrap().shares, [500_000, 500_000]);
    assert_eq!((decision.held, decision.rewritten), (Some(Held::RewriteLimit), false));
    assert_eq!(after.unwrap().rewrites_left, 0.625, "one in two minutes comes back");
}

#[test]
fn a_zone_keeps_a_floor_but_never_more_than_its_capacity() {
    let (_, decision) = decide(&measured(&[1.0, 0.0], 1_000_000_000), None);
    assert_eq!(rounded(decision.zones[1].target), 0.002);
    let mut tiny = model();
    (tiny.zones[0].share, tiny.zones[1].share) = (0.9999, 0.0001);
    let (_, decision) = shares(&tiny, &measured(&[1.0, 0.0], 1_000_000_000), None, START);
    assert!((decision.zones[1].target - 0.0001).abs() < 1e-6);
}

#[test]
fn silent_nodes_count_by_the_model_and_the_largest_node_is_bounded() {
    let silent = [0.375, 0.0];
    let half = Measured { silent: &silent, ..measured(&[0.0, 4.0], 1_000_000_000) };
    let (after, decision) = decide(&half, None);
    let memory = after.unwrap().memory;
    assert_eq!(memory[0] / 1e9, 0.375, "the half of zone a that does not report");
    assert_eq!(decision.silent, 0.375);
    let largest = Some(Largest { zone: 1, rate: 4.0 });
    let alone = Measured { largest, ..measured(&[0.0, 4.0], 1_000_000_000) };
    let (after, decision) = decide(&alone, Some(&before(200_000, 1e6)));
    let memory = after.unwrap().memory;
    assert_eq!(
        rounded(memory[0] / memory.iter().sum::<f64>()),
        0.188,
        "a quarter of its three quarters"
    );
    assert_eq!(decision.reason, Reason::DemandOfOneNode { part: 1.0 });
}

#[test]
fn a_decision_has_all_that_an_explanation_needs() {
    let (_, decision) = decide(&measured(&[1.0, 1.0], 2000), Some(&before(500_000, 2000.0)));
    let sample = 2000.0 + 2000.0 * (-0.05f64).exp();
    assert_eq!(decision.sample.round(), sample.round());
    assert_eq!(
        decision.reason.to_string(),
        "the traffic of each zone is estimated from the connections that proxies have counted (3902 connections, weight 99 %)"
    );
    let document = serde_json::to_value(&decision).unwrap();
    let zone = &document["zones"][0];
    assert_eq!(
        (&zone["zone"], &zone["model"], &zone["measured"], &zone["inForce"]),
        (&"a".into(), &0.75.into(), &0.5.into(), &0.5.into())
    );
    assert_eq!(document["held"], "small-difference");
    assert_eq!(document["age"], 0.0);
}

#[test]
fn every_code_of_decisions_is_reached() {
    let alone = Measured {
        largest: Some(Largest { zone: 0, rate: 1.0 }),
        ..measured(&[1.0, 0.0], 1_000_000)
    };
    let old = InForce { measured: START - 600_000, ..before(300_000, 20.0) };
    let reached = [
        decide(&measured(&[3.0, 1.0], 1000), Some(&before(750_000, 1e6))),
        decide(&measured(&[0.0, 1.0], 1000), Some(&before(750_000, 1e6))),
        decide(&alone, Some(&before(930_000, 1e6))),
        decide(&measured(&[1.0, 1.0], 10), None),
        decide(&measured(&[0.0, 0.0], 0), Some(&old)),
    ];
    let reached: BTreeSet<Code> = reached.iter().map(|(_, one)| one.reason.code()).collect();
    let of_demand = zonewise_topology::reason::TABLE.iter().map(|entry| entry.code);
    // The others are no decisions: they say why there is none.
    let of_demand =
        of_demand.filter(|code| (Code::DemandMeasured..Code::DemandTableFull).contains(code));
    assert_eq!(reached, of_demand.collect());
}
