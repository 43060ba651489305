//! Zones whose connections fail: what their endpoints count for, decision by decision.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zonewise_common::name::Name;
use zonewise_demand::Millis;
use zonewise_demand::failures::{ServiceFailures, ZoneConnections};
use zonewise_demand::health::{
    HealthState, HealthStateError, Held, InForce, Judgement, LEAST, LOWER_BY, MOST_GROWTH, Seen,
    judge,
};
use zonewise_demand::shares::{REWRITE_EVERY, REWRITES_AT_ONCE};

const START: Millis = 1_763_430_000_000;
const INTERVAL: Millis = 15_000;
const ZONES: [&str; 3] = ["a", "b", "c"];

/// Connections and failed ones of 30 seconds, by zone.
type Counted = [(u64, u64); 3];

fn failures(counted: Counted) -> ServiceFailures {
    let of = |(zone, (connections, failed)): (&str, (u64, u64))| {
        (Name::from(zone), ZoneConnections { connections, failed })
    };
    let zones = ZONES.into_iter().zip(counted).map(of).collect();
    ServiceFailures { zones, seconds: 30.0, complete: true }
}

fn endpoints(counts: [u64; 3]) -> BTreeMap<Name, u64> {
    ZONES.into_iter().map(Name::from).zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// One Service, decided again and again.
struct Course {
    in_force: Option<InForce>,
    endpoints: BTreeMap<Name, u64>,
    now: Millis,
}

impl Course {
    fn new(counts: [u64; 3]) -> Self {
        Self { in_force: None, endpoints: endpoints(counts), now: START }
    }

    fn decide(&mut self, known: Option<&ServiceFailures>) -> Judgement {
        self.now += INTERVAL;
        let seen = Seen { failures: known, endpoints: &self.endpoints };
        let (next, judgement) = judge(self.in_force.as_ref(), &seen, self.now);
        self.in_force = Some(next);
        judgement
    }

    /// So many decisions with the same figures; returns the percentages.
    fn run(&mut self, decisions: usize, counted: Counted) -> [u8; 3] {
        let known = failures(counted);
        (0..decisions).for_each(|_| drop(self.decide(Some(&known))));
        self.percents()
    }

    fn percents(&self) -> [u8; 3] {
        let known = |zone: &str| self.in_force.as_ref()?.zones.get(zone);
        ZONES.map(|zone| known(zone).map_or(100, |zone| zone.percent))
    }
}

#[test]
fn a_zone_counts_for_less_only_if_clearly_more_fails_there() {
    let even = [4, 4, 4];
    let rows: [(&str, [u64; 3], Counted, [u8; 3]); 14] = [
        ("nothing fails", even, [(1000, 0), (1000, 0), (1000, 0)], [100, 100, 100]),
        ("half of them", even, [(1000, 500), (1000, 0), (1000, 0)], [LEAST, 100, 100]),
        ("all of them", even, [(1000, 1000), (1000, 0), (1000, 0)], [LEAST, 100, 100]),
        ("a quarter", even, [(1000, 250), (1000, 0), (1000, 0)], [50, 100, 100]),
        ("a tenth", even, [(1000, 100), (1000, 0), (1000, 0)], [80, 100, 100]),
        ("little", even, [(1000, 40), (1000, 0), (1000, 0)], [100, 100, 100]),
        ("everywhere alike", even, [(1000, 500), (1000, 500), (1000, 500)], [100, 100, 100]),
        ("nearly alike", even, [(1000, 400), (1000, 250), (1000, 300)], [100, 100, 100]),
        ("too few connections", even, [(10, 10), (1000, 0), (1000, 0)], [100, 100, 100]),
        ("nothing to compare with", even, [(1000, 500), (10, 0), (0, 0)], [100, 100, 100]),
        (
            "the others have too few endpoints",
            [8, 1, 1],
            [(1000, 900), (99, 0), (99, 0)],
            [60, 100, 100],
        ),
        ("two zones", [4, 4, 0], [(1000, 900), (1000, 0), (0, 0)], [40, 100, 100]),
        ("two of three fail", even, [(1000, 900), (1000, 900), (1000, 0)], [50, 50, 100]),
        (
            "more failed ones than connections",
            even,
            [(100, 999), (100, 0), (100, 0)],
            [LEAST, 100, 100],
        ),
    ];
    for (name, counts, counted, expected) in rows {
        assert_eq!(Course::new(counts).run(40, counted), expected, "{name}");
    }
}

#[test]
fn a_zone_is_lowered_within_a_minute_and_raised_step_by_step() {
    let failing = [(1000, 500), (1000, 0), (1000, 0)];
    let well = [(1000, 0), (1000, 0), (1000, 0)];
    let mut course = Course::new([4, 4, 4]);
    course.run(4, well);
    let steps: Vec<u8> = (0..8).map(|_| course.run(1, failing)[0]).collect();
    assert!(steps[3] <= 40, "after a minute: {steps:?}");
    assert!(steps.is_sorted_by(|one, next| one >= next), "{steps:?}");
    course.run(20, failing);
    let steps: Vec<u8> = (0..60).map(|_| course.run(1, well)[0]).collect();
    assert!(steps.is_sorted(), "{steps:?}");
    assert!(steps[3] < 40, "not at once: {steps:?}");
    assert_eq!(steps[40], 100, "within ten minutes: {steps:?}");
}

#[test]
fn figures_that_nobody_confirms_fade() {
    let mut course = Course::new([4, 4, 4]);
    course.run(20, [(1000, 500), (1000, 0), (1000, 0)]);
    assert_eq!(course.percents()[0], LEAST);
    let silent = failures([(0, 0); 3]);
    for known in [None, Some(&silent)] {
        let mut course = Course {
            in_force: course.in_force.clone(),
            endpoints: course.endpoints.clone(),
            ..course
        };
        (0..8).for_each(|_| drop(course.decide(known)));
        assert_eq!(course.percents()[0], LEAST, "not within two minutes");
        (0..100).for_each(|_| drop(course.decide(known)));
        assert_eq!(course.percents()[0], 100);
    }
}

/// Endpoints elsewhere go: what is shifted is bounded at once, however lately something was changed.
#[test]
fn never_more_is_shifted_than_the_others_can_take() {
    let mut course = Course::new([4, 4, 4]);
    course.run(20, [(1000, 500), (1000, 0), (1000, 0)]);
    course.endpoints = endpoints([4, 1, 1]);
    let judgement = course.decide(Some(&failures([(1000, 500), (1000, 0), (1000, 0)])));
    assert_eq!(
        (course.percents(), judgement.changed, judgement.bounded),
        ([50, 100, 100], true, true)
    );
}

#[test]
fn limits_are_told() {
    let mut course = Course::new([4, 4, 4]);
    let failing = failures([(1000, 900), (1000, 0), (1000, 0)]);
    let held: Vec<Option<Held>> = (0..8).map(|_| course.decide(Some(&failing)).held).collect();
    assert_eq!(held[1], Some(Held::ChangeLimit), "{held:?}");
    assert_eq!(held[7], None, "{held:?}");
    let mut tired = course.in_force.clone().unwrap();
    tired.rewrites_left = 0.5;
    tired.zones.get_mut("a").unwrap().percent = 100;
    let seen = Seen { failures: Some(&failing), endpoints: &course.endpoints };
    let (_, judgement) = judge(Some(&tired), &seen, tired.decided);
    assert_eq!((judgement.held, judgement.changed), (Some(Held::RewriteLimit), false));
}

#[test]
fn services_that_do_not_ask_any_more_count_in_full() {
    let mut state = HealthState::default();
    let (web, counts) = (Name::from("shop/web"), endpoints([4, 4, 4]));
    let failing = failures([(1000, 500), (1000, 0), (1000, 0)]);
    let seen = Seen { failures: Some(&failing), endpoints: &counts };
    for decision in 0..20 {
        state.decide([(&web, seen)].into_iter(), START + decision * INTERVAL);
    }
    assert_eq!(state.lowered().map(|(name, _)| &**name).collect::<Vec<_>>(), ["shop/web"]);
    let judgements = state.decide(std::iter::empty(), START + 20 * INTERVAL);
    let found: Vec<(&str, bool)> =
        judgements.iter().map(|(name, judgement)| (&**name, judgement.changed)).collect();
    assert_eq!((found, state.lowered().count()), (vec![("shop/web", true)], 0));
    assert_eq!(state, HealthState::default());
}

#[test]
fn the_text_is_read_as_it_was_written() {
    let mut state = HealthState::default();
    let (web, api, counts) = (Name::from("shop/web"), Name::from("shop/api"), endpoints([4, 4, 4]));
    let failing = failures([(1000, 400), (1000, 0), (1000, 0)]);
    let well = failures([(1000, 0), (1000, 0), (1000, 0)]);
    for decision in 0..20 {
        let of = |known| Seen { failures: Some(known), endpoints: &counts };
        let services = [(&api, of(&well)), (&web, of(&failing))];
        state.decide(services.into_iter(), START + decision * INTERVAL);
    }
    let text = state.encode();
    assert!(
        text.starts_with(r#"{"v":1,"at":1763430285000,"services":{"shop/web":{"z":{"a":[20,"#),
        "{text}"
    );
    assert!(!text.contains("shop/api"), "what counts in full is not stored: {text}");
    let read = HealthState::decode(&text).unwrap();
    assert_eq!(read.encode(), text);
    assert_eq!(read.of("shop/web").unwrap().zones["a"].percent, 20);
    let newer = text.replacen("{\"v\":1", "{\"v\":1,\"new\":7", 1);
    assert_eq!(HealthState::decode(&newer), Ok(read), "a newer program may say more");
    let version = text.replacen("\"v\":1", "\"v\":2", 1);
    assert_eq!(HealthState::decode(&version), Err(HealthStateError::Version(2)));
    assert!(matches!(HealthState::decode("{"), Err(HealthStateError::Shape(_))));
    let odd = r#"{"v":1,"at":5,"services":{"shop/web":{"z":{"a":[0,5,9,9999]},"r":1e9,"d":99}}}"#;
    let odd = HealthState::decode(odd).unwrap();
    let in_force = odd.of("shop/web").unwrap();
    let zone = in_force.zones["a"];
    assert_eq!((zone.percent, zone.failed, zone.excess), (LEAST, 5.0, 1.0));
    assert_eq!((in_force.rewrites_left, in_force.decided), (REWRITES_AT_ONCE, 0));
}

#[test]
fn a_text_that_is_too_long_keeps_those_that_fail_most() {
    let mut state = HealthState::default();
    let counts = endpoints([4, 4, 4]);
    let names: Vec<Name> = (0..2000)
        .map(|number| Name::from(format!("shop/a-service-with-a-name-{number:04}").as_str()))
        .collect();
    let bad = failures([(1000, 500), (1000, 0), (1000, 0)]);
    let half = failures([(1000, 200), (1000, 0), (1000, 0)]);
    for decision in 0..20 {
        let of = |(number, name)| {
            let known = if number % 4 == 0 { &bad } else { &half };
            (name, Seen { failures: Some(known), endpoints: &counts })
        };
        state.decide(names.iter().enumerate().map(of), START + decision * INTERVAL);
    }
    let text = state.encode();
    assert!(text.len() <= 64 << 10, "{}", text.len());
    let read = HealthState::decode(&text).unwrap();
    let worst = read.lowered().filter(|(_, in_force)| in_force.zones["a"].percent == LEAST).count();
    assert!(read.lowered().count() > 300, "{}", read.lowered().count());
    assert!(worst >= 300, "{worst}");
}

proptest! {
    /// Figures that say anything at all, endpoints that come and go.
    #[test]
    fn whatever_happens_limits_are_kept(
        steps in prop::collection::vec(
            (
                prop::option::weighted(0.9, prop::array::uniform3((0u64..3000, 0u64..3000))),
                prop::array::uniform3(0u64..12),
                prop::bool::weighted(0.1),
            ),
            1..240,
        ),
    ) {
        let mut course = Course::new([4, 4, 4]);
        let (mut changes, mut before) = (Vec::new(), course.percents());
        for (counted, counts, moves) in steps {
            if moves {
                course.endpoints = endpoints(counts);
            }
            let known = counted.map(failures);
            let judgement = course.decide(known.as_ref());
            let percents = course.percents();
            let fell = before.iter().zip(&percents).map(|(one, next)| one.saturating_sub(*next));
            prop_assert!(fell.max().unwrap_or(0) <= LOWER_BY);
            prop_assert!(percents.iter().all(|percent| (LEAST..=100).contains(percent)));
            let counts = ZONES.map(|zone| course.endpoints.get(zone).copied().unwrap_or(0) as f64);
            let all: f64 = counts.iter().sum();
            let left: f64 = counts.iter().zip(percents).map(|(count, percent)| count * f64::from(percent) / 100.0).sum();
            prop_assert!(all <= left * MOST_GROWTH + 1e-6, "{counts:?} {percents:?}");
            prop_assert_eq!(judgement.changed, before != percents);
            // Where the others lose endpoints, zones are raised without regard to the number of rewrites.
            if judgement.changed && !judgement.bounded {
                changes.push(course.now);
            }
            before = percents;
        }
        let most = (REWRITES_AT_ONCE + 3600.0 / REWRITE_EVERY) as usize;
        for (index, first) in changes.iter().enumerate() {
            let hour = changes[index..].iter().filter(|at| **at < first + 3_600_000);
            prop_assert!(hour.count() <= most);
        }
    }
}

/// Figures without a connection say nothing: what was seen stays, and fades as if nobody told anything.
#[test]
fn a_service_that_nobody_calls_is_not_seen() {
    let mut course = Course::new([4, 4, 4]);
    course.run(8, [(3000, 900), (3000, 0), (3000, 0)]);
    let last = course.now;
    assert_eq!(course.in_force.as_ref().unwrap().seen, last);
    course.run(3, [(0, 0); 3]);
    let in_force = course.in_force.unwrap();
    assert_eq!((in_force.seen, in_force.decided), (last, course.now));
}

#[test]
fn only_zones_that_count_for_less_are_lowered() {
    let mut course = Course::new([4, 4, 4]);
    course.run(1, [(3000, 0); 3]);
    let healthy = course.in_force.clone().unwrap();
    assert_eq!((healthy.is_lowered(), healthy.zones.len()), (false, 3));
    course.run(8, [(3000, 900), (3000, 0), (3000, 0)]);
    let in_force = course.in_force.unwrap();
    let lowered: Vec<&str> = in_force.lowered().map(|(name, _)| &**name).collect();
    assert_eq!((lowered, in_force.is_lowered()), (vec!["a"], true));
}
