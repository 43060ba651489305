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
use std::sync::Arc;

use zonewise_common::keys::ZONE_SHARES;
use zonewise_common::name::Name;
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::heuristics::same_zone::SameZone;
use zonewise_topology::hints::{self, Mixed, Placement};
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::{Situation, Zone};
use zonewise_topology::settling::{Improvement, Quality};
use zonewise_topology::zone_shares::ZoneShares;

use crate::desired::{Desired, DesiredEndpoint};
use crate::evacuation::Load;
use crate::node::{MeasuredZones, Nodes};
use crate::numbers::{InForce, Kinds, Traits, ZoneSets, zone_number};
use crate::requested::{Choice, Consumers, Near};
use crate::slice::{Endpoint, Hints, MAX_HINTS, Subset};
use crate::stored::Stored;
use crate::upstream::{NearHints, own_zone};
use crate::weights;

/// Which zones use each endpoint of an address family, and why.
pub(crate) struct Decision<'a> {
    pub(crate) reason: Reason,
    /// The hints of each endpoint.
    pub(crate) hints: AssignedHints<'a>,
    /// Whether all endpoints that are stored are known to have the hints that they should have.
    pub(crate) keeps_hints: bool,
    /// The subset of each endpoint; `None` without subsets.
    pub(crate) subsets: Option<Subsets>,
    /// The zone shares that are written on every slice; `None` without shares.
    pub(crate) shares: Option<String>,
    /// What a fresh decision would give instead; `None` if this is one, or would be the same.
    pub(crate) improvement: Option<Improvement>,
}

/// The hints of desired endpoints. There are few different ones, so each endpoint has the number of its own.
#[derive(Default)]
pub(crate) struct AssignedHints<'a> {
    values: Vec<Option<Arc<Hints>>>,
    /// The index in `values` for each endpoint; empty when no endpoint has hints.
    numbers: Cow<'a, [u32]>,
}

impl AssignedHints<'_> {
    /// The hints of an endpoint.
    #[inline]
    pub(crate) fn of(&self, endpoint: usize) -> Option<&Arc<Hints>> {
        let number = self.numbers.get(endpoint)?;
        self.values[*number as usize].as_ref()
    }

    /// Whether no endpoint has hints.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    fn into_owned(self) -> AssignedHints<'static> {
        AssignedHints { values: self.values, numbers: Cow::Owned(self.numbers.into_owned()) }
    }
}

impl FromIterator<Option<Arc<Hints>>> for AssignedHints<'_> {
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

impl Decision<'_> {
    /// No hints, subsets or shares: every client uses every endpoint.
    pub(crate) fn cluster_wide(reason: Reason) -> Self {
        Self {
            reason,
            hints: AssignedHints::default(),
            keeps_hints: false,
            subsets: None,
            shares: None,
            improvement: None,
        }
    }

    fn into_owned(self) -> Decision<'static> {
        Decision { hints: self.hints.into_owned(), ..self }
    }
}

/// The numbers that a decision is based on, for explanations.
#[derive(Debug)]
pub struct Grounds<'a> {
    /// The capacity of each zone or region.
    pub capacity: &'a Capacity,
    /// The capacity together with the number of ready endpoints in each zone or region.
    pub situation: Situation,
    /// The same with endpoints that count for the CPU that their Pods request, where the Service asks for it.
    pub weighted: Option<Situation>,
    /// The previous decision, as the stored slices show it.
    pub previous: Option<Assignment>,
}

/// The numbers that [`Decider`] bases its decisions on.
pub(crate) fn grounds<'a>(
    choice: &Choice,
    desired: &Desired<'_>,
    stored: &Stored<'_>,
    nodes: &'a Nodes,
    measured: Option<&'a MeasuredZones>,
) -> Grounds<'a> {
    let capacity = nodes.capacity(choice.consumers(), measured);
    let input = HeuristicInput::of(choice, desired, stored, nodes, capacity);
    let HeuristicInput { situation, weighted, previous, .. } = input;
    Grounds { capacity, situation, weighted, previous }
}

/// What the ready endpoints get when it is decided afresh; `None` if there are none. Routing that is not in force, and
/// zones that it leaves without an endpoint, use all.
pub(crate) fn load(
    choice: &Choice,
    desired: &Desired<'_>,
    stored: &Stored<'_>,
    nodes: &Nodes,
    measured: Option<&MeasuredZones>,
) -> Option<Load> {
    let capacity = nodes.capacity(choice.consumers(), measured);
    let input = HeuristicInput::of(choice, desired, stored, nodes, capacity);
    let endpoints = input.situation.region().present();
    let region = input.deciding().region();
    let (mut allocation, reason) = match choice {
        Choice::ClusterWide => (Allocation::new(), Reason::NoEndpoints),
        Choice::Near(_) => input.run(&SameZone, true),
        Choice::Heuristic(heuristic)
        | Choice::WeightedShares(heuristic)
        | Choice::Subsets(heuristic, _) => input.run(&**heuristic, true),
    };
    if reason.outcome() != Outcome::InForce {
        allocation.everywhere(&region, Carrier::Plain);
    }
    if matches!(choice, Choice::Near(_)) {
        let elsewhere = desired.served_elsewhere.iter();
        for zone in elsewhere.filter_map(|zone| zone_number(&input.situation, zone)) {
            for group in 0..allocation.groups().len() {
                allocation.set_weight(group, zone as usize, 1.0);
            }
        }
    }
    allocation.serve_the_unserved();
    let overload = Quality::of(&region, &allocation).map_or(0.0, |quality| quality.max_overload);
    let fair = 1.0 / region.present() as f64;
    (endpoints > 0).then_some(Load { endpoints, busiest: (1.0 + overload) * fair })
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
        measured: Option<&MeasuredZones>,
    ) -> Self {
        let input = |consumers| {
            let capacity = nodes.capacity(consumers, measured);
            HeuristicInput::of(choice, desired, stored, nodes, capacity)
        };
        match choice {
            Choice::ClusterWide => Self::ClusterWide,
            Choice::Near(near) => Self::Near(*near, desired, nodes),
            Choice::Heuristic(heuristic) | Choice::WeightedShares(heuristic) => {
                Self::Hints(&**heuristic, input(None))
            }
            Choice::Subsets(heuristic, consumers) => {
                Self::Subsets(&**heuristic, *consumers, input(Some(*consumers)))
            }
        }
    }

    pub(crate) fn decide(&self, stance: &Stance<'_>) -> Decision<'_> {
        let afresh = matches!(stance, Stance::Afresh);
        match (self, stance) {
            (Self::ClusterWide, _) => Decision::cluster_wide(Reason::ClusterWide),
            (Self::Near(near, desired, nodes), _) => nearby(*near, desired, nodes),
            (Self::Hints(heuristic, input), Stance::Around(fixed)) => {
                let moved = input.with_all_moved_but(fixed, *heuristic);
                moved.hints_or_shares(*heuristic, afresh).into_owned()
            }
            (Self::Hints(heuristic, input), _) => input.hints_or_shares(*heuristic, afresh),
            (Self::Subsets(heuristic, consumers, input), _) => {
                input.subsets(*heuristic, *consumers, afresh)
            }
        }
    }
}

/// Hints every endpoint to its own zone or node, as `trafficDistribution` requests; and to zones that are being emptied.
fn nearby(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Decision<'static> {
    let mut hints = NearHints::new(near).and_for(&desired.served_elsewhere);
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
    /// The same with endpoints that count for the CPU that their Pods request; `None` where all count the same.
    weighted: Option<Situation>,
    desired: &'a Desired<'a>,
    stored: &'a Stored<'a>,
    nodes: &'a Nodes,
    /// The kinds of endpoints.
    kinds: Kinds<'a>,
    /// For each kind its zone, or the number of zones where that is not known, and the zones that use it now, by its
    /// stored hints or subset, as an index into `sets`. Endpoints that do not count are none.
    placed: Vec<hints::Kind>,
    /// The sets of zones that use endpoints now.
    sets: ZoneSets<'a>,
    /// The previous decision: the endpoints that serve some zones.
    previous: Option<Assignment>,
}

impl<'a> HeuristicInput<'a> {
    fn of(
        choice: &Choice,
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
        capacity: &Capacity,
    ) -> Self {
        let input = Self::new(desired, stored, nodes, capacity, choice.consumers());
        let is_weighted = matches!(choice, Choice::WeightedShares(_));
        let weighted = is_weighted.then(|| weights::situation(desired, capacity)).flatten();
        Self { weighted, ..input }
    }

    fn new(
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
        capacity: &Capacity,
        consumers: Option<Consumers>,
    ) -> Self {
        let kinds = match consumers {
            None => kinds(desired, consumers, |index| {
                let hints = |(endpoint, _): (&'a Endpoint, _)| endpoint.hints.as_ref();
                stored.of(index).map_or(InForce::New, |found| InForce::Hints(hints(found)))
            }),
            Some(_) => kinds(desired, consumers, |index| {
                let slice = stored.of(index).map(|(_, slice)| slice.subset.as_ref());
                slice.map_or(InForce::New, InForce::Subset)
            }),
        };
        let situation = kinds.situation(capacity);
        let mut sets = ZoneSets::new();
        let kind = |(traits, count): &(Traits<'a>, u64)| {
            let counted = Some(*count).filter(|_| traits.counts);
            counted.map_or_else(hints::Kind::default, |count| hints::Kind {
                source: source(traits.location, &situation),
                serves: sets.in_force(traits.in_force, &situation),
                fixed: false,
                count,
            })
        };
        let placed: Vec<hints::Kind> = kinds.list.iter().map(kind).collect();
        let previous = previous(&situation, &placed, &sets);
        let weighted = None;
        Self { situation, weighted, desired, stored, nodes, kinds, placed, sets, previous }
    }

    /// The numbers that decide: with weights where endpoints have some.
    fn deciding(&self) -> &Situation {
        self.weighted.as_ref().unwrap_or(&self.situation)
    }

    /// Runs a heuristic on the numbers that decide.
    fn run(&self, heuristic: &dyn Heuristic, afresh: bool) -> (Allocation, Reason) {
        self.run_on(self.deciding(), heuristic, afresh)
    }

    fn run_on(
        &self,
        situation: &Situation,
        heuristic: &dyn Heuristic,
        afresh: bool,
    ) -> (Allocation, Reason) {
        let mut allocation = Allocation::new();
        let previous = self.previous.as_ref();
        let case = Case { afresh, ..Case::following(situation.region(), previous) };
        let reason = heuristic.allocate_named(&case, &situation.names, &mut allocation);
        (allocation, reason)
    }

    /// What a fresh decision would give instead of an allocation that keeps what is in force.
    fn improvement(
        &self,
        heuristic: &dyn Heuristic,
        kept: &Allocation,
        reason: Reason,
    ) -> Option<Improvement> {
        let may_be_kept = matches!(
            reason,
            Reason::HintsKept { .. } | Reason::SubsetsKept { .. } | Reason::HintsBalanced { .. }
        );
        if !may_be_kept {
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
        let (fresh, _) = self.run(heuristic, true);
        if fresh.carrier() != Carrier::Hints {
            return self.clone();
        }
        let counted = |kind: usize, count: u64| if self.counts(kind) { count } else { 0 };
        let (parts, list) = self.kinds.split(|endpoint| fixed[endpoint]);
        let part = |&(kind, fixed, count)| hints::Kind {
            fixed,
            count: counted(kind, count),
            ..self.placed[kind]
        };
        let kinds: Vec<hints::Kind> = list.iter().map(part).collect();
        let mut placement = Placement::new(&kinds, self.sets.all(), &fresh);
        let (of, list) = self.kinds.split(|endpoint| {
            let part = parts[endpoint] as usize;
            self.counts(list[part].0).then(|| placement.take(part)).flatten()
        });
        let mut sets = self.sets.clone();
        let mut moved = |&(kind, group, count): &(usize, Option<u32>, u64)| {
            let zones = group.map(|group| fresh.zones_served(&fresh.groups()[group as usize]));
            let serves = zones.map(|zones| sets.number(zones, None));
            let before = self.placed[kind];
            let count = counted(kind, count);
            hints::Kind { serves: serves.unwrap_or(before.serves), count, ..before }
        };
        let placed: Vec<hints::Kind> = list.iter().map(&mut moved).collect();
        let list = list.iter().map(|&(kind, _, count)| (self.kinds.list[kind].0, count)).collect();
        let previous = previous(&self.situation, &placed, &sets);
        Self { kinds: Kinds { of, list }, placed, sets, previous, ..self.clone() }
    }

    /// Whether the endpoints of a kind count.
    fn counts(&self, kind: usize) -> bool {
        self.kinds.list[kind].0.counts
    }

    /// Each endpoint that counts, with the group of the allocation that it belongs to.
    fn groups(&self, allocation: &Allocation) -> impl Iterator<Item = (usize, Option<u32>)> {
        let mut placement = Placement::new(&self.placed, self.sets.all(), allocation);
        let kinds = self.kinds.of.iter().map(|kind| *kind as usize).enumerate();
        let counted = kinds.filter(|(_, kind)| self.counts(*kind));
        counted.map(move |(endpoint, kind)| (endpoint, placement.take(kind)))
    }

    fn hints_or_shares(&self, heuristic: &dyn Heuristic, afresh: bool) -> Decision<'_> {
        let (allocation, reason) = self.run(heuristic, afresh);
        if reason.outcome() != Outcome::InForce {
            return Decision::cluster_wide(reason);
        }
        if self.situation.region().present() == 0 {
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
                let (hints, keeps_hints) = self.hints(&allocation);
                Decision { improvement, hints, keeps_hints, ..Decision::cluster_wide(reason) }
            }
        }
    }

    /// The hints of every endpoint: those of the group that it is placed in. And whether all endpoints that are stored
    /// are known to have them.
    fn hints(&self, allocation: &Allocation) -> (AssignedHints<'_>, bool) {
        let of_groups: Vec<Option<Arc<Hints>>> = (0..allocation.groups().len())
            .map(|group| consumers_of(&self.situation, allocation, group))
            .map(|zones| (!zones.is_empty()).then(|| self.hints_to(&zones)))
            .collect();
        let mut placement = Placement::new(&self.placed, self.sets.all(), allocation);
        let kinds = || self.kinds.list.iter().map(|(traits, _)| traits).enumerate();
        let is_mixed = |(kind, traits): (usize, &Traits<'_>)| {
            traits.counts && placement.of_all(kind) == Err(Mixed)
        };
        let mixed: Vec<bool> = kinds().map(is_mixed).collect();
        // The hints of each kind. An endpoint that no group is meant for serves its own zone.
        let of_kind = |(kind, traits): (usize, &Traits<'_>)| {
            let group = placement.of_all(kind).ok().flatten().filter(|_| traits.counts);
            let hints = group.and_then(|group| of_groups[group as usize].clone());
            let location = traits.location.filter(|_| traits.counts);
            hints.or_else(|| location.map(own_zone))
        };
        let mut values: Vec<Option<Arc<Hints>>> = kinds().map(of_kind).collect();
        let keeps_hints = kinds().all(|(kind, traits)| match traits.in_force {
            InForce::New => true,
            InForce::Hints(stored) => !mixed[kind] && values[kind].as_ref() == stored,
            InForce::Subset(_) => false,
        });
        if !mixed.contains(&true) {
            let numbers = Cow::Borrowed(&*self.kinds.of);
            return (AssignedHints { values, numbers }, keeps_hints);
        }
        // Where endpoints of a kind have different hints, they have the numbers of their groups.
        let first = values.len() as u32;
        let number = |kind: &u32| {
            let group = mixed[*kind as usize].then(|| placement.take(*kind as usize)).flatten();
            let hinted = group.filter(|group| of_groups[*group as usize].is_some());
            hinted.map_or(*kind, |group| first + group)
        };
        let numbers = self.kinds.of.iter().map(number).collect();
        values.extend(of_groups);
        (AssignedHints { values, numbers }, keeps_hints)
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
    fn shares(&self, allocation: &Allocation, reason: Reason, afresh: bool) -> Decision<'_> {
        let shares = ZoneShares::of(&self.situation, allocation);
        let Some(shares) = shares else { return Decision::cluster_wide(Reason::NoEndpoints) };
        let kept = stored_shares(self.stored).filter(|(_, stored)| {
            !afresh
                && *stored != shares
                && stored.is_still_good(&shares, &self.situation, self.deciding())
        });
        let text = match &kept {
            Some((text, _)) => Ok((*text).to_owned()),
            None => shares.encode(),
        };
        let (hints, of_hints) = self.hints_beside_shares(afresh);
        let of_shares = kept.map(|(_, stored)| Improvement {
            now: stored.quality(self.deciding()),
            fresh: shares.quality(self.deciding()),
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
    fn hints_beside_shares(&self, afresh: bool) -> (AssignedHints<'_>, Option<Improvement>) {
        // Hints leave proxies a uniform choice, so that all endpoints count the same there.
        let (allocation, reason) = self.run_on(&self.situation, &Auto::KEP_2433, afresh);
        match reason.outcome() {
            Outcome::InForce => {
                let improvement = self.improvement(&Auto::KEP_2433, &allocation, reason);
                (self.hints(&allocation).0, improvement)
            }
            _ => (AssignedHints::default(), None),
        }
    }

    fn subsets(
        &self,
        heuristic: &dyn Heuristic,
        consumers: Consumers,
        afresh: bool,
    ) -> Decision<'_> {
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

/// The kinds of endpoints, by who uses each now.
fn kinds<'a>(
    desired: &Desired<'a>,
    consumers: Option<Consumers>,
    in_force: impl Fn(usize) -> InForce<'a>,
) -> Kinds<'a> {
    let traits = |(index, endpoint): (usize, &DesiredEndpoint<'a>)| Traits {
        counts: endpoint.is_ready() && desired.is_unique(index),
        location: location(endpoint, consumers),
        in_force: in_force(index),
    };
    desired.endpoints.iter().enumerate().map(traits).collect()
}

/// Where endpoints are: the number of their zone, or the number of zones for endpoints without one.
fn source(location: Option<&Name>, situation: &Situation) -> u32 {
    let zone = location.and_then(|name| zone_number(situation, name));
    zone.unwrap_or(situation.zones.len() as u32)
}

/// The previous decision: the endpoints that serve some zones.
fn previous(
    situation: &Situation,
    placed: &[hints::Kind],
    sets: &ZoneSets<'_>,
) -> Option<Assignment> {
    let mut assignment = Assignment::empty(situation.zones.len());
    let mut any = false;
    for kind in placed.iter().filter(|kind| kind.count > 0) {
        let zones = &sets.all()[kind.serves as usize];
        assignment.add_list(kind.source as usize, zones, kind.count);
        any |= !zones.is_empty();
    }
    any.then_some(assignment)
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
