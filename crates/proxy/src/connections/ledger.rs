//! Connections by Service and zone, summed up from readings of the kernel's elements. Pure.
//!
//! ```text
//!  element of the kernel           last reading   this reading        ledger
//!  zone-a  10.96.0.1 . tcp . 80    40             43             ──►  +3 for the Service that has the address now
//!  zone-a  10.96.0.9 . tcp . 80    7              7  (no Service)──►  to be removed
//!  zone-a  counter                                50, set full   ──►  connections of Services that are not counted
//! ```
//!
//! An address may belong to another Service tomorrow, and an element goes when no Service has its address. So sums are
//! kept here, and the kernel's numbers are only compared with those of the last reading. There are at most
//! [`MOST_SERIES`] sums: where more Services are used, further ones are counted together.

use std::collections::BTreeMap;

use zonewise_common::name::Key;
use zonewise_nft::conntrack::Carried;
use zonewise_nft::{Bytes, Family, Parts};
use zonewise_routing::{Frontend, Protocol};

use super::Owners;
use crate::rules::counting::COUNTED;
use crate::rules::entries::routing_family;
use crate::rules::layout::family_index;

/// How many pairs of Service and zone are counted by themselves.
pub(crate) const MOST_SERIES: usize = 10_000;

/// An element: its family and key.
type ElementOf = (Family, Bytes);

/// What was read of a zone's counter and set.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    /// The family of the table.
    pub family: Family,
    /// What the zone's counter has.
    pub total: u64,
    /// The elements, and what each has counted.
    pub elements: BTreeMap<Bytes, u64>,
}

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By the name of the zone's counter.
    zones: BTreeMap<String, Zone>,
    /// How many sums there are.
    series: usize,
    /// Readings of sets that have been replaced or removed since they began do not count.
    epoch: u64,
    /// Whether it was said that Services are counted together.
    said: bool,
    /// How many pairs of Service and zone have bytes.
    bytes_series: usize,
    /// Bytes of Services for which there is no room.
    beyond_bytes: Carried,
    /// How often flows ended that the kernel had no room to tell about.
    lost: u64,
}

#[derive(Debug, Default)]
struct Zone {
    seen: BTreeMap<ElementOf, Seen>,
    sums: BTreeMap<Key, u64>,
    bytes: BTreeMap<Key, Carried>,
    /// Connections of Services for which there is no room here.
    beyond: u64,
    /// What the counter has more than the elements, by `family_index`.
    gaps: [Gap; 2],
}

/// An element as the last reading has found it.
#[derive(Clone, Debug)]
struct Seen {
    packets: u64,
    /// Who had its address last.
    owner: Key,
    /// Whether nobody has it any more.
    stale: bool,
}

/// What a zone's counter has more than its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gap {
    /// Because elements have been removed, or because of the time between two readings.
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

impl Ledger {
    /// To be asked before a reading begins.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes a reading that began in this epoch.
    pub(crate) fn take(&mut self, zone: &str, epoch: u64, read: &Read, owners: &Owners) {
        if epoch != self.epoch {
            return;
        }
        let zone = self.zones.entry(zone.to_owned()).or_default();
        for (key, packets) in &read.elements {
            let owner = frontends(read.family, key).and_then(|of| owner(&of, owners));
            zone.take((read.family, *key), *packets, owner, &mut self.series);
        }
        let sum: u64 = read.elements.values().sum();
        let is_full = read.elements.len() >= COUNTED as usize;
        zone.gaps[family_index(read.family)].see(read.total.saturating_sub(sum), is_full);
        self.say();
    }

    /// Says once that Services are counted together.
    fn say(&mut self) {
        let together = self.unassigned().map(|(_, connections)| connections).sum::<u64>();
        if together > 0 && !self.said {
            tracing::warn!(
                limit = MOST_SERIES,
                "connections of some Services are counted together, by zone alone, because too many Services are \
                 used from this node: zonewise_proxy_unassigned_connections_total has them"
            );
        }
        self.said |= together > 0;
    }

    /// The tables were written anew: all elements begin at zero.
    pub(crate) fn tables_are_new(&mut self) {
        self.epoch += 1;
        for zone in self.zones.values_mut() {
            zone.seen.clear();
            zone.gaps.iter_mut().for_each(Gap::restart);
        }
    }

    /// The set of a zone was removed.
    pub(crate) fn zone_is_gone(&mut self, zone: &str) {
        self.epoch += 1;
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.seen.clear();
            zone.gaps.iter_mut().for_each(Gap::restart);
        }
    }

    /// An element was removed.
    pub(crate) fn element_is_gone(&mut self, zone: &str, element: &ElementOf) {
        let Some(zone) = self.zones.get_mut(zone) else { return };
        if let Some(seen) = zone.seen.remove(element) {
            zone.gaps[family_index(element.0)].explained += seen.packets;
        }
    }

    /// Forgets the sums of Services that do not exist any more. Returns elements of addresses that no Service has, at
    /// most so many, by zone.
    pub(crate) fn stale(
        &mut self,
        most: usize,
        exists: &dyn Fn(&Key) -> bool,
    ) -> Vec<(String, Family, Bytes)> {
        for zone in self.zones.values_mut() {
            let before = zone.sums.len();
            zone.sums.retain(|service, _| exists(service));
            self.series -= before - zone.sums.len();
            let before = zone.bytes.len();
            zone.bytes.retain(|service, _| exists(service));
            self.bytes_series -= before - zone.bytes.len();
        }
        self.zones.retain(|_, zone| !zone.is_empty());
        let zones = self.zones.iter().flat_map(|(name, zone)| {
            let stale = zone.seen.iter().filter(|(_, seen)| seen.stale);
            stale.map(|((family, key), _)| (name.clone(), *family, *key))
        });
        zones.take(most).collect()
    }

    /// Adds what flows to a Service and zone have carried.
    pub(crate) fn carry(&mut self, zone: &str, service: &Key, more: Carried) {
        let known = self.zones.get_mut(zone).and_then(|zone| zone.bytes.get_mut(service));
        let sum = match known {
            Some(sum) => sum,
            None if self.bytes_series >= MOST_SERIES => &mut self.beyond_bytes,
            None => {
                self.bytes_series += 1;
                let zone = self.zones.entry(zone.to_owned()).or_default();
                zone.bytes.entry(service.clone()).or_default()
            }
        };
        sum.original += more.original;
        sum.reply += more.reply;
    }

    /// The kernel had no room so often to tell about flows that ended.
    pub(crate) fn lose(&mut self, times: u64) {
        if times > 0 && self.lost == 0 {
            tracing::warn!(
                "flows end faster than they can be read, and the bytes of some are not counted: \
                 zonewise_proxy_lost_flow_events_total tells how often"
            );
        }
        self.lost += times;
    }

    /// How often flows ended that the kernel had no room to tell about.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes by the name of the zone's counter and Service.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (&str, &Key, Carried)> {
        self.zones.iter().flat_map(|(name, zone)| {
            zone.bytes.iter().map(|(service, sum)| (name.as_str(), service, *sum))
        })
    }

    /// Bytes that are in no such sum.
    pub(crate) fn beyond_bytes(&self) -> Carried {
        self.beyond_bytes
    }

    /// All sums: the name of the zone's counter, the Service, and its connections.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&str, &Key, u64)> {
        self.zones.iter().flat_map(|(name, zone)| {
            zone.sums.iter().map(|(service, sum)| (name.as_str(), service, *sum))
        })
    }

    /// Connections that are in no sum, by the name of the zone's counter.
    pub(crate) fn unassigned(&self) -> impl Iterator<Item = (&str, u64)> {
        self.zones.iter().map(|(name, zone)| {
            let full = zone.gaps.iter().map(|gap| gap.before + gap.full).sum::<u64>();
            (name.as_str(), zone.beyond + full)
        })
    }
}

impl Zone {
    fn is_empty(&self) -> bool {
        self.seen.is_empty()
            && self.sums.is_empty()
            && self.bytes.is_empty()
            && self.beyond == 0
            && self.gaps == [Gap::default(); 2]
    }

    fn take(&mut self, at: ElementOf, packets: u64, owner: Option<&Key>, series: &mut usize) {
        let known = self.seen.get(&at);
        // Whoever had the address last has what was counted until it went. What nobody had yet waits: Services are not
        // known before the first sync.
        let Some(service) = owner.or(known.map(|seen| &seen.owner)).cloned() else { return };
        let before = known.map_or(0, |seen| seen.packets);
        let more = if packets < before { packets } else { packets - before };
        let room = *series < MOST_SERIES;
        match self.sums.get_mut(&service) {
            Some(sum) => *sum += more,
            None if room && owner.is_some() => {
                self.sums.insert(service.clone(), more);
                *series += 1;
            }
            None => self.beyond += more,
        }
        self.seen.insert(at, Seen { packets, owner: service, stale: owner.is_none() });
    }
}

/// The frontends that an element may be about, the most specific first.
fn frontends(family: Family, key: &Bytes) -> Option<[Frontend; 2]> {
    let mut key = Parts(key.as_slice());
    let (address, protocol, port) = (key.address(family)?, key.protocol()?, key.port()?);
    let (family, protocol) = (routing_family(family), Protocol::of_number(protocol)?);
    Some([Some(address), None].map(|address| Frontend { address, family, protocol, port }))
}

fn owner<'o>(frontends: &[Frontend], owners: &'o Owners) -> Option<&'o Key> {
    frontends.iter().find_map(|at| owners.get(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "zone-a";

    fn key(number: u32) -> Bytes {
        let address = std::net::Ipv4Addr::from(0x0a60_0000 + number);
        Bytes::new().address(address.into()).protocol(6).port(80)
    }

    fn service(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    fn owners(list: &[(u32, &str)]) -> Owners {
        let one = |(number, name): &(u32, &str)| {
            let [at, _] = frontends(Family::Ip, &key(*number)).unwrap();
            (at, service(name))
        };
        list.iter().map(one).collect()
    }

    fn read(total: u64, elements: &[(u32, u64)]) -> Read {
        let elements = elements.iter().map(|(number, packets)| (key(*number), *packets)).collect();
        Read { family: Family::Ip, total, elements }
    }

    fn sums(ledger: &Ledger) -> Vec<(String, u64)> {
        ledger.sums().map(|(_, (_, name), sum)| (name.to_string(), sum)).collect()
    }

    fn take(ledger: &mut Ledger, total: u64, elements: &[(u32, u64)], of: &[(u32, &str)]) {
        let epoch = ledger.epoch();
        ledger.take(ZONE, epoch, &read(total, elements), &owners(of));
    }

    #[test]
    fn what_was_counted_since_belongs_to_who_has_the_address_now() {
        let mut ledger = Ledger::default();
        take(&mut ledger, 3, &[(1, 3)], &[]);
        assert_eq!(sums(&ledger), [], "Services are not known yet");
        take(&mut ledger, 5, &[(1, 5)], &[(1, "a")]);
        assert_eq!(sums(&ledger), [("a".into(), 5)]);
        take(&mut ledger, 9, &[(1, 9)], &[(1, "b")]);
        assert_eq!(sums(&ledger), [("a".into(), 5), ("b".into(), 4)]);
        // Nobody has the address: what came until then is the last one's.
        take(&mut ledger, 10, &[(1, 10)], &[(2, "c")]);
        assert_eq!(sums(&ledger), [("a".into(), 5), ("b".into(), 5)]);
        let stale = ledger.stale(10, &|service| &*service.1 == "b");
        assert_eq!(stale, [(ZONE.to_owned(), Family::Ip, key(1))]);
        assert_eq!(sums(&ledger), [("b".into(), 5)], "a does not exist any more");
        ledger.element_is_gone(ZONE, &(Family::Ip, key(1)));
        assert_eq!(ledger.stale(10, &|_| true), []);
        take(&mut ledger, 12, &[(1, 2)], &[(1, "b")]);
        assert_eq!(sums(&ledger), [("b".into(), 7)], "the element has begun again");
        assert_eq!(ledger.unassigned().collect::<Vec<_>>(), [(ZONE, 0)]);
    }

    #[test]
    fn tables_that_are_new_count_from_zero() {
        let mut ledger = Ledger::default();
        take(&mut ledger, 5, &[(1, 5)], &[(1, "a")]);
        let epoch = ledger.epoch();
        ledger.tables_are_new();
        ledger.take(ZONE, epoch, &read(5, &[(1, 5)]), &owners(&[(1, "a")]));
        assert_eq!(sums(&ledger), [("a".into(), 5)], "a reading of the old tables");
        take(&mut ledger, 6, &[(1, 6)], &[(1, "a")]);
        assert_eq!(sums(&ledger), [("a".into(), 11)]);
    }

    #[test]
    fn a_full_set_leaves_the_zone_s_counter() {
        let all: Vec<(u32, u64)> = (0..COUNTED).map(|number| (number, 1)).collect();
        let mut ledger = Ledger::default();
        let unassigned = |ledger: &Ledger| ledger.unassigned().next().unwrap().1;
        let full = u64::from(COUNTED);
        // Elements that have been removed are no reason.
        take(&mut ledger, full + 9, &all[1..], &[(1, "a")]);
        assert_eq!(unassigned(&ledger), 0);
        take(&mut ledger, full + 30, &all, &[(1, "a")]);
        assert_eq!(unassigned(&ledger), 20);
        take(&mut ledger, full + 25, &all, &[(1, "a")]);
        assert_eq!(unassigned(&ledger), 20, "it never becomes less");
        ledger.tables_are_new();
        take(&mut ledger, full + 1, &all, &[(1, "a")]);
        assert_eq!(unassigned(&ledger), 21);
    }

    #[test]
    fn there_are_no_more_sums_than_the_limit() {
        let names: Vec<String> = (0..=MOST_SERIES).map(|number| number.to_string()).collect();
        let of: Vec<(u32, &str)> = (0..).zip(names.iter().map(String::as_str)).collect();
        let elements: Vec<(u32, u64)> = of.iter().map(|(number, _)| (*number, 2)).collect();
        let mut ledger = Ledger::default();
        take(&mut ledger, 0, &elements, &of);
        assert_eq!(ledger.sums().count(), MOST_SERIES);
        assert_eq!(ledger.unassigned().collect::<Vec<_>>(), [(ZONE, 2)]);
        // A Service that goes makes room.
        ledger.stale(0, &|service| &*service.1 != "0");
        take(&mut ledger, 0, &[(MOST_SERIES as u32, 5)], &of);
        assert_eq!(ledger.sums().count(), MOST_SERIES);
    }
}
