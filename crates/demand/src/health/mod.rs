//! How much the endpoints of a zone count for, where connections to them fail more often than elsewhere.
//!
//! ```text
//!  failures ─► memory ─► part that fails ─► excess over the best zone ─► target ─► limited ─► percent in force
//!   tried,      30 s      by zone            clear? worse at once,        50 %:     steps,
//!   failed                                   better slowly                the least  rewrites
//! ```
//!
//! A zone whose endpoints count for 40 % takes 40 % of what it could take, and the rest of what its clients send spills over to
//! other zones. It is never 0: what still goes there shows when the zone is well again.
//!
//! **Elsewhere** is the zone with the smallest part that fails, of those with enough connections. If all zones fail alike, the
//! cause is not in a zone, and nothing is moved. A zone fails *clearly* more often if it is [`CLEARLY`] above that, [`TIMES`] as
//! much, and more than chance explains ([`CHANCE_OF_FAILURES`] standard deviations).
//!
//! **Worse at once, better slowly.** A zone that fails is followed within a minute. What was seen of its failures fades slowly
//! ([`FADE`]), a zone is raised at most once in [`RAISE_EVERY`], and a Service whose zones had to be changed often lately (fewer
//! than [`RESTLESS`] rewrites are left) is not raised until it has been quiet. So a zone that flaps is met by its bad times.
//!
//! **What the others can take** bounds all of it: however much fails, no endpoint elsewhere gets more than [`MOST_GROWTH`] times
//! what it would get if all zones counted in full. That goes by the number of ready endpoints.
//!
//! **Without figures** nothing changes for [`HOLD`]. Then the failures that were seen fade, and the zone is raised as if it
//! were well: figures that nobody confirms are not believed for long. The same holds for a zone with too few connections.
//!
//! **State is data.** All of it is in [`InForce`], so that a new leader goes on where the last one stopped.

mod state;

use std::collections::BTreeMap;

use zonewise_common::name::Name;

use crate::failures::ServiceFailures;
use crate::shares::{RESTLESS, REWRITE_EVERY, REWRITES_AT_ONCE};
use crate::window::HOLD;
use crate::{Millis, seconds};

pub use state::{HealthState, HealthStateError, MAX_BYTES};

/// The least that the endpoints of a zone count for, in percent: enough connections go there to see that it is well again.
pub const LEAST: u8 = 10;

/// A zone begins to count for less when so large a part of its connections fails beyond what fails elsewhere.
pub const CLEARLY: f64 = 0.05;

/// A zone that counts for less counts in full again when no more than this fails beyond what fails elsewhere.
pub const STILL: f64 = 0.02;

/// At least so many times as much as elsewhere has to fail.
pub const TIMES: f64 = 2.0;

/// A difference below so many standard deviations is taken for chance.
pub const CHANCE_OF_FAILURES: f64 = 3.0;

/// A zone of whose connections so many more fail than elsewhere counts for the least.
pub const WORST: f64 = 0.5;

/// Connections to a zone in memory, without which nothing is said about the zone.
pub const FEWEST: f64 = 20.0;

/// Failed connections to a zone in memory, without which it is not said to fail.
pub const FEWEST_FAILED: f64 = 5.0;

/// After so many seconds a third of the connections is left in memory.
pub const MEMORY: f64 = 30.0;

/// After so many seconds a third is left of failures that were seen and are not seen any more.
pub const FADE: f64 = 120.0;

/// The most percent by which a zone is lowered at once: in one decision, every 15 seconds.
pub const LOWER_BY: u8 = 20;

/// The most percent by which a zone is raised at once.
pub const RAISE_BY: u8 = 20;

/// Zones of a Service are raised at most once in so many seconds, and not sooner after one was lowered.
pub const RAISE_EVERY: f64 = 60.0;

/// The least change that is worth a rewrite, in percent.
pub const LEAST_CHANGE: u8 = 10;

/// However much is shifted, endpoints elsewhere get at most so many times what they would get otherwise.
pub const MOST_GROWTH: f64 = 1.5;

/// Time that counts for memory after a pause, in seconds.
const MOST_SECONDS: f64 = 60.0;

const FULL: u8 = 100;

/// What is known of a Service for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Connections by the zone of the endpoint; `None` where nobody tells.
    pub failures: Option<&'a ServiceFailures>,
    /// Ready endpoints by zone.
    pub endpoints: &'a BTreeMap<Name, u64>,
}

/// What is in force for a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// The zones of which something is known.
    pub zones: BTreeMap<Name, Zone>,
    /// Rewrites that are left.
    pub rewrites_left: f64,
    /// When a zone was lowered or raised last.
    pub changed: Millis,
    /// When there were figures last.
    pub seen: Millis,
    /// When this was decided.
    pub decided: Millis,
}

/// What is in force for a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zone {
    /// What its endpoints count for, [`LEAST`] to 100.
    pub percent: u8,
    /// Connections in memory.
    pub connections: f64,
    /// Those of them that failed.
    pub failed: f64,
    /// The part that fails beyond what fails elsewhere; fades slowly.
    pub excess: f64,
}

/// Why what is in force is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Zones may not be lowered or raised faster.
    ChangeLimit,
    /// There were too many rewrites lately.
    RewriteLimit,
}

/// What was decided for a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the endpoints of each zone count for.
    pub percents: BTreeMap<Name, u8>,
    /// Whether that has changed.
    pub changed: bool,
    /// Why it is not what it should be.
    pub held: Option<Held>,
    /// Whether the others could not take more.
    pub bounded: bool,
}

impl Zone {
    const UNKNOWN: Self = Self { percent: FULL, connections: 0.0, failed: 0.0, excess: 0.0 };

    /// The part of the connections that fails; `None` with too few of them.
    pub fn part(&self) -> Option<f64> {
        (self.connections >= FEWEST).then(|| self.failed / self.connections)
    }
}

impl InForce {
    fn new(now: Millis) -> Self {
        let zones = BTreeMap::new();
        Self { zones, rewrites_left: REWRITES_AT_ONCE, changed: 0, seen: now, decided: now }
    }

    /// Whether some zone counts for less than all of its endpoints.
    pub fn is_lowered(&self) -> bool {
        self.lowered().next().is_some()
    }

    /// The zones that count for less than all of their endpoints.
    pub fn lowered(&self) -> impl Iterator<Item = (&Name, &Zone)> {
        self.zones.iter().filter(|(_, zone)| zone.percent < FULL)
    }

    fn percents(&self) -> BTreeMap<Name, u8> {
        self.zones.iter().map(|(name, zone)| (Name::clone(name), zone.percent)).collect()
    }
}

/// Decides for a Service: `before` is what is in force until now, `None` if nothing is. Returns what is in force from now on.
pub fn judge(before: Option<&InForce>, seen: &Seen<'_>, now: Millis) -> (InForce, Judgement) {
    let mut next = before.cloned().unwrap_or_else(|| InForce::new(now));
    let elapsed = seconds(next.decided, now);
    next.decided = now.max(next.decided);
    next.rewrites_left = (next.rewrites_left + elapsed / REWRITE_EVERY).min(REWRITES_AT_ONCE);
    let figures = seen.failures.filter(|known| known.zones.values().any(|of| of.connections > 0));
    remember(&mut next, figures, elapsed.min(MOST_SECONDS), now);
    let (targets, bounded) = Targets::of(&next, seen.endpoints);
    let held = step(&mut next, &targets, now);
    keep_within_limit(&mut next, seen.endpoints);
    // A zone without endpoints and without anything that was seen is not known any more.
    next.zones.retain(|name, zone| {
        seen.endpoints.contains_key(name) || zone.connections >= 1.0 || zone.excess > STILL
    });
    let percents = next.percents();
    let was = |name: &Name| before.and_then(|before| before.zones.get(name));
    let is_new =
        |(name, percent): (&Name, &u8)| was(name).map_or(FULL, |zone| zone.percent) != *percent;
    let is_gone =
        |(name, zone): (&Name, &Zone)| zone.percent < FULL && !percents.contains_key(name);
    let changed = percents.iter().any(is_new)
        || before.is_some_and(|before| before.zones.iter().any(is_gone));
    if changed {
        next.changed = now;
        next.rewrites_left = (next.rewrites_left - 1.0).max(0.0);
    }
    (next, Judgement { percents, changed, held, bounded })
}

/// Takes new figures into memory, and lets old ones fade.
fn remember(next: &mut InForce, figures: Option<&ServiceFailures>, elapsed: f64, now: Millis) {
    let Some(figures) = figures else {
        if seconds(next.seen, now) > HOLD {
            let fades = (-elapsed / FADE).exp();
            next.zones.values_mut().for_each(|zone| zone.fade(fades));
        }
        return;
    };
    next.seen = now;
    let kept = (-elapsed / MEMORY).exp();
    for zone in next.zones.values_mut() {
        zone.connections *= kept;
        zone.failed *= kept;
    }
    // The figures are about more time than has passed since the last decision, or about less.
    let part = if figures.seconds > 0.0 { elapsed / figures.seconds } else { 0.0 };
    // Endpoints without a zone are in none that could be lowered.
    for (name, counted) in figures.zones.iter().filter(|(name, _)| !name.is_empty()) {
        let zone = next.zones.entry(Name::clone(name)).or_insert(Zone::UNKNOWN);
        zone.connections += counted.connections as f64 * part;
        zone.failed += counted.failed.min(counted.connections) as f64 * part;
    }
    compare(&mut next.zones, elapsed);
}

/// Compares the zones with the one that fails least.
fn compare(zones: &mut BTreeMap<Name, Zone>, elapsed: f64) {
    let judged = zones.values().filter_map(|zone| Some((zone.part()?, *zone)));
    let best = judged.clone().min_by(|(one, _), (other, _)| one.total_cmp(other));
    let compared = judged.count() > 1;
    let fades = (-elapsed / FADE).exp();
    for zone in zones.values_mut() {
        match (zone.part(), &best) {
            (Some(part), Some((least, best))) if compared => {
                let excess = if is_clear(zone, part, best, *least) {
                    (part - least) / (1.0 - least)
                } else {
                    0.0
                };
                zone.excess = excess.max(excess + (zone.excess - excess) * fades);
            }
            _ => zone.excess *= fades,
        }
    }
}

/// Whether more fails in a zone than in the best one, and not by chance.
fn is_clear(zone: &Zone, part: f64, best: &Zone, least: f64) -> bool {
    let all = (zone.failed + best.failed) / (zone.connections + best.connections);
    let deviation = (all * (1.0 - all) * (1.0 / zone.connections + 1.0 / best.connections)).sqrt();
    zone.failed >= FEWEST_FAILED
        && part >= TIMES * least
        && part - least > CHANCE_OF_FAILURES * deviation
}

impl Zone {
    fn fade(&mut self, kept: f64) {
        self.connections *= kept;
        self.failed *= kept;
        self.excess *= kept;
    }

    /// What its endpoints should count for, whatever the others can take.
    fn target(&self) -> u8 {
        let least = if self.percent < FULL { STILL } else { CLEARLY };
        if self.excess < least {
            return FULL;
        }
        let percent = 100.0 * (1.0 - self.excess / WORST);
        (percent.round() as u8).clamp(LEAST, FULL - LEAST_CHANGE)
    }
}

/// What the endpoints of zones should count for.
struct Targets(BTreeMap<Name, u8>);

impl Targets {
    /// And whether the others could not take more.
    fn of(next: &InForce, endpoints: &BTreeMap<Name, u64>) -> (Self, bool) {
        let mut targets: BTreeMap<Name, u8> =
            next.zones.iter().map(|(name, zone)| (Name::clone(name), zone.target())).collect();
        let bounded = bound(&mut targets, endpoints);
        (Self(targets), bounded)
    }
}

/// Raises percentages until the endpoints elsewhere get no more than they can take. Returns whether that was needed.
fn bound(percents: &mut BTreeMap<Name, u8>, endpoints: &BTreeMap<Name, u64>) -> bool {
    let all: f64 = endpoints.values().map(|count| *count as f64).sum();
    let missing = |percents: &BTreeMap<Name, u8>| -> f64 {
        let of = |(zone, percent): (&Name, &u8)| {
            f64::from(FULL - percent) / 100.0 * endpoints.get(zone).copied().unwrap_or(0) as f64
        };
        percents.iter().map(of).sum()
    };
    let (now, most) = (missing(percents), all - all / MOST_GROWTH);
    if now <= most {
        return false;
    }
    for percent in percents.values_mut() {
        *percent = FULL - (f64::from(FULL - *percent) * most / now).floor() as u8;
    }
    true
}

/// Goes towards the targets as far as that is allowed. Returns what has stopped it.
fn step(next: &mut InForce, targets: &Targets, now: Millis) -> Option<Held> {
    let since_change = seconds(next.changed, now);
    let may_raise = since_change >= RAISE_EVERY && next.rewrites_left >= RESTLESS;
    let mut held = None;
    for (name, zone) in &mut next.zones {
        let target = targets.0.get(name).copied().unwrap_or(FULL);
        let off = target.abs_diff(zone.percent);
        if off < LEAST_CHANGE && !(target == FULL && off > 0) {
            continue;
        }
        if next.rewrites_left < 1.0 {
            held = Some(Held::RewriteLimit);
        } else if target < zone.percent {
            zone.percent = target.max(zone.percent - LOWER_BY);
        } else if may_raise {
            zone.percent = target.min(zone.percent + RAISE_BY);
        } else if next.rewrites_left < RESTLESS {
            held = Some(Held::RewriteLimit);
        }
        if zone.percent != target {
            held = held.or(Some(Held::ChangeLimit));
        }
    }
    held
}

/// What is in force keeps to what the others can take, too, and at once: endpoints may have gone.
fn keep_within_limit(next: &mut InForce, endpoints: &BTreeMap<Name, u64>) {
    let mut percents = next.percents();
    if bound(&mut percents, endpoints) {
        for (zone, percent) in next.zones.values_mut().zip(percents.into_values()) {
            zone.percent = percent;
        }
    }
}
