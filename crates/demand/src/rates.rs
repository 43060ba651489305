//! Rates that somebody else has measured, such as a Prometheus that scrapes the proxies.
//!
//! ```text
//!  shop/web  zone a 11/s, of which one node 10/s ─┐
//!  shop/web  zone b  4/s                          ├─► Measurement, as a Window gives it
//!  zone a    2 nodes report ──────────────────────┘
//! ```
//!
//! The sample is the rate times the time since the last answer. So the same shares follow from it as from counters.
//!
//! | what happens | what becomes of it |
//! |---|---|
//! | the first answer to a new leader | nothing is counted: there is no time that it is about |
//! | an answer is lost | the last rates count on for [`HOLD`]; they are not counted again |
//! | no answer for longer than [`HOLD`] | all zones are [silent](crate::window::Measured::silent) |
//! | a zone has no rate of any Service | it is silent: nobody scrapes it, or nobody calls from it |
//! | fewer nodes of a zone report than it has | the others are silent, each like the average of the zone |
//! | a rate is negative or no number | the whole answer is left out |
//! | a zone that the cluster does not have | its rates are left out; the whole answer, if it has no other |

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use zonewise_common::name::Name;
use zonewise_topology::capacity::{Capacity, NodeCapacity};

use crate::plausible::Largest;
use crate::services::Services;
use crate::window::{HOLD, Measurement};
use crate::{Millis, seconds};

/// The most connections per second to a Service from a zone. More is nonsense.
pub const MAX_RATE: f64 = 100_000_000.0;

/// What one answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Connections per second, by Service and the zone that they start in.
    pub rates: Vec<Rate>,
    /// The part of them that comes from the node that sends most, where that is known.
    pub largest: Vec<Rate>,
    /// How many nodes of each zone are in it, where that is known.
    pub reporting: Option<BTreeMap<Name, f64>>,
}

/// Connections per second to a Service from a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The Service, as `namespace/name`.
    pub service: Name,
    /// The zone that they start in.
    pub zone: Name,
    /// How many.
    pub per_second: f64,
}

/// Why an answer is left out.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NotARate {
    /// A rate that cannot be true.
    #[error(
        "it has {per_second} connections per second from zone `{zone}` to Service `{service}`: the query has to give a rate, \
         not below 0 and not above {MAX_RATE}"
    )]
    Rate {
        /// The Service.
        service: Name,
        /// The zone.
        zone: Name,
        /// The rate.
        per_second: f64,
    },
    /// A number of nodes that cannot be true.
    #[error("it has {nodes} nodes that report in zone `{zone}`: the query has to count nodes")]
    Nodes {
        /// The zone.
        zone: Name,
        /// How many.
        nodes: f64,
    },
    /// Rates, but of no Service that there is.
    #[error(
        "it has no rate of a Service from a zone of this cluster: check that Prometheus scrapes the metrics of the query, and \
         that the query gives zones as the nodes' label topology.kubernetes.io/zone has them"
    )]
    Nothing,
}

impl Answer {
    fn check(&self, zones: &BTreeSet<Name>) -> Result<(), NotARate> {
        if !self.rates.iter().any(|rate| zones.is_empty() || zones.contains(&rate.zone)) {
            return Err(NotARate::Nothing);
        }
        for Rate { service, zone, per_second } in self.rates.iter().chain(&self.largest) {
            if !(0.0..=MAX_RATE).contains(per_second) {
                let (service, zone) = (Name::clone(service), Name::clone(zone));
                return Err(NotARate::Rate { service, zone, per_second: *per_second });
            }
        }
        let mut reporting = self.reporting.iter().flatten();
        match reporting.find(|(_, nodes)| !(0.0..=f64::from(u32::MAX)).contains(*nodes)) {
            Some((zone, nodes)) => Err(NotARate::Nodes { zone: Name::clone(zone), nodes: *nodes }),
            None => Ok(()),
        }
    }
}

/// The last rates of the Services that are measured.
#[derive(Debug, Default)]
pub struct Rates {
    services: Services,
    /// Those of the cluster; none before they are known.
    zones: BTreeSet<Name>,
    /// Connections of each Service that are not counted yet.
    sampled: Vec<f64>,
    last: Option<Last>,
}

/// The last answer.
#[derive(Debug)]
struct Last {
    at: Millis,
    answer: Answer,
}

impl Rates {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the Services that are measured, as `namespace/name`.
    pub fn set_services<'a>(&mut self, wanted: impl Iterator<Item = &'a str>) {
        let gone = self.services.set(wanted);
        self.sampled.resize(self.services.numbers(), 0.0);
        for number in gone {
            self.sampled[number as usize] = 0.0;
        }
    }

    /// The Services that are left out because too many are wanted.
    pub fn services_left_out(&self) -> &[Name] {
        self.services.left_out()
    }

    /// Sets the nodes of the cluster. Rates are by zone already, so only their zones are used.
    pub fn set_nodes(&mut self, nodes: &[NodeCapacity<'_>]) {
        self.zones = nodes.iter().filter_map(|node| node.zone).map(Name::from).collect();
    }

    /// Counts an answer.
    pub fn add(&mut self, answer: Answer, now: Millis) -> Result<(), NotARate> {
        answer.check(&self.zones)?;
        let elapsed = self.last.as_ref().map_or(0.0, |last| seconds(last.at, now).min(HOLD));
        for Rate { service, per_second, .. } in &answer.rates {
            if let Some(number) = self.services.number(service) {
                self.sampled[number as usize] += per_second * elapsed;
            }
        }
        self.last = Some(Last { at: now, answer });
        Ok(())
    }

    /// What is known now. The zones are those of the model.
    pub fn measure(&mut self, model: &Capacity, now: Millis) -> Measurement<'_> {
        let sampled = self.sampled.iter_mut().map(|connections| {
            let whole = connections.floor();
            *connections -= whole;
            whole as u64
        });
        let sampled = sampled.collect();
        let heard = self.last.as_ref().filter(|last| seconds(last.at, now) <= HOLD);
        let silent = match heard {
            Some(last) => silent(&last.answer, model),
            None => model.zones.iter().map(|zone| zone.share).collect(),
        };
        let mut measurement = Measurement::new(&self.services, sampled, silent);
        let answer = heard.map(|last| &last.answer);
        let known = |rate: &Rate| {
            let zone = model.zones.binary_search_by(|zone| (*zone.name).cmp(&*rate.zone)).ok()?;
            Some((self.services.number(&rate.service)?, zone, rate.per_second))
        };
        for (service, zone, rate) in
            answer.iter().flat_map(|answer| &answer.rates).filter_map(known)
        {
            measurement.add_rate(service, zone, rate);
        }
        for (service, zone, rate) in
            answer.iter().flat_map(|answer| &answer.largest).filter_map(known)
        {
            measurement.add_largest(service, Largest { zone, rate });
        }
        measurement
    }
}

/// For each zone, the part of all traffic that the model expects of nodes that nobody has measured.
fn silent(answer: &Answer, model: &Capacity) -> Vec<f64> {
    let heard = |zone: &str, nodes: u64| match &answer.reporting {
        Some(reporting) => {
            let reporting = reporting.get(zone).copied().unwrap_or_default();
            if nodes == 0 { 1.0 } else { (reporting / nodes as f64).min(1.0) }
        }
        None => f64::from(u8::from(answer.rates.iter().any(|rate| *rate.zone == *zone))),
    };
    model.zones.iter().map(|zone| zone.share * (1.0 - heard(&zone.name, zone.nodes))).collect()
}
