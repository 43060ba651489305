//! A range of numbers that are allocated in turn.

use std::collections::BTreeSet;

use zonewise_common::cidr::Cidr;

use super::bits;

/// Why a number cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    Taken,
    Outside,
}

/// The numbers from first to last, and those that are taken.
#[derive(Debug)]
pub(super) struct Pool {
    first: u128,
    last: u128,
    /// Numbers below this one are allocated only when none is left above.
    dynamic_start: u128,
    next: u128,
    taken: BTreeSet<u128>,
}

impl Pool {
    fn new(first: u128, last: u128, reserved: u128) -> Self {
        let start = first.saturating_add(reserved);
        Self { first, last, dynamic_start: start, next: start, taken: BTreeSet::new() }
    }

    /// All addresses of a network but its own and, for IPv4, the broadcast address. A sixteenth of
    /// the range, from 16 to 256 addresses, is not allocated dynamically: `calculateRangeOffset` of
    /// kube-apiserver (pkg/registry/core/service/ipallocator).
    pub(super) fn of_network(network: Cidr) -> Self {
        let (first, last) = (bits(network.address()), bits(network.last()));
        let broadcast = u128::from(network.is_ipv4());
        let count = (last - first).saturating_sub(broadcast);
        let reserved = if count <= 16 { 0 } else { (count / 16).clamp(16, 256) };
        Self::new(first + 1, last.saturating_sub(broadcast), reserved)
    }

    /// The default of kube-apiserver's `--service-node-port-range`. Its first 86 ports are not
    /// allocated dynamically (pkg/registry/core/service/portallocator).
    pub(super) fn of_node_ports() -> Self {
        Self::new(30000, 32767, 86)
    }

    pub(super) fn take(&mut self, number: u128) -> Result<(), Unavailable> {
        if !(self.first..=self.last).contains(&number) {
            return Err(Unavailable::Outside);
        }
        if self.taken.insert(number) { Ok(()) } else { Err(Unavailable::Taken) }
    }

    pub(super) fn release(&mut self, number: u128) {
        self.taken.remove(&number);
    }

    /// The next free number: upwards from the last one, then from the start of the dynamic part,
    /// then from the reserved part.
    pub(super) fn next(&mut self) -> Option<u128> {
        let found = self
            .free(self.next, self.last)
            .or_else(|| self.free(self.dynamic_start, self.last))
            .or_else(|| self.free(self.first, self.last))?;
        self.taken.insert(found);
        self.next = found.saturating_add(1);
        Some(found)
    }

    /// The first number of a part of the range that is not taken.
    fn free(&self, from: u128, to: u128) -> Option<u128> {
        if from > to {
            return None;
        }
        let mut free = from;
        for taken in self.taken.range(from..=to) {
            if *taken != free {
                break;
            }
            free += 1;
        }
        (free <= to).then_some(free)
    }
}
