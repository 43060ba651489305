//! What people want to know of measured demand and no decision needs: stored beside the [state](crate::state), which keeps
//! its form.
//!
//! ```json
//! {"v":1,"at":1763430000000,"full":1,"left":0,
//!  "services":{"shop/cart":{"f":true},"shop/ingress":{"p":0.83},"shop/web":{"w":[12,612]}}}
//! ```
//!
//! | key | what |
//! |---|---|
//! | `at` | when it was written, in milliseconds since 1970 |
//! | `full` | Services that ask to be measured and are not, because too many do |
//! | `left` | Services whose figures do not fit into the state's text |
//! | `f` | the Service is one of those that are not measured |
//! | `p` | the part of its connections that one node reports, where that is more than one node counts for |
//! | `w` | its rewrites within the last hour: seconds from each until `at` |
//!
//! If it is longer than [`MAX_BYTES`], rewrites are left out first, then names.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use zonewise_common::name::Name;
use zonewise_topology::reason::Reason;

use crate::shares::Decision;
use crate::{Millis, seconds};

/// The most bytes of the text. With the largest state and what failing zones count for it stays below what a ConfigMap may
/// have.
pub const MAX_BYTES: usize = 48 << 10;

/// Rewrites are remembered for so many seconds.
pub const HOUR: f64 = 3600.0;

const VERSION: u32 = 1;

/// What is known of all Services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    services: BTreeMap<Name, Note>,
    /// Services that are not measured because too many ask for it.
    pub not_measured: usize,
    /// Services whose figures are not stored because they do not fit.
    pub not_stored: usize,
}

/// What is known of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// Whether it is not measured because too many Services ask for it.
    pub left_out: bool,
    /// The part of its connections that one node reports, where that is more than one node counts for.
    pub of_one_node: Option<f64>,
    /// When its shares were rewritten, within the last hour.
    pub rewrites: Vec<Millis>,
}

impl Note {
    /// How often the shares were rewritten in the hour before a time.
    pub fn rewrites_in_hour(&self, now: Millis) -> usize {
        self.rewrites.iter().filter(|at| seconds(**at, now) < HOUR).count()
    }
}

impl Notes {
    /// What is known of a Service; `None` if that is nothing.
    pub fn of(&self, service: &str) -> Option<&Note> {
        self.services.get(service)
    }

    /// Whether a Service may be one of those that are not measured, although its name did not fit.
    pub fn may_have_left_out(&self) -> bool {
        self.not_measured > self.services.values().filter(|note| note.left_out).count()
    }

    /// Takes what was decided now, and which Services were left out.
    pub fn decided(&mut self, decisions: &[(Name, Decision)], left_out: &[Name], now: Millis) {
        let before = std::mem::take(&mut self.services);
        for (name, decision) in decisions {
            let known = before.get(name).map(|note| note.rewrites.iter().copied());
            let mut rewrites: Vec<Millis> =
                known.into_iter().flatten().filter(|at| seconds(*at, now) < HOUR).collect();
            if decision.rewritten {
                rewrites.push(now);
            }
            let of_one_node = match decision.reason {
                Reason::DemandOfOneNode { part } => Some(part),
                _ => None,
            };
            if of_one_node.is_some() || !rewrites.is_empty() {
                let note = Note { left_out: false, of_one_node, rewrites };
                self.services.insert(Name::clone(name), note);
            }
        }
        let left = |name: &Name| (Name::clone(name), Note { left_out: true, ..Note::default() });
        self.services.extend(left_out.iter().map(left));
        self.not_measured = left_out.len();
    }

    /// The text.
    pub fn encode(&self, now: Millis) -> String {
        let entry = |note: &Note| Entry {
            f: note.left_out,
            p: note.of_one_node.map(|part| (part * 1e4).round() / 1e4),
            w: note.rewrites.iter().map(|at| seconds(*at, now).round() as u64).collect(),
        };
        let services = self.services.iter().map(|(name, note)| (&**name, entry(note)));
        let mut wire = Wire {
            v: VERSION,
            at: now,
            full: self.not_measured,
            left: self.not_stored,
            services: services.collect(),
        };
        let mut text = wire.text();
        if text.len() > MAX_BYTES {
            wire.services.values_mut().for_each(|entry| entry.w.clear());
            wire.services.retain(|_, entry| entry.f || entry.p.is_some());
            text = wire.text();
        }
        while text.len() > MAX_BYTES {
            // One in so many has to go, and a little more, because names differ in length.
            let part = MAX_BYTES as f64 / text.len() as f64 * 0.95;
            let kept = (wire.services.len() as f64 * part) as usize;
            let names: BTreeSet<&str> = wire.services.keys().copied().take(kept).collect();
            wire.services.retain(|name, _| names.contains(name));
            text = wire.text();
        }
        text
    }

    /// Reads the text; nothing is known if it cannot be read. No decision depends on it.
    pub fn decode(text: &str) -> Self {
        let Ok(wire) = serde_json::from_str::<Wire<'_>>(text) else { return Self::default() };
        let note = |entry: Entry| Note {
            left_out: entry.f,
            of_one_node: entry.p.map(|part| part.clamp(0.0, 1.0)),
            rewrites: entry
                .w
                .into_iter()
                .map(|seconds| wire.at.saturating_sub(seconds.saturating_mul(1000)))
                .collect(),
        };
        let services = wire.services.into_iter().map(|(name, entry)| (name.into(), note(entry)));
        Self { services: services.collect(), not_measured: wire.full, not_stored: wire.left }
    }
}

/// A later version may have more: this is read by people's programs, which may be older than the controller.
#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u32,
    at: Millis,
    #[serde(default)]
    full: usize,
    #[serde(default)]
    left: usize,
    #[serde(borrow, default)]
    services: BTreeMap<&'a str, Entry>,
}

impl Wire<'_> {
    fn text(&self) -> String {
        // Numbers and text: there is nothing that JSON cannot express.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    f: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    w: Vec<u64>,
}
