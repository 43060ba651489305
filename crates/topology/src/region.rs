//! What a heuristic looks at: zones in the byte order of their names, each with its part of the
//! traffic and its endpoints.
//!
//! ```text
//!   Nodes ──► Capacity ─┐
//!                       ├─► Situation (owned, named) ──► Region (borrowed, numbers only)
//!   endpoints per zone ─┘
//! ```
//!
//! Heuristics see numbers alone, so that the simulator can run tens of millions of regions without
//! touching a string.

use std::collections::BTreeMap;

use crate::capacity::Capacity;
use crate::number::to_f64;

/// One zone as a heuristic sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Zone {
    /// Part of all traffic that starts in this zone, 0 to 1.
    pub share: f64,
    /// Nodes behind that share.
    pub nodes: u64,
    /// Ready endpoints located in this zone.
    pub endpoints: u64,
}

/// The zones of one Service, as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Zones in the byte order of their names.
    pub zones: &'a [Zone],
    /// All endpoints that count: those in zones, those without a zone and (in the evaluation
    /// tool's format only) those of a zone whose name came again later.
    pub total: u64,
    /// Endpoints that are in no known zone.
    pub unplaced: u64,
    /// Ready worker nodes whose zone or CPU is unknown, where that makes capacity unusable.
    pub unknown_nodes: u64,
}

impl<'a> Region<'a> {
    /// A region in which every endpoint has a zone and every node is known.
    pub fn of(zones: &'a [Zone]) -> Self {
        let total = zones.iter().map(|zone| zone.endpoints).sum();
        Self { zones, total, unplaced: 0, unknown_nodes: 0 }
    }

    /// The endpoints zone `zone` would need to carry its share: `T × r`, with the share as rounded.
    #[inline]
    pub fn expected(&self, zone: usize) -> f64 {
        to_f64(self.total) * self.zones[zone].share
    }

    /// Rows of an allocation's content: one per zone, and one more for endpoints without a zone.
    #[inline]
    pub fn sources(&self) -> usize {
        self.zones.len() + usize::from(self.unplaced > 0)
    }

    /// Endpoints located at a source.
    #[inline]
    pub fn endpoints_at(&self, source: usize) -> u64 {
        self.zones.get(source).map_or(self.unplaced, |zone| zone.endpoints)
    }

    /// Endpoints that exist. Equal to `total`, but for zones whose name came again.
    #[inline]
    pub fn present(&self) -> u64 {
        self.zones.iter().map(|zone| zone.endpoints).sum::<u64>() + self.unplaced
    }

    /// How many zones send traffic.
    pub(crate) fn consuming_zones(&self) -> usize {
        self.zones.iter().filter(|zone| zone.share > 0.0).count()
    }

    /// The largest part of the traffic any router can keep in its zone while no endpoint gets more
    /// than `1 + max_overload` times its fair share: `Σ min(r, (1+θ)·e/T)`.
    pub fn best_in_zone(&self, max_overload: f64) -> f64 {
        let all = to_f64(self.present());
        let fair = |zone: &Zone| (1.0 + max_overload) * to_f64(zone.endpoints) / all;
        if all == 0.0 {
            0.0
        } else {
            // The sum of nothing is -0.
            self.zones.iter().map(|zone| zone.share.min(fair(zone))).sum::<f64>() + 0.0
        }
    }
}

/// A region with names, owned: what the controller, `plan` and `explain` build.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// Zone names in byte order.
    pub names: Vec<Box<str>>,
    /// The zones, in the order of `names`.
    pub zones: Vec<Zone>,
    /// Endpoints without a zone.
    pub unplaced: u64,
    /// See [`Region::unknown_nodes`].
    pub unknown_nodes: u64,
}

impl Situation {
    /// Joins what the nodes can send with where the endpoints are. A zone that has only endpoints
    /// is kept with a share of zero.
    pub fn new(capacity: &Capacity, endpoints: &BTreeMap<Box<str>, u64>, unplaced: u64) -> Self {
        Self::sorted(capacity, endpoints.iter().map(|(name, count)| (&**name, *count)), unplaced)
    }

    /// The same for endpoints per zone in the byte order of the zones' names, each once. The zones of a
    /// capacity have that order too.
    pub fn sorted<'a>(
        capacity: &Capacity,
        endpoints: impl Iterator<Item = (&'a str, u64)>,
        unplaced: u64,
    ) -> Self {
        let mut endpoints = endpoints.peekable();
        let (mut names, mut zones) = (Vec::new(), Vec::new());
        let mut add = |name: &str, zone: Zone| {
            names.push(Box::from(name));
            zones.push(zone);
        };
        for zone in &capacity.zones {
            while let Some((name, count)) = endpoints.next_if(|(name, _)| **name < *zone.name) {
                add(name, Zone { endpoints: count, ..Zone::default() });
            }
            let here = endpoints.next_if(|(name, _)| **name == *zone.name);
            let endpoints = here.map_or(0, |(_, count)| count);
            add(&zone.name, Zone { share: zone.share, nodes: zone.nodes, endpoints });
        }
        for (name, count) in endpoints {
            add(name, Zone { endpoints: count, ..Zone::default() });
        }
        Self { names, zones, unplaced, unknown_nodes: capacity.unusable_nodes() }
    }

    /// The numbers alone.
    pub fn region(&self) -> Region<'_> {
        let placed: u64 = self.zones.iter().map(|zone| zone.endpoints).sum();
        Region {
            zones: &self.zones,
            total: placed + self.unplaced,
            unplaced: self.unplaced,
            unknown_nodes: self.unknown_nodes,
        }
    }
}
