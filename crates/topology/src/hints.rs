//! From "so many endpoints of zone a serve zone b" to which ones: as few changes as possible.
//!
//! ```text
//!  kinds: endpoints that are in one zone and serve the same zones now      each endpoint has the number of its kind
//!    │ stay in their group, as many as it has room for
//!    │ the others: the group of their own zone, then the first with room
//!    ▼
//!  queues of places: one for each kind, and one for each zone's others     an endpoint takes the next place
//! ```
//!
//! Places are counted for each kind, because there are few kinds and may be thousands of endpoints. Most often, all
//! endpoints of a kind go to the same group, and none has to be looked at.

use std::collections::BTreeMap;

use crate::allocation::{Allocation, Label};

/// The most zones that the hints of one endpoint may name.
pub const MAX_ZONES: usize = 8;

/// Endpoints to be placed that are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Where they are: a zone, or [`Region::sources`](crate::region::Region::sources)` - 1` for none.
    pub source: u32,
    /// The zones they are hinted to (or in the subset of) now, as an index into a list of sets of zones.
    pub serves: u32,
    /// Whether they stay where they are: these take their places first, and have none if their group has no room for
    /// them.
    pub fixed: bool,
    /// How many there are.
    pub count: u64,
}

impl Kind {
    /// Kinds with the same key share their places; fixed ones come first.
    fn key(&self) -> (bool, u32, u32) {
        (!self.fixed, self.serves, self.source)
    }
}

/// Where the endpoints of each kind go. Endpoints stay in the group they are in as long as it has room for their zone,
/// then prefer their own zone's group, then the first with room.
#[derive(Debug)]
pub struct Placement {
    /// The queues of each kind: among `stay`, and among `others` unless it is fixed.
    queues: Vec<(usize, Option<usize>)>,
    /// Places in groups that endpoints are in already.
    stay: Vec<Queue>,
    /// Places for the other endpoints of each source.
    others: Vec<Queue>,
}

impl Placement {
    /// Places in the groups of an allocation. `sets` are the sets of zones that endpoints serve, each in the order of
    /// the zones.
    pub fn new(kinds: &[Kind], sets: &[Vec<u32>], allocation: &Allocation) -> Self {
        let mut sizes = BTreeMap::new();
        for kind in kinds {
            *sizes.entry(kind.key()).or_insert(0) += kind.count;
        }
        let groups = || (0..).zip(allocation.groups());
        let mut free_places = FreePlaces::new(allocation);
        let mut waiting = vec![0; allocation.sources()];
        let mut enter = |(&(movable, serves, source), &count): (&(bool, u32, u32), &u64)| {
            let served = sets[serves as usize].as_slice();
            let serving = groups().filter(|(_, group)| allocation.zones_served(group) == served);
            let queue = free_places.take(serving.map(|(index, _)| index), source, count);
            if movable && queue.missing > 0 {
                waiting[source as usize] += queue.missing;
            }
            queue
        };
        let stay: Vec<Queue> = sizes.iter().map(&mut enter).collect();
        let others = (0..).zip(waiting).map(|(source, count)| {
            let own = groups().filter(|(_, group)| group.label == Label::Zone(source));
            free_places.take(own.chain(groups()).map(|(index, _)| index), source, count)
        });
        let others = others.collect();
        let keys: Vec<_> = sizes.into_keys().collect();
        let queues = kinds.iter().map(|kind| {
            let stay = keys.partition_point(|key| *key < kind.key());
            (stay, (!kind.fixed).then_some(kind.source as usize))
        });
        Self { queues: queues.collect(), stay, others }
    }

    /// The group of all endpoints of a kind, which is `None` where the allocation has no place for them. `Err` if they
    /// do not all go to the same one: then each has to [take](Self::take) its place.
    ///
    /// # Errors
    /// See above.
    pub fn of_all(&self, kind: usize) -> Result<Option<u32>, Mixed> {
        let (stay, others) = self.queues[kind];
        match (self.stay[stay].of_all()?, others) {
            (None, Some(source)) => self.others.get(source).map_or(Ok(None), Queue::of_all),
            (group, _) => Ok(group),
        }
    }

    /// The group of the next endpoint of a kind; `None` where the allocation has no place for it.
    pub fn take(&mut self, kind: usize) -> Option<u32> {
        let (stay, others) = self.queues[kind];
        let place = self.stay[stay].take();
        place.or_else(|| self.others.get_mut(others?)?.take())
    }
}

/// The endpoints of a kind do not all go to the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixed;

/// Places in groups, which are taken in this order.
#[derive(Debug)]
struct Queue {
    /// Groups, and how many places are left in each.
    places: Vec<(u32, u64)>,
    /// The first that may have places left.
    first: usize,
    /// How many endpoints find no place here.
    missing: u64,
}

impl Queue {
    fn of_all(&self) -> Result<Option<u32>, Mixed> {
        match (self.places.as_slice(), self.missing) {
            ([], _) => Ok(None),
            ([(group, _)], 0) => Ok(Some(*group)),
            _ => Err(Mixed),
        }
    }

    fn take(&mut self) -> Option<u32> {
        let (group, left) = self.places.get_mut(self.first)?;
        *left -= 1;
        self.first += usize::from(*left == 0);
        Some(*group)
    }
}

/// How many endpoints of each source each group can still take.
struct FreePlaces {
    sources: usize,
    free: Vec<u64>,
}

impl FreePlaces {
    fn new(allocation: &Allocation) -> Self {
        let (sources, groups) = (allocation.sources(), allocation.groups().len());
        let free = (0..groups).flat_map(|group| allocation.contents_of(group)).copied();
        Self { sources, free: free.collect() }
    }

    /// Takes places for so many endpoints of a source, in the first of these groups that have some.
    fn take(&mut self, groups: impl Iterator<Item = u32>, source: u32, count: u64) -> Queue {
        let mut queue = Queue { places: Vec::new(), first: 0, missing: count };
        for group in groups {
            if queue.missing == 0 {
                break;
            }
            let free = &mut self.free[group as usize * self.sources + source as usize];
            let taken = queue.missing.min(*free);
            if taken > 0 {
                *free -= taken;
                queue.missing -= taken;
                queue.places.push((group, taken));
            }
        }
        queue
    }
}
