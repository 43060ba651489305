//! Which part of the connections to a Service fails, by the zone of the endpoint: of Services that are watched.
//!
//! ```text
//!  node n1   shop/web  to zone b   900 ─► 1,000 connections, 40 ─► 70 failed ─┐  over the last two intervals
//!  node n2   shop/web  to zone b   300 ─►   400 connections, 10 ─► 30 failed ─┼─► to zone b 40 of 200 in 30 s
//!  node n3   shop/api                                                         ┘
//! ```
//!
//! Services are watched while one of their zones is being emptied, and for as long as they ask that failing zones count for
//! less, whether their demand is measured or not. Reports are read by the rules of [`window`](crate::window), for each
//! Service and zone by itself. What is told is about two intervals between reports of a node: a connection counts as
//! failed seconds after it counts as made, which may be in the next report.
//!
//! | what a node reports | what becomes of it |
//! |---|---|
//! | fewer than three reports since the Service is watched | nothing of this node counts for it yet |
//! | more failed connections to a zone than connections | as many as connections |
//! | more failed connections to a zone than all other nodes together, where others report connections to it, too | as many as the others: one node decides nothing alone |
//! | fewer failed ones than there are, or more connections | it is believed: then nothing is noticed that was not noticed without it either |
//! | zones that no node is in | they are left out; endpoints without a zone are in the zone with an empty name |
//!
//! Memory: 40 bytes for each Service and zone that a node uses, at most [`MAX_COUNTERS`] in all. They are kept only while
//! somebody watches.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::Name;

use crate::report::Report;
use crate::services::Services;
use crate::window::HOLD;
use crate::{Millis, seconds};

/// The most counters that are kept, of all nodes together: they may have as much memory as those of a
/// [`Window`](crate::window::Window), each of which has 16 bytes.
pub const MAX_COUNTERS: usize = crate::window::MAX_COUNTERS * 16 / size_of::<Counter>();

/// How many intervals between reports are looked at.
const INTERVALS: usize = 2;

/// The Services that are watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    services: Services,
    zones: Zones,
    /// Counters of all nodes.
    counters: usize,
}

/// The zones of the nodes, each with a number. A zone keeps its number when its last node goes.
#[derive(Debug, Default)]
struct Zones {
    numbers: BTreeMap<Name, u16>,
}

/// What a node has reported of Services that are watched.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    last: Option<LastReport>,
    /// The older one first; `None` after a baseline.
    intervals: [Option<Interval>; INTERVALS],
    /// By the numbers of Service and zone.
    counters: Vec<Counter>,
}

#[derive(Clone, Copy, Debug)]
struct LastReport {
    started: u64,
    at: Millis,
    /// How often the Services had been set that are watched; `None` if there was no room for all counters.
    sets: Option<u64>,
}

/// The time between two reports.
#[derive(Clone, Copy, Debug)]
struct Interval {
    seconds: f64,
    /// [`LastReport::sets`] when it began.
    sets: Option<u64>,
}

/// What a node has counted of a Service and a zone.
#[derive(Clone, Copy, Debug)]
struct Counter {
    service: u32,
    zone: u16,
    /// Since the counters began.
    connections: u64,
    failed: u64,
    /// In each interval.
    new: [Counted; INTERVALS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    connections: u32,
    failed: u32,
}

/// What fails, of all Services that are watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures(BTreeMap<Name, ServiceFailures>);

/// What fails of the connections to a Service, as far as nodes have reported it over two intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFailures {
    /// By the zone of the endpoint.
    pub zones: BTreeMap<Name, ZoneConnections>,
    /// The time that this is about.
    pub seconds: f64,
    /// Whether there are nodes that report, and all of them have reported it for so long.
    pub complete: bool,
}

/// Connections to the endpoints of a Service in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneConnections {
    /// All that were made.
    pub connections: u64,
    /// Those that the endpoint has refused or not answered.
    pub failed: u64,
}

impl Failures {
    /// What fails of a Service; `None` if it is not watched.
    pub fn of(&self, service: &str) -> Option<&ServiceFailures> {
        self.0.get(service)
    }
}

impl Zones {
    fn number(&self, zone: &str) -> Option<u16> {
        self.numbers.get(zone).copied()
    }

    fn add(&mut self, zone: &str) {
        if let Ok(number) = u16::try_from(self.numbers.len())
            && !self.numbers.contains_key(zone)
        {
            self.numbers.insert(zone.into(), number);
        }
    }
}

impl Watched {
    /// Sets the Services that are watched, as `namespace/name`. `nodes` are the counters of all nodes.
    pub(crate) fn set_services<'a, 'n>(
        &mut self,
        wanted: impl Iterator<Item = &'a str>,
        nodes: impl Iterator<Item = &'n mut NodeCounters>,
    ) {
        let gone: BTreeSet<u32> = self.services.set(wanted).into_iter().collect();
        self.counters = 0;
        for node in nodes {
            node.counters.retain(|counter| !gone.contains(&counter.service));
            self.counters += node.counters.len();
        }
    }

    /// The Services that are not watched, because there are too many.
    pub(crate) fn left_out(&self) -> &[Name] {
        self.services.left_out()
    }

    /// Sets the nodes of the cluster, by their zones and counters.
    pub(crate) fn set_nodes<'n>(
        &mut self,
        nodes: impl Iterator<Item = (&'n Name, &'n NodeCounters)>,
    ) {
        self.zones.add("");
        self.counters = 0;
        for (zone, node) in nodes {
            self.zones.add(zone);
            self.counters += node.counters.len();
        }
    }

    /// Counts what a node has reported.
    pub(crate) fn add(&mut self, node: &mut NodeCounters, report: &Report, now: Millis) {
        self.counters -= node.counters.len();
        if self.services.is_empty() {
            *node = NodeCounters::default();
        } else {
            let room = MAX_COUNTERS - self.counters;
            node.read(report, &self.services, &self.zones, room, now);
        }
        self.counters += node.counters.len();
    }

    /// What fails now.
    pub(crate) fn failures<'n>(
        &self,
        nodes: impl Iterator<Item = &'n NodeCounters>,
        now: Millis,
    ) -> Failures {
        let zones = self.zones.numbers.len();
        let mut sums = vec![Sum::default(); self.services.numbers() * zones];
        let (mut span, mut complete_since) = (0.0_f64, Some(u64::MAX));
        let mut heard = false;
        for node in nodes.filter(|node| node.is_heard(now)) {
            heard = true;
            let Some((since, seconds)) = node.window() else {
                complete_since = None;
                continue;
            };
            complete_since = complete_since.map(|others| others.min(since));
            span = span.max(seconds);
            for counter in &node.counters {
                if self.services.was_measured(counter.service, since) {
                    sums[counter.service as usize * zones + usize::from(counter.zone)].add(counter);
                }
            }
        }
        let complete_since = complete_since.filter(|_| heard);
        let of = |(name, number): (&Name, u32)| {
            let sum = |zone: u16| sums[number as usize * zones + usize::from(zone)];
            let zones = self.zones.numbers.iter().map(|(name, zone)| (name, sum(*zone).bounded()));
            let used = zones.filter(|(_, sum)| sum.connections > 0);
            let complete = complete_since.is_some_and(|at| self.services.was_measured(number, at));
            let zones = used.map(|(name, sum)| (Name::clone(name), sum)).collect();
            (Name::clone(name), ServiceFailures { zones, seconds: span, complete })
        };
        Failures(self.services.iter().map(of).collect())
    }
}

impl NodeCounters {
    /// Takes the counters of a report.
    fn read(
        &mut self,
        report: &Report,
        services: &Services,
        zones: &Zones,
        room: usize,
        now: Millis,
    ) {
        let last = self.last.filter(|last| seconds(last.at, now) <= HOLD);
        let before = std::mem::take(&mut self.counters);
        let mut sets = Some(services.sets());
        for (name, of_service) in &report.services {
            let Some(service) = services.number(name) else { continue };
            let failed = report.failed.get(name);
            let known = of_service.iter().filter_map(|(zone, counts)| {
                let failed = failed.and_then(|zones| zones.get(zone)).copied().unwrap_or(0);
                Some((zones.number(zone)?, counts.connections, failed))
            });
            let has_begun = has_begun(service, report, last, services);
            for (zone, connections, failed) in known {
                if self.counters.len() == room {
                    sets = None;
                    break;
                }
                let new = [Counted::default(); INTERVALS];
                let begun = Counter { service, zone, connections: 0, failed: 0, new };
                let from = find(&before, service, zone).or(has_begun.then_some(begun));
                let from = from.filter(|_| last.is_some());
                self.counters.push(Counter { service, zone, connections, failed, new }.after(from));
            }
        }
        self.counters.sort_unstable_by_key(|counter| (counter.service, counter.zone));
        let [_, newest] = self.intervals;
        self.intervals = match last {
            None => [None; INTERVALS],
            Some(last) => {
                [newest, Some(Interval { seconds: seconds(last.at, now), sets: last.sets })]
            }
        };
        self.last = Some(LastReport { started: report.started, at: now, sets });
    }

    fn is_heard(&self, now: Millis) -> bool {
        self.last.is_some_and(|last| seconds(last.at, now) <= HOLD)
    }

    /// How often Services had been set when its intervals began, and how long they are; `None` if there are not so many.
    fn window(&self) -> Option<(u64, f64)> {
        let [older, newer] = self.intervals;
        let (older, newer) = (older?, newer?);
        // The newer one must have begun with all counters, too.
        newer.sets?;
        Some((older.sets?, older.seconds + newer.seconds))
    }
}

/// Whether a counter of a Service that was not in the last report of the node has begun at zero: the same run of the proxy
/// was looked at for this Service.
fn has_begun(service: u32, report: &Report, last: Option<LastReport>, services: &Services) -> bool {
    let same_run = last.filter(|last| last.started == report.started);
    same_run.and_then(|last| last.sets).is_some_and(|sets| services.was_measured(service, sets))
}

fn find(counters: &[Counter], service: u32, zone: u16) -> Option<Counter> {
    let at =
        counters.binary_search_by_key(&(service, zone), |counter| (counter.service, counter.zone));
    Some(counters[at.ok()?])
}

impl Counter {
    /// The same with what is new since an earlier one. Without it, or where a counter went backwards, this is a baseline.
    fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let new =
            |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
        let counted = Counted {
            connections: new(self.connections, before.connections),
            failed: new(self.failed, before.failed),
        };
        let [_, newest] = before.new;
        Self { new: [newest, counted], ..self }
    }
}

/// What nodes report of a Service and a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    connections: u64,
    failed: u64,
    /// The failed ones of the node that reports most of them.
    most_failed: u64,
    /// How many nodes report connections.
    nodes: u32,
}

impl Sum {
    fn add(&mut self, counter: &Counter) {
        let sum = |what: fn(&Counted) -> u32| -> u64 {
            counter.new.iter().map(|counted| u64::from(what(counted))).sum()
        };
        let connections = sum(|counted| counted.connections);
        let failed = sum(|counted| counted.failed).min(connections);
        self.connections += connections;
        self.failed += failed;
        self.most_failed = self.most_failed.max(failed);
        self.nodes += u32::from(connections > 0);
    }

    /// Where several nodes report connections, one counts for half of those that failed at most.
    fn bounded(self) -> ZoneConnections {
        let Self { connections, failed, most_failed, nodes } = self;
        let of_others = failed - most_failed;
        let failed = if nodes > 1 { failed.min(2 * of_others) } else { failed };
        ZoneConnections { connections, failed }
    }
}
