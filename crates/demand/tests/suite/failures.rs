//! Which part of the connections to a Service fails, whatever happens to reports.

use std::collections::BTreeMap;

use zonewise_demand::Figures;
use zonewise_demand::failures::{Failures, ServiceFailures, ZoneConnections};
use zonewise_demand::rates::{Answer, NotARate, Rate, Rates};
use zonewise_demand::report::{Counts, Report};
use zonewise_demand::window::{HOLD, MAX_SERVICES, NotCounted, Window};
use zonewise_topology::capacity::NodeCapacity;

use crate::fleet::{Fleet, INTERVAL, WEB, report};

/// Connections to a zone, and those of them that failed, since the counters began.
type Totals = [(&'static str, u64, u64)];

/// The same by zone, as the window has them.
type Zones = Vec<(String, u64, u64)>;

/// Three nodes in two zones, whose Service is watched and not measured.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new(&[("a", 4), ("a", 4), ("b", 4)]);
    fleet.window.set_services([].into_iter());
    fleet.window.set_watched([WEB].into_iter());
    fleet
}

/// What a node says next.
fn says(fleet: &mut Fleet, node: usize, totals: &Totals) -> Report {
    let node = &mut fleet.nodes[node];
    node.sequence += 1;
    let counts = |connections| Counts { connections, bytes_to: 0, bytes_from: 0 };
    let zones = totals.iter().map(|(zone, all, _)| ((*zone).into(), counts(*all)));
    let failed = totals.iter().filter(|(.., failed)| *failed > 0);
    let failed: BTreeMap<_, _> =
        failed.map(|(zone, _, failed)| ((*zone).into(), *failed)).collect();
    let services = [(WEB.into(), zones.collect())].into();
    let failed = if failed.is_empty() { BTreeMap::new() } else { [(WEB.into(), failed)].into() };
    Report { services, failed, ..report(node, &[]) }
}

/// After an interval a node reports these totals.
fn interval(fleet: &mut Fleet, node: usize, totals: &Totals) {
    fleet.now += INTERVAL;
    tell(fleet, node, totals);
}

/// A node reports these totals now.
fn tell(fleet: &mut Fleet, node: usize, totals: &Totals) {
    let (name, report) = (fleet.nodes[node].name.clone(), says(fleet, node, totals));
    fleet.window.add(&name, &report, fleet.now).unwrap();
}

fn known(fleet: &Fleet) -> ServiceFailures {
    fleet.window.failures(fleet.now).of(WEB).unwrap().clone()
}

/// By zone: connections, failed ones.
fn zones(fleet: &Fleet) -> Zones {
    let zones = known(fleet).zones.into_iter();
    zones.map(|(zone, of)| (zone.to_string(), of.connections, of.failed)).collect()
}

fn only(zone: &str, connections: u64, failed: u64) -> Zones {
    vec![(zone.to_owned(), connections, failed)]
}

#[test]
fn the_last_two_intervals_count_by_the_zone_of_the_endpoint() {
    let mut fleet = fleet();
    assert_eq!(fleet.window.failures(fleet.now).of("shop/api"), None, "nobody watches it");
    tell(&mut fleet, 0, &[("a", 500, 50), ("b", 900, 90)]);
    assert_eq!(known(&fleet), ServiceFailures::default(), "a baseline");
    interval(&mut fleet, 0, &[("a", 600, 50), ("b", 910, 92)]);
    assert_eq!(known(&fleet), ServiceFailures::default(), "one interval is not enough");
    interval(&mut fleet, 0, &[("a", 700, 51), ("b", 920, 95), ("", 3, 0)]);
    let of = |connections, failed| ZoneConnections { connections, failed };
    let zones_now = [("".into(), of(3, 0)), ("a".into(), of(200, 1)), ("b".into(), of(20, 5))];
    let expected = ServiceFailures { zones: zones_now.into(), seconds: 30.0, complete: true };
    assert_eq!(known(&fleet), expected);
    interval(&mut fleet, 0, &[("a", 700, 51), ("b", 930, 95), ("", 3, 0)]);
    let (before, now) = (("a".to_owned(), 100, 1), ("b".to_owned(), 20, 3));
    assert_eq!(zones(&fleet), [(String::new(), 3, 0), before, now], "the oldest is forgotten");
}

/// Whatever interrupts the counting of a node that has told its failed connections for long.
#[test]
fn what_happens_to_reports_is_handled_as_for_connections() {
    type Happens = fn(&mut Fleet);
    let rows: [(&str, Happens, Zones); 7] = [
        ("nothing", |fleet| interval(fleet, 0, &[("b", 300, 30)]), only("b", 200, 20)),
        ("counters go backwards", |fleet| interval(fleet, 0, &[("b", 7, 1)]), only("b", 100, 10)),
        (
            "only those of failed connections do: the proxy has started again",
            |fleet| {
                (fleet.nodes[0].started, fleet.nodes[0].sequence) = (8, 0);
                interval(fleet, 0, &[("b", 300, 0)]);
            },
            only("b", 200, 10),
        ),
        (
            "a report is lost",
            |fleet| {
                fleet.now += INTERVAL;
                says(fleet, 0, &[]);
                interval(fleet, 0, &[("b", 400, 50)]);
            },
            only("b", 300, 40),
        ),
        (
            "a report comes twice",
            |fleet| {
                interval(fleet, 0, &[("b", 300, 30)]);
                fleet.nodes[0].sequence -= 1;
                let (name, again) =
                    (fleet.nodes[0].name.clone(), says(fleet, 0, &[("b", 300, 30)]));
                fleet.window.add(&name, &again, fleet.now).unwrap_err();
            },
            only("b", 200, 20),
        ),
        (
            "a zone that was not used before",
            |fleet| interval(fleet, 0, &[("a", 60, 6), ("b", 200, 20)]),
            vec![("a".to_owned(), 60, 6), ("b".to_owned(), 100, 10)],
        ),
        (
            "zones that no node is in",
            |fleet| interval(fleet, 0, &[("b", 300, 30), ("elsewhere", 900, 900)]),
            only("b", 200, 20),
        ),
    ];
    for (what, happens, expected) in rows {
        let mut fleet = fleet();
        tell(&mut fleet, 0, &[("b", 100, 10)]);
        interval(&mut fleet, 0, &[("b", 200, 20)]);
        happens(&mut fleet);
        assert_eq!(zones(&fleet), expected, "{what}");
    }
}

#[test]
fn a_node_that_is_silent_for_long_is_forgotten_and_begins_anew() {
    let mut fleet = fleet();
    tell(&mut fleet, 0, &[("b", 100, 10)]);
    interval(&mut fleet, 0, &[("b", 200, 20)]);
    interval(&mut fleet, 0, &[("b", 300, 30)]);
    fleet.now += (HOLD * 1000.0) as u64;
    assert_eq!(zones(&fleet), only("b", 200, 20), "the last intervals count on");
    fleet.now += 1;
    assert_eq!(known(&fleet), ServiceFailures::default());
    tell(&mut fleet, 0, &[("b", 900, 900)]);
    interval(&mut fleet, 0, &[("b", 1000, 901)]);
    assert!(!known(&fleet).complete);
    interval(&mut fleet, 0, &[("b", 1100, 902)]);
    assert_eq!((zones(&fleet), known(&fleet).complete), (only("b", 200, 2), true));
}

#[test]
fn no_more_connections_fail_than_were_made() {
    let mut fleet = fleet();
    tell(&mut fleet, 0, &[("b", 100, 0)]);
    interval(&mut fleet, 0, &[("b", 200, 0)]);
    // Those of the interval before are counted as failed in this one, which is no contradiction.
    interval(&mut fleet, 0, &[("b", 220, 90)]);
    assert_eq!(zones(&fleet), only("b", 120, 90));
    interval(&mut fleet, 0, &[("b", 220, 900)]);
    assert_eq!(zones(&fleet), only("b", 20, 20));
}

#[test]
fn one_node_counts_for_half_of_what_fails_where_others_connect_too() {
    /// Connections and failed ones to zone b of each node.
    type Nodes = [(u64, u64); 3];
    // With what counts of the failed ones.
    let rows: [(&str, Nodes, u64); 6] = [
        ("all see the same", [(100, 10), (100, 10), (100, 10)], 30),
        ("a node alone", [(100, 10), (0, 0), (0, 0)], 10),
        ("a node says something else than the others", [(100, 100), (100, 0), (100, 0)], 0),
        ("another sees a little of it", [(100, 100), (100, 3), (100, 0)], 6),
        ("two nodes against one", [(100, 20), (100, 20), (100, 0)], 40),
        ("as much as the others together", [(100, 30), (100, 10), (100, 20)], 60),
    ];
    for (what, nodes, expected) in rows {
        let mut fleet = fleet();
        for round in 0..3 {
            fleet.now += INTERVAL;
            for (node, (connections, failed)) in nodes.into_iter().enumerate() {
                // Half of it in each interval.
                let totals = [("b", round * connections / 2, round * failed / 2)];
                tell(&mut fleet, node, &totals);
            }
        }
        let connections = nodes.iter().map(|(connections, _)| connections).sum();
        assert_eq!(zones(&fleet), only("b", connections, expected), "{what}");
    }
}

#[test]
fn it_is_complete_when_all_nodes_that_report_have_told_it_for_two_intervals() {
    let mut fleet = fleet();
    for node in [0, 1] {
        tell(&mut fleet, node, &[("b", 100, 10)]);
        interval(&mut fleet, node, &[("b", 200, 20)]);
    }
    interval(&mut fleet, 0, &[("b", 300, 30)]);
    assert_eq!((zones(&fleet), known(&fleet).complete), (only("b", 200, 20), false));
    interval(&mut fleet, 1, &[("b", 300, 30)]);
    assert_eq!((zones(&fleet), known(&fleet).complete), (only("b", 400, 40), true));
    // Another Service is watched from now on: what nodes have counted of it before is no part of these intervals.
    fleet.window.set_watched([WEB, "shop/api"].into_iter());
    let complete = |fleet: &Fleet| {
        let failures = fleet.window.failures(fleet.now);
        [WEB, "shop/api"].map(|service| failures.of(service).unwrap().complete)
    };
    for _ in 0..3 {
        assert_eq!(complete(&fleet), [true, false]);
        for node in [0, 1] {
            interval(&mut fleet, node, &[("b", 300, 30)]);
        }
    }
    assert_eq!(complete(&fleet), [true, true]);
    // When nobody watches, nothing is kept, and it begins anew.
    fleet.window.set_watched([].into_iter());
    assert_eq!(fleet.window.failures(fleet.now), Failures::default());
    fleet.window.set_watched([WEB].into_iter());
    assert_eq!(zones(&fleet), []);
}

#[test]
fn rates_of_a_prometheus_say_nothing_about_failed_connections() {
    let mut rates = Rates::new();
    Figures::set_watched(&mut rates, &[WEB.to_owned()]);
    assert_eq!(Figures::failures(&rates, 0), None);
    let mut window = fleet().window;
    Figures::set_watched(&mut window, &[WEB.to_owned()]);
    assert!(Figures::failures(&window, 0).unwrap().of(WEB).is_some());
}

/// The controller asks counters of proxies and rates of a Prometheus in the same way.
#[test]
fn both_sources_of_figures_do_as_they_are_told() {
    let services: Vec<String> = (0..=MAX_SERVICES).map(|n| format!("shop/{n:05}")).collect();
    let node = NodeCapacity {
        name: "n",
        zone: Some("a"),
        cpu_milli: Some(1000),
        ready: true,
        control_plane: false,
    };
    let (mut window, mut rates) = (Window::new(), Rates::new());
    for figures in [&mut window as &mut dyn Figures, &mut rates] {
        figures.set_services(&services);
        assert_eq!(figures.left_out().len(), 1);
        figures.set_services(&[WEB.to_owned()]);
        assert_eq!(figures.left_out().len(), 0);
        figures.set_nodes(&[node]);
        assert_eq!(figures.unwatched().len(), 0);
    }
    let rate = Rate { service: WEB.into(), zone: "b".into(), per_second: 5.0 };
    let elsewhere = Answer { rates: vec![rate], ..Answer::default() };
    assert_eq!(rates.add(elsewhere, 0), Err(NotARate::Nothing), "no node is in that zone");
    let mut fleet = fleet();
    let report = fleet.report(0);
    let unknown = NotCounted::UnknownNode("node-0".into());
    assert_eq!(window.add("node-0", &report, 0), Err(unknown), "{}", report.node);
}
