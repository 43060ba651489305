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

use std::borrow::Cow;
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

use crate::desired::{Desired, DesiredEndpoint};
use crate::node::Nodes;
use crate::numbers::{Locations, ZoneSets};
use crate::requested::{Choice, Consumers, Near};
use crate::slice::{Hints, MAX_HINTS, Subset};
use crate::stored::Stored;
use crate::upstream::{NearHints, own_zone};

/// Which zones use each endpoint of an address family, and why.
pub(crate) struct Decision {
    pub(crate) reason: Reason,
    /// The hints of each endpoint.
    pub(crate) hints: AssignedHints,
    /// The subset of each endpoint; `None` without subsets.
    pub(crate) subsets: Option<Subsets>,
    /// The zone shares that are written on every slice; `None` without shares.
    pub(crate) shares: Option<String>,
    /// What a fresh decision would give instead; `None` if this is one, or would be the same.
    pub(crate) improvement: Option<Improvement>,
}

/// The hints of desired endpoints. There are few different ones, so each endpoint has the number of its own.
#[derive(Default)]
pub(crate) struct AssignedHints {
    values: Vec<Option<Arc<Hints>>>,
    /// The index in `values` for each endpoint; empty when no endpoint has hints.
    numbers: Vec<u32>,
}

impl AssignedHints {
    /// The hints of an endpoint.
    pub(crate) fn of(&self, endpoint: usize) -> Option<&Arc<Hints>> {
        let number = self.numbers.get(endpoint)?;
        self.values[*number as usize].as_ref()
    }
}

impl FromIterator<Option<Arc<Hints>>> for AssignedHints {
    fn from_iter<I: IntoIterator<Item = Option<Arc<Hints>>>>(hints: I) -> Self {
        let values: Vec<Option<Arc<Hints>>> = hints.into_iter().collect();
        Self { numbers: (0..values.len() as u32).collect(), values }
    }
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
    pub(crate) fn cluster_wide(reason: Reason) -> Self {
        Self {
            reason,
            hints: AssignedHints::default(),
            subsets: None,
            shares: None,
            improvement: None,
        }
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

/// The numbers that [`Decider`] bases its decisions on.
pub(crate) fn grounds<'a>(
    choice: &Choice,
    desired: &Desired<'_>,
    stored: &Stored<'_>,
    nodes: &'a Nodes,
) -> Grounds<'a> {
    let consumers = choice.consumers();
    let input = HeuristicInput::new(desired, stored, nodes, consumers);
    let HeuristicInput { situation, previous, .. } = input;
    Grounds { capacity: capacity(nodes, consumers), situation, previous }
}

/// Decides for one address family, as often as is asked.
pub(crate) enum Decider<'a> {
    ClusterWide,
    Near(Near, &'a Desired<'a>, &'a Nodes),
    Hints(&'a dyn Heuristic, HeuristicInput<'a>),
    Subsets(&'a dyn Heuristic, Consumers, HeuristicInput<'a>),
}

impl<'a> Decider<'a> {
    pub(crate) fn new(
        choice: &'a Choice,
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
    ) -> Self {
        let input = |consumers| HeuristicInput::new(desired, stored, nodes, consumers);
        match choice {
            Choice::ClusterWide => Self::ClusterWide,
            Choice::Near(near) => Self::Near(*near, desired, nodes),
            Choice::Heuristic(heuristic) => Self::Hints(&**heuristic, input(None)),
            Choice::Subsets(heuristic, consumers) => {
                Self::Subsets(&**heuristic, *consumers, input(Some(*consumers)))
            }
        }
    }

    pub(crate) fn decide(&self, stance: &Stance<'_>) -> Decision {
        let afresh = matches!(stance, Stance::Afresh);
        match (self, stance) {
            (Self::ClusterWide, _) => Decision::cluster_wide(Reason::ClusterWide),
            (Self::Near(near, desired, nodes), _) => nearby(*near, desired, nodes),
            (Self::Hints(heuristic, input), Stance::Around(fixed)) => {
                input.with_all_moved_but(fixed, *heuristic).hints_or_shares(*heuristic, afresh)
            }
            (Self::Hints(heuristic, input), _) => input.hints_or_shares(*heuristic, afresh),
            (Self::Subsets(heuristic, consumers, input), _) => {
                input.subsets(*heuristic, *consumers, afresh)
            }
        }
    }
}

/// Hints every endpoint to its own zone or node, as `trafficDistribution` requests.
fn nearby(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Decision {
    let mut hints = NearHints::new(near);
    let reason = near_reason(near, desired, nodes);
    let hint = |endpoint: &DesiredEndpoint<'_>| {
        hints.of(endpoint.zone(), endpoint.node()).filter(|_| endpoint.is_ready())
    };
    Decision {
        hints: desired.endpoints.iter().map(hint).collect(),
        ..Decision::cluster_wide(reason)
    }
}

/// The reason to report when every endpoint is hinted to its own zone or node.
pub(crate) fn near_reason(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Reason {
    let ready = desired.endpoints.iter().filter(|endpoint| endpoint.is_ready());
    let locations: Locations<'_> = ready.map(DesiredEndpoint::zone).collect();
    near_reason_of(near, &locations.numbered(capacity(nodes, None)).0)
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
#[derive(Clone)]
pub(crate) struct HeuristicInput<'a> {
    situation: Situation,
    desired: &'a Desired<'a>,
    stored: &'a Stored<'a>,
    nodes: &'a Nodes,
    /// The indexes of the endpoints that are ready, each identity once. Only these count.
    ready: Vec<u32>,
    /// For each ready endpoint its zone, or the number of zones for one without a known zone; and the zones
    /// that use it now, by its stored hints or subset, as an index into `sets`.
    placed: Vec<hints::Endpoint>,
    /// The sets of zones that use endpoints now.
    sets: ZoneSets<'a>,
    /// The previous decision: the endpoints that serve exactly one zone.
    previous: Option<Assignment>,
}

impl<'a> HeuristicInput<'a> {
    fn new(
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
        consumers: Option<Consumers>,
    ) -> Self {
        let endpoints = &desired.endpoints;
        let counts = |index: &u32| {
            endpoints[*index as usize].is_ready() && desired.is_unique(*index as usize)
        };
        let mut ready = Vec::with_capacity(endpoints.len());
        ready.extend((0..endpoints.len() as u32).filter(counts));
        let location = |index: &u32| location(&endpoints[*index as usize], consumers);
        let locations: Locations<'_> = ready.iter().map(location).collect();
        let (situation, sources) = locations.numbered(capacity(nodes, consumers));
        let mut sets = ZoneSets::new();
        let placed = match consumers {
            None => {
                let hints = |index: u32| stored.of(index as usize)?.0.hints.as_ref();
                let mut serves =
                    |index| hints(index).map_or(0, |hints| sets.hinted(hints, &situation));
                together(&sources, ready.iter().map(|index| serves(*index)))
            }
            Some(_) => {
                let subsets = stored.slices.iter().map(|slice| slice.subset.as_ref());
                let of_slices: Vec<u32> =
                    subsets.map(|subset| sets.labelled(subset, &situation)).collect();
                let slice = |index: u32| stored.slice_of(index as usize);
                let serves = |index| slice(index).map_or(0, |slice| of_slices[slice]);
                together(&sources, ready.iter().map(|index| serves(*index)))
            }
        };
        let previous = previous(&situation, &placed, &sets);
        Self { situation, desired, stored, nodes, ready, placed, sets, previous }
    }

    /// Runs a heuristic.
    fn run(&self, heuristic: &dyn Heuristic, afresh: bool) -> (Allocation, Reason) {
        let mut allocation = Allocation::new();
        let previous = self.previous.as_ref();
        let case = Case { afresh, ..Case::following(self.situation.region(), previous) };
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

    /// The same where endpoints serve the zones that a fresh decision hints them to, but for those that are
    /// fixed.
    fn with_all_moved_but(&self, fixed: &[bool], heuristic: &dyn Heuristic) -> Self {
        let mut moved = self.clone();
        let (fresh, _) = self.run(heuristic, true);
        if fresh.carrier() != Carrier::Hints {
            return moved;
        }
        let is_fixed = |index: usize| fixed[self.ready[index] as usize];
        let groups = place_around(&self.placed, self.sets.all(), is_fixed, &fresh);
        for (endpoint, group) in moved.placed.iter_mut().zip(groups) {
            if let Some(group) = group {
                let zones = fresh.zones_served(&fresh.groups()[group as usize]);
                endpoint.serves = moved.sets.number(zones);
            }
        }
        moved.previous = previous(&moved.situation, &moved.placed, &moved.sets);
        moved
    }

    /// Each ready endpoint with the group of the allocation that it belongs to.
    fn groups(&self, allocation: &Allocation) -> impl Iterator<Item = (usize, Option<u32>)> {
        let groups = place(&self.placed, self.sets.all(), allocation);
        self.ready.iter().map(|index| *index as usize).zip(groups)
    }

    fn hints_or_shares(&self, heuristic: &dyn Heuristic, afresh: bool) -> Decision {
        let (allocation, reason) = self.run(heuristic, afresh);
        if reason.outcome() != Outcome::InForce {
            return Decision::cluster_wide(reason);
        }
        if self.ready.is_empty() {
            return Decision::cluster_wide(Reason::NoEndpoints);
        }
        match carried(&self.situation, &allocation) {
            Carrier::Plain => Decision::cluster_wide(reason),
            Carrier::Shares => self.shares(&allocation, reason, afresh),
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

    /// The hints of every endpoint: those of the group that it is placed in.
    fn hints(&self, allocation: &Allocation) -> AssignedHints {
        // The hints of group `g` have the number `g + 1`, none the number 0.
        let of_groups = (0..allocation.groups().len()).map(|group| {
            let zones = consumers_of(&self.situation, allocation, group);
            (!zones.is_empty()).then(|| self.hints_to(&zones))
        });
        let mut values: Vec<Option<Arc<Hints>>> = std::iter::once(None).chain(of_groups).collect();
        let mut of_own_zone: BTreeMap<Option<&Name>, u32> = BTreeMap::new();
        let mut numbers = vec![0; self.desired.endpoints.len()];
        for (endpoint, group) in self.groups(allocation) {
            let group = group.map(|group| group + 1);
            let hinted = group.filter(|number| values[*number as usize].is_some());
            // An endpoint that no group is meant for serves its own zone.
            numbers[endpoint] = hinted.unwrap_or_else(|| {
                let zone = self.desired.endpoints[endpoint].zone();
                *of_own_zone.entry(zone).or_insert_with(|| {
                    values.push(zone.map(own_zone));
                    values.len() as u32 - 1
                })
            });
        }
        AssignedHints { values, numbers }
    }

    /// Hints to zones: those that endpoints have already, if there are such.
    fn hints_to(&self, zones: &[u32]) -> Arc<Hints> {
        let name = |zone: &u32| &*self.situation.names[*zone as usize];
        let is_it = |hints: &&Arc<Hints>| {
            hints.for_nodes.is_empty()
                && hints.for_zones.iter().map(|zone| &**zone).eq(zones.iter().map(name))
        };
        let known = self.sets.hints_to(zones).filter(is_it);
        known.map(Arc::clone).unwrap_or_else(|| match zones {
            [zone] => self.nodes.hints_to(name(zone)),
            _ => {
                let for_zones = zones.iter().map(|zone| self.zone_name(*zone as usize)).collect();
                Arc::new(Hints { for_zones, for_nodes: Vec::new() })
            }
        })
    }

    fn zone_name(&self, zone: usize) -> Name {
        Name::from(&*self.situation.names[zone])
    }

    /// Zone shares, with hints beside them for proxies that do not know shares.
    fn shares(&self, allocation: &Allocation, reason: Reason, afresh: bool) -> Decision {
        let shares = ZoneShares::of(&self.situation, allocation);
        let Some(shares) = shares else { return Decision::cluster_wide(Reason::NoEndpoints) };
        let kept = stored_shares(self.stored).filter(|(_, stored)| {
            !afresh && *stored != shares && stored.is_still_good(&shares, &self.situation)
        });
        let text = match &kept {
            Some((text, _)) => Ok((*text).to_owned()),
            None => shares.encode(),
        };
        let (hints, of_hints) = self.hints_beside_shares(afresh);
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
    fn hints_beside_shares(&self, afresh: bool) -> (AssignedHints, Option<Improvement>) {
        let (allocation, reason) = self.run(&Auto::KEP_2433, afresh);
        match reason.outcome() {
            Outcome::InForce => {
                let improvement = self.improvement(&Auto::KEP_2433, &allocation, reason);
                (self.hints(&allocation), improvement)
            }
            _ => (AssignedHints::default(), None),
        }
    }

    fn subsets(&self, heuristic: &dyn Heuristic, consumers: Consumers, afresh: bool) -> Decision {
        let (allocation, reason) = self.run(heuristic, afresh);
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
        let stored = |index| self.stored.of(index).and_then(|(_, slice)| slice.subset.as_ref());
        let unready = |(index, endpoint): (usize, &DesiredEndpoint<'_>)| {
            subset_of_unready(stored(index), endpoint, &all).unwrap_or(first).clone()
        };
        let mut of: Vec<Subset> = self.desired.endpoints.iter().enumerate().map(unready).collect();
        for (endpoint, group) in self.groups(&allocation) {
            let label = group.map(|group| allocation.groups()[group as usize].label);
            if let Some(Label::Zone(zone)) = label {
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
    endpoint: &DesiredEndpoint<'_>,
    all: &'s [Subset],
) -> Option<&'s Subset> {
    let known = all.iter().find(|subset| Some(*subset) == stored);
    known.or_else(|| all.iter().find(|subset| endpoint.zone() == Some(subset.label().1)))
}

/// The zone of an endpoint, or its region for subsets of regions.
fn location<'a>(endpoint: &DesiredEndpoint<'a>, consumers: Option<Consumers>) -> Option<&'a Name> {
    match consumers {
        Some(Consumers::Regions) => endpoint.region(),
        _ => endpoint.zone(),
    }
}

/// The previous decision: the endpoints that serve exactly one zone.
fn previous(
    situation: &Situation,
    placed: &[hints::Endpoint],
    sets: &ZoneSets<'_>,
) -> Option<Assignment> {
    let mut assignment = Assignment::empty(situation.zones.len());
    let mut any = false;
    for endpoint in placed {
        if let [zone] = sets.all()[endpoint.serves as usize][..] {
            assignment.add(endpoint.source as usize, zone as usize, 1);
            any = true;
        }
    }
    any.then_some(assignment)
}

/// Endpoints to be placed, from where they are and what they serve.
fn together(sources: &[u32], serves: impl Iterator<Item = u32>) -> Vec<hints::Endpoint> {
    let both = sources.iter().zip(serves);
    both.map(|(&source, serves)| hints::Endpoint { source, serves }).collect()
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
fn consumers_of<'a>(
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

/// Whether two allocations put the same endpoints into the same groups.
fn same_contents(one: &Allocation, other: &Allocation) -> bool {
    one.groups() == other.groups()
        && (0..one.groups().len()).all(|group| one.contents_of(group) == other.contents_of(group))
}

/// The stored zone shares, if every slice carries the same.
fn stored_shares<'s>(stored: &Stored<'s>) -> Option<(&'s str, ZoneShares)> {
    let mut texts = stored.owned().map(|stored| stored.slice.annotations.get(ZONE_SHARES));
    let text = texts.next()??;
    texts
        .all(|other| other == Some(text))
        .then(|| ZoneShares::decode(text).ok())
        .flatten()
        .map(|shares| (text, shares))
}
