//! Hints exactly as the reference assigns them (`--compat upstream`): after packing, looking at
//! the slices that are written anyway.
//!
//! ```text
//!  slices that stay as they are ─► keep their hints, or are reopened
//!  slices that are written      ─► every ready endpoint to its own zone, then surplus to need
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::event::{Event, EventType};
use zonewise_common::name::Name;
use zonewise_topology::heuristics::auto::{Auto, Bounds, transfers};
use zonewise_topology::reason::Reason;
use zonewise_topology::region::{Region, Situation};

use crate::asked::Near;
use crate::node::Nodes;
use crate::pack::Lists;
use crate::slice::{AddressType, Endpoint, Hints, Slice};

/// Why the reference refuses hints, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NodeInformation { nodes: u64 },
    Endpoints { endpoints: u64, zones: usize },
    Minimum { endpoints: u64, zones: usize, minimums: u64 },
    NoZone,
}

impl Refusal {
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

    /// The same as a code; `unplaced` endpoints have no zone.
    pub(crate) fn reason(self, unplaced: u64) -> Reason {
        match self {
            Self::NodeInformation { nodes } => Reason::NodeInformationMissing { nodes },
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

/// Endpoints hinted to each zone.
pub type Allocated = BTreeMap<Name, u64>;

const ENABLED: &str = "TopologyAwareHintsEnabled";
const DISABLED: &str = "TopologyAwareHintsDisabled";

/// The reference's events about hints.
pub(crate) fn enabled(family: &AddressType) -> Event {
    let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
    Event { kind: EventType::Normal, reason: ENABLED.into(), message }
}

pub(crate) fn disabled(family: &AddressType) -> Event {
    let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
    Event { kind: EventType::Warning, reason: DISABLED.into(), message }
}

pub(crate) fn refused(refusal: Refusal, family: &AddressType) -> Event {
    let message = format!("{}, addressType: {family}", refusal.text());
    Event { kind: EventType::Warning, reason: DISABLED.into(), message }
}

/// Assigns hints by the annotation, or removes them all.
pub(crate) fn auto(lists: &mut Lists<'_>, nodes: &Nodes) -> Result<Allocated, Refusal> {
    let assigned = assign(lists, nodes);
    if assigned.is_err() {
        remove(lists);
    }
    assigned
}

fn assign(lists: &mut Lists<'_>, nodes: &Nodes) -> Result<Allocated, Refusal> {
    let allocation = Allocation::new(lists, nodes)?;
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

fn written<'b>(lists: &'b mut Lists<'_>) -> impl Iterator<Item = &'b mut Endpoint> {
    lists.create.iter_mut().chain(&mut lists.update).flat_map(|slice| &mut slice.endpoints)
}

/// What each zone should get.
struct Allocation {
    zones: Vec<Name>,
    bounds: Vec<Bounds>,
    hints: Vec<Arc<Hints>>,
}

impl Allocation {
    fn new(lists: &Lists<'_>, nodes: &Nodes) -> Result<Self, Refusal> {
        let all = lists.create.iter().chain(&lists.update).chain(lists.unchanged.iter().copied());
        let ready =
            |slice: &Slice| slice.endpoints.iter().filter(|one| one.is_ready()).count() as u64;
        let endpoints = all.map(ready).sum();
        let situation = Situation::new(&nodes.zones, &BTreeMap::new(), 0);
        let zones = situation.zones.len();
        if situation.unknown_nodes > 0 || zones < 2 {
            return Err(Refusal::NodeInformation { nodes: situation.unknown_nodes });
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

    fn place(&self, zone: &str) -> Option<usize> {
        self.zones.binary_search_by(|known| (**known).cmp(zone)).ok()
    }

    fn hint(&self, zone: &Name) -> Arc<Hints> {
        self.place(zone).map_or_else(|| own_zone(zone), |place| Arc::clone(&self.hints[place]))
    }

    /// Moves slices whose hints are not acceptable to the list of updates; counts the others.
    fn reopen(&self, lists: &mut Lists<'_>) -> Allocated {
        let mut have = Allocated::new();
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

    fn acceptable(&self, slice: &Slice, have: &Allocated) -> Option<Allocated> {
        let mut counts = Allocated::new();
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
            let maximum = self.place(zone).map(|place| self.bounds[place].maximum);
            maximum.is_some_and(|maximum| count + have.get(zone).unwrap_or(&0) <= maximum)
        };
        counts.iter().all(fits).then_some(counts)
    }

    /// How many endpoints each zone gives and receives.
    fn transfers(&self, have: &Allocated) -> (Allocated, Allocated) {
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

pub(crate) fn own_zone(zone: &Name) -> Arc<Hints> {
    Arc::new(Hints { for_zones: vec![Name::clone(zone)], for_nodes: Vec::new() })
}

/// Hints each ready endpoint to where it is (`trafficDistribution`).
pub(crate) fn near(lists: &mut Lists<'_>, near: Near) {
    let mut hints = NearHints::new(near);
    let (unchanged, update) = (&mut lists.unchanged, &mut lists.update);
    unchanged.retain(|slice| {
        let mut ready = slice.endpoints.iter().filter(|endpoint| endpoint.is_ready());
        let right = ready.all(|endpoint| endpoint.hints == hints.of(endpoint));
        if !right {
            update.push((*slice).clone());
        }
        right
    });
    for endpoint in written(lists).filter(|endpoint| endpoint.is_ready()) {
        endpoint.hints = hints.of(endpoint);
    }
}

/// Zone and node.
type Place = (Option<Name>, Option<Name>);

/// Hints by place, made once each.
pub(crate) struct NearHints {
    near: Near,
    made: BTreeMap<Place, Option<Arc<Hints>>>,
}

impl NearHints {
    pub(crate) fn new(near: Near) -> Self {
        Self { near, made: BTreeMap::new() }
    }

    pub(crate) fn of(&mut self, endpoint: &Endpoint) -> Option<Arc<Hints>> {
        let node = endpoint.node.clone().filter(|_| self.near == Near::Node);
        let place = (endpoint.zone.clone(), node);
        let make = |(zone, node): &Place| {
            let hints = Hints {
                for_zones: zone.iter().cloned().collect(),
                for_nodes: node.iter().cloned().collect(),
            };
            (hints != Hints::default()).then(|| Arc::new(hints))
        };
        self.made.entry(place).or_insert_with_key(make).clone()
    }
}

/// Takes all hints away.
pub(crate) fn remove(lists: &mut Lists<'_>) {
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

/// Whether a Service with these hints has to be looked at again after the nodes changed.
pub fn is_overloaded(allocated: &Allocated, nodes: &Nodes) -> bool {
    let situation = Situation::new(&nodes.zones, &BTreeMap::new(), 0);
    if allocated.is_empty() {
        return false;
    }
    if situation.unknown_nodes > 0 || situation.zones.len() < 2 {
        return true;
    }
    let total = allocated.values().sum();
    let bounds = Auto::UPSTREAM.bounds(&Region { total, ..situation.region() });
    let mut zones = situation.names.iter().zip(bounds);
    zones.any(|(zone, bounds)| allocated.get(&**zone).is_none_or(|&count| count < bounds.minimum))
}
