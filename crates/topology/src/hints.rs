//! From "so many endpoints of zone a serve zone b" to which ones: as few changes as possible.

use std::collections::BTreeMap;

use crate::allocation::{Allocation, Label};

/// An endpoint to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Where it is: a zone, or [`Region::sources`](crate::region::Region::sources)` - 1` for none.
    pub source: usize,
    /// The zones it is hinted to (or in the subset of) now; empty for none.
    pub serves: &'a [u32],
}

/// The group of each endpoint. Endpoints stay in the group they are in as long as it has room for
/// their zone, then prefer their own zone's group, then the first with room. `None` where the
/// allocation has no place for an endpoint.
pub fn place(endpoints: &[Endpoint<'_>], allocation: &Allocation) -> Vec<Option<usize>> {
    place_around(endpoints, |_| false, allocation)
}

/// The same where some endpoints are fixed: these take their places first, and have none if their
/// group has no room for them.
pub fn place_around(
    endpoints: &[Endpoint<'_>],
    is_fixed: impl Fn(usize) -> bool,
    allocation: &Allocation,
) -> Vec<Option<usize>> {
    let groups = allocation.groups();
    let mut free: Vec<Vec<u64>> =
        (0..groups.len()).map(|group| allocation.contents_of(group).to_vec()).collect();
    let served: Vec<Vec<u32>> = groups.iter().map(|group| allocation.zones_served(group)).collect();
    let mut enter = |group: usize, source: usize| {
        let has_room = free[group][source] > 0;
        free[group][source] -= u64::from(has_room);
        has_room
    };
    let mut serving: BTreeMap<&[u32], Vec<usize>> = BTreeMap::new();
    let mut local: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        serving.entry(&served[index]).or_default().push(index);
        if let Label::Zone(zone) = group.label {
            local.entry(zone).or_default().push(index);
        }
    }
    let mut places = vec![None; endpoints.len()];
    let (fixed, movable): (Vec<usize>, Vec<usize>) =
        (0..endpoints.len()).partition(|&index| is_fixed(index));
    for &index in fixed.iter().chain(&movable) {
        let endpoint = &endpoints[index];
        let same = serving.get(endpoint.serves).into_iter().flatten().copied();
        places[index] = same.into_iter().find(|&group| enter(group, endpoint.source));
    }
    for index in movable {
        if places[index].is_some() {
            continue;
        }
        let source = endpoints[index].source;
        let local = local.get(&(source as u32)).into_iter().flatten().copied();
        places[index] = local.chain(0..groups.len()).find(|&group| enter(group, source));
    }
    places
}
