//! `local`: the evaluation tool's variant of KEP-2004's recommended algorithm.
//!
//! Each zone keeps its own endpoints. Overloaded zones are filled first, one zone after the other;
//! then zones with a whole endpoint too many give to zones with a whole endpoint too few.
//! (`local-subset` is the algorithm as the document's text has it.)

use super::pools::{Order, Pools};
use super::zone_groups::{overload_too_high, too_many};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::number::to_u64;
use crate::reason::Reason;
use crate::region::Region;
use crate::threshold::OVERLOAD_THRESHOLD;

/// The heuristic `local`.
pub(super) struct Local {
    /// Below this many endpoints per zone it does not start.
    pub(super) start_multiple: u64,
}

impl Heuristic for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let threshold = self.start_multiple.saturating_mul(region.zones.len() as u64);
        let refusal = too_many(region).or_else(|| {
            (region.total < threshold).then_some(Reason::BelowStartingThreshold {
                endpoints: region.total,
                threshold,
                padding: 0,
            })
        });
        let reason = refusal.unwrap_or_else(|| assign(region, out));
        if reason != Reason::GroupsAssigned {
            out.everywhere(region, Carrier::Plain);
        }
        reason
    }
}

fn assign(region: &Region<'_>, out: &mut Allocation) -> Reason {
    out.begin(region, Carrier::Subsets);
    out.local_groups(region);
    let mut pools = Pools::new(region, out);
    let mut donors = pools.donors();
    let mut zones = std::mem::take(&mut pools.out.scratch.everyone);
    let served = fill_overloaded(&mut pools, &mut donors, &mut zones);
    if served {
        even_out(&mut pools, &mut donors, &mut zones);
    }
    let out = pools.finish();
    out.scratch.donors = donors;
    out.scratch.everyone = zones;
    if served { Reason::GroupsAssigned } else { overload_too_high(region, OVERLOAD_THRESHOLD) }
}

/// Fills overloaded zones one after the other; false if one cannot be helped.
fn fill_overloaded(pools: &mut Pools<'_>, donors: &mut Vec<u32>, needy: &mut Vec<u32>) -> bool {
    needy.clear();
    needy.extend((0..pools.expected.len() as u32).filter(|&zone| pools.overloaded(zone as usize)));
    pools.build(needy, Order::Receivers);
    while let Some(zone) = pools.pop(needy, Order::Receivers) {
        while pools.overloaded(zone) {
            if pools.give_first(donors, zone, pools.missing(zone)) == 0 {
                return false;
            }
        }
    }
    true
}

/// Moves whole surplus endpoints to zones that lack at least one.
///
/// Counting down by one is exact in doubles, so the steps are taken at once.
fn even_out(pools: &mut Pools<'_>, donors: &mut Vec<u32>, everyone: &mut Vec<u32>) {
    everyone.clear();
    everyone.extend(0..pools.expected.len() as u32);
    pools.build(everyone, Order::Receivers);
    while let Some(donor) = pools.pop(donors, Order::Donors) {
        let mut surplus = pools.surplus(donor);
        if surplus < 1.0 {
            return;
        }
        while surplus >= 1.0 {
            let Some(zone) = pools.pop(everyone, Order::Receivers) else {
                break;
            };
            let lack = -pools.surplus(zone);
            if lack < 1.0 {
                return;
            }
            let moved = surplus.floor().min(lack.floor());
            pools.give(donor, zone, to_u64(moved));
            surplus -= moved;
            pools.push(everyone, zone, Order::Receivers);
        }
    }
}
