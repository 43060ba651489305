//! Stale UDP flows. A flow that conntrack knows goes on to its endpoint for as long as packets come,
//! even if that endpoint is gone: such flows are removed, so that the next packet finds a new one.
//!
//! Only Services that have changed are looked at, and NodePorts only on this node's own addresses:
//! flows of others that happen to use the same port stay.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use zonewise_nft::Family;
use zonewise_nft::conntrack::{Conntrack, Flow};
use zonewise_routing::{RoutedService, ServicePort, Target};

const UDP: u8 = 17;
const ATTEMPTS: u32 = 5;

/// Where clients find UDP ports, and the endpoints their flows may lead to.
#[derive(Debug, Default)]
pub struct Frontends {
    addresses: BTreeMap<(IpAddr, u16), BTreeSet<(IpAddr, u16)>>,
    nodeports: BTreeMap<(bool, u16), BTreeSet<(IpAddr, u16)>>,
}

impl Frontends {
    /// Adds a UDP port with the endpoints that serve it. Without any nothing is stale: flows wait for
    /// an endpoint.
    pub fn add(&mut self, service: &RoutedService, port: &ServicePort, serving: &[Target]) {
        let Some(first) = serving.first() else { return };
        let ipv4 = first.address.is_ipv4();
        let endpoints = serving.iter().map(|target| (target.address, target.port));
        let addresses = service
            .cluster_ips
            .iter()
            .chain(&service.external_ips)
            .chain(&service.load_balancer_ips);
        for address in addresses.filter(|address| address.is_ipv4() == ipv4) {
            self.addresses.entry((*address, port.port)).or_default().extend(endpoints.clone());
        }
        if port.node_port != 0 {
            self.nodeports.entry((ipv4, port.node_port)).or_default().extend(endpoints);
        }
    }

    /// Nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.nodeports.is_empty()
    }

    /// Whether a flow leads to an endpoint that no longer serves. Flows recorded while nobody did
    /// answer from the Service's own address, which is no endpoint either.
    pub fn is_stale(&self, flow: &Flow, own: &BTreeSet<IpAddr>) -> bool {
        let to = (flow.original.dst, flow.original.dport);
        let answers = (flow.reply.src, flow.reply.sport);
        let nodeport = || {
            let key = (to.0.is_ipv4(), to.1);
            self.nodeports.get(&key).filter(|_| own.contains(&to.0))
        };
        let endpoints = self.addresses.get(&to).or_else(nodeport);
        flow.protocol == UDP && endpoints.is_some_and(|endpoints| !endpoints.contains(&answers))
    }
}

/// Removes stale flows of a family; how many.
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
            // A busy table changes while it is read. After some tries a part of it is better than
            // nothing.
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
