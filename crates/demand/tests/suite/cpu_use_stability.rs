//! The loop use ─► figures ─► what zones count for ─► connections ─► use, second by second.
//!
//! ```text
//!  endpoints, of unequal speed ─► use ─► figures of Pods (about a window, late, lost, by chance) ─► asked once a minute
//!     ▲                                                                                                   │
//!     └── connections, by endpoints times percent ◄── shares, written if that is worth it ◄── percent ◄───┘
//! ```

use std::collections::BTreeSet;

use fastrand::Rng;
use zonewise_common::name::Name;
use zonewise_demand::Millis;
use zonewise_demand::cpu_use::{
    Endpoint, FULL_PERCENT, Known, MAX_BYTES, Pace, PodUse, Seen, UseState,
};
use zonewise_demand::shares::{REWRITE_EVERY, REWRITES_AT_ONCE};

use crate::fleet::{START, WEB};
use crate::traffic::fair;

const ZONES: [&str; 3] = ["a", "b", "c"];
const MOST_REWRITES: usize = (REWRITES_AT_ONCE + 3600.0 / REWRITE_EVERY) as usize;

/// How figures come.
#[derive(Clone, Copy, Debug)]
struct Feed {
    /// The time that they are about, in seconds.
    window: usize,
    /// So many seconds later the metrics API has them; for each Pod up to twice as much, by chance.
    late: usize,
    /// The part of the figures, and of whole answers, that is lost.
    lost: f64,
    /// What chance adds, as a part.
    noise: f64,
}

const PROMPT: Feed = Feed { window: 20, late: 5, lost: 0.0, noise: 0.0 };

struct Simulation {
    /// Ready endpoints of each zone.
    pods: [u64; 3],
    /// What a connection costs in each zone.
    costs: [f64; 3],
    feed: Feed,
    /// The load of all, by the second.
    load: fn(u64) -> f64,
    state: UseState,
    /// What the written shares follow.
    written: [u16; 3],
    /// What an endpoint of each zone has used until each second.
    used: Vec<[f64; 3]>,
    /// What the metrics API has told last, of each Pod.
    told: Vec<Known>,
    percents: Vec<[u16; 3]>,
    rewrites: Vec<u64>,
    random: Rng,
}

impl Simulation {
    fn new(pods: [u64; 3], costs: [f64; 3], feed: Feed) -> Self {
        Self {
            pods,
            costs,
            feed,
            load: |_| 400.0,
            state: UseState::default(),
            written: [FULL_PERCENT; 3],
            used: vec![[0.0; 3]],
            told: vec![Known::Nothing; pods.iter().sum::<u64>() as usize],
            percents: Vec::new(),
            rewrites: Vec::new(),
            random: Rng::with_seed(11),
        }
    }

    fn second(&self) -> u64 {
        self.used.len() as u64 - 1
    }

    fn in_force(&self) -> [u16; 3] {
        let known = |zone: &str| self.state.of(WEB)?.zones.get(zone);
        ZONES.map(|zone| known(zone).map_or(FULL_PERCENT, |zone| zone.percent))
    }

    fn run(&mut self, minutes: u64) -> &mut Self {
        for _ in 0..minutes * 60 {
            self.work();
            let second = self.second();
            if second % 60 == 7 && self.random.f64() >= self.feed.lost {
                self.ask();
            }
            if second.is_multiple_of(15) {
                self.decide();
            }
        }
        self
    }

    /// What connections cost in this second. Those that begin now go where the written shares say.
    fn work(&mut self) {
        let counts_for = [0, 1, 2].map(|zone| self.pods[zone] * u64::from(self.written[zone]));
        let load = (self.load)(self.second()) * self.pods.iter().sum::<u64>() as f64;
        let of_zone = fair(&counts_for);
        let before = self.used[self.used.len() - 1];
        let used = [0, 1, 2].map(|zone| {
            before[zone] + 3.0 + self.costs[zone] * load * of_zone[zone] / self.pods[zone] as f64
        });
        self.used.push(used);
    }

    fn ask(&mut self) {
        let mut pod = 0;
        for zone in 0..3 {
            for _ in 0..self.pods[zone] {
                let late = self.feed.late + self.random.usize(0..=self.feed.late);
                let lost = self.random.f64() < self.feed.lost;
                self.told[pod] = match (self.used.len() - 1).checked_sub(late + self.feed.window) {
                    Some(from) if !lost => self.figure(zone, from),
                    _ => self.told[pod],
                };
                pod += 1;
            }
        }
    }

    fn figure(&mut self, zone: usize, from: usize) -> Known {
        let window = self.feed.window;
        let mean = self.mean_use(zone, from, window);
        let chance = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
        let milli = (mean * (1.0 + self.feed.noise * chance)).max(0.0) as u64;
        let at = START + (from + window) as Millis * 1000;
        Known::Use(PodUse { milli, at, window: window as Millis * 1000 })
    }

    /// The mean use of an endpoint for so many seconds.
    fn mean_use(&self, zone: usize, from: usize, seconds: usize) -> f64 {
        (self.used[from + seconds][zone] - self.used[from][zone]) / seconds as f64
    }

    fn decide(&mut self) {
        let zones = (0..3).flat_map(|zone| std::iter::repeat_n(zone, self.pods[zone] as usize));
        let endpoint = |(zone, known): (usize, &Known)| Endpoint {
            zone: ZONES[zone].into(),
            ready_since: 0,
            node_milli: Some(64_000),
            known: *known,
        };
        let endpoints: Vec<Endpoint> = zones.zip(&self.told).map(endpoint).collect();
        let (web, held) = (Name::from(WEB), BTreeSet::new());
        let seen = Seen { endpoints: &endpoints, held: &held, pace: Pace::USUAL };
        let now = START + self.second() * 1000;
        let decided = self.state.decide([(&web, seen)].into_iter(), now);
        if decided[0].1.changed {
            self.rewrites.push(self.second());
        }
        self.percents.push(self.in_force());
        self.write();
    }

    /// Shares are written anew where they load some endpoint by 2 % less.
    fn write(&mut self) {
        let parts = |percents: [u16; 3]| {
            let counts = [0, 1, 2].map(|zone| self.pods[zone] * u64::from(percents[zone]));
            let of_zone = fair(&counts);
            [0, 1, 2].map(|zone| of_zone[zone] / self.pods[zone] as f64)
        };
        let (now, next) = (parts(self.written), parts(self.in_force()));
        if now.iter().zip(next).any(|(now, next)| (now / next - 1.0).abs() > 0.02) {
            self.written = self.in_force();
        }
    }

    /// How far the use of an endpoint is from the mean of all, at most, in a minute.
    fn off(&self, minute: usize) -> f64 {
        let use_of = |zone: usize| self.mean_use(zone, (minute - 1) * 60, 60);
        let pods = self.pods.map(|pods| pods as f64);
        let mean =
            (0..3).map(|zone| use_of(zone) * pods[zone]).sum::<f64>() / pods.iter().sum::<f64>();
        (0..3).map(|zone| (use_of(zone) / mean - 1.0).abs()).fold(0.0, f64::max)
    }

    fn minutes(&self) -> usize {
        self.used.len() / 60
    }

    /// The first minute from which on nothing is off by more than this.
    fn settled_within(&self, most: f64) -> usize {
        let last = (1..=self.minutes()).rev().find(|minute| self.off(*minute) > most);
        last.map_or(1, |minute| minute + 1)
    }

    /// How often what an endpoint of a zone gets turns, where less than this many thousandths is no movement.
    fn turns(&self, least: u16) -> usize {
        let gets = |zone: usize| {
            self.percents.iter().map(move |percents| {
                let of = |zone: usize| self.pods[zone] as f64 * f64::from(percents[zone]);
                (1000.0 * f64::from(percents[zone]) / (of(0) + of(1) + of(2)) * self.all()) as u16
            })
        };
        (0..3).map(|zone| turns(gets(zone), least)).max().unwrap()
    }

    fn all(&self) -> f64 {
        self.pods.iter().sum::<u64>() as f64
    }

    fn rewrites_since(&self, minute: u64) -> usize {
        self.rewrites.iter().filter(|second| **second > minute * 60).count()
    }
}

/// How often a series turns, where movements below the least are none.
fn turns(series: impl Iterator<Item = u16>, least: u16) -> usize {
    let (mut last, mut direction, mut turns) = (None, None, 0);
    for value in series {
        let before = *last.get_or_insert(value);
        if value.abs_diff(before) < least {
            continue;
        }
        let up = value > before;
        turns += usize::from(direction.is_some_and(|was| was != up));
        (last, direction) = (Some(value), Some(up));
    }
    turns
}

/// Zones with endpoints that are slower than others. With the limits, some may get a quarter of what others get.
const SPEEDS: [([u64; 3], [f64; 3]); 6] = [
    ([4, 4, 4], [2.0, 1.0, 1.0]),
    ([4, 4, 4], [1.0, 1.0, 1.4]),
    ([2, 2, 2], [1.0, 2.0, 3.0]),
    ([1, 5, 10], [1.0, 2.0, 1.0]),
    ([10, 5, 1], [2.0, 1.0, 0.7]),
    ([3, 30, 30], [1.0, 2.5, 2.0]),
];

#[test]
fn zones_of_unequal_speed_come_to_use_the_same_within_minutes() {
    for (pods, costs) in SPEEDS {
        let mut simulation = Simulation::new(pods, costs, PROMPT);
        simulation.run(60);
        let name = format!("{pods:?} {costs:?}: {:?}", simulation.percents);
        assert!(simulation.off(1) > 0.2, "{name}");
        let (within_10, within_6) =
            (simulation.settled_within(0.10), simulation.settled_within(0.06));
        assert!(within_10 <= 6 && within_6 <= 8, "{within_10} {within_6} {name}");
        assert_eq!(simulation.turns(20), 0, "{name}");
        assert_eq!(simulation.rewrites_since(15), 0, "{name}");
    }
}

#[test]
fn late_and_lost_figures_delay_it_and_nothing_swings() {
    let rows = [
        (Feed { late: 30, ..PROMPT }, 10),
        (Feed { window: 60, late: 20, ..PROMPT }, 10),
        (Feed { window: 30, late: 55, ..PROMPT }, 12),
        (Feed { window: 300, late: 20, ..PROMPT }, 22),
        (Feed { lost: 0.2, ..PROMPT }, 10),
        (Feed { window: 60, late: 30, lost: 0.2, ..PROMPT }, 13),
    ];
    for (feed, minutes) in rows {
        for (pods, costs) in SPEEDS {
            let mut simulation = Simulation::new(pods, costs, feed);
            simulation.run(60);
            let name = format!("{feed:?} {pods:?} {costs:?}: {:?}", simulation.percents);
            let settled = simulation.settled_within(0.10);
            assert!(settled <= minutes, "{settled} {name}");
            assert_eq!(simulation.turns(60), 0, "{name}");
        }
    }
}

#[test]
fn what_chance_adds_to_figures_moves_little() {
    for noise in [0.05, 0.1, 0.2] {
        for (pods, costs) in SPEEDS {
            let mut simulation = Simulation::new(pods, costs, Feed { noise, ..PROMPT });
            simulation.run(180);
            let name = format!("{noise} {pods:?} {costs:?}: {:?}", simulation.percents);
            let off: Vec<f64> = (30..=180).map(|minute| simulation.off(minute)).collect();
            let mean = off.iter().sum::<f64>() / off.len() as f64;
            assert!(mean <= 0.05 + noise / 2.0, "{mean} {name}");
            assert!(simulation.rewrites_since(120) <= MOST_REWRITES, "{name}");
        }
    }
}

#[test]
fn a_load_that_jumps_and_swings_moves_nothing_that_is_balanced() {
    type Load = fn(u64) -> f64;
    let loads: [(&str, Load); 3] = [
        ("jumps", |second| if second < 3600 { 300.0 } else { 1200.0 }),
        ("falls", |second| if second < 3600 { 1200.0 } else { 100.0 }),
        ("swings", |second| 400.0 + 200.0 * (second as f64 / 60.0).sin()),
    ];
    for (name, load) in loads {
        let mut simulation = Simulation::new([4, 4, 4], [2.0, 1.0, 1.0], PROMPT);
        simulation.load = load;
        simulation.run(120);
        let off = (30..=120).map(|minute| simulation.off(minute)).fold(0.0, f64::max);
        assert!(off <= 0.15, "{name}: {off} {:?}", simulation.percents);
        assert!(simulation.turns(160) == 0, "{name}: {:?}", simulation.percents);
    }
}

#[test]
fn beyond_the_limits_nothing_swings_either() {
    let mut simulation = Simulation::new([4, 4, 4], [9.0, 1.0, 1.0], PROMPT);
    simulation.run(60);
    assert_eq!(simulation.in_force(), [50, 200, 200]);
    assert_eq!((simulation.turns(20), simulation.rewrites_since(20)), (0, 0));
    simulation.costs = [1.0; 3];
    simulation.run(60);
    assert!(simulation.off(120) < 0.06, "{:?}", simulation.percents);
}

#[test]
fn when_the_metrics_api_is_gone_all_zones_count_the_same_again() {
    let mut simulation = Simulation::new([4, 4, 4], [2.0, 1.0, 1.0], PROMPT);
    simulation.run(30);
    let before = simulation.in_force();
    simulation.feed.lost = 1.0;
    simulation.run(3);
    assert_eq!(simulation.in_force(), before, "not at once");
    simulation.run(15);
    assert_eq!(simulation.in_force(), [FULL_PERCENT; 3]);
    assert_eq!(simulation.turns(20), 1, "{:?}", simulation.percents);
}

#[test]
fn a_new_leader_goes_on_where_the_last_one_stopped() {
    let mut simulation = Simulation::new([4, 4, 4], [2.0, 1.0, 1.0], PROMPT);
    simulation.run(3);
    let before = simulation.in_force();
    let decisions = simulation.percents.len();
    simulation.state = UseState::decode(&simulation.state.encode(MAX_BYTES)).unwrap();
    simulation.told.fill(Known::Nothing);
    simulation.run(57);
    let goes_on = simulation.percents[decisions];
    assert!(
        goes_on.iter().zip(before).all(|(now, was)| now.abs_diff(was) <= 10),
        "{goes_on:?} {before:?}"
    );
    assert_eq!(simulation.turns(20), 0, "{:?}", simulation.percents);
    assert!(simulation.off(60) < 0.06, "{:?}", simulation.percents);
}
