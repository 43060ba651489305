//! Zone shares: how much of its traffic this node's zone sends to each zone.
//!
//! The controller writes them on every slice of the Service (annotation
//! `zonewise.dev/zone-shares`), together with the number of endpoints per zone that they were
//! computed for. They are used if all slices of the address family carry the same valid text, the
//! text names this node's zone, and it still fits the endpoints that are ready now.
//!
//! ```text
//!  share  s_t   part of this zone's traffic that goes to zone t, from the annotation
//!  then   n_t   endpoints in zone t, N in all, from the annotation
//!  now    n'_t  ready endpoints of this port in zone t, N' in all
//!
//!  s'_t = s_t / Σ s_u over zones u with n'_u > 0          zones without endpoints drop out
//!  an endpoint in zone t gets s'_t / n'_t; an equal share for all would be 1 / N':
//!
//!  load now  = s'_t · N' / n'_t
//!  load then = s_t · N / n_t
//!  stale if load now > 1.2 · load then in any zone t with s'_t > 0
//! ```
//!
//! The load of an endpoint is the sum of what every zone sends to it. If no zone sends it more than
//! 1.2 times what the controller intended, its load is at most 1.2 times what the controller
//! allowed. Each node can therefore check for itself, without knowing what other zones do.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_topology::reason::Reason;
pub use zonewise_topology::zone_shares::{DecodeError, STALE, ZoneShares};

use crate::reader::ObjectReader;
use crate::slice::RoutedSlice;
use crate::target::Target;
use crate::zones::ZoneId;

/// The sum of all weights: they are in millionths.
const ONE: u32 = 1_000_000;

/// Parses the value of the annotation.
///
/// # Errors
/// If the text is not valid.
pub fn parse(text: &str) -> Result<ZoneShares, DecodeError> {
    ZoneShares::decode(text)
}

/// The endpoints that get traffic, with their weights and the reason.
pub(crate) struct Weighted {
    pub(crate) targets: Vec<Target>,
    pub(crate) weights: Box<[u32]>,
    pub(crate) reason: Reason,
}

/// Applies zone shares to the ready endpoints of a port. `None` if no slice carries the annotation.
pub(crate) fn apply(
    reader: &ObjectReader,
    slices: &[&RoutedSlice],
    ready: &[Target],
) -> Option<Result<Weighted, Reason>> {
    slices.iter().any(|slice| slice.zone_shares.is_some()).then(|| {
        let shares = agreed(reader, slices)?;
        let zone = reader.location().zone.as_deref().ok_or(Reason::NodeWithoutZone)?;
        let wanted = shares.from.get(zone).ok_or(Reason::SharesWithoutZone)?;
        let zones = Zones::count(reader, ready, wanted);
        zones.check(&shares)?;
        Ok(zones.weigh(zone, ready))
    })
}

/// The shares, if all slices carry the same ones.
fn agreed(reader: &ObjectReader, slices: &[&RoutedSlice]) -> Result<Arc<ZoneShares>, Reason> {
    let (first, others) = slices.split_first().ok_or(Reason::SharesDisagree)?;
    let text = first.zone_shares.as_ref().ok_or(Reason::SharesDisagree)?;
    let same = |slice: &&RoutedSlice| slice.zone_shares.as_ref().is_some_and(|other| other == text);
    if others.iter().all(same) { reader.shares(text) } else { Err(Reason::SharesDisagree) }
}

/// The zones that have ready endpoints.
struct Zones {
    known: BTreeMap<ZoneId, Zone>,
    /// The sum of the shares of these zones, in millionths.
    sum: u32,
    endpoints: usize,
}

struct Zone {
    name: Arc<str>,
    endpoints: usize,
    share: u32,
}

impl Zones {
    fn count(reader: &ObjectReader, ready: &[Target], wanted: &BTreeMap<String, u32>) -> Self {
        let mut known = BTreeMap::<ZoneId, Zone>::new();
        for target in ready {
            let zone = known.entry(target.zone).or_insert_with(|| {
                let name = reader.zone_name(target.zone).unwrap_or_default();
                let share = wanted.get(&*name).copied().unwrap_or(0);
                Zone { name, endpoints: 0, share }
            });
            zone.endpoints += 1;
        }
        let sum = known.values().map(|zone| zone.share).sum();
        Self { known, sum, endpoints: ready.len() }
    }

    /// The part of this node's traffic that goes to a zone, now that zones without ready endpoints
    /// have dropped out.
    fn part(&self, zone: &Zone) -> f64 {
        f64::from(zone.share) / f64::from(self.sum.max(1))
    }

    /// Whether the shares still fit the ready endpoints; the module's documentation has the
    /// arithmetic.
    fn check(&self, shares: &ZoneShares) -> Result<(), Reason> {
        if self.sum == 0 {
            return Err(Reason::SharesStale { now: 0.0, then: 0.0 });
        }
        let all_then = shares.endpoints.values().fold(0.0, |sum, count| sum + *count as f64);
        for zone in self.known.values().filter(|zone| zone.share > 0) {
            let then = shares.endpoints.get(&*zone.name).map_or(0.0, |count| *count as f64);
            let intended = f64::from(zone.share) / f64::from(ONE) * all_then / then;
            let now = self.part(zone) * self.endpoints as f64 / zone.endpoints as f64;
            if now > intended * STALE {
                return Err(Reason::SharesStale { now, then: intended });
            }
        }
        Ok(())
    }

    fn weigh(&self, mine: &str, ready: &[Target]) -> Weighted {
        let part = |target: &Target| {
            let zone = self.known.get(&target.zone);
            zone.map_or(0.0, |zone| self.part(zone) / zone.endpoints as f64)
        };
        let targets: Vec<Target> =
            ready.iter().copied().filter(|target| part(target) > 0.0).collect();
        let parts: Vec<f64> = targets.iter().map(part).collect();
        let own = self.known.values().find(|zone| *zone.name == *mine);
        let in_zone = own.map_or(0.0, |zone| self.part(zone));
        let endpoints = targets.len() as u64;
        let reason = Reason::SharesApplied { in_zone, endpoints };
        Weighted { weights: millionths(&parts), targets, reason }
    }
}

/// Turns parts that add up to 1 into millionths that add up to a million. What rounding leaves over
/// is spread evenly, beginning with the first.
fn millionths(parts: &[f64]) -> Box<[u32]> {
    let mut weights: Box<[u32]> = parts.iter().map(|part| (part * f64::from(ONE)) as u32).collect();
    let missing = ONE.saturating_sub(weights.iter().sum()) as usize;
    let count = weights.len().max(1);
    for (index, weight) in weights.iter_mut().enumerate() {
        *weight += (missing / count + usize::from(index < missing % count)) as u32;
    }
    weights
}
