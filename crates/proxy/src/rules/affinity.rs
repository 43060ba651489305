//! Session affinity: a map of clients for each Service that has it.
//!
//! Its own map, and not one for all Services, because clients fill it: a client that sends packets from many addresses
//! fills the map of the Service that it sends them to, and no other. The kernel keeps the bound
//! (`size`) and the time; a client that does not fit is served without affinity.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use zonewise_nft::Type::{Address, Port, Protocol};
use zonewise_nft::{SetFlags, SetSpec};

/// How many clients of a Service the kernel remembers, in each family.
pub const CLIENTS: u32 = 1 << 16;

/// How all names of such maps begin.
pub(crate) const PREFIX: &str = "affinity-";

/// The kind of such a map: client and frontend, to the endpoint that the client stays with.
pub(crate) const SPEC: SetSpec = SetSpec {
    name: "affinity",
    key: &[Address, Address, Protocol, Port],
    data: &[Address, Port],
    flags: SetFlags { interval: false, dynamic: true, timeout: true, counter: false },
    size: Some(CLIENTS),
    comment: "clients of one Service, to the endpoint they stay with",
};

/// The map of a Service. Its name is made from the Service's by a hash, because that name may be longer
/// than the kernel allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AffinityMap(NonZeroU64);

impl AffinityMap {
    /// The map of this Service.
    pub(crate) fn of(namespace: &str, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (namespace, name).hash(&mut hasher);
        Self(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN))
    }
}

impl fmt::Display for AffinityMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:016x}", self.0)
    }
}
