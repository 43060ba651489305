//! Leader election: the rules one by one, the promise under every fault, and the running candidate.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use zonewise_cluster::lease::{Config, ConfigError, StoreError, unique_identity};

fn config(identity: &str) -> Config {
    Config { namespace: "ns".to_owned(), name: "lease".to_owned(), ..Config::new(identity) }
}

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn spec(holder: &str, seconds: i32, times: (i64, i64), transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(wall(times.0))),
        renew_time: Some(MicroTime(wall(times.1))),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

fn lease(version: &str, spec: LeaseSpec) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some("lease".to_owned()),
        resource_version: (!version.is_empty()).then(|| version.to_owned()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(spec) }
}

/// What the API server does with one object.
#[derive(Clone, Debug, Default)]
struct Stored {
    lease: Option<Lease>,
    version: u64,
}

impl Stored {
    fn create(&mut self, lease: &Lease) -> Result<Lease, StoreError> {
        if self.lease.is_some() { Err(StoreError::Conflict) } else { Ok(self.put(lease)) }
    }

    fn replace(&mut self, lease: &Lease) -> Result<Lease, StoreError> {
        match &self.lease {
            None => Err(StoreError::Missing),
            Some(kept) if kept.metadata.resource_version != lease.metadata.resource_version => {
                Err(StoreError::Conflict)
            }
            Some(_) => Ok(self.put(lease)),
        }
    }

    fn put(&mut self, lease: &Lease) -> Lease {
        self.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }
}

mod configuration {
    use super::*;

    #[test]
    fn the_defaults_are_the_usual_ones() {
        let config = Config::new("me");
        assert_eq!(config.check(), Ok(()));
        let times = [config.duration, config.renew_deadline, config.retry_period];
        assert_eq!(times, [15, 10, 2].map(Duration::from_secs));
        assert_eq!(
            (config.namespace.as_str(), config.name.as_str()),
            ("zonewise-system", "zonewise-controller")
        );
    }

    #[test]
    fn each_time_leaves_room_for_the_next() {
        let cases = [
            ((15_000, 10_000, 2_000), true),
            ((15_000, 15_000, 2_000), false),
            ((15_000, 2_400, 2_000), false),
            ((15_000, 2_401, 2_000), true),
            ((15_000, 10_000, 0), false),
            ((1_000, 500, 100), true),
        ];
        for ((duration, deadline, retry), good) in cases {
            let config = Config {
                duration: Duration::from_millis(duration),
                renew_deadline: Duration::from_millis(deadline),
                retry_period: Duration::from_millis(retry),
                ..config("me")
            };
            assert_eq!(config.check().is_ok(), good, "{config:?}");
        }
    }

    #[test]
    fn errors_name_the_values() {
        let config = Config { renew_deadline: Duration::from_secs(20), ..config("me") };
        let error = config.check().unwrap_err().to_string();
        let values = "lease duration 15s, renew deadline 20s, retry period 2s: ";
        assert!(error.starts_with(values), "{error}");
        for duration in [Duration::from_millis(15_500), Duration::from_secs(1 << 31)] {
            let config = Config { duration, ..config.clone() };
            assert_eq!(config.check(), Err(ConfigError::Seconds { duration }));
        }
        assert_eq!(Config::new("").check(), Err(ConfigError::Identity));
    }

    #[test]
    fn identities_are_unique() {
        let (one, two) = (unique_identity("host"), unique_identity("host"));
        assert!(one.starts_with("host_") && one != two, "{one} {two}");
    }
}

/// The state machine, rule by rule. Seconds stand for instants.
mod rules {
    use tokio::time::Instant;
    use zonewise_cluster::lease::{Action, Answer, Claim, Election};

    use super::*;

    struct Table {
        origin: Instant,
        election: Election,
    }

    fn candidate() -> Table {
        Table { origin: Instant::now(), election: Election::new(config("me"), 1) }
    }

    impl Table {
        fn at(&self, second: f64) -> Instant {
            self.origin + Duration::from_secs_f64(second)
        }

        fn next(&mut self, second: f64) -> Action {
            self.election.next(self.at(second), wall(second as i64))
        }

        fn answer(&mut self, sent: f64, now: f64, answer: Answer) {
            self.election.answered(self.at(sent), self.at(now), answer);
        }

        /// Asks and answers in one go, as if the server were next door.
        fn step(&mut self, second: f64, answer: Answer) -> Action {
            let action = self.next(second);
            self.answer(second, second, answer);
            action
        }

        /// The second up to which it waits.
        fn waits(&mut self, second: f64) -> f64 {
            match self.next(second) {
                Action::Wait(until) => (until - self.origin).as_secs_f64(),
                action => panic!("{action:?}"),
            }
        }

        fn leads(&self) -> bool {
            matches!(self.election.claim(), Claim::Leader { .. })
        }

        fn follows(&self, leader: Option<&str>) -> bool {
            self.election.claim() == Claim::Follower { leader: leader.map(str::to_owned) }
        }
    }

    fn found(version: &str, spec: LeaseSpec) -> Answer {
        Answer::Found(Some(lease(version, spec)))
    }

    fn written(version: &str, spec: LeaseSpec) -> Answer {
        Answer::Written(lease(version, spec))
    }

    fn failed() -> Answer {
        Answer::Failed(StoreError::Failed("503".to_owned()))
    }

    fn conflict() -> Answer {
        Answer::Failed(StoreError::Conflict)
    }

    /// A candidate that took a free lease at second 0.
    fn leader() -> Table {
        let mut me = candidate();
        me.step(0.0, Answer::Found(None));
        me.step(0.0, written("1", spec("me", 15, (0, 0), 0)));
        assert!(me.leads());
        me
    }

    #[test]
    fn an_absent_lease_is_created() {
        let mut me = candidate();
        assert_eq!(me.step(0.0, Answer::Found(None)), Action::Get);
        let mine = spec("me", 15, (0, 0), 0);
        assert_eq!(me.next(0.0), Action::Create(lease("", mine.clone())));
        me.answer(0.0, 0.5, written("1", mine));
        assert_eq!(me.election.claim(), Claim::Leader { since: me.at(0.0) });
        assert_eq!(me.election.write_deadline(), Some(me.at(10.0)), "counted from before");
    }

    #[test]
    fn a_held_lease_is_waited_for_by_our_own_clock() {
        let mut me = candidate();
        // Its times are of last year: that says nothing.
        let theirs = spec("other", 15, (-9, -9), 3);
        me.next(0.0);
        me.answer(0.0, 1.0, found("7", theirs.clone()));
        assert!(me.follows(Some("other")));
        let mut second = 0.0;
        while second < 16.0 {
            let until = me.waits(second);
            assert!(until - second <= 2.4, "{second} {until}");
            second = until;
            assert_eq!(me.step(second, found("7", theirs.clone())), Action::Get);
        }
        assert_eq!(second, 16.0, "15 s after the answer came, to the moment");
        let mine = spec("me", 15, (16, 16), 4);
        assert_eq!(me.next(16.0), Action::Replace(lease("7", mine)));
    }

    #[test]
    fn each_change_starts_the_wait_again() {
        let changes = [
            ("8", spec("other", 15, (0, 0), 0)),
            ("7", spec("other", 15, (0, 5), 0)),
            ("7", spec("third", 15, (0, 0), 0)),
        ];
        for (version, changed) in changes {
            let mut me = candidate();
            me.step(0.0, found("7", spec("other", 15, (0, 0), 0)));
            me.step(14.0, found(version, changed.clone()));
            me.step(28.0, found(version, changed.clone()));
            assert_eq!(me.waits(28.0), 29.0, "{changed:?}");
        }
    }

    #[test]
    fn the_holder_says_how_long_its_lease_is() {
        let unset = LeaseSpec { lease_duration_seconds: None, ..spec("other", 0, (0, 0), 0) };
        for (theirs, expected) in [(spec("other", 40, (0, 0), 0), 40.0), (unset, 15.0)] {
            let mut me = candidate();
            me.step(0.0, found("7", theirs.clone()));
            me.step(expected - 1.0, found("7", theirs));
            assert_eq!(me.waits(expected - 1.0), expected);
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let mut me = candidate();
        me.step(0.0, found("7", spec("", 1, (0, 0), 3)));
        assert_eq!(me.next(5.0), Action::Replace(lease("7", spec("me", 15, (5, 5), 4))));
    }

    #[test]
    fn our_own_lease_of_before_is_renewed_not_acquired() {
        let mut me = candidate();
        me.step(0.0, found("7", spec("me", 15, (-60, -5), 3)));
        assert_eq!(me.next(0.0), Action::Replace(lease("7", spec("me", 15, (-60, 0), 3))));
        assert!(me.follows(None), "not before the answer");
    }

    #[test]
    fn what_others_put_on_the_lease_stays() {
        let mut me = candidate();
        let mut theirs = lease("7", spec("", 1, (0, 0), 0));
        theirs.metadata.labels = Some([("team".to_owned(), "net".to_owned())].into());
        me.step(0.0, Answer::Found(Some(theirs.clone())));
        let Action::Replace(mine) = me.next(0.0) else { panic!() };
        assert_eq!(mine.metadata, theirs.metadata);
    }

    #[test]
    fn a_renewal_is_one_request_and_moves_the_deadline() {
        let mut me = leader();
        let until = me.waits(0.0);
        assert!((2.0..=2.4).contains(&until), "{until}");
        let renewed = spec("me", 15, (0, 3), 0);
        assert_eq!(me.next(3.0), Action::Replace(lease("1", renewed.clone())));
        me.answer(3.0, 4.5, written("2", renewed));
        assert_eq!(me.election.claim(), Claim::Leader { since: me.at(0.0) });
        assert_eq!(me.election.write_deadline(), Some(me.at(13.0)));
    }

    #[test]
    fn without_renewal_the_claim_ends_at_the_deadline() {
        let mut me = leader();
        for second in [3.0, 6.0, 9.0] {
            me.step(second, failed());
            assert!(me.leads());
        }
        assert_eq!(me.waits(9.0), 10.0, "the deadline comes before the next try");
        me.next(9.99);
        assert!(me.leads());
        me.next(10.0);
        assert!(me.follows(None));
    }

    #[test]
    fn no_request_outlasts_the_deadline() {
        let me = leader();
        for (sent, limit) in [(0.0, 5.0), (4.0, 9.0), (6.0, 10.0), (9.5, 10.0)] {
            assert_eq!(me.election.patience(me.at(sent)), me.at(limit));
        }
        let follower = candidate();
        assert_eq!(follower.election.patience(follower.at(6.0)), follower.at(11.0));
    }

    #[test]
    fn an_answer_that_comes_too_late_grants_nothing() {
        let mut me = leader();
        me.next(3.0);
        me.answer(3.0, 13.0, written("2", spec("me", 15, (0, 3), 0)));
        assert!(me.follows(None));
        // But it is ours still: the next renewal starts a new term.
        let renewed = spec("me", 15, (0, 13), 0);
        assert_eq!(
            me.step(13.0, written("3", renewed.clone())),
            Action::Replace(lease("2", renewed))
        );
        assert_eq!(me.election.claim(), Claim::Leader { since: me.at(13.0) });
    }

    #[test]
    fn after_a_conflict_we_look_and_go_on_or_stop_at_once() {
        // Our own request of before had been carried out.
        let mut me = leader();
        me.step(3.0, failed());
        me.step(6.0, conflict());
        assert_eq!(me.step(6.0, found("2", spec("me", 15, (0, 3), 0))), Action::Get);
        assert_eq!(me.next(6.0), Action::Replace(lease("2", spec("me", 15, (0, 6), 0))));
        assert!(me.leads());

        // Another holds it, which must not be: no reason to wait for the deadline.
        let mut me = leader();
        me.step(3.0, conflict());
        me.step(3.0, found("9", spec("other", 15, (2, 2), 1)));
        assert!(me.follows(Some("other")));
        assert!(me.waits(3.0) > 3.0);
    }

    #[test]
    fn a_lease_that_changes_all_the_time_is_left_in_peace() {
        let mut me = leader();
        for version in ["2", "3", "4"] {
            assert!(matches!(me.step(3.0, conflict()), Action::Replace(_)));
            me.step(3.0, found(version, spec("me", 15, (0, 0), 0)));
        }
        me.step(3.0, conflict());
        assert!(me.waits(3.0) >= 5.0);
        assert!(me.leads());
    }

    #[test]
    fn a_leader_whose_deleted_lease_another_has_created_stops_at_once() {
        let mut me = leader();
        me.step(3.0, Answer::Failed(StoreError::Missing));
        me.step(3.0, Answer::Found(None));
        me.step(3.0, conflict());
        assert_eq!(me.step(3.0, found("9", spec("new", 15, (3, 3), 0))), Action::Get);
        assert!(me.follows(Some("new")));
    }

    #[test]
    fn a_deleted_lease_is_created_again_by_its_holder() {
        let mut me = leader();
        me.step(3.0, Answer::Failed(StoreError::Missing));
        assert_eq!(me.step(3.0, Answer::Found(None)), Action::Get);
        assert_eq!(me.next(3.0), Action::Create(lease("", spec("me", 15, (3, 3), 0))));
        assert!(me.leads());
    }

    #[test]
    fn a_deleted_lease_is_not_taken_from_a_holder_who_may_not_know() {
        let mut me = candidate();
        me.step(0.0, found("7", spec("other", 15, (0, 0), 0)));
        me.step(14.0, Answer::Found(None));
        assert_eq!(me.waits(14.0), 15.0);
        me.step(15.0, Answer::Found(None));
        assert!(matches!(me.next(15.0), Action::Create(_)));
    }

    #[test]
    fn leaving_gives_the_lease_back() {
        let mut me = leader();
        me.election.leave();
        assert!(me.follows(None) && me.election.write_deadline().is_none());
        assert_eq!(me.step(4.0, found("1", spec("me", 15, (0, 0), 5))), Action::Get);
        let free = spec("", 1, (4, 4), 5);
        assert_eq!(me.step(4.0, written("2", free.clone())), Action::Replace(lease("1", free)));
        assert_eq!(me.next(4.0), Action::Done);
        assert!(me.follows(None));
    }

    #[test]
    fn leaving_does_not_give_back_what_is_not_ours() {
        let mut follower = candidate();
        follower.step(0.0, found("7", spec("other", 15, (0, 0), 0)));
        follower.election.leave();
        assert_eq!(follower.next(1.0), Action::Done);

        for answer in [found("9", spec("other", 15, (0, 0), 0)), Answer::Found(None), failed()] {
            let mut me = leader();
            me.election.leave();
            assert_eq!(me.step(1.0, answer), Action::Get);
            assert_eq!(me.next(1.0), Action::Done);
        }
    }

    #[test]
    fn leaving_in_the_middle_of_a_bid_looks_how_it_ended() {
        let mut me = candidate();
        me.step(0.0, Answer::Found(None));
        assert!(matches!(me.next(0.0), Action::Create(_)));
        me.election.leave();
        assert_eq!(me.step(0.0, found("1", spec("me", 15, (0, 0), 0))), Action::Get);
        assert_eq!(me.next(0.0), Action::Replace(lease("1", spec("", 1, (0, 0), 0))));
    }
}

/// Two candidates, a server and a network that does its worst: never do both write.
mod promise {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tokio::time::Instant;
    use zonewise_cluster::lease::{Action, Answer, Election};

    use super::*;

    /// Milliseconds of true time, which nobody in the story can see.
    type Time = u64;

    const FAULTS_END: Time = 120_000;
    const LONGEST: Time = 40_000;
    const END: Time = 280_000;

    #[derive(Clone, Copy, Debug)]
    enum Fault {
        /// Nothing gets through, in either direction.
        Cut,
        /// The process does not run; its clock does.
        Stall,
        /// It ends without a word, and another starts in its place.
        Crash,
        /// It ends in order, and another starts in its place.
        Leave,
    }

    #[derive(Clone, Debug)]
    struct Script {
        /// Speed of each clock in thousandths.
        speeds: [u64; 2],
        /// Seconds by which each wall clock is wrong.
        skews: [i64; 2],
        /// How long each message takes while there are faults, in turn.
        delays: Vec<Time>,
        faults: Vec<(usize, Time, Time, Fault)>,
    }

    #[derive(Clone, Debug)]
    enum Event {
        Begin(Fault),
        Wake {
            turn: u64,
        },
        /// At the server.
        Arrive {
            turn: u64,
            request: Action,
        },
        Reply {
            turn: u64,
            answer: Answer,
        },
    }

    struct Runner {
        election: Election,
        sent: Option<Instant>,
        /// What an earlier process or request left behind is not for this one.
        turn: u64,
        lives: u64,
    }

    struct World {
        script: Script,
        origin: Instant,
        time: Time,
        stored: Stored,
        runners: [Runner; 2],
        agenda: BTreeMap<(Time, u64), (usize, Event)>,
        booked: u64,
        messages: usize,
    }

    fn newcomer(who: usize, lives: u64) -> Election {
        Election::new(config(&format!("{who}-{lives}")), lives * 2 + who as u64)
    }

    impl World {
        fn new(script: Script) -> Self {
            let runner = |who| Runner { election: newcomer(who, 0), sent: None, turn: 0, lives: 0 };
            let mut world = Self {
                script,
                origin: Instant::now(),
                time: 0,
                stored: Stored::default(),
                runners: [runner(0), runner(1)],
                agenda: BTreeMap::new(),
                booked: 0,
                messages: 0,
            };
            for (who, at, _, fault) in world.script.faults.clone() {
                world.book(at, who, Event::Begin(fault));
            }
            (0..2).for_each(|who| world.act(who));
            world
        }

        /// The clock of a candidate.
        fn local(&self, who: usize) -> Instant {
            self.origin + Duration::from_micros(self.time * self.script.speeds[who])
        }

        /// The first millisecond at which the clock of a candidate shows this.
        fn when(&self, who: usize, local: Instant) -> Time {
            let nanos = (local - self.origin).as_nanos() as u64;
            nanos.div_ceil(1000 * self.script.speeds[who]).max(self.time)
        }

        fn during(&self, who: usize, wanted: fn(Fault) -> bool) -> Option<Time> {
            let hit = |&&(whom, from, length, fault): &&(usize, Time, Time, Fault)| {
                whom == who && wanted(fault) && (from..from + length).contains(&self.time)
            };
            self.script.faults.iter().filter(hit).map(|&(_, from, length, _)| from + length).max()
        }

        fn book(&mut self, at: Time, who: usize, event: Event) {
            self.booked += 1;
            self.agenda.insert((at, self.booked), (who, event));
        }

        /// Sends a message, if there is a way; it may arrive when nobody waits for it any more.
        fn send(&mut self, who: usize, message: Event) {
            self.messages += 1;
            if self.during(who, |fault| matches!(fault, Fault::Cut)).is_none() {
                let delays = &self.script.delays;
                let delay =
                    if self.time < FAULTS_END { delays[self.messages % delays.len()] } else { 5 };
                self.book(self.time + delay, who, message);
            }
        }

        fn act(&mut self, who: usize) {
            let now = self.local(who);
            let wall = wall(1_700_000_000 + self.time as i64 / 1000 + self.script.skews[who]);
            let runner = &mut self.runners[who];
            runner.turn += 1;
            let turn = runner.turn;
            let until = match runner.election.next(now, wall) {
                Action::Wait(until) => until,
                Action::Done => return self.replace(who),
                request => {
                    runner.sent = Some(now);
                    let patience = runner.election.patience(now);
                    self.send(who, Event::Arrive { turn, request });
                    patience
                }
            };
            self.book(self.when(who, until), who, Event::Wake { turn });
        }

        fn replace(&mut self, who: usize) {
            let runner = &mut self.runners[who];
            runner.lives += 1;
            runner.election = newcomer(who, runner.lives);
            runner.sent = None;
            self.act(who);
        }

        fn handle(&mut self, who: usize, event: Event) {
            match event {
                Event::Arrive { turn, request } => {
                    let answer = self.serve(&request);
                    self.send(who, Event::Reply { turn, answer });
                }
                Event::Reply { turn, answer } => self.resume(who, turn, answer),
                Event::Wake { turn } => {
                    let timeout = StoreError::Failed("no answer".to_owned());
                    self.resume(who, turn, Answer::Failed(timeout));
                }
                Event::Begin(Fault::Crash) => self.replace(who),
                Event::Begin(Fault::Leave) => {
                    self.runners[who].sent = None;
                    self.runners[who].election.leave();
                    self.act(who);
                }
                Event::Begin(Fault::Cut | Fault::Stall) => {}
            }
        }

        fn resume(&mut self, who: usize, turn: u64, answer: Answer) {
            let now = self.local(who);
            let runner = &mut self.runners[who];
            if runner.turn == turn {
                if let Some(sent) = runner.sent.take() {
                    runner.election.answered(sent, now, answer);
                }
                self.act(who);
            }
        }

        fn serve(&mut self, request: &Action) -> Answer {
            let written = match request {
                Action::Create(lease) => self.stored.create(lease),
                Action::Replace(lease) => self.stored.replace(lease),
                _ => return Answer::Found(self.stored.lease.clone()),
            };
            written.map_or_else(Answer::Failed, Answer::Written)
        }

        fn writers(&self) -> usize {
            let may_write = |who: &usize| {
                let deadline = self.runners[*who].election.write_deadline();
                deadline.is_some_and(|deadline| self.local(*who) < deadline)
            };
            (0..2).filter(may_write).count()
        }

        /// Plays the script; gives the time when two wrote at once. A writer only ever appears with
        /// an event, so it is enough to look after each.
        fn play(&mut self) -> Result<(), Time> {
            while let Some((&(at, _), _)) = self.agenda.first_key_value() {
                if at > END {
                    break;
                }
                let Some((_, (who, event))) = self.agenda.pop_first() else { break };
                self.time = at;
                let at_server = matches!(event, Event::Arrive { .. });
                match self.during(who, |fault| matches!(fault, Fault::Stall)) {
                    Some(end) if !at_server => self.book(end, who, event),
                    _ => self.handle(who, event),
                }
                if self.writers() > 1 {
                    return Err(self.time);
                }
            }
            self.time = END;
            Ok(())
        }
    }

    fn scripts() -> impl Strategy<Value = Script> {
        let delay = prop_oneof![8 => 1..50u64, 3 => 50..3_000u64, 1 => 3_000..30_000u64];
        let kind = prop_oneof![
            4 => Just(Fault::Cut),
            4 => Just(Fault::Stall),
            1 => Just(Fault::Crash),
            1 => Just(Fault::Leave),
        ];
        let fault = (0..2usize, 0..FAULTS_END, 1..LONGEST, kind);
        (
            prop::array::uniform2(850..1200u64),
            prop::array::uniform2(-90_000..90_000i64),
            prop::collection::vec(delay, 1..40),
            prop::collection::vec(fault, 0..12),
        )
            .prop_map(|(speeds, skews, delays, faults)| Script {
                speeds,
                skews,
                delays,
                faults,
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn never_do_two_write_and_in_the_end_one_does(script in scripts()) {
            let mut world = World::new(script);
            prop_assert_eq!(world.play(), Ok(()));
            prop_assert_eq!(world.writers(), 1);
        }
    }

    /// The leader of the first seconds is cut off for good.
    fn parted(speeds: [u64; 2]) -> World {
        let faults = vec![(0, 20_000, END, Fault::Cut)];
        World::new(Script { speeds, skews: [0, 0], delays: vec![5], faults })
    }

    #[test]
    fn a_candidate_cut_off_is_succeeded() {
        let mut world = parted([1000, 1000]);
        assert_eq!(world.play(), Ok(()));
        let lease = world.stored.lease.unwrap().spec.unwrap();
        assert_eq!(
            (lease.holder_identity.unwrap().as_str(), lease.lease_transitions),
            ("1-0", Some(1))
        );
    }

    #[test]
    fn clocks_whose_speeds_differ_by_more_than_half_break_it() {
        assert_eq!(parted([820, 1200]).play(), Ok(()));
        assert!(parted([750, 1250]).play().is_err(), "or this test sees nothing");
    }
}

/// The running candidate, over a store in memory, on a paused clock.
mod candidate {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, advance, sleep, timeout};
    use zonewise_cluster::lease::{self, Claim, Leadership, LeaseStore};

    use super::*;

    #[derive(Clone, Debug, Default)]
    enum Weather {
        #[default]
        Fair,
        /// Nothing arrives.
        Cut,
        /// Requests arrive, answers do not.
        Deaf,
        Refused(StoreError),
    }

    /// One candidate's way to the store.
    #[derive(Clone, Default)]
    struct Link {
        stored: Arc<Mutex<Stored>>,
        weather: Arc<Mutex<Weather>>,
    }

    impl Link {
        fn another(&self) -> Self {
            Self { stored: Arc::clone(&self.stored), weather: Arc::default() }
        }

        fn turns(&self, weather: Weather) {
            *self.weather.lock().unwrap() = weather;
        }

        fn spec(&self) -> LeaseSpec {
            self.stored.lock().unwrap().lease.clone().unwrap().spec.unwrap()
        }

        fn holder(&self) -> String {
            self.spec().holder_identity.unwrap()
        }

        async fn carry<T>(
            &self,
            request: impl FnOnce(&mut Stored) -> Result<T, StoreError>,
        ) -> Result<T, StoreError> {
            sleep(Duration::from_millis(3)).await;
            let weather = self.weather.lock().unwrap().clone();
            match weather {
                Weather::Fair => request(&mut self.stored.lock().unwrap()),
                Weather::Cut => pending().await,
                Weather::Deaf => {
                    let _ = request(&mut self.stored.lock().unwrap());
                    pending().await
                }
                Weather::Refused(error) => Err(error),
            }
        }
    }

    impl LeaseStore for Link {
        async fn get(&self, _name: &str) -> Result<Option<Lease>, StoreError> {
            self.carry(|stored| Ok(stored.lease.clone())).await
        }

        async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
            self.carry(|stored| stored.create(lease)).await
        }

        async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
            self.carry(|stored| stored.replace(lease)).await
        }
    }

    struct Running {
        leadership: Leadership,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    fn start(link: &Link, identity: &str) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let (leadership, campaign) = lease::run(link.clone(), config(identity), shutdown).unwrap();
        Running { leadership, stop, task: tokio::spawn(campaign) }
    }

    impl Running {
        async fn becomes(&self, wanted: impl FnMut(&Claim) -> bool) -> Claim {
            let mut claims = self.leadership.claims();
            let claim = timeout(Duration::from_secs(60), claims.wait_for(wanted)).await;
            claim.unwrap().unwrap().clone()
        }

        async fn leads(&self) -> Claim {
            self.becomes(|claim| matches!(claim, Claim::Leader { .. })).await
        }

        async fn follows(&self, leader: Option<&str>) {
            let wanted = Claim::Follower { leader: leader.map(str::to_owned) };
            self.becomes(|claim| *claim == wanted).await;
        }

        fn may_write(&self) -> bool {
            self.leadership.may_write()
        }
    }

    fn within(start: Instant, from: f64, to: f64) {
        let seconds = start.elapsed().as_secs_f64();
        assert!(from <= seconds && seconds <= to, "{seconds} is not from {from} to {to}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_the_other_knows_whom() {
        let link = Link::default();
        let a = start(&link, "a");
        assert!(!a.may_write());
        a.leads().await;
        assert!(a.may_write());
        let b = start(&link.another(), "b");
        b.follows(Some("a")).await;
        sleep(Duration::from_secs(600)).await;
        assert!(a.may_write() && !b.may_write());
        assert_eq!((link.holder().as_str(), link.spec().lease_transitions), ("a", Some(0)));
        assert_eq!(link.spec().lease_duration_seconds, Some(15));
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_are_no_news() {
        let a = start(&Link::default(), "a");
        a.leads().await;
        let mut claims = a.leadership.claims();
        claims.mark_unchanged();
        assert!(timeout(Duration::from_secs(600), claims.changed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_cut_off_stops_before_another_starts() {
        let link = Link::default();
        let a = start(&link, "a");
        a.leads().await;
        let b = start(&link.another(), "b");
        b.follows(Some("a")).await;
        sleep(Duration::from_secs(60)).await;

        link.turns(Weather::Cut);
        let start = Instant::now();
        a.follows(None).await;
        assert!(!a.may_write() && !b.may_write());
        within(start, 7.5, 10.1);
        b.leads().await;
        within(start, 12.0, 18.0);
        assert_eq!(link.spec().lease_transitions, Some(1));

        link.turns(Weather::Fair);
        a.follows(Some("b")).await;
        assert!(b.may_write() && !a.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_that_hangs_is_no_loss() {
        let link = Link::default();
        let a = start(&link, "a");
        let claim = a.leads().await;
        for weather in [Weather::Cut, Weather::Deaf] {
            sleep(Duration::from_secs(10)).await;
            link.turns(weather);
            sleep(Duration::from_secs(4)).await;
            link.turns(Weather::Fair);
            for _ in 0..100 {
                assert!(a.may_write());
                sleep(Duration::from_millis(100)).await;
            }
        }
        assert_eq!(*a.leadership.claims().borrow(), claim, "the same term");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clean_end_lets_the_next_start_at_once() {
        let link = Link::default();
        let a = start(&link, "a");
        a.leads().await;
        let b = start(&link.another(), "b");
        b.follows(Some("a")).await;

        let start = Instant::now();
        a.stop.send(()).unwrap();
        a.task.await.unwrap();
        assert!(!a.leadership.may_write());
        assert_eq!(link.spec().lease_duration_seconds, Some(1));
        assert_eq!(link.holder(), "");
        b.leads().await;
        within(start, 0.0, 2.5);
        assert_eq!(link.spec().lease_transitions, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_does_not_wait_for_a_server_that_is_gone() {
        let link = Link::default();
        let a = start(&link, "a");
        a.leads().await;
        link.turns(Weather::Cut);
        let start = Instant::now();
        a.stop.send(()).unwrap();
        tokio::task::yield_now().await;
        assert!(!a.leadership.may_write());
        a.task.await.unwrap();
        within(start, 0.0, 10.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_hangs_cannot_keep_the_claim() {
        let link = Link::default();
        let (leadership, campaign) = lease::run(link, config("a"), pending()).unwrap();
        let mut campaign = Box::pin(campaign);
        let mut claims = leadership.claims();
        tokio::select! {
            () = &mut campaign => unreachable!("it has no end"),
            claim = claims.wait_for(|claim| matches!(claim, Claim::Leader { .. })) => drop(claim),
        }
        // From here on nobody drives the candidate: the claim stays, the right to write does not.
        assert!(leadership.may_write());
        advance(Duration::from_secs(9)).await;
        assert!(leadership.may_write());
        advance(Duration::from_secs(1)).await;
        assert!(!leadership.may_write());
        assert!(matches!(*leadership.claims().borrow(), Claim::Leader { .. }));

        drop(campaign);
        assert_eq!(*leadership.claims().borrow(), Claim::Follower { leader: None });
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_that_is_aborted_gives_up_the_claim() {
        let a = start(&Link::default(), "a");
        a.leads().await;
        a.task.abort();
        a.follows(None).await;
        assert!(!a.may_write());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_tries_on() {
        let link = Link::default();
        link.turns(Weather::Refused(StoreError::Denied("leases is forbidden".to_owned())));
        let a = start(&link, "a");
        sleep(Duration::from_secs(300)).await;
        assert!(!a.may_write());
        link.turns(Weather::Fair);
        a.leads().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_given_away_by_hand_is_obeyed_at_the_next_renewal() {
        let link = Link::default();
        let a = start(&link, "a");
        a.leads().await;
        sleep(Duration::from_secs(10)).await;
        let start = Instant::now();
        link.stored.lock().unwrap().put(&lease("", spec("friend", 15, (0, 0), 7)));
        a.follows(Some("friend")).await;
        assert!(!a.may_write());
        within(start, 0.0, 2.5);
        // The friend never renews.
        a.leads().await;
        within(start, 15.0, 18.0);
        assert_eq!(link.spec().lease_transitions, Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn without_election_one_may_always_write() {
        let leadership = Leadership::always();
        advance(Duration::from_secs(1_000_000)).await;
        assert!(leadership.may_write());
        let mut claims = leadership.claims();
        assert!(matches!(*claims.borrow_and_update(), Claim::Leader { .. }));
        assert!(timeout(Duration::from_secs(60), claims.changed()).await.is_err());
    }

    #[test]
    fn what_cannot_keep_the_promise_does_not_run() {
        let config = Config { renew_deadline: Duration::from_secs(15), ..config("a") };
        assert!(lease::run(Link::default(), config, pending()).is_err());
    }
}

/// What goes over the wire, and what answers mean.
mod wire {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use zonewise_cluster::lease::{LeaseStore, api_store};

    use super::*;

    type Asked = Arc<Mutex<Vec<(String, Value)>>>;

    /// An API server that gives the same answer to everybody and notes what it was asked.
    async fn server(status: u16, answer: Value) -> (impl LeaseStore, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Asked::default();
        let notes = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, status, answer.to_string(), Arc::clone(&notes)));
            }
        });
        let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
        (api_store(client, &config("me")), asked)
    }

    async fn converse(stream: TcpStream, status: u16, answer: String, asked: Asked) {
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        stream.read_line(&mut request).await.unwrap();
        let mut length = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            let header = header.to_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        asked.lock().unwrap().push((request.trim().to_owned(), body));
        let head = "content-type: application/json\r\nconnection: close";
        let size = answer.len();
        let reply =
            format!("HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {size}\r\n\r\n{answer}");
        stream.get_mut().write_all(reply.as_bytes()).await.unwrap();
    }

    fn status(code: u16, reason: &str, message: &str) -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "reason": reason, "message": message })
    }

    fn ours(version: Option<&str>) -> Value {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "ns", "name": "lease" },
            "spec": { "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 2,
                      "acquireTime": "1970-01-01T00:00:01.000000Z",
                      "renewTime": "1970-01-01T00:01:00.000000Z" },
        });
        if let Some(version) = version {
            lease["metadata"]["resourceVersion"] = json!(version);
        }
        lease
    }

    #[tokio::test]
    async fn requests_as_the_api_server_wants_them() {
        let (store, asked) = server(200, ours(Some("7"))).await;
        let mine = |version| lease(version, spec("me", 15, (1, 60), 2));
        assert_eq!(store.get("lease").await, Ok(Some(mine("7"))));
        assert_eq!(store.create(&mine("")).await, Ok(mine("7")));
        assert_eq!(store.replace(&mine("6")).await, Ok(mine("7")));
        let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        let expected = [
            (format!("GET {path}/lease HTTP/1.1"), Value::Null),
            (format!("POST {path}? HTTP/1.1"), ours(None)),
            (format!("PUT {path}/lease? HTTP/1.1"), ours(Some("6"))),
        ];
        assert_eq!(*asked.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn what_refusals_mean() {
        let mine = lease("6", spec("me", 15, (1, 60), 2));
        let (store, _) = server(409, status(409, "Conflict", "modified")).await;
        assert_eq!(store.replace(&mine).await, Err(StoreError::Conflict));
        assert_eq!(store.create(&mine).await, Err(StoreError::Conflict));

        let missing = "namespaces \"ns\" not found";
        let (store, _) = server(404, status(404, "NotFound", missing)).await;
        assert_eq!(store.get("lease").await, Ok(None));
        assert_eq!(store.replace(&mine).await, Err(StoreError::Missing));
        assert_eq!(store.create(&mine).await, Err(StoreError::Failed(missing.to_owned())));

        for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden")] {
            let (store, _) = server(code, status(code, reason, "no")).await;
            let error = store.get("lease").await.unwrap_err();
            assert_eq!(error, StoreError::Denied(format!("no ({code} {reason})")));
            assert!(error.to_string().contains("get, create and update on leases"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_the_cause() {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            format!("http://{}", listener.local_addr().unwrap())
        };
        let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
        let store = api_store(client, &config("me"));
        let error = LeaseStore::get(&store, "lease").await.unwrap_err().to_string();
        assert!(error.contains("refused"), "{error}");
    }
}
