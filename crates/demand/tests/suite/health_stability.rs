//! The loop failures ─► reports ─► what zones count for ─► connections ─► failures, second by second.
//!
//! ```text
//!  clients ─► connections to zones, some fail ─► reports (late, lost) ─► percent in force
//!     ▲                                                                     │
//!     └──────── routes, by the little model: endpoints times percent ◄──────┘
//! ```

use std::collections::BTreeMap;

use fastrand::Rng;
use zonewise_common::name::Name;
use zonewise_demand::Millis;
use zonewise_demand::failures::Failures;
use zonewise_demand::health::{HealthState, LEAST, Seen};
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_demand::shares::{REWRITE_EVERY, REWRITES_AT_ONCE};
use zonewise_demand::window::Window;
use zonewise_topology::capacity::NodeCapacity;

use crate::fleet::{START, WEB};
use crate::traffic::{loads, routes};

const ZONES: [&str; 3] = ["a", "b", "c"];
const EVEN: [f64; 3] = [1.0 / 3.0; 3];
/// A connection counts as failed so many seconds after it was made.
const LATE: usize = 5;
const MOST_REWRITES: usize = (REWRITES_AT_ONCE + 3600.0 / REWRITE_EVERY) as usize;

/// What a node has counted, by the zone of the endpoint.
#[derive(Clone, Default)]
struct Node {
    connections: [u64; 3],
    failed: [u64; 3],
    /// Connections that will fail, by the second.
    failing: [[u64; 3]; LATE],
}

/// Three zones with three nodes and four endpoints each.
struct Simulation {
    nodes: Vec<Node>,
    window: Window,
    state: HealthState,
    random: Rng,
    second: u64,
    /// Connections per second of all zones.
    rate: f64,
    /// The part of the reports that is lost.
    lost: f64,
    /// What endpoints of zone a count for after each decision, with the second.
    percents: Vec<(u64, u8)>,
    rewrites: Vec<u64>,
    /// The part of all connections that failed, second by second.
    failed: Vec<f64>,
}

impl Simulation {
    fn new(rate: f64) -> Self {
        let mut simulation = Self {
            nodes: vec![Node::default(); 9],
            window: Window::new(),
            state: HealthState::default(),
            random: Rng::with_seed(7),
            second: 0,
            rate,
            lost: 0.0,
            percents: Vec::new(),
            rewrites: Vec::new(),
            failed: Vec::new(),
        };
        simulation.begin();
        simulation
    }

    /// A window that knows the nodes and the Service, and nothing else.
    fn begin(&mut self) {
        self.window = Window::new();
        let names: Vec<String> = (0..9).map(|node| format!("n{node}")).collect();
        let node = |(number, name)| NodeCapacity {
            name,
            zone: Some(ZONES[number / 3]),
            cpu_milli: Some(4000),
            ready: true,
            control_plane: false,
        };
        let nodes: Vec<_> = names.iter().map(String::as_str).enumerate().map(node).collect();
        self.window.set_nodes(&nodes);
        self.window.set_watched([WEB].into_iter());
    }

    fn now(&self) -> Millis {
        START + self.second * 1000
    }

    fn in_force(&self) -> [u8; 3] {
        let known = |zone: &str| self.state.of(WEB)?.zones.get(zone);
        ZONES.map(|zone| known(zone).map_or(100, |zone| zone.percent))
    }

    /// Runs for some seconds; the function says which part fails in each zone, by the second and what the zones get, in
    /// fair shares.
    fn run(&mut self, seconds: u64, fails: impl Fn(u64, &[f64]) -> [f64; 3]) -> &mut Self {
        for _ in 0..seconds {
            let counts_for = self.in_force().map(|percent| u64::from(percent) * 4);
            let routes = routes(&EVEN, &counts_for);
            let loads: Vec<f64> = loads(&EVEN, &routes).iter().map(|load| load * 3.0).collect();
            let fails = fails(self.second, &loads);
            self.second(&routes, &fails);
        }
        self
    }

    fn second(&mut self, routes: &[Vec<f64>], fails: &[f64; 3]) {
        self.second += 1;
        let (mut made, mut failed) = (0, 0);
        for number in 0..9 {
            for zone in 0..3 {
                let expected = self.rate / 9.0 * routes[number / 3][zone];
                let connections = chance(&mut self.random, expected);
                let bad =
                    chance(&mut self.random, connections as f64 * fails[zone]).min(connections);
                (made, failed) = (made + connections, failed + bad);
                let node = &mut self.nodes[number];
                node.connections[zone] += connections;
                let slot = &mut node.failing[self.second as usize % LATE][zone];
                node.failed[zone] += std::mem::replace(slot, bad);
            }
            let reports = self.second % 15 == (number as u64 * 5) % 15;
            if reports && self.random.f64() >= self.lost {
                self.report(number);
            }
        }
        self.failed.push(failed as f64 / f64::from(made.max(1) as u32));
        if self.second.is_multiple_of(15) {
            self.decide();
        }
    }

    fn report(&mut self, number: usize) {
        let Node { connections, failed, .. } = &self.nodes[number];
        let of =
            |zone: usize| Counts { connections: connections[zone], bytes_to: 0, bytes_from: 0 };
        let name = format!("n{number}");
        let report = Report {
            version: VERSION,
            node: name.as_str().into(),
            zone: ZONES[number / 3].into(),
            started: 7,
            sequence: self.second,
            services: [(WEB.into(), (0..3).map(|zone| (ZONES[zone].into(), of(zone))).collect())]
                .into(),
            failed: [(WEB.into(), (0..3).map(|zone| (ZONES[zone].into(), failed[zone])).collect())]
                .into(),
            unassigned: 0,
        };
        let now = self.now();
        self.window.add(&name, &report, now).unwrap();
    }

    fn decide(&mut self) {
        let now = self.now();
        let failures: Failures = self.window.failures(now);
        let endpoints: BTreeMap<Name, u64> = ZONES.map(|zone| (zone.into(), 4)).into();
        let web = Name::from(WEB);
        let seen = Seen { failures: failures.of(WEB), endpoints: &endpoints };
        let judgements = self.state.decide([(&web, seen)].into_iter(), now);
        if judgements[0].1.changed {
            self.rewrites.push(self.second);
        }
        assert!(self.in_force()[1..].iter().all(|percent| *percent == 100), "the others are well");
        self.percents.push((self.second, self.in_force()[0]));
    }

    fn since(&self, second: u64) -> Vec<u8> {
        let since = self.percents.iter().filter(|(at, _)| *at > second);
        since.map(|(_, percent)| *percent).collect()
    }

    fn rewrites_since(&self, second: u64) -> usize {
        self.rewrites.iter().filter(|at| **at > second).count()
    }

    fn mean_failed(&self, from: usize) -> f64 {
        let seconds = &self.failed[from..];
        seconds.iter().sum::<f64>() / seconds.len() as f64
    }
}

/// A number as chance has it: about normal, with the variance of a Poisson process.
fn chance(random: &mut Rng, expected: f64) -> u64 {
    let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
    (expected + expected.sqrt() * normal).round().max(0.0) as u64
}

/// How often a series turns.
fn turns(series: &[u8]) -> usize {
    let steps = series.windows(2).filter(|pair| pair[0] != pair[1]);
    let directions: Vec<bool> = steps.map(|pair| pair[1] > pair[0]).collect();
    directions.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// A zone of which this part fails between two seconds.
fn between(from: u64, to: u64, part: f64) -> impl Fn(u64, &[f64]) -> [f64; 3] {
    move |second, _| [if (from..to).contains(&second) { part } else { 0.001 }, 0.001, 0.001]
}

#[test]
fn a_zone_that_begins_to_fail_and_recovers_turns_once() {
    for lost in [0.0, 0.2] {
        let mut simulation = Simulation::new(300.0);
        simulation.lost = lost;
        simulation.run(3600, between(600, 1500, 0.6));
        assert!(
            simulation.percents.iter().all(|(second, percent)| *second > 600 || *percent == 100)
        );
        let series = simulation.since(600);
        // Two intervals until the figures are about the failures alone, and one for the steps.
        assert!(series[7] <= 50, "{lost} lost, after two minutes: {series:?}");
        assert_eq!(series[19], LEAST, "{lost} lost, after five minutes: {series:?}");
        assert_eq!(turns(&series), 1, "{lost} lost: {series:?}");
        assert_eq!(simulation.in_force(), [100; 3], "{lost} lost");
        assert_eq!(simulation.since(1500 + 900)[0], 100, "a quarter of an hour later: {series:?}");
        let [failing, spilled] = [620..640, 900..1500].map(|seconds| {
            let of: Vec<f64> = simulation.failed[seconds].to_vec();
            of.iter().sum::<f64>() / of.len() as f64
        });
        assert!(
            failing > 0.18 && spilled < 0.03,
            "{lost} lost: {failing} of all fail, then {spilled}"
        );
    }
}

#[test]
fn a_zone_of_which_little_fails_goes_to_its_place_and_stays_there() {
    for (part, least, most) in [(0.1, 70, 90), (0.2, 50, 70), (0.3, 30, 50)] {
        let mut simulation = Simulation::new(300.0);
        simulation.run(5400, between(600, u64::MAX, part));
        let settled = simulation.since(900);
        assert!(
            settled.iter().all(|percent| (least..=most).contains(percent)),
            "{part}: {settled:?}"
        );
        assert!(simulation.rewrites_since(900) <= 6, "{part}: {settled:?}");
    }
}

#[test]
fn a_zone_that_flaps_is_met_by_its_bad_times() {
    // A zone that is well for seven minutes is believed to be.
    for (period, most) in [(60, 40), (120, 40), (300, 50), (900, 100)] {
        let mut simulation = Simulation::new(300.0);
        let flaps = |second: u64, _: &[f64]| {
            [if second % period < period / 2 { 0.6 } else { 0.0 }, 0.0, 0.0]
        };
        simulation.run(10_800, flaps);
        let rewrites = simulation.rewrites_since(7200);
        assert!(rewrites <= MOST_REWRITES, "period {period}: {rewrites} rewrites in an hour");
        let series = simulation.since(3600);
        assert!(*series.iter().max().unwrap() <= most, "period {period}: {series:?}");
        // With all of it in use, a third of 60 % fails in half of the time.
        let failed = simulation.mean_failed(3600);
        assert!(failed < 0.05, "period {period}: {failed} of all connections fail");
    }
}

/// Endpoints that refuse what is more than they can take: the fewer come, the fewer fail.
#[test]
fn a_zone_that_is_too_weak_finds_its_place_without_swinging() {
    for capacity in [0.9, 0.7, 0.5, 0.3] {
        let mut simulation = Simulation::new(300.0);
        let weak = |_, loads: &[f64]| [(1.0 - capacity / loads[0]).max(0.0), 0.0, 0.0];
        simulation.run(10_800, weak);
        let series = simulation.since(5400);
        let (low, high) = (series.iter().min().unwrap(), series.iter().max().unwrap());
        assert!(high - low <= 20, "capacity {capacity}: {series:?}");
        assert!(simulation.rewrites_since(7200) <= 12, "capacity {capacity}: {series:?}");
        let (before, after) = (1.0 - capacity, simulation.mean_failed(5400) * 3.0);
        assert!(
            after < before / 2.0 + 0.02,
            "capacity {capacity}: {after} of a zone's traffic fail"
        );
    }
}

#[test]
fn where_all_zones_fail_nothing_is_moved() {
    for part in [0.1, 0.5, 1.0] {
        let mut simulation = Simulation::new(300.0);
        simulation.run(3600, |second, _| [if second < 600 { 0.0 } else { part }; 3]);
        assert_eq!(simulation.rewrites, Vec::<u64>::new(), "{part}");
    }
}

#[test]
fn a_service_with_few_connections_is_left_alone_or_steady() {
    for rate in [0.05, 0.5, 3.0, 10.0] {
        let mut simulation = Simulation::new(rate);
        simulation.run(10_800, between(600, u64::MAX, 0.6));
        assert!(simulation.rewrites_since(7200) <= MOST_REWRITES, "{rate}");
        let mut well = Simulation::new(rate);
        well.run(10_800, between(0, u64::MAX, 0.02));
        assert_eq!(well.rewrites, Vec::<u64>::new(), "{rate}: what fails by chance moves nothing");
    }
}

#[test]
fn a_new_leader_goes_on_where_the_last_one_stopped() {
    let mut simulation = Simulation::new(300.0);
    simulation.run(1200, between(600, u64::MAX, 0.6));
    simulation.state = HealthState::decode(&simulation.state.encode()).unwrap();
    simulation.begin();
    simulation.run(1200, between(600, u64::MAX, 0.6));
    let series = simulation.since(1200);
    assert!(series.iter().all(|percent| *percent == LEAST), "{series:?}");
}

#[test]
fn when_nobody_reports_the_zone_comes_back() {
    let mut simulation = Simulation::new(300.0);
    simulation.run(1200, between(600, u64::MAX, 0.6));
    simulation.lost = 1.0;
    simulation.run(120, between(600, u64::MAX, 0.6));
    assert_eq!(simulation.in_force()[0], LEAST, "not at once");
    simulation.run(1800, between(600, u64::MAX, 0.6));
    assert_eq!(simulation.in_force()[0], 100);
    assert!(simulation.since(1200).is_sorted(), "{:?}", simulation.since(1200));
}

/// One node that says that everything fails in another zone.
#[test]
fn a_node_that_lies_decides_nothing() {
    let mut simulation = Simulation::new(300.0);
    simulation.run(600, |_, _| [0.001; 3]);
    for _ in 0..600 {
        let made = simulation.nodes[8].connections;
        simulation.nodes[8].connections[0] = made[0] + 5;
        simulation.nodes[8].failed[0] = made[0] + 5;
        simulation.run(1, |_, _| [0.001; 3]);
    }
    assert_eq!(simulation.rewrites, Vec::<u64>::new());
}
