//! Hints exactly as the reference assigns them (`--compat upstream`): after packing, preferably on
//! slices that are written anyway.
//!
//! ```text
//!  unchanged slices      ─► keep their hints, or become updates if the hints are not acceptable
//!  slices to be written  ─► each ready endpoint to its own zone, then from zones with too many
//!                           endpoints to zones with too few
//! ```
//!
//! The reference is
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/endpointslice/topologycache/topologycache.go>
//! for the topology annotation, and `trafficdist/trafficdist.go` beside it for `trafficDistribution`.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::event::{Event, EventType};
use zonewise_common::name::Name;
use zonewise_topology::heuristics::auto::{Auto, Bounds, transfers};
use zonewise_topology::reason::Reason;
use zonewise_topology::region::{Region, Situation};

use crate::node::Nodes;
use crate::pack::PackedSlices;
use crate::requested::Near;
use crate::slice::{AddressType, Endpoint, Hints, MAX_HINTS, Slice};

/// Why the reference does not assign hints (`topologycache/event.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nodes without information, or fewer than two zones: the reference gives one message for both.
    NodeInformation {
        nodes: u64,
        zones: usize,
    },
    Endpoints {
        endpoints: u64,
        zones: usize,
    },
    Minimum {
        endpoints: u64,
        zones: usize,
        minimums: u64,
    },
    NoZone,
}

impl Refusal {
    /// The reference's own message.
    fn text(self) -> String {
        match self {
            Self::NodeInformation { .. } => {
                "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes".into()
            }
            Self::Endpoints { endpoints, zones } => {
                format!("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")
            }
            Self::Minimum { endpoints, zones, .. } => format!(
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 ({endpoints} endpoints, {zones} zones)"
            ),
            Self::NoZone => "One or more endpoints do not have a zone specified".into(),
        }
    }

    /// The reason code with the same meaning. `unplaced` is the number of endpoints without a zone.
    pub(crate) fn reason(self, unplaced: u64) -> Reason {
        match self {
            Self::NodeInformation { nodes: 0, zones: 1 } => Reason::OneZoneOnly,
            Self::NodeInformation { nodes, .. } => Reason::NodeInformationMissing { nodes },
            Self::Endpoints { endpoints, zones } => {
                Reason::TooFewEndpoints { endpoints, zones: zones as u64 }
            }
            Self::Minimum { endpoints, minimums, .. } => {
                let limit = Auto::UPSTREAM.hysteresis.enter;
                Reason::TooFewForBalance { endpoints, minimums, limit }
            }
            Self::NoZone => Reason::EndpointsWithoutZone { endpoints: unplaced },
        }
    }
}

/// The number of endpoints that are hinted to each zone.
pub type HintsPerZone = BTreeMap<Name, u64>;

const ENABLED: &str = "TopologyAwareHintsEnabled";
const DISABLED: &str = "TopologyAwareHintsDisabled";

/// The reference's event when hints are assigned for the first time.
pub(crate) fn enabled(family: &AddressType) -> Event {
    let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
    Event { kind: EventType::Normal, reason: ENABLED.into(), message }
}

/// The reference's event when hints are no longer requested.
pub(crate) fn disabled(family: &AddressType) -> Event {
    let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
    Event { kind: EventType::Warning, reason: DISABLED.into(), message }
}

/// The reference's event when hints cannot be assigned.
pub(crate) fn refused(refusal: Refusal, family: &AddressType) -> Event {
    let message = format!("{}, addressType: {family}", refusal.text());
    Event { kind: EventType::Warning, reason: DISABLED.into(), message }
}

/// Assigns hints as the topology annotation requests, or removes all hints if that is not possible.
pub(crate) fn auto(lists: &mut PackedSlices<'_>, nodes: &Nodes) -> Result<HintsPerZone, Refusal> {
    let assigned = assign(lists, nodes);
    if assigned.is_err() {
        remove(lists);
    }
    assigned
}

fn assign(lists: &mut PackedSlices<'_>, nodes: &Nodes) -> Result<HintsPerZone, Refusal> {
    let allocation = ZoneAllocation::new(lists, nodes)?;
    let mut have = allocation.reopen(lists);
    for endpoint in written(lists).filter(|endpoint| endpoint.is_ready()) {
        let zone = endpoint.zone.clone().ok_or(Refusal::NoZone)?;
        *have.entry(Name::clone(&zone)).or_default() += 1;
        endpoint.hints = Some(allocation.hint(&zone));
    }
    let (mut gives, mut receives) = allocation.transfers(&have);
    for endpoint in written(lists).filter(|endpoint| endpoint.is_ready()) {
        let Some(zone) = endpoint.zone.clone() else { continue };
        let Some(left) = gives.get_mut(&zone).filter(|left| **left > 0) else { continue };
        let Some((receiver, need)) = receives.iter_mut().find(|(_, need)| **need > 0) else {
            break;
        };
        *left -= 1;
        *need -= 1;
        *have.entry(zone).or_default() -= 1;
        *have.entry(Name::clone(receiver)).or_default() += 1;
        endpoint.hints = Some(allocation.hint(receiver));
    }
    Ok(have)
}

/// The endpoints of all slices that are created or updated.
fn written<'b>(lists: &'b mut PackedSlices<'_>) -> impl Iterator<Item = &'b mut Endpoint> {
    lists.create.iter_mut().chain(&mut lists.update).flat_map(|slice| &mut slice.endpoints)
}

/// How many endpoints each zone should get.
struct ZoneAllocation {
    zones: Vec<Name>,
    bounds: Vec<Bounds>,
    hints: Vec<Arc<Hints>>,
}

impl ZoneAllocation {
    fn new(lists: &PackedSlices<'_>, nodes: &Nodes) -> Result<Self, Refusal> {
        let all = lists.create.iter().chain(&lists.update).chain(lists.unchanged.iter().copied());
        let ready =
            |slice: &Slice| slice.endpoints.iter().filter(|one| one.is_ready()).count() as u64;
        let endpoints = all.map(ready).sum();
        let situation = Situation::new(&nodes.zones, &BTreeMap::new(), 0);
        let zones = situation.zones.len();
        if situation.unknown_nodes > 0 || zones < 2 {
            return Err(Refusal::NodeInformation { nodes: situation.unknown_nodes, zones });
        }
        if zones as u64 > endpoints {
            return Err(Refusal::Endpoints { endpoints, zones });
        }
        let bounds = Auto::UPSTREAM.bounds(&Region { total: endpoints, ..situation.region() });
        let minimums = bounds.iter().map(|bounds| bounds.minimum).sum::<u64>();
        if minimums > endpoints {
            return Err(Refusal::Minimum { endpoints, zones, minimums });
        }
        let zones: Vec<Name> = situation.names.iter().map(|name| Name::from(&**name)).collect();
        let hints = zones.iter().map(own_zone).collect();
        Ok(Self { zones, bounds, hints })
    }

    fn index(&self, zone: &str) -> Option<usize> {
        self.zones.binary_search_by(|known| (**known).cmp(zone)).ok()
    }

    fn hint(&self, zone: &Name) -> Arc<Hints> {
        self.index(zone).map_or_else(|| own_zone(zone), |index| Arc::clone(&self.hints[index]))
    }

    /// Moves unchanged slices whose hints are not acceptable to the updates. Returns the hints of the
    /// slices that stay.
    fn reopen(&self, lists: &mut PackedSlices<'_>) -> HintsPerZone {
        let mut have = HintsPerZone::new();
        let (unchanged, update) = (&mut lists.unchanged, &mut lists.update);
        unchanged.retain(|slice| match self.acceptable(slice, &have) {
            Some(counts) => {
                for (zone, count) in counts {
                    *have.entry(zone).or_default() += count;
                }
                true
            }
            None => {
                update.push((*slice).clone());
                false
            }
        });
        have
    }

    /// The hints of an unchanged slice, if every ready endpoint has one and no zone gets more endpoints
    /// than its maximum.
    fn acceptable(&self, slice: &Slice, have: &HintsPerZone) -> Option<HintsPerZone> {
        let mut counts = HintsPerZone::new();
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()) {
            let zones = endpoint.zone_hints();
            if zones.is_empty() {
                return None;
            }
            for zone in zones {
                *counts.entry(Name::clone(zone)).or_default() += 1;
            }
        }
        let fits = |(zone, count): (&Name, &u64)| {
            let maximum = self.index(zone).map(|index| self.bounds[index].maximum);
            maximum.is_some_and(|maximum| count + have.get(zone).unwrap_or(&0) <= maximum)
        };
        counts.iter().all(fits).then_some(counts)
    }

    /// How many endpoints each zone gives to others, and how many it receives.
    fn transfers(&self, have: &HintsPerZone) -> (HintsPerZone, HintsPerZone) {
        let difference = |(zone, bounds): (&Name, &Bounds)| {
            *have.get(zone).unwrap_or(&0) as f64 - bounds.expected.max(bounds.minimum as f64)
        };
        let differences: Vec<f64> = self.zones.iter().zip(&self.bounds).map(difference).collect();
        let (mut gives, mut receives) = (vec![0; self.zones.len()], vec![0; self.zones.len()]);
        transfers(&differences, &mut gives, &mut receives);
        let named = |counts: Vec<u64>| self.zones.iter().cloned().zip(counts).collect();
        (named(gives), named(receives))
    }
}

/// Hints to one zone.
pub(crate) fn own_zone(zone: &Name) -> Arc<Hints> {
    Arc::new(Hints::to_zone(Name::clone(zone)))
}

/// Hints each ready endpoint to its own zone or node, as `trafficDistribution` requests.
pub(crate) fn near(lists: &mut PackedSlices<'_>, near: Near) {
    let mut hints = NearHints::new(near);
    let (unchanged, update) = (&mut lists.unchanged, &mut lists.update);
    unchanged.retain(|slice| {
        let mut ready = slice.endpoints.iter().filter(|endpoint| endpoint.is_ready());
        let right = ready.all(|endpoint| {
            endpoint.hints == hints.of(endpoint.zone.as_ref(), endpoint.node.as_ref())
        });
        if !right {
            update.push((*slice).clone());
        }
        right
    });
    for endpoint in written(lists).filter(|endpoint| endpoint.is_ready()) {
        endpoint.hints = hints.of(endpoint.zone.as_ref(), endpoint.node.as_ref());
    }
}

/// The zone and the node of an endpoint.
type Location = (Option<Name>, Option<Name>);

/// Hints of endpoints to their own zone or node. Endpoints with the same location share one value.
pub(crate) struct NearHints {
    near: Near,
    /// Further zones that endpoints of other zones are hinted to.
    besides: Vec<Name>,
    made: BTreeMap<Location, Option<Arc<Hints>>>,
}

impl NearHints {
    pub(crate) fn new(near: Near) -> Self {
        Self { near, besides: Vec::new(), made: BTreeMap::new() }
    }

    /// The same with hints to these zones on the endpoints of all others. Clients of a zone for which there is no room
    /// use all endpoints.
    pub(crate) fn and_for(self, zones: &[Name]) -> Self {
        Self { besides: zones.iter().take(MAX_HINTS - 1).cloned().collect(), ..self }
    }

    /// The hints of an endpoint in this zone and on this node.
    pub(crate) fn of(&mut self, zone: Option<&Name>, node: Option<&Name>) -> Option<Arc<Hints>> {
        let node = node.filter(|_| self.near == Near::Node);
        let location = (zone.cloned(), node.cloned());
        let besides = &self.besides;
        let make = |(zone, node): &Location| {
            let others = zone.iter().filter(|zone| !besides.contains(zone)).flat_map(|_| besides);
            let hints = Hints {
                for_zones: zone.iter().chain(others).cloned().collect(),
                for_nodes: node.iter().cloned().collect(),
            };
            (hints != Hints::default()).then(|| Arc::new(hints))
        };
        self.made.entry(location).or_insert_with_key(make).clone()
    }
}

/// Removes all hints.
pub(crate) fn remove(lists: &mut PackedSlices<'_>) {
    let hinted = |slice: &Slice| slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some());
    let (unchanged, update) = (&mut lists.unchanged, &mut lists.update);
    unchanged.retain(|slice| {
        if hinted(slice) {
            update.push((*slice).clone());
        }
        !hinted(slice)
    });
    for endpoint in written(lists) {
        endpoint.hints = None;
    }
}

/// Whether a Service with these hints has to be synced again after nodes have changed, as the reference
/// decides it: a zone has fewer endpoints than its new minimum.
pub fn is_overloaded(hints_per_zone: &HintsPerZone, nodes: &Nodes) -> bool {
    let situation = Situation::new(&nodes.zones, &BTreeMap::new(), 0);
    if hints_per_zone.is_empty() {
        return false;
    }
    if situation.unknown_nodes > 0 || situation.zones.len() < 2 {
        return true;
    }
    let total = hints_per_zone.values().sum();
    let bounds = Auto::UPSTREAM.bounds(&Region { total, ..situation.region() });
    let mut zones = situation.names.iter().zip(bounds);
    zones.any(|(zone, bounds)| {
        hints_per_zone.get(&**zone).is_none_or(|&count| count < bounds.minimum)
    })
}
