//! Numbers in a range, handed out in turn.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// Why a certain number is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Taken,
    Outside,
}

/// First and last number, and those that are taken.
#[derive(Debug)]
pub(super) struct Pool {
    first: u128,
    last: u128,
    /// Below it, numbers are handed out only when none is left above.
    reserved: u128,
    next: u128,
    taken: BTreeSet<u128>,
}

impl Pool {
    fn new(first: u128, last: u128, reserved: u128) -> Self {
        let start = first.saturating_add(reserved);
        Self { first, last, reserved: start, next: start, taken: BTreeSet::new() }
    }

    /// All addresses but the network's own and, in the older family, the broadcast address.
    pub(super) fn of_network((address, length): (IpAddr, u8)) -> Self {
        let (network, width) = match address {
            IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
            IpAddr::V6(six) => (six.to_bits(), 128),
        };
        let host = 1_u128.checked_shl(width - u32::from(length)).map_or(u128::MAX, |size| size - 1);
        let end = if width == 32 { 1 } else { 0 };
        let count = host.saturating_sub(end);
        let reserved = if count <= 16 { 0 } else { (count / 16).clamp(16, 256) };
        Self::new((network & !host) + 1, (network | host).saturating_sub(end), reserved)
    }

    pub(super) fn of_node_ports() -> Self {
        Self::new(30000, 32767, 86)
    }

    pub(super) fn take(&mut self, number: u128) -> Result<(), Refusal> {
        if !(self.first..=self.last).contains(&number) {
            return Err(Refusal::Outside);
        }
        if self.taken.insert(number) { Ok(()) } else { Err(Refusal::Taken) }
    }

    pub(super) fn give_back(&mut self, number: u128) {
        self.taken.remove(&number);
    }

    /// The next free number: upwards from the last one, then round, then from the reserved part.
    pub(super) fn next(&mut self) -> Option<u128> {
        let found = self
            .free(self.next, self.last)
            .or_else(|| self.free(self.reserved, self.last))
            .or_else(|| self.free(self.first, self.last))?;
        self.taken.insert(found);
        self.next = found.saturating_add(1);
        Some(found)
    }

    /// The first number of this part that is not taken.
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
