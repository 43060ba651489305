//! What the zones of all Services count for by use, and as text that is stored in the cluster beside the shares.
//!
//! ```json
//! {"v":1,"at":1763430000000,
//!  "services":{"shop/web":{"z":{"a":[71,"u",4,4,812,20,0],"b":[122,"u",4,3,410,18,0]},"r":9.5,"c":75,"p":15}}}
//! ```
//!
//! | key | what |
//! |---|---|
//! | `at` | when the youngest was decided, in milliseconds since 1970 |
//! | `f` | why the metrics API gives nothing, if so |
//! | `z` | by zone: percent in force, where it stands, ready endpoints, those that are measured, their mean use in thousandths of a core, seconds from the end of the oldest figure and from the last good ones until `at` |
//! | `r` | rewrites that are left |
//! | `c`, `p`, `d` | seconds from the last change, from the last step and from the decision, until `at` |
//!
//! It is a text of its own, so that programs of earlier releases read the shares as ever. Fields that a reader does not know are
//! ignored. It has as many bytes as the other texts leave, at most [`MAX_BYTES`]: Services whose zones count for nearly the same are left out
//! first, and a new leader finds out about them anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zonewise_common::name::Name;

use super::{
    FULL_PERCENT, InForce, LEAST_PERCENT, MOST_PERCENT, Seen, Standing, Weighing, Zone, weigh,
};
use crate::shares::REWRITES_AT_ONCE;
use crate::{Millis, seconds};

/// The most bytes of the text.
pub const MAX_BYTES: usize = 128 << 10;

/// Bytes that the other texts leave for this one always.
pub const MIN_BYTES: usize = 8 << 10;

const VERSION: u32 = 1;

/// Why the metrics API gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceFault {
    /// There is none.
    Missing,
    /// It does not answer this client.
    Forbidden,
    /// It does not answer, or says that it cannot.
    Unavailable,
    /// Its answer is too large.
    TooLarge,
    /// What it answers is something else.
    Nonsense,
}

/// What is in force for all Services. The zones of a Service that is not in it count in full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UseState {
    services: BTreeMap<Name, InForce>,
    /// Why the metrics API gives nothing; `None` if it does.
    pub fault: Option<SourceFault>,
}

/// Why a text is not a state.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UseStateError {
    /// Not JSON of the right shape.
    #[error(
        "what is stored of the CPU use of endpoints is not the expected JSON: {0}; delete the object, and it is found out anew"
    )]
    Shape(String),
    /// A version that this program does not know.
    #[error(
        "what is stored of the CPU use of endpoints has version {0} and this program reads version {VERSION}; delete the object, and it is found out anew"
    )]
    Version(u32),
}

impl UseState {
    /// Decides for these Services, and forgets the others. Returns what was decided, for those that are forgotten too.
    pub fn decide<'a>(
        &mut self,
        services: impl Iterator<Item = (&'a Name, Seen<'a>)>,
        now: Millis,
    ) -> Vec<(Name, Weighing)> {
        let mut before = std::mem::take(&mut self.services);
        let mut decided = Vec::new();
        for (name, seen) in services {
            let (in_force, weighing) = weigh(before.remove(name).as_ref(), &seen, now);
            self.services.insert(Name::clone(name), in_force);
            decided.push((Name::clone(name), weighing));
        }
        let forgotten = before.into_iter().filter(|(_, was)| was.weighted().next().is_some());
        let in_full = |(name, _): (Name, InForce)| (name, Weighing { changed: true, held: false });
        decided.extend(forgotten.map(in_full));
        decided
    }

    /// What is in force for a Service.
    pub fn of(&self, service: &str) -> Option<&InForce> {
        self.services.get(service)
    }

    /// What is in force for each Service.
    pub fn services(&self) -> impl Iterator<Item = (&Name, &InForce)> {
        self.services.iter()
    }

    /// When the youngest was decided; 0 if nothing is in force.
    pub fn decided(&self) -> Millis {
        self.services.values().map(|in_force| in_force.decided).max().unwrap_or(0)
    }

    /// The text, with so many bytes at most.
    pub fn encode(&self, most: usize) -> String {
        let at = self.decided();
        let entry = |in_force| Entry::of(in_force, at);
        let services = self.services.iter().map(|(name, in_force)| (&**name, entry(in_force)));
        let services = services.collect();
        let mut wire = Wire { v: VERSION, at, f: self.fault, services };
        loop {
            // Numbers and text: there is nothing that JSON cannot express.
            let text = serde_json::to_string(&wire).unwrap_or_default();
            if text.len() <= most.min(MAX_BYTES) || wire.services.is_empty() {
                return text;
            }
            wire.leave_out_a_quarter();
        }
    }

    /// Reads the text.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub fn decode(text: &str) -> Result<Self, UseStateError> {
        let wire: Wire<'_> =
            serde_json::from_str(text).map_err(|error| UseStateError::Shape(error.to_string()))?;
        if wire.v != VERSION {
            return Err(UseStateError::Version(wire.v));
        }
        let at = wire.at;
        let services = wire.services.into_iter();
        let services = services.map(|(name, entry)| (Name::from(name), entry.read(at)));
        Ok(Self { services: services.collect(), fault: wire.f })
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u32,
    at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<SourceFault>,
    #[serde(borrow)]
    services: BTreeMap<&'a str, Entry>,
}

impl Wire<'_> {
    /// Leaves out a quarter of the Services: those whose zones count for nearly the same.
    fn leave_out_a_quarter(&mut self) {
        let mut by_distance: Vec<(u16, &str)> =
            self.services.iter().map(|(name, entry)| (entry.distance(), *name)).collect();
        by_distance.sort_unstable();
        for (_, name) in by_distance.iter().take(by_distance.len() / 4 + 1) {
            self.services.remove(name);
        }
    }
}

/// Percent, standing, ready endpoints, measured ones, mean use, seconds since the oldest figure and since the last good ones.
type ZoneNumbers = (u16, char, u64, u64, u64, u64, u64);

#[derive(Serialize, Deserialize)]
struct Entry {
    z: BTreeMap<Name, ZoneNumbers>,
    r: f64,
    #[serde(default, skip_serializing_if = "is_zero")]
    c: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    p: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    d: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Standing {
    fn letter(self) -> char {
        match self {
            Self::ByUse => 'u',
            Self::AtLimit => 'l',
            Self::Waiting => 'w',
            Self::Missing => 'm',
            Self::Old => 'o',
            Self::Nonsense => 'n',
            Self::TooLittle => 't',
            Self::Alone => 'a',
            Self::Held => 'h',
        }
    }

    /// A letter of a later release stands for nothing that could be said here.
    fn of_letter(letter: char) -> Self {
        let known = Self::ALL.into_iter().find(|standing| standing.letter() == letter);
        known.unwrap_or(Self::Missing)
    }
}

impl Entry {
    fn of(in_force: &InForce, at: Millis) -> Self {
        let since = |moment: Millis| seconds(moment, at).round() as u64;
        let numbers = |zone: &Zone| {
            let milli = zone.milli.round() as u64;
            let Zone { percent, standing, endpoints, measured, .. } = *zone;
            (
                percent,
                standing.letter(),
                endpoints,
                measured,
                milli,
                since(zone.at),
                since(zone.known),
            )
        };
        let zones = in_force.zones.iter();
        Self {
            z: zones.map(|(name, zone)| (Name::clone(name), numbers(zone))).collect(),
            r: (in_force.rewrites_left * 100.0).round() / 100.0,
            c: since(in_force.changed),
            p: since(in_force.stepped),
            d: since(in_force.decided),
        }
    }

    /// How far a zone is from 100 %, at most.
    fn distance(&self) -> u16 {
        self.z.values().map(|numbers| numbers.0.abs_diff(FULL_PERCENT)).max().unwrap_or_default()
    }

    /// Numbers that cannot be are taken for the nearest that can.
    fn read(self, at: Millis) -> InForce {
        let before = |seconds: u64| at.saturating_sub(seconds.saturating_mul(1000));
        let zone = |numbers: ZoneNumbers| {
            let (percent, letter, endpoints, measured, milli, figures, known) = numbers;
            Zone {
                percent: percent.clamp(LEAST_PERCENT, MOST_PERCENT),
                standing: Standing::of_letter(letter),
                endpoints,
                measured: measured.min(endpoints),
                milli: milli as f64,
                at: before(figures),
                known: before(known),
            }
        };
        InForce {
            zones: self.z.into_iter().map(|(name, numbers)| (name, zone(numbers))).collect(),
            rewrites_left: self.r.clamp(0.0, REWRITES_AT_ONCE),
            changed: before(self.c),
            stepped: before(self.p),
            decided: before(self.d),
        }
    }
}
