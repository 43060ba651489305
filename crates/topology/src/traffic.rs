//! What an allocation does to traffic: how much stays in its zone, how loaded each endpoint gets.
//!
//! The sums run in a fixed order (zones by name, groups as stored) and every expression is
//! evaluated as written: results are the same bytes on every run.

use crate::allocation::Allocation;
use crate::number::to_f64;
use crate::region::{Region, Zone};

/// The result for one region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Part of all traffic that stays in its zone.
    pub in_zone: f64,
    /// Load of the most loaded endpoint above its fair share; 0 if none is above.
    pub max_overload: f64,
    /// Mean over endpoints of the distance from the fair share, underload included.
    pub mean_deviation: f64,
}

/// Computes [`Traffic`]; holds buffers that are reused from call to call.
#[derive(Debug, Default)]
pub struct TrafficModel {
    totals: Vec<ZoneTotals>,
}

/// Running figures of one zone (or of "no zone", which sends nothing).
#[derive(Clone, Copy, Debug, Default)]
struct ZoneTotals {
    /// Part of all traffic that starts here.
    share: f64,
    /// What the zone's weights add up to over all groups.
    reached: f64,
    /// Part of the zone's traffic that goes to the group at hand.
    to_group: f64,
    in_zone: f64,
    deviation: f64,
}

impl TrafficModel {
    /// A model with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends the region's traffic through the allocation. `None` if some zone reaches no endpoint.
    #[inline]
    pub fn run(&mut self, region: &Region<'_>, allocation: &Allocation) -> Option<Traffic> {
        // With a constant number of zones the loops unroll. Three is what nearly everyone has.
        if region.zones.len() == 3 && allocation.sources() == 3 {
            return send(region, allocation, 3, &mut [ZoneTotals::default(); 3]);
        }
        self.totals.clear();
        self.totals.resize(allocation.sources(), ZoneTotals::default());
        send(region, allocation, region.zones.len(), &mut self.totals)
    }

    /// Standard deviation of the endpoints' deviations around `mean`; 0 if some zone reaches no
    /// endpoint.
    pub fn spread(&mut self, region: &Region<'_>, allocation: &Allocation, mean: f64) -> f64 {
        self.totals.clear();
        self.totals.extend(region.zones.iter().map(ZoneTotals::of));
        if reach(allocation, &mut self.totals).is_none() {
            return 0.0;
        }
        let total = to_f64(region.total);
        let mut sum = 0.0;
        for (group, info) in
            allocation.groups().iter().enumerate().filter(|(_, info)| info.size > 0)
        {
            let size = to_f64(info.size);
            let load = load(size, allocation.weights_of(group), &mut self.totals);
            let deviation = load / size / (1.0 / total) - 1.0;
            sum += (deviation - mean) * (deviation - mean) * size;
        }
        (sum / total).sqrt()
    }
}

impl ZoneTotals {
    fn of(zone: &Zone) -> Self {
        Self { share: zone.share, ..Self::default() }
    }
}

#[inline(always)]
fn send(
    region: &Region<'_>,
    allocation: &Allocation,
    zones: usize,
    totals: &mut [ZoneTotals],
) -> Option<Traffic> {
    for (zone_totals, zone) in totals.iter_mut().zip(region.zones) {
        zone_totals.share = zone.share;
    }
    reach(allocation, &mut totals[..zones])?;
    let total = to_f64(region.total);
    let fair = 1.0 / total;
    let mut max_overload = 0.0;
    for (group, info) in allocation.groups().iter().enumerate() {
        let size = to_f64(info.size);
        let load = load(size, allocation.weights_of(group), &mut totals[..zones]);
        for (zone_totals, &count) in totals.iter_mut().zip(allocation.contents_of(group)) {
            if count == 0 {
                continue;
            }
            let count = to_f64(count);
            let own = count / size;
            let deviation = (load * own / count) / fair - 1.0;
            zone_totals.in_zone += zone_totals.share * zone_totals.to_group * own;
            zone_totals.deviation += deviation.abs() * count;
            if deviation > max_overload {
                max_overload = deviation;
            }
        }
    }
    let mut result = Traffic { in_zone: 0.0, max_overload, mean_deviation: 0.0 };
    for zone_totals in totals {
        result.in_zone += zone_totals.in_zone;
        result.mean_deviation += zone_totals.deviation;
    }
    result.mean_deviation /= total;
    Some(result)
}

/// Sums up what each zone reaches. `None` if that is nothing, or not a number.
#[inline(always)]
fn reach(allocation: &Allocation, totals: &mut [ZoneTotals]) -> Option<()> {
    for (group, info) in allocation.groups().iter().enumerate() {
        let size = to_f64(info.size);
        for (zone_totals, weight) in totals.iter_mut().zip(allocation.weights_of(group)) {
            if size * weight < 0.0 {
                return None;
            }
            zone_totals.reached += size * weight;
        }
    }
    totals.iter().all(|zone_totals| zone_totals.reached > 0.0).then_some(())
}

/// The part of all traffic that goes to a group; notes each zone's contribution.
#[inline(always)]
fn load(size: f64, weights: &[f64], totals: &mut [ZoneTotals]) -> f64 {
    let mut load = 0.0;
    for (zone_totals, &weight) in totals.iter_mut().zip(weights) {
        zone_totals.to_group = 0.0;
        if weight != 0.0 {
            zone_totals.to_group = size * weight / zone_totals.reached;
            load += zone_totals.share * zone_totals.to_group;
        }
    }
    load
}

/// The part of a zone's traffic that goes to each source: for zone shares, not for hot paths. `None` if
/// the zone reaches no endpoint.
pub fn shares_from(allocation: &Allocation, zone: usize) -> Option<Vec<f64>> {
    let groups = || allocation.groups().iter().enumerate().filter(|(_, info)| info.size > 0);
    let weight = |group: usize| allocation.weight(group, zone).max(0.0);
    let reached: f64 = groups().map(|(group, info)| to_f64(info.size) * weight(group)).sum();
    let mut shares = vec![0.0; allocation.sources()];
    for (group, info) in groups() {
        let size = to_f64(info.size);
        let to_group = size * weight(group) / reached;
        for (source, &count) in allocation.contents_of(group).iter().enumerate() {
            shares[source] += to_group * (to_f64(count) / size);
        }
    }
    (reached > 0.0).then_some(shares)
}
