//! `local-subset`: subsetting as KEP-2004's text describes it.
//!
//! ```text
//!  few endpoints ──► everywhere            (starting threshold ± padding)
//!  subsets there, none overloaded ──► kept (lazy rebalance: only what changed changes),
//!                                     unless the decision is to be taken afresh
//!  otherwise: own zone first, then
//!     1. zone with the largest surplus ──► most overloaded zone, until none is overloaded
//!     2. zones above ──► zones below the whole part of their expectation
//! ```
//!
//! After every single endpoint both zones take their new place in the order. The evaluation tool's
//! `local` differs: it finishes one receiver before the next and orders by ratio.

use super::zone_groups::{
    first_by, highest_overload, keep_assigned, overload_too_high, overload_with, place_unplaced,
    too_many,
};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Assignment, Case, Heuristic};
use crate::number::to_f64;
use crate::reason::Reason;
use crate::region::Region;
use crate::threshold::{OVERLOAD_THRESHOLD, Start};

/// The heuristic `local-subset`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalSubset {
    /// Starting threshold; 3 per zone when not given.
    pub threshold: Option<u64>,
    /// Padding around it; 1 per zone when not given.
    pub padding: Option<u64>,
}

impl Heuristic for LocalSubset {
    fn name(&self) -> &str {
        "local-subset"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let previous = case.assigned();
        let kept = previous.filter(|_| !case.afresh);
        let reason = self
            .refusal(region, previous.is_some())
            .or_else(|| kept.and_then(|previous| keep(region, previous, out)))
            .unwrap_or_else(|| rebalance(region, out));
        match reason {
            Reason::SubsetsKept { .. } | Reason::SubsetsAssigned { .. } => {
                out.serve_the_unserved();
            }
            _ => out.everywhere(region, Carrier::Plain),
        }
        reason
    }

    fn is_surely_in_force(&self, region: &Region<'_>, serving: Option<&[u64]>) -> bool {
        let kept = |serving: &[u64]| {
            region.unplaced == 0 && overload_with(region, |zone| serving[zone]) < OVERLOAD_THRESHOLD
        };
        serving.is_some_and(kept) && self.refusal(region, true).is_none()
    }
}

impl LocalSubset {
    fn refusal(&self, region: &Region<'_>, was_on: bool) -> Option<Reason> {
        let zones = region.consuming_zones() as u64;
        let endpoints = region.total;
        let start = Start::or_default(zones, self.threshold, self.padding);
        match zones {
            _ if endpoints == 0 => Some(Reason::NoEndpoints),
            0 => Some(Reason::NodeInformationMissing { nodes: region.unknown_nodes }),
            1 => Some(Reason::OneZoneOnly),
            _ if !start.is_on(endpoints, was_on) => Some(Reason::BelowStartingThreshold {
                endpoints,
                threshold: start.threshold,
                padding: start.padding,
            }),
            _ => too_many(region),
        }
    }
}

/// Leaves every endpoint in its subset if that overloads no zone.
fn keep(region: &Region<'_>, previous: &Assignment, out: &mut Allocation) -> Option<Reason> {
    keep_assigned(region, previous, out, Carrier::Subsets);
    place_unplaced(region, out, region.unplaced - previous.assigned_from(previous.unplaced()));
    let highest_overload = highest_overload(region, out);
    let limit = OVERLOAD_THRESHOLD;
    (highest_overload < limit).then_some(Reason::SubsetsKept { highest_overload, limit })
}

fn rebalance(region: &Region<'_>, out: &mut Allocation) -> Reason {
    out.begin(region, Carrier::Subsets);
    out.local_groups(region);
    place_unplaced(region, out, region.unplaced);
    let zones = || 0..region.zones.len();
    let surplus = |out: &Allocation, zone: usize| to_f64(size(out, zone)) - region.expected(zone);
    let mut moved = 0;
    loop {
        let needy = zones().filter(|&zone| overloaded_with(region, zone, size(out, zone)));
        let Some(receiver) = first_by(needy, |zone| -surplus(out, zone)) else {
            break;
        };
        let donors = zones().filter(|&zone| can_give(region, out, zone));
        let Some(donor) = first_by(donors, |zone| surplus(out, zone)) else {
            return overload_too_high(region, OVERLOAD_THRESHOLD);
        };
        move_one(out, donor, receiver);
        moved += 1;
    }
    loop {
        let lacks = |&zone: &usize| to_f64(size(out, zone)) < region.expected(zone).floor();
        let receiver = first_by(zones().filter(lacks), |zone| -surplus(out, zone));
        let has_surplus = |&zone: &usize| surplus(out, zone) > 0.0 && can_give(region, out, zone);
        let donor = first_by(zones().filter(has_surplus), |zone| surplus(out, zone));
        let (Some(receiver), Some(donor)) = (receiver, donor) else {
            break;
        };
        move_one(out, donor, receiver);
        moved += 1;
    }
    Reason::SubsetsAssigned { moved }
}

fn size(out: &Allocation, zone: usize) -> u64 {
    out.groups()[zone].size
}

fn overloaded_with(region: &Region<'_>, zone: usize, size: u64) -> bool {
    region.expected(zone) / to_f64(size) - 1.0 >= OVERLOAD_THRESHOLD
}

fn can_give(region: &Region<'_>, out: &Allocation, zone: usize) -> bool {
    size(out, zone) >= 1 && !overloaded_with(region, zone, size(out, zone) - 1)
}

/// Moves one endpoint between groups, preferably one that is located in the donor zone.
fn move_one(out: &mut Allocation, donor: usize, receiver: usize) {
    let here = |source: &usize| out.content(donor, *source) > 0;
    let source = Some(donor).filter(here).or_else(|| (0..out.sources()).find(here));
    if let Some(source) = source {
        out.take(donor, source, 1);
        out.put(receiver, source, 1);
    }
}
