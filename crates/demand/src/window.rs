//! From counters to rates: connections per second of each Service, by the zone of the node that reports.
//!
//! ```text
//!  node n1 (zone a)   shop/web  total 1,204 ─► 1,354 in 15 s: 10/s ─┐
//!  node n2 (zone a)   shop/web  total   300 ─►   315 in 15 s:  1/s ─┼─► shop/web  a 11/s  b 4/s   largest: n1, 10/s
//!  node n3 (zone b)   shop/web  total    80 ─►   140 in 15 s:  4/s ─┘             225 connections since last time
//! ```
//!
//! The zone is that of the Node object, not what a report says, and a report has to come from the node that was asked.
//! Only Services that the controller names are kept, so that a report cannot fill the memory.
//!
//! | what happens | what becomes of it |
//! |---|---|
//! | the first report of a node, or of a new leader's window | a baseline: nothing is counted |
//! | a counter goes backwards (its set was emptied) | a new baseline of that Service |
//! | a Service is measured from now on, which nodes have counted for long | a baseline of that Service |
//! | the proxy starts again | counters that go on count; Services that were not known are a new baseline |
//! | a report is lost | the last rate counts on for [`HOLD`]; the next report has what was missed |
//! | a report takes long to arrive, so that nobody knows for which time it counts | it is left out until the time since the last one makes little of that |
//! | a report comes twice, or after a later one of the same run | it is left out |
//! | a node is silent for longer than [`HOLD`] | its rates are forgotten, and its part is [silent](Measured::silent) |
//! | a node claims more than its CPU explains | all its rates are made smaller ([`plausible`](crate::plausible)) |
//!
//! Memory: 16 bytes for each Service that a node uses, at most [`MAX_COUNTERS`] in all, and one sum for each Service
//! and zone while they are measured. [`failures`](crate::failures) says what Services cost whose failed connections are
//! watched.

use std::collections::BTreeMap;

use thiserror::Error;
use zonewise_common::name::Name;
use zonewise_topology::capacity::{Capacity, NodeCapacity};

use crate::failures::{Failures, NodeCounters, Watched};
use crate::plausible::{Largest, most_per_second};
use crate::report::{Report, connections};
use crate::services::Services;
use crate::{Millis, seconds};

/// The most Services that are measured. Others keep to the model.
pub const MAX_SERVICES: usize = 10_000;

/// The most counters that are kept, of all nodes together: 64 MB.
pub const MAX_COUNTERS: usize = 4_000_000;

/// How long the rates of a node count on without a report, in seconds: eight reports in a row have to be lost.
pub const HOLD: f64 = 120.0;

/// The part of the time between two reports that may be uncertain, because they took so long to arrive: a report counts for a
/// moment between question and answer. By more than that the rates of nodes would differ although nothing has changed.
pub const UNCERTAIN: f64 = 0.1;

/// After so many seconds a report is taken however long it took: it is better than none.
pub const LONG_ENOUGH: f64 = 60.0;

/// Rates are not computed over less than this, in seconds.
const SHORTEST: f64 = 1.0;

/// The connections of all nodes to the Services that are measured.
#[derive(Debug, Default)]
pub struct Window {
    services: Services,
    /// Connections to each Service that were counted since the last measurement.
    sampled: Vec<u64>,
    nodes: BTreeMap<Name, Node>,
    /// Counters of all nodes.
    counters: usize,
    /// The Services whose failed connections are watched.
    watched: Watched,
}

#[derive(Debug)]
struct Node {
    zone: Name,
    cpu_milli: Option<u64>,
    /// Whether it counts for the capacity of its zone.
    in_model: bool,
    last: Option<LastReport>,
    /// By the number of the Service.
    counters: Vec<Counter>,
    /// Those of Services that are watched.
    watched: NodeCounters,
}

#[derive(Clone, Copy, Debug)]
struct LastReport {
    started: u64,
    sequence: u64,
    at: Millis,
    /// Seconds from the question to the answer.
    took: f64,
    /// Whether the counters have rates: not after a baseline.
    has_rates: bool,
    /// How often the Services had been set that are measured; `None` if there was no room for all counters.
    sets: Option<u64>,
}

/// The counter of a Service on a node.
#[derive(Clone, Copy, Debug)]
struct Counter {
    service: u32,
    /// Connections per second between the last two reports.
    rate: f32,
    /// Connections since the counter began.
    total: u64,
}

/// Why a report is not counted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotCounted {
    /// The node is not in the cluster, or has no zone.
    #[error(
        "node `{0}` is not in the cluster or has no zone: label it with topology.kubernetes.io/zone"
    )]
    UnknownNode(Box<str>),
    /// The report is of another node than the one that was asked.
    #[error(
        "node `{asked}` answers with a report of node `{says}`: check --node-name of its proxy"
    )]
    OtherNode {
        /// Who was asked.
        asked: Box<str>,
        /// Who answers.
        says: Box<str>,
    },
    /// The proxy believes to be in another zone.
    #[error(
        "the proxy of node `{node}` reports for zone `{says}`, but the Node is in zone `{is}`: it follows within seconds, or restart it"
    )]
    OtherZone {
        /// The node.
        node: Box<str>,
        /// What the proxy says.
        says: Box<str>,
        /// What the Node object says.
        is: Box<str>,
    },
    /// The same report again, or an earlier one.
    #[error("report {sequence} of node `{node}` was counted already, or a later one was")]
    Repeated {
        /// The node.
        node: Box<str>,
        /// The number of the report.
        sequence: u64,
    },
}

impl Window {
    /// An empty window.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the Services that are measured, as `namespace/name`. Those beyond [`MAX_SERVICES`] are left out; those
    /// that are measured already stay.
    pub fn set_services<'a>(&mut self, wanted: impl Iterator<Item = &'a str>) {
        let gone = self.services.set(wanted);
        self.forget(&gone);
        self.sampled.resize(self.services.numbers(), 0);
    }

    fn forget(&mut self, gone: &[u32]) {
        if gone.is_empty() {
            return;
        }
        let mut is_gone = vec![false; self.sampled.len()];
        for &number in gone {
            is_gone[number as usize] = true;
            self.sampled[number as usize] = 0;
        }
        for node in self.nodes.values_mut() {
            node.counters.retain(|counter| !is_gone[counter.service as usize]);
        }
        self.counters = self.nodes.values().map(|node| node.counters.len()).sum();
    }

    /// The Services that are left out because too many are wanted.
    pub fn services_left_out(&self) -> &[Name] {
        self.services.left_out()
    }

    /// Sets the nodes of the cluster. Reports of others are not counted. A node that has moved to another zone begins
    /// anew.
    pub fn set_nodes(&mut self, nodes: &[NodeCapacity<'_>]) {
        let mut before = std::mem::take(&mut self.nodes);
        for node in nodes {
            let Some(zone) = node.zone.filter(|zone| !zone.is_empty()) else { continue };
            let known = before.remove_entry(node.name).filter(|(_, known)| *known.zone == *zone);
            let (name, known) = known.unwrap_or_else(|| (node.name.into(), Node::new(zone)));
            let in_model = node.ready && !node.control_plane;
            self.nodes.insert(name, Node { cpu_milli: node.cpu_milli, in_model, ..known });
        }
        self.counters = self.nodes.values().map(|node| node.counters.len()).sum();
        self.watched.set_nodes(self.nodes.values().map(|node| (&node.zone, &node.watched)));
    }

    /// Sets the Services whose failed connections are watched, as `namespace/name`, whether they are measured or not.
    pub fn set_watched<'a>(&mut self, wanted: impl Iterator<Item = &'a str>) {
        let nodes = self.nodes.values_mut().map(|node| &mut node.watched);
        self.watched.set_services(wanted, nodes);
    }

    /// The Services whose failed connections are not watched, because those of too many are to be.
    pub fn unwatched(&self) -> &[Name] {
        self.watched.left_out()
    }

    /// What fails of the connections to these Services.
    pub fn failures(&self, now: Millis) -> Failures {
        self.watched.failures(self.nodes.values().map(|node| &node.watched), now)
    }

    /// Counts what the node that was asked has reported, and at once.
    pub fn add(&mut self, asked: &str, report: &Report, now: Millis) -> Result<(), NotCounted> {
        self.add_late(asked, report, now, 0.0)
    }

    /// Counts what the node that was asked has reported. `took` is the seconds from the question to the answer.
    pub fn add_late(
        &mut self,
        asked: &str,
        report: &Report,
        now: Millis,
        took: f64,
    ) -> Result<(), NotCounted> {
        let node =
            self.nodes.get_mut(asked).ok_or_else(|| NotCounted::UnknownNode(asked.into()))?;
        node.check(asked, report)?;
        let room = MAX_COUNTERS.saturating_sub(self.counters - node.counters.len());
        let before = node.counters.len();
        let counted = match node.is_uncertain(now, took) {
            true => Vec::new(),
            false => node.read(report, &self.services, room, (now, took)),
        };
        for (service, connections) in counted {
            let sampled = &mut self.sampled[service as usize];
            *sampled = sampled.saturating_add(connections);
        }
        self.counters = self.counters - before + node.counters.len();
        self.watched.add(&mut node.watched, report, now);
        Ok(())
    }

    /// What is known now. The zones are those of the model.
    pub fn measure(&mut self, model: &Capacity, now: Millis) -> Measurement<'_> {
        let zones = model.zones.len();
        let numbers = self.sampled.len();
        let sampled = std::mem::replace(&mut self.sampled, vec![0; numbers]);
        let mut measurement = Measurement::new(&self.services, sampled, vec![0.0; zones]);
        for node in self.nodes.values() {
            let Ok(zone) = model.zones.binary_search_by(|known| (*known.name).cmp(&*node.zone))
            else {
                continue;
            };
            if node.is_heard(now) {
                measurement.add(zone, &node.counters);
            } else if node.in_model {
                measurement.silent[zone] += model.share_of_node(&model.zones[zone], node.cpu_milli);
            }
        }
        measurement
    }
}

impl Node {
    fn new(zone: &str) -> Self {
        Self {
            zone: zone.into(),
            cpu_milli: None,
            in_model: false,
            last: None,
            counters: Vec::new(),
            watched: NodeCounters::default(),
        }
    }

    fn check(&self, asked: &str, report: &Report) -> Result<(), NotCounted> {
        if *report.node != *asked {
            let (asked, says) = (asked.into(), report.node.clone());
            return Err(NotCounted::OtherNode { asked, says });
        }
        if *report.zone != *self.zone {
            let (says, is) = (report.zone.clone(), (*self.zone).into());
            return Err(NotCounted::OtherZone { node: asked.into(), says, is });
        }
        let repeated =
            |last: LastReport| last.started == report.started && last.sequence >= report.sequence;
        if self.last.is_some_and(repeated) {
            return Err(NotCounted::Repeated { node: asked.into(), sequence: report.sequence });
        }
        Ok(())
    }

    /// Whether nobody can tell well enough for which time a report counts that comes now.
    fn is_uncertain(&self, now: Millis, took: f64) -> bool {
        self.last.is_some_and(|last| {
            let elapsed = seconds(last.at, now);
            elapsed < LONG_ENOUGH && last.took + took > UNCERTAIN * elapsed
        })
    }

    /// Takes the counters of a report, and returns the new connections to each Service.
    fn read(
        &mut self,
        report: &Report,
        services: &Services,
        room: usize,
        (now, took): (Millis, f64),
    ) -> Vec<(u32, u64)> {
        let last = self.last.filter(|last| seconds(last.at, now) <= HOLD);
        let same_run = last.is_some_and(|last| last.started == report.started);
        let elapsed = last.map_or(SHORTEST, |last| seconds(last.at, now).max(SHORTEST));
        let before = std::mem::take(&mut self.counters);
        let mut counted = Vec::new();
        let mut sets = Some(services.sets());
        let was_read = |service: u32| {
            let sets = last.filter(|_| same_run).and_then(|last| last.sets);
            sets.is_some_and(|sets| services.was_measured(service, sets))
        };
        for (name, zones) in &report.services {
            let Some(service) = services.number(name) else { continue };
            if self.counters.len() == room {
                sets = None;
                break;
            }
            let total = connections(zones);
            let known = before.binary_search_by_key(&service, |counter| counter.service);
            // A Service that was not in the last report, although it was looked for, has begun at zero.
            let from = known.ok().map(|at| before[at].total).or(was_read(service).then_some(0));
            let new = from.filter(|_| last.is_some()).and_then(|from| total.checked_sub(from));
            counted.push((service, new.unwrap_or(0)));
            self.counters.push(Counter { service, rate: 0.0, total });
        }
        let all: f64 = counted.iter().map(|(_, new)| *new as f64).sum();
        let most = most_per_second(self.cpu_milli) * elapsed;
        let believed = if all > most { most / all } else { 1.0 };
        for (counter, (_, new)) in self.counters.iter_mut().zip(&mut counted) {
            let connections = *new as f64 * believed;
            counter.rate = (connections / elapsed) as f32;
            *new = connections as u64;
        }
        self.counters.sort_unstable_by_key(|counter| counter.service);
        let Report { started, sequence, .. } = *report;
        self.last =
            Some(LastReport { started, sequence, at: now, took, has_rates: last.is_some(), sets });
        counted
    }

    /// Whether its rates count.
    fn is_heard(&self, now: Millis) -> bool {
        self.last.is_some_and(|last| last.has_rates && seconds(last.at, now) <= HOLD)
    }
}

/// What is known of all Services at a time.
#[derive(Debug)]
pub struct Measurement<'a> {
    services: &'a Services,
    /// Connections per second, Service by Service, for each zone.
    rates: Vec<f64>,
    largest: Vec<Option<Largest>>,
    sampled: Vec<u64>,
    silent: Vec<f64>,
}

impl<'a> Measurement<'a> {
    /// No rates yet. `sampled` has a number for each Service, `silent` one for each zone.
    pub(crate) fn new(services: &'a Services, sampled: Vec<u64>, silent: Vec<f64>) -> Self {
        let numbers = services.numbers();
        let (rates, largest) = (vec![0.0; numbers * silent.len()], vec![None; numbers]);
        Self { services, rates, largest, sampled, silent }
    }

    /// What is known of a Service; `None` if it is not measured.
    pub fn of(&self, service: &str) -> Option<Measured<'_>> {
        self.services.number(service).map(|number| self.numbered(number as usize))
    }

    /// What is known of each Service, in the byte order of their names.
    pub fn services(&self) -> impl Iterator<Item = (&Name, Measured<'_>)> {
        self.services.iter().map(|(name, number)| (name, self.numbered(number as usize)))
    }

    fn numbered(&self, number: usize) -> Measured<'_> {
        let zones = self.silent.len();
        Measured {
            rates: &self.rates[number * zones..(number + 1) * zones],
            largest: self.largest[number],
            sample: self.sampled[number],
            silent: &self.silent,
        }
    }

    fn add(&mut self, zone: usize, counters: &[Counter]) {
        for counter in counters {
            let rate = f64::from(counter.rate);
            self.add_rate(counter.service, zone, rate);
            self.add_largest(counter.service, Largest { zone, rate });
        }
    }

    /// Adds connections per second to a Service from a zone.
    pub(crate) fn add_rate(&mut self, service: u32, zone: usize, rate: f64) {
        self.rates[service as usize * self.silent.len() + zone] += rate;
    }

    /// Notes what one node sends to a Service, if none sends more.
    pub(crate) fn add_largest(&mut self, service: u32, node: Largest) {
        let largest = &mut self.largest[service as usize];
        if node.rate > largest.map_or(0.0, |largest| largest.rate) {
            *largest = Some(node);
        }
    }
}

/// What is known of a Service. Zones are in the order of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured<'a> {
    /// Connections per second that start in each zone.
    pub rates: &'a [f64],
    /// The node that sends most.
    pub largest: Option<Largest>,
    /// Connections that were counted since the last measurement.
    pub sample: u64,
    /// For each zone, the part of all traffic that the model expects of nodes that do not report.
    pub silent: &'a [f64],
}
