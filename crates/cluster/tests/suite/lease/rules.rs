//! The state machine, rule by rule. Seconds stand for instants.

use tokio::time::Instant;
use zonewise_cluster::lease::{Action, Answer, Claim, Election};

use super::*;

struct Candidate {
    origin: Instant,
    election: Election,
}

fn candidate() -> Candidate {
    Candidate { origin: Instant::now(), election: Election::new(config("me"), 1) }
}

impl Candidate {
    fn at(&self, second: f64) -> Instant {
        self.origin + Duration::from_secs_f64(second)
    }

    fn next(&mut self, second: f64) -> Action {
        self.election.next(self.at(second), wall(second as i64))
    }

    fn answer(&mut self, sent: f64, now: f64, answer: Answer) {
        self.election.answered(self.at(sent), self.at(now), answer);
    }

    /// Asks for the next action and answers it at the same moment.
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
fn leader() -> Candidate {
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

/// The watches of a candidate that was cut off need a moment to catch up with what another leader did.
#[test]
fn who_was_cut_off_does_not_lead_with_the_first_answer() {
    let free = found("8", spec("", 1, (0, 0), 3));
    for found in [free, Answer::Found(None)] {
        let mut me = candidate();
        me.step(0.0, failed());
        let reached = me.waits(0.0);
        assert_eq!(me.step(reached, found.clone()), Action::Get);
        let again = me.waits(reached);
        assert!(again - reached >= 2.0, "{reached} {again}");
        assert_eq!(me.step(again, found), Action::Get);
        let taken = me.next(again);
        assert!(matches!(taken, Action::Replace(_) | Action::Create(_)), "{taken:?}");
    }
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
        assert_eq!(me.election.request_deadline(me.at(sent)), me.at(limit));
    }
    let follower = candidate();
    assert_eq!(follower.election.request_deadline(follower.at(6.0)), follower.at(11.0));
}

#[test]
fn an_answer_that_comes_too_late_grants_nothing() {
    let mut me = leader();
    me.next(3.0);
    me.answer(3.0, 13.0, written("2", spec("me", 15, (0, 3), 0)));
    assert!(me.follows(None));
    // But it is ours still: the next renewal starts a new term.
    let renewed = spec("me", 15, (0, 13), 0);
    assert_eq!(me.step(13.0, written("3", renewed.clone())), Action::Replace(lease("2", renewed)));
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
