//! Zones whose endpoints use more or less CPU than others: what they count for, decision by decision.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use zonewise_common::name::Name;
use zonewise_demand::Millis;
use zonewise_demand::cpu_use::{
    Endpoint, FULL_PERCENT, InForce, Known, LEAST_PERCENT, MAX_BYTES, MOST_MILLI, MOST_PERCENT,
    Pace, PodUse, Seen, SourceFault, Standing, UseState, UseStateError, Weighing, weigh,
};
use zonewise_demand::shares::{REWRITE_EVERY, REWRITES_AT_ONCE};

use Standing::{Alone, AtLimit, ByUse, Held, Missing, Nonsense, Old, TooLittle, Waiting};

const START: Millis = 1_763_430_000_000;
const MINUTE: Millis = 60_000;
const ZONES: [&str; 3] = ["a", "b", "c"];

/// A figure about the last 20 seconds.
fn fresh(milli: u64, now: Millis) -> Known {
    Known::Use(PodUse { milli, at: now, window: 20_000 })
}

fn endpoint(zone: &str, known: Known) -> Endpoint {
    Endpoint { zone: zone.into(), ready_since: 0, node_milli: Some(4000), known }
}

/// One Service with two endpoints in each of three zones, decided again and again.
struct Course {
    in_force: Option<InForce>,
    held: BTreeSet<Name>,
    now: Millis,
}

impl Course {
    fn new() -> Self {
        Self { in_force: None, held: BTreeSet::new(), now: START }
    }

    fn decide(&mut self, after: Millis, endpoints: impl Fn(Millis) -> Vec<Endpoint>) -> Weighing {
        self.now += after;
        let endpoints = endpoints(self.now);
        let seen = Seen { endpoints: &endpoints, held: &self.held, pace: Pace::USUAL };
        let (next, weighing) = weigh(self.in_force.as_ref(), &seen, self.now);
        self.in_force = Some(next);
        weighing
    }

    /// So many minutes with this use in each zone.
    fn minutes(&mut self, minutes: usize, milli: [u64; 3]) -> [u16; 3] {
        for _ in 0..minutes {
            self.decide(MINUTE, |now| pairs(milli.map(|milli| fresh(milli, now))));
        }
        self.percents()
    }

    fn percents(&self) -> [u16; 3] {
        let known = |zone: &str| self.in_force.as_ref()?.zones.get(zone);
        ZONES.map(|zone| known(zone).map_or(FULL_PERCENT, |zone| zone.percent))
    }

    fn standings(&self) -> [Standing; 3] {
        ZONES.map(|zone| self.in_force.as_ref().unwrap().zones[zone].standing)
    }
}

/// Two endpoints in each zone of which the same is known.
fn pairs(known: [Known; 3]) -> Vec<Endpoint> {
    let of = |(zone, known)| [endpoint(zone, known), endpoint(zone, known)];
    ZONES.into_iter().zip(known).flat_map(of).collect()
}

#[test]
fn a_step_goes_half_of_the_way_where_zones_differ() {
    type Row = (&'static str, [u64; 3], [u16; 3], [Standing; 3]);
    let rows: [Row; 8] = [
        ("all the same", [300, 300, 300], [100, 100, 100], [ByUse; 3]),
        ("nearly", [310, 300, 305], [100, 100, 100], [ByUse; 3]),
        // The mean is 400.
        ("one is twice as busy", [600, 300, 300], [82, 115, 115], [ByUse; 3]),
        ("one is idle", [100, 400, 400], [150, 87, 87], [ByUse; 3]),
        ("one uses nothing", [0, 300, 300], [150, 82, 82], [ByUse; 3]),
        ("one is nine times as busy", [2700, 150, 150], [67, 150, 150], [ByUse; 3]),
        ("all use next to nothing", [9, 1, 1], [100, 100, 100], [TooLittle; 3]),
        ("nothing at all", [0, 0, 0], [100, 100, 100], [TooLittle; 3]),
    ];
    for (name, milli, expected, standings) in rows {
        let mut course = Course::new();
        assert_eq!(course.minutes(1, milli), expected, "{name}");
        assert_eq!(course.standings(), standings, "{name}");
        let zone = &course.in_force.as_ref().unwrap().zones["a"];
        assert_eq!((zone.endpoints, zone.measured, zone.at), (2, 2, course.now), "{name}");
        assert!((zone.milli - milli[0] as f64).abs() < 1e-9, "{name}: {}", zone.milli);
    }
}

#[test]
fn a_zone_counts_for_half_at_least_and_for_twice_at_most() {
    let mut course = Course::new();
    assert_eq!(course.minutes(20, [900, 100, 100]), [LEAST_PERCENT, MOST_PERCENT, MOST_PERCENT]);
    assert_eq!(course.standings(), [AtLimit; 3]);
}

#[test]
fn there_is_one_step_in_a_minute_and_only_by_figures_from_after_the_last_one() {
    let mut course = Course::new();
    let busy = |now: Millis| pairs([600, 300, 300].map(|milli| fresh(milli, now)));
    assert!(course.decide(15_000, busy).changed, "the first at once");
    let stepped = course.now;
    let before = course.percents();
    for _ in 0..3 {
        assert_eq!(course.decide(15_000, busy), Weighing::default());
    }
    assert_eq!(course.percents(), before);
    // The figures of zone b are late: they begin before the last step has had its effect.
    let late = |now: Millis| {
        let mut known = [600, 300, 300].map(|milli| fresh(milli, now));
        known[1] = Known::Use(PodUse { milli: 300, at: stepped + 25_000, window: 20_000 });
        pairs(known)
    };
    assert_eq!(course.decide(30_000, late), Weighing::default());
    assert_eq!((course.percents(), course.standings()), (before, [ByUse, Waiting, ByUse]));
    assert!(course.decide(15_000, busy).changed);
    assert_eq!(course.percents(), [67, 133, 133]);
}

#[test]
fn a_zone_without_good_figures_goes_back_step_by_step_and_says_why() {
    type Row = (&'static str, fn(Millis) -> Known, Standing);
    let rows: [Row; 9] = [
        ("no figures", |_| Known::Nothing, Missing),
        ("nonsense", |_| Known::Nonsense, Nonsense),
        ("more than twice its node", |now| fresh(8001, now), Nonsense),
        (
            "from the future",
            |now| Known::Use(PodUse { milli: 1, at: now + 61_000, window: 20_000 }),
            Nonsense,
        ),
        ("about no time", |now| Known::Use(PodUse { milli: 1, at: now, window: 0 }), Nonsense),
        ("about an age", |now| Known::Use(PodUse { milli: 1, at: now, window: 600_001 }), Nonsense),
        ("old", |now| Known::Use(PodUse { milli: 1, at: now - 181_000, window: 20_000 }), Old),
        (
            "older than three windows",
            |now| Known::Use(PodUse { milli: 1, at: now - 301_000, window: 100_000 }),
            Old,
        ),
        ("from 1970", |_| Known::Use(PodUse { milli: 1, at: 0, window: 1 }), Old),
    ];
    for (name, known, standing) in rows {
        let mut course = Course::new();
        // Its endpoints are half as fast, so that this is what all use the same with.
        let balanced = course.minutes(1, [900, 200, 200]);
        assert_eq!(balanced, [69, 147, 147]);
        let mut seen = Vec::new();
        for _ in 0..7 {
            course.decide(MINUTE, |now| pairs([known(now), fresh(300, now), fresh(300, now)]));
            assert_eq!(course.standings(), [standing, ByUse, ByUse], "{name}");
            seen.push(course.percents());
        }
        let zone_a: Vec<u16> = seen.iter().map(|percents| percents[0]).collect();
        assert_eq!(zone_a, [69, 83, 91, 100, 100, 100, 100], "{name}: two minutes, then back");
        assert!(seen.iter().all(|percents| percents[1..] == [147, 147]), "{name}: {seen:?}");
    }
}

#[test]
fn half_of_a_zones_endpoints_have_to_be_measured() {
    let known = |measured: usize, of: usize, now: Millis| {
        let zone_a =
            (0..of).map(|pod| if pod < measured { fresh(600, now) } else { Known::Nothing });
        let others = ["b", "c"].map(|zone| endpoint(zone, fresh(300, now)));
        zone_a.map(|known| endpoint("a", known)).chain(others).collect::<Vec<_>>()
    };
    for (measured, of, standing) in [(1, 2, ByUse), (1, 3, Missing), (2, 3, ByUse), (0, 1, Missing)]
    {
        let mut course = Course::new();
        course.decide(MINUTE, |now| known(measured, of, now));
        assert_eq!(course.standings(), [standing, ByUse, ByUse], "{measured} of {of}");
        let zone = &course.in_force.as_ref().unwrap().zones["a"];
        assert_eq!((zone.measured, zone.endpoints), (measured as u64, of as u64));
    }
}

#[test]
fn what_cannot_be_compared_goes_back_too() {
    let mut course = Course::new();
    course.minutes(1, [600, 300, 300]);
    for _ in 0..9 {
        let alone = |now| pairs([fresh(600, now), Known::Nothing, Known::Nothing]);
        course.decide(MINUTE, alone);
    }
    assert_eq!((course.percents(), course.standings()), ([100; 3], [Alone, Missing, Missing]));
    let mut course = Course::new();
    course.minutes(1, [600, 300, 300]);
    assert_eq!(course.minutes(9, [4, 4, 4]), [100; 3]);
    assert_eq!(course.standings(), [TooLittle; 3]);
}

#[test]
fn a_zone_that_is_held_stays_and_is_compared_with_nothing() {
    let mut course = Course::new();
    let before = course.minutes(1, [600, 300, 300]);
    course.held.insert("a".into());
    assert_eq!(course.minutes(9, [2, 300, 300]), before);
    assert_eq!(course.standings(), [Held, ByUse, ByUse]);
    course.held.clear();
    assert_eq!(course.minutes(1, [150, 300, 300])[0], 106, "and goes on from there");
}

#[test]
fn a_pod_that_has_just_become_ready_is_waited_for() {
    let mut course = Course::new();
    let young = |now: Millis| {
        let mut endpoints = pairs([2000, 300, 300].map(|milli| fresh(milli, now)));
        endpoints[..2].iter_mut().for_each(|endpoint| endpoint.ready_since = now - 25_000);
        endpoints
    };
    assert_eq!(course.decide(MINUTE, young), Weighing::default());
    assert_eq!(course.standings(), [Waiting, ByUse, ByUse]);
}

#[test]
fn zones_that_are_gone_are_forgotten() {
    let mut course = Course::new();
    course.minutes(1, [600, 300, 300]);
    for _ in 0..9 {
        course.decide(MINUTE, |now| pairs([fresh(300, now); 3]).split_off(2));
    }
    let in_force = course.in_force.unwrap();
    assert_eq!(in_force.zones.keys().map(|zone| &**zone).collect::<Vec<_>>(), ["b", "c"]);
    let nowhere = |now| vec![endpoint("", fresh(900, now)), endpoint("a", fresh(1, now))];
    let mut course = Course::new();
    course.decide(MINUTE, nowhere);
    assert_eq!(course.in_force.unwrap().zones.len(), 1, "endpoints without a zone are in none");
}

#[test]
fn rewrites_are_limited() {
    let mut course = Course::new();
    let mut changes = 0;
    for minute in 0..180 {
        let milli = if minute % 2 == 0 { [600, 300, 300] } else { [300, 600, 600] };
        let weighing = course.decide(MINUTE, |now| pairs(milli.map(|milli| fresh(milli, now))));
        changes += usize::from(weighing.changed);
        assert!(!(weighing.changed && weighing.held));
    }
    let most = REWRITES_AT_ONCE + 180.0 * 60.0 / REWRITE_EVERY;
    assert!(changes as f64 <= most && changes as f64 > most - 3.0, "{changes} of {most}");
}

#[test]
fn services_that_do_not_ask_any_more_are_forgotten_and_told() {
    let web = Name::from("shop/web");
    let held = BTreeSet::new();
    let mut state = UseState::default();
    let endpoints = pairs([600, 300, 300].map(|milli| fresh(milli, START)));
    let seen = Seen { endpoints: &endpoints, held: &held, pace: Pace::USUAL };
    let decided = state.decide([(&web, seen)].into_iter(), START);
    assert_eq!(decided, [(Name::clone(&web), Weighing { changed: true, held: false })]);
    let decided = state.decide(std::iter::empty(), START + MINUTE);
    assert_eq!(decided, [(web, Weighing { changed: true, held: false })]);
    assert_eq!(state, UseState::default());
}

fn decided(services: usize) -> UseState {
    let held = BTreeSet::new();
    let mut state = UseState::default();
    let all: Vec<(Name, Vec<Endpoint>)> = (0..services)
        .map(|number| {
            let milli = [300 + number as u64 % 500, 300, 300];
            let endpoints = pairs(milli.map(|milli| fresh(milli, START - 7_000)));
            (format!("shop/a-service-of-20-l-{number}").as_str().into(), endpoints)
        })
        .collect();
    let seen = all
        .iter()
        .map(|(name, endpoints)| (name, Seen { endpoints, held: &held, pace: Pace::USUAL }));
    state.decide(seen, START);
    state
}

#[test]
fn the_text_says_the_same_to_the_next_leader() {
    let mut state = decided(3);
    state.fault = Some(SourceFault::Forbidden);
    assert_eq!(UseState::decode(&state.encode(MAX_BYTES)), Ok(state.clone()));
    let text = r#"{"v":1,"at":1763430000000,"f":"missing","later":1,"services":{"shop/web":
        {"z":{"a":[7,"u",4,9,812,20,0],"b":[900,"?",4,3,410,18,0]},"r":99.5,"c":75,"p":15,"x":1}}}"#;
    let read = UseState::decode(text).unwrap();
    assert_eq!(read.fault, Some(SourceFault::Missing));
    let web = read.of("shop/web").unwrap();
    let zones: Vec<_> =
        web.zones.values().map(|zone| (zone.percent, zone.standing, zone.measured)).collect();
    assert_eq!(zones, [(LEAST_PERCENT, ByUse, 4), (MOST_PERCENT, Missing, 3)]);
    assert!((web.rewrites_left - REWRITES_AT_ONCE).abs() < 1e-9);
    assert_eq!((web.changed, web.stepped), (START - 75_000, START - 15_000));
    assert!(matches!(UseState::decode("{]"), Err(UseStateError::Shape(_))));
    let later = r#"{"v":2,"at":0,"services":{}}"#;
    assert_eq!(UseState::decode(later), Err(UseStateError::Version(2)));
}

#[test]
fn the_text_keeps_to_its_size_and_has_the_zones_that_differ_most() {
    let state = decided(3000);
    for most in [8 << 10, 64 << 10, usize::MAX] {
        let text = state.encode(most);
        let limit = most.min(MAX_BYTES);
        assert!(text.len() <= limit && text.len() > limit / 2, "{} of {limit}", text.len());
        let kept = UseState::decode(&text).unwrap();
        let distance = |in_force: &InForce| {
            in_force.zones.values().map(|zone| zone.percent.abs_diff(100)).max().unwrap()
        };
        let least = kept.services().map(|(_, in_force)| distance(in_force)).min().unwrap();
        let left_out = state.services().filter(|(name, _)| kept.of(name).is_none());
        let largest = left_out.map(|(_, in_force)| distance(in_force)).max().unwrap();
        assert!(largest <= least, "{largest} {least}");
    }
}

fn any_known() -> impl Strategy<Value = (Known, Millis)> {
    let told = (any::<u64>(), 0_u64..400_000, 0_u64..700_000, any::<bool>());
    let told = told.prop_map(|(milli, age, window, ahead)| {
        let milli = if milli % 3 == 0 { milli } else { milli % 9000 };
        let at = if ahead { START + age } else { START - age };
        Known::Use(PodUse { milli, at, window })
    });
    let known = prop_oneof![1 => Just(Known::Nothing), 1 => Just(Known::Nonsense), 6 => told];
    (known, 0_u64..90_000)
}

proptest! {
    #[test]
    fn whatever_the_figures_say_limits_are_kept(
        rounds in prop::collection::vec(prop::collection::vec((0_usize..4, any_known()), 0..9), 1..20),
        every in 1_000_u64..200_000,
    ) {
        let (mut in_force, mut now, mut changes) = (None, START, 0.0);
        for round in &rounds {
            now += every;
            let endpoints: Vec<Endpoint> = round
                .iter()
                .map(|(zone, (known, age))| {
                    let known = match *known {
                        Known::Use(told) => {
                            Known::Use(PodUse { at: (told.at + now).saturating_sub(START), ..told })
                        }
                        other => other,
                    };
                    let ready_since = now - age;
                    let zone = ["a", "b", "c", ""][*zone].into();
                    Endpoint { zone, ready_since, node_milli: Some(MOST_MILLI / 2), known }
                })
                .collect();
            let held = BTreeSet::new();
            let seen = Seen { endpoints: &endpoints, held: &held, pace: Pace::USUAL };
            let before: BTreeMap<Name, u16> = in_force
                .iter()
                .flat_map(|known: &InForce| &known.zones)
                .map(|(name, zone)| (Name::clone(name), zone.percent))
                .collect();
            let (next, weighing) = weigh(in_force.as_ref(), &seen, now);
            changes += f64::from(u8::from(weighing.changed));
            for (name, zone) in &next.zones {
                prop_assert!((LEAST_PERCENT..=MOST_PERCENT).contains(&zone.percent));
                let was = before.get(name).copied().unwrap_or(FULL_PERCENT);
                prop_assert!(weighing.changed || zone.percent == was);
                if matches!(zone.standing, Missing | Old | Nonsense | TooLittle | Alone) {
                    let nearer = zone.percent.abs_diff(FULL_PERCENT) <= was.abs_diff(FULL_PERCENT);
                    let same_side = (was >= FULL_PERCENT) == (zone.percent >= FULL_PERCENT);
                    prop_assert!(nearer && (same_side || zone.percent == FULL_PERCENT));
                }
            }
            in_force = Some(next);
        }
        let seconds = rounds.len() as f64 * every as f64 / 1000.0;
        prop_assert!(changes <= REWRITES_AT_ONCE + seconds / REWRITE_EVERY);
    }

    /// Zones that counted for the same count for no more after a step the busier they are.
    #[test]
    fn the_busier_a_zone_the_less_it_counts_for(milli in prop::array::uniform3(0_u64..8000)) {
        let mut course = Course::new();
        let percents = course.minutes(1, milli);
        for (one, other) in [(0, 1), (1, 2), (0, 2)] {
            prop_assert!(milli[one] < milli[other] || percents[one] <= percents[other]);
            prop_assert!(milli[one] > milli[other] || percents[one] >= percents[other]);
        }
    }

    /// Where all endpoints of a Service use the same, but for 5 %, nothing is moved.
    #[test]
    fn what_is_balanced_stays_so(milli in 50_u64..3000, parts in prop::array::uniform3(0_u64..50)) {
        let mut course = Course::new();
        let milli = parts.map(|part| milli + milli * part / 1000);
        prop_assert_eq!(course.minutes(5, milli), [FULL_PERCENT; 3]);
    }
}
