//! `local-opt`: every zone keeps the whole part of its expectation; needs are served in order; what
//! is left over is shared by all zones at an even weight.

use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::number::{to_f64, to_u64};
use crate::reason::Reason;

/// The heuristic `local-opt`.
pub(super) struct LocalOpt;

impl Heuristic for LocalOpt {
    fn name(&self) -> &str {
        "local-opt"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        out.begin(region, Carrier::Subsets);
        out.zone_groups();
        let mut supply = std::mem::take(&mut out.scratch.supply);
        let mut need = std::mem::take(&mut out.scratch.need);
        supply.clear();
        need.clear();
        for (index, zone) in region.zones.iter().enumerate() {
            let expected = zone.share * to_f64(region.total);
            let surplus = to_f64(zone.endpoints) - expected;
            let mut kept = zone.endpoints;
            if surplus > 0.0 {
                kept = to_u64(expected);
                supply.push((index as u32, to_u64(surplus.ceil())));
            } else if surplus < 0.0 {
                need.push((index as u32, to_u64(-surplus)));
            }
            out.put(index, index, kept);
        }
        let mut front = 0;
        for &(zone, amount) in &need {
            serve(out, &mut supply, &mut front, zone, amount);
        }
        share_rest(out, &supply[front..]);
        out.scratch.supply = supply;
        out.scratch.need = need;
        Reason::GroupsAssigned
    }
}

/// Serves one zone's need from the front of the supply; returns what is still needed.
pub(super) fn serve(
    out: &mut Allocation,
    supply: &mut [(u32, u64)],
    front: &mut usize,
    zone: u32,
    mut amount: u64,
) -> u64 {
    while let Some((source, left)) = supply.get_mut(*front) {
        let given = amount.min(*left);
        out.put(zone as usize, *source as usize, given);
        *left -= given;
        amount -= given;
        if *left == 0 {
            *front += 1;
        }
        if amount == 0 {
            break;
        }
    }
    amount
}

fn share_rest(out: &mut Allocation, rest: &[(u32, u64)]) {
    if rest.is_empty() {
        return;
    }
    let group = out.add_group(Label::Global);
    for &(zone, amount) in rest {
        out.put(group, zone as usize, amount);
    }
    let zones = out.consumers();
    for zone in 0..zones {
        out.set_weight(group, zone, 1.0 / zones as f64);
    }
}
