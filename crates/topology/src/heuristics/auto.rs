//! `auto`: Topology Aware Hints (KEP-2433), with the arithmetic of the reference implementation and
//! the hysteresis the document asked for.
//!
//! Each zone with nodes must get at least `ceil(T·r / 1.2)` endpoints, or there are no hints at all.
//! Endpoints are hinted to their own zone first; then zones with more than they should have give
//! one endpoint at a time to zones with less, largest difference first.
//!
//! "One at a time, largest first" has a closed form. A giver whose surplus is `v` offers the
//! *tokens* `v, v-1, v-2, …`; the m-th transfer uses the m-th largest token of either side and the
//! process stops before a token below 0.5, or two below 1. So the number of transfers is a
//! minimum of counts, and the zones that take part own "the m largest tokens": no loop over
//! endpoints.
//!
//! That stop leaves some zone below its minimum now and then: 1, 5 and 9 cores with six endpoints
//! in the last zone end as 1, 1 and 4, which overloads the second zone by 100 %. The document asks
//! for less than 20 %, so such zones are lifted to their minimum, and endpoints in zones without
//! nodes may serve others too. With `upstream` set, everything is as in the reference.
//!
//! A decision that is to be taken afresh assigns all endpoints anew. Hints that are on stay on where
//! they may: then zones may have as much overload as lets hints stay.

use super::zone_groups::{highest_overload, keep_assigned, nothing_to_divide};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::number::{to_f64, to_u64};
use crate::reason::Reason;
use crate::region::{Region, Zone};
use crate::threshold::Hysteresis;

/// The heuristic `auto`.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// When hints come and go.
    pub hysteresis: Hysteresis,
    /// Leaves zones below their minimum, and endpoints in zones without nodes unused, where the
    /// reference does.
    pub upstream: bool,
}

/// What one zone must get for hints to be safe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// `T × share`.
    pub expected: f64,
    /// The fewest endpoints that keep expected overload below the limit.
    pub minimum: u64,
    /// The most endpoints that leave every other zone its minimum (0 if that is impossible).
    pub maximum: u64,
}

impl Heuristic for Auto {
    fn name(&self) -> &str {
        "auto"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let refusal = self.refusal(region);
        let kept = self.keep(case, out, refusal);
        match (refusal, kept) {
            (_, Some(kept)) if !case.afresh => kept,
            (None, _) => self.assign(region, out),
            (Some(_), Some(kept)) => match self.assign_while_on(region, out) {
                Some(assigned) => assigned,
                None => self.keep(case, out, refusal).unwrap_or(kept),
            },
            (Some(reason), None) => {
                out.everywhere(region, Carrier::Plain);
                reason
            }
        }
    }

    fn is_surely_in_force(&self, region: &Region<'_>, _: Option<&[u64]>) -> bool {
        self.refusal(region).is_none()
    }
}

impl Auto {
    /// As KEP-2433 asks.
    pub const KEP_2433: Self = Self { hysteresis: Hysteresis::KEP_2433, upstream: false };
    /// As the reference implementation does.
    pub const UPSTREAM: Self = Self { hysteresis: Hysteresis::UPSTREAM, upstream: true };

    /// Expected, minimum and maximum of every zone.
    pub fn bounds(&self, region: &Region<'_>) -> Vec<Bounds> {
        let minimum = |zone: &Zone| self.minimum(region, zone);
        let needed: u64 = region.zones.iter().map(minimum).sum();
        let spare = region.total.checked_sub(needed);
        let bounds = |(index, zone)| Bounds {
            expected: region.expected(index),
            minimum: minimum(zone),
            maximum: spare.map_or(0, |spare| minimum(zone) + spare),
        };
        region.zones.iter().enumerate().map(bounds).collect()
    }

    /// Why hints cannot be assigned, in the order in which the reference checks.
    fn refusal(&self, region: &Region<'_>) -> Option<Reason> {
        if let Some(reason) = nothing_to_divide(region) {
            return Some(reason);
        }
        let (zones, endpoints) = (region.consuming_zones() as u64, region.total);
        if zones > endpoints {
            return Some(Reason::TooFewEndpoints { endpoints, zones });
        }
        let minimums = region.zones.iter().map(|zone| self.minimum(region, zone)).sum();
        if minimums > endpoints {
            let limit = self.hysteresis.enter;
            return Some(Reason::TooFewForBalance { endpoints, minimums, limit });
        }
        (region.unplaced > 0).then_some(Reason::EndpointsWithoutZone { endpoints: region.unplaced })
    }

    /// The fewest endpoints a zone must get. Doubles, in this order: their rounding decides.
    #[inline]
    fn minimum(&self, region: &Region<'_>, zone: &Zone) -> u64 {
        let factor = 1.0 / (1.0 + self.hysteresis.enter);
        to_u64((zone.share * to_f64(region.total) * factor).ceil())
    }

    /// The endpoints a zone should get.
    #[inline]
    fn desired(&self, region: &Region<'_>, zone: &Zone) -> f64 {
        (zone.share * to_f64(region.total)).max(to_f64(self.minimum(region, zone)))
    }

    /// Keeps the hints that are there if no zone comes near overload with them; endpoints that are
    /// new serve their own zone. A refusal for lack of information is final, one for lack of
    /// endpoints is not: what is there may still be good enough.
    fn keep(
        &self,
        case: &Case<'_>,
        out: &mut Allocation,
        refusal: Option<Reason>,
    ) -> Option<Reason> {
        let region = &case.region;
        let previous = case.assigned()?;
        let too_few = |reason: Reason| {
            matches!(reason, Reason::TooFewForBalance { .. } | Reason::TooFewEndpoints { .. })
        };
        if !refusal.is_none_or(too_few) || region.unplaced > 0 {
            return None;
        }
        keep_assigned(region, previous, out, Carrier::Hints);
        let highest_overload = highest_overload(region, out);
        let limit = self.hysteresis.leave;
        (highest_overload < limit).then(|| {
            out.serve_the_unserved();
            Reason::HintsKept { highest_overload, limit }
        })
    }

    /// Assigns hints that are on but would not be given now: each zone may have as much overload as
    /// lets them stay. `None` if some zone would have more.
    fn assign_while_on(&self, region: &Region<'_>, out: &mut Allocation) -> Option<Reason> {
        let limit = self.hysteresis.leave;
        let hysteresis = Hysteresis { enter: limit, leave: limit };
        let assigned = Self { hysteresis, ..*self }.assign(region, out);
        (highest_overload(region, out) < limit).then_some(assigned)
    }

    fn assign(&self, region: &Region<'_>, out: &mut Allocation) -> Reason {
        let mut differences = std::mem::take(&mut out.scratch.floats);
        let mut counts = std::mem::take(&mut out.scratch.counts);
        differences.clear();
        differences.extend(region.zones.iter().map(|zone| {
            let idle = self.upstream && zone.share == 0.0;
            if idle { 0.0 } else { to_f64(zone.endpoints) - self.desired(region, zone) }
        }));
        counts.clear();
        counts.resize(2 * differences.len(), 0);
        let (gives, receives) = counts.split_at_mut(differences.len());
        transfers(&differences, gives, receives);
        if !self.upstream {
            self.lift(region, gives, receives);
        }
        let moved = gives.iter().sum();
        out.begin(region, Carrier::Hints);
        out.local_groups(region);
        hand_over(out, gives, receives);
        out.serve_the_unserved();
        out.scratch.floats = differences;
        out.scratch.counts = counts;
        Reason::HintsAssigned { moved }
    }

    /// Brings zones that ended below their minimum up to it. Some zone can always give: the
    /// minimums add up to no more than the endpoints there are.
    fn lift(&self, region: &Region<'_>, gives: &mut [u64], receives: &mut [u64]) {
        for receiver in 0..gives.len() {
            let zones = region.zones;
            let minimum = self.minimum(region, &zones[receiver]);
            while zones[receiver].endpoints + receives[receiver] - gives[receiver] < minimum {
                let size = |zone: usize| zones[zone].endpoints + receives[zone] - gives[zone];
                let over = |zone: usize| to_f64(size(zone)) - self.desired(region, &zones[zone]);
                let giver = (0..gives.len())
                    .rev()
                    .filter(|&zone| size(zone) > self.minimum(region, &zones[zone]))
                    .max_by(|&a, &b| over(a).total_cmp(&over(b)));
                let Some(giver) = giver else { return };
                step_back_or_on(&mut receives[giver], &mut gives[giver]);
                step_back_or_on(&mut gives[receiver], &mut receives[receiver]);
            }
        }
    }
}

/// Takes back one transfer of the first kind, or adds one of the second.
fn step_back_or_on(back: &mut u64, on: &mut u64) {
    if *back > 0 { *back -= 1 } else { *on += 1 }
}

/// How many endpoints each zone gives and receives.
///
/// `differences` are endpoints above (positive) or below (negative) what a zone should have.
pub fn transfers(differences: &[f64], gives: &mut [u64], receives: &mut [u64]) {
    let zones = differences.len();
    let surplus = |zone: usize| differences[zone];
    let lack = |zone: usize| -differences[zone];
    let half = tokens(zones, surplus, 0.5).min(tokens(zones, lack, 0.5));
    let whole = tokens(zones, surplus, 1.0).max(tokens(zones, lack, 1.0));
    let count = half.min(whole);
    if count > 0 {
        take_largest(surplus, count, gives);
        take_largest(lack, count, receives);
    }
}

/// How many tokens `v, v-1, v-2, …` of all zones are at least `floor`.
#[inline]
fn tokens(zones: usize, value: impl Fn(usize) -> f64, floor: f64) -> u64 {
    let of = |zone| {
        let value = value(zone);
        if value >= floor { to_u64(value - floor) + 1 } else { 0 }
    };
    (0..zones).map(of).sum()
}

/// How many of the `count` largest tokens belong to each zone; equal ones go to the first zone.
pub(super) fn take_largest(value: impl Fn(usize) -> f64, count: u64, taken: &mut [u64]) {
    let zones = taken.len();
    let above = |zone: usize, level: f64| {
        let gap = value(zone) - level;
        if gap > 0.0 { to_u64(gap.ceil()) } else { 0 }
    };
    let total_above = |level: f64| (0..zones).map(|zone| above(zone, level)).sum::<u64>();
    let mut level = waterline(zones, &value, to_f64(count));
    while total_above(level) > count {
        level += 1.0;
    }
    while level > 0.0 && total_above(level - 1.0) <= count {
        level -= 1.0;
    }
    let mut left = count;
    for (zone, taken) in taken.iter_mut().enumerate() {
        *taken = above(zone, level);
        left -= *taken;
    }
    // Each zone has at most one token in (level-1, level]: its next one.
    for _ in 0..left {
        let next = |zone: usize| value(zone) - to_f64(taken[zone]);
        let first = (0..zones).rev().max_by(|&a, &b| next(a).total_cmp(&next(b)));
        if let Some(zone) = first {
            taken[zone] += 1;
        }
    }
}

/// A whole level above which about `count` tokens lie: Newton's method on a convex, piecewise
/// straight line, which gets there from below in at most as many steps as there are zones.
fn waterline(zones: usize, value: impl Fn(usize) -> f64, count: f64) -> f64 {
    let mut level = 0.0;
    for _ in 0..zones {
        let (mut sum, mut above) = (0.0, 0.0);
        for value in (0..zones).map(&value).filter(|value| *value > level) {
            sum += value;
            above += 1.0;
        }
        let next = (sum - count) / above;
        if next.is_nan() || next <= level {
            break;
        }
        level = next;
    }
    level.floor()
}

/// Moves endpoints from givers to receivers, both in the order of their names.
fn hand_over(out: &mut Allocation, gives: &mut [u64], receives: &mut [u64]) {
    let mut receiver = 0;
    for (giver, left) in gives.iter_mut().enumerate() {
        while *left > 0 && receiver < receives.len() {
            let moved = (*left).min(receives[receiver]);
            out.take(giver, giver, moved);
            out.put(receiver, giver, moved);
            *left -= moved;
            receives[receiver] -= moved;
            if receives[receiver] == 0 {
                receiver += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::Strategy;

    /// The process as the reference runs it.
    fn one_at_a_time(differences: &[f64]) -> (Vec<u64>, Vec<u64>) {
        let mut surplus: Vec<f64> = differences.to_vec();
        let mut lack: Vec<f64> = differences.iter().map(|value| -value).collect();
        let (mut gives, mut receives) = (vec![0; surplus.len()], vec![0; surplus.len()]);
        let largest = |values: &[f64]| {
            (0..values.len())
                .rev()
                .max_by(|&a, &b| values[a].total_cmp(&values[b]))
                .filter(|&zone| values[zone] > 0.0)
        };
        while let (Some(giver), Some(receiver)) = (largest(&surplus), largest(&lack)) {
            let (give, receive) = (surplus[giver], lack[receiver]);
            if (give < 1.0 && receive < 1.0) || give < 0.5 || receive < 0.5 {
                break;
            }
            surplus[giver] -= 1.0;
            lack[receiver] -= 1.0;
            gives[giver] += 1;
            receives[receiver] += 1;
        }
        (gives, receives)
    }

    fn closed_form(differences: &[f64]) -> (Vec<u64>, Vec<u64>) {
        let zones = differences.len();
        let (mut gives, mut receives) = (vec![0; zones], vec![0; zones]);
        transfers(differences, &mut gives, &mut receives);
        (gives, receives)
    }

    /// Rows of the reference's own table (desired, have → gives, receives).
    #[test]
    fn b2_transfers_of_the_reference_table() {
        type Row = ([f64; 3], [f64; 3], [u64; 3], [u64; 3]);
        let rows: [Row; 7] = [
            ([1.2, 1.1, 1.0], [1.0, 1.0, 1.0], [0, 0, 0], [0, 0, 0]),
            ([5.1, 5.1, 5.8], [16.0, 0.0, 0.0], [10, 0, 0], [0, 5, 5]),
            ([5.0, 5.6, 5.4], [16.0, 0.0, 0.0], [11, 0, 0], [0, 6, 5]),
            ([5.0, 5.6, 5.4], [0.0, 8.0, 8.0], [0, 2, 3], [5, 0, 0]),
            ([5.0, 5.0, 5.0], [6.0, 6.0, 6.0], [0, 0, 0], [0, 0, 0]),
            ([5.0, 5.0, 5.0], [-4.0, -3.0, -2.0], [0, 0, 0], [0, 0, 0]),
            ([5.0, 5.0, 5.0], [-40.0, 20.0, 20.0], [0, 15, 15], [30, 0, 0]),
        ];
        for (desired, have, gives, receives) in rows {
            let differences: Vec<f64> = have.iter().zip(desired).map(|(h, d)| h - d).collect();
            let expected = (gives.to_vec(), receives.to_vec());
            assert_eq!(closed_form(&differences), expected, "desired {desired:?} have {have:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn b2_closed_form_equals_one_at_a_time(
            differences in proptest::collection::vec(
                proptest::prop_oneof![-40.0..40.0f64, (-80i32..80).prop_map(|half| f64::from(half) / 2.0)],
                1..9,
            )
        ) {
            proptest::prop_assert_eq!(closed_form(&differences), one_at_a_time(&differences));
        }
    }
}
