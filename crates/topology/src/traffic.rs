//! What an allocation does to traffic: how much stays in its zone, how loaded each endpoint gets.
//!
//! The sums run in a fixed order (zones by name, groups as stored) and every expression is
//! evaluated as written: results are the same bytes on every run.

use crate::allocation::Allocation;
use crate::number::to_f64;
use crate::region::Region;

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
    /// Part of a zone's traffic that goes to a group, zone by zone.
    shares: Vec<f64>,
    /// Part of all traffic that goes to a group, and the group's size.
    loads: Vec<(f64, f64)>,
}

impl TrafficModel {
    /// A model with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends the region's traffic through the allocation. `None` if some zone reaches no endpoint.
    #[inline]
    pub fn run(&mut self, region: &Region<'_>, allocation: &Allocation) -> Option<Traffic> {
        self.distribute(region, allocation)?;
        let total = to_f64(region.total);
        let fair = 1.0 / total;
        let groups = self.loads.len();
        let mut result = Traffic { in_zone: 0.0, max_overload: 0.0, mean_deviation: 0.0 };
        for source in 0..allocation.sources() {
            let share = region.zones.get(source).map_or(0.0, |zone| zone.share);
            let (mut in_zone, mut deviations) = (0.0, 0.0);
            for (group, &load) in self.loads.iter().enumerate() {
                let count = allocation.content(group, source);
                if count == 0 {
                    continue;
                }
                let count = to_f64(count);
                let (own, deviation) = own_and_deviation(load, count, fair);
                if let Some(to_group) = self.shares.get(source * groups + group) {
                    in_zone += share * to_group * own;
                }
                if deviation > result.max_overload {
                    result.max_overload = deviation;
                }
                deviations += deviation.abs() * count;
            }
            result.in_zone += in_zone;
            result.mean_deviation += deviations;
        }
        result.mean_deviation /= total;
        Some(result)
    }

    /// Standard deviation of the endpoints' deviations around `mean`, for the allocation of the
    /// last [`run`](Self::run).
    pub fn spread(&self, region: &Region<'_>, allocation: &Allocation, mean: f64) -> f64 {
        let total = to_f64(region.total);
        let mut sum = 0.0;
        for source in 0..allocation.sources() {
            for (group, &load) in self.loads.iter().enumerate() {
                let count = to_f64(allocation.content(group, source));
                if count != 0.0 {
                    let (_, deviation) = own_and_deviation(load, count, 1.0 / total);
                    sum += (deviation - mean) * (deviation - mean) * count;
                }
            }
        }
        (sum / total).sqrt()
    }

    /// Part of zone `from`'s traffic that goes to each source, for the allocation of the last
    /// [`run`](Self::run).
    pub fn shares_from(&self, from: usize, allocation: &Allocation) -> Vec<f64> {
        let groups = allocation.groups();
        let mut shares = vec![0.0; allocation.sources()];
        for (group, info) in groups.iter().enumerate().filter(|(_, info)| info.size > 0) {
            let share = self.shares[from * groups.len() + group];
            for (source, &count) in allocation.contents_of(group).iter().enumerate() {
                shares[source] += share * (to_f64(count) / to_f64(info.size));
            }
        }
        shares
    }

    /// Load above (or, negative, below) its fair share of each endpoint in a group, for the
    /// allocation of the last [`run`](Self::run).
    pub fn overload(&self, group: usize, region: &Region<'_>) -> f64 {
        let load = self.loads[group];
        own_and_deviation(load, load.1, 1.0 / to_f64(region.total)).1
    }

    /// Fills `shares` and `loads`.
    #[inline]
    fn distribute(&mut self, region: &Region<'_>, allocation: &Allocation) -> Option<()> {
        self.shares.clear();
        self.loads.clear();
        self.loads.extend(allocation.groups().iter().map(|group| (0.0, to_f64(group.size))));
        for (zone, input) in region.zones.iter().enumerate() {
            let start = self.shares.len();
            let mut reached = 0.0;
            for (group, (_, size)) in self.loads.iter().enumerate() {
                let reach = size * allocation.weight(group, zone);
                if reach < 0.0 {
                    return None;
                }
                reached += reach;
                self.shares.push(reach);
            }
            // Not `<= 0.0`: an undefined sum is no valid routing either.
            if reached.is_nan() || reached <= 0.0 {
                return None;
            }
            for (share, (load, _)) in self.shares[start..].iter_mut().zip(&mut self.loads) {
                if *share != 0.0 {
                    *share /= reached;
                    *load += input.share * *share;
                }
            }
        }
        Some(())
    }
}

/// The part that `count` endpoints are of their group, and how far each is from its fair share.
#[inline(always)]
fn own_and_deviation((load, size): (f64, f64), count: f64, fair: f64) -> (f64, f64) {
    let own = count / size;
    (own, (load * own / count) / fair - 1.0)
}
