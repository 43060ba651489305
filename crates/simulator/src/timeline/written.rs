//! What written slices make of the traffic: an allocation, read off the slices as proxies read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::keys::ZONE_SHARES;
use zonewise_slices::slice::{Endpoint, Slice};
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::region::Situation;
use zonewise_topology::traffic::{Traffic, TrafficModel};
use zonewise_topology::zone_shares::ZoneShares;

/// The traffic with these slices; `None` without endpoints.
pub(super) fn traffic(capacity: &Capacity, slices: &[Arc<Slice>]) -> Option<Traffic> {
    let mut counts: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for zone in endpoints(slices).filter_map(|(_, endpoint)| endpoint.zone.as_deref()) {
        *counts.entry(zone.into()).or_default() += 1;
    }
    let situation = Situation::new(capacity, &counts, 0);
    let allocation = match shares(slices) {
        Some(shares) => by_shares(&situation, &shares),
        None => by_users(&situation, slices),
    };
    TrafficModel::new().run(&situation.region(), &allocation)
}

fn endpoints(slices: &[Arc<Slice>]) -> impl Iterator<Item = (&Slice, &Endpoint)> {
    slices.iter().flat_map(|slice| slice.endpoints.iter().map(|endpoint| (&**slice, endpoint)))
}

fn number(situation: &Situation, zone: &str) -> Option<usize> {
    situation.names.binary_search_by(|known| (**known).cmp(zone)).ok()
}

/// The zone shares. Every slice carries the same.
fn shares(slices: &[Arc<Slice>]) -> Option<ZoneShares> {
    let text = slices.first()?.annotations.get(ZONE_SHARES)?;
    ZoneShares::decode(text).ok()
}

/// A group of endpoints for each zone that they are in, with the weights that the shares say.
fn by_shares(situation: &Situation, shares: &ZoneShares) -> Allocation {
    let mut allocation = Allocation::new();
    allocation.begin(&situation.region(), Carrier::Shares);
    for (source, zone) in situation.zones.iter().enumerate() {
        let group = allocation.add_group(Label::Zone(source as u32));
        allocation.put(group, source, zone.endpoints);
        for (consumer, from) in situation.names.iter().enumerate() {
            let parts = shares.from.get(&**from);
            let part = parts.and_then(|parts| parts.get(&*situation.names[source]));
            if let Some(part) = part.filter(|_| zone.endpoints > 0) {
                let weight = f64::from(*part) / zone.endpoints as f64;
                allocation.set_weight(group, consumer, weight);
            }
        }
    }
    serve_the_unserved(&mut allocation);
    allocation
}

/// A group of endpoints for each set of zones that hints or a subset name.
fn by_users(situation: &Situation, slices: &[Arc<Slice>]) -> Allocation {
    let users = |slice: &Slice, endpoint: &Endpoint| -> Vec<usize> {
        match slice.subset() {
            Some(subset) => number(situation, subset.label().1).into_iter().collect(),
            None => {
                endpoint.zone_hints().iter().filter_map(|zone| number(situation, zone)).collect()
            }
        }
    };
    let mut allocation = Allocation::new();
    allocation.begin(&situation.region(), Carrier::Hints);
    let mut groups: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for (slice, endpoint) in endpoints(slices) {
        let Some(source) = endpoint.zone.as_deref().and_then(|zone| number(situation, zone)) else {
            continue;
        };
        let users = users(slice, endpoint);
        let group = *groups.entry(users).or_insert_with_key(|users| {
            let group = allocation.add_group(Label::Shared);
            for &zone in users {
                allocation.set_weight(group, zone, 1.0);
            }
            group
        });
        allocation.put(group, source, 1);
    }
    serve_the_unserved(&mut allocation);
    allocation
}

/// A zone that no endpoint is meant for uses all of them.
fn serve_the_unserved(allocation: &mut Allocation) {
    let groups = allocation.groups().len();
    for zone in 0..allocation.consumers() {
        if (0..groups).all(|group| allocation.weight(group, zone) == 0.0) {
            for group in 0..groups {
                allocation.set_weight(group, zone, 1.0);
            }
        }
    }
}
