//! `local-weighted`: as `local-opt`, with fractions: an endpoint that a zone needs only in part is
//! shared with zones that need the other part, by weight.

use super::local_opt::serve;
use crate::allocation::{Allocation, Carrier, Fraction, Label};
use crate::heuristic::{Case, Heuristic};
use crate::number::{to_f64, to_u64};
use crate::reason::Reason;
use crate::region::Region;

/// The heuristic `local-weighted`.
pub(super) struct LocalWeighted;

/// The lists the algorithm works on, taken from the allocation's scratch space.
#[derive(Default)]
struct Lists {
    supply: Vec<(u32, u64)>,
    need: Vec<(u32, u64)>,
    parts: Vec<Fraction>,
    wanted: Vec<Fraction>,
}

impl Heuristic for LocalWeighted {
    fn name(&self) -> &str {
        "local-weighted"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        out.begin(region, Carrier::Subsets);
        let mut lists = take_buffers(out);
        keep_whole_endpoints(region, out, &mut lists);
        serve_whole_needs(out, &mut lists);
        let mut front = 0;
        for index in 0..lists.parts.len() {
            share_part(out, lists.parts[index], &mut lists.wanted, &mut front);
        }
        return_buffers(out, lists);
        Reason::GroupsAssigned
    }
}

fn take_buffers(out: &mut Allocation) -> Lists {
    let mut lists = Lists {
        supply: std::mem::take(&mut out.scratch.supply),
        need: std::mem::take(&mut out.scratch.need),
        parts: std::mem::take(&mut out.scratch.fractional_supply),
        wanted: std::mem::take(&mut out.scratch.fractional_need),
    };
    lists.supply.clear();
    lists.need.clear();
    lists.parts.clear();
    lists.wanted.clear();
    lists
}

fn return_buffers(out: &mut Allocation, lists: Lists) {
    out.scratch.supply = lists.supply;
    out.scratch.need = lists.need;
    out.scratch.fractional_supply = lists.parts;
    out.scratch.fractional_need = lists.wanted;
}

fn fraction(zone: u32, amount: u64, weight: f64, local: bool) -> Fraction {
    Fraction { zone, amount, weight, local }
}

/// Makes the local groups and notes what is over or missing, whole and in fractions.
fn keep_whole_endpoints(region: &Region<'_>, out: &mut Allocation, lists: &mut Lists) {
    out.zone_groups();
    for (index, input) in region.zones.iter().enumerate() {
        let zone = index as u32;
        let expected = input.share * to_f64(region.total);
        let surplus = to_f64(input.endpoints) - expected;
        let whole = surplus.trunc();
        let part = surplus - whole;
        let mut kept = to_u64(expected);
        if whole > 0.0 {
            lists.supply.push((zone, to_u64(whole)));
        } else if whole < 0.0 {
            kept = input.endpoints;
            lists.need.push((zone, to_u64(-whole)));
        }
        if part > 0.0 {
            lists.parts.push(fraction(zone, 1, 1.0 - part, true));
        } else if part < 0.0 {
            lists.wanted.push(fraction(zone, 1, -part, false));
        }
        out.put(index, index, kept);
    }
}

/// Serves whole needs; what stays unserved or unused joins the fractions.
fn serve_whole_needs(out: &mut Allocation, lists: &mut Lists) {
    let mut front = 0;
    for &(zone, amount) in &lists.need {
        let rest = serve(out, &mut lists.supply, &mut front, zone, amount);
        if rest > 0 {
            lists.wanted.push(fraction(zone, rest, 1.0, false));
        }
    }
    for &(zone, amount) in &lists.supply[front..] {
        lists.parts.push(fraction(zone, amount, 1.0, false));
    }
}

/// Makes the shared group of one part and divides its weight among the zones that want it, front
/// first.
fn share_part(out: &mut Allocation, part: Fraction, wanted: &mut [Fraction], front: &mut usize) {
    let group = out.add_group(Label::Shared);
    out.put(group, part.zone as usize, part.amount);
    let amount = to_f64(part.amount);
    let mut left = part.weight;
    if part.local {
        out.set_weight(group, part.zone as usize, left);
        out.name_zone(part.zone);
        left = 1.0 - left;
    }
    while let Some(want) = wanted.get_mut(*front) {
        let zone = want.zone as usize;
        let asked = to_f64(want.amount) * want.weight;
        let gap = asked - amount * left;
        out.name_zone(want.zone);
        let before = out.weight(group, zone);
        if gap >= 0.0 {
            out.set_weight(group, zone, before + left);
            if gap > 0.0 {
                *want = fraction(want.zone, 1, gap, false);
            } else {
                *front += 1;
            }
            break;
        }
        out.set_weight(group, zone, before + asked / amount);
        left -= out.weight(group, zone);
        *front += 1;
    }
    replace_namesake(out, group);
}

/// Groups are told apart by name: a later one takes the place of an earlier one.
fn replace_namesake(out: &mut Allocation, newest: usize) {
    let same = |group: usize| {
        let (old, new) = (&out.groups()[group], &out.groups()[newest]);
        old.label == Label::Shared && out.zones_in_label(old) == out.zones_in_label(new)
    };
    if let Some(earlier) = (0..newest).find(|&group| same(group)) {
        out.remove_group(earlier);
    }
}
