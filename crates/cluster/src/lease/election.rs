//! The election as a pure state machine: it reads no clock, sends no requests, and all its randomness
//! comes from the seed.
//!
//! ```text
//!          next attempt              held by another
//!      ┌──────────────► Read ───────────────────────────┐
//!      │                 │ ▲                            │
//!      │   free, expired │ │ conflict, deleted          │
//!      │     or our own  ▼ │ (a few per attempt)        ▼
//!    Wait ────────────► Write ───────────────────────► Wait     after `leave`, Wait is the end
//!        we hold it               written, failed
//! ```
//!
//! A leader does not read before it renews. It writes with the version it knows, so that a renewal is
//! one request.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::{Claim, ElectionConfig, JITTER, StoreError};

/// After a conflict the Lease is read again at once, because another candidate may lead. After so
/// many conflicts in one attempt, the next attempt is waited for.
const MAX_CONFLICTS: u8 = 3;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the Lease.
    Get,
    /// Create it.
    Create(Lease),
    /// Replace the stored Lease, if it still has the version that this one carries.
    Replace(Lease),
    /// Call [`Election::next`] again at this time.
    Wait(Instant),
    /// Nothing is left to do: the Lease is released, or was not ours.
    Done,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The Lease that was read; `None` if there is none.
    Found(Option<Lease>),
    /// The Lease as it was stored.
    Written(Lease),
    /// The request failed, or its outcome is not known.
    Failed(StoreError),
}

/// The state of one candidate.
#[derive(Clone, Debug)]
pub struct Election {
    config: ElectionConfig,
    rng: fastrand::Rng,
    known: Option<Known>,
    term: Option<Term>,
    step: Step,
    next_attempt: Option<Instant>,
    /// Conflicts in this attempt.
    conflicts: u8,
    /// Whether it takes a Lease that is free.
    standing: bool,
    /// Whether the last request was not answered. What the watches of this candidate know is as old as
    /// that, and they need a moment to catch up when the API server is reached again.
    cut_off: bool,
    leaving: bool,
}

#[derive(Clone, Debug)]
struct Known {
    lease: Lease,
    /// When this state of the Lease was first seen, by our own clock.
    seen: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    since: Instant,
    /// The time just before the last successful renewal was sent.
    renewed: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Wait,
    Read,
    Write,
}

impl Election {
    /// A candidate that has not seen the Lease yet. The seed determines the jitter of its attempts.
    pub fn new(config: ElectionConfig, seed: u64) -> Self {
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            known: None,
            term: None,
            step: Step::Wait,
            next_attempt: None,
            conflicts: 0,
            standing: true,
            cut_off: false,
            leaving: false,
        }
    }

    /// The name of the Lease.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether this candidate takes the Lease when it is free. A Lease that it holds is renewed in any case.
    pub fn stand(&mut self, standing: bool) {
        self.standing = standing;
    }

    /// The role of this candidate, as far as it knows.
    pub fn claim(&self) -> Claim {
        match self.term {
            Some(term) => Claim::Leader { since: term.since },
            None => {
                let holder = self.known.as_ref().map_or("", |known| holder(&known.lease));
                let other = !holder.is_empty() && holder != self.config.identity;
                Claim::Follower { leader: other.then(|| holder.to_owned()) }
            }
        }
    }

    /// Until when this candidate may write; `None` while it does not lead.
    pub fn write_deadline(&self) -> Option<Instant> {
        self.term.map(|term| term.renewed + self.config.renew_deadline)
    }

    /// Until when to wait for the answer to a request that is sent now: half of the renew deadline, so
    /// that a second request is possible when a connection hangs, and never past the write deadline.
    pub fn request_deadline(&self, sent: Instant) -> Instant {
        let half = sent + self.config.renew_deadline / 2;
        self.write_deadline().map_or(half, |deadline| deadline.min(half))
    }

    /// What to do now. `wall` is only written into the Lease for people to read; no decision depends
    /// on it.
    pub fn next(&mut self, now: Instant, wall: Timestamp) -> Action {
        self.expire(now);
        if self.step == Step::Wait && !self.leaving {
            if let Some(until) = self.wait_until().filter(|until| now < *until) {
                return Action::Wait(until);
            }
            self.start_attempt(now);
        }
        match self.step {
            Step::Wait => Action::Done,
            Step::Read => Action::Get,
            Step::Write => self.write(wall),
        }
    }

    /// Handles the answer to a request that was sent at `sent` and answered at `now`.
    pub fn answered(&mut self, sent: Instant, now: Instant, answer: Answer) {
        self.expire(now);
        let was_cut_off = self.cut_off;
        self.cut_off = matches!(answer, Answer::Failed(StoreError::Failed(_)));
        match answer {
            Answer::Found(found) if was_cut_off && !self.leaving => self.reach_again(found, now),
            Answer::Found(Some(lease)) => self.observe(lease, now),
            Answer::Found(None) => self.observe_missing(now),
            Answer::Written(lease) => self.written(lease, sent, now),
            Answer::Failed(StoreError::Conflict | StoreError::Missing)
                if self.conflicts < MAX_CONFLICTS =>
            {
                self.conflicts += 1;
                self.step = Step::Read;
            }
            // The server may have carried out the request all the same. Then the next write is a
            // conflict, after which the Lease is read again.
            Answer::Failed(_) => self.step = Step::Wait,
        }
    }

    /// Ends the claim at once. The Lease is released if it is ours, or if a request that is still in
    /// flight may make it ours.
    pub fn leave(&mut self) {
        let may_hold = self.is_holder() || self.step == Step::Write;
        self.term = None;
        self.leaving = true;
        self.conflicts = 0;
        self.step = if may_hold { Step::Read } else { Step::Wait };
    }

    /// Ends the term when the write deadline has passed.
    fn expire(&mut self, now: Instant) {
        if self.write_deadline().is_some_and(|deadline| deadline <= now) {
            self.term = None;
        }
    }

    /// The next attempt, or the write deadline if that is earlier; `None` before the first attempt.
    fn wait_until(&self) -> Option<Instant> {
        let next_attempt = self.next_attempt?;
        Some(self.write_deadline().map_or(next_attempt, |deadline| deadline.min(next_attempt)))
    }

    fn start_attempt(&mut self, now: Instant) {
        let retry = self.config.retry_period;
        self.next_attempt = Some(now + retry + retry.mul_f64(JITTER * self.rng.f64()));
        self.conflicts = 0;
        self.step = if self.is_holder() { Step::Write } else { Step::Read };
    }

    fn observe(&mut self, lease: Lease, now: Instant) {
        if !self.known.as_ref().is_some_and(|known| same(&known.lease, &lease)) {
            self.known = Some(Known { lease, seen: now });
        }
        if !self.is_holder() {
            self.term = None;
        }
        self.step = match self.free_at() {
            // There is nothing to release.
            _ if self.leaving && !self.is_holder() => Step::Wait,
            _ if !self.standing && !self.is_holder() => Step::Wait,
            Some(free) if now < free => self.wait_for(free),
            _ => Step::Write,
        };
    }

    /// Handles the first answer after requests that failed. A Lease that is free is left until the next
    /// attempt: a leader whose watches have not caught up would write what was true before.
    fn reach_again(&mut self, found: Option<Lease>, now: Instant) {
        let standing = std::mem::replace(&mut self.standing, false);
        match found {
            Some(lease) => self.observe(lease, now),
            None => self.observe_missing(now),
        }
        self.standing = standing;
    }

    /// Handles a Lease that does not exist. If another candidate held it until it was deleted, that
    /// candidate may not know yet and still write, so its Lease is waited for as if it existed.
    fn observe_missing(&mut self, now: Instant) {
        self.step = match self.free_at() {
            _ if self.leaving || !self.standing => Step::Wait,
            Some(free) if now < free => self.wait_for(free),
            _ => {
                self.known = None;
                Step::Write
            }
        };
    }

    /// Waits for the next attempt, which is brought forward to the moment when the Lease is free.
    fn wait_for(&mut self, free: Instant) -> Step {
        self.next_attempt = self.next_attempt.map(|next_attempt| next_attempt.min(free));
        Step::Wait
    }

    fn written(&mut self, lease: Lease, sent: Instant, now: Instant) {
        self.known = Some(Known { lease, seen: now });
        self.step = Step::Wait;
        // An answer may arrive so late that the term it grants is already over.
        if !self.leaving && now < sent + self.config.renew_deadline {
            let since = self.term.map_or(sent, |term| term.since);
            self.term = Some(Term { since, renewed: sent });
        }
    }

    fn is_holder(&self) -> bool {
        self.known.as_ref().is_some_and(|known| holder(&known.lease) == self.config.identity)
    }

    /// When the Lease of another candidate expires by our clock; `None` if no other one holds it.
    fn free_at(&self) -> Option<Instant> {
        let known = self.known.as_ref()?;
        let held = !holder(&known.lease).is_empty() && !self.is_holder();
        held.then(|| known.seen + duration(&known.lease).unwrap_or(self.config.duration))
    }

    /// The request that takes, renews or releases the Lease.
    fn write(&self, wall: Timestamp) -> Action {
        match &self.known {
            Some(known) if self.leaving => Action::Replace(released(&known.lease, wall)),
            Some(known) => Action::Replace(self.claimed(&known.lease, wall)),
            None => Action::Create(self.fresh(wall)),
        }
    }

    /// The Lease with us as its holder. A renewal keeps the time of acquisition and the number of
    /// transitions.
    fn claimed(&self, lease: &Lease, wall: Timestamp) -> Lease {
        let mut lease = lease.clone();
        let renewal = holder(&lease) == self.config.identity;
        let spec = lease.spec.get_or_insert_default();
        if !renewal {
            let transitions = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(transitions.saturating_add(1));
            spec.acquire_time = Some(MicroTime(wall));
        }
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = Some(seconds(self.config.duration));
        spec.renew_time = Some(MicroTime(wall));
        lease
    }

    fn fresh(&self, wall: Timestamp) -> Lease {
        let metadata = ObjectMeta {
            namespace: Some(self.config.namespace.clone()),
            name: Some(self.config.name.clone()),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: Some(seconds(self.config.duration)),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }
}

/// The Lease without a holder, so that the next candidate can take it at once. client-go writes the
/// same when it releases a Lease.
fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(MicroTime(wall));
    spec.renew_time = Some(MicroTime(wall));
    lease
}

/// Whether nothing has changed between two reads of the Lease.
fn same(a: &Lease, b: &Lease) -> bool {
    a.metadata.resource_version == b.metadata.resource_version && a.spec == b.spec
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}
