//! Zones that give and zones that receive, as the evaluation tool orders them.
//!
//! Shared by `local` and `local-shared`. Group `z` of the allocation is the local group of zone
//! `z`; its live size decides the order, at the moment of the comparison.

use crate::allocation::Allocation;
use crate::number::{to_f64, to_u64};
use crate::queue;
use crate::region::Region;
use crate::threshold::OVERLOAD_THRESHOLD;

/// Live sizes and orders over the local groups.
pub(super) struct Pools<'a> {
    region: &'a Region<'a>,
    pub(super) out: &'a mut Allocation,
    /// `T × r` per zone.
    pub(super) expected: Vec<f64>,
    /// The fewest endpoints with which a zone is not overloaded.
    least: Vec<u64>,
}

/// A donor that takes turns with another.
struct Turn {
    zone: usize,
    share: f64,
    /// Endpoints it would have after giving one more.
    left: f64,
    spare: u64,
    given: u64,
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
            least: std::mem::take(&mut scratch.least),
            out,
        };
        pools.expected.clear();
        pools.expected.extend((0..zones).map(|zone| region.expected(zone)));
        pools.least.clear();
        pools.least.extend(pools.expected.iter().map(|&expected| least(expected)));
        pools
    }

    /// Gives the buffers back.
    pub(super) fn finish(self) -> &'a mut Allocation {
        let scratch = &mut self.out.scratch;
        scratch.expected = self.expected;
        scratch.least = self.least;
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

    /// Whether `zone` is overloaded.
    #[inline]
    pub(super) fn overloaded(&self, zone: usize) -> bool {
        self.size(zone) < self.least[zone]
    }

    /// Whether `zone` can give an endpoint without becoming overloaded.
    #[inline]
    pub(super) fn can_give(&self, zone: usize) -> bool {
        self.spare(zone) > 0
    }

    /// Whether so many endpoints together carry the expected load of `zones`.
    pub(super) fn enough(&self, zones: &[u32], endpoints: u64) -> bool {
        let load: f64 =
            zones.iter().map(|&zone| self.expected[zone as usize] / endpoints as f64).sum();
        load - 1.0 < OVERLOAD_THRESHOLD
    }

    /// The zones that can give, in order.
    pub(super) fn donors(&mut self) -> Vec<u32> {
        let mut donors = std::mem::take(&mut self.out.scratch.donors);
        donors.clear();
        donors.extend((0..self.expected.len() as u32).filter(|&zone| self.can_give(zone as usize)));
        self.build(&mut donors, Order::Donors);
        donors
    }

    /// How many endpoints a group must get for its zone not to be overloaded.
    #[inline]
    pub(super) fn missing(&self, zone: usize) -> u64 {
        self.least[zone].saturating_sub(self.size(zone))
    }

    /// Moves endpoints of the first donor into a group, and of a second that takes turns with it,
    /// as far as that needs no queue: all that are wanted from one or two donors, else one.
    /// Returns how many; 0 if no zone can give.
    #[inline]
    pub(super) fn give_first(&mut self, donors: &mut Vec<u32>, group: usize, wanted: u64) -> u64 {
        let Some(donor) = self.pop(donors, Order::Donors) else {
            return 0;
        };
        let given = match donors[..] {
            [] if donor == group => wanted,
            [] => wanted.min(self.spare(donor)),
            [rival] if donor != group && rival as usize != group => {
                return self.take_turns(donors, donor, rival as usize, group, wanted);
            }
            _ => 1,
        };
        self.give(donor, group, given);
        self.rejoin(donors, donor);
        given
    }

    /// Two donors, one endpoint at a time. In a queue of two, the one that gave stays first only
    /// if it still goes before the other.
    #[inline]
    fn take_turns(
        &mut self,
        donors: &mut Vec<u32>,
        first: usize,
        second: usize,
        group: usize,
        wanted: u64,
    ) -> u64 {
        let turn = |zone: usize| Turn {
            zone,
            share: self.region.zones[zone].share,
            left: to_f64(self.size(zone)) - 1.0,
            spare: self.spare(zone),
            given: 0,
        };
        let (mut donor, mut rival) = (turn(first), turn(second));
        let mut left = wanted;
        loop {
            donor.given += 1;
            donor.left -= 1.0;
            left -= 1;
            if left == 0 || donor.given == donor.spare {
                break;
            }
            if !less(donor.share, donor.left, rival.share, rival.left) {
                std::mem::swap(&mut donor, &mut rival);
            }
        }
        self.give(donor.zone, group, donor.given);
        self.give(rival.zone, group, rival.given);
        donors[0] = rival.zone as u32;
        self.rejoin(donors, donor.zone);
        wanted - left
    }

    /// How many endpoints a donor can give.
    #[inline]
    fn spare(&self, zone: usize) -> u64 {
        self.size(zone).saturating_sub(self.least[zone].max(1))
    }

    /// Moves endpoints of zone `from` out of its local group into a group.
    #[inline]
    pub(super) fn give(&mut self, from: usize, group: usize, endpoints: u64) {
        self.out.put(group, from, endpoints);
        self.out.take(from, from, endpoints);
    }

    /// Puts `zone` back among the donors if it can still give.
    #[inline]
    pub(super) fn rejoin(&self, donors: &mut Vec<u32>, zone: usize) {
        if self.can_give(zone) {
            self.push(donors, zone, Order::Donors);
        }
    }

    pub(super) fn build(&self, heap: &mut [u32], order: Order) {
        queue::build(heap, |a, b| self.before(order, a, b));
    }

    pub(super) fn push(&self, heap: &mut Vec<u32>, zone: usize, order: Order) {
        queue::push(heap, zone as u32, |a, b| self.before(order, a, b));
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
                size_a != 0 && (size_b == 0 || less(share_a, left(size_a), share_b, left(size_b)))
            }
            Order::Receivers => {
                size_b != 0
                    && (size_a == 0 || less(share_b, to_f64(size_b), share_a, to_f64(size_a)))
            }
        }
    }
}

/// The fewest endpoints with which a zone that expects so many is not overloaded.
#[inline]
fn least(expected: f64) -> u64 {
    let overloaded = |size: u64| expected / to_f64(size) - 1.0 >= OVERLOAD_THRESHOLD;
    // The exact predicate decides; the estimate only saves asking it for every size.
    let mut size = to_u64(expected / (1.0 + OVERLOAD_THRESHOLD));
    while size > 0 && !overloaded(size - 1) {
        size -= 1;
    }
    while overloaded(size) {
        size += 1;
    }
    size
}

/// `a / x < b / y`, as doubles compare. Divides only where the products are too close to tell.
#[inline]
fn less(a: f64, x: f64, b: f64, y: f64) -> bool {
    let (left, right) = (a * y, b * x);
    if (left - right).abs() > 1e-12 * (left + right) { left < right } else { a / x < b / y }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a6_least_is_the_edge_of_the_overload_predicate(whole in 0u64..5000, part in 0.0..1.0f64) {
            for expected in [whole as f64, whole as f64 + part, whole as f64 * 1.5, whole as f64 / 3.0 * 1.5] {
                let overloaded = |size: u64| expected / size as f64 - 1.0 >= OVERLOAD_THRESHOLD;
                let least = least(expected);
                prop_assert!(!overloaded(least));
                prop_assert!(least == 0 || overloaded(least - 1));
            }
        }

        #[test]
        fn comparing_products_never_differs_from_dividing(
            a in 0u32..20, n in 1u32..40, x in 0u32..50, b in 0u32..20, m in 1u32..40, y in 0u32..50,
        ) {
            let (a, b) = (f64::from(a) / f64::from(n), f64::from(b) / f64::from(m));
            let (x, y) = (f64::from(x), f64::from(y));
            prop_assert_eq!(less(a, x, b, y), a / x < b / y);
        }
    }
}
