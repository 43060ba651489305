//! One group per zone: what the heuristics that assign endpoints to zones have in common. Group `z`
//! of the allocation is the local group of zone `z`.

use crate::allocation::{Allocation, Carrier};
use crate::heuristic::Assignment;
use crate::number::to_f64;
use crate::reason::Reason;
use crate::region::Region;

/// Puts assigned endpoints where they were and new ones into their own zone's group.
pub(super) fn keep_assigned(
    region: &Region<'_>,
    previous: &Assignment,
    out: &mut Allocation,
    carrier: Carrier,
) {
    out.begin(region, carrier);
    out.zone_groups();
    for (zone, input) in region.zones.iter().enumerate() {
        out.put(zone, zone, input.endpoints - previous.assigned_from(zone));
    }
    // Nearly all counts are 0 where there are many zones.
    for source in 0..region.sources() {
        for zone in (0..region.zones.len()).filter(|&zone| previous.count(source, zone) > 0) {
            out.put(zone, source, previous.count(source, zone));
        }
    }
}

/// Gives endpoints that have no zone, one at a time, to the zone that lacks most.
pub(super) fn place_unplaced(region: &Region<'_>, out: &mut Allocation, endpoints: u64) {
    let source = region.zones.len();
    for _ in 0..endpoints {
        let lack = |zone: usize| region.expected(zone) - to_f64(out.groups()[zone].size);
        if let Some(zone) = first_by(0..region.zones.len(), lack) {
            out.put(zone, source, 1);
        }
    }
}

/// The largest expected overload of any zone.
pub(super) fn highest_overload(region: &Region<'_>, out: &Allocation) -> f64 {
    overload_with(region, |zone| out.groups()[zone].size)
}

/// The same, if so many endpoints serve each zone.
pub(super) fn overload_with(region: &Region<'_>, serving: impl Fn(usize) -> u64) -> f64 {
    (0..region.zones.len())
        .filter(|&zone| region.zones[zone].share > 0.0)
        .map(|zone| region.expected(zone) / to_f64(serving(zone)) - 1.0)
        .fold(0.0, f64::max)
}

/// Why there is nothing to divide among zones, in the order in which the reference checks.
pub(super) fn nothing_to_divide(region: &Region<'_>) -> Option<Reason> {
    match region.consuming_zones() {
        0 => Some(Reason::NodeInformationMissing { nodes: region.unknown_nodes }),
        _ if region.unknown_nodes > 0 => {
            Some(Reason::NodeInformationMissing { nodes: region.unknown_nodes })
        }
        1 => Some(Reason::OneZoneOnly),
        _ if region.total == 0 => Some(Reason::NoEndpoints),
        _ => None,
    }
}

/// The refusal of a region that cannot be balanced, with its most loaded zone.
pub(super) fn overload_too_high(region: &Region<'_>, limit: f64) -> Reason {
    let load = |zone: usize| region.expected(zone) / to_f64(region.zones[zone].endpoints);
    let sending = (0..region.zones.len()).filter(|&zone| region.zones[zone].share > 0.0);
    let zone = first_by(sending, load).unwrap_or(0);
    Reason::OverloadTooHigh {
        zone: zone as u32,
        expected: region.expected(zone),
        present: region.zones[zone].endpoints,
        limit,
    }
}

/// The zone with the largest key; of equal ones the first by name.
pub(super) fn first_by(
    zones: impl Iterator<Item = usize>,
    key: impl Fn(usize) -> f64,
) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for zone in zones {
        let value = key(zone);
        if best.is_none_or(|(_, largest)| value > largest) {
            best = Some((zone, value));
        }
    }
    best.map(|(zone, _)| zone)
}

/// A bound for algorithms that move endpoints one at a time, each time looking at every zone.
/// Above it a single decision would take seconds; no Service comes near it.
pub(super) fn too_many(region: &Region<'_>) -> Option<Reason> {
    const LIMIT: u64 = 150_000_000;
    let limit = LIMIT / region.zones.len().max(1) as u64;
    (region.total > limit).then_some(Reason::TooManyEndpoints { endpoints: region.total, limit })
}
