//! Bytes of flows to Services, from the kernel's connection tracking.
//!
//! ```text
//!  a flow ends ─► event: 10.96.0.1:80 ─► 10.244.2.7:8080, 3,120 there, 52,004 back ─► ledger: what was not counted yet
//!                 (read four times a second, from a buffer of some ten thousand)
//!  every minute or more: all flows are read ─► those with 64 KiB or more that were not counted yet ─► ledger
//!                 (in portions, and the events in between)
//! ```
//!
//! The first destination of a flow is the Service's address, and who answers is the endpoint. What a long flow has had
//! counted is remembered until it ends. All of that is bounded: flows that are remembered by their number, reading by
//! the time it takes, which is at most a hundredth of all time. A flow that is not remembered is counted when it ends.
//! Where the buffer was full, flows are lost, and a metric counts how often.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zonewise_nft::Network;
use zonewise_nft::conntrack::{Carried, EndedFlows, Flow};

use super::flow_ends::{EndpointZones, FlowEnds, hash};
use super::ledger::Unassigned;
use super::trouble::Trouble;
use crate::kernel::ZoneNames;
use crate::published::Published;
use crate::rules::layout::FAMILIES;

/// How often flows that have ended are read.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);

/// Room for flows that have ended and were not read yet: some ten thousand.
const BUFFER: usize = 8 << 20;

/// How many flows that have ended are read before they are noted, and how often that is done at a time: several times
/// what the buffer holds, so that there is an end also where flows end faster than they are read.
const PORTION: usize = 1 << 13;
const PORTIONS: usize = 8;

/// After so many portions of all flows, of about a hundred each, those that have ended are read: they do not wait.
const BETWEEN: usize = 32;

/// How often all flows are read, at most.
const READ_ALL: Duration = Duration::from_secs(60);

/// Reading all flows may take one part in so many of the time.
const READ_SHARE: u32 = 100;

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

/// Reads bytes into the ledger of what is published.
pub struct Meter {
    network: Network,
    published: Arc<Published>,
    zone_names: ZoneNames,
    /// Reports flows that end; `None` until it is opened.
    ended: Option<EndedFlows>,
    read_all_at: Instant,
    /// Whether it is known what flows had carried before this process.
    began: bool,
    memory: Memory,
    zones: EndpointZones,
    trouble: Trouble,
    /// Whether it was said that flows are lost.
    said: bool,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meter({} flows remembered)", self.memory.flows.len())
    }
}

impl Meter {
    /// Opens nothing before the first reading.
    pub fn new(network: Network, published: Arc<Published>, zone_names: ZoneNames) -> Self {
        Self {
            network,
            published,
            zone_names,
            ended: None,
            read_all_at: Instant::now(),
            began: false,
            memory: Memory::default(),
            zones: EndpointZones::default(),
            trouble: Trouble::default(),
            said: false,
        }
    }

    /// Reads which flows have ended, and when it is time all others. A failure is logged once, and the next attempt comes
    /// after a pause.
    pub fn read(&mut self) {
        let now = Instant::now();
        if !self.trouble.lets_try(now) {
            return;
        }
        let read = self.read_flows(now >= self.read_all_at);
        self.trouble.note(now, "bytes", read);
    }

    /// Reads which flows have ended, and all others too if asked for.
    ///
    /// # Errors
    /// If the kernel cannot be read. The next reading begins anew.
    pub fn read_flows(&mut self, all: bool) -> io::Result<()> {
        let read = match self.ended.take() {
            None => self.begin(),
            Some(mut ended) => self
                .drain(&mut ended, None)
                .and_then(|()| if all { self.read_all(&mut ended) } else { Ok(()) })
                .map(|()| ended),
        };
        match read {
            Ok(ended) => {
                self.ended = Some(ended);
                Ok(())
            }
            Err(error) => {
                // Flows end until there is another socket.
                self.published.connections().add_lost_events(1);
                Err(error)
            }
        }
    }

    /// Opens the socket that reports flows that end, then reads all flows: none ends unseen in between.
    fn begin(&mut self) -> io::Result<EndedFlows> {
        let mut ended = self.network.ended_flows(BUFFER)?;
        self.read_all(&mut ended)?;
        self.began = true;
        Ok(ended)
    }

    /// Reads which flows have ended. Those that were read are added to `just_ended`.
    fn drain(
        &mut self,
        ended: &mut EndedFlows,
        mut just_ended: Option<&mut BTreeSet<u64>>,
    ) -> io::Result<()> {
        for _ in 0..PORTIONS {
            // Many flows of one kind end in a quarter of a second: their Service and zone are looked for once.
            let mut found: BTreeMap<FlowEnds, Carried> = BTreeMap::new();
            let memory = &mut self.memory;
            let read = ended.read(PORTION, &mut |flow, carried| {
                if flow.destination_translated {
                    if let Some(known) = just_ended.as_deref_mut() {
                        known.insert(hash(flow));
                    }
                    *found.entry(FlowEnds::of(flow)).or_default() += memory.ended(flow, carried);
                }
            })?;
            self.note(&found);
            self.add_lost_events(read.overruns);
            if !read.more {
                break;
            }
        }
        Ok(())
    }

    /// Reads all flows. The first time nothing is counted: the process before may have counted what they have carried.
    fn read_all(&mut self, ended: &mut EndedFlows) -> io::Result<()> {
        let began = Instant::now();
        for family in FAMILIES {
            let mut listing = self.network.conntrack()?.carried(family)?;
            // The kernel prepares a portion before it is read. So a flow may be in it whose end has been read since.
            let mut just_ended = BTreeSet::new();
            for portion in 1.. {
                let mut found: BTreeMap<FlowEnds, Carried> = BTreeMap::new();
                let memory = &mut self.memory;
                let more = listing.read(&mut |flow, carried| {
                    if !just_ended.contains(&hash(flow))
                        && let Some(more) = memory.goes_on(flow, carried)
                    {
                        *found.entry(FlowEnds::of(flow)).or_default() += more;
                    }
                })?;
                if self.began {
                    self.note(&found);
                }
                if !more {
                    break;
                }
                just_ended.clear();
                if portion % BETWEEN == 0 {
                    self.drain(ended, Some(&mut just_ended))?;
                }
            }
        }
        self.memory.end_round();
        self.zones.forget(&self.published);
        self.read_all_at = Instant::now() + READ_ALL.max(began.elapsed() * READ_SHARE);
        Ok(())
    }

    fn note(&mut self, found: &BTreeMap<FlowEnds, Carried>) {
        let placed = self.zones.place(found, &self.published, &self.zone_names);
        let mut ledger = self.published.connections();
        for (place, sum) in placed {
            match place {
                Some((service, zone)) => ledger.add_bytes(&zone, &service, sum),
                None => ledger.add_unassigned_bytes(Unassigned::NoService, sum),
            }
        }
    }

    /// The socket's buffer was full so often, so that ends of flows were lost.
    fn add_lost_events(&mut self, times: u64) {
        if times == 0 {
            return;
        }
        self.published.connections().add_lost_events(times);
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                "flows end faster than they can be read, and the bytes of some are not counted: \
                 zonewise_proxy_lost_flow_events_total counts how often"
            );
        }
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
