//! Connections to Services that fail, from the kernel's connection tracking.
//!
//! ```text
//!  refused   SYN ─► reset            the flow ends at once ─► event, read four times a second ─┐
//!                                                                                             ├─► ledger, each flow once
//!  silent    SYN ─► … ─► SYN ─► …    the flow stays for two minutes without a reply           │
//!                                    every 5 s all are read: still there after 4 s ───────────┘
//! ```
//!
//! * A connection is *refused* when the first thing that comes back is a reset: nothing listens at the endpoint. The kernel
//!   forgets such a flow with the reset, so that no list has it; the kernel reports its end.
//! * It is *silent* when nothing came back for [`SILENT`]: the endpoint is gone, or something drops its packets. A client
//!   sends its SYN again after one and after three seconds, so one that is answered late is not taken for one.
//!
//! A connection that the endpoint has accepted has not failed, whatever becomes of it: clients that only look whether
//! somebody answers give up there. What was counted is remembered while its flow is in the table, so that it is
//! counted once. All of that is bounded: flows that are remembered by their number, reading by the time it takes. Flows
//! beyond that are not counted, nor are those whose Service is gone.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zonewise_nft::Network;
use zonewise_nft::conntrack::{EndedUnestablished, Flow};

use super::flow_ends::{EndpointZones, FlowEnds, hash};
use super::trouble::Trouble;
use crate::kernel::ZoneNames;
use crate::published::Published;
use crate::rules::layout::FAMILIES;

/// How long a connection must have had no answer to count as silent.
pub const SILENT: Duration = Duration::from_secs(4);

/// How often flows that are not established are listed, at most.
const LIST: Duration = Duration::from_secs(5);

/// Listing them may take one part in so many of the time.
const LIST_SHARE: u32 = 20;

/// Room for flows that have ended and were not read yet: some ten thousand. Those that were established take none.
const BUFFER: usize = 8 << 20;

/// How many flows that have ended are read at a time: several times what the buffer holds, so that there is an end also
/// where flows end faster than they are read.
const MOST_READ: usize = 1 << 16;

/// How many unanswered flows are remembered: some 3 MiB.
const MOST_REMEMBERED: usize = 1 << 16;

/// Flows that have had no answer.
#[derive(Debug, Default)]
struct Memory {
    /// By hash of the flow.
    flows: BTreeMap<u64, Unanswered>,
    /// How often all flows have been listed.
    round: u32,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// When it was seen first.
    since: Instant,
    counted: bool,
    /// When it was last there.
    round: u32,
}

impl Memory {
    /// A flow is there that has had no answer; whether it counts now.
    fn unanswered(&mut self, flow: &Flow, now: Instant) -> bool {
        let (key, round) = (hash(flow), self.round);
        match self.flows.get_mut(&key) {
            Some(known) => {
                known.round = round;
                let counts = !known.counted && now.duration_since(known.since) >= SILENT;
                known.counted |= counts;
                counts
            }
            None => {
                if self.flows.len() < MOST_REMEMBERED {
                    self.flows.insert(key, Unanswered { since: now, counted: false, round });
                }
                false
            }
        }
    }

    /// A flow has ended because it was refused; whether it counts.
    fn refused(&mut self, flow: &Flow) -> bool {
        !self.flows.remove(&hash(flow)).is_some_and(|known| known.counted)
    }

    /// All flows have been listed. Those that were not there have ended, or have been answered.
    fn end_round(&mut self) {
        let round = self.round;
        self.flows.retain(|_, known| known.round == round);
        self.round = self.round.wrapping_add(1);
    }

    /// What is there now began before this process, or while it could not read: it is not counted.
    fn leave_all(&mut self) {
        self.flows.values_mut().for_each(|known| known.counted = true);
    }
}

/// Reads connections that fail into the ledger of what is published.
pub struct FailedConnections {
    network: Network,
    published: Arc<Published>,
    zone_names: ZoneNames,
    /// Reports flows that end; `None` until it is opened.
    ended: Option<EndedUnestablished>,
    list_at: Instant,
    memory: Memory,
    zones: EndpointZones,
    trouble: Trouble,
    /// Whether it was said that events are lost.
    said: bool,
}

impl std::fmt::Debug for FailedConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FailedConnections({} flows remembered)", self.memory.flows.len())
    }
}

impl FailedConnections {
    /// Opens nothing before the first reading.
    pub fn new(network: Network, published: Arc<Published>, zone_names: ZoneNames) -> Self {
        Self {
            network,
            published,
            zone_names,
            ended: None,
            list_at: Instant::now(),
            memory: Memory::default(),
            zones: EndpointZones::default(),
            trouble: Trouble::default(),
            said: false,
        }
    }

    /// Reads what was refused, and when it is time what has had no answer. A failure is logged once, and the next attempt
    /// comes after a pause.
    pub fn read(&mut self) {
        let now = Instant::now();
        if !self.trouble.lets_try(now) {
            return;
        }
        let read = self.read_flows(now, now >= self.list_at);
        self.trouble.note(now, "connections that fail", read);
    }

    /// Reads what was refused, and if asked for also what has had no answer by `now`.
    ///
    /// # Errors
    /// If the kernel cannot be read. The next reading begins anew.
    pub fn read_flows(&mut self, now: Instant, all: bool) -> io::Result<()> {
        let Some(mut ended) = self.ended.take() else {
            return self.begin(now);
        };
        self.drain(&mut ended)?;
        if all {
            self.list(now)?;
        }
        self.ended = Some(ended);
        Ok(())
    }

    /// Opens the socket that reports flows that end, then lists what is there.
    fn begin(&mut self, now: Instant) -> io::Result<()> {
        let ended = self.network.ended_unestablished(BUFFER)?;
        self.list(now)?;
        self.memory.leave_all();
        self.ended = Some(ended);
        Ok(())
    }

    fn drain(&mut self, ended: &mut EndedUnestablished) -> io::Result<()> {
        // Many connections to one endpoint are refused in a quarter of a second: its Service and zone are looked for once.
        let mut found: BTreeMap<FlowEnds, u64> = BTreeMap::new();
        let memory = &mut self.memory;
        let read = ended.read(MOST_READ, &mut |one| {
            if one.is_refused() && memory.refused(&one.flow) {
                *found.entry(FlowEnds::of(&one.flow)).or_default() += 1;
            }
        })?;
        self.note(&found);
        if read.overruns > 0 && !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                "connections that were never established end faster than they can be read: of those that were refused, some are not counted"
            );
        }
        Ok(())
    }

    fn list(&mut self, now: Instant) -> io::Result<()> {
        let began = Instant::now();
        for family in FAMILIES {
            let mut found: BTreeMap<FlowEnds, u64> = BTreeMap::new();
            let mut listing = self.network.conntrack()?.unestablished(family)?;
            let memory = &mut self.memory;
            while listing.read(&mut |one| {
                if !one.replied && memory.unanswered(&one.flow, now) {
                    *found.entry(FlowEnds::of(&one.flow)).or_default() += 1;
                }
            })? {}
            self.note(&found);
        }
        self.memory.end_round();
        self.zones.forget(&self.published);
        self.list_at = now + LIST.max(began.elapsed() * LIST_SHARE);
        Ok(())
    }

    fn note(&mut self, found: &BTreeMap<FlowEnds, u64>) {
        let placed = self.zones.place(found, &self.published, &self.zone_names);
        let mut ledger = self.published.connections();
        for (place, count) in placed {
            if let Some((service, zone)) = place {
                ledger.add_failed(&zone, &service, count);
            }
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

    /// Lists flows at a second; which of them count.
    fn list(memory: &mut Memory, begin: Instant, second: u64, ids: &[u32]) -> Vec<u32> {
        let now = begin + Duration::from_secs(second);
        let counted = ids.iter().copied().filter(|id| memory.unanswered(&flow(*id), now)).collect();
        memory.end_round();
        counted
    }

    #[test]
    fn a_flow_that_nobody_answers_counts_once_after_four_seconds() {
        let (mut memory, begin) = (Memory::default(), Instant::now());
        let rows: [(u64, &[u32], &[u32], &str); 6] = [
            (0, &[1], &[], "it may still be answered"),
            (3, &[1, 2], &[], "three seconds are too short"),
            (5, &[1, 2, 3], &[1], "five are not"),
            (10, &[1, 2], &[2], "the first has counted, the third was answered"),
            (15, &[1, 2, 3], &[], "the third has begun anew"),
            (20, &[3], &[3], "others are forgotten"),
        ];
        for (second, there, counted, why) in rows {
            assert_eq!(list(&mut memory, begin, second, there), counted, "{why}");
        }
        assert_eq!(memory.flows.len(), 1);
    }

    #[test]
    fn a_flow_that_is_refused_counts_unless_it_was_counted_as_silent() {
        let (mut memory, begin) = (Memory::default(), Instant::now());
        assert!(memory.refused(&flow(1)), "most are refused at once");
        list(&mut memory, begin, 0, &[2, 3]);
        assert!(memory.refused(&flow(2)), "seen, and not counted");
        assert_eq!(list(&mut memory, begin, 5, &[3]), [3]);
        assert!(!memory.refused(&flow(3)));
        assert_eq!(memory.flows.len(), 0);
    }

    #[test]
    fn what_is_there_at_the_start_is_not_counted() {
        let (mut memory, begin) = (Memory::default(), Instant::now());
        list(&mut memory, begin, 0, &[1]);
        memory.leave_all();
        assert_eq!(list(&mut memory, begin, 5, &[1, 2]), [0; 0]);
        assert_eq!(list(&mut memory, begin, 10, &[1, 2]), [2]);
    }

    #[test]
    fn no_more_flows_are_remembered_than_the_limit() {
        let (mut memory, begin) = (Memory::default(), Instant::now());
        let all: Vec<u32> = (0..=MOST_REMEMBERED as u32).collect();
        assert_eq!(list(&mut memory, begin, 0, &all), [0; 0]);
        assert_eq!(list(&mut memory, begin, 5, &all).len(), MOST_REMEMBERED);
    }
}
