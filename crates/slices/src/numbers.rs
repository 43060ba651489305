//! Zones as small numbers, so that no string is compared for each endpoint.
//!
//! Endpoints in the same zone, and those with the same hints, nearly always share one string or one list
//! in memory. So the number of a value is remembered by the value's address, and looked up by its content
//! only where that address is met for the first time.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::name::Name;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::region::Situation;

use crate::slice::{Hints, Subset};

/// The numbers of values that were met lately, by the address of the value.
#[derive(Clone)]
struct Recent<'a, T: ?Sized> {
    slots: [Option<(&'a T, u32)>; SLOTS],
}

const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 6;

impl<'a, T: ?Sized> Recent<'a, T> {
    fn new() -> Self {
        Self { slots: [None; SLOTS] }
    }

    /// The number of a value, which `find` gives if the value was not met lately.
    #[inline]
    fn number(&mut self, value: &'a T, find: impl FnOnce() -> u32) -> u32 {
        let slot = &mut self.slots[slot(value)];
        match slot {
            Some((known, number)) if std::ptr::eq(*known, value) => *number,
            _ => slot.insert((value, find())).1,
        }
    }
}

/// Where the number of a value is kept: the upper bits of a product, which depend on all bits of its address.
#[inline]
fn slot<T: ?Sized>(value: &T) -> usize {
    let address = std::ptr::from_ref(value).addr() as u64;
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOT_BITS)) as usize
}

/// Where endpoints are: the zone or region of each.
pub(crate) struct Locations<'a> {
    /// A number for each endpoint in the order in which locations were met, from 1; 0 without a location.
    numbers: Vec<u32>,
    /// How many endpoints have each number.
    counts: Vec<u64>,
    names: BTreeMap<&'a str, u32>,
}

impl<'a> FromIterator<Option<&'a Name>> for Locations<'a> {
    fn from_iter<I: IntoIterator<Item = Option<&'a Name>>>(locations: I) -> Self {
        let locations = locations.into_iter();
        let mut numbers = Vec::with_capacity(locations.size_hint().0);
        let (mut counts, mut names) = (Vec::with_capacity(8), BTreeMap::new());
        counts.push(0);
        let mut recent = Recent::new();
        for location in locations {
            let number = location.map_or(0, |name| {
                recent.number(&**name, || {
                    let next = counts.len() as u32;
                    let number = *names.entry(&**name).or_insert(next);
                    counts.resize(counts.len().max(number as usize + 1), 0);
                    number
                })
            });
            counts[number as usize] += 1;
            numbers.push(number);
        }
        Self { numbers, counts, names }
    }
}

impl Locations<'_> {
    /// The numbers of endpoints per zone beside what the zones can send; and the number that the location of
    /// each endpoint has there, which is the number of zones for an endpoint without a location.
    pub(crate) fn numbered(mut self, capacity: &Capacity) -> (Situation, Vec<u32>) {
        let counts = self.names.iter().map(|(name, number)| (*name, self.counts[*number as usize]));
        let situation = Situation::sorted(capacity, counts, self.counts[0]);
        let mut renumbered = vec![situation.names.len() as u32; self.counts.len()];
        for (name, number) in &self.names {
            if let Some(zone) = zone_number(&situation, name) {
                renumbered[*number as usize] = zone;
            }
        }
        for number in &mut self.numbers {
            *number = renumbered[*number as usize];
        }
        (situation, self.numbers)
    }
}

/// The number of a zone.
fn zone_number(situation: &Situation, name: &str) -> Option<u32> {
    let found = situation.names.binary_search_by(|known| (**known).cmp(name));
    found.ok().map(|zone| zone as u32)
}

/// Sets of zones, each with a number: the zones that endpoints are hinted to, or whose subset they are in.
/// 0 is the empty set.
#[derive(Clone)]
pub(crate) struct ZoneSets<'a> {
    known: KnownSets<'a>,
    recent: Recent<'a, Hints>,
}

#[derive(Clone)]
struct KnownSets<'a> {
    sets: Vec<Vec<u32>>,
    /// The numbers of the sets but the empty one, and hints to the zones of each if some were met.
    numbers: BTreeMap<Vec<u32>, (u32, Option<&'a Arc<Hints>>)>,
}

impl<'a> ZoneSets<'a> {
    pub(crate) fn new() -> Self {
        let known = KnownSets { sets: vec![Vec::new()], numbers: BTreeMap::new() };
        Self { known, recent: Recent::new() }
    }

    /// The sets, in the order of their numbers.
    pub(crate) fn all(&self) -> &[Vec<u32>] {
        &self.known.sets
    }

    /// The number of a set.
    pub(crate) fn number(&mut self, zones: &[u32]) -> u32 {
        self.known.number(zones, None)
    }

    /// The number of the zones that hints name. Zones that are not in the situation do not count.
    #[inline]
    pub(crate) fn hinted(&mut self, hints: &'a Arc<Hints>, situation: &Situation) -> u32 {
        let known = &mut self.known;
        self.recent.number(&**hints, || {
            let zones = hints.for_zones.iter().filter_map(|zone| zone_number(situation, zone));
            let mut zones: Vec<u32> = zones.collect();
            zones.sort_unstable();
            known.number(&zones, Some(hints))
        })
    }

    /// The number of the zone, or none, that a slice with this subset belongs to.
    pub(crate) fn labelled(&mut self, subset: Option<&Subset>, situation: &Situation) -> u32 {
        let zone = subset.and_then(|subset| zone_number(situation, subset.label().1));
        self.known.number(zone.as_slice(), None)
    }

    /// Hints that name these zones and were met.
    pub(crate) fn hints_to(&self, zones: &[u32]) -> Option<&'a Arc<Hints>> {
        self.known.numbers.get(zones)?.1
    }
}

impl<'a> KnownSets<'a> {
    fn number(&mut self, zones: &[u32], hints: Option<&'a Arc<Hints>>) -> u32 {
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
}
