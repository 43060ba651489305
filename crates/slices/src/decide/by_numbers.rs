//! What numbers alone decide: the reason for what is in force, how an allocation is written, and why it cannot be.

use std::borrow::Cow;

use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::{Situation, Zone};
use zonewise_topology::zone_shares::ZoneShares;

use crate::desired::{Desired, DesiredEndpoint};
use crate::node::Nodes;
use crate::numbers::{InForce, Kinds, Traits};
use crate::requested::{Choice, Consumers, Near};
use crate::slice::MAX_HINTS;

/// The reason to report when every endpoint is hinted to its own zone or node.
pub(crate) fn near_reason<'a>(near: Near, desired: &Desired<'a>, nodes: &Nodes) -> Reason {
    let traits = |endpoint: &DesiredEndpoint<'a>| Traits {
        counts: endpoint.is_ready(),
        location: endpoint.zone(),
        in_force: InForce::New,
    };
    let kinds: Kinds<'_> = desired.endpoints.iter().map(traits).collect();
    near_reason_of(near, &kinds.situation(&nodes.zones))
}

/// The same by numbers. Proxies ignore all zone hints if one endpoint has none; for node hints, it does
/// not matter whether nodes have a zone.
fn near_reason_of(near: Near, situation: &Situation) -> Reason {
    let unplaced = situation.unplaced;
    let sending = || situation.zones.iter().filter(|zone| zone.nodes > 0);
    let bare = sending().filter(|zone| zone.endpoints == 0).count();
    let zones_without_endpoints = bare as u64;
    let placed = situation.zones.iter().any(|zone| zone.endpoints > 0);
    match near {
        _ if unplaced == 0 && !placed => Reason::NoEndpoints,
        Near::Zone if unplaced > 0 => Reason::EndpointsWithoutZone { endpoints: unplaced },
        Near::Node if !placed => Reason::EndpointsWithoutZone { endpoints: unplaced },
        _ if bare == sending().count() => Reason::NoZoneWithEndpoints,
        Near::Zone => Reason::OwnZone { zones_without_endpoints },
        Near::Node => Reason::OwnNode { zones_without_endpoints, endpoints_without_zone: unplaced },
    }
}

/// The reason for a decision that keeps what is in force if it may, by numbers alone. It has the same
/// outcome as what `decide` gives for these numbers, and costs a small part of it.
pub fn kept_reason(
    choice: &Choice,
    situation: &Situation,
    previous: Option<&Assignment>,
) -> Reason {
    let run = |heuristic: &dyn Heuristic| {
        let mut allocation = Allocation::new();
        let case = Case::following(situation.region(), previous);
        let reason = heuristic.allocate_named(&case, &situation.names, &mut allocation);
        (allocation, reason)
    };
    match choice {
        Choice::ClusterWide => Reason::ClusterWide,
        Choice::Near(near) => near_reason_of(*near, situation),
        Choice::Heuristic(heuristic) | Choice::WeightedShares(heuristic) => {
            let (allocation, reason) = run(&**heuristic);
            let refused = || match carried(situation, &allocation) {
                Carrier::Plain => None,
                Carrier::Shares => shares_refused(situation, &allocation),
                _ => hints_refused(situation, &allocation),
            };
            match reason.outcome() {
                Outcome::InForce if situation.region().present() == 0 => Reason::NoEndpoints,
                Outcome::InForce => refused().unwrap_or(reason),
                _ => reason,
            }
        }
        Choice::Subsets(heuristic, consumers) => {
            let (allocation, reason) = run(&**heuristic);
            subset_reason(situation, &allocation, reason, *consumers)
        }
    }
}

/// Whether [`kept_reason`] is in force, where that is known by a glance at the numbers; `false` means
/// nothing. `serving` is the number of endpoints that serve each zone by what is in force, if anything is.
pub fn is_surely_in_force(choice: &Choice, situation: &Situation, serving: Option<&[u64]>) -> bool {
    let surely =
        |heuristic: &dyn Heuristic| heuristic.is_surely_in_force(&situation.region(), serving);
    match choice {
        Choice::Heuristic(heuristic) | Choice::WeightedShares(heuristic) => {
            surely(&**heuristic) && (!heuristic.gives_shares() || ZoneShares::surely_fit(situation))
        }
        Choice::Subsets(heuristic, _) => surely(&**heuristic),
        Choice::ClusterWide | Choice::Near(_) => false,
    }
}

/// How an allocation is written for a heuristic that gives hints or shares: subsets become hints, or
/// shares where hints cannot express them.
pub(super) fn carried(situation: &Situation, allocation: &Allocation) -> Carrier {
    match allocation.carrier() {
        Carrier::Subsets if is_weighted(situation, allocation) => Carrier::Shares,
        Carrier::Subsets => Carrier::Hints,
        carrier => carrier,
    }
}

/// Why the shares of an allocation cannot be written.
fn shares_refused(situation: &Situation, allocation: &Allocation) -> Option<Reason> {
    if situation.region().present() > 0 && ZoneShares::surely_fit_of(situation, allocation) {
        return None;
    }
    match ZoneShares::of(situation, allocation) {
        Some(shares) => shares.encode().err(),
        None => Some(Reason::NoEndpoints),
    }
}

/// Why the hints of an allocation cannot be written, or would not be used: proxies ignore all hints if
/// one ready endpoint has none, and in a zone that no endpoint is hinted to.
pub(super) fn hints_refused(situation: &Situation, allocation: &Allocation) -> Option<Reason> {
    let groups: Vec<(usize, Cow<'_, [u32]>)> = (0..allocation.groups().len())
        .map(|group| (group, consumers_of(situation, allocation, group)))
        .filter(|(_, zones)| !zones.is_empty())
        .collect();
    let most = groups.iter().map(|(_, zones)| zones.len()).max().unwrap_or(0);
    if most > MAX_HINTS {
        let (zones, limit) = (most as u64, MAX_HINTS as u64);
        return Some(Reason::TooManyZonesForHints { zones, limit });
    }
    let hinted =
        |source: usize| groups.iter().map(|(group, _)| allocation.content(*group, source)).sum();
    let unplaced: u64 = if situation.unplaced > 0 { hinted(situation.zones.len()) } else { 0 };
    if unplaced < situation.unplaced {
        return Some(Reason::EndpointsWithoutZone { endpoints: situation.unplaced - unplaced });
    }
    let sends = |zone: usize| situation.zones[zone].share > 0.0;
    let by_group = groups.iter().any(|(group, zones)| {
        allocation.groups()[*group].size > 0 && zones.iter().any(|&zone| sends(zone as usize))
    });
    // An endpoint that no group is meant for serves its own zone.
    let by_zone = || {
        let mut zones = (0..situation.zones.len()).filter(|&zone| sends(zone));
        zones.any(|zone| hinted(zone) < situation.zones[zone].endpoints)
    };
    (!by_group && !by_zone()).then_some(Reason::NoZoneWithEndpoints)
}

/// The reason for subsets, once it is known which of them nodes use.
pub(super) fn subset_reason(
    situation: &Situation,
    allocation: &Allocation,
    reason: Reason,
    consumers: Consumers,
) -> Reason {
    let uses_own = |(zone, input): (usize, &Zone)| {
        input.share > 0.0 && allocation.groups().get(zone).is_some_and(|group| group.size > 0)
    };
    match reason {
        Reason::OneZoneOnly if consumers == Consumers::Regions => Reason::OneRegionOnly,
        Reason::ZoneRequired { .. } if !situation.zones.iter().enumerate().any(uses_own) => {
            Reason::NoZoneWithEndpoints
        }
        _ => reason,
    }
}

/// The zones that use a group of endpoints. If the group names none, all zones that send traffic to
/// it. A zone that no group is meant for needs no hint: clients in a zone without hints use all
/// endpoints.
pub(super) fn consumers_of<'a>(
    situation: &Situation,
    allocation: &'a Allocation,
    group: usize,
) -> Cow<'a, [u32]> {
    let named = allocation.zones_served(&allocation.groups()[group]);
    if !named.is_empty() {
        return named.into();
    }
    let sends =
        |zone: &usize| situation.zones[*zone].share > 0.0 && allocation.weight(group, *zone) > 0.0;
    (0..situation.zones.len()).filter(sends).map(|zone| zone as u32).collect()
}

/// Whether some zone should send more traffic to one endpoint than to another. Hints cannot express
/// that; zone shares can.
fn is_weighted(situation: &Situation, allocation: &Allocation) -> bool {
    let used = |group: &usize| allocation.groups()[*group].size > 0;
    (0..situation.zones.len()).filter(|&zone| situation.zones[zone].share > 0.0).any(|zone| {
        let groups = (0..allocation.groups().len()).filter(used);
        let mut weights =
            groups.map(|group| allocation.weight(group, zone)).filter(|weight| *weight > 0.0);
        let first = weights.next();
        weights.any(|weight| Some(weight) != first)
    })
}
