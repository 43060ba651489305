//! The course of an evacuation: what is stored and what is seen go in, what is stored next comes out.
//!
//! ```text
//!             others can take it            written, time of a step over    applied by all proxies
//!  Checking ──────────────────────► Moving 75 ─► 50 ─► 25 ─► 0 ─► Empty
//!     │                               │                             │
//!     │ they cannot                   ├── a limit is passed ────────┤ all at once
//!     ▼                               │                             ▼
//!  Refused                            │                          GoneBack
//!                                     └── `restore`, the deadline ──┐ step by step
//!                                                                   ▼
//!                                     Ended ◄── 100 ◄─ 75 ◄─ … ◄ Restoring
//! ```
//!
//! Where connections that fail are watched, `Checking` lasts until it is known how many fail before anything is moved.
//!
//! All of it is a function of the stored object and of what can be seen now. So a controller that starts, or takes over,
//! goes on where the last one has stopped. The way back because of a limit is one step, because the others are in trouble
//! and the endpoints of the zone have carried this traffic before.

use zonewise_common::time::{seconds, timestamp};
use zonewise_inventory::evacuation::{EvacuationStatus, Phase, StoredEvacuation};
use zonewise_slices::evacuation::{Prospect, STEPS, Survey};
use zonewise_topology::reason::Code;

use super::failing::Failing;

/// The zone goes back if fewer than this part of the endpoints elsewhere is left that were ready at the beginning.
const LEAST_ELSEWHERE: f64 = 0.8;
/// How long the first step waits for what is known of connections that fail, in seconds: three reports of each proxy come
/// within 45 s.
const MEASURING: i64 = 60;
/// The most Services that a status lists.
const LISTED: usize = 20;

/// What can be seen of an evacuation.
pub(crate) struct Sight {
    /// The time, in seconds since 1970.
    pub(crate) now: i64,
    /// What emptying the zone means for Services.
    pub(crate) survey: Survey,
    /// Whether some node is in the zone.
    pub(crate) zone_exists: bool,
    /// Services whose slices are not written yet as the stored percentage asks for.
    pub(crate) unwritten: u64,
    /// Whether some proxy has not applied these slices yet.
    pub(crate) proxies_behind: bool,
    /// What fails of the connections to endpoints outside the zone.
    pub(crate) failing: Failing,
}

/// What is to be stored next; `None` if nothing changes.
pub(crate) fn next(stored: &StoredEvacuation, sight: &Sight) -> Option<EvacuationStatus> {
    let is_new = stored.status.observed_generation != stored.generation();
    let end = end(stored, sight.now);
    let course = Course { stored, sight };
    let status = match stored.status.phase {
        phase if phase.is_over() && !is_new => return None,
        Phase::Checking | Phase::Refused | Phase::GoneBack | Phase::Ended => course.check(end),
        Phase::Moving | Phase::Empty => course.forward(end),
        Phase::Restoring => course.back(end),
    };
    let status = EvacuationStatus { observed_generation: stored.generation(), ..status };
    (status != stored.status).then_some(status)
}

/// Why the zone is to get its traffic back, if it is.
fn end(stored: &StoredEvacuation, now: i64) -> Option<Code> {
    // An object whose deadline cannot be read must not last for ever.
    let is_late = seconds(Some(&stored.spec.deadline)).is_none_or(|deadline| now >= deadline);
    match (stored.spec.restore, is_late) {
        (true, _) => Some(Code::EvacuationRestored),
        (false, true) => Some(Code::EvacuationDeadline),
        (false, false) => None,
    }
}

struct Course<'a> {
    stored: &'a StoredEvacuation,
    sight: &'a Sight,
}

impl Course<'_> {
    fn check(&self, end: Option<Code>) -> EvacuationStatus {
        let survey = &self.sight.survey;
        if let Some(code) = end {
            return self.status(Phase::Ended, 100, code);
        }
        if !self.sight.zone_exists {
            return self.status(Phase::Refused, 100, Code::EvacuationZoneUnknown);
        }
        let figures = |status| EvacuationStatus {
            services: survey.services,
            elsewhere: survey.elsewhere,
            over_limit: over_limit(survey),
            kept: kept(survey),
            ..status
        };
        if !survey.over.is_empty() {
            return figures(self.status(Phase::Refused, 100, Code::EvacuationOverLimit));
        }
        let checking = self.status(Phase::Checking, 100, Code::EvacuationMeasuring);
        if self.sight.failing.may_become_known() && !self.has_lasted(&checking, MEASURING) {
            return figures(checking);
        }
        let moving = self.status(Phase::Moving, below(100), Code::EvacuationMoving);
        figures(EvacuationStatus { failed_before: self.sight.failing.to_store(), ..moving })
    }

    /// Whether phase and percentage of a status are so many seconds old.
    fn has_lasted(&self, status: &EvacuationStatus, least: i64) -> bool {
        let now = self.sight.now;
        now >= seconds(Some(&status.since)).unwrap_or(now).saturating_add(least)
    }

    fn forward(&self, end: Option<Code>) -> EvacuationStatus {
        let (before, sight) = (&self.stored.status, self.sight);
        if let Some(code) = end {
            return self.status(Phase::Restoring, above(before.percent), code);
        }
        if !sight.survey.over.is_empty() {
            let status = self.status(Phase::GoneBack, 100, Code::EvacuationOverLimit);
            return EvacuationStatus { over_limit: over_limit(&sight.survey), ..status };
        }
        if (sight.survey.elsewhere as f64) < LEAST_ELSEWHERE * before.elsewhere as f64 {
            return self.status(Phase::GoneBack, 100, Code::EvacuationOthersFailing);
        }
        if !sight.failing.over(before).is_empty() {
            return self.status(Phase::GoneBack, 100, Code::EvacuationConnectionsFailing);
        }
        match (before.phase, self.obstacle()) {
            (Phase::Empty, _) => before.clone(),
            (_, Some(obstacle)) => self.waiting(obstacle),
            (_, None) if before.percent == 0 => self.status(Phase::Empty, 0, Code::EvacuationEmpty),
            (_, None) => self.status(Phase::Moving, below(before.percent), Code::EvacuationMoving),
        }
    }

    fn back(&self, end: Option<Code>) -> EvacuationStatus {
        let before = &self.stored.status;
        let Some(code) = end else {
            // It is asked for again, with another deadline.
            return match self.sight.survey.over.is_empty() {
                true => self.status(Phase::Moving, before.percent, Code::EvacuationMoving),
                false => self.status(Phase::GoneBack, 100, Code::EvacuationOverLimit),
            };
        };
        match self.obstacle() {
            Some(obstacle) => self.waiting(obstacle),
            None if before.percent == 100 => self.status(Phase::Ended, 100, code),
            None => self.status(Phase::Restoring, above(before.percent), code),
        }
    }

    /// What the next step has to wait for. Proxies are waited for before the zone is called empty, and only then: they
    /// report late, and one that is a step behind sends to endpoints that still serve.
    fn obstacle(&self) -> Option<Obstacle> {
        let before = &self.stored.status;
        let is_last = before.phase == Phase::Moving && before.percent == 0;
        if !self.has_lasted(before, i64::from(self.stored.spec.step_seconds())) {
            return Some(Obstacle::Time);
        }
        if self.sight.unwritten > 0 {
            return Some(Obstacle::Unwritten);
        }
        if self.sight.proxies_behind && is_last {
            return Some(Obstacle::Proxies);
        }
        // On the way back nothing is moved to where connections fail.
        let near = self.sight.failing.near(before).into_iter();
        near.filter(|_| before.phase == Phase::Moving).map(Obstacle::Failing).next()
    }

    /// The same as before, with what it waits for.
    fn waiting(&self, for_what: Obstacle) -> EvacuationStatus {
        let before = self.stored.status.clone();
        let behind = Code::ProxiesBehind.entry();
        let (reason, cause) = match for_what {
            Obstacle::Time => return before,
            Obstacle::Unwritten => {
                (before.reason.clone(), "not all EndpointSlices are written yet".to_owned())
            }
            Obstacle::Proxies => (behind.code.to_string().into(), behind.sentence.to_owned()),
            Obstacle::Failing(figures) => (before.reason.clone(), figures),
        };
        EvacuationStatus { reason, message: format!("the next step waits: {cause}"), ..before }
    }

    fn status(&self, phase: Phase, percent: u8, code: Code) -> EvacuationStatus {
        let before = &self.stored.status;
        let same = (before.phase, before.percent) == (phase, percent) && !before.since.is_empty();
        let since = if same { before.since.clone() } else { timestamp(self.sight.now).into() };
        EvacuationStatus {
            phase,
            percent,
            since,
            reason: code.to_string().into(),
            message: self.message(phase, percent, code),
            ..before.clone()
        }
    }

    fn message(&self, phase: Phase, percent: u8, code: Code) -> String {
        let entry = code.entry();
        let survey = &self.sight.survey;
        let highest = survey.highest.as_ref().map(|(name, prospect)| {
            format!(
                "; the busiest endpoint, of {name}, would get {} % of its present load ({} % are allowed)",
                percent_of(prospect),
                survey.limit
            )
        });
        let figures = match (phase, code) {
            (Phase::Moving | Phase::Restoring, _) => {
                format!("{percent} % of the zone's endpoints are in use")
            }
            (_, Code::EvacuationOverLimit) => match over_limit(survey).first() {
                Some(worst) => format!("{worst}; {} in all", services(survey.over.len())),
                None => String::new(),
            },
            (_, Code::EvacuationOthersFailing) => format!(
                "{} ready endpoints elsewhere, {} when it began",
                survey.elsewhere, self.stored.status.elsewhere
            ),
            (_, Code::EvacuationConnectionsFailing) => {
                let over = self.sight.failing.over(&self.stored.status);
                let all = services(over.len());
                over.first().map(|worst| format!("{worst}; {all} in all")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let more = match phase {
            Phase::Moving => {
                format!("{}{}", highest.unwrap_or_default(), self.sight.failing.note())
            }
            Phase::Refused | Phase::GoneBack => format!("; {}", entry.remedy),
            _ => String::new(),
        };
        match figures.as_str() {
            "" => format!("{}{more}", entry.sentence),
            figures => format!("{} ({figures}){more}", entry.sentence),
        }
    }
}

enum Obstacle {
    /// The time of a step is not over.
    Time,
    /// EndpointSlices of the last step are not written.
    Unwritten,
    /// A proxy has not applied the last step.
    Proxies,
    /// Nearly too many connections fail, with figures.
    Failing(String),
}

/// The next lower step.
fn below(percent: u8) -> u8 {
    STEPS.into_iter().find(|step| *step < percent).unwrap_or(0)
}

/// The next higher step.
fn above(percent: u8) -> u8 {
    STEPS.into_iter().rev().find(|step| *step > percent).unwrap_or(100)
}

fn services(count: usize) -> String {
    if count == 1 { "1 Service".to_owned() } else { format!("{count} Services") }
}

fn percent_of(prospect: &Prospect) -> u64 {
    (prospect.growth() * 100.0).round() as u64
}

/// The Services that would overload an endpoint, the worst first.
fn over_limit(survey: &Survey) -> Vec<String> {
    let mut over: Vec<&(String, Prospect)> = survey.over.iter().collect();
    over.sort_by(|(_, a), (_, b)| b.growth().total_cmp(&a.growth()));
    let line = |(name, prospect): &&(String, Prospect)| {
        format!(
            "{name}: an endpoint would get {} % of its present load, {} % are allowed ({} endpoints in the zone, {} elsewhere)",
            percent_of(prospect),
            survey.limit,
            prospect.in_zone,
            prospect.elsewhere
        )
    };
    over.iter().take(LISTED).map(line).collect()
}

/// The Services whose endpoints stay in use.
fn kept(survey: &Survey) -> Vec<String> {
    let lines = survey.kept.iter().take(LISTED).map(|(name, why)| format!("{name}: {why}"));
    let more = survey.kept.len().saturating_sub(LISTED);
    lines.chain((more > 0).then(|| format!("and {} more", services(more)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;
    use serde_json::json;
    use zonewise_inventory::evacuation::FailedBefore;

    use crate::evacuation::failing::Failed;

    const BEGIN: i64 = 1_767_323_045;
    const DEADLINE: i64 = BEGIN + 3600;

    fn stored(status: &EvacuationStatus, restore: bool, generation: i64) -> StoredEvacuation {
        serde_json::from_value(json!({
            "metadata": { "name": "a", "generation": generation },
            "spec": {
                "zone": "a", "deadline": timestamp(DEADLINE), "stepSeconds": 10, "restore": restore,
            },
            "status": status,
        }))
        .unwrap()
    }

    fn prospect(growth: f64) -> Prospect {
        Prospect {
            in_zone: 4,
            staying: 0,
            elsewhere: 8,
            before: 0.1,
            after: 0.1 * growth,
            kept: None,
        }
    }

    fn sight(now: i64, growth: f64) -> Sight {
        let service = serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web" }, "spec": {},
        }));
        let mut survey = Survey::new(160);
        survey.add(&service.unwrap(), prospect(growth));
        let failing = Failing::NotWatched;
        Sight { now, survey, zone_exists: true, unwritten: 0, proxies_behind: false, failing }
    }

    /// So many of 1,000 connections to other zones fail.
    fn failing(count: u64) -> Failing {
        let (service, mostly) = ("shop/web".to_owned(), "b".into());
        let one = Failed { service, connections: 1000, failed: count, mostly, seconds: 30.0 };
        Failing::Watched { services: vec![one], complete: true }
    }

    const UNKNOWN: Failing = Failing::Watched { services: Vec::new(), complete: false };

    /// Plays the course with a look every second. Returns each phase and percentage with the time at which it began.
    fn play(until: i64, mut see: impl FnMut(i64, &mut Sight, &mut bool)) -> Vec<(i64, Phase, u8)> {
        let (mut status, mut restore, mut history) = (EvacuationStatus::default(), false, vec![]);
        for second in 0..=until {
            let mut seen = sight(BEGIN + second, 1.5);
            see(second, &mut seen, &mut restore);
            let generation = 1 + i64::from(restore);
            if let Some(next) = next(&stored(&status, restore, generation), &seen) {
                if (next.phase, next.percent) != (status.phase, status.percent) {
                    history.push((second, next.phase, next.percent));
                }
                status = next;
            }
        }
        history
    }

    use Phase::{Empty, Ended, GoneBack, Moving, Refused, Restoring};

    #[test]
    fn a_zone_is_emptied_in_steps_and_gets_its_traffic_back_in_steps_when_that_is_asked_for() {
        let history = play(200, |second, _, restore| *restore = second >= 100);
        let expected = [
            (0, Moving, 75),
            (10, Moving, 50),
            (20, Moving, 25),
            (30, Moving, 0),
            (40, Empty, 0),
            (100, Restoring, 25),
            (110, Restoring, 50),
            (120, Restoring, 75),
            (130, Restoring, 100),
            (140, Ended, 100),
        ];
        assert_eq!(history, expected);
    }

    #[test]
    fn it_ends_by_itself_at_the_deadline() {
        let history = play(3700, |_, _, _| {});
        assert_eq!(history[4..6], [(40, Empty, 0), (3600, Restoring, 25)]);
        assert_eq!(history.last(), Some(&(3640, Ended, 100)));
        let early = play(20, |_, seen, _| seen.now += 5000);
        assert_eq!(early, [(0, Ended, 100)], "one that comes too late does not begin");
    }

    #[test]
    fn a_step_waits_for_slices_and_an_empty_zone_for_proxies() {
        let slow = play(90, |second, seen, _| {
            seen.unwritten = u64::from(second < 25);
            seen.proxies_behind = second < 70;
        });
        let expected =
            [(0, Moving, 75), (25, Moving, 50), (35, Moving, 25), (45, Moving, 0), (70, Empty, 0)];
        assert_eq!(slow, expected);
        let status = EvacuationStatus {
            phase: Moving,
            percent: 0,
            since: timestamp(BEGIN).into(),
            observed_generation: 1,
            ..EvacuationStatus::default()
        };
        let seen = Sight { proxies_behind: true, ..sight(BEGIN + 10, 1.5) };
        let waits = next(&stored(&status, false, 1), &seen).unwrap();
        assert_eq!((waits.phase, waits.percent, &*waits.reason), (Moving, 0, "ProxiesBehind"));
        assert_eq!(waits.since, status.since);
        let seen = Sight { unwritten: 1, ..sight(BEGIN + 10, 1.5) };
        let waits = next(&stored(&status, false, 1), &seen).unwrap();
        assert_eq!(waits.message, "the next step waits: not all EndpointSlices are written yet");
    }

    #[test]
    fn it_is_refused_with_figures_where_the_others_could_not_take_it() {
        let status =
            next(&stored(&EvacuationStatus::default(), false, 1), &sight(BEGIN, 2.0)).unwrap();
        assert_eq!((status.phase, status.percent), (Refused, 100));
        assert_eq!(&*status.reason, "EvacuationOverLimit");
        assert_eq!(
            status.over_limit,
            [
                "shop/web: an endpoint would get 200 % of its present load, 160 % are allowed (4 endpoints in the zone, 8 elsewhere)"
            ]
        );
        assert!(status.message.contains("200 %"), "{}", status.message);
        assert_eq!(next(&stored(&status, false, 1), &sight(BEGIN, 1.1)), None, "it stays so");
        let again = next(&stored(&status, false, 2), &sight(BEGIN, 1.1)).unwrap();
        assert_eq!((again.phase, again.percent), (Moving, 75), "until it is asked for again");
        let nowhere = Sight { zone_exists: false, ..sight(BEGIN, 1.0) };
        let status = next(&stored(&EvacuationStatus::default(), false, 1), &nowhere).unwrap();
        assert_eq!((status.phase, &*status.reason), (Refused, "EvacuationZoneUnknown"));
    }

    #[test]
    fn it_goes_back_at_once_when_a_limit_is_passed_and_stays_there() {
        type Trouble = fn(&mut Sight);
        let troubles: [(&str, Trouble); 2] = [
            ("EvacuationOverLimit", |seen| seen.survey = sight(0, 1.7).survey),
            ("EvacuationOthersFailing", |seen| seen.survey.elsewhere = 6),
        ];
        for (code, trouble) in troubles {
            for begins in [5, 15, 35, 60] {
                let history = play(100, |second, seen, _| {
                    if (begins..begins + 5).contains(&second) {
                        trouble(seen);
                    }
                });
                assert_eq!(history.last(), Some(&(begins, GoneBack, 100)), "{code} at {begins}");
            }
        }
        let few = play(50, |second, seen, _| {
            seen.survey.elsewhere = if second == 0 { 8 } else { 7 };
        });
        assert_eq!(few.last(), Some(&(40, Empty, 0)), "one of eight may be missing");
    }

    #[test]
    fn it_goes_back_when_connections_elsewhere_fail_more_than_before() {
        // How many of 1,000 fail before it begins and from second 25 on, and how it ends.
        let rows = [
            (0, 51, (25, GoneBack, 100)),
            (0, 25, (40, Empty, 0)),
            (10, 51, (25, GoneBack, 100)),
            (60, 60, (40, Empty, 0)),
            (60, 85, (40, Empty, 0)),
            (60, 120, (25, GoneBack, 100)),
        ];
        for (before, after, end) in rows {
            let history = play(100, |second, seen, _| {
                seen.failing = failing(if second < 25 { before } else { after });
            });
            assert_eq!(history.last(), Some(&end), "{before}, then {after}");
        }
        let status = EvacuationStatus {
            phase: Empty,
            percent: 0,
            since: timestamp(BEGIN).into(),
            observed_generation: 1,
            ..EvacuationStatus::default()
        };
        let seen = Sight { failing: failing(120), ..sight(BEGIN + 10, 1.5) };
        let back = next(&stored(&status, false, 1), &seen).unwrap();
        assert_eq!((back.percent, &*back.reason), (100, "EvacuationConnectionsFailing"));
        let figures = "(shop/web: 12 % of the connections to endpoints outside the zone fail (120 in 30 s, most of them to \
             zone b), 5 % are allowed; 1 Service in all)";
        assert!(back.message.contains(figures), "{}", back.message);
    }

    #[test]
    fn a_step_waits_while_nearly_too_many_connections_fail_and_the_way_back_does_not() {
        let history = play(200, |second, seen, restore| {
            seen.failing = failing(if (50..100).contains(&second) { 10 } else { 40 });
            if second == 0 {
                seen.failing = failing(0);
            }
            *restore = second >= 110;
        });
        let expected = [
            (0, Moving, 75),
            (50, Moving, 50),
            (60, Moving, 25),
            (70, Moving, 0),
            (80, Empty, 0),
            (110, Restoring, 25),
            (120, Restoring, 50),
            (130, Restoring, 75),
            (140, Restoring, 100),
            (150, Ended, 100),
        ];
        assert_eq!(history, expected);
        let status = EvacuationStatus {
            phase: Moving,
            percent: 75,
            since: timestamp(BEGIN).into(),
            observed_generation: 1,
            ..EvacuationStatus::default()
        };
        let seen = Sight { failing: failing(40), ..sight(BEGIN + 10, 1.5) };
        let waits = next(&stored(&status, false, 1), &seen).unwrap();
        assert_eq!((waits.phase, waits.percent), (Moving, 75));
        assert!(waits.message.starts_with("the next step waits: shop/web: 4 % of"), "{waits:?}");
    }

    #[test]
    fn the_first_step_waits_until_it_is_known_what_fails_before() {
        let known = |second, seen: &mut Sight| {
            seen.failing = if second < 45 { UNKNOWN } else { failing(30) };
        };
        let history = play(60, |second, seen, _| known(second, seen));
        assert_eq!(history, [(45, Moving, 75), (55, Moving, 50)]);
        let checking = next(
            &stored(&EvacuationStatus::default(), false, 1),
            &Sight { failing: UNKNOWN, ..sight(BEGIN, 1.5) },
        );
        let checking = checking.unwrap();
        assert_eq!((checking.phase, &*checking.reason), (Phase::Checking, "EvacuationMeasuring"));
        let seen = Sight { failing: failing(30), ..sight(BEGIN + 45, 1.5) };
        let moving = next(&stored(&checking, false, 1), &seen).unwrap();
        let before = [FailedBefore { service: "shop/web".into(), per_mille: 30 }];
        assert_eq!(moving.failed_before, before);
        // Proxies that never report hold nothing up for long, and that is said.
        let never = play(80, |_, seen, _| seen.failing = UNKNOWN);
        assert_eq!(never[..2], [(60, Moving, 75), (70, Moving, 50)]);
        let seen = Sight { failing: UNKNOWN, ..sight(BEGIN + 60, 1.5) };
        let moving = next(&stored(&checking, false, 1), &seen).unwrap();
        assert!(moving.message.contains("connections that fail are watched in part only"));
        let seen = sight(BEGIN, 1.5);
        let moving = next(&stored(&EvacuationStatus::default(), false, 1), &seen).unwrap();
        assert!(moving.message.contains("connections that fail are not watched"), "{moving:?}");
    }

    #[test]
    fn what_is_asked_for_again_on_the_way_back_goes_on_from_there() {
        let status = EvacuationStatus {
            phase: Restoring,
            percent: 50,
            since: timestamp(BEGIN).into(),
            observed_generation: 2,
            ..EvacuationStatus::default()
        };
        let again = next(&stored(&status, false, 3), &sight(BEGIN + 5, 1.5)).unwrap();
        assert_eq!((again.phase, again.percent), (Moving, 50));
        let worse = next(&stored(&status, false, 3), &sight(BEGIN + 5, 1.9)).unwrap();
        assert_eq!((worse.phase, worse.percent), (GoneBack, 100));
    }

    proptest! {
        #[test]
        fn whatever_happens_one_step_at_a_time_down_and_the_whole_zone_after_the_deadline(
            events in proptest::collection::vec((0i64..4000, 0usize..8), 0..12),
        ) {
            let (mut status, mut restore, mut generation) = (EvacuationStatus::default(), false, 1);
            for second in (0..4200).step_by(5) {
                let mut seen = sight(BEGIN + second, 1.5);
                for (_, event) in events.iter().filter(|(at, _)| (second..second + 5).contains(at)) {
                    match event {
                        0 => seen.survey = sight(0, 2.5).survey,
                        1 => seen.survey.elsewhere = 1,
                        2 => seen.unwritten = 3,
                        3 => seen.proxies_behind = true,
                        4 => seen.failing = failing(200),
                        5 => seen.failing = failing(40),
                        6 => seen.failing = UNKNOWN,
                        _ => { restore = !restore; generation += 1; }
                    }
                }
                let before = status.percent;
                if let Some(next) = next(&stored(&status, restore, generation), &seen) {
                    prop_assert_ne!(&next, &status);
                    status = next;
                }
                prop_assert!(STEPS.contains(&status.percent));
                prop_assert!(status.percent >= below(before), "{} after {before}", status.percent);
                prop_assert!(!status.phase.is_over() || status.percent == 100);
                prop_assert!(status.phase != Empty || status.percent == 0);
            }
            prop_assert_eq!(status.percent, 100, "{:?}", status);
        }
    }
}
