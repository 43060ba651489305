//! Counters become rates, whatever happens to reports.

use zonewise_demand::plausible::CONNECTIONS_PER_CORE;
use zonewise_demand::window::{HOLD, MAX_SERVICES, NotCounted, Window};

use crate::fleet::{Fleet, INTERVAL, WEB, report};

/// Two nodes in zone a, one in zone b, all with a baseline.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new(&[("a", 4), ("a", 4), ("b", 4)]);
    fleet.deliver_all();
    fleet
}

/// After some milliseconds a node has made so many connections and reports.
fn after(fleet: &mut Fleet, milliseconds: u64, node: usize, connections: u64) {
    fleet.now += milliseconds;
    fleet.nodes[node].total += connections;
    fleet.deliver(node).unwrap();
}

#[test]
fn connections_count_for_the_zone_of_the_node() {
    let mut fleet = fleet();
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 0), "totals of the first report are a baseline");
    fleet.now += INTERVAL;
    for (node, connections) in [150, 15, 60].into_iter().enumerate() {
        fleet.nodes[node].total += connections;
    }
    fleet.deliver_all();
    assert_eq!(fleet.rates(), (vec![11.0, 4.0], 225));
    assert_eq!(fleet.rates(), (vec![11.0, 4.0], 0), "a sample counts once");
}

#[test]
fn a_counter_that_goes_backwards_is_a_new_baseline() {
    let mut fleet = fleet();
    after(&mut fleet, INTERVAL, 0, 30);
    fleet.nodes[0].total = 5;
    after(&mut fleet, INTERVAL, 0, 0);
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 30), "neither negative nor a jump");
    after(&mut fleet, INTERVAL, 0, 45);
    assert_eq!(fleet.rates(), (vec![3.0, 0.0], 45));
}

#[test]
fn a_proxy_that_starts_again_goes_on_with_the_kernels_counters() {
    let mut fleet = fleet();
    (fleet.nodes[0].started, fleet.nodes[0].sequence) = (8, 0);
    after(&mut fleet, INTERVAL, 0, 30);
    assert_eq!(fleet.rates(), (vec![2.0, 0.0], 30));
}

#[test]
fn a_service_that_a_new_run_has_and_the_last_had_not_is_a_baseline() {
    let mut fleet = fleet();
    let asked = fleet.nodes[0].name.clone();
    let mut counted_of = |started, sequence, totals: &[(&str, u64)]| {
        fleet.now += INTERVAL;
        (fleet.nodes[0].started, fleet.nodes[0].sequence) = (started, sequence);
        fleet.window.add(&asked, &report(&fleet.nodes[0], totals), fleet.now).unwrap();
        fleet.rates()
    };
    assert_eq!(counted_of(7, 2, &[]), (vec![0.0, 0.0], 0));
    assert_eq!(counted_of(7, 3, &[(WEB, 30)]), (vec![2.0, 0.0], 30), "the same run: begun at zero");
    assert_eq!(counted_of(7, 4, &[]), (vec![0.0, 0.0], 0), "no counter, no rate");
    assert_eq!(counted_of(8, 1, &[(WEB, 900)]), (vec![0.0, 0.0], 0), "another run: a baseline");
    assert_eq!(counted_of(8, 2, &[(WEB, 915)]), (vec![1.0, 0.0], 15));
}

/// Nodes have counted it since they began; that was not within the last interval.
#[test]
fn a_service_that_is_measured_from_now_on_begins_with_a_baseline() {
    let mut fleet = fleet();
    fleet.window.set_services(["shop/api"].into_iter());
    fleet.nodes[0].total = 1_000_000;
    after(&mut fleet, INTERVAL, 0, 0);
    fleet.window.set_services(["shop/api", WEB].into_iter());
    after(&mut fleet, INTERVAL, 0, 15);
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 0), "what was counted before");
    after(&mut fleet, INTERVAL, 0, 30);
    assert_eq!(fleet.rates(), (vec![2.0, 0.0], 30));
    // A node that sends to it for the first time begins at zero.
    (fleet.nodes[2].total, fleet.nodes[2].sequence) = (0, 7);
    let quiet = report(&fleet.nodes[2], &[]);
    fleet.window.add(&fleet.nodes[2].name, &quiet, fleet.now).unwrap();
    after(&mut fleet, INTERVAL, 2, 60);
    assert_eq!(fleet.rates(), (vec![2.0, 4.0], 60));
}

#[test]
fn a_lost_report_costs_nothing_and_one_that_comes_twice_counts_once() {
    let mut fleet = fleet();
    after(&mut fleet, INTERVAL, 0, 30);
    fleet.now += INTERVAL;
    assert_eq!(fleet.rates(), (vec![2.0, 0.0], 30), "the last rate counts on");
    // The next one has what was missed: 90 in two intervals.
    after(&mut fleet, INTERVAL, 0, 90);
    assert_eq!(fleet.rates(), (vec![3.0, 0.0], 90));
    let (node, now) = (fleet.nodes[0].name.clone(), fleet.now);
    let again = report(&fleet.nodes[0], &[(WEB, fleet.nodes[0].total)]);
    let earlier = zonewise_demand::report::Report { sequence: 1, ..again.clone() };
    for late in [again, earlier] {
        let repeated = NotCounted::Repeated { node: node.as_str().into(), sequence: late.sequence };
        assert_eq!(fleet.window.add(&node, &late, now), Err(repeated));
    }
    assert_eq!(fleet.rates(), (vec![3.0, 0.0], 0));
}

#[test]
fn a_node_that_stops_reporting_is_silent_and_counts_by_the_model() {
    let mut fleet = fleet();
    let silent = |fleet: &mut Fleet| {
        let model = fleet.model();
        let measurement = fleet.window.measure(&model, fleet.now);
        measurement.of(WEB).unwrap().silent.to_vec()
    };
    assert_eq!(silent(&mut fleet), [2.0 / 3.0, 1.0 / 3.0], "a baseline says nothing yet");
    fleet.interval(&[30, 30, 30]);
    assert_eq!(silent(&mut fleet), [0.0, 0.0]);
    fleet.now += (HOLD * 1000.0) as u64;
    assert_eq!(fleet.rates().0, [4.0, 2.0], "the last rates count on");
    fleet.now += 1;
    assert_eq!(fleet.rates().0, [0.0, 0.0]);
    assert_eq!(silent(&mut fleet), [2.0 / 3.0, 1.0 / 3.0]);
    // After so long, what was counted in between belongs to no time: a baseline.
    after(&mut fleet, 0, 0, 1000);
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 0));
    after(&mut fleet, INTERVAL, 0, 30);
    assert_eq!(fleet.rates(), (vec![2.0, 0.0], 30));
    assert_eq!(silent(&mut fleet), [1.0 / 3.0, 1.0 / 3.0]);
}

#[test]
fn a_node_cannot_claim_more_than_its_cpu_explains() {
    let mut fleet = fleet();
    after(&mut fleet, INTERVAL, 0, 900_000_000_000);
    let most = 4.0 * CONNECTIONS_PER_CORE;
    assert_eq!(fleet.rates(), (vec![most, 0.0], (most * 15.0) as u64));
}

#[test]
fn reports_of_others_are_not_counted_and_the_error_says_why() {
    let mut fleet = fleet();
    let [asked, other] = [0, 2].map(|node| fleet.nodes[node].name.clone());
    let own = fleet.report(0);
    let mut moved = own.clone();
    moved.zone = "b".into();
    let rows = [
        ("elsewhere", own.clone(), "node `elsewhere` is not in the cluster or has no zone"),
        (other.as_str(), own, "node `b-2` answers with a report of node `a-0`"),
        (asked.as_str(), moved, "reports for zone `b`, but the Node is in zone `a`"),
    ];
    for (asked, report, expected) in rows {
        let error = fleet.window.add(asked, &report, fleet.now).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fleet.now += INTERVAL;
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 0));
}

#[test]
fn a_node_that_moves_to_another_zone_begins_anew() {
    let mut fleet = fleet();
    after(&mut fleet, INTERVAL, 0, 30);
    fleet.nodes[0].zone = "b".into();
    fleet.set_nodes();
    assert_eq!(fleet.rates().0, [0.0, 0.0]);
    after(&mut fleet, INTERVAL, 0, 45);
    assert_eq!(fleet.rates(), (vec![0.0, 0.0], 0));
    after(&mut fleet, INTERVAL, 0, 45);
    assert_eq!(fleet.rates(), (vec![0.0, 3.0], 45));
}

#[test]
fn only_services_that_are_wanted_are_kept_and_their_number_is_limited() {
    let mut fleet = fleet();
    let name = |number: usize| format!("shop/s{number:05}");
    let names: Vec<String> = (0..MAX_SERVICES + 2).map(name).collect();
    // The one that is measured already stays; two others and one more find no room.
    fleet.window.set_services(names.iter().map(String::as_str).chain([WEB]));
    assert_eq!(fleet.window.services_left_out().len(), 3);
    let model = fleet.model();
    let is_measured =
        |window: &mut Window, name: &str| window.measure(&model, 0).of(name).is_some();
    let expected = [(WEB, true), (&*names[MAX_SERVICES - 2], true), (&*names[MAX_SERVICES], false)];
    for (name, expected) in expected {
        assert_eq!(is_measured(&mut fleet.window, name), expected, "{name}");
    }
    after(&mut fleet, INTERVAL, 0, 30);
    assert_eq!(fleet.rates(), (vec![2.0, 0.0], 30), "its counters stayed too");
    // A Service that gets the number of one that is gone does not inherit its counters.
    fleet.window.set_services([WEB, "shop/api"].into_iter());
    fleet.window.set_services(["shop/new", "shop/api"].into_iter());
    let measurement = fleet.window.measure(&model, fleet.now);
    let measured: Vec<_> =
        measurement.services().map(|(name, of)| (&**name, of.rates.to_vec())).collect();
    assert_eq!(measured, [("shop/api", vec![0.0, 0.0]), ("shop/new", vec![0.0, 0.0])]);
}

/// An answer that took four seconds counts for a moment between question and answer: its rate would be wrong by a quarter.
#[test]
fn an_answer_that_took_long_is_taken_when_that_makes_little_difference() {
    let mut fleet = fleet();
    let arrives = |fleet: &mut Fleet, connections: u64, took: f64| {
        fleet.now += INTERVAL;
        fleet.nodes[0].total += connections;
        let (name, report) = (fleet.nodes[0].name.clone(), fleet.report(0));
        fleet.window.add_late(&name, &report, fleet.now, took).unwrap();
        fleet.rates()
    };
    assert_eq!(arrives(&mut fleet, 30, 0.5), (vec![2.0, 0.0], 30));
    assert_eq!(arrives(&mut fleet, 60, 4.0), (vec![2.0, 0.0], 0), "the last rate counts on");
    assert_eq!(arrives(&mut fleet, 60, 0.5), (vec![4.0, 0.0], 120), "the next has what was missed");
    // They take long again and again: after a minute one is taken.
    for _ in 0..3 {
        assert_eq!(arrives(&mut fleet, 30, 5.0), (vec![4.0, 0.0], 0));
    }
    assert_eq!(arrives(&mut fleet, 30, 5.0), (vec![2.0, 0.0], 120));
}
