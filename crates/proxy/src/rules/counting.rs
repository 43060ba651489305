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
//! is looked up in a map: the kernel would take it, but `nft list` aborts on such a rule. A zone has so many elements
//! at most; where there are more, the zone's counter goes on, and what it has more than its elements belongs to
//! Services that are not counted by themselves.

use zonewise_nft::Type::{Address, Port, Protocol};
use zonewise_nft::{Field, Rule, SetFlags, SetSpec, Statement};

use super::chains::rule;

/// How many addresses and ports of Services are counted by themselves, in each zone and family.
pub const COUNTED: u32 = 1 << 14;

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
