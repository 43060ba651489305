//! The election as a pure state machine: no clock, no requests, no randomness but the seed.
//!
//! ```text
//!            next try                held by another
//!      ┌──────────────► Look ───────────────────────────┐
//!      │                 │ ▲                            │
//!      │   free, expired │ │ conflict, gone             │
//!      │     or our own  ▼ │ (few in a try)             ▼
//!    Rest ────────────► Write ───────────────────────► Rest     leaving: Rest is the end
//!         holder: we              written, failed
//! ```
//!
//! A leader writes at once, with the version it knows: one request per renewal.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::{Claim, Config, JITTER, StoreError};

/// In one try. A conflict is looked into at once: another may lead. But a lease that somebody changes
/// all the time is left in peace until the next try.
const MOST_CONFLICTS: u8 = 3;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the lease.
    Get,
    /// Create it.
    Create(Lease),
    /// Replace the version it carries.
    Replace(Lease),
    /// Ask again then.
    Wait(Instant),
    /// Nothing any more: the lease is given back, or was not ours.
    Done,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The lease as it is, or that there is none.
    Found(Option<Lease>),
    /// The lease as it was written.
    Written(Lease),
    /// Not as wished, or not known.
    Failed(StoreError),
}

/// What one candidate knows and wants.
#[derive(Clone, Debug)]
pub struct Election {
    config: Config,
    dice: u64,
    known: Option<Known>,
    term: Option<Term>,
    step: Step,
    next_try: Option<Instant>,
    /// Conflicts met in this try.
    conflicts: u8,
    leaving: bool,
}

#[derive(Clone, Debug)]
struct Known {
    lease: Lease,
    /// When we first saw it like this.
    seen: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    since: Instant,
    /// Before the last successful request was sent.
    renewed: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Rest,
    Look,
    Write,
}

impl Election {
    /// A candidate that has seen nothing yet. The seed spreads its tries.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            dice: seed,
            known: None,
            term: None,
            step: Step::Rest,
            next_try: None,
            conflicts: 0,
            leaving: false,
        }
    }

    /// The name of the lease.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Who leads, as far as we know.
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

    /// Until when we may write.
    pub fn write_deadline(&self) -> Option<Instant> {
        self.term.map(|term| term.renewed + self.config.renew_deadline)
    }

    /// How long to wait for the answer to a request sent now: half the deadline, so that a connection
    /// that hangs leaves time for another, and never past the deadline.
    pub fn patience(&self, sent: Instant) -> Instant {
        let half = sent + self.config.renew_deadline / 2;
        self.write_deadline().map_or(half, |deadline| deadline.min(half))
    }

    /// What to do now. The wall clock only dates the record; nothing is decided by it.
    pub fn next(&mut self, now: Instant, wall: Timestamp) -> Action {
        self.lapse(now);
        if self.step == Step::Rest && !self.leaving {
            if let Some(until) = self.rest().filter(|until| now < *until) {
                return Action::Wait(until);
            }
            self.begin(now);
        }
        match self.step {
            Step::Rest => Action::Done,
            Step::Look => Action::Get,
            Step::Write => self.bid(wall),
        }
    }

    /// Takes in how a request ended: when it was sent, and when the answer was there.
    pub fn answered(&mut self, sent: Instant, now: Instant, answer: Answer) {
        self.lapse(now);
        match answer {
            Answer::Found(Some(lease)) => self.observe(lease, now),
            Answer::Found(None) => self.miss(now),
            Answer::Written(lease) => self.written(lease, sent, now),
            Answer::Failed(StoreError::Conflict | StoreError::Missing)
                if self.conflicts < MOST_CONFLICTS =>
            {
                self.conflicts += 1;
                self.step = Step::Look;
            }
            // Whether it was carried out is not known. If it was, the next version is a conflict.
            Answer::Failed(_) => self.step = Step::Rest,
        }
    }

    /// Stops at once, and has the lease given back if it is ours, or a request under way may yet
    /// make it ours.
    pub fn leave(&mut self) {
        let may_hold = self.is_holder() || self.step == Step::Write;
        self.term = None;
        self.leaving = true;
        self.conflicts = 0;
        self.step = if may_hold { Step::Look } else { Step::Rest };
    }

    fn lapse(&mut self, now: Instant) {
        if self.write_deadline().is_some_and(|deadline| deadline <= now) {
            self.term = None;
        }
    }

    fn rest(&self) -> Option<Instant> {
        let next_try = self.next_try?;
        Some(self.write_deadline().map_or(next_try, |deadline| deadline.min(next_try)))
    }

    fn begin(&mut self, now: Instant) {
        let retry = self.config.retry_period;
        self.next_try = Some(now + retry + retry.mul_f64(JITTER * self.roll()));
        self.conflicts = 0;
        self.step = if self.is_holder() { Step::Write } else { Step::Look };
    }

    fn observe(&mut self, lease: Lease, now: Instant) {
        if !self.known.as_ref().is_some_and(|known| same(&known.lease, &lease)) {
            self.known = Some(Known { lease, seen: now });
        }
        if !self.is_holder() {
            self.term = None;
        }
        self.step = match self.free_at() {
            // Not ours: there is nothing to give back.
            _ if self.leaving && !self.is_holder() => Step::Rest,
            Some(free) if now < free => self.rest_until(free),
            _ => Step::Write,
        };
    }

    /// A lease that another held and somebody deleted: the holder may not know yet, and writes on.
    fn miss(&mut self, now: Instant) {
        self.step = match self.free_at() {
            _ if self.leaving => Step::Rest,
            Some(free) if now < free => self.rest_until(free),
            _ => {
                self.known = None;
                Step::Write
            }
        };
    }

    fn rest_until(&mut self, free: Instant) -> Step {
        self.next_try = self.next_try.map(|next_try| next_try.min(free));
        Step::Rest
    }

    fn written(&mut self, lease: Lease, sent: Instant, now: Instant) {
        self.known = Some(Known { lease, seen: now });
        self.step = Step::Rest;
        // An answer can be so late that what it grants is over.
        if !self.leaving && now < sent + self.config.renew_deadline {
            let since = self.term.map_or(sent, |term| term.since);
            self.term = Some(Term { since, renewed: sent });
        }
    }

    fn is_holder(&self) -> bool {
        self.known.as_ref().is_some_and(|known| holder(&known.lease) == self.config.identity)
    }

    /// When the other's lease ends by our clock; none if nobody else holds it.
    fn free_at(&self) -> Option<Instant> {
        let known = self.known.as_ref()?;
        let held = !holder(&known.lease).is_empty() && !self.is_holder();
        held.then(|| known.seen + duration(&known.lease).unwrap_or(self.config.duration))
    }

    fn bid(&self, wall: Timestamp) -> Action {
        match &self.known {
            Some(known) if self.leaving => Action::Replace(released(&known.lease, wall)),
            Some(known) => Action::Replace(self.claimed(&known.lease, wall)),
            None => Action::Create(self.fresh(wall)),
        }
    }

    /// The lease in our name. A renewal keeps the start of the term and the count of changes.
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

    /// A number from 0 up to 1 (splitmix64).
    fn roll(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.dice;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The lease held by nobody, which the next candidate need not wait for.
fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(MicroTime(wall));
    spec.renew_time = Some(MicroTime(wall));
    lease
}

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
