//! What an allocation does to traffic: how much stays in its zone, how loaded each endpoint gets.
//!
//! The sums run in a fixed order (zones by name, groups as stored) and every expression is
//! evaluated as written: results are the same bytes on every run.

use crate::allocation::Allocation;
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
    shares: Vec<f64>,
    loads: Vec<f64>,
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
        let fair = 1.0 / region.total as f64;
        let groups = allocation.groups();
        let mut result = Traffic { in_zone: 0.0, max_overload: 0.0, mean_deviation: 0.0 };
        for source in 0..allocation.sources() {
            let zone_share = region.zones.get(source).map(|zone| zone.share);
            let (mut in_zone, mut deviation) = (0.0, 0.0);
            for (group, info) in groups.iter().enumerate() {
                let count = allocation.content(group, source);
                if count == 0 {
                    continue;
                }
                let (own, load) = self.own_and_deviation(group, count, info.size, fair);
                if let Some(share) = zone_share {
                    in_zone += share * self.shares[source * groups.len() + group] * own;
                }
                if load > result.max_overload {
                    result.max_overload = load;
                }
                deviation += load.abs() * count as f64;
            }
            result.in_zone += in_zone;
            result.mean_deviation += deviation;
        }
        result.mean_deviation /= region.total as f64;
        Some(result)
    }

    /// Standard deviation of the endpoints' deviations around `mean`, for the allocation of the
    /// last [`run`](Self::run).
    pub fn spread(&self, region: &Region<'_>, allocation: &Allocation, mean: f64) -> f64 {
        let fair = 1.0 / region.total as f64;
        let mut sum = 0.0;
        for source in 0..allocation.sources() {
            for (group, info) in allocation.groups().iter().enumerate() {
                let count = allocation.content(group, source);
                if count != 0 {
                    let (_, load) = self.own_and_deviation(group, count, info.size, fair);
                    sum += (load - mean) * (load - mean) * count as f64;
                }
            }
        }
        (sum / region.total as f64).sqrt()
    }

    /// Part of zone `from`'s traffic that goes to each source, for the allocation of the last
    /// [`run`](Self::run).
    pub fn shares_from(&self, from: usize, allocation: &Allocation) -> Vec<f64> {
        let groups = allocation.groups();
        let mut shares = vec![0.0; allocation.sources()];
        for (group, info) in groups.iter().enumerate().filter(|(_, info)| info.size > 0) {
            let share = self.shares[from * groups.len() + group];
            for (source, &count) in allocation.contents_of(group).iter().enumerate() {
                shares[source] += share * (count as f64 / info.size as f64);
            }
        }
        shares
    }

    /// Load above (or, negative, below) its fair share of each endpoint in a group, for the
    /// allocation of the last [`run`](Self::run).
    pub fn overload(&self, group: usize, allocation: &Allocation, region: &Region<'_>) -> f64 {
        let size = allocation.groups()[group].size;
        self.own_and_deviation(group, size, size, 1.0 / region.total as f64).1
    }

    /// Deviation from the fair share of each of `count` endpoints in a group.
    #[inline]
    fn own_and_deviation(&self, group: usize, count: u64, size: u64, fair: f64) -> (f64, f64) {
        let own = count as f64 / size as f64;
        (own, (self.loads[group] * own / count as f64) / fair - 1.0)
    }

    /// Fills `shares[zone][group]` and `loads[group]`.
    #[inline]
    fn distribute(&mut self, region: &Region<'_>, allocation: &Allocation) -> Option<()> {
        let groups = allocation.groups();
        self.shares.clear();
        self.loads.clear();
        self.loads.resize(groups.len(), 0.0);
        for (zone, input) in region.zones.iter().enumerate() {
            let start = self.shares.len();
            let mut reached = 0.0;
            for (group, info) in groups.iter().enumerate() {
                let reach = info.size as f64 * allocation.weight(group, zone);
                if reach < 0.0 {
                    return None;
                }
                reached += reach;
                self.shares.push(reach);
            }
            // Not `<= 0.0`: an undefined sum is no valid routing either.
            if !(reached > 0.0) {
                return None;
            }
            for (group, share) in self.shares[start..].iter_mut().enumerate() {
                if *share != 0.0 {
                    *share /= reached;
                    self.loads[group] += input.share * *share;
                }
            }
        }
        Some(())
    }
}
