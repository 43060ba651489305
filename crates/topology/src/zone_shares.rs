//! Zone shares as text: the annotation `zonewise.dev/zone-shares` on slices.
//!
//! ```json
//! {"v":1,"endpoints":{"a":4,"b":2},"from":{"a":{"a":1},"b":{"a":0.25,"b":0.75}}}
//! ```
//!
//! Keys are sorted and numbers have at most six decimals, so that equal shares are equal bytes.
//! Shares of a zone are rounded so that they still add up to exactly 1. Endpoints without a zone
//! are written under the empty name.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::allocation::Allocation;
use crate::number::to_f64;
use crate::reason::Reason;
use crate::region::Situation;
use crate::settling::{Improvement, Quality};
use crate::traffic::shares_from;

/// All annotations of an object together may have 256 KiB; this leaves room for others.
pub const MAX_BYTES: usize = 240 * 1024;

/// How much more than intended a zone may send to an endpoint before proxies take its shares as stale.
pub const STALE: f64 = 1.2;

const VERSION: u32 = 1;

/// Millionths: what six decimals can tell apart.
const ONE: u32 = 1_000_000;

/// What each zone sends to each zone, and the endpoints this was computed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneShares {
    /// Endpoints per zone.
    pub endpoints: BTreeMap<String, u64>,
    /// Per sending zone, the share of each serving zone in millionths; they add up to a million.
    pub from: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Why a text is not a valid value of the annotation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Larger than an annotation may be.
    #[error("zone shares of {0} bytes: at most {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// Not JSON of the right shape.
    #[error("zone shares are not the expected JSON: {0}")]
    Shape(String),
    /// A version this program does not know.
    #[error("zone shares have version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// A share outside 0 to 1.
    #[error("zone shares from `{from}` to `{to}`: expected a number from 0 to 1")]
    Range {
        /// Sending zone.
        from: String,
        /// Serving zone.
        to: String,
    },
    /// Shares that do not add up.
    #[error("zone shares from `{from}` add up to {sum}, expected 1")]
    Sum {
        /// Sending zone.
        from: String,
        /// What they add up to.
        sum: String,
    },
    /// A share for a zone that has no endpoints.
    #[error("zone shares from `{from}` name zone `{to}`, which has no endpoints")]
    NoEndpoints {
        /// Sending zone.
        from: String,
        /// Serving zone.
        to: String,
    },
}

impl From<&DecodeError> for Reason {
    fn from(error: &DecodeError) -> Self {
        match error {
            DecodeError::TooLarge(bytes) => too_large(*bytes),
            _ => Self::SharesMalformed,
        }
    }
}

/// The most bytes of a share in the annotation, for each source that it can be of: the name with its
/// quotes, a colon, six decimals and a comma.
fn sizes(situation: &Situation) -> Vec<usize> {
    const SHARE: usize = 10;
    let names = situation.names.iter().map(|name| &**name).chain([""]);
    names.map(|name| serde_json::Value::from(name).to_string().len() + SHARE).collect()
}

/// The most bytes of what is around the shares: every name twice, with braces or a number of endpoints.
fn frame(sizes: &[usize]) -> usize {
    const OTHER: usize = 24;
    2 * (sizes.iter().sum::<usize>() + (sizes.len() + 1) * OTHER)
}

fn too_large(bytes: usize) -> Reason {
    Reason::SharesTooLarge { bytes: bytes as u64, limit: MAX_BYTES as u64 }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: u32,
    endpoints: BTreeMap<String, u64>,
    from: BTreeMap<String, BTreeMap<String, f64>>,
}

impl ZoneShares {
    /// Reads the shares off an allocation. A zone that reaches no endpoint by it uses all, as it does
    /// with hints and subsets. `None` without endpoints.
    pub fn of(situation: &Situation, allocation: &Allocation) -> Option<Self> {
        let region = situation.region();
        let all = region.present();
        let name = |source: usize| situation.names.get(source).map_or("", |name| name).to_owned();
        let present = (0..region.sources()).filter(|&source| region.endpoints_at(source) > 0);
        let even = |source| to_f64(region.endpoints_at(source)) / to_f64(all);
        let from = (0..region.zones.len()).map(|zone| {
            let parts = shares_from(allocation, zone)
                .unwrap_or_else(|| (0..region.sources()).map(even).collect());
            let named = in_millionths(&parts).into_iter().enumerate().filter(|(_, part)| *part > 0);
            (name(zone), named.map(|(source, part)| (name(source), part)).collect())
        });
        (all > 0).then(|| Self {
            endpoints: present.map(|source| (name(source), region.endpoints_at(source))).collect(),
            from: from.collect(),
        })
    }

    /// The annotation's value, or the reason why it cannot be one.
    pub fn encode(&self) -> Result<String, Reason> {
        let endpoints = object(&self.endpoints, |count| count.to_string());
        let from = object(&self.from, |parts| object(parts, |part| decimals(*part)));
        let text = format!("{{\"v\":{VERSION},\"endpoints\":{endpoints},\"from\":{from}}}");
        if text.len() > MAX_BYTES { Err(too_large(text.len())) } else { Ok(text) }
    }

    /// Whether the shares of a situation fit into an annotation, whatever they are. If not, it depends on
    /// how many there are, and on their digits.
    pub fn surely_fit(situation: &Situation) -> bool {
        let sizes = sizes(situation);
        let row: usize = sizes.iter().sum();
        frame(&sizes) + sizes.len() * row <= MAX_BYTES
    }

    /// The same for the shares of an allocation.
    pub fn surely_fit_of(situation: &Situation, allocation: &Allocation) -> bool {
        let sizes = sizes(situation);
        let all: usize = sizes.iter().sum();
        let group = |group: usize| -> usize {
            let sources = (0..allocation.sources()).filter(|&at| allocation.content(group, at) > 0);
            sources.map(|source| sizes[source]).sum()
        };
        let groups: Vec<usize> = (0..allocation.groups().len()).map(group).collect();
        let row = |zone: usize| -> usize {
            let used = groups.iter().enumerate();
            let used = used.filter(|(group, _)| allocation.weight(*group, zone) > 0.0);
            let size: usize = used.map(|(_, size)| size).sum();
            if size == 0 { all } else { size }
        };
        frame(&sizes) + (0..situation.zones.len()).map(row).sum::<usize>() <= MAX_BYTES
    }

    /// Whether these shares, computed for endpoints as they were, may stay in force although
    /// `fresh` would be right now: writing shares means writing every slice. They may while they
    /// load no endpoint much more and keep hardly less traffic in its zone. `weighted` is the situation with what
    /// endpoints count for; where all count the same, it is the situation itself.
    pub fn is_still_good(&self, fresh: &Self, situation: &Situation, weighted: &Situation) -> bool {
        const TOLERANCE: f64 = 0.05;
        let same_zones = self.from.keys().eq(fresh.from.keys())
            && self.endpoints.keys().eq(fresh.endpoints.keys());
        let improvement =
            Improvement { now: self.quality(weighted), fresh: fresh.quality(weighted) };
        same_zones && self.fits(situation) && improvement.gain() <= TOLERANCE
    }

    /// Whether proxies in every zone still apply these shares: none sends an endpoint much more than
    /// was intended when the shares were computed.
    fn fits(&self, situation: &Situation) -> bool {
        let all_then = self.endpoints.values().fold(0.0, |sum, count| sum + to_f64(*count));
        let all_now = to_f64(situation.region().present());
        let now = |zone: &str| match situation.names.binary_search_by(|name| (**name).cmp(zone)) {
            Ok(index) => situation.zones[index].endpoints,
            Err(_) => situation.unplaced,
        };
        let grown = |zone: &String| {
            let then = self.endpoints.get(zone).map_or(0.0, |count| to_f64(*count));
            (all_now / to_f64(now(zone))) / (all_then / then)
        };
        // Proxies compute the same in another order: what rounding could decide is not kept.
        const ROUNDING: f64 = 1e-9;
        let targets = self.from.values().flat_map(|parts| parts.iter());
        targets.filter(|(_, part)| **part > 0).all(|(zone, _)| grown(zone) <= STALE - ROUNDING)
    }

    /// How well these shares route the traffic of a situation, which may be another one than they
    /// were computed for.
    pub fn quality(&self, situation: &Situation) -> Quality {
        let all = situation.region().present() as f64;
        let part = |from: &str, to: &str| {
            let parts = self.from.get(from).and_then(|parts| parts.get(to));
            f64::from(parts.copied().unwrap_or(0)) / f64::from(ONE)
        };
        let zones = || situation.names.iter().zip(&situation.zones);
        let load = |to: &str, endpoints: u64| {
            let sent: f64 = zones().map(|(from, zone)| zone.share * part(from, to)).sum();
            if sent == 0.0 { 0.0 } else { sent / (endpoints as f64 / all) }
        };
        let unplaced = load("", situation.unplaced);
        let highest = zones().map(|(to, zone)| load(to, zone.endpoints)).fold(unplaced, f64::max);
        Quality {
            in_zone: zones().map(|(name, zone)| zone.share * part(name, name)).sum(),
            max_overload: (highest - 1.0).max(0.0),
        }
    }

    /// Reads the annotation's value.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        if text.len() > MAX_BYTES {
            return Err(DecodeError::TooLarge(text.len()));
        }
        let wire: Wire =
            serde_json::from_str(text).map_err(|error| DecodeError::Shape(error.to_string()))?;
        if wire.v != VERSION {
            return Err(DecodeError::Version(wire.v));
        }
        let endpoints = wire.endpoints;
        let from = wire
            .from
            .into_iter()
            .map(|(zone, parts)| Ok((zone.clone(), check(&zone, parts, &endpoints)?)))
            .collect::<Result<_, _>>()?;
        Ok(Self { endpoints, from })
    }
}

/// A JSON object in the order of its keys.
fn object<V>(map: &BTreeMap<String, V>, value: impl Fn(&V) -> String) -> String {
    let members: Vec<String> = map
        .iter()
        .map(|(key, member)| format!("{}:{}", serde_json::Value::from(key.as_str()), value(member)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Millionths as a decimal number without trailing zeros.
fn decimals(part: u32) -> String {
    let text = format!("{}.{:06}", part / ONE, part % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn check(
    from: &str,
    parts: BTreeMap<String, f64>,
    endpoints: &BTreeMap<String, u64>,
) -> Result<BTreeMap<String, u32>, DecodeError> {
    let mut checked = BTreeMap::new();
    for (to, part) in parts {
        let from = from.to_owned();
        if !(0.0..=1.0).contains(&part) {
            return Err(DecodeError::Range { from, to });
        }
        if part > 0.0 && endpoints.get(&to).is_none_or(|&count| count == 0) {
            return Err(DecodeError::NoEndpoints { from, to });
        }
        checked.insert(to, (part * f64::from(ONE)).round() as u32);
    }
    // Thousands of zones, each with everything, would wrap a smaller number round to ONE.
    let sum: u64 = checked.values().map(|part| u64::from(*part)).sum();
    if sum == u64::from(ONE) {
        Ok(checked)
    } else {
        let sum = (to_f64(sum) / f64::from(ONE)).to_string();
        Err(DecodeError::Sum { from: from.to_owned(), sum })
    }
}

/// Rounds shares that add up to 1 to millionths that add up to a million: the largest remainders are rounded up.
pub fn in_millionths(shares: &[f64]) -> Vec<u32> {
    let exact = |index: &usize| shares[*index] * f64::from(ONE);
    let mut parts: Vec<u32> = (0..shares.len()).map(|index| exact(&index) as u32).collect();
    let missing = ONE.saturating_sub(parts.iter().sum()) as usize;
    let mut order: Vec<usize> = (0..shares.len()).filter(|&index| shares[index] > 0.0).collect();
    order.sort_by(|a, b| exact(b).fract().total_cmp(&exact(a).fract()));
    for &index in order.iter().cycle().take(if order.is_empty() { 0 } else { missing }) {
        parts[index] += 1;
    }
    parts
}
