//! From what the metrics API says of Pods to the mean CPU use of a zone's endpoints.
//!
//! A figure counts if it is about a time in which nothing has changed: it began after what the zones count for was changed last, and after
//! the Pod became ready. So figures that arrive late delay decisions, and cannot make them swing.

use std::collections::BTreeMap;

use zonewise_common::name::Name;

use super::Pace;
use crate::{Millis, seconds};

/// A figure is old after so many times the time that it is about.
pub const WINDOWS: f64 = 3.0;

/// And not before so many seconds.
pub const NOT_OLD: f64 = 180.0;

/// The longest time that a figure may be about, in seconds.
pub const LONGEST_WINDOW: f64 = 600.0;

/// So many seconds ahead of our clock the end of a figure's time may be.
pub const AHEAD: f64 = 60.0;

/// A Pod may be said to use so many times the allocatable CPU of its node: system programs leave some for it at times.
pub const MOST_OF_NODE: u64 = 2;

/// What a Pod may be said to use where the CPU of its node is not known, in thousandths of a core.
pub const MOST_MILLI: u64 = 1_024_000;

/// This part of a zone's ready endpoints has to be measured.
pub const MEASURED_PART: f64 = 0.5;

/// What the metrics API says of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodUse {
    /// The CPU that it uses, in thousandths of a core.
    pub milli: u64,
    /// The end of the time that this is about.
    pub at: Millis,
    /// How long that time is, in milliseconds.
    pub window: Millis,
}

/// What is known of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// Something that cannot be.
    Nonsense,
    /// A figure.
    Use(PodUse),
}

/// A ready endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its zone.
    pub zone: Name,
    /// When its Pod became ready; 0 if that is not known.
    pub ready_since: Millis,
    /// The allocatable CPU of its node, in thousandths of a core.
    pub node_milli: Option<u64>,
    /// What is known of its Pod.
    pub known: Known,
}

/// What a figure is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    Counts(PodUse),
    /// It is about a time in which something has changed.
    TooEarly(PodUse),
    Old,
    Nonsense,
    Missing,
}

impl Endpoint {
    fn worth(&self, changed: Millis, now: Millis, pace: &Pace) -> Worth {
        let told = match self.known {
            Known::Nothing => return Worth::Missing,
            Known::Nonsense => return Worth::Nonsense,
            Known::Use(told) => told,
        };
        let most = self.node_milli.map_or(MOST_MILLI, |milli| milli.saturating_mul(MOST_OF_NODE));
        let window = told.window as f64 / 1000.0;
        let possible = told.milli <= most
            && told.window > 0
            && window <= LONGEST_WINDOW
            && seconds(now, told.at) <= AHEAD;
        if !possible {
            return Worth::Nonsense;
        }
        if seconds(told.at, now) > (WINDOWS * window).max(pace.old as f64 / 1000.0) {
            return Worth::Old;
        }
        let began = told.at.saturating_sub(told.window);
        match began >= changed.max(self.ready_since).saturating_add(pace.settle) {
            true => Worth::Counts(told),
            false => Worth::TooEarly(told),
        }
    }
}

/// What is known of the endpoints of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Ready endpoints.
    pub endpoints: u64,
    /// Those whose use is known, whatever it is good for.
    pub measured: u64,
    /// Their mean, in thousandths of a core.
    pub milli: f64,
    /// The end of the time that the oldest of these figures is about.
    pub at: Millis,
    counted: u64,
    counted_milli: u64,
    old: u64,
    nonsense: u64,
    missing: u64,
}

/// What the figures of a zone allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The mean use of its endpoints, in thousandths of a core.
    Mean(f64),
    /// It has to be waited for newer ones.
    Wait,
    Missing,
    Old,
    Nonsense,
}

impl Figures {
    /// Those of all zones. Endpoints without a zone are in none that could count for more or less.
    pub fn of(
        endpoints: &[Endpoint],
        changed: Millis,
        now: Millis,
        pace: &Pace,
    ) -> BTreeMap<Name, Self> {
        let mut zones = BTreeMap::<Name, Self>::new();
        for endpoint in endpoints.iter().filter(|endpoint| !endpoint.zone.is_empty()) {
            let zone = zones.entry(Name::clone(&endpoint.zone)).or_default();
            zone.add(endpoint.worth(changed, now, pace));
        }
        zones
    }

    fn add(&mut self, worth: Worth) {
        self.endpoints += 1;
        match worth {
            Worth::Counts(told) => {
                self.counted += 1;
                self.counted_milli = self.counted_milli.saturating_add(told.milli);
                self.measure(told);
            }
            Worth::TooEarly(told) => self.measure(told),
            Worth::Old => self.old += 1,
            Worth::Nonsense => self.nonsense += 1,
            Worth::Missing => self.missing += 1,
        }
    }

    fn measure(&mut self, told: PodUse) {
        let before = self.milli * self.measured as f64;
        self.at = if self.measured == 0 { told.at } else { self.at.min(told.at) };
        self.measured += 1;
        self.milli = (before + told.milli as f64) / self.measured as f64;
    }

    pub(super) fn verdict(&self) -> Verdict {
        let enough = MEASURED_PART * self.endpoints as f64;
        if self.counted as f64 >= enough && self.counted > 0 {
            return Verdict::Mean(self.counted_milli as f64 / self.counted as f64);
        }
        if self.measured as f64 >= enough && self.measured > 0 {
            return Verdict::Wait;
        }
        // What most of the others have.
        let worst = self.missing.max(self.old).max(self.nonsense);
        if self.nonsense == worst {
            Verdict::Nonsense
        } else if self.old == worst {
            Verdict::Old
        } else {
            Verdict::Missing
        }
    }
}
