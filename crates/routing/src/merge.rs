//! Slices into the endpoints of one port.
//!
//! The same `ip:port` may be there several times: while endpoints move between slices, and when a
//! new Pod gets the address of one that is still going away. One is kept:
//!
//! ```text
//!  not terminating, ready  >  not terminating  >  terminating
//!  then the slice that comes first by name, then the place in it
//! ```
//!
//! The reference lets the slice it happens to visit last win among endpoints that do not
//! terminate; this is one of its possible results, always the same one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::net::{Family, Protocol};
use crate::service::RoutedService;
use crate::slice::{EndpointFlags, RoutedSlice};
use crate::target::Target;

/// The endpoints of one port (by its name and protocol) in one family, each once, sorted.
///
/// A port's name may lead to different numbers in different slices: all are used.
pub fn merge(
    slices: &[&RoutedSlice],
    family: Family,
    port: &str,
    protocol: Protocol,
) -> Vec<Target> {
    let mut mine: Vec<&RoutedSlice> =
        slices.iter().copied().filter(|slice| slice.family == Some(family)).collect();
    mine.sort_by(|a, b| a.name.cmp(&b.name));
    let mut targets = Vec::new();
    for slice in mine {
        for port in slice.ports.iter().filter(|known| known.is(port, protocol)) {
            targets.extend(slice.endpoints().map(|one| Target::new(&one, port.number)));
        }
    }
    // The sort is stable: what comes first stays first.
    targets.sort_by_cached_key(|target| (target.key(), Reverse(worth(target.flags))));
    targets.dedup_by(|later, first| (later.address, later.port) == (first.address, first.port));
    targets
}

fn worth(flags: EndpointFlags) -> u8 {
    match (flags.terminating(), flags.ready()) {
        (false, true) => 2,
        (false, false) => 1,
        (true, _) => 0,
    }
}

/// How many addresses on this node are ready, over all ports of a Service: what a load balancer
/// that asks the health-check port wants to know.
pub fn count_local_ready(
    service: &RoutedService,
    slices: &[&RoutedSlice],
    family: Family,
) -> usize {
    let counts = |slice: &&&RoutedSlice| {
        slice.family == Some(family)
            && slice.service == service.name
            && slice.namespace == service.namespace
            && !slice.ports.is_empty()
    };
    let endpoints = slices.iter().filter(counts).flat_map(|slice| slice.endpoints());
    let ready = endpoints.filter(|one| one.flags.ready() && one.flags.local());
    ready.map(|one| one.address).collect::<BTreeSet<IpAddr>>().len()
}
