//! Stale UDP flows. conntrack sends the packets of a flow that it knows to the same endpoint for as
//! long as packets come, even if the endpoint is gone. Such flows are removed, so that the next packet
//! is sent to another endpoint.
//!
//! Only flows to Services that have changed are removed, and to NodePorts only on this node's own
//! addresses: flows through this node to the same port of another machine stay.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use zonewise_nft::Family;
use zonewise_nft::conntrack::{Conntrack, Flow};
use zonewise_routing::{self as routing, RoutedService, ServicePort, Target};

/// The protocol number of UDP.
const UDP: u8 = 17;
/// How often the table of flows is read again when it changes meanwhile.
const ATTEMPTS: u32 = 5;

/// Addresses and ports of Services, with the endpoints that their flows may lead to.
#[derive(Debug, Default)]
pub struct Frontends {
    addresses: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    nodeports: BTreeMap<(routing::Family, u16), BTreeSet<SocketAddr>>,
}

impl Frontends {
    /// Adds a UDP port with the endpoints that serve it. Without endpoints its flows stay: there is no
    /// better endpoint for them.
    pub fn add(&mut self, service: &RoutedService, port: &ServicePort, serving: &[Target]) {
        let Some(first) = serving.first() else { return };
        let family = routing::Family::of(&first.address);
        let endpoints = serving.iter().map(|target| SocketAddr::new(target.address, target.port));
        let addresses = service
            .cluster_ips
            .iter()
            .chain(&service.external_ips)
            .chain(&service.load_balancer_ips);
        for address in addresses.filter(|address| routing::Family::of(address) == family) {
            let frontend = SocketAddr::new(*address, port.port);
            self.addresses.entry(frontend).or_default().extend(endpoints.clone());
        }
        if port.node_port != 0 {
            self.nodeports.entry((family, port.node_port)).or_default().extend(endpoints);
        }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.nodeports.is_empty()
    }

    /// Whether a flow leads to an endpoint that no longer serves. In flows that began while the Service
    /// had no endpoint, the Service's own address answers, which is not an endpoint either. `own` are
    /// this node's addresses.
    pub fn is_stale(&self, flow: &Flow, own: &BTreeSet<IpAddr>) -> bool {
        let to = SocketAddr::new(flow.original.dst, flow.original.dport);
        let answers = SocketAddr::new(flow.reply.src, flow.reply.sport);
        let nodeport = || {
            let key = (routing::Family::of(&to.ip()), to.port());
            self.nodeports.get(&key).filter(|_| own.contains(&to.ip()))
        };
        let endpoints = self.addresses.get(&to).or_else(nodeport);
        flow.protocol == UDP && endpoints.is_some_and(|endpoints| !endpoints.contains(&answers))
    }
}

/// Removes stale flows of a family, and returns how many.
pub fn clean(family: Family, frontends: &Frontends, own: &BTreeSet<IpAddr>) -> io::Result<usize> {
    let mut conntrack = Conntrack::open()?;
    let mut stale = Vec::new();
    for attempt in 1.. {
        stale.clear();
        let listed = conntrack.flows(family, Some(UDP), &mut |flow| {
            if frontends.is_stale(flow, own) {
                stale.push(*flow);
            }
        });
        match listed {
            // The table has changed while it was read. After some attempts, what was read has to do.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < ATTEMPTS => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    for flow in &stale {
        conntrack.delete(flow)?;
    }
    Ok(stale.len())
}
