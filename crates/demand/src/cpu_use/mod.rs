//! What the endpoints of a zone count for, where a Service asks that they count by the CPU that they use.
//!
//! ```text
//!  metrics API ─► Figures: mean use ─► each minute, for each zone:          ─► percent in force
//!   of Pods       of each zone          percent × √(mean of all / mean of      50 to 200
//!                                       the zone), if they differ by 5 %
//! ```
//!
//! Endpoints that use more CPU than the mean of the Service count for less, so that fewer connections reach them, and idle ones for
//! more. All endpoints of a zone count for the same: zone shares say which zone, and no proxy is told more. The
//! root makes a step go half of the way, so that what chance adds to figures is halved, and four or five steps make up for
//! endpoints that are half as fast as others.
//!
//! **Nothing swings**, however late figures arrive: only those count that are about a time after the last change (see
//! `figures`). Until they are there, nothing is changed.
//!
//! **Without figures** of a zone nothing changes for [`HOLD`](Pace::hold). Then it goes back to 100 %, half of the way in each
//! step. The same holds where there is no other zone to compare with, and where a Service uses so little that its
//! figures mean nothing.
//!
//! **Only the proportions of zones matter.** So where a zone would leave the limits, all that are compared are scaled, as far as
//! that keeps the others within them.
//!
//! **Zones that are held** count for what they count for until now, and nothing is compared with them: those that are being
//! emptied, and those that get less because their connections fail. What they use says nothing about their speed.
//!
//! **What a liar can do** is bounded: whoever answers as the metrics API can make endpoints of a zone get a quarter of what those elsewhere
//! get, or four times as much, and no more.
//!
//! **State is data.** All of it is in [`InForce`], so that a new leader goes on where the last one stopped.

mod figures;
mod reasons;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::Name;

use crate::shares::{REWRITE_EVERY, REWRITES_AT_ONCE};
use crate::{Millis, seconds};
use figures::Verdict;

pub use figures::{
    AHEAD, Endpoint, Figures, Known, LONGEST_WINDOW, MEASURED_PART, MOST_MILLI, MOST_OF_NODE,
    NOT_OLD, PodUse, WINDOWS,
};
pub use state::{MAX_BYTES, MIN_BYTES, SourceFault, UseState, UseStateError};

/// The least that the endpoints of a zone count for, in percent.
pub const LEAST_PERCENT: u16 = 50;

/// The most that they count for, in percent.
pub const MOST_PERCENT: u16 = 200;

/// A step goes so far: the power of the quotient of both means.
pub const POWER: f64 = 0.5;

/// And at most so many times as far up, or down.
pub const MOST_STEP: f64 = 1.5;

/// A zone whose mean use differs from that of the Service by no more than this part is left as it is.
pub const DEAD_BAND: f64 = 0.05;

/// Where endpoints use less than this on average, in thousandths of a core, their figures mean nothing.
pub const LEAST_MILLI: f64 = 5.0;

/// What is left of the way to 100 % after a step back, for zones without figures.
pub const LEFT: f64 = 0.5;

/// What the endpoints of a zone count for where nothing else is known, in percent.
pub const FULL_PERCENT: u16 = 100;

/// How fast all of it goes. Only tests have another pace than the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time between two steps, in milliseconds.
    pub step: Millis,
    /// How long zones without figures stay as they are.
    pub hold: Millis,
    /// How long after a change it takes until all connections follow it.
    pub settle: Millis,
    /// The least age of an old figure.
    pub old: Millis,
}

impl Pace {
    /// That of the product.
    pub const USUAL: Self =
        Self { step: 60_000, hold: 120_000, settle: 10_000, old: (NOT_OLD * 1000.0) as Millis };
}

impl Default for Pace {
    fn default() -> Self {
        Self::USUAL
    }
}

/// What is known of a Service for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its ready endpoints.
    pub endpoints: &'a [Endpoint],
    /// Zones that are left as they are.
    pub held: &'a BTreeSet<Name>,
    /// How fast it goes.
    pub pace: Pace,
}

/// Where a zone stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// What it counts for follows from what its endpoints use.
    ByUse,
    /// The same, and it would count for less, or for more, if that were allowed.
    AtLimit,
    /// Figures have to be waited for that are about the time after the last change.
    Waiting,
    /// The metrics API has no figures of too many of its endpoints.
    Missing,
    /// The figures are too old.
    Old,
    /// The figures cannot be.
    Nonsense,
    /// The endpoints use too little.
    TooLittle,
    /// No other zone has figures to compare with.
    Alone,
    /// It is being emptied, or its connections fail.
    Held,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ByUse,
        Self::AtLimit,
        Self::Waiting,
        Self::Missing,
        Self::Old,
        Self::Nonsense,
        Self::TooLittle,
        Self::Alone,
        Self::Held,
    ];
}

/// What is in force for a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// Its zones.
    pub zones: BTreeMap<Name, Zone>,
    /// Rewrites that are left.
    pub rewrites_left: f64,
    /// When a zone was changed last.
    pub changed: Millis,
    /// When a step was made last.
    pub stepped: Millis,
    /// When this was decided.
    pub decided: Millis,
}

/// What is in force for a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// What its endpoints count for, in percent.
    pub percent: u16,
    /// Why.
    pub standing: Standing,
    /// Its ready endpoints.
    pub endpoints: u64,
    /// Those whose use is known.
    pub measured: u64,
    /// What they use on average, in thousandths of a core.
    pub milli: f64,
    /// The end of the time that the oldest of these figures is about.
    pub at: Millis,
    /// When there were figures that could be compared, or had to be waited for.
    pub known: Millis,
}

/// What was decided for a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighing {
    /// Whether zones count for something else than before.
    pub changed: bool,
    /// Whether they would, if there had not been too many rewrites lately.
    pub held: bool,
}

impl Zone {
    fn new(now: Millis) -> Self {
        Self {
            percent: FULL_PERCENT,
            standing: Standing::Missing,
            endpoints: 0,
            measured: 0,
            milli: 0.0,
            at: 0,
            known: now,
        }
    }

    fn measure(&mut self, figures: &Figures) {
        (self.endpoints, self.measured) = (figures.endpoints, figures.measured);
        if figures.measured > 0 {
            (self.milli, self.at) = (figures.milli, figures.at);
        }
    }

    /// Half of the way back to 100 %.
    fn faded(&self) -> u16 {
        let off = f64::from(self.percent) / f64::from(FULL_PERCENT);
        let left = off.powf(LEFT);
        match (left - 1.0).abs() <= DEAD_BAND {
            true => FULL_PERCENT,
            false => (left * f64::from(FULL_PERCENT)).round() as u16,
        }
    }

    /// One step by what is used, wherever it leads.
    fn stepped(&self, mean: f64, milli: f64) -> f64 {
        let quotient = match (milli / mean - 1.0).abs() <= DEAD_BAND {
            true => 1.0,
            false => mean / milli.max(1.0),
        };
        f64::from(self.percent) * quotient.powf(POWER).clamp(MOST_STEP.recip(), MOST_STEP)
    }
}

impl InForce {
    fn new(now: Millis) -> Self {
        let zones = BTreeMap::new();
        Self { zones, rewrites_left: REWRITES_AT_ONCE, changed: 0, stepped: 0, decided: now }
    }

    /// The zones that count for more or less than 100 %, in percent.
    pub fn weighted(&self) -> impl Iterator<Item = (&Name, u16)> {
        let all = self.zones.iter().map(|(name, zone)| (name, zone.percent));
        all.filter(|(_, percent)| *percent != FULL_PERCENT)
    }
}

/// Decides for a Service: `before` is what is in force until now, `None` if nothing is. Returns what is in force from now on.
pub fn weigh(before: Option<&InForce>, seen: &Seen<'_>, now: Millis) -> (InForce, Weighing) {
    let mut next = before.cloned().unwrap_or_else(|| InForce::new(now));
    let elapsed = seconds(next.decided, now);
    next.decided = now.max(next.decided);
    next.rewrites_left = (next.rewrites_left + elapsed / REWRITE_EVERY).min(REWRITES_AT_ONCE);
    let figures = Figures::of(seen.endpoints, next.changed, now, &seen.pace);
    for (name, zone) in &figures {
        next.zones.entry(Name::clone(name)).or_insert_with(|| Zone::new(now)).measure(zone);
    }
    for (name, zone) in &mut next.zones {
        if !figures.contains_key(name) {
            (zone.endpoints, zone.measured) = (0, 0);
        }
    }
    let comparison = Comparison::new(&figures, seen.held);
    let is_due = now.saturating_sub(next.stepped) >= seen.pace.step;
    let mut targets = Vec::with_capacity(next.zones.len());
    for (name, zone) in &mut next.zones {
        let verdict = figures.get(name).map_or(Verdict::Missing, Figures::verdict);
        let held = seen.held.contains(name);
        targets.push(comparison.target(zone, verdict, held, now, &seen.pace));
    }
    let scale = scale(&targets);
    let percents = next.zones.values_mut().zip(targets).map(|(zone, target)| {
        let (standing, percent) = target.within_limits(scale);
        zone.standing = standing;
        percent
    });
    let percents: Vec<u16> = percents.collect();
    let weighing = step(&mut next, &percents, is_due && !comparison.waits, now);
    next.zones.retain(|name, zone| figures.contains_key(name) || zone.percent != FULL_PERCENT);
    (next, weighing)
}

/// What zones are compared with.
struct Comparison {
    /// The mean use of the Service's endpoints, of the zones that can be compared; `None` if there are fewer than two.
    mean: Option<f64>,
    /// Whether newer figures of some zone have to be waited for.
    waits: bool,
}

impl Comparison {
    fn new(figures: &BTreeMap<Name, Figures>, held: &BTreeSet<Name>) -> Self {
        let compared = || figures.iter().filter(|(name, _)| !held.contains(*name));
        let means = || {
            compared().filter_map(|(_, zone)| match zone.verdict() {
                Verdict::Mean(milli) => Some((milli, zone.endpoints as f64)),
                Verdict::Wait | Verdict::Missing | Verdict::Old | Verdict::Nonsense => None,
            })
        };
        let endpoints: f64 = means().map(|(_, endpoints)| endpoints).sum();
        let all: f64 = means().map(|(milli, endpoints)| milli * endpoints).sum();
        let waits = compared().any(|(_, zone)| zone.verdict() == Verdict::Wait);
        Self { mean: (means().count() > 1).then(|| all / endpoints), waits }
    }

    /// What a zone should count for after a step.
    fn target(
        &self,
        zone: &mut Zone,
        verdict: Verdict,
        held: bool,
        now: Millis,
        pace: &Pace,
    ) -> Target {
        if held {
            zone.known = now;
            return Target::Other(Standing::Held, zone.percent);
        }
        let standing = match (verdict, self.mean) {
            (Verdict::Mean(milli), Some(mean)) if mean >= LEAST_MILLI => {
                zone.known = now;
                return Target::ByUse(zone.stepped(mean, milli));
            }
            (Verdict::Wait, _) => {
                zone.known = now;
                return Target::Other(Standing::Waiting, zone.percent);
            }
            (Verdict::Mean(_), None) if self.waits => Standing::Waiting,
            (Verdict::Mean(_), Some(_)) => Standing::TooLittle,
            (Verdict::Mean(_), None) => Standing::Alone,
            (Verdict::Missing, _) => Standing::Missing,
            (Verdict::Old, _) => Standing::Old,
            (Verdict::Nonsense, _) => Standing::Nonsense,
        };
        let fades = now.saturating_sub(zone.known) >= pace.hold;
        Target::Other(standing, if fades { zone.faded() } else { zone.percent })
    }
}

/// What a zone should count for after a step.
enum Target {
    /// This, in percent, by what it uses.
    ByUse(f64),
    /// This, for another reason.
    Other(Standing, u16),
}

impl Target {
    fn within_limits(self, scale: f64) -> (Standing, u16) {
        let wanted = match self {
            Self::ByUse(wanted) => (wanted * scale).round(),
            Self::Other(standing, percent) => return (standing, percent),
        };
        let percent = wanted.clamp(LEAST_PERCENT.into(), MOST_PERCENT.into());
        let standing = if wanted == percent { Standing::ByUse } else { Standing::AtLimit };
        (standing, percent as u16)
    }
}

/// What all zones that are compared are multiplied with, so that as few as possible leave the limits.
fn scale(targets: &[Target]) -> f64 {
    let wanted = || {
        targets.iter().filter_map(|target| match target {
            Target::ByUse(wanted) => Some(*wanted),
            Target::Other(..) => None,
        })
    };
    let (least, most) = (wanted().fold(f64::MAX, f64::min), wanted().fold(0.0, f64::max));
    let (lowest, highest) = (f64::from(LEAST_PERCENT), f64::from(MOST_PERCENT));
    if most > highest && least > lowest {
        (highest / most).max(lowest / least)
    } else if least < lowest && most < highest {
        (lowest / least).min(highest / most)
    } else {
        1.0
    }
}

/// Goes to these percentages, if a step is due and there were not too many lately.
fn step(next: &mut InForce, percents: &[u16], is_due: bool, now: Millis) -> Weighing {
    let differs = next.zones.values().zip(percents).any(|(zone, to)| zone.percent != *to);
    if !is_due {
        return Weighing::default();
    }
    next.stepped = now;
    if !differs {
        return Weighing::default();
    }
    if next.rewrites_left < 1.0 {
        return Weighing { changed: false, held: true };
    }
    for (zone, percent) in next.zones.values_mut().zip(percents) {
        zone.percent = *percent;
    }
    next.changed = now;
    next.rewrites_left -= 1.0;
    Weighing { changed: true, held: false }
}
