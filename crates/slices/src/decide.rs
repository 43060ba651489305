//! Who should use each endpoint: asks the heuristic and turns its answer into hints, subsets or
//! zone shares.
//!
//! What is in force is read back from the stored slices, endpoint by endpoint, so that a restart,
//! a failover and `plan` on a dump agree with the controller that wrote them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonewise_common::keys::ZONE_SHARES;
use zonewise_common::name::Name;
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::hints::{self, place};
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::Situation;
use zonewise_topology::zone_shares::ZoneShares;

use crate::asked::{Choice, Consumers, Near};
use crate::desired::Desired;
use crate::node::Nodes;
use crate::slice::{Endpoint, Hints, MAX_HINTS, Slice, Subset};
use crate::upstream::NearHints;

/// Who uses each endpoint of a family, and why.
pub(crate) struct Decision {
    pub(crate) reason: Reason,
    /// Hints per endpoint; empty when none has any.
    pub(crate) hints: Vec<Option<Arc<Hints>>>,
    /// The subset of each endpoint, when there are subsets.
    pub(crate) subsets: Option<Subsets>,
    /// The zone shares that every slice carries.
    pub(crate) shares: Option<String>,
}

/// Slices per consumer.
pub(crate) struct Subsets {
    /// The consumer of each endpoint.
    pub(crate) of: Vec<Subset>,
    /// Consumers that must have a slice, be it empty.
    pub(crate) required: Vec<Subset>,
}

impl Decision {
    fn everywhere(reason: Reason) -> Self {
        Self { reason, hints: Vec::new(), subsets: None, shares: None }
    }
}

/// What a decision rests on, as numbers: for those who explain it.
#[derive(Debug)]
pub struct Grounds<'a> {
    /// What each zone, or region, can send.
    pub capacity: &'a Capacity,
    /// That, and where the ready endpoints are.
    pub situation: Situation,
    /// What is in force.
    pub previous: Option<Assignment>,
}

/// What [`decide`] goes by.
pub(crate) fn grounds<'a>(
    choice: &Choice,
    desired: &Desired<'_>,
    slices: &[&Slice],
    nodes: &'a Nodes,
) -> Grounds<'a> {
    let consumers = choice.consumers();
    let question = Question::new(desired, slices, nodes, consumers);
    let previous = question.previous();
    Grounds { capacity: capacity(nodes, consumers), previous, situation: question.situation }
}

/// Decides for one address family.
pub(crate) fn decide(
    choice: &Choice,
    desired: &Desired<'_>,
    slices: &[&Slice],
    nodes: &Nodes,
) -> Decision {
    match choice {
        Choice::Everywhere => Decision::everywhere(Reason::ClusterWide),
        Choice::Near(near) => nearby(*near, desired, nodes),
        Choice::Heuristic(heuristic) => {
            Question::new(desired, slices, nodes, None).hints_or_shares(&**heuristic, slices)
        }
        Choice::Subsets(heuristic, consumers) => {
            Question::new(desired, slices, nodes, Some(*consumers))
                .subsets(&**heuristic, *consumers)
        }
    }
}

/// As `trafficDistribution` asks: every endpoint to where it is.
fn nearby(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Decision {
    let mut hints = NearHints::new(near);
    let reason = near_reason(near, desired, nodes);
    let hint = |endpoint: &Endpoint| hints.of(endpoint).filter(|_| endpoint.is_ready());
    Decision { hints: desired.endpoints.iter().map(hint).collect(), ..Decision::everywhere(reason) }
}

/// What comes of hinting every endpoint to where it is.
pub(crate) fn near_reason(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Reason {
    let ready = |endpoint: &&Endpoint| endpoint.is_ready();
    let zones: BTreeSet<&Name> =
        desired.endpoints.iter().filter(ready).filter_map(|one| one.zone.as_ref()).collect();
    let unplaced = desired.endpoints.iter().filter(ready).filter(|one| one.zone.is_none()).count();
    let without = nodes.zones.zones.iter().filter(|zone| !zones.contains(&Name::from(&*zone.name)));
    let zones_without_endpoints = without.count() as u64;
    match near {
        _ if unplaced > 0 => Reason::EndpointsWithoutZone { endpoints: unplaced as u64 },
        _ if zones.is_empty() => Reason::NoEndpoints,
        Near::Zone => Reason::OwnZone { zones_without_endpoints },
        Near::Node => Reason::OwnNode { zones_without_endpoints },
    }
}

/// The numbers a heuristic sees, and how to get back from them to endpoints.
struct Question<'a> {
    situation: Situation,
    endpoints: &'a [Endpoint],
    /// Endpoints that count, by number.
    ready: Vec<usize>,
    /// Where each of those is.
    sources: Vec<usize>,
    /// Who uses each of them now.
    serves: Vec<Vec<u32>>,
    /// Who uses any endpoint now, ready or not.
    subsets: Vec<Option<Subset>>,
}

impl<'a> Question<'a> {
    fn new(
        desired: &'a Desired<'_>,
        slices: &[&Slice],
        nodes: &'a Nodes,
        consumers: Option<Consumers>,
    ) -> Self {
        let unique = desired.unique();
        let counts = |index: &usize| unique[*index] && desired.endpoints[*index].is_ready();
        let ready: Vec<usize> = (0..desired.endpoints.len()).filter(counts).collect();
        let place = |index: &usize| location(&desired.endpoints[*index], nodes, consumers);
        let places: Vec<Option<&str>> = ready.iter().map(place).collect();
        let situation = situation(&places, nodes, consumers);
        let number =
            |name: &str| situation.names.binary_search_by(|known| (**known).cmp(name)).ok();
        let unplaced = situation.names.len();
        let sources =
            places.iter().map(|place| place.and_then(number).unwrap_or(unplaced)).collect();
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
        Self { situation, endpoints: &desired.endpoints, ready, sources, serves, subsets }
    }

    /// What is in force: endpoints that serve one zone each.
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

    fn ask(&self, heuristic: &dyn Heuristic) -> (Allocation, Reason) {
        let previous = self.previous();
        let mut allocation = Allocation::new();
        let case = Case { previous: previous.as_ref(), ..Case::fresh(self.situation.region()) };
        let reason = heuristic.allocate_named(&case, &self.situation.names, &mut allocation);
        (allocation, reason)
    }

    /// The group of each endpoint that counts.
    fn places(&self, allocation: &Allocation) -> Vec<Option<usize>> {
        let endpoints: Vec<hints::Endpoint<'_>> = self
            .sources
            .iter()
            .zip(&self.serves)
            .map(|(&source, serves)| hints::Endpoint { source, serves })
            .collect();
        place(&endpoints, allocation)
    }

    fn hints_or_shares(&self, heuristic: &dyn Heuristic, slices: &[&Slice]) -> Decision {
        let (allocation, reason) = self.ask(heuristic);
        if reason.outcome() != Outcome::InForce {
            return Decision::everywhere(reason);
        }
        match allocation.carrier() {
            Carrier::Plain => Decision::everywhere(reason),
            Carrier::Shares => self.shares(&allocation, reason, slices),
            Carrier::Subsets if is_weighted(&self.situation, &allocation) => {
                self.shares(&allocation, reason, slices)
            }
            Carrier::Hints | Carrier::NodeHints | Carrier::Subsets => {
                self.hinted(&allocation, reason)
            }
        }
    }

    fn hinted(&self, allocation: &Allocation, reason: Reason) -> Decision {
        match self.hints(allocation) {
            Ok(hints) => Decision { hints, ..Decision::everywhere(reason) },
            Err(reason) => Decision::everywhere(reason),
        }
    }

    fn hints(&self, allocation: &Allocation) -> Result<Vec<Option<Arc<Hints>>>, Reason> {
        let zones = |group| consumers_of(&self.situation, allocation, group);
        let groups: Vec<Vec<u32>> = (0..allocation.groups().len()).map(zones).collect();
        let most = groups.iter().map(Vec::len).max().unwrap_or(0);
        if most > MAX_HINTS {
            return Err(Reason::TooManyZonesForHints {
                zones: most as u64,
                limit: MAX_HINTS as u64,
            });
        }
        let hints: Vec<Arc<Hints>> = groups
            .iter()
            .map(|zones| {
                let for_zones = zones.iter().map(|&zone| self.zone_name(zone as usize)).collect();
                Arc::new(Hints { for_zones, for_nodes: Vec::new() })
            })
            .collect();
        let mut of = vec![None; self.endpoints.len()];
        for (&endpoint, group) in self.ready.iter().zip(self.places(allocation)) {
            of[endpoint] = group.map(|group| Arc::clone(&hints[group]));
        }
        Ok(of)
    }

    fn zone_name(&self, zone: usize) -> Name {
        Name::from(&*self.situation.names[zone])
    }

    /// Shares, and beside them hints for consumers that cannot read shares.
    fn shares(&self, allocation: &Allocation, reason: Reason, slices: &[&Slice]) -> Decision {
        let shares = ZoneShares::of(&self.situation, allocation);
        let Some(shares) = shares else { return Decision::everywhere(Reason::NoEndpoints) };
        let text = match stored_shares(slices) {
            Some((text, stored)) if stored.is_still_good(&shares, &self.situation) => {
                Ok(text.to_owned())
            }
            _ => shares.encode(),
        };
        match text {
            Ok(text) => Decision {
                shares: Some(text),
                hints: self.hints_beside_shares(),
                ..Decision::everywhere(reason)
            },
            Err(reason) => Decision::everywhere(reason),
        }
    }

    fn hints_beside_shares(&self) -> Vec<Option<Arc<Hints>>> {
        let (allocation, reason) = self.ask(&Auto::KEP_2433);
        match reason.outcome() {
            Outcome::InForce => self.hints(&allocation).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn subsets(&self, heuristic: &dyn Heuristic, consumers: Consumers) -> Decision {
        let (allocation, reason) = self.ask(heuristic);
        if reason.outcome() != Outcome::InForce || allocation.carrier() != Carrier::Subsets {
            return Decision::everywhere(reason);
        }
        let subset = |zone: usize| match consumers {
            Consumers::Zones => Subset::Zone(self.zone_name(zone)),
            Consumers::Regions => Subset::Region(self.zone_name(zone)),
        };
        let with_nodes =
            (0..self.situation.zones.len()).filter(|&zone| self.situation.zones[zone].nodes > 0);
        let all: Vec<Subset> = with_nodes.map(subset).collect();
        let Some(first) = all.first() else { return Decision::everywhere(reason) };
        // Endpoints that do not count yet stay where they are, so that becoming ready moves nothing.
        let mut of: Vec<Subset> = self
            .subsets
            .iter()
            .zip(self.endpoints)
            .map(|(stored, endpoint)| {
                resting_place(stored.as_ref(), endpoint, &all).unwrap_or(first).clone()
            })
            .collect();
        for (&endpoint, group) in self.ready.iter().zip(self.places(&allocation)) {
            if let Some(Label::Zone(zone)) = group.map(|group| allocation.groups()[group].label) {
                of[endpoint] = subset(zone as usize);
            }
        }
        let required = match reason {
            Reason::ZoneRequired { .. } => all,
            _ => Vec::new(),
        };
        Decision { subsets: Some(Subsets { of, required }), ..Decision::everywhere(reason) }
    }
}

fn resting_place<'s>(
    stored: Option<&Subset>,
    endpoint: &Endpoint,
    all: &'s [Subset],
) -> Option<&'s Subset> {
    let known = all.iter().find(|subset| Some(*subset) == stored);
    known.or_else(|| all.iter().find(|subset| endpoint.zone.as_ref() == Some(subset.label().1)))
}

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

fn situation(places: &[Option<&str>], nodes: &Nodes, consumers: Option<Consumers>) -> Situation {
    let mut counts: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for place in places.iter().flatten() {
        match counts.get_mut(*place) {
            Some(count) => *count += 1,
            None => {
                counts.insert((*place).into(), 1);
            }
        }
    }
    let unplaced = places.iter().filter(|place| place.is_none()).count() as u64;
    Situation::new(capacity(nodes, consumers), &counts, unplaced)
}

fn capacity(nodes: &Nodes, consumers: Option<Consumers>) -> &Capacity {
    match consumers {
        None => &nodes.zones,
        Some(Consumers::Zones) => &nodes.zones_counted,
        Some(Consumers::Regions) => &nodes.regions_counted,
    }
}

/// Zones that send traffic to a group. A zone that no group is meant for is left out: consumers
/// without a hint for their zone use everything anyway.
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

/// Whether some zone is drawn to one endpoint more than to another: hints cannot say that.
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

/// The shares in force, if every slice carries the same.
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
