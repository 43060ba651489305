//! What a heuristic gets to know about an address family, and how its result becomes hints, subsets or zone shares of
//! endpoints.

use std::borrow::Cow;
use std::sync::Arc;

use zonewise_common::keys::ZONE_SHARES;
use zonewise_common::name::Name;
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::hints::{self, Mixed, Placement};
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::Situation;
use zonewise_topology::settling::{Improvement, Quality};
use zonewise_topology::zone_shares::ZoneShares;

use crate::desired::{Desired, DesiredEndpoint};
use crate::node::{MeasuredZones, Nodes};
use crate::numbers::{InForce, Kinds, Traits, ZoneSets, zone_number};
use crate::requested::{Choice, Consumers};
use crate::slice::{Endpoint, Hints, Subset};
use crate::stored::Stored;
use crate::upstream::own_zone;
use crate::weights;

use super::by_numbers::{carried, consumers_of, hints_refused, subset_reason};
use super::{AssignedHints, Decision, Subsets};

/// The numbers that a heuristic gets, and what is needed to turn its result into hints or subsets of
/// endpoints.
#[derive(Clone)]
pub(crate) struct HeuristicInput<'a> {
    pub(super) situation: Situation,
    /// The same with endpoints that count for the CPU that their Pods request; `None` where all count the same.
    pub(super) weighted: Option<Situation>,
    /// The same with zones whose endpoints count in part, because they fail, or by the CPU that they use; `None` where all
    /// count in full.
    pub(super) in_part: Option<Situation>,
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
    pub(super) previous: Option<Assignment>,
}

impl<'a> HeuristicInput<'a> {
    pub(super) fn of(
        choice: &Choice,
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
        measured: Option<&MeasuredZones>,
    ) -> Self {
        let capacity = nodes.capacity(choice.consumers(), measured);
        let input = Self::new(desired, stored, nodes, capacity, choice.consumers());
        let is_weighted = matches!(choice, Choice::WeightedShares(_));
        let weighted = is_weighted.then(|| weights::by_request(desired, capacity)).flatten();
        let measured = measured.filter(|_| choice.gives_shares());
        let in_part = measured.and_then(|measured| {
            let situation = weighted.as_ref().unwrap_or(&input.situation);
            weights::in_part(situation, measured.percents())
        });
        Self { weighted, in_part, ..input }
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
        let (weighted, in_part) = (None, None);
        Self { situation, weighted, in_part, desired, stored, nodes, kinds, placed, sets, previous }
    }

    /// The numbers that decide: with weights where endpoints have some.
    pub(super) fn deciding(&self) -> &Situation {
        self.in_part.as_ref().or(self.weighted.as_ref()).unwrap_or(&self.situation)
    }

    /// Runs a heuristic on the numbers that decide.
    pub(super) fn run(&self, heuristic: &dyn Heuristic, afresh: bool) -> (Allocation, Reason) {
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
    pub(super) fn with_all_moved_but(&self, fixed: &[bool], heuristic: &dyn Heuristic) -> Self {
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

    pub(super) fn hints_or_shares(&self, heuristic: &dyn Heuristic, afresh: bool) -> Decision<'_> {
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

    pub(super) fn subsets(
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
