//! What the zones of all Services count for, and as text that is stored in the cluster beside the shares.
//!
//! ```json
//! {"v":1,"at":1763430000000,"services":{"shop/web":{"z":{"a":[40,120,41,310],"b":[100,700,0,0]},"r":9.5,"c":30}}}
//! ```
//!
//! | key | what |
//! |---|---|
//! | `at` | when the youngest was decided, in milliseconds since 1970 |
//! | `z` | by zone: percent in force, connections and failed ones in memory, the excess in thousandths |
//! | `r` | rewrites that are left |
//! | `c`, `s`, `d` | seconds from the last change, from the last figures and from the decision, until `at` |
//!
//! Only Services with a zone that counts for less than all of its endpoints are stored: a new leader finds out about the
//! others anew. It is a text of its own, so that programs of earlier releases read the shares as ever. Fields that a reader does
//! not know are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zonewise_common::name::Name;

use super::{FULL, InForce, Judgement, LEAST, Seen, Zone, judge};
use crate::shares::REWRITES_AT_ONCE;
use crate::{Millis, seconds};

/// The most bytes of the text. With the shares it has to fit into a ConfigMap.
pub const MAX_BYTES: usize = 64 << 10;

const VERSION: u32 = 1;

/// What is in force for all Services. The zones of a Service that is not in it count in full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthState {
    services: BTreeMap<Name, InForce>,
}

/// Why a text is not a state.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HealthStateError {
    /// Not JSON of the right shape.
    #[error(
        "what is stored of failing zones is not the expected JSON: {0}; delete the object, and it is found out anew"
    )]
    Shape(String),
    /// A version that this program does not know.
    #[error(
        "what is stored of failing zones has version {0} and this program reads version {VERSION}; delete the object, and it is found out anew"
    )]
    Version(u32),
}

impl HealthState {
    /// Decides for these Services, and forgets the others. Returns what was decided, for those that are forgotten too.
    pub fn decide<'a>(
        &mut self,
        services: impl Iterator<Item = (&'a Name, Seen<'a>)>,
        now: Millis,
    ) -> Vec<(Name, Judgement)> {
        let mut before = std::mem::take(&mut self.services);
        let mut judgements = Vec::new();
        for (name, seen) in services {
            let (in_force, judgement) = judge(before.remove(name).as_ref(), &seen, now);
            self.services.insert(Name::clone(name), in_force);
            judgements.push((Name::clone(name), judgement));
        }
        let forgotten = before.into_iter().filter(|(_, in_force)| in_force.is_lowered());
        let in_full = |(name, _): (Name, InForce)| {
            (
                name,
                Judgement { percents: BTreeMap::new(), changed: true, held: None, bounded: false },
            )
        };
        judgements.extend(forgotten.map(in_full));
        judgements
    }

    /// What is in force for a Service.
    pub fn of(&self, service: &str) -> Option<&InForce> {
        self.services.get(service)
    }

    /// The Services with a zone that counts for less than all of its endpoints.
    pub fn lowered(&self) -> impl Iterator<Item = (&Name, &InForce)> {
        self.services.iter().filter(|(_, in_force)| in_force.is_lowered())
    }

    /// The text.
    pub fn encode(&self) -> String {
        let at = self.lowered().map(|(_, in_force)| in_force.decided).max().unwrap_or(0);
        let entry = |in_force| Entry::of(in_force, at);
        let services = self.lowered().map(|(name, in_force)| (&**name, entry(in_force)));
        let mut wire = Wire { v: VERSION, at, services: services.collect() };
        loop {
            // Numbers and text: there is nothing that JSON cannot express.
            let text = serde_json::to_string(&wire).unwrap_or_default();
            if text.len() <= MAX_BYTES || wire.services.is_empty() {
                return text;
            }
            wire.leave_out_a_quarter();
        }
    }

    /// Reads the text.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub fn decode(text: &str) -> Result<Self, HealthStateError> {
        let wire: Wire<'_> = serde_json::from_str(text)
            .map_err(|error| HealthStateError::Shape(error.to_string()))?;
        if wire.v != VERSION {
            return Err(HealthStateError::Version(wire.v));
        }
        let at = wire.at;
        let services = wire.services.into_iter();
        let services = services.map(|(name, entry)| (Name::from(name), entry.read(at)));
        Ok(Self { services: services.collect() })
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u32,
    at: Millis,
    #[serde(borrow)]
    services: BTreeMap<&'a str, Entry>,
}

impl Wire<'_> {
    /// Leaves out the quarter of the Services that have failed least.
    fn leave_out_a_quarter(&mut self) {
        let mut lowest: Vec<u64> = self.services.values().map(Entry::lowest).collect();
        lowest.sort_unstable();
        let limit = lowest[lowest.len() - 1 - lowest.len() / 4];
        let mut left = lowest.len() / 4 + 1;
        self.services.retain(|_, entry| {
            let leaves = left > 0 && entry.lowest() >= limit;
            left -= usize::from(leaves);
            !leaves
        });
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Percent, connections, failed ones, excess in thousandths.
    z: BTreeMap<Name, [u64; 4]>,
    r: f64,
    #[serde(default, skip_serializing_if = "is_zero")]
    c: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    s: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    d: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Entry {
    fn of(in_force: &InForce, at: Millis) -> Self {
        let numbers = |zone: &Zone| {
            let [connections, failed] = [zone.connections, zone.failed].map(|n| n.round() as u64);
            [u64::from(zone.percent), connections, failed, (zone.excess * 1000.0).round() as u64]
        };
        let before = |time: Millis| seconds(time, at).round() as u64;
        Self {
            z: in_force
                .zones
                .iter()
                .map(|(name, zone)| (Name::clone(name), numbers(zone)))
                .collect(),
            r: (in_force.rewrites_left * 100.0).round() / 100.0,
            c: before(in_force.changed),
            s: before(in_force.seen),
            d: before(in_force.decided),
        }
    }

    fn lowest(&self) -> u64 {
        self.z.values().map(|[percent, ..]| *percent).min().unwrap_or_default()
    }

    /// Numbers that cannot be are taken for the nearest that can.
    fn read(self, at: Millis) -> InForce {
        let zone = |[percent, connections, failed, excess]: [u64; 4]| Zone {
            percent: percent.clamp(LEAST.into(), FULL.into()) as u8,
            connections: connections as f64,
            failed: failed.min(connections) as f64,
            excess: excess.min(1000) as f64 / 1000.0,
        };
        let before = |seconds: u64| at.saturating_sub(seconds.saturating_mul(1000));
        InForce {
            zones: self.z.into_iter().map(|(name, numbers)| (name, zone(numbers))).collect(),
            rewrites_left: self.r.clamp(0.0, REWRITES_AT_ONCE),
            changed: before(self.c),
            seen: before(self.s),
            decided: before(self.d),
        }
    }
}
