//! What was counted by Service and zone, summed up from readings of the kernel. Pure.
//!
//! ```text
//!  element of the kernel           last reading   this reading        ledger
//!  zone a  10.96.0.1 . tcp . 80    40             43             ──►  +3 for the Service that has the address now
//!  zone a  10.96.0.9 . tcp . 80    7              7  (no Service)──►  to be removed
//!  zone a  counter                                50, set full   ──►  connections of Services that are not counted
//! ```
//!
//! An address may belong to another Service tomorrow, and an element goes when no Service has its address. So sums are
//! kept here, and the kernel's numbers are only compared with those of the last reading. In tables that an earlier
//! process has left, the first reading is only what later ones are compared with: that process has reported what it counted.
//!
//! A sum stays for as long as its Service exists, whatever becomes of the zone, so that no total ever becomes less.
//! There are at most [`MOST_SERIES`] sums: where more Services are used, further ones are counted together.

use std::collections::BTreeMap;

use zonewise_common::name::{Key, Name};
use zonewise_nft::conntrack::Carried;
use zonewise_nft::{Bytes, Family};

use crate::rules::layout::family_index;

/// How many pairs of Service and zone are counted by themselves.
pub(crate) const MOST_SERIES: usize = 10_000;

/// An element: its family and key.
pub(crate) type ElementOf = (Family, Bytes);

/// What was read of a zone's counter and set.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The family of the table.
    pub family: Family,
    /// What the zone's counter has.
    pub total: u64,
    /// How many elements the set can have.
    pub room: usize,
    /// The elements.
    pub elements: BTreeMap<Bytes, ReadElement>,
}

/// An element that was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadElement {
    /// What it has counted.
    pub packets: u64,
    /// The Service that has its address now.
    pub owner: Option<Key>,
}

/// What was counted for a Service and zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Connections.
    pub connections: u64,
    /// Those of them that the endpoint has refused or not answered. They are counted seconds later.
    pub failed: u64,
    /// Bytes, where they are counted: `original` to the endpoints, `reply` from them.
    pub bytes: Carried,
}

/// Why something is in no sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unassigned {
    /// Too many Services are used from this node.
    TooMany,
    /// No Service has the address, or the Service does not have the endpoint. Both may have been so before.
    NoService,
}

impl Unassigned {
    pub(crate) const ALL: [Self; 2] = [Self::TooMany, Self::NoService];

    /// As a label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "too_many_services",
            Self::NoService => "no_service",
        }
    }
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    zones: BTreeMap<Name, Zone>,
    /// How many sums there are.
    series: usize,
    /// Whether it is known from which numbers on the kernel counts for this process.
    began: bool,
    /// Whether it was said that Services are counted together.
    said: bool,
    /// Bytes that are in no sum, in the order of [`Unassigned::ALL`].
    unassigned_bytes: [Carried; 2],
    /// How often the kernel could not report flows that have ended.
    lost: u64,
}

#[derive(Debug, Default)]
struct Zone {
    seen: BTreeMap<ElementOf, Seen>,
    sums: BTreeMap<Key, Sum>,
    /// Connections of Services for which there is no room here.
    beyond: u64,
    /// Connections to addresses that no Service has had.
    no_service: u64,
    /// What the counter has more than the elements, by `family_index`.
    gaps: [Gap; 2],
}

/// An element as the last reading has found it.
#[derive(Clone, Debug)]
struct Seen {
    packets: u64,
    /// How many of them are in sums. The others wait for a Service that has the address.
    counted: u64,
    /// Who had its address last.
    owner: Option<Key>,
    /// Whether nobody has it now.
    stale: bool,
}

/// What a zone's counter has more than its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gap {
    /// Because elements have been removed, because of the time between two readings, or from before this process.
    explained: u64,
    /// Because the set was full.
    full: u64,
    /// The same of tables that have been replaced.
    before: u64,
}

impl Gap {
    fn see(&mut self, gap: u64, is_full: bool) {
        match is_full {
            true => self.full = self.full.max(gap.saturating_sub(self.explained)),
            false => self.explained = gap.saturating_sub(self.full),
        }
    }

    fn restart(&mut self) {
        *self = Self { before: self.before + self.full, ..Self::default() };
    }
}

impl Read {
    /// What the counter has more than the elements.
    fn gap(&self) -> u64 {
        let sum: u64 = self.elements.values().map(|element| element.packets).sum();
        self.total.saturating_sub(sum)
    }
}

impl Ledger {
    /// Whether readings are taken.
    pub(crate) fn has_begun(&self) -> bool {
        self.began
    }

    /// Begins with the numbers of tables that an earlier process has left: each zone as it was read.
    pub(crate) fn begin<'r>(&mut self, zones: impl Iterator<Item = &'r (Name, Read)>) {
        self.began = true;
        for (zone, read) in zones {
            let zone = self.zones.entry(Name::clone(zone)).or_default();
            zone.gaps[family_index(read.family)].explained = read.gap();
            for (key, element) in &read.elements {
                let ReadElement { packets, owner } = element.clone();
                let stale = owner.is_none();
                let seen = Seen { packets, counted: packets, owner, stale };
                zone.seen.insert((read.family, *key), seen);
            }
        }
    }

    /// Takes a reading of a zone.
    pub(crate) fn take(&mut self, zone: &Name, read: &Read) {
        if !self.began {
            return;
        }
        let zone = self.zones.entry(Name::clone(zone)).or_default();
        for (key, element) in &read.elements {
            zone.take((read.family, *key), element, &mut self.series);
        }
        let is_full = read.elements.len() >= read.room;
        zone.gaps[family_index(read.family)].see(read.gap(), is_full);
        self.say();
    }

    /// Says once that Services are counted together.
    fn say(&mut self) {
        if self.said || self.zones.values().all(|zone| zone.too_many() == 0) {
            return;
        }
        self.said = true;
        tracing::warn!(
            limit = MOST_SERIES,
            "connections of some Services are counted together, by zone alone, because too many Services are used \
             from this node: zonewise_proxy_unassigned_connections_total has them"
        );
    }

    /// The tables were written anew: all elements begin at zero.
    pub(crate) fn tables_are_new(&mut self) {
        self.began = true;
        for zone in self.zones.values_mut() {
            zone.remove_seen(|_| true);
            zone.gaps.iter_mut().for_each(Gap::restart);
        }
    }

    /// The set of a zone in one family was removed.
    pub(crate) fn set_is_gone(&mut self, zone: &Name, family: Family) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.remove_seen(|(of, _)| *of == family);
            zone.gaps[family_index(family)].restart();
        }
    }

    /// These elements of a zone were removed.
    pub(crate) fn elements_are_gone(&mut self, zone: &Name, elements: &[ElementOf]) {
        let Some(zone) = self.zones.get_mut(zone) else { return };
        for element in elements {
            let packets = zone.seen.get(element).map_or(0, |seen| seen.packets);
            zone.gaps[family_index(element.0)].explained += packets;
            zone.remove(element);
        }
    }

    /// Forgets the sums of Services that do not exist any more. Returns elements of addresses that no Service has, at
    /// most so many, by zone. The last reading may be older than the Services are, so they are asked again.
    pub(crate) fn stale(
        &mut self,
        most: usize,
        exists: &dyn Fn(&Key) -> bool,
        has_owner: &dyn Fn(&ElementOf) -> bool,
    ) -> Vec<(Name, ElementOf)> {
        for zone in self.zones.values_mut() {
            zone.sums.retain(|service, _| exists(service));
        }
        self.series = self.zones.values().map(|zone| zone.sums.len()).sum();
        self.zones.retain(|_, zone| !zone.is_empty());
        let zones = self.zones.iter().flat_map(|(name, zone)| {
            let stale =
                zone.seen.iter().filter(move |(element, seen)| seen.stale && !has_owner(element));
            stale.map(move |(element, _)| (Name::clone(name), *element))
        });
        zones.take(most).collect()
    }

    /// Adds what flows to a Service and zone have carried.
    pub(crate) fn add_bytes(&mut self, zone: &Name, service: &Key, more: Carried) {
        match self.sum(zone, service) {
            Some(sum) => sum.bytes += more,
            None => self.add_unassigned_bytes(Unassigned::TooMany, more),
        }
    }

    /// Adds connections to a Service and zone that have failed. Where there are too many Services they are left out.
    pub(crate) fn add_failed(&mut self, zone: &Name, service: &Key, more: u64) {
        if let Some(sum) = self.sum(zone, service) {
            sum.failed += more;
        }
    }

    /// The sum of a Service and zone, a new one if there is none; `None` where there are too many.
    fn sum(&mut self, zone: &Name, service: &Key) -> Option<&mut Sum> {
        let is_known = self.zones.get(zone).is_some_and(|zone| zone.sums.contains_key(service));
        if !is_known {
            if self.series >= MOST_SERIES {
                return None;
            }
            self.series += 1;
        }
        let zone = self.zones.entry(Name::clone(zone)).or_default();
        Some(zone.sums.entry(service.clone()).or_default())
    }

    /// Adds what flows have carried that are in no sum.
    pub(crate) fn add_unassigned_bytes(&mut self, why: Unassigned, more: Carried) {
        self.unassigned_bytes[why as usize] += more;
    }

    /// Adds how often the kernel could not report flows that have ended.
    pub(crate) fn add_lost_events(&mut self, times: u64) {
        self.lost += times;
    }

    /// How often the kernel could not report flows that have ended.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// All sums, by zone and Service.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&Name, &Key, Sum)> {
        self.zones.iter().flat_map(|(name, zone)| {
            zone.sums.iter().map(move |(service, sum)| (name, service, *sum))
        })
    }

    /// Connections that are in no sum, by zone.
    pub(crate) fn unassigned(&self) -> impl Iterator<Item = (&Name, Unassigned, u64)> {
        self.zones.iter().flat_map(|(name, zone)| {
            [
                (name, Unassigned::TooMany, zone.too_many()),
                (name, Unassigned::NoService, zone.no_service),
            ]
        })
    }

    /// Bytes that are in no sum.
    pub(crate) fn unassigned_bytes(&self) -> impl Iterator<Item = (Unassigned, Carried)> {
        Unassigned::ALL.into_iter().zip(self.unassigned_bytes)
    }
}

impl Zone {
    fn is_empty(&self) -> bool {
        self.seen.is_empty()
            && self.sums.is_empty()
            && self.beyond == 0
            && self.no_service == 0
            && self.gaps == [Gap::default(); 2]
    }

    /// Connections of Services that are not counted by themselves, because there are too many.
    fn too_many(&self) -> u64 {
        self.beyond + self.gaps.iter().map(|gap| gap.before + gap.full).sum::<u64>()
    }

    fn take(&mut self, at: ElementOf, read: &ReadElement, series: &mut usize) {
        let known = self.seen.get(&at).cloned();
        let ReadElement { packets, owner } = read;
        let stale = owner.is_none();
        // Another program may have set it to zero.
        let counted = known.as_ref().map_or(0, |seen| seen.counted);
        let counted = if *packets < counted { 0 } else { counted };
        // What was counted belongs to the Service that had the address last. Where none has had it yet, the count
        // waits: a Service may be counted a moment before it is known here.
        let owner = owner.clone().or(known.and_then(|seen| seen.owner));
        let counted = match &owner {
            None => counted,
            Some(service) => {
                self.add(service, packets - counted, !stale, series);
                *packets
            }
        };
        self.seen.insert(at, Seen { packets: *packets, counted, owner, stale });
    }

    /// Adds connections to a sum. There is a new one only for a Service that exists.
    fn add(&mut self, service: &Key, more: u64, exists: bool, series: &mut usize) {
        match self.sums.get_mut(service) {
            Some(sum) => sum.connections += more,
            None if more == 0 => {}
            None if exists && *series < MOST_SERIES => {
                let sum = Sum { connections: more, ..Sum::default() };
                self.sums.insert(service.clone(), sum);
                *series += 1;
            }
            None => self.beyond += more,
        }
    }

    /// An element is gone: what has waited for a Service waits no longer.
    fn remove(&mut self, element: &ElementOf) {
        if let Some(seen) = self.seen.remove(element) {
            self.no_service += seen.packets - seen.counted;
        }
    }

    fn remove_seen(&mut self, which: impl Fn(&ElementOf) -> bool) {
        let gone: Vec<ElementOf> = self.seen.keys().copied().filter(which).collect();
        gone.iter().for_each(|element| self.remove(element));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many elements a set can have.
    const ROOM: u32 = 1000;

    fn zone() -> Name {
        "a".into()
    }

    fn key(number: u32) -> Bytes {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        Bytes::new().address(address.into()).protocol(6).port(80)
    }

    fn service(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    /// Elements, each with the Service that has its address; "" for none.
    fn read(total: u64, elements: &[(u32, u64, &str)]) -> Read {
        let one = |(number, packets, name): &(u32, u64, &str)| {
            let owner = (!name.is_empty()).then(|| service(name));
            (key(*number), ReadElement { packets: *packets, owner })
        };
        let (family, room) = (Family::Ip, ROOM as usize);
        Read { family, total, room, elements: elements.iter().map(one).collect() }
    }

    fn sums(ledger: &Ledger) -> Vec<(String, u64)> {
        ledger.sums().map(|(_, (_, name), sum)| (name.to_string(), sum.connections)).collect()
    }

    /// Connections in no sum: of too many Services, and of none.
    fn unassigned(ledger: &Ledger) -> [u64; 2] {
        Unassigned::ALL.map(|why| {
            ledger.unassigned().filter(|(_, found, _)| *found == why).map(|(.., sum)| sum).sum()
        })
    }

    fn take(ledger: &mut Ledger, total: u64, elements: &[(u32, u64, &str)]) {
        ledger.take(&zone(), &read(total, elements));
    }

    /// A ledger of tables that this process has made.
    fn new() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.tables_are_new();
        ledger
    }

    #[test]
    fn what_was_counted_since_belongs_to_who_has_the_address_now() {
        let mut ledger = new();
        take(&mut ledger, 3, &[(1, 3, "")]);
        assert_eq!(sums(&ledger), [], "its Service is not known yet");
        take(&mut ledger, 5, &[(1, 5, "a")]);
        assert_eq!(sums(&ledger), [("a".into(), 5)]);
        take(&mut ledger, 9, &[(1, 9, "b")]);
        assert_eq!(sums(&ledger), [("a".into(), 5), ("b".into(), 4)]);
        // Nobody has the address: what came until then is the last one's.
        take(&mut ledger, 10, &[(1, 10, "")]);
        assert_eq!(sums(&ledger), [("a".into(), 5), ("b".into(), 5)]);
        let stale = ledger.stale(10, &|service| &*service.1 == "b", &|_| false);
        assert_eq!(stale, [(zone(), (Family::Ip, key(1)))]);
        assert_eq!(sums(&ledger), [("b".into(), 5)], "a does not exist any more");
        ledger.elements_are_gone(&zone(), &[(Family::Ip, key(1))]);
        assert_eq!(ledger.stale(10, &|_| true, &|_| false), []);
        take(&mut ledger, 12, &[(1, 2, "b")]);
        assert_eq!(sums(&ledger), [("b".into(), 7)], "the element has begun again");
        assert_eq!(unassigned(&ledger), [0, 0]);
    }

    /// An element that no Service was ever known for goes as well, and what it has counted is reported.
    #[test]
    fn elements_that_no_service_has_had_are_removed() {
        let mut ledger = new();
        take(&mut ledger, 7, &[(1, 3, ""), (2, 4, "")]);
        let both = [1, 2].map(|number| (zone(), (Family::Ip, key(number))));
        assert_eq!(ledger.stale(10, &|_| true, &|_| false), both);
        let second = |element: &ElementOf| element.1 == key(2);
        let first = [both[0].clone()];
        assert_eq!(ledger.stale(10, &|_| true, &second), first, "the other has a Service by now");
        ledger.elements_are_gone(&zone(), &[(Family::Ip, key(1))]);
        take(&mut ledger, 9, &[(2, 6, "b")]);
        assert_eq!((sums(&ledger), unassigned(&ledger)), (vec![("b".into(), 6)], [0, 3]));
    }

    #[test]
    fn tables_that_are_new_count_from_zero() {
        let mut ledger = new();
        take(&mut ledger, 5, &[(1, 5, "a")]);
        ledger.tables_are_new();
        take(&mut ledger, 6, &[(1, 6, "a")]);
        assert_eq!(sums(&ledger), [("a".into(), 11)]);
    }

    /// What is in the tables of an earlier process was reported by that process.
    #[test]
    fn tables_of_an_earlier_process_count_from_what_they_have() {
        let mut ledger = Ledger::default();
        take(&mut ledger, 5, &[(1, 5, "a")]);
        assert_eq!(sums(&ledger), [], "it is not known yet where to begin");
        let all: Vec<(u32, u64, &str)> = (2..ROOM).map(|number| (number, 1, "b")).collect();
        let full = u64::from(ROOM);
        let mut before = all.clone();
        before.extend([(0, 7, ""), (1, 9, "a")]);
        ledger.begin([(zone(), read(full + 100, &before))].iter());
        take(&mut ledger, full + 100, &before);
        assert_eq!((sums(&ledger), unassigned(&ledger)), (vec![], [0, 0]));
        let mut after = all;
        after.extend([(0, 8, "c"), (1, 12, "a")]);
        take(&mut ledger, full + 110, &after);
        let expected = vec![("a".into(), 3), ("c".into(), 1)];
        assert_eq!((sums(&ledger), unassigned(&ledger)), (expected, [6, 0]));
    }

    /// IPv4 goes on when the zone has no IPv6 endpoint any more.
    #[test]
    fn a_zone_that_is_gone_in_one_family_goes_on_in_the_other() {
        let mut ledger = new();
        let six = |packets| Read { family: Family::Ip6, ..read(packets, &[(1, packets, "a")]) };
        take(&mut ledger, 5, &[(1, 5, "a")]);
        ledger.take(&zone(), &six(2));
        ledger.set_is_gone(&zone(), Family::Ip6);
        take(&mut ledger, 5, &[(1, 5, "a")]);
        assert_eq!(sums(&ledger), [("a".into(), 7)]);
        ledger.take(&zone(), &six(3));
        assert_eq!(sums(&ledger), [("a".into(), 10)]);
    }

    #[test]
    fn a_full_set_leaves_the_zone_s_counter() {
        let all: Vec<(u32, u64, &str)> = (0..ROOM).map(|number| (number, 1, "a")).collect();
        let mut ledger = new();
        let full = u64::from(ROOM);
        // Elements that have been removed are no reason.
        take(&mut ledger, full + 9, &all[1..]);
        assert_eq!(unassigned(&ledger), [0, 0]);
        take(&mut ledger, full + 30, &all);
        assert_eq!(unassigned(&ledger), [20, 0]);
        take(&mut ledger, full + 25, &all);
        assert_eq!(unassigned(&ledger), [20, 0], "it never becomes less");
        ledger.tables_are_new();
        take(&mut ledger, full + 1, &all);
        assert_eq!(unassigned(&ledger), [21, 0]);
    }

    #[test]
    fn there_are_no_more_sums_than_the_limit() {
        let names: Vec<String> = (0..=MOST_SERIES).map(|number| number.to_string()).collect();
        let elements: Vec<(u32, u64, &str)> =
            (0..).zip(&names).map(|(number, name)| (number, 2, name.as_str())).collect();
        let mut ledger = new();
        // Those of one zone would not fit into one set, which does not matter here.
        take(&mut ledger, 0, &elements);
        assert_eq!(ledger.sums().count(), MOST_SERIES);
        assert_eq!(unassigned(&ledger), [2, 0]);
        let one = Carried { original: 1, reply: 2 };
        ledger.add_bytes(&zone(), &service(&names[MOST_SERIES]), one);
        ledger.add_bytes(&zone(), &service(&names[0]), one);
        let bytes: Vec<_> = ledger.unassigned_bytes().map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes, [one, Carried::default()]);
        ledger.add_failed(&zone(), &service(&names[MOST_SERIES]), 1);
        ledger.add_failed(&zone(), &service(&names[0]), 1);
        assert_eq!(ledger.sums().map(|(.., sum)| sum.failed).sum::<u64>(), 1);
        // A Service that goes makes room.
        ledger.stale(0, &|service| &*service.1 != "0", &|_| true);
        take(&mut ledger, 0, &[(MOST_SERIES as u32, 5, &names[MOST_SERIES])]);
        assert_eq!(ledger.sums().count(), MOST_SERIES);
    }
}
