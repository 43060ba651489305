//! What is in force for all Services, and as text that is stored in the cluster.
//!
//! ```json
//! {"v":1,"at":1763430000000,"zones":["a","b","c"],
//!  "services":{"shop/web":{"s":[698000,201000,101000],"n":[700,200,100],"r":6.5,"a":3}}}
//! ```
//!
//! | key | what |
//! |---|---|
//! | `at` | when the youngest was decided, in milliseconds since 1970 |
//! | `zones` | the zones that the lists are about |
//! | `s` | shares in force, in millionths |
//! | `n` | the memory: connections from each zone, in whole numbers |
//! | `r` | rewrites that are left |
//! | `m` | whether the limit on change has stopped the shares on their way |
//! | `a`, `d` | seconds from the last counted connection, and from the decision, until `at` |
//!
//! What rounding takes away is less than a connection, so a new leader decides as the last one would have. 10,000 Services
//! with names of 20 letters in three zones have 850 kB. If it is more than [`MAX_BYTES`], the Services with the fewest
//! connections are left out, as few as possible: a new leader begins anew with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zonewise_common::name::Name;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::zone_shares::in_millionths;

use crate::shares::{Decision, InForce, REWRITES_AT_ONCE, shares};
use crate::window::Measurement;
use crate::{Millis, seconds};

/// The most bytes of the text. An object of Kubernetes may have 1.5 MiB, a ConfigMap 1 MiB.
pub const MAX_BYTES: usize = 900 << 10;

const VERSION: u32 = 1;
const ONE: u64 = 1_000_000;

/// What is in force for all Services. A Service that is not in it keeps to the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The zones that shares and memories are about.
    zones: Vec<Name>,
    services: BTreeMap<Name, InForce>,
}

/// Why a text is not a state.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StateError {
    /// Not JSON of the right shape.
    #[error(
        "the stored demand is not the expected JSON: {0}; delete the object, and it is measured anew"
    )]
    Shape(String),
    /// A version that this program does not know.
    #[error(
        "the stored demand has version {0} and this program reads version {VERSION}; delete the object, and it is measured anew"
    )]
    Version(u32),
    /// A Service whose numbers do not fit.
    #[error(
        "the stored demand of Service `{0}` has not one share and one number for each zone, or they do not add up; delete the object, and it is measured anew"
    )]
    Service(Box<str>),
}

impl State {
    /// Decides the shares of every Service that is measured. Services that are not measured any more go back to the
    /// model.
    pub fn decide(
        &mut self,
        model: &Capacity,
        measurement: &Measurement<'_>,
        now: Millis,
    ) -> Vec<(Name, Decision)> {
        self.align(model);
        let before = std::mem::take(&mut self.services);
        let mut decisions = Vec::new();
        for (name, measured) in measurement.services() {
            let (in_force, decision) = shares(model, &measured, before.get(name), now);
            if let Some(in_force) = in_force {
                self.services.insert(Name::clone(name), in_force);
            }
            decisions.push((Name::clone(name), decision));
        }
        decisions
    }

    /// The measured shares of a Service, as a capacity that decisions can be based on; `None` where the model alone is in
    /// force.
    pub fn shares(&self, service: &str) -> Option<impl Iterator<Item = (&Name, f64)>> {
        self.services.get(service).map(|in_force| self.zones.iter().zip(in_force.parts()))
    }

    /// What is in force for each Service.
    pub fn services(&self) -> impl Iterator<Item = (&Name, &InForce)> {
        self.services.iter()
    }

    /// When the youngest was decided; 0 if nothing is in force.
    pub fn decided(&self) -> Millis {
        self.services.values().map(|in_force| in_force.decided).max().unwrap_or(0)
    }

    /// What is in force for a Service, in the order of a model's zones; `None` for the model alone.
    pub(crate) fn aligned(&self, service: &str, model: &Capacity) -> Option<InForce> {
        let (name, in_force) = self.services.get_key_value(service)?;
        let services = BTreeMap::from([(Name::clone(name), in_force.clone())]);
        let mut alone = Self { zones: self.zones.clone(), services };
        alone.align(model);
        alone.services.remove(name)
    }

    /// Brings everything into the order of a model's zones. A zone that is gone loses its share to the others, and a new
    /// one begins with that of the model, in memory too: that nobody has counted its connections yet does not mean that
    /// it has none.
    fn align(&mut self, model: &Capacity) {
        if self.zones.iter().map(|zone| &**zone).eq(model.zones.iter().map(|zone| &*zone.name)) {
            return;
        }
        let zones = std::mem::take(&mut self.zones);
        let place = |zone: &str| zones.iter().position(|known| **known == *zone);
        let aligned = |known: &[f64]| -> Vec<f64> {
            let capacity = model.measured(|zone| place(zone).map(|at| known[at]));
            capacity.zones.iter().map(|zone| zone.share).collect()
        };
        for in_force in self.services.values_mut() {
            let sample: f64 = in_force.memory.iter().sum();
            let memory = aligned(&in_force.memory);
            in_force.memory = memory.iter().map(|part| part * sample).collect();
            let shares: Vec<f64> = in_force.parts().collect();
            in_force.shares = in_millionths(&aligned(&shares));
        }
        self.zones = model.zones.iter().map(|zone| Name::from(&*zone.name)).collect();
    }

    /// The text.
    pub fn encode(&self) -> String {
        self.encode_counting().0
    }

    /// The text, and the number of Services that do not fit into it.
    pub fn encode_counting(&self) -> (String, usize) {
        let at = self.decided();
        let entry = |in_force| Entry::of(in_force, at);
        let services = self.services.iter().map(|(name, in_force)| (&**name, entry(in_force)));
        let mut wire =
            Wire { v: VERSION, at, zones: self.zones.clone(), services: services.collect() };
        let mut text = wire.text();
        while text.len() > MAX_BYTES && !wire.services.is_empty() {
            wire.leave_out(text.len() - MAX_BYTES);
            text = wire.text();
        }
        (text, self.services.len() - wire.services.len())
    }

    /// Reads the text.
    pub fn decode(text: &str) -> Result<Self, StateError> {
        let wire: Wire<'_> =
            serde_json::from_str(text).map_err(|error| StateError::Shape(error.to_string()))?;
        if wire.v != VERSION {
            return Err(StateError::Version(wire.v));
        }
        let read = |(name, entry): (&str, Entry)| {
            let in_force = entry.read(wire.zones.len(), wire.at);
            let in_force = in_force.ok_or_else(|| StateError::Service(name.into()))?;
            Ok((Name::from(name), in_force))
        };
        let services = wire.services.into_iter().map(read).collect::<Result<_, StateError>>()?;
        Ok(Self { zones: wire.zones, services })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    v: u32,
    at: Millis,
    zones: Vec<Name>,
    #[serde(borrow)]
    services: BTreeMap<&'a str, Entry>,
}

impl Wire<'_> {
    fn text(&self) -> String {
        // Numbers and text: there is nothing that JSON cannot express.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Leaves out the Services with the fewest connections, until at least so many bytes are saved.
    fn leave_out(&mut self, bytes: usize) {
        let mut quietest: Vec<(u64, &str)> =
            self.services.iter().map(|(name, entry)| (entry.sample(), *name)).collect();
        quietest.sort_unstable();
        let mut saved = 0;
        for (_, name) in quietest {
            if saved >= bytes {
                return;
            }
            let entry = self.services.remove(name);
            let text = entry.map(|entry| serde_json::to_string(&entry).unwrap_or_default());
            // The name is in quotes, with a colon and a comma.
            saved += name.len() + 4 + text.map_or(0, |text| text.len());
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    s: Vec<u32>,
    n: Vec<u64>,
    r: f64,
    #[serde(default, skip_serializing_if = "is_false")]
    m: bool,
    a: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    d: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Entry {
    fn of(in_force: &InForce, at: Millis) -> Self {
        Self {
            s: in_force.shares.clone(),
            n: in_force.memory.iter().map(|connections| connections.round() as u64).collect(),
            r: (in_force.rewrites_left * 100.0).round() / 100.0,
            m: in_force.moving,
            a: seconds(in_force.measured, at).round() as u64,
            d: seconds(in_force.decided, at).round() as u64,
        }
    }

    fn sample(&self) -> u64 {
        self.n.iter().fold(0, |sum, connections| sum.saturating_add(*connections))
    }

    /// `None` if the numbers do not fit.
    fn read(self, zones: usize, at: Millis) -> Option<InForce> {
        let sum: u64 = self.s.iter().map(|share| u64::from(*share)).sum();
        let fits = self.s.len() == zones && self.n.len() == zones && (sum == ONE || zones == 0);
        let before = |seconds: u64| at.saturating_sub(seconds.saturating_mul(1000));
        fits.then(|| InForce {
            memory: self.n.iter().map(|connections| *connections as f64).collect(),
            moving: self.m,
            rewrites_left: self.r.clamp(0.0, REWRITES_AT_ONCE),
            measured: before(self.a),
            decided: before(self.d),
            shares: self.s,
        })
    }
}
