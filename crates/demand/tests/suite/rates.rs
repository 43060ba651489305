//! Rates that somebody else has measured.

use std::collections::BTreeMap;

use zonewise_common::name::Name;
use zonewise_demand::Millis;
use zonewise_demand::rates::{Answer, NotARate, Rate, Rates};
use zonewise_demand::shares::Decision;
use zonewise_demand::state::State;
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};
use zonewise_topology::reason::Reason;

use crate::fleet::{INTERVAL, START, WEB};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// Three zones with two nodes each.
fn nodes() -> Vec<NodeCapacity<'static>> {
    let names = ["a1", "a2", "b1", "b2", "c1", "c2"];
    let node = |(number, name)| NodeCapacity {
        name,
        zone: Some(ZONES[number / 2]),
        cpu_milli: Some(4000),
        ready: true,
        control_plane: false,
    };
    names.into_iter().enumerate().map(node).collect()
}

fn rates(per_second: &[(&str, f64)]) -> Vec<Rate> {
    let rate = |(zone, per_second): &(&str, f64)| Rate {
        service: WEB.into(),
        zone: (*zone).into(),
        per_second: *per_second,
    };
    per_second.iter().map(rate).collect()
}

/// The controller's side.
struct Leader {
    model: Capacity,
    rates: Rates,
    state: State,
    now: Millis,
}

impl Leader {
    fn new() -> Self {
        let model = Capacity::of(&nodes(), MissingCpu::Refuse);
        let mut rates = Rates::new();
        rates.set_nodes(&nodes());
        rates.set_services([WEB].into_iter());
        Self { model, rates, state: State::default(), now: START }
    }

    fn decide(&mut self) -> Decision {
        self.now += INTERVAL;
        let measurement = self.rates.measure(&self.model, self.now);
        let mut decisions = self.state.decide(&self.model, &measurement, self.now);
        assert_eq!(decisions.len(), 1);
        decisions.remove(0).1
    }

    /// The same answer so often, each followed by a decision. Returns the last.
    fn answers(&mut self, answer: &Answer, times: usize) -> Decision {
        let mut last = None;
        for _ in 0..times {
            self.rates.add(answer.clone(), self.now).unwrap();
            last = Some(self.decide());
        }
        last.unwrap()
    }
}

fn in_force(decision: &Decision) -> Vec<i64> {
    decision.zones.iter().map(|zone| (100.0 * zone.in_force).round() as i64).collect()
}

/// Changes of less than [`LEAST_STEP`](zonewise_demand::shares::LEAST_STEP) are not worth a rewrite.
fn assert_near(decision: &Decision, expected: [i64; 3], what: &str) {
    let found = in_force(decision);
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1);
    assert!(near, "{what}: {found:?}, expected {expected:?}");
}

fn hot() -> Answer {
    Answer { rates: rates(&[("a", 70.0), ("b", 20.0), ("c", 10.0)]), ..Answer::default() }
}

#[test]
fn shares_follow_rates() {
    let mut leader = Leader::new();
    let decision = leader.answers(&hot(), 1);
    assert_eq!(in_force(&decision), [33, 33, 33], "the first answer is about no time");
    let decision = leader.answers(&hot(), 30);
    assert_near(&decision, [70, 20, 10], "what is measured");
    assert!(matches!(decision.reason, Reason::DemandMeasured { .. }), "{:?}", decision.reason);
}

/// One connection in 17 seconds is not lost because each interval has less than one.
#[test]
fn slow_rates_add_up_to_whole_connections() {
    let mut leader = Leader::new();
    let (rates, reporting) = (rates(&[("a", 0.06)]), Some(all()));
    let slow = Answer { rates, reporting, ..Answer::default() };
    let decision = leader.answers(&slow, 21);
    assert!(decision.sample > 3.0, "{}", decision.sample);
}

#[test]
fn one_node_counts_for_three_quarters_at_most() {
    let mut leader = Leader::new();
    let claim = [("a", 1000.0)];
    let answer = Answer { rates: rates(&claim), largest: rates(&claim), reporting: Some(all()) };
    let decision = leader.answers(&answer, 30);
    assert_near(&decision, [83, 8, 8], "three quarters, and a third of the rest");
    assert!(matches!(decision.reason, Reason::DemandOfOneNode { .. }), "{:?}", decision.reason);
}

/// Every node reports.
fn all() -> BTreeMap<Name, f64> {
    ZONES.map(|zone| (zone.into(), 2.0)).into()
}

/// A zone whose figures are missing is not taken for a zone that sends nothing.
#[test]
fn what_is_not_scraped_counts_by_cpu() {
    let only_a = rates(&[("a", 100.0)]);
    let without = |zone: &str, nodes: f64| {
        let mut reporting = all();
        reporting.insert(zone.into(), nodes);
        Some(reporting)
    };
    let rows = [
        ("zones without any rate, when nobody says who is scraped", None, [33, 33, 33]),
        ("everybody is scraped", Some(all()), [100, 0, 0]),
        ("nobody in zone b", without("b", 0.0), [67, 33, 0]),
        ("half of zone b", without("b", 1.0), [83, 17, 0]),
    ];
    for (what, reporting, expected) in rows {
        let mut leader = Leader::new();
        let answer = Answer { rates: only_a.clone(), largest: Vec::new(), reporting };
        assert_near(&leader.answers(&answer, 40), expected, what);
    }
}

#[test]
fn without_answers_shares_go_back_to_the_model() {
    let mut leader = Leader::new();
    assert_near(&leader.answers(&hot(), 30), [70, 20, 10], "with answers");
    let decision = (0..400).map(|_| leader.decide()).last().unwrap();
    assert_eq!(in_force(&decision), [33, 33, 33]);
}

#[test]
fn nonsense_is_left_out_with_a_reason() {
    let nan = |answer: &NotARate| answer.to_string();
    let with = |rates| Answer { rates, ..Answer::default() };
    let negative = Answer { reporting: Some([("a".into(), -1.0)].into()), ..hot() };
    let rows: [(&str, Answer, &str); 6] = [
        ("nothing", with(Vec::new()), "no rate of a Service from a zone of this cluster"),
        ("other zones", with(rates(&[("eu-1", 3.0)])), "no rate of a Service from a zone"),
        ("negative", with(rates(&[("a", -0.1)])), "-0.1 connections per second from zone `a`"),
        ("no number", with(rates(&[("a", f64::NAN)])), "NaN connections per second"),
        ("too many", with(rates(&[("a", f64::INFINITY)])), "inf connections per second"),
        ("nodes", negative, "-1 nodes that report in zone `a`"),
    ];
    let mut leader = Leader::new();
    let before = in_force(&leader.answers(&hot(), 30));
    for (what, answer, expected) in rows {
        let error = leader.rates.add(answer, leader.now).unwrap_err();
        assert!(nan(&error).contains(expected), "{what}: {error}");
        assert_eq!(in_force(&leader.decide()), before, "{what}");
    }
}

/// A Service that is measured anew begins with nothing, although it has the number of another one.
#[test]
fn services_come_and_go() {
    let mut leader = Leader::new();
    leader.answers(&hot(), 3);
    leader.rates.set_services(["shop/other"].into_iter());
    leader.rates.add(hot(), leader.now).unwrap();
    let decision = leader.decide();
    assert_eq!((decision.sample, in_force(&decision)), (0.0, vec![33, 33, 33]));
}
