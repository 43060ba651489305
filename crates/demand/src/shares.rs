//! The shares in force: what is measured, blended with the model, and changed only when that is worth a rewrite.
//!
//! ```text
//!  measured ─► bounded ─► memory ─► blend with the model ─► target ─► worth it? ─► limited ─► in force
//!              one node    n         n / (n + PRIOR)                   hysteresis    change,
//!              and silent  forgets                                                   rewrites
//!              nodes
//! ```
//!
//! **Memory** is a number of connections for each zone, of which old ones are forgotten: slowly ([`SLOW`]) while new ones
//! agree with them, so that chance has little weight, and fast ([`FAST`]) when they differ by more than chance explains
//! ([`SURPRISE`]), so that a busy Service follows a jump within a minute. [`ENOUGH`] connections are kept in any case.
//! A Service whose shares had to change often lately (fewer than [`RESTLESS`] rewrites are left) forgets slowly too: then
//! its demand swings, and the mean is the better guess.
//!
//! **Blend.** The model counts as [`PRIOR`] connections that come from the zones by their capacity. So few connections
//! hardly move the shares, and shares without new connections go back to the model, by one formula.
//!
//! **Hysteresis.** The shares stay until some zone's share is off by [`LEAST_STEP`], or by what chance alone makes of so
//! few connections ([`CHANCE`] standard deviations), whichever is more. Where the limit on change stops them on their way,
//! they go on until half of that is left, so that they do not stop short.
//!
//! **Limits.** No share changes faster than [`CHANGE_PER_SECOND`], and the shares of a Service are rewritten at most
//! [`REWRITES_AT_ONCE`] times in a row, and then once in [`REWRITE_EVERY`] seconds.
//!
//! **State is data.** All of it is in [`InForce`], so that a new leader goes on where the last one stopped: its window is
//! empty at first, but the memory is not.

use serde::Serialize;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::reason::Reason;
use zonewise_topology::zone_shares::in_millionths;

use crate::plausible::bound_largest;
use crate::window::Measured;
use crate::{Millis, seconds};

/// The number of connections that the model counts as.
pub const PRIOR: f64 = 50.0;

/// Connections that are kept even when new ones differ: the standard deviation of a share is then 2 % at most.
pub const ENOUGH: f64 = 500.0;

/// After so many seconds a third is left in memory, when new connections differ from it.
pub const FAST: f64 = 10.0;

/// After so many seconds a third is left in memory, when new connections agree with it.
pub const SLOW: f64 = 300.0;

/// New connections differ from memory if a share is off by so many standard deviations.
pub const SURPRISE: f64 = 4.0;

/// The least change of a share that is worth a rewrite.
pub const LEAST_STEP: f64 = 0.01;

/// A change below so many standard deviations of the sample is taken for chance.
pub const CHANCE: f64 = 2.5;

/// The most that a share changes in a second.
pub const CHANGE_PER_SECOND: f64 = 0.01;

/// Time that counts for the limit on change, in seconds: after a pause, shares do not leap.
pub const MOST_SECONDS: f64 = 60.0;

/// Rewrites of a Service that may follow each other at once.
pub const REWRITES_AT_ONCE: f64 = 12.0;

/// With fewer rewrites left, demand is taken for one that swings, and memory is long. One jump costs three or four
/// rewrites, so that two jumps in a row are still followed fast.
pub const RESTLESS: f64 = 4.0;

/// In so many seconds one more rewrite is allowed.
pub const REWRITE_EVERY: f64 = 120.0;

/// Every zone with a node has at least this share, or that of the model if it is smaller: a zone that is quiet now may
/// send in a moment.
pub const FLOOR: f64 = 0.002;

/// Figures are called old when nothing was counted for so many seconds.
pub const OLD: f64 = 120.0;

/// Fewer connections than this are nothing: the model alone is in force then.
const FORGOTTEN: f64 = 1.0;

/// Millionths.
const ONE: f64 = 1_000_000.0;

/// What is in force for a Service. Zones are in the order of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// The shares in millionths; they add up to a million.
    pub shares: Vec<u32>,
    /// The memory: connections from each zone.
    pub memory: Vec<f64>,
    /// Whether the limit on change has stopped the shares on their way.
    pub moving: bool,
    /// Rewrites that are left.
    pub rewrites_left: f64,
    /// When connections were counted last.
    pub measured: Millis,
    /// When this was decided.
    pub decided: Millis,
}

/// Why the shares in force are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// The difference is not worth a rewrite.
    SmallDifference,
    /// Shares may not change faster.
    ChangeLimit,
    /// There were too many rewrites lately.
    RewriteLimit,
}

/// One zone of a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneDemand {
    /// The zone.
    pub zone: Box<str>,
    /// Its share by the capacity of its nodes.
    pub model: f64,
    /// Its share of the connections in memory; `None` without any.
    pub measured: Option<f64>,
    /// Its share as it should be: both blended.
    pub target: f64,
    /// Its share in force.
    pub in_force: f64,
}

/// Shares, and what led to them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The zones, in the order of the model.
    pub zones: Vec<ZoneDemand>,
    /// Connections in memory.
    pub sample: f64,
    /// The weight of what is measured, 0 to 1; the rest is the model's.
    pub weight: f64,
    /// Seconds since connections were counted last; `None` if none ever were.
    pub age: Option<f64>,
    /// The part of the connections that the largest node has reported.
    pub largest_node: Option<f64>,
    /// The part of the traffic that the model expects of nodes that do not report.
    pub silent: f64,
    /// Why the shares in force are not the target.
    pub held: Option<Held>,
    /// Whether the shares in force have changed.
    pub rewritten: bool,
    /// All of it in a word.
    pub reason: Reason,
}

impl InForce {
    /// The shares of a model, with nothing measured.
    fn of_model(model: &[f64], now: Millis) -> Self {
        Self {
            shares: in_millionths(model),
            memory: vec![0.0; model.len()],
            moving: false,
            rewrites_left: REWRITES_AT_ONCE,
            measured: 0,
            decided: now,
        }
    }

    /// The shares, 0 to 1.
    pub fn parts(&self) -> impl Iterator<Item = f64> {
        self.shares.iter().map(|share| f64::from(*share) / ONE)
    }
}

/// Decides the shares of a Service: `before` is what is in force until now, `None` for the model alone. Returns what is
/// in force from now on, likewise, and why.
pub fn shares(
    model: &Capacity,
    measured: &Measured<'_>,
    before: Option<&InForce>,
    now: Millis,
) -> (Option<InForce>, Decision) {
    let by_capacity: Vec<f64> = model.zones.iter().map(|zone| zone.share).collect();
    let start = before.cloned().unwrap_or_else(|| InForce::of_model(&by_capacity, now));
    let fresh = Fresh::of(measured, &by_capacity);
    let aged = Aged::of(&start, fresh.as_ref(), now);
    let target = Target::of(&aged.memory, &by_capacity);
    let step = Step::of(&start, &target, &aged);
    let measured_at = if fresh.is_some() { now } else { start.measured };
    let age = (measured_at > 0).then(|| seconds(measured_at, now));
    let zone = |zone: usize| ZoneDemand {
        zone: model.zones[zone].name.clone(),
        model: by_capacity[zone],
        measured: (target.sample > 0.0).then(|| aged.memory[zone] / target.sample),
        target: target.shares[zone],
        in_force: f64::from(step.shares[zone]) / ONE,
    };
    let decision = Decision {
        zones: (0..by_capacity.len()).map(zone).collect(),
        sample: target.sample,
        weight: target.weight,
        age,
        largest_node: fresh.as_ref().map(|fresh| fresh.largest_node),
        silent: measured.silent.iter().sum(),
        held: step.held,
        rewritten: step.shares != start.shares,
        reason: reason(&target, fresh.as_ref().and_then(Fresh::of_one_node), age, step.held),
    };
    (in_force(aged, step, measured_at, now, &by_capacity), decision)
}

/// What is in force from now on; `None` if nothing distinguishes it from the model.
fn in_force(
    aged: Aged,
    step: Step,
    measured: Millis,
    now: Millis,
    model: &[f64],
) -> Option<InForce> {
    let is_forgotten = aged.memory.iter().sum::<f64>() < FORGOTTEN;
    let is_model = is_forgotten && step.shares == in_millionths(model);
    (!is_model).then_some(InForce {
        shares: step.shares,
        memory: aged.memory,
        moving: step.moving,
        rewrites_left: aged.rewrites_left - step.spent,
        measured,
        decided: now,
    })
}

/// What was measured since the last decision.
struct Fresh {
    /// The part of each zone.
    parts: Vec<f64>,
    sample: f64,
    largest_node: f64,
    /// Whether the largest node claims more than one node may.
    bounded: bool,
}

impl Fresh {
    /// `None` if there is nothing new.
    fn of(measured: &Measured<'_>, model: &[f64]) -> Option<Self> {
        let total: f64 = measured.rates.iter().sum();
        if measured.sample == 0 || total <= 0.0 {
            return None;
        }
        let mut parts: Vec<f64> = measured.rates.iter().map(|rate| rate / total).collect();
        let largest_node = measured.largest.map_or(0.0, |largest| largest.rate / total);
        let excess = measured
            .largest
            .map_or(0.0, |largest| bound_largest(&mut parts, largest.zone, largest_node, model));
        let silent: f64 = measured.silent.iter().sum::<f64>().clamp(0.0, 1.0);
        for (part, silent_here) in parts.iter_mut().zip(measured.silent) {
            *part = *part * (1.0 - silent) + silent_here;
        }
        Some(Self { parts, sample: measured.sample as f64, largest_node, bounded: excess > 0.0 })
    }

    /// The part of the largest node, where that is more than one node counts for.
    fn of_one_node(&self) -> Option<f64> {
        self.bounded.then_some(self.largest_node)
    }

    /// Whether it differs from a memory by more than chance explains.
    fn surprises(&self, memory: &[f64]) -> bool {
        let known: f64 = memory.iter().sum();
        let off = |(part, known_here): (&f64, &f64)| (part - known_here / known).abs();
        let most = self.parts.iter().zip(memory).map(off).fold(0.0, f64::max);
        known > 0.0 && most > SURPRISE * deviation(self.sample)
    }
}

/// What is in force, grown older, with what is new.
struct Aged {
    memory: Vec<f64>,
    rewrites_left: f64,
    /// Seconds since the last decision.
    elapsed: f64,
}

impl Aged {
    fn of(start: &InForce, fresh: Option<&Fresh>, now: Millis) -> Self {
        let elapsed = seconds(start.decided, now);
        let refilled = start.rewrites_left + elapsed / REWRITE_EVERY;
        let rewrites_left = refilled.min(REWRITES_AT_ONCE);
        let known: f64 = start.memory.iter().sum();
        let slow = known * (-elapsed / SLOW).exp();
        let kept = match fresh {
            Some(fresh) if rewrites_left >= RESTLESS && fresh.surprises(&start.memory) => {
                // What a memory has that has forgotten fast all the time: after a long agreement it has more.
                let steady = fresh.sample / (elapsed / FAST).exp_m1();
                let fast = (known * (-elapsed / FAST).exp()).min(steady);
                (ENOUGH - fresh.sample).clamp(fast, slow)
            }
            _ => slow,
        };
        let factor = if known > 0.0 { kept / known } else { 0.0 };
        let new = |zone: usize| fresh.map_or(0.0, |fresh| fresh.sample * fresh.parts[zone]);
        let memory = start.memory.iter().enumerate();
        let memory = memory.map(|(zone, known)| known * factor + new(zone)).collect();
        Self { memory, rewrites_left, elapsed }
    }
}

/// The shares as they should be.
pub(crate) struct Target {
    pub(crate) shares: Vec<f64>,
    pub(crate) sample: f64,
    pub(crate) weight: f64,
    /// What a share must be off by to be changed.
    pub(crate) least_step: f64,
}

impl Target {
    pub(crate) fn of(memory: &[f64], model: &[f64]) -> Self {
        let sample: f64 = memory.iter().sum();
        if sample < FORGOTTEN {
            // Nothing to go by: the model, to the last digit.
            return Self { shares: model.to_vec(), sample, weight: 0.0, least_step: 1.0 / ONE };
        }
        let all = sample + PRIOR;
        let weight = sample / all;
        let floor = |model: f64| model.min(FLOOR);
        let free = 1.0 - model.iter().map(|share| floor(*share)).sum::<f64>();
        let blended = |known: &f64, model: f64| (known + PRIOR * model) / all;
        let share = |(known, model): (&f64, &f64)| floor(*model) + free * blended(known, *model);
        let chance = CHANCE * weight * deviation(sample);
        Self {
            shares: memory.iter().zip(model).map(share).collect(),
            sample,
            weight,
            least_step: LEAST_STEP.max(chance),
        }
    }
}

/// The standard deviation of a share of so many connections. None has a larger one than a share of a half.
fn deviation(sample: f64) -> f64 {
    (0.25 / sample).sqrt()
}

/// From what was in force to what is.
pub(crate) struct Step {
    shares: Vec<u32>,
    moving: bool,
    /// Rewrites that it costs.
    spent: f64,
    held: Option<Held>,
}

impl Step {
    /// How far the share in force is off, of the zone where that is most.
    pub(crate) fn distance(in_force: &InForce, target: &Target) -> f64 {
        let off = |(share, target): (f64, &f64)| (target - share).abs();
        in_force.parts().zip(&target.shares).map(off).fold(0.0, f64::max)
    }

    fn of(start: &InForce, target: &Target, aged: &Aged) -> Self {
        let stay = |held| Self { shares: start.shares.clone(), moving: false, spent: 0.0, held };
        let distance = Self::distance(start, target);
        let part_of_step = if start.moving { 0.5 } else { 1.0 };
        if distance < target.least_step * part_of_step {
            let is_there = distance < 1.0 / ONE;
            return stay((!is_there).then_some(Held::SmallDifference));
        }
        if aged.rewrites_left < 1.0 {
            return stay(Some(Held::RewriteLimit));
        }
        let most = CHANGE_PER_SECOND * aged.elapsed.min(MOST_SECONDS);
        let part = (most / distance).min(1.0);
        // All zones go the same part of their way, so that the shares add up to 1 all along.
        let between = |(share, target): (f64, &f64)| share + part * (target - share);
        let shares: Vec<f64> = start.parts().zip(&target.shares).map(between).collect();
        let shares = in_millionths(&shares);
        let spent = if shares == start.shares { 0.0 } else { 1.0 };
        let moving = part < 1.0;
        Self { shares, moving, spent, held: moving.then_some(Held::ChangeLimit) }
    }
}

/// What is said of a decision. `one_node` is the part of the largest node, where that is more than one node counts for.
pub(crate) fn reason(
    target: &Target,
    one_node: Option<f64>,
    age: Option<f64>,
    held: Option<Held>,
) -> Reason {
    let (connections, weight) = (target.sample.round() as u64, target.weight);
    if weight < 0.5 {
        return match age {
            Some(age) if age > OLD => Reason::DemandTooOld { seconds: age.round() as u64 },
            _ => Reason::TooFewConnections { connections, enough: PRIOR as u64 },
        };
    }
    match (held, one_node) {
        (Some(Held::ChangeLimit | Held::RewriteLimit), _) => Reason::DemandChangeLimited { weight },
        (_, Some(part)) => Reason::DemandOfOneNode { part },
        _ => Reason::DemandMeasured { connections, weight },
    }
}
