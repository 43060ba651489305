//! Zones that give and zones that receive, as the evaluation tool orders them.
//!
//! Shared by `local` and `local-shared`. Group `z` of the allocation is the local group of zone
//! `z`; its live size decides the order, at the moment of the comparison.

use crate::allocation::Allocation;
use crate::number::to_f64;
use crate::queue;
use crate::reason::Reason;
use crate::region::Region;

/// Overload at which a zone counts as overloaded (inclusive).
pub(super) const OVERLOAD_THRESHOLD: f64 = 0.5;

/// The refusal of a region that cannot be balanced, with its most loaded zone.
pub(super) fn overload_too_high(region: &Region<'_>, limit: f64) -> Reason {
    let load = |&zone: &usize| region.expected(zone) / region.zones[zone].endpoints as f64;
    let zone = (0..region.zones.len())
        .filter(|&zone| region.zones[zone].share > 0.0)
        .max_by(|a, b| load(a).total_cmp(&load(b)))
        .unwrap_or(0);
    Reason::OverloadTooHigh {
        zone: zone as u32,
        expected: region.expected(zone),
        assigned: region.zones[zone].endpoints,
        limit,
    }
}

/// Live sizes and orders over the local groups.
pub(super) struct Pools<'a> {
    region: &'a Region<'a>,
    pub(super) out: &'a mut Allocation,
    /// `T × r` per zone.
    pub(super) expected: Vec<f64>,
    pub(super) donors: Vec<u32>,
}

/// Which order a queue follows.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Least loaded after giving one away goes first.
    Donors,
    /// Most loaded goes first, empty zones foremost.
    Receivers,
}

impl<'a> Pools<'a> {
    /// Starts from the local groups that `out` holds.
    pub(super) fn new(region: &'a Region<'a>, out: &'a mut Allocation) -> Self {
        let zones = region.zones.len();
        let scratch = &mut out.scratch;
        let mut pools = Self {
            region,
            expected: std::mem::take(&mut scratch.expected),
            donors: std::mem::take(&mut scratch.donors),
            out,
        };
        pools.expected.clear();
        pools.expected.extend((0..zones).map(|zone| region.expected(zone)));
        pools.donors.clear();
        pools
    }

    /// Gives the buffers back.
    pub(super) fn finish(self) -> &'a mut Allocation {
        let scratch = &mut self.out.scratch;
        scratch.expected = self.expected;
        scratch.donors = self.donors;
        self.out
    }

    /// Endpoints in the local group of a zone.
    #[inline]
    pub(super) fn size(&self, zone: usize) -> u64 {
        self.out.groups()[zone].size
    }

    /// Endpoints above (or, negative, below) what the zone should have.
    #[inline]
    pub(super) fn surplus(&self, zone: usize) -> f64 {
        to_f64(self.size(zone)) - self.expected[zone]
    }

    /// Whether `zone` would be overloaded with `size` endpoints.
    #[inline]
    fn overloaded_with(&self, zone: usize, size: u64) -> bool {
        self.expected[zone] / to_f64(size) - 1.0 >= OVERLOAD_THRESHOLD
    }

    /// Whether `zone` is overloaded.
    #[inline]
    pub(super) fn overloaded(&self, zone: usize) -> bool {
        self.overloaded_with(zone, self.size(zone))
    }

    /// Whether `zone` can give an endpoint without becoming overloaded.
    #[inline]
    pub(super) fn can_give(&self, zone: usize) -> bool {
        let size = self.size(zone);
        size >= 2 && !self.overloaded_with(zone, size - 1)
    }

    /// Whether so many endpoints together carry the expected load of `zones`.
    pub(super) fn enough(&self, zones: &[u32], endpoints: u64) -> bool {
        let load: f64 =
            zones.iter().map(|&zone| self.expected[zone as usize] / endpoints as f64).sum();
        load - 1.0 < OVERLOAD_THRESHOLD
    }

    /// Moves endpoints of zone `from` out of its local group into a group.
    #[inline]
    pub(super) fn give(&mut self, from: usize, to_group: usize, endpoints: u64) {
        self.lose(from, endpoints);
        self.gain(to_group, from, endpoints);
    }

    /// Takes own endpoints out of the local group of `zone`.
    #[inline]
    pub(super) fn lose(&mut self, zone: usize, endpoints: u64) {
        self.out.take(zone, zone, endpoints);
    }

    /// Puts endpoints of zone `from` into a group.
    #[inline]
    pub(super) fn gain(&mut self, group: usize, from: usize, endpoints: u64) {
        self.out.put(group, from, endpoints);
    }

    /// Puts `zone` back among the donors if it can still give.
    #[inline]
    pub(super) fn rejoin_donors(&mut self, zone: u32) {
        if self.can_give(zone as usize) {
            let mut donors = std::mem::take(&mut self.donors);
            self.push(&mut donors, zone, Order::Donors);
            self.donors = donors;
        }
    }

    /// The first donor.
    #[inline]
    pub(super) fn pop_donor(&mut self) -> Option<usize> {
        let mut donors = std::mem::take(&mut self.donors);
        let first = self.pop(&mut donors, Order::Donors);
        self.donors = donors;
        first
    }

    pub(super) fn build(&self, heap: &mut [u32], order: Order) {
        queue::build(heap, |a, b| self.before(order, a, b));
    }

    pub(super) fn push(&self, heap: &mut Vec<u32>, zone: u32, order: Order) {
        queue::push(heap, zone, |a, b| self.before(order, a, b));
    }

    pub(super) fn pop(&self, heap: &mut Vec<u32>, order: Order) -> Option<usize> {
        queue::pop(heap, |a, b| self.before(order, a, b)).map(|zone| zone as usize)
    }

    #[inline]
    fn before(&self, order: Order, a: u32, b: u32) -> bool {
        let (a, b) = (a as usize, b as usize);
        let (size_a, size_b) = (self.size(a), self.size(b));
        let (share_a, share_b) = (self.region.zones[a].share, self.region.zones[b].share);
        match order {
            Order::Donors => {
                let left = |size: u64| to_f64(size) - 1.0;
                size_a != 0 && (size_b == 0 || share_a / left(size_a) < share_b / left(size_b))
            }
            Order::Receivers => {
                let load = |share: f64, size: u64| share / to_f64(size);
                size_b != 0 && (size_a == 0 || load(share_b, size_b) < load(share_a, size_a))
            }
        }
    }
}
