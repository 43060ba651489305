//! Two candidates, a server, and random faults of the network and the processes: both candidates must
//! never write at the same time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tokio::time::Instant;
use zonewise_cluster::lease::{Action, Answer, Election};

use super::*;

/// Milliseconds of real time. The candidates only see their own clocks.
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
    /// The process ends without releasing the lease, and another starts in its place.
    Crash,
    /// The process releases the lease and ends, and another starts in its place.
    Leave,
}

#[derive(Clone, Debug)]
struct FaultScript {
    /// Speed of each clock in thousandths.
    speeds: [u64; 2],
    /// Seconds by which each wall clock is wrong.
    skews: [i64; 2],
    /// How long messages take while there are faults, used in turn.
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

struct SimulatedCandidate {
    election: Election,
    sent: Option<Instant>,
    /// Events of an earlier request or process carry another number and are ignored.
    turn: u64,
    restarts: u64,
}

struct Simulation {
    script: FaultScript,
    origin: Instant,
    time: Time,
    stored: Stored,
    candidates: [SimulatedCandidate; 2],
    events: BTreeMap<(Time, u64), (usize, Event)>,
    scheduled: u64,
    messages: usize,
}

fn new_election(who: usize, restarts: u64) -> Election {
    Election::new(config(&format!("{who}-{restarts}")), restarts * 2 + who as u64)
}

impl Simulation {
    fn new(script: FaultScript) -> Self {
        let candidate = |who| SimulatedCandidate {
            election: new_election(who, 0),
            sent: None,
            turn: 0,
            restarts: 0,
        };
        let mut simulation = Self {
            script,
            origin: Instant::now(),
            time: 0,
            stored: Stored::default(),
            candidates: [candidate(0), candidate(1)],
            events: BTreeMap::new(),
            scheduled: 0,
            messages: 0,
        };
        for (who, at, _, fault) in simulation.script.faults.clone() {
            simulation.schedule(at, who, Event::Begin(fault));
        }
        (0..2).for_each(|who| simulation.act(who));
        simulation
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

    fn end_of_fault(&self, who: usize, wanted: fn(Fault) -> bool) -> Option<Time> {
        let hit = |&&(whom, from, length, fault): &&(usize, Time, Time, Fault)| {
            whom == who && wanted(fault) && (from..from + length).contains(&self.time)
        };
        self.script.faults.iter().filter(hit).map(|&(_, from, length, _)| from + length).max()
    }

    fn schedule(&mut self, at: Time, who: usize, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), (who, event));
    }

    /// Sends a message, unless the network is cut. It may arrive after the candidate has given up.
    fn send(&mut self, who: usize, message: Event) {
        self.messages += 1;
        if self.end_of_fault(who, |fault| matches!(fault, Fault::Cut)).is_none() {
            let delays = &self.script.delays;
            let delay =
                if self.time < FAULTS_END { delays[self.messages % delays.len()] } else { 5 };
            self.schedule(self.time + delay, who, message);
        }
    }

    fn act(&mut self, who: usize) {
        let now = self.local(who);
        let wall = wall(1_700_000_000 + self.time as i64 / 1000 + self.script.skews[who]);
        let candidate = &mut self.candidates[who];
        candidate.turn += 1;
        let turn = candidate.turn;
        let until = match candidate.election.next(now, wall) {
            Action::Wait(until) => until,
            Action::Done => return self.replace(who),
            request => {
                candidate.sent = Some(now);
                let deadline = candidate.election.request_deadline(now);
                self.send(who, Event::Arrive { turn, request });
                deadline
            }
        };
        self.schedule(self.when(who, until), who, Event::Wake { turn });
    }

    fn replace(&mut self, who: usize) {
        let candidate = &mut self.candidates[who];
        candidate.restarts += 1;
        candidate.election = new_election(who, candidate.restarts);
        candidate.sent = None;
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
                self.candidates[who].sent = None;
                self.candidates[who].election.leave();
                self.act(who);
            }
            Event::Begin(Fault::Cut | Fault::Stall) => {}
        }
    }

    fn resume(&mut self, who: usize, turn: u64, answer: Answer) {
        let now = self.local(who);
        let candidate = &mut self.candidates[who];
        if candidate.turn == turn {
            if let Some(sent) = candidate.sent.take() {
                candidate.election.answered(sent, now, answer);
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
            let deadline = self.candidates[*who].election.write_deadline();
            deadline.is_some_and(|deadline| self.local(*who) < deadline)
        };
        (0..2).filter(may_write).count()
    }

    /// Runs the script. Fails with the time when two candidates could write at once. A candidate
    /// becomes a writer only through an event, so it is enough to check after each event.
    fn run(&mut self) -> Result<(), Time> {
        while let Some((&(at, _), _)) = self.events.first_key_value() {
            if at > END {
                break;
            }
            let Some((_, (who, event))) = self.events.pop_first() else { break };
            self.time = at;
            let at_server = matches!(event, Event::Arrive { .. });
            match self.end_of_fault(who, |fault| matches!(fault, Fault::Stall)) {
                Some(end) if !at_server => self.schedule(end, who, event),
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

fn scripts() -> impl Strategy<Value = FaultScript> {
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
        .prop_map(|(speeds, skews, delays, faults)| FaultScript {
            speeds,
            skews,
            delays,
            faults,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]

    #[test]
    fn never_do_two_write_and_in_the_end_one_does(script in scripts()) {
        let mut simulation = Simulation::new(script);
        prop_assert_eq!(simulation.run(), Ok(()));
        prop_assert_eq!(simulation.writers(), 1);
    }
}

/// The first leader is cut off after 20 seconds and stays so.
fn first_leader_cut_off(speeds: [u64; 2]) -> Simulation {
    let faults = vec![(0, 20_000, END, Fault::Cut)];
    Simulation::new(FaultScript { speeds, skews: [0, 0], delays: vec![5], faults })
}

#[test]
fn a_candidate_cut_off_is_succeeded() {
    let mut simulation = first_leader_cut_off([1000, 1000]);
    assert_eq!(simulation.run(), Ok(()));
    let lease = simulation.stored.lease.unwrap().spec.unwrap();
    assert_eq!(
        (lease.holder_identity.unwrap().as_str(), lease.lease_transitions),
        ("1-0", Some(1))
    );
}

#[test]
fn clocks_whose_speeds_differ_by_more_than_half_break_it() {
    assert_eq!(first_leader_cut_off([820, 1200]).run(), Ok(()));
    assert!(
        first_leader_cut_off([750, 1250]).run().is_err(),
        "the simulation must be able to detect two writers"
    );
}
