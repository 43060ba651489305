//! Decides which zones should use each endpoint: runs the heuristic and turns its result into hints,
//! subsets or zone shares.
//!
//! The previous decision is read back from the stored slices, endpoint by endpoint. A restarted
//! controller, another replica and `zonewise plan` on a dump therefore decide the same as the
//! controller that wrote the slices.
//!
//! What is in force is kept as long as it is good enough, so that few slices are written. How much
//! better a fresh decision would be is part of the result, and [`plan`](crate::plan) takes the fresh
//! decision where that costs no write more, or once the Service has been quiet.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::keys::ZONE_SHARES;
use zonewise_common::name::Name;
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::hints::{self, place, place_around};
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::{Situation, Zone};
use zonewise_topology::settling::{Improvement, Quality};
use zonewise_topology::zone_shares::ZoneShares;

use crate::desired::Desired;
use crate::node::Nodes;
use crate::requested::{Choice, Consumers, Near};
use crate::slice::{Endpoint, Hints, MAX_HINTS, Slice, Subset};
use crate::upstream::{NearHints, own_zone};

/// Which zones use each endpoint of an address family, and why.
pub(crate) struct Decision {
    pub(crate) reason: Reason,
    /// The hints of each endpoint; empty when no endpoint has any.
    pub(crate) hints: Vec<Option<Arc<Hints>>>,
    /// The subset of each endpoint; `None` without subsets.
    pub(crate) subsets: Option<Subsets>,
    /// The zone shares that are written on every slice; `None` without shares.
    pub(crate) shares: Option<String>,
    /// What a fresh decision would give instead; `None` if this is one, or would be the same.
    pub(crate) improvement: Option<Improvement>,
}

/// What a decision does with hints, subsets and shares that are in force.
pub(crate) enum Stance<'a> {
    /// Keep them as long as they are good enough.
    Keep,
    /// Decide afresh.
    Afresh,
    /// Decide afresh, but for the endpoints for which this is true: their slices are not written.
    Around(&'a [bool]),
}

/// The division of endpoints into subsets.
pub(crate) struct Subsets {
    /// The subset of each endpoint.
    pub(crate) of: Vec<Subset>,
    /// Subsets that must have a slice even without endpoints.
    pub(crate) required: Vec<Subset>,
}

impl Decision {
    /// No hints, subsets or shares: every client uses every endpoint.
    fn cluster_wide(reason: Reason) -> Self {
        Self { reason, hints: Vec::new(), subsets: None, shares: None, improvement: None }
    }
}

/// The numbers that a decision is based on, for explanations.
#[derive(Debug)]
pub struct Grounds<'a> {
    /// The capacity of each zone or region.
    pub capacity: &'a Capacity,
    /// The capacity together with the number of ready endpoints in each zone or region.
    pub situation: Situation,
    /// The previous decision, as the stored slices show it.
    pub previous: Option<Assignment>,
}

/// The numbers that `decide` bases its decision on.
pub(crate) fn grounds<'a>(
    choice: &Choice,
    desired: &Desired<'_>,
    slices: &[&Slice],
    nodes: &'a Nodes,
) -> Grounds<'a> {
    let consumers = choice.consumers();
    let input = HeuristicInput::new(desired, slices, nodes, consumers, false);
    let previous = input.previous();
    Grounds { capacity: capacity(nodes, consumers), previous, situation: input.situation }
}

/// Decides for one address family.
pub(crate) fn decide(
    choice: &Choice,
    desired: &Desired<'_>,
    slices: &[&Slice],
    nodes: &Nodes,
    stance: &Stance<'_>,
) -> Decision {
    let afresh = matches!(stance, Stance::Afresh);
    match choice {
        Choice::ClusterWide => Decision::cluster_wide(Reason::ClusterWide),
        Choice::Near(near) => nearby(*near, desired, nodes),
        Choice::Heuristic(heuristic) => {
            let mut input = HeuristicInput::new(desired, slices, nodes, None, afresh);
            if let Stance::Around(fixed) = stance {
                input.move_all_but(fixed, &**heuristic);
            }
            input.hints_or_shares(&**heuristic, slices)
        }
        Choice::Subsets(heuristic, consumers) => {
            HeuristicInput::new(desired, slices, nodes, Some(*consumers), afresh)
                .subsets(&**heuristic, *consumers)
        }
    }
}

/// Hints every endpoint to its own zone or node, as `trafficDistribution` requests.
fn nearby(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Decision {
    let mut hints = NearHints::new(near);
    let reason = near_reason(near, desired, nodes);
    let hint = |endpoint: &Endpoint| hints.of(endpoint).filter(|_| endpoint.is_ready());
    Decision {
        hints: desired.endpoints.iter().map(hint).collect(),
        ..Decision::cluster_wide(reason)
    }
}

/// The reason to report when every endpoint is hinted to its own zone or node.
pub(crate) fn near_reason(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Reason {
    let ready = desired.endpoints.iter().filter(|endpoint| endpoint.is_ready());
    let locations: Vec<Option<&str>> = ready.map(|endpoint| endpoint.zone.as_deref()).collect();
    near_reason_of(near, &situation(&locations, nodes, None))
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
        Choice::Heuristic(heuristic) => {
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
        Choice::Heuristic(heuristic) => {
            surely(&**heuristic) && (!heuristic.gives_shares() || ZoneShares::surely_fit(situation))
        }
        Choice::Subsets(heuristic, _) => surely(&**heuristic),
        Choice::ClusterWide | Choice::Near(_) => false,
    }
}

/// How an allocation is written for a heuristic that gives hints or shares: subsets become hints, or
/// shares where hints cannot express them.
fn carried(situation: &Situation, allocation: &Allocation) -> Carrier {
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
fn hints_refused(situation: &Situation, allocation: &Allocation) -> Option<Reason> {
    let groups: Vec<(usize, Vec<u32>)> = (0..allocation.groups().len())
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
fn subset_reason(
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

/// The numbers that a heuristic gets, and what is needed to turn its result into hints or subsets of
/// endpoints.
struct HeuristicInput<'a> {
    situation: Situation,
    endpoints: &'a [Endpoint],
    /// The indexes of the endpoints that are ready, each identity once. Only these count.
    ready: Vec<usize>,
    /// The zone of each ready endpoint; the number of zones for one without a known zone.
    sources: Vec<usize>,
    /// The zones that use each ready endpoint now, by its stored hints or subset.
    serves: Vec<Vec<u32>>,
    /// The stored subset of each endpoint, ready or not.
    subsets: Vec<Option<Subset>>,
    /// Whether endpoints are assigned anew, even if they could stay as they are.
    afresh: bool,
}

impl<'a> HeuristicInput<'a> {
    fn new(
        desired: &'a Desired<'_>,
        slices: &[&Slice],
        nodes: &'a Nodes,
        consumers: Option<Consumers>,
        afresh: bool,
    ) -> Self {
        let unique = desired.unique();
        let counts = |index: &usize| unique[*index] && desired.endpoints[*index].is_ready();
        let ready: Vec<usize> = (0..desired.endpoints.len()).filter(counts).collect();
        let location = |index: &usize| location(&desired.endpoints[*index], nodes, consumers);
        let locations: Vec<Option<&str>> = ready.iter().map(location).collect();
        let situation = situation(&locations, nodes, consumers);
        let number =
            |name: &str| situation.names.binary_search_by(|known| (**known).cmp(name)).ok();
        let unplaced = situation.names.len();
        let sources =
            locations.iter().map(|name| name.and_then(number).unwrap_or(unplaced)).collect();
        let stored = desired.stored(slices);
        let subsets: Vec<Option<Subset>> =
            stored.iter().map(|stored| stored.and_then(|(_, slice)| slice.subset())).collect();
        let serves = ready.iter().map(|&index| match (consumers, stored[index]) {
            (Some(_), _) => {
                let zone = subsets[index].as_ref().map(|subset| subset.label().1);
                zone.and_then(|zone| number(zone)).map(|zone| zone as u32).into_iter().collect()
            }
            (None, Some((endpoint, _))) => {
                let zones = endpoint.zone_hints().iter().filter_map(|zone| number(zone));
                let mut zones: Vec<u32> = zones.map(|zone| zone as u32).collect();
                zones.sort_unstable();
                zones
            }
            (None, None) => Vec::new(),
        });
        let serves = serves.collect();
        Self { situation, endpoints: &desired.endpoints, ready, sources, serves, subsets, afresh }
    }

    /// The previous decision: the endpoints that serve exactly one zone.
    fn previous(&self) -> Option<Assignment> {
        let mut assignment = Assignment::empty(self.situation.zones.len());
        let mut any = false;
        for (source, serves) in self.sources.iter().zip(&self.serves) {
            if let [zone] = serves.as_slice() {
                assignment.add(*source, *zone as usize, 1);
                any = true;
            }
        }
        any.then_some(assignment)
    }

    /// Runs a heuristic.
    fn run(&self, heuristic: &dyn Heuristic, afresh: bool) -> (Allocation, Reason) {
        let previous = self.previous();
        let mut allocation = Allocation::new();
        let case = Case { afresh, ..Case::following(self.situation.region(), previous.as_ref()) };
        let reason = heuristic.allocate_named(&case, &self.situation.names, &mut allocation);
        (allocation, reason)
    }

    /// What a fresh decision would give instead of an allocation that keeps what is in force.
    fn improvement(
        &self,
        heuristic: &dyn Heuristic,
        kept: &Allocation,
        reason: Reason,
    ) -> Option<Improvement> {
        if !matches!(reason, Reason::HintsKept { .. } | Reason::SubsetsKept { .. }) {
            return None;
        }
        let (fresh, _) = self.run(heuristic, true);
        let region = self.situation.region();
        let now = Quality::of(&region, kept).filter(|_| !same_contents(kept, &fresh))?;
        Some(Improvement { now, fresh: Quality::of(&region, &fresh)? })
    }

    /// Lets endpoints serve the zones that a fresh decision hints them to, but for those that are fixed.
    fn move_all_but(&mut self, fixed: &[bool], heuristic: &dyn Heuristic) {
        let (fresh, _) = self.run(heuristic, true);
        if fresh.carrier() != Carrier::Hints {
            return;
        }
        let is_fixed = |index: usize| fixed[self.ready[index]];
        let groups = place_around(&self.placeable(), is_fixed, &fresh);
        for (serves, group) in self.serves.iter_mut().zip(groups) {
            if let Some(group) = group {
                *serves = fresh.zones_served(&fresh.groups()[group]);
            }
        }
    }

    /// The ready endpoints with what they serve now.
    fn placeable(&self) -> Vec<hints::Endpoint<'_>> {
        let endpoints = self.sources.iter().zip(&self.serves);
        endpoints.map(|(&source, serves)| hints::Endpoint { source, serves }).collect()
    }

    /// The group of the allocation that each ready endpoint belongs to.
    fn groups(&self, allocation: &Allocation) -> Vec<Option<usize>> {
        place(&self.placeable(), allocation)
    }

    fn hints_or_shares(&self, heuristic: &dyn Heuristic, slices: &[&Slice]) -> Decision {
        let (allocation, reason) = self.run(heuristic, self.afresh);
        if reason.outcome() != Outcome::InForce {
            return Decision::cluster_wide(reason);
        }
        if self.ready.is_empty() {
            return Decision::cluster_wide(Reason::NoEndpoints);
        }
        match carried(&self.situation, &allocation) {
            Carrier::Plain => Decision::cluster_wide(reason),
            Carrier::Shares => self.shares(&allocation, reason, slices),
            Carrier::Hints | Carrier::NodeHints | Carrier::Subsets => {
                if let Some(reason) = hints_refused(&self.situation, &allocation) {
                    return Decision::cluster_wide(reason);
                }
                let improvement = self.improvement(heuristic, &allocation, reason);
                let hints = self.hints(&allocation);
                Decision { improvement, hints, ..Decision::cluster_wide(reason) }
            }
        }
    }

    fn hints(&self, allocation: &Allocation) -> Vec<Option<Arc<Hints>>> {
        let zones = |group| consumers_of(&self.situation, allocation, group);
        let groups: Vec<Vec<u32>> = (0..allocation.groups().len()).map(zones).collect();
        let hints: Vec<Arc<Hints>> = groups
            .iter()
            .map(|zones| {
                let for_zones = zones.iter().map(|&zone| self.zone_name(zone as usize)).collect();
                Arc::new(Hints { for_zones, for_nodes: Vec::new() })
            })
            .collect();
        let mut of = vec![None; self.endpoints.len()];
        for (&endpoint, group) in self.ready.iter().zip(self.groups(allocation)) {
            // An endpoint that no group is meant for serves its own zone.
            let hinted = group.map(|group| &hints[group]).filter(|one| !one.for_zones.is_empty());
            let own = || self.endpoints[endpoint].zone.as_ref().map(own_zone);
            of[endpoint] = hinted.map(Arc::clone).or_else(own);
        }
        of
    }

    fn zone_name(&self, zone: usize) -> Name {
        Name::from(&*self.situation.names[zone])
    }

    /// Zone shares, with hints beside them for proxies that do not know shares.
    fn shares(&self, allocation: &Allocation, reason: Reason, slices: &[&Slice]) -> Decision {
        let shares = ZoneShares::of(&self.situation, allocation);
        let Some(shares) = shares else { return Decision::cluster_wide(Reason::NoEndpoints) };
        let kept = stored_shares(slices).filter(|(_, stored)| {
            !self.afresh && *stored != shares && stored.is_still_good(&shares, &self.situation)
        });
        let text = match &kept {
            Some((text, _)) => Ok((*text).to_owned()),
            None => shares.encode(),
        };
        let (hints, of_hints) = self.hints_beside_shares();
        let of_shares = kept.map(|(_, stored)| Improvement {
            now: stored.quality(&self.situation),
            fresh: shares.quality(&self.situation),
        });
        let reason = match (reason, of_shares) {
            (Reason::SharesBalanced { .. }, Some(Improvement { now, .. })) => {
                Reason::SharesBalanced { in_zone: now.in_zone, max_overload: now.max_overload }
            }
            _ => reason,
        };
        let larger = |a: Improvement, b: Improvement| if b.gain() > a.gain() { b } else { a };
        let improvement = of_shares.into_iter().chain(of_hints).reduce(larger);
        match text {
            Ok(text) => Decision {
                shares: Some(text),
                hints,
                improvement,
                ..Decision::cluster_wide(reason)
            },
            Err(reason) => Decision::cluster_wide(reason),
        }
    }

    /// The hints, and what a fresh decision about them would give.
    fn hints_beside_shares(&self) -> (Vec<Option<Arc<Hints>>>, Option<Improvement>) {
        let (allocation, reason) = self.run(&Auto::KEP_2433, self.afresh);
        match reason.outcome() {
            Outcome::InForce => {
                let improvement = self.improvement(&Auto::KEP_2433, &allocation, reason);
                (self.hints(&allocation), improvement)
            }
            _ => (Vec::new(), None),
        }
    }

    fn subsets(&self, heuristic: &dyn Heuristic, consumers: Consumers) -> Decision {
        let (allocation, reason) = self.run(heuristic, self.afresh);
        if reason.outcome() != Outcome::InForce || allocation.carrier() != Carrier::Subsets {
            let reason = subset_reason(&self.situation, &allocation, reason, consumers);
            return Decision::cluster_wide(reason);
        }
        let subset = |zone: usize| match consumers {
            Consumers::Zones => Subset::Zone(self.zone_name(zone)),
            Consumers::Regions => Subset::Region(self.zone_name(zone)),
        };
        let with_nodes =
            (0..self.situation.zones.len()).filter(|&zone| self.situation.zones[zone].nodes > 0);
        let all: Vec<Subset> = with_nodes.map(subset).collect();
        let Some(first) = all.first() else {
            return Decision::cluster_wide(Reason::NoZoneWithEndpoints);
        };
        // An endpoint that is not ready stays in its subset, so that no slice changes for that reason
        // alone when it becomes ready.
        let mut of: Vec<Subset> = self
            .subsets
            .iter()
            .zip(self.endpoints)
            .map(|(stored, endpoint)| {
                subset_of_unready(stored.as_ref(), endpoint, &all).unwrap_or(first).clone()
            })
            .collect();
        for (&endpoint, group) in self.ready.iter().zip(self.groups(&allocation)) {
            if let Some(Label::Zone(zone)) = group.map(|group| allocation.groups()[group].label) {
                of[endpoint] = subset(zone as usize);
            }
        }
        let required = match reason {
            Reason::ZoneRequired { .. } => all,
            _ => Vec::new(),
        };
        Decision {
            subsets: Some(Subsets { of, required }),
            improvement: self.improvement(heuristic, &allocation, reason),
            ..Decision::cluster_wide(subset_reason(&self.situation, &allocation, reason, consumers))
        }
    }
}

/// The subset of an endpoint that is not ready: the stored one, otherwise that of its zone.
fn subset_of_unready<'s>(
    stored: Option<&Subset>,
    endpoint: &Endpoint,
    all: &'s [Subset],
) -> Option<&'s Subset> {
    let known = all.iter().find(|subset| Some(*subset) == stored);
    known.or_else(|| all.iter().find(|subset| endpoint.zone.as_ref() == Some(subset.label().1)))
}

/// The zone of an endpoint, or its region for subsets of regions.
fn location<'a>(
    endpoint: &'a Endpoint,
    nodes: &'a Nodes,
    consumers: Option<Consumers>,
) -> Option<&'a str> {
    match consumers {
        Some(Consumers::Regions) => {
            let node = endpoint.node.as_ref().and_then(|name| nodes.by_name.get(name));
            node.and_then(|node| node.region.as_deref())
        }
        _ => endpoint.zone.as_deref(),
    }
}

fn situation(locations: &[Option<&str>], nodes: &Nodes, consumers: Option<Consumers>) -> Situation {
    let mut counts: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for name in locations.iter().flatten() {
        match counts.get_mut(*name) {
            Some(count) => *count += 1,
            None => {
                counts.insert((*name).into(), 1);
            }
        }
    }
    let unplaced = locations.iter().filter(|name| name.is_none()).count() as u64;
    Situation::new(capacity(nodes, consumers), &counts, unplaced)
}

fn capacity(nodes: &Nodes, consumers: Option<Consumers>) -> &Capacity {
    match consumers {
        None => &nodes.zones,
        Some(Consumers::Zones) => &nodes.zones_counted,
        Some(Consumers::Regions) => &nodes.regions_counted,
    }
}

/// The zones that use a group of endpoints. If the group names none, all zones that send traffic to
/// it. A zone that no group is meant for needs no hint: clients in a zone without hints use all
/// endpoints.
fn consumers_of(situation: &Situation, allocation: &Allocation, group: usize) -> Vec<u32> {
    let group_of = &allocation.groups()[group];
    let named = allocation.zones_served(group_of);
    if !named.is_empty() {
        return named;
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

/// Whether two allocations put the same endpoints into the same groups.
fn same_contents(one: &Allocation, other: &Allocation) -> bool {
    one.groups() == other.groups()
        && (0..one.groups().len()).all(|group| one.contents_of(group) == other.contents_of(group))
}

/// The stored zone shares, if every slice carries the same.
fn stored_shares<'s>(slices: &[&'s Slice]) -> Option<(&'s str, ZoneShares)> {
    let text = slices.first()?.annotations.get(ZONE_SHARES)?;
    let same = |slice: &&Slice| slice.annotations.get(ZONE_SHARES) == Some(text);
    slices
        .iter()
        .all(same)
        .then(|| ZoneShares::decode(text).ok())
        .flatten()
        .map(|shares| (text, shares))
}
