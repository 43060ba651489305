//! The endpoints a Service should have in one address family.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::name::Name;

use crate::node::Nodes;
use crate::pod::Pod;
use crate::ports::PortSets;
use crate::service::Service;
use crate::slice::{AddressType, Addresses, Conditions, Endpoint, Identity, Slice, Target};

/// Endpoints that should exist, each with the number of its port set.
pub(crate) struct Desired<'a> {
    /// The endpoints, in the order of their Pods.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The port set of each.
    pub(crate) port_set: Vec<usize>,
    /// The port sets.
    pub(crate) ports: PortSets<'a>,
    /// Pods left out because their node is not known.
    pub(crate) missing_nodes: Vec<MissingNode>,
    by_identity: Vec<u32>,
}

/// A Pod left out this time.
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
            // A port set exists as soon as one Pod has it, endpoint or not.
            let set = desired.ports.of(pod);
            desired.add(service, family, pod, (nodes, set));
        }
        desired.sort();
        desired
    }

    fn add(
        &mut self,
        service: &Service,
        family: &AddressType,
        pod: &Pod,
        (nodes, set): (&Nodes, usize),
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
        self.port_set.push(set);
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

    /// The number of an endpoint that exists.
    pub(crate) fn find(&self, endpoint: &Endpoint) -> Option<usize> {
        let wanted: Identity<'_> = endpoint.identity();
        let known =
            |&index: &u32| -> Ordering { self.endpoints[index as usize].identity().cmp(&wanted) };
        let place = self.by_identity.binary_search_by(known).ok()?;
        Some(self.by_identity[place] as usize)
    }

    /// Each endpoint once: of two with one identity the later.
    pub(crate) fn unique(&self) -> Vec<bool> {
        let mut unique = vec![false; self.endpoints.len()];
        for &index in &self.by_identity {
            unique[index as usize] = true;
        }
        unique
    }

    /// For each endpoint, the stored one of the same identity and the slice it is in.
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
