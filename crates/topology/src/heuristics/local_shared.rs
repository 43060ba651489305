//! `local-shared`: as `local`, but zones without endpoints share one *merged* group, and zones that
//! stay overloaded are put together into one *shared* group.

use super::pools::{Order, Pools};
use super::zone_groups::{overload_too_high, too_many};
use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::number::{to_f64, to_u64};
use crate::reason::Reason;
use crate::region::Region;
use crate::threshold::OVERLOAD_THRESHOLD;

/// The heuristic `local-shared`.
pub(super) struct LocalShared;

/// Why the algorithm gave up.
enum GaveUp {
    /// No zone can give any more: every zone uses every endpoint.
    NoDonor,
    /// The tool's loop would not end.
    NeverSettles,
}

impl Heuristic for LocalShared {
    fn name(&self) -> &str {
        "local-shared"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let zones = region.zones.len() as u64;
        let reason = if let Some(reason) = too_many(region) {
            reason
        } else if region.total < zones {
            Reason::TooFewEndpoints { endpoints: region.total, zones }
        } else {
            match assign(region, out) {
                Ok(()) => Reason::GroupsAssigned,
                Err(GaveUp::NeverSettles) => Reason::NeverSettles,
                Err(GaveUp::NoDonor) => overload_too_high(region, OVERLOAD_THRESHOLD),
            }
        };
        if reason != Reason::GroupsAssigned {
            out.everywhere(region, Carrier::Plain);
        }
        reason
    }
}

/// The queues the algorithm works on, taken from the allocation's scratch space.
struct Queues {
    donors: Vec<u32>,
    /// Zones with a local group, except hot ones.
    receivers: Vec<u32>,
    /// Zones that stay overloaded.
    hot: Vec<u32>,
}

fn assign(region: &Region<'_>, out: &mut Allocation) -> Result<(), GaveUp> {
    // Without traffic every zone stays a donor forever.
    let idle = region.zones.iter().all(|zone| zone.nodes == 0 && zone.share == 0.0);
    if idle && region.zones.iter().any(|zone| zone.endpoints >= 2) {
        return Err(GaveUp::NeverSettles);
    }
    out.begin(region, Carrier::Subsets);
    out.local_groups(region);
    let merged = add_merged_group(region, out);
    let mut pools = Pools::new(region, out);
    let mut queues = Queues {
        donors: pools.donors(),
        receivers: std::mem::take(&mut pools.out.scratch.everyone),
        hot: std::mem::take(&mut pools.out.scratch.hot),
    };
    let result = balance(&mut pools, merged, &mut queues);
    let out = pools.finish();
    if result.is_ok() {
        drop_unused_groups(region, out, &queues.hot, matches!(result, Ok(true)));
    }
    out.scratch.donors = queues.donors;
    out.scratch.everyone = queues.receivers;
    out.scratch.hot = queues.hot;
    result.map(|_| ())
}

/// Adds the group of the zones without endpoints, empty, with its name and consumers; returns how
/// many endpoints it should get. Without any traffic from those zones there is no such group.
fn add_merged_group(region: &Region<'_>, out: &mut Allocation) -> u64 {
    let urgent = || (0..region.zones.len()).filter(|&zone| region.zones[zone].endpoints == 0);
    let wanted =
        urgent().fold(0.0, |sum, zone| sum + region.zones[zone].share * to_f64(region.total));
    if wanted == 0.0 {
        return 0;
    }
    let group = out.add_group(Label::Merged);
    for zone in urgent() {
        out.name_zone(zone as u32);
        out.set_weight(group, zone, 1.0);
    }
    if wanted >= 1.0 {
        to_u64(((wanted * 1000.0).ceil() / 1000.0).round())
    } else {
        to_u64(wanted.ceil())
    }
}

/// Runs all steps; true if the hot zones ended in a shared group.
fn balance(pools: &mut Pools<'_>, merged: u64, queues: &mut Queues) -> Result<bool, GaveUp> {
    let Queues { donors, receivers, hot } = queues;
    receivers.clear();
    receivers
        .extend((0..pools.expected.len() as u32).filter(|&zone| pools.size(zone as usize) > 0));
    serve_needs(pools, merged, donors)?;
    pools.build(receivers, Order::Receivers);
    hot.clear();
    while let Some(&zone) = receivers.first().filter(|zone| pools.overloaded(**zone as usize)) {
        pools.pop(receivers, Order::Receivers);
        hot.push(zone);
    }
    let sharing = !hot.is_empty() && cool_down(pools, donors, hot)?;
    spend_surplus(pools, donors, receivers)?;
    Ok(sharing)
}

/// Serves the merged group, then each zone that lacks a whole endpoint, one endpoint at a time.
fn serve_needs(pools: &mut Pools<'_>, merged: u64, donors: &mut Vec<u32>) -> Result<(), GaveUp> {
    let zones = pools.expected.len();
    let mut needs = std::mem::take(&mut pools.out.scratch.need);
    needs.clear();
    if merged > 0 {
        needs.push((zones as u32, merged));
    }
    for zone in 0..zones {
        let surplus = pools.surplus(zone);
        if pools.size(zone) > 0 && surplus <= -1.0 {
            needs.push((zone as u32, to_u64(-surplus)));
        }
    }
    let served = needs.iter().all(|&(group, amount)| {
        let mut left = amount;
        while left > 0 {
            match pools.give_first(donors, group as usize, left) {
                0 => return false,
                given => left -= given,
            }
        }
        true
    });
    pools.out.scratch.need = needs;
    if served { Ok(()) } else { Err(GaveUp::NoDonor) }
}

/// Gives each hot zone one endpoint from zones with a surplus; where those run out, puts the hot
/// zones together into one shared group instead (true).
fn cool_down(pools: &mut Pools<'_>, donors: &mut Vec<u32>, hot: &[u32]) -> Result<bool, GaveUp> {
    let mut extra = std::mem::take(&mut pools.out.scratch.extra);
    extra.clear();
    extra.resize(pools.expected.len(), 0);
    let shared = collect_extra(pools, donors, hot, &mut extra);
    match shared {
        Ok(true) => make_shared_group(pools, hot, &extra),
        Ok(false) => hand_out(pools, hot, &extra),
        Err(_) => {}
    }
    pools.out.scratch.extra = extra;
    shared
}

fn collect_extra(
    pools: &mut Pools<'_>,
    donors: &mut Vec<u32>,
    hot: &[u32],
    extra: &mut [u64],
) -> Result<bool, GaveUp> {
    let own: u64 = hot.iter().map(|&zone| pools.size(zone as usize)).sum();
    let mut taken = 0;
    while taken < hot.len() as u64 {
        let has_surplus = donors.first().is_some_and(|&zone| pools.surplus(zone as usize) >= 1.0);
        if !has_surplus {
            while !pools.enough(hot, own + taken) {
                take_one(pools, donors, extra)?;
                taken += 1;
            }
            return Ok(true);
        }
        take_one(pools, donors, extra)?;
        taken += 1;
    }
    Ok(false)
}

fn take_one(pools: &mut Pools<'_>, donors: &mut Vec<u32>, extra: &mut [u64]) -> Result<(), GaveUp> {
    let donor = pools.pop(donors, Order::Donors).ok_or(GaveUp::NoDonor)?;
    pools.out.take(donor, donor, 1);
    extra[donor] += 1;
    pools.rejoin(donors, donor);
    Ok(())
}

/// One extra endpoint to each hot zone, sources in the order of their names.
fn hand_out(pools: &mut Pools<'_>, hot: &[u32], extra: &[u64]) {
    let mut sources = extra
        .iter()
        .enumerate()
        .flat_map(|(zone, &count)| std::iter::repeat_n(zone, count as usize));
    for &zone in hot {
        if let Some(source) = sources.next() {
            pools.out.put(zone as usize, source, 1);
        }
    }
}

fn make_shared_group(pools: &mut Pools<'_>, hot: &[u32], extra: &[u64]) {
    let group = pools.out.add_group(Label::Shared);
    for &zone in hot {
        pools.out.name_zone(zone);
        pools.out.set_weight(group, zone as usize, 1.0);
        for source in 0..pools.out.sources() {
            let count = pools.out.content(zone as usize, source);
            pools.out.put(group, source, count);
        }
    }
    for (source, &count) in extra.iter().enumerate() {
        pools.out.put(group, source, count);
    }
}

/// Gives whole surplus endpoints to the most loaded zones.
fn spend_surplus(
    pools: &mut Pools<'_>,
    donors: &mut Vec<u32>,
    receivers: &mut Vec<u32>,
) -> Result<(), GaveUp> {
    let total: u64 = pools.out.groups().iter().map(|group| group.size).sum();
    let mut moves_left = 4 * total + 1000;
    while let Some(donor) = pools.pop(donors, Order::Donors) {
        if pools.surplus(donor) < 1.0 {
            break;
        }
        let Some(zone) = pools.pop(receivers, Order::Receivers) else {
            break;
        };
        // The receiver takes its place before the donor has lost anything: the order matters.
        pools.out.put(zone, donor, 1);
        pools.push(receivers, zone, Order::Receivers);
        pools.out.take(donor, donor, 1);
        pools.rejoin(donors, donor);
        moves_left -= 1;
        if moves_left == 0 {
            return Err(GaveUp::NeverSettles);
        }
    }
    Ok(())
}

/// Drops the local groups of zones that had no endpoint and, if a shared group took their place,
/// of the hot zones.
fn drop_unused_groups(region: &Region<'_>, out: &mut Allocation, hot: &[u32], sharing: bool) {
    if !sharing && region.zones.iter().all(|zone| zone.endpoints > 0) {
        return;
    }
    out.retain_groups(|group| match group.label {
        Label::Zone(zone) => {
            region.zones[zone as usize].endpoints > 0 && !(sharing && hot.contains(&zone))
        }
        _ => true,
    });
}
