//! The endpoints that a Service should have in one address family, made from its Pods.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::name::Name;

use crate::node::Nodes;
use crate::pod::Pod;
use crate::ports::PortSets;
use crate::service::Service;
use crate::slice::{AddressType, Addresses, Conditions, Endpoint, Identity, Slice, Target};

/// The endpoints that should exist.
pub(crate) struct Desired<'a> {
    /// The endpoints, in the order of their Pods.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The port set of each endpoint, as an index into `ports`.
    pub(crate) port_set: Vec<usize>,
    /// The distinct port sets.
    pub(crate) ports: PortSets<'a>,
    /// Pods that are left out because their node does not exist.
    pub(crate) missing_nodes: Vec<MissingNode>,
    /// Indexes of the endpoints, sorted by identity. Of endpoints with the same identity, only the
    /// last is listed.
    by_identity: Vec<u32>,
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
        nodes: &Nodes,
    ) -> Self {
        let mut desired = Self {
            endpoints: Vec::with_capacity(pods.len()),
            port_set: Vec::with_capacity(pods.len()),
            ports: PortSets::new(service),
            missing_nodes: Vec::new(),
            by_identity: Vec::new(),
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
        pod: &Pod,
        nodes: &Nodes,
        port_set: usize,
    ) {
        let name = pod.node.as_deref().unwrap_or("");
        let node = nodes.by_name.get(name);
        if node.is_none() && !service.publish_not_ready {
            self.missing_nodes.push(MissingNode { pod: (&*pod.name).into(), node: name.into() });
            return;
        }
        let ips: Vec<IpAddr> =
            pod.ips.iter().filter(|ip| AddressType::of(ip) == *family).copied().collect();
        let Some(addresses) = Addresses::of(&ips) else { return };
        let in_subdomain = pod.subdomain.as_deref() == Some(&*service.name);
        self.port_set.push(port_set);
        self.endpoints.push(Endpoint {
            addresses,
            target: Target::Pod { name: Name::clone(&pod.name), uid: pod.uid.clone() },
            node: pod.node.clone(),
            zone: node.and_then(|node| node.zone.clone()),
            hostname: pod.hostname.clone().filter(|_| in_subdomain),
            hints: None,
            conditions: Conditions {
                ready: Some(service.publish_not_ready || (pod.ready && !pod.terminating)),
                serving: Some(pod.ready),
                terminating: Some(pod.terminating),
            },
        });
    }

    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.endpoints.len() as u32).collect();
        let identity = |index: u32| self.endpoints[index as usize].identity();
        order.sort_by(|&a, &b| identity(a).cmp(&identity(b)).then(b.cmp(&a)));
        order.dedup_by(|later, first| identity(*later) == identity(*first));
        self.by_identity = order;
    }

    /// The index of the endpoint with the same identity as a stored one.
    pub(crate) fn find(&self, endpoint: &Endpoint) -> Option<usize> {
        let wanted: Identity<'_> = endpoint.identity();
        let known =
            |&index: &u32| -> Ordering { self.endpoints[index as usize].identity().cmp(&wanted) };
        let found = self.by_identity.binary_search_by(known).ok()?;
        Some(self.by_identity[found] as usize)
    }

    /// Whether each endpoint counts. Of several with the same identity, only the last does.
    pub(crate) fn unique(&self) -> Vec<bool> {
        let mut unique = vec![false; self.endpoints.len()];
        for &index in &self.by_identity {
            unique[index as usize] = true;
        }
        unique
    }

    /// For each endpoint the stored one with the same identity, and the slice that it is in.
    pub(crate) fn stored<'s>(
        &self,
        slices: &[&'s Slice],
    ) -> Vec<Option<(&'s Endpoint, &'s Slice)>> {
        let mut stored = vec![None; self.endpoints.len()];
        for slice in slices {
            for endpoint in &slice.endpoints {
                if let Some(index) = self.find(endpoint) {
                    stored[index].get_or_insert((endpoint, *slice));
                }
            }
        }
        stored
    }
}
