//! Counting by Service and zone: what each zone has of it.
//!
//! ```text
//!  a connection's first packet, after dnat ─► chosen ─► count ─ daddr ─► @endpoint-zone-chains ─► zone-a
//!                                                                                                    │
//!    counter zone-a                  all connections to the zone, whatever happens below  ◄──────────┤
//!    @connections-zone-a             original daddr . proto . port, each with a counter   ◄──────────┘
//! ```
//!
//! The kernel adds an element when the first connection to a Service's address is made, so that only what is used takes
//! memory, and no connection is lost between two readings. One set per zone, because `nft` has no key in which one part
//! is looked up in a map: the kernel would take it, but `nft list` aborts on such a rule. A set has room for so many elements;
//! where more are used, the zone's counter goes on, and what it has more than its elements belongs to Services that are
//! not counted by themselves. Anyone who may write slices can name many zones, so that only the sets of the first ones are large.

use zonewise_nft::Type::{Address, Port, Protocol};
use zonewise_nft::{Field, Rule, SetFlags, SetSpec, Statement};

use super::chains::rule;

/// How many addresses and ports of Services are counted by themselves in each of the first zones, in each family.
pub const COUNTED: u32 = 1 << 14;

/// How many zones of a family have that much room, and how much further ones have.
const LARGE_ZONES: usize = 16;
const COUNTED_BEYOND: u32 = 1 << 10;

/// How the names of the sets begin.
pub(crate) const PREFIX: &str = "connections-";

/// How the names of zones' counters and chains begin. No other chain's does.
pub(crate) const ZONE_PREFIX: &str = "zone-";

/// The kind of such a set.
pub(crate) const SPEC: SetSpec = SetSpec {
    name: "connections",
    key: &[Address, Protocol, Port],
    data: &[],
    flags: SetFlags { interval: false, dynamic: true, timeout: false, counter: true },
    size: Some(COUNTED),
    comment: "connections to one zone, by the address and port that they were made to",
};

/// The kind of a set where so many other zones of the family have one.
pub(crate) fn spec(others: usize) -> SetSpec {
    let size = if others < LARGE_ZONES { COUNTED } else { COUNTED_BEYOND };
    SetSpec { size: Some(size), ..SPEC }
}

/// The set of a zone, by the name of its counter and chain.
pub(crate) fn set(zone: &str) -> String {
    format!("{PREFIX}{zone}")
}

/// The rules of a zone's chain, by the name of its counter.
pub(crate) fn rules(zone: &str) -> Vec<Rule> {
    let key = vec![Field::OriginalDaddr, Field::Protocol, Field::OriginalDport];
    // In two rules: where the set is full, the rule that adds to it ends.
    let update = Statement::Update {
        map: set(zone).into(),
        key,
        timeout: std::time::Duration::ZERO,
        data: Vec::new(),
    };
    vec![
        rule([Statement::CountIn(zone.to_owned().into())], "all of the zone"),
        rule([update], "by Service"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices can name any number of zones: together they take little of the kernel's memory.
    #[test]
    fn only_the_first_zones_have_much_room() {
        let room = |zones: usize| (0..zones).filter_map(|others| spec(others).size).sum::<u32>();
        assert_eq!(room(16), 16 * COUNTED);
        assert_eq!(room(1000), 16 * COUNTED + 984 * COUNTED_BEYOND);
    }
}
