//! The endpoints that a Service should have in one address family, made from its Pods.
//!
//! Most of them are stored already, as they should be. So they are views of their Pods and nodes, which
//! are compared with what is stored; only those that are written become an [`Endpoint`].

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::name::Name;

use crate::node::{Node, Nodes};
use crate::pod::Pod;
use crate::ports::PortSets;
use crate::service::Service;
use crate::slice::{AddressType, Addresses, Conditions, Endpoint, Hints, Identity, Target};

/// The endpoints that should exist.
pub(crate) struct Desired<'a> {
    /// The endpoints, in the order of their Pods.
    pub(crate) endpoints: Vec<DesiredEndpoint<'a>>,
    /// The distinct port sets.
    pub(crate) ports: PortSets<'a>,
    /// Pods that are left out because their node does not exist.
    pub(crate) missing_nodes: Vec<MissingNode>,
    /// The endpoints by identity. Of endpoints with the same identity, only the last is listed.
    by_identity: Vec<Entry>,
    /// Whether each endpoint has the same identity as a later one; empty if none has.
    repeated: Vec<bool>,
    /// Zones that are being emptied and have endpoints that other zones stand in for.
    pub(crate) served_elsewhere: Vec<Name>,
}

/// An endpoint that should exist.
pub(crate) struct DesiredEndpoint<'a> {
    pod: &'a Pod,
    node: Option<&'a Node>,
    addresses: Addresses,
    hostname: Option<&'a str>,
    conditions: Conditions,
    /// Its ports, as an index into [`Desired::ports`].
    pub(crate) port_set: usize,
}

/// An endpoint in the order of identities: by a number that is made from the address, which nearly always
/// decides, then by the identity itself.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    endpoint: u32,
}

/// A Pod that is left out because its node does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingNode {
    /// The Pod.
    pub pod: Box<str>,
    /// Its node.
    pub node: Box<str>,
}

impl<'a> Desired<'a> {
    pub(crate) fn new(
        service: &'a Service,
        family: &AddressType,
        pods: &'a [Arc<Pod>],
        nodes: &'a Nodes,
    ) -> Self {
        let mut desired = Self {
            endpoints: Vec::with_capacity(pods.len()),
            ports: PortSets::new(service),
            missing_nodes: Vec::new(),
            by_identity: Vec::with_capacity(pods.len()),
            repeated: Vec::new(),
            served_elsewhere: Vec::new(),
        };
        for pod in pods.iter().filter(|pod| pod.is_considered()) {
            // A Pod defines a port set even if it does not become an endpoint, as in the reference.
            let port_set = desired.ports.of(pod);
            desired.add(service, family, pod, nodes, port_set);
        }
        desired.sort();
        desired
    }

    fn add(
        &mut self,
        service: &Service,
        family: &AddressType,
        pod: &'a Pod,
        nodes: &'a Nodes,
        port_set: usize,
    ) {
        let name = pod.node.as_deref().unwrap_or("");
        let node = nodes.by_name.get(name);
        if node.is_none() && !service.publish_not_ready {
            self.missing_nodes.push(MissingNode { pod: (&*pod.name).into(), node: name.into() });
            return;
        }
        let Some(addresses) = Addresses::of(&pod.ips, family) else { return };
        let in_subdomain = pod.subdomain.as_deref() == Some(&*service.name);
        let entry = Entry { address: number_of(&addresses), endpoint: self.endpoints.len() as u32 };
        self.by_identity.push(entry);
        self.endpoints.push(DesiredEndpoint {
            pod,
            node,
            addresses,
            hostname: pod.hostname.as_deref().filter(|_| in_subdomain),
            conditions: Conditions {
                ready: Some(service.publish_not_ready || (pod.ready && !pod.terminating)),
                serving: Some(pod.ready),
                terminating: Some(pod.terminating),
            },
            port_set,
        });
    }

    fn sort(&mut self) {
        let endpoints = &self.endpoints;
        let identity = |entry: &Entry| endpoints[entry.endpoint as usize].identity();
        self.by_identity.sort_unstable_by(|a, b| {
            let by_identity = || identity(a).cmp(&identity(b)).then(b.endpoint.cmp(&a.endpoint));
            a.address.cmp(&b.address).then_with(by_identity)
        });
        self.by_identity.dedup_by(|later, first| {
            later.address == first.address && identity(later) == identity(first)
        });
        if self.by_identity.len() < endpoints.len() {
            self.repeated = vec![true; endpoints.len()];
            for entry in &self.by_identity {
                self.repeated[entry.endpoint as usize] = false;
            }
        }
    }

    /// The index of the endpoint with the same identity as a stored one.
    pub(crate) fn find(&self, endpoint: &Endpoint) -> Option<u32> {
        let address = number_of(&endpoint.addresses);
        let order = |known: &Entry| -> Ordering {
            let known_identity = || self.endpoints[known.endpoint as usize].identity();
            let by_identity = || known_identity().cmp(&endpoint.identity());
            known.address.cmp(&address).then_with(by_identity)
        };
        let found = self.by_identity.binary_search_by(order).ok()?;
        Some(self.by_identity[found].endpoint)
    }

    /// Whether an endpoint counts. Of several with the same identity, only the last does.
    pub(crate) fn is_unique(&self, index: usize) -> bool {
        !self.repeated.get(index).copied().unwrap_or(false)
    }
}

/// A number that is equal for equal addresses, and differs for nearly all others.
fn number_of(addresses: &Addresses) -> u64 {
    match addresses {
        Addresses::One(IpAddr::V4(ip)) => ip.to_bits().into(),
        Addresses::One(IpAddr::V6(ip)) => (ip.to_bits() ^ (ip.to_bits() >> 64)) as u64,
        Addresses::Many(_) => 0,
    }
}

impl<'a> DesiredEndpoint<'a> {
    /// The endpoint as it is written.
    pub(crate) fn with_hints(&self, hints: Option<Arc<Hints>>) -> Endpoint {
        Endpoint {
            addresses: self.addresses.clone(),
            target: Target::Pod { name: Name::clone(&self.pod.name), uid: self.pod.uid.clone() },
            node: self.pod.node.clone(),
            zone: self.zone().cloned(),
            hostname: self.hostname.map(Into::into),
            hints,
            conditions: self.conditions,
        }
    }

    /// Keeps new connections away, as from the endpoint of a Pod that is about to end.
    pub(crate) fn take_out_of_use(&mut self) {
        self.conditions.ready = Some(false);
        self.conditions.terminating = Some(true);
    }

    /// Whether it should get traffic.
    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.ready == Some(true)
    }

    /// The zone of its node.
    pub(crate) fn zone(&self) -> Option<&'a Name> {
        self.node.and_then(|node| node.zone.as_ref())
    }

    /// The CPU that its Pod requests, in thousandths of a core.
    pub(crate) fn cpu_request_milli(&self) -> Option<u64> {
        self.pod.cpu_request_milli.map(|milli| milli.get().into())
    }

    /// The region of its node.
    pub(crate) fn region(&self) -> Option<&'a Name> {
        self.node.and_then(|node| node.region.as_ref())
    }

    /// The name of its node.
    pub(crate) fn node(&self) -> Option<&'a Name> {
        self.pod.node.as_ref()
    }

    /// Whether a stored endpoint with the same identity is equal to it, apart from hints.
    pub(crate) fn has_content_of(&self, stored: &Endpoint) -> bool {
        let is_target = match &stored.target {
            Target::Pod { name, uid } => same(name, &self.pod.name) && *uid == self.pod.uid,
            Target::None | Target::Other(_) => false,
        };
        is_target
            && stored.conditions == self.conditions
            && same_or_none(stored.node.as_ref(), self.node())
            && same_or_none(stored.zone.as_ref(), self.zone())
    }

    fn identity(&self) -> Identity<'_> {
        Identity::of_pod(&self.addresses, &self.pod.name, self.hostname)
    }
}

/// Whether two names are equal. Equal ones are most often the same string in memory.
fn same(a: &Name, b: &Name) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

fn same_or_none(a: Option<&Name>, b: Option<&Name>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}
