//! Bytes of flows to Services, from the kernel's connection tracking.
//!
//! ```text
//!  a flow ends ─► event: 10.96.0.1:80 ─► 10.244.2.7:8080, 3,120 there, 52,004 back ─► ledger: what was not counted yet
//!                 (drained four times a second, from a buffer of some ten thousand)
//!  every minute or more: all flows are read ─► those with 64 KiB or more that were not counted yet ─► ledger
//! ```
//!
//! The first destination of a flow is the Service's address, and who answers is the endpoint. What a long flow has had
//! counted is remembered until it ends. All of that is bounded: flows that are remembered by their number, reading by
//! the time it takes, which is at most a hundredth of all time. A flow that is not remembered is counted when it ends.
//! Where the buffer was full, flows are lost, and the number of times is told.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zonewise_common::name::Key;
use zonewise_nft::Network;
use zonewise_nft::conntrack::{Carried, Conntrack, EndedFlows, Flow};
use zonewise_routing::{Family, Frontend, Protocol, ZoneId};

use crate::kernel::{ZoneNames, counter_name};
use crate::published::{Published, PublishedService};
use crate::rules::layout::FAMILIES;

/// How often flows that have ended are read.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);

/// Room for flows that have ended and were not read yet: some ten thousand.
const BUFFER: usize = 8 << 20;

/// How often all flows are read, at most.
const READ_ALL: Duration = Duration::from_secs(60);

/// Reading all flows may take this part of the time.
const PART: u32 = 100;

/// A flow is counted before it ends when it has carried so much since.
const WORTH_COUNTING: u64 = 64 << 10;

/// How many flows are remembered that were counted before their end: some 3 MiB.
const MOST_REMEMBERED: usize = 1 << 16;

/// What has been counted of flows that have not ended.
#[derive(Debug, Default)]
struct Memory {
    /// By hash of the flow.
    flows: BTreeMap<u64, Remembered>,
    /// How often all flows have been read.
    round: u32,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    counted: Carried,
    /// When it was last there.
    round: u32,
}

fn hash(flow: &Flow) -> u64 {
    let mut hasher = DefaultHasher::new();
    (flow.id, flow.zone, flow.protocol, flow.original).hash(&mut hasher);
    hasher.finish()
}

fn minus(now: Carried, before: Carried) -> Carried {
    Carried {
        original: now.original.saturating_sub(before.original),
        reply: now.reply.saturating_sub(before.reply),
    }
}

impl Memory {
    /// A flow has ended: what was not counted yet.
    fn ended(&mut self, flow: &Flow, carried: Carried) -> Carried {
        if self.flows.is_empty() {
            return carried;
        }
        let known = self.flows.remove(&hash(flow));
        known.map_or(carried, |known| minus(carried, known.counted))
    }

    /// A flow goes on: what was not counted yet, if that is worth it.
    fn goes_on(&mut self, flow: &Flow, carried: Carried) -> Option<Carried> {
        let (key, round) = (hash(flow), self.round);
        let before = self.flows.get_mut(&key).map(|known| {
            known.round = round;
            known.counted
        });
        let more = minus(carried, before.unwrap_or_default());
        let room = before.is_some() || self.flows.len() < MOST_REMEMBERED;
        if !room || more.original + more.reply < WORTH_COUNTING {
            return None;
        }
        self.flows.insert(key, Remembered { counted: carried, round });
        Some(more)
    }

    /// All flows have been read. Those that were not there twice have ended, and their event was lost: one that ended
    /// while they were read may still have its event before it.
    fn end_round(&mut self) {
        let round = self.round;
        self.flows.retain(|_, known| known.round + 1 >= round);
        self.round += 1;
    }
}

/// The zones of the endpoints of the Services that flows have led to.
#[derive(Debug, Default)]
struct Places(BTreeMap<Key, Place>);

#[derive(Debug)]
struct Place {
    service: Arc<PublishedService>,
    /// Endpoints that were there before are kept for a while: flows end when their endpoint does.
    zones: BTreeMap<IpAddr, ZoneId>,
}

/// How many endpoints that are gone are kept of each Service.
const GONE: usize = 1000;

impl Places {
    /// The Service of a flow, and the zone of its endpoint.
    fn of(&mut self, flow: &Flow, published: &Published) -> Option<(Key, ZoneId)> {
        let key = service_of(flow, published)?;
        let service = published.service(&key)?;
        let known = self.0.get(&key).filter(|known| Arc::ptr_eq(&known.service, &service));
        if known.is_none() {
            let before = self.0.remove(&key).map(|place| place.zones).unwrap_or_default();
            self.0.insert(key.clone(), Place::new(service, before));
        }
        let zone = self.0.get(&key)?.zones.get(&flow.reply.src).copied()?;
        Some((key, zone))
    }

    /// Forgets Services that are gone.
    fn forget(&mut self, published: &Published) {
        self.0.retain(|key, _| published.service(key).is_some());
    }
}

impl Place {
    fn new(service: Arc<PublishedService>, before: BTreeMap<IpAddr, ZoneId>) -> Self {
        let routes = service.programmed.ports.iter().flatten().flatten();
        let targets = routes.flat_map(|route| route.cluster.iter().chain(route.local.iter()));
        let now: BTreeMap<IpAddr, ZoneId> =
            targets.map(|target| (target.address, target.zone)).collect();
        let mut zones = if before.len() > now.len() + GONE { BTreeMap::new() } else { before };
        zones.extend(now);
        Self { service, zones }
    }
}

/// The Service that a flow was made to.
fn service_of(flow: &Flow, published: &Published) -> Option<Key> {
    if !flow.destination_translated {
        return None;
    }
    let (to, port) = (flow.original.dst, flow.original.dport);
    let (family, protocol) = (Family::of(&to), Protocol::of_number(flow.protocol)?);
    let owners = published.owners();
    let at = |address| Frontend { address, family, protocol, port };
    owners.get(&at(Some(to))).or_else(|| owners.get(&at(None))).cloned()
}

/// The sockets, and how far reading has come.
struct Sockets {
    ended: EndedFlows,
    all: Conntrack,
    read_all_at: Instant,
}

/// Reads bytes into the ledger of what is published.
pub struct Meter {
    network: Network,
    published: Arc<Published>,
    zone_names: ZoneNames,
    sockets: Option<Sockets>,
    memory: Memory,
    places: Places,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meter({} flows remembered)", self.memory.flows.len())
    }
}

impl Meter {
    /// Opens nothing before the first reading.
    pub fn new(network: Network, published: Arc<Published>, zone_names: ZoneNames) -> Self {
        let (memory, places) = (Memory::default(), Places::default());
        Self { network, published, zone_names, sockets: None, memory, places }
    }

    /// Reads which flows have ended, and when it is time all others.
    ///
    /// # Errors
    /// If the kernel cannot be read. The next reading begins anew.
    pub fn read(&mut self) -> io::Result<()> {
        let due =
            self.sockets.as_ref().is_some_and(|sockets| Instant::now() >= sockets.read_all_at);
        self.read_flows(due)
    }

    /// Reads which flows have ended, and all others too if asked for.
    ///
    /// # Errors
    /// As [`Meter::read`].
    pub fn read_flows(&mut self, all: bool) -> io::Result<()> {
        let mut sockets = match self.sockets.take() {
            Some(sockets) => sockets,
            None => self.begin()?,
        };
        let read = self.drain(&mut sockets).and_then(|()| match all {
            true => self.read_all(&mut sockets),
            false => Ok(()),
        });
        match read {
            Ok(()) => self.sockets = Some(sockets),
            // Flows end until there is another socket.
            Err(_) => self.published.connections().lose(1),
        }
        read
    }

    /// What flows have carried before is not counted: the process before may have counted it.
    fn begin(&mut self) -> io::Result<Sockets> {
        let ended = self.network.ended_flows(BUFFER)?;
        let mut all = self.network.conntrack()?;
        for family in FAMILIES {
            let memory = &mut self.memory;
            all_flows(&mut all, family, &mut |flow, carried| {
                let _ = memory.goes_on(flow, carried);
            })?;
        }
        self.memory.end_round();
        Ok(Sockets { ended, all, read_all_at: Instant::now() + READ_ALL })
    }

    fn drain(&mut self, sockets: &mut Sockets) -> io::Result<()> {
        // Many flows of one kind end in a quarter of a second: their Service and zone are looked for once.
        let mut kinds: BTreeMap<_, (Flow, Carried)> = BTreeMap::new();
        let memory = &mut self.memory;
        let lost = sockets.ended.read(&mut |flow, carried| {
            if !flow.destination_translated {
                return;
            }
            let more = memory.ended(flow, carried);
            let kind = (flow.protocol, flow.original.dst, flow.original.dport, flow.reply.src);
            let (_, sum) = kinds.entry(kind).or_insert((*flow, Carried::default()));
            sum.original += more.original;
            sum.reply += more.reply;
        })?;
        let (places, published) = (&mut self.places, &self.published);
        let placed = |(flow, sum)| places.of(&flow, published).map(|place| (place, sum));
        let found = kinds.into_values().filter_map(placed).collect();
        self.note(found, lost);
        Ok(())
    }

    /// Reads all flows.
    fn read_all(&mut self, sockets: &mut Sockets) -> io::Result<()> {
        let began = Instant::now();
        for family in FAMILIES {
            let mut found = Vec::new();
            let (memory, places, published) = (&mut self.memory, &mut self.places, &self.published);
            all_flows(&mut sockets.all, family, &mut |flow, carried| {
                if let Some(more) = memory.goes_on(flow, carried) {
                    found.extend(places.of(flow, published).map(|place| (place, more)));
                }
            })?;
            self.note(found, 0);
        }
        self.memory.end_round();
        self.places.forget(&self.published);
        sockets.read_all_at = Instant::now() + READ_ALL.max(began.elapsed() * PART);
        Ok(())
    }

    fn note(&self, found: Vec<((Key, ZoneId), Carried)>, lost: u64) {
        let mut names: BTreeMap<ZoneId, String> = BTreeMap::new();
        let mut ledger = self.published.connections();
        for ((service, zone), more) in found {
            let name = names.entry(zone).or_insert_with(|| counter_name(&(self.zone_names)(zone)));
            ledger.carry(name, &service, more);
        }
        ledger.lose(lost);
    }
}

/// All flows of a family. What was read while the table changed is right as far as it goes.
fn all_flows(
    all: &mut Conntrack,
    family: zonewise_nft::Family,
    each: &mut dyn FnMut(&Flow, Carried),
) -> io::Result<()> {
    match all.carried(family, each) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use zonewise_nft::conntrack::Tuple;

    use super::*;

    fn flow(id: u32) -> Flow {
        let tuple =
            Tuple { src: [10, 0, 0, 1].into(), dst: [10, 96, 0, 1].into(), sport: 4711, dport: 80 };
        Flow {
            protocol: 6,
            original: tuple,
            reply: tuple,
            destination_translated: true,
            id: Some(id),
            zone: 0,
        }
    }

    fn carried(original: u64, reply: u64) -> Carried {
        Carried { original, reply }
    }

    #[test]
    fn a_long_flow_is_counted_in_parts_that_add_up() {
        let mut memory = Memory::default();
        let big = WORTH_COUNTING;
        assert_eq!(memory.goes_on(&flow(1), carried(10, 20)), None, "not worth it yet");
        assert_eq!(memory.goes_on(&flow(1), carried(10, big)), Some(carried(10, big)));
        assert_eq!(memory.goes_on(&flow(1), carried(11, big)), None);
        assert_eq!(memory.goes_on(&flow(1), carried(11, 3 * big)), Some(carried(1, 2 * big)));
        assert_eq!(memory.ended(&flow(1), carried(12, 4 * big)), carried(1, big));
        // Another one with the same addresses, and one that nobody has seen before.
        assert_eq!(memory.ended(&flow(2), carried(5, 6)), carried(5, 6));
        assert_eq!(memory.ended(&flow(1), carried(5, 6)), carried(5, 6));
    }

    #[test]
    fn flows_whose_end_was_lost_are_forgotten_after_two_rounds() {
        let mut memory = Memory::default();
        memory.goes_on(&flow(1), carried(0, WORTH_COUNTING));
        memory.end_round();
        memory.end_round();
        assert_eq!(memory.flows.len(), 1, "its event may still come");
        memory.end_round();
        assert_eq!(memory.flows.len(), 0);
    }

    #[test]
    fn no_more_flows_are_remembered_than_the_limit() {
        let mut memory = Memory::default();
        for id in 0..=MOST_REMEMBERED as u32 {
            memory.goes_on(&flow(id), carried(0, WORTH_COUNTING));
        }
        assert_eq!(memory.flows.len(), MOST_REMEMBERED);
        let last = flow(MOST_REMEMBERED as u32);
        assert_eq!(memory.ended(&last, carried(0, 7)), carried(0, 7), "counted when it ends");
    }
}
