//! Kinds of endpoints, and zones as small numbers, so that no string is compared for each endpoint.
//!
//! Endpoints that are in the same zone and have the same hints are alike: whatever is decided, only their number
//! matters. There are few such kinds, and decisions are computed for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::name::Name;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::region::Situation;

use crate::slice::{Hints, Subset};

/// What makes endpoints alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Traits<'a> {
    /// Whether they are ready, and the only ones with their identity. Others do not count.
    pub(crate) counts: bool,
    /// The zone or region that they are in.
    pub(crate) location: Option<&'a Name>,
    /// Who uses them now.
    pub(crate) in_force: InForce<'a>,
}

/// Who uses an endpoint, as far as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InForce<'a> {
    /// It is not stored.
    New,
    /// It is stored with these hints.
    Hints(Option<&'a Arc<Hints>>),
    /// It is stored in a slice of this subset.
    Subset(Option<&'a Subset>),
}

/// Where the values of traits are in memory. Equal values nearly always share one place, and different values never do.
type Address = (bool, usize, usize);

impl Traits<'_> {
    fn address(&self) -> Address {
        let location = self.location.map_or(0, |name| name.as_ptr().addr());
        let in_force = match self.in_force {
            InForce::New => 0,
            InForce::Hints(None) | InForce::Subset(None) => 1,
            InForce::Hints(Some(hints)) => Arc::as_ptr(hints).addr(),
            InForce::Subset(Some(subset)) => std::ptr::from_ref(subset).addr(),
        };
        (self.counts, location, in_force)
    }
}

/// The kinds of endpoints.
#[derive(Clone)]
pub(crate) struct Kinds<'a> {
    /// The kind of each endpoint, as an index into the list.
    pub(crate) of: Vec<u32>,
    /// What the endpoints of each kind have in common, and how many there are.
    pub(crate) list: Vec<(Traits<'a>, u64)>,
}

/// The kinds that were met lately have their numbers remembered by address, so that values are compared only where an
/// address is met for the first time.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 6;

impl<'a> FromIterator<Traits<'a>> for Kinds<'a> {
    fn from_iter<I: IntoIterator<Item = Traits<'a>>>(endpoints: I) -> Self {
        let endpoints = endpoints.into_iter();
        let mut kinds = Self { of: Vec::with_capacity(endpoints.size_hint().0), list: Vec::new() };
        let mut known = BTreeMap::new();
        let mut recent: [Option<(Address, u32)>; SLOTS] = [None; SLOTS];
        for traits in endpoints {
            let address = traits.address();
            let recent = &mut recent[slot(address)];
            let kind = match recent {
                Some((met, kind)) if *met == address => *kind,
                _ => {
                    let next = kinds.list.len() as u32;
                    let kind = *known.entry(traits).or_insert(next);
                    if kind == next {
                        kinds.list.push((traits, 0));
                    }
                    recent.insert((address, kind)).1
                }
            };
            kinds.list[kind as usize].1 += 1;
            kinds.of.push(kind);
        }
        kinds
    }
}

/// Where the number of a kind is remembered: the upper bits of a product, which depend on all bits of the address.
#[inline]
fn slot((counts, location, in_force): Address) -> usize {
    let mixed = (location as u64).rotate_left(32) ^ in_force as u64 ^ u64::from(counts);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOT_BITS)) as usize
}

impl Kinds<'_> {
    /// The numbers of endpoints per zone beside what the zones can send.
    pub(crate) fn situation(&self, capacity: &Capacity) -> Situation {
        let mut placed = BTreeMap::<&str, u64>::new();
        let mut unplaced = 0;
        for (traits, count) in self.list.iter().filter(|(traits, _)| traits.counts) {
            match traits.location {
                Some(name) => *placed.entry(name).or_default() += count,
                None => unplaced += count,
            }
        }
        Situation::sorted(capacity, placed.into_iter(), unplaced)
    }

    /// Splits each kind by a further property of endpoints. Returns the new kind of each endpoint; and for each new kind
    /// the old one, the property, and how many endpoints there are.
    pub(crate) fn split<P: Copy + Ord>(
        &self,
        mut property: impl FnMut(usize) -> P,
    ) -> (Vec<u32>, Vec<(usize, P, u64)>) {
        let (mut of, mut list) = (Vec::with_capacity(self.of.len()), Vec::new());
        let mut known = BTreeMap::new();
        for (endpoint, &kind) in self.of.iter().enumerate() {
            let key = (kind, property(endpoint));
            let part = *known.entry(key).or_insert_with(|| {
                list.push((kind as usize, key.1, 0));
                list.len() - 1
            });
            list[part].2 += 1;
            of.push(part as u32);
        }
        (of, list)
    }
}

/// The number of a zone.
pub(crate) fn zone_number(situation: &Situation, name: &str) -> Option<u32> {
    let found = situation.names.binary_search_by(|known| (**known).cmp(name));
    found.ok().map(|zone| zone as u32)
}

/// Sets of zones, each with a number: the zones that endpoints are hinted to, or whose subset they are in.
/// 0 is the empty set.
#[derive(Clone)]
pub(crate) struct ZoneSets<'a> {
    sets: Vec<Vec<u32>>,
    /// The numbers of the sets but the empty one, and hints to the zones of each if some were met.
    numbers: BTreeMap<Vec<u32>, (u32, Option<&'a Arc<Hints>>)>,
}

impl<'a> ZoneSets<'a> {
    pub(crate) fn new() -> Self {
        Self { sets: vec![Vec::new()], numbers: BTreeMap::new() }
    }

    /// The sets, in the order of their numbers.
    pub(crate) fn all(&self) -> &[Vec<u32>] {
        &self.sets
    }

    /// The number of the zones that use endpoints now. Zones that are not in the situation do not count.
    pub(crate) fn in_force(&mut self, in_force: InForce<'a>, situation: &Situation) -> u32 {
        match in_force {
            InForce::New | InForce::Hints(None) => 0,
            InForce::Hints(Some(hints)) => {
                let zones = hints.for_zones.iter().filter_map(|zone| zone_number(situation, zone));
                let mut zones: Vec<u32> = zones.collect();
                zones.sort_unstable();
                self.number(&zones, Some(hints))
            }
            InForce::Subset(subset) => {
                let zone = subset.and_then(|subset| zone_number(situation, subset.label().1));
                self.number(zone.as_slice(), None)
            }
        }
    }

    /// The number of a set, to which there are these hints.
    pub(crate) fn number(&mut self, zones: &[u32], hints: Option<&'a Arc<Hints>>) -> u32 {
        if zones.is_empty() {
            return 0;
        }
        if let Some((number, known)) = self.numbers.get_mut(zones) {
            *known = known.or(hints);
            return *number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(zones.to_vec());
        self.numbers.insert(zones.to_vec(), (number, hints));
        number
    }

    /// Hints that name these zones and were met.
    pub(crate) fn hints_to(&self, zones: &[u32]) -> Option<&'a Arc<Hints>> {
        self.numbers.get(zones)?.1
    }
}
