//! From "so many endpoints of zone a serve zone b" to which ones: as few changes as possible.

use std::ops::Range;

use crate::allocation::{Allocation, Label};

/// An endpoint to be placed. Numbers alone: a Service may have thousands.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Where it is: a zone, or [`Region::sources`](crate::region::Region::sources)` - 1` for none.
    pub source: u32,
    /// The zones it is hinted to (or in the subset of) now, as an index into a list of sets of zones.
    pub serves: u32,
}

/// The group of each endpoint. Endpoints stay in the group they are in as long as it has room for
/// their zone, then prefer their own zone's group, then the first with room. `None` where the
/// allocation has no place for an endpoint.
///
/// `sets` are the sets of zones that endpoints serve, each in the order of the zones.
pub fn place(
    endpoints: &[Endpoint],
    sets: &[Vec<u32>],
    allocation: &Allocation,
) -> Vec<Option<u32>> {
    place_around(endpoints, sets, |_| false, allocation)
}

/// The same where some endpoints are fixed: these take their places first, and have none if their
/// group has no room for them.
pub fn place_around(
    endpoints: &[Endpoint],
    sets: &[Vec<u32>],
    is_fixed: impl Fn(usize) -> bool,
    allocation: &Allocation,
) -> Vec<Option<u32>> {
    let groups = || (0..).zip(allocation.groups());
    let serving = groups().map(|(index, group)| (allocation.zones_served(group), index));
    let serving = Lists::new(serving, sets.iter().map(Vec::as_slice));
    let local = groups().filter_map(|(index, group)| match group.label {
        Label::Zone(zone) => Some((zone, index)),
        _ => None,
    });
    let local = Lists::new(local, 0..allocation.sources() as u32);
    let mut rooms = Rooms::new(allocation);
    let mut places = vec![None; endpoints.len()];
    let mut stay = |index: usize| {
        let endpoint = &endpoints[index];
        places[index] = rooms.enter(serving.of(endpoint.serves), endpoint.source);
    };
    (0..endpoints.len()).filter(|&index| is_fixed(index)).for_each(&mut stay);
    (0..endpoints.len()).filter(|&index| !is_fixed(index)).for_each(&mut stay);
    for (index, endpoint) in endpoints.iter().enumerate() {
        if places[index].is_none() && !is_fixed(index) {
            let own = rooms.enter(local.of(endpoint.source), endpoint.source);
            places[index] = own.or_else(|| rooms.enter_first(endpoint.source));
        }
    }
    places
}

/// Lists of groups, each for a key, all in one piece of memory.
struct Lists {
    groups: Vec<u32>,
    ranges: Vec<Range<usize>>,
}

impl Lists {
    /// The groups of each key, in the order in which they come.
    fn new<K: Ord>(groups: impl Iterator<Item = (K, u32)>, keys: impl Iterator<Item = K>) -> Self {
        let mut groups: Vec<(K, u32)> = groups.collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        let range = |key: K| {
            let start = groups.partition_point(|(known, _)| *known < key);
            let many = groups[start..].iter().take_while(|(known, _)| *known == key).count();
            start..start + many
        };
        let ranges = keys.map(range).collect();
        Self { ranges, groups: groups.into_iter().map(|(_, group)| group).collect() }
    }

    #[inline]
    fn of(&self, key: u32) -> &[u32] {
        &self.groups[self.ranges[key as usize].clone()]
    }
}

/// How many endpoints of each source still find room in each group.
struct Rooms {
    sources: usize,
    free: Vec<u64>,
    /// The first group that may have room for each source. Rooms only fill up, so that it never goes back.
    first: Vec<u32>,
}

impl Rooms {
    fn new(allocation: &Allocation) -> Self {
        let (sources, groups) = (allocation.sources(), allocation.groups().len());
        let mut free = Vec::with_capacity(groups * sources);
        for group in 0..groups {
            free.extend_from_slice(allocation.contents_of(group));
        }
        Self { sources, free, first: vec![0; sources] }
    }

    /// Takes a room in the first of these groups that has one.
    #[inline]
    fn enter(&mut self, groups: &[u32], source: u32) -> Option<u32> {
        groups.iter().copied().find(|&group| {
            let free = &mut self.free[group as usize * self.sources + source as usize];
            let has_room = *free > 0;
            *free -= u64::from(has_room);
            has_room
        })
    }

    /// The same for all groups.
    fn enter_first(&mut self, source: u32) -> Option<u32> {
        let groups = (self.free.len() / self.sources) as u32;
        let from = self.first[source as usize];
        let group = (from..groups).find(|&group| self.enter(&[group], source).is_some());
        self.first[source as usize] = group.unwrap_or(groups);
        group
    }
}
