//! Merges the slices of a Service into the endpoints of one port.
//!
//! The same `ip:port` can be listed several times: while an endpoint moves from one slice to
//! another, and when a new Pod gets the address of a Pod that is still terminating. One of them is
//! kept, in this order of preference:
//!
//! ```text
//!  not terminating, ready  >  not terminating  >  terminating
//!  then the slice that comes first by name, then the order within that slice
//! ```
//!
//! kube-proxy visits slices in no fixed order and keeps the last of several endpoints that do not
//! terminate. What is kept here is one of the results it can have, and always the same one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::net::{Family, Protocol};
use crate::service::RoutedService;
use crate::slice::{EndpointFlags, RoutedSlice};
use crate::target::Target;

/// The endpoints of one port in one family, each `ip:port` once, sorted.
///
/// A port is identified by its name and protocol. Slices may map the same name to different
/// numbers (a named target port differs between Pods); all of them are used.
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
    // The sort is stable, so that of equal endpoints the one of the first slice stays first.
    targets.sort_by_cached_key(|target| (target.key(), Reverse(preference(target.flags))));
    targets.dedup_by(|later, first| (later.address, later.port) == (first.address, first.port));
    targets
}

fn preference(flags: EndpointFlags) -> u8 {
    match (flags.terminating(), flags.ready()) {
        (false, true) => 2,
        (false, false) => 1,
        (true, _) => 0,
    }
}

/// The number of ready addresses on this node, over all ports of a Service. The health-check node
/// port reports it to load balancers.
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
