//! What the kernel has counted: connections by zone, and by Service and zone with their bytes.
//!
//! * `reading`: the thread that reads when somebody asks.
//! * `ledger`: sums by Service and zone.
//! * `flow_ends`: which Service a flow of connection tracking was made to, and in which zone its endpoint is.
//! * `bytes`: bytes of connections, from connection tracking.
//! * `failed`: connections that fail, from connection tracking.
//! * `trouble`: when reading connection tracking is tried again.
//! * `service_counts`: all of it by Service and zone, for metrics and the page of counts.
//!
//! Reading is no change, so it needs neither the socket that owns the tables nor the lock around it. With
//! `--count services` there is a counter per zone and used address and port of a Service. These are also read every few
//! seconds while nobody asks, so that what was counted belongs to the Service that had the address then.

pub(crate) mod bytes;
pub(crate) mod failed;
mod flow_ends;
pub(crate) mod ledger;
mod reading;
pub(crate) mod service_counts;
mod trouble;

use std::collections::BTreeMap;
use std::io;

use zonewise_common::name::{Key, Name};
use zonewise_nft::{Bytes, Family, Parts, SetInfo, Socket};
use zonewise_routing::{Frontend, Protocol};

use crate::published::Published;
use crate::rules::entries::routing_family;
use crate::rules::layout::FAMILIES;
use crate::rules::{TABLE, counting};
use ledger::{ElementOf, Read, ReadElement};
pub(crate) use reading::{Pace, Reading};

/// How often a set is read while other programs change tables.
const READ_AGAIN: usize = 5;

/// The connections counted so far, by name of the zone's counter.
///
/// # Errors
/// If the kernel cannot be read.
pub fn by_zone(socket: &mut Socket) -> io::Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for family in FAMILIES {
        for counter in socket.counters(family, TABLE)? {
            *sums.entry(counter.name).or_insert(0) += counter.packets;
        }
    }
    Ok(sums)
}

/// Which Service has an address and port.
pub(crate) type Owners = BTreeMap<Frontend, Key>;

/// Reads what was counted by Service and zone since the last time into the ledger of `published`. Nothing where that is
/// not counted.
///
/// # Errors
/// If the kernel cannot be read.
pub fn by_service(socket: &mut Socket, published: &Published) -> io::Result<()> {
    for family in FAMILIES {
        for counted in CountedZone::all(socket, published, family)? {
            // What is read is taken before anybody else reads or removes elements: numbers only become larger.
            let _alone = published.reading();
            if let Some(read) = counted.read(socket, published)? {
                published.connections().take(&counted.zone, &read);
            }
        }
    }
    Ok(())
}

/// Begins to count for this process, in tables that an earlier one has left: what they have is where counting begins.
/// Nothing if this process counts already.
///
/// # Errors
/// If the kernel cannot be read.
pub(crate) fn begin(socket: &mut Socket, published: &Published) -> io::Result<()> {
    let _alone = published.reading();
    if published.connections().has_begun() {
        return Ok(());
    }
    let mut all = Vec::new();
    for family in FAMILIES {
        for counted in CountedZone::all(socket, published, family)? {
            let read = counted.read(socket, published)?;
            all.extend(read.map(|read| (counted.zone, read)));
        }
    }
    published.connections().begin(all.iter());
    Ok(())
}

/// A zone that has a set in a family.
#[derive(Debug)]
pub(crate) struct CountedZone {
    family: Family,
    /// The name of its counter.
    pub(crate) counter: String,
    pub(crate) zone: Name,
    /// What the counter has.
    total: u64,
    /// How many elements the set can have.
    room: usize,
}

impl CountedZone {
    /// All zones that have a set in a family. Their counters are read once, and before the elements, so that a counter
    /// never has more than its elements because of the time in between.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub(crate) fn all(
        socket: &mut Socket,
        published: &Published,
        family: Family,
    ) -> io::Result<Vec<Self>> {
        let sets = match socket.sets(family, TABLE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            sets => sets?,
        };
        let names = published.zones();
        let counted = |set: SetInfo| {
            let counter = set.name.strip_prefix(counting::PREFIX)?.to_owned();
            // One that an earlier process has left for a zone that nothing leads to has no name, and is removed soon.
            let zone = Name::clone(names.get(&counter)?);
            let room = set.size.map_or(usize::MAX, |size| size as usize);
            Some(Self { family, counter, zone, total: 0, room })
        };
        let mut all: Vec<Self> = sets.into_iter().filter_map(counted).collect();
        if !all.is_empty() {
            let counters = socket.counters(family, TABLE)?.into_iter();
            let totals: BTreeMap<String, u64> =
                counters.map(|counter| (counter.name, counter.packets)).collect();
            for counted in &mut all {
                counted.total = totals.get(&counted.counter).copied().unwrap_or(0);
            }
        }
        Ok(all)
    }

    /// Reads its set; `None` if it has gone meanwhile. The caller holds [`Published::reading`].
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub(crate) fn read(
        &self,
        socket: &mut Socket,
        published: &Published,
    ) -> io::Result<Option<Read>> {
        let Self { family, total, room, .. } = *self;
        let mut packets: BTreeMap<Bytes, u64> = BTreeMap::new();
        for _ in 0..READ_AGAIN {
            let read = socket.dump(family, TABLE, &counting::set(&self.counter), &mut |seen| {
                packets.insert(Bytes::from_slice(seen.key), seen.packets.unwrap_or(0));
            });
            match read {
                // Another program has changed its own tables. What was read is right all the same; it may not be all.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                result => {
                    result?;
                    break;
                }
            }
        }
        let element = |(key, packets): (Bytes, u64)| {
            let owner = owner(published, &(family, key));
            (key, ReadElement { packets, owner })
        };
        let elements = packets.into_iter().map(element).collect();
        Ok(Some(Read { family, total, room, elements }))
    }
}

/// The Service that has the address of an element.
pub(crate) fn owner(published: &Published, (family, key): &ElementOf) -> Option<Key> {
    let mut key = Parts(key.as_slice());
    let (address, protocol, port) = (key.address(*family)?, key.protocol()?, key.port()?);
    let (family, protocol) = (routing_family(*family), Protocol::of_number(protocol)?);
    // An address of its own comes before a NodePort.
    let at = |address| Frontend { address, family, protocol, port };
    published.owner(&[at(Some(address)), at(None)])
}
