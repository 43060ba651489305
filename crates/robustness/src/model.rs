//! What the driver has done to the cluster, and what has to hold because of it.
//!
//! The model knows nothing of slices, hints or rules: only which Services and Pods there are, and who leads. So it
//! cannot share a mistake with the code that it judges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use zonewise_nft::simulated::{Destination, Packet, Ruleset};

use crate::history::History;
use crate::objects::{PORT, Shape, TARGET_PORT};
use crate::wire::Call;

/// Namespace and name.
pub(crate) type Name = (String, String);

/// A Service that exists.
#[derive(Clone, Debug)]
pub(crate) struct ServiceFacts {
    /// One, or one of each family.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) shape: Shape,
}

impl ServiceFacts {
    /// The first packets of connections from a Pod to the addresses of the Service.
    pub(crate) fn packets(&self) -> impl Iterator<Item = Packet> {
        let packet = |destination: &IpAddr| Packet {
            source: client(*destination),
            destination: *destination,
            protocol: self.shape.number(),
            port: PORT,
            local: BTreeSet::new(),
        };
        self.addresses.iter().map(packet)
    }
}

/// The address of the Pod that sends packets to a destination.
pub(crate) fn client(destination: IpAddr) -> IpAddr {
    let pod = Ipv4Addr::new(10, 244, 200, 1);
    if destination.is_ipv4() { pod.into() } else { ipv6_of(pod).into() }
}

/// The second address of a Pod.
pub(crate) fn ipv6_of(pod: Ipv4Addr) -> Ipv6Addr {
    let [_, _, high, low] = pod.octets();
    Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]))
}

/// The first address of the Pod that has this one.
fn ipv4_of(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let [.., high, low] = address.octets();
            Ipv4Addr::new(10, 244, high, low)
        }
    }
}

/// A Pod. It stays here when it is gone, because rules may still lead to its address.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) name: Name,
    /// The Service that selects it.
    pub(crate) service: Name,
    pub(crate) ready_since: Option<Instant>,
    /// When it was deleted or became unready.
    pub(crate) left: Option<Instant>,
    pub(crate) deleted: bool,
}

/// The cluster as the driver knows it.
pub(crate) struct Model {
    history: History,
    pub(crate) services: BTreeMap<Name, ServiceFacts>,
    pub(crate) pods: BTreeMap<Ipv4Addr, PodFacts>,
    /// Addresses whose Service was deleted, and when. A Service that gets such an address first has the rules of the
    /// one before, and loses them when a proxy learns of the deletion.
    freed: BTreeMap<IpAddr, Instant>,
    /// Services that were deleted, and when. One that gets the name again first has the slices of the one before.
    deleted: BTreeMap<Name, Instant>,
    /// The identity in the controllers' Lease.
    leader: Option<String>,
    /// The endpoints that a node's rules led to when they were last looked at, and since when they did without a
    /// pause; by node, Service and address.
    seen: BTreeMap<(String, Name, IpAddr), BTreeMap<IpAddr, Instant>>,
    /// Since when nothing is broken; `None` while something is.
    pub(crate) calm_since: Option<Instant>,
    /// Requests by process.
    requests: BTreeMap<String, u64>,
    /// Writes of slices.
    slice_writes: u64,
    violations: Vec<String>,
}

/// What has been asked for and written until some moment.
pub(crate) struct Activity {
    pub(crate) slice_writes: u64,
    /// By process.
    pub(crate) requests: BTreeMap<String, u64>,
}

/// How long after its departure, in a cluster without faults, a rule may still lead to an endpoint: the longest
/// pause of a watch that failed (38 s), and the time to list, to decide and to program.
pub(crate) const LATEST: Duration = Duration::from_secs(60);
/// The most elements that the Services of a run may need on a node.
const MOST_ELEMENTS: usize = 30_000;

impl Model {
    pub(crate) fn new(history: History) -> Self {
        Self {
            history,
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
            freed: BTreeMap::new(),
            deleted: BTreeMap::new(),
            leader: None,
            seen: BTreeMap::new(),
            calm_since: None,
            requests: BTreeMap::new(),
            slice_writes: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.history.add("VIOLATION", &what);
        self.violations.push(what);
    }

    /// The first thing that does not hold.
    pub(crate) fn violation(&self) -> Option<&str> {
        self.violations.first().map(String::as_str)
    }

    /// A process sends a request. A write of a slice is allowed to the holder of the Lease alone.
    pub(crate) fn sent(&mut self, process: &str, call: &Call) {
        *self.requests.entry(process.to_owned()).or_default() += 1;
        if call.is_slice_write() && self.leader.as_deref() != Some(process) {
            let holder = self.leader.as_deref().unwrap_or("nobody");
            let text = format!(
                "one writer: {process} sends {} {} while {holder} holds the Lease",
                call.method, call.path
            );
            self.violated(text);
        }
    }

    /// The server has carried out a write.
    pub(crate) fn wrote(&mut self, call: &Call, code: u16, body: &str) {
        if code >= 300 {
            return;
        }
        self.slice_writes += u64::from(call.is_slice_write());
        if !call.path.contains("/leases") {
            return;
        }
        let lease: Value = serde_json::from_str(body).unwrap_or_default();
        if lease["metadata"]["name"] == "zonewise-controller" {
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            self.leader = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        }
    }

    /// What has been asked for and written until now.
    pub(crate) fn activity(&self) -> Activity {
        Activity { slice_writes: self.slice_writes, requests: self.requests.clone() }
    }

    /// The addresses of the ready Pods of a Service, of the family of one of its addresses.
    pub(crate) fn ready(&self, service: &Name, address: IpAddr) -> BTreeSet<IpAddr> {
        let ready = self.pods.iter().filter(|(_, pod)| pod.service == *service);
        let ready = ready.filter(|(_, pod)| pod.ready_since.is_some() && !pod.deleted);
        let of_family = |pod: Ipv4Addr| -> IpAddr {
            if address.is_ipv4() { pod.into() } else { ipv6_of(pod).into() }
        };
        ready.map(|(pod, _)| of_family(*pod)).collect()
    }

    /// Looks at the rules of a node: after each commit, and between.
    pub(crate) fn look(&mut self, node: &str, rules: &Ruleset<'_>) {
        let now = Instant::now();
        let elements = rules.elements();
        if elements > MOST_ELEMENTS {
            self.violated(format!("budget: {node} has {elements} elements"));
        }
        for (name, facts) in self.services.clone() {
            for packet in facts.packets() {
                let found = rules.destinations(&packet);
                self.judge(node, &name, packet.destination, &found, now);
            }
        }
    }

    fn judge(
        &mut self,
        node: &str,
        name: &Name,
        address: IpAddr,
        found: &BTreeSet<Destination>,
        now: Instant,
    ) {
        let told = format!("on {node}, {}/{} at {}", name.0, name.1, address);
        let mut endpoints = BTreeSet::new();
        let mut lost = BTreeSet::new();
        for destination in found {
            match destination {
                Destination::Endpoint(endpoint) => {
                    endpoints.insert(endpoint.ip());
                    if let Some(text) =
                        self.wrong_endpoint(name, endpoint.ip(), endpoint.port(), now)
                    {
                        self.violated(format!("{told}: {text}"));
                    }
                }
                Destination::Unknown(what) => {
                    self.violated(format!("{told}: the model does not know {what}"));
                }
                other => drop(lost.insert(format!("{other:?}"))),
            }
        }
        let key = (node.to_owned(), name.clone(), address);
        // A proxy that is behind may learn now that an endpoint was not ready for a while: it has not stayed ready.
        let seen = self.seen.get(&key).cloned().unwrap_or_default();
        let stayed =
            seen.iter().any(|(endpoint, since)| self.ready_since_before(*endpoint, *since));
        if stayed && !lost.is_empty() && !self.may_have_old_rules(name, address, now) {
            self.violated(format!(
                "{told}: a programmed Service with an endpoint that stayed ready lost its rules: {lost:?}"
            ));
        }
        if lost.is_empty() && !endpoints.is_empty() {
            let since = |endpoint: IpAddr| *seen.get(&endpoint).unwrap_or(&now);
            let seen = endpoints.into_iter().map(|endpoint| (endpoint, since(endpoint))).collect();
            self.seen.insert(key, seen);
        }
    }

    /// A Service is deleted.
    pub(crate) fn remove_service(&mut self, name: &Name) {
        let addresses = self.services.remove(name).map(|facts| facts.addresses);
        let now = Instant::now();
        self.deleted.insert(name.clone(), now);
        self.freed.extend(addresses.into_iter().flatten().map(|address| (address, now)));
    }

    /// Whether rules of this Service may be those of one that was deleted and had its address, or lead to endpoints
    /// in the slices of one that had its name: not every proxy need have learnt of it.
    fn may_have_old_rules(&self, name: &Name, address: IpAddr, now: Instant) -> bool {
        let settled = |since: &Instant| {
            self.calm_since.is_some_and(|calm| now.duration_since(calm.max(*since)) > LATEST)
        };
        let mut since = self.freed.get(&address).into_iter().chain(self.deleted.get(name));
        since.any(|since| !settled(since))
    }

    fn ready_since_before(&self, address: IpAddr, at: Instant) -> bool {
        let pod = self.pods.get(&ipv4_of(address)).filter(|pod| !pod.deleted);
        pod.and_then(|pod| pod.ready_since).is_some_and(|since| since <= at)
    }

    /// Why a Service must not lead to an endpoint.
    fn wrong_endpoint(
        &self,
        name: &Name,
        address: IpAddr,
        port: u16,
        now: Instant,
    ) -> Option<String> {
        let Some(pod) = self.pods.get(&ipv4_of(address)) else {
            return Some(format!("leads to {address}, which no Pod ever had"));
        };
        if pod.service != *name || port != TARGET_PORT {
            let (namespace, other) = &pod.service;
            return Some(format!("leads to {address}:{port}, a Pod of {namespace}/{other}"));
        }
        let since =
            pod.left.into_iter().chain([self.calm_since?]).max().filter(|_| pod.left.is_some())?;
        // A Service without any ready endpoint may use those that end.
        let gone = now.duration_since(since);
        (gone > LATEST && !self.ready(name, address).is_empty())
            .then(|| format!("leads to {address}, which left {} s ago", gone.as_secs()))
    }
}
