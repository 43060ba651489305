//! Pods: the fields that endpoints are made from.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::ip::parse_address;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};

use crate::labels::Labels;
use crate::quantity::Quantity;
use crate::slice::Protocol;
use crate::wire::{Condition, Meta, is_ready, ready_condition};

/// The fields of a Pod that are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Pod {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its unique id.
    pub uid: Uid,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// The node it runs on.
    pub node: Option<Name>,
    /// `spec.hostname`, if set.
    pub hostname: Option<Box<str>>,
    /// `spec.subdomain`, if set.
    pub subdomain: Option<Box<str>>,
    /// Its addresses. IPv4 addresses that are mapped into IPv6 are stored as IPv4.
    pub ips: Box<[IpAddr]>,
    /// Named ports, those of containers before those of sidecars.
    pub named_ports: Arc<[NamedPort]>,
    /// The CPU that it requests, in thousandths of a core; `None` if it requests none.
    pub cpu_request_milli: Option<NonZeroU32>,
    /// When the Ready condition last changed, in seconds since 1970.
    pub ready_since: Option<i64>,
    /// Whether any address is set, even one that cannot be parsed.
    pub has_address: bool,
    /// Whether the phase is Failed or Succeeded.
    pub finished: bool,
    /// Whether the Ready condition is True.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// A container port with a name, which a Service can refer to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// Its name.
    pub name: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: i32,
}

impl Pod {
    /// Whether it can become an endpoint: it has an address and has not finished. A Pod that is being
    /// deleted still can. The reference's function is `ShouldPodBeInEndpoints`.
    pub fn is_considered(&self) -> bool {
        !self.finished && self.has_address
    }
}

impl Keyed for Pod {
    fn key(&self) -> Key {
        (Name::clone(&self.namespace), Name::clone(&self.name))
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<Name>,
    hostname: Option<Box<str>>,
    subdomain: Option<Box<str>>,
    #[serde(deserialize_with = "lenient")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "lenient")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "lenient")]
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "lenient")]
    requests: Requests,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requests {
    #[serde(deserialize_with = "lenient")]
    cpu: Option<Quantity>,
}

impl Resources {
    fn cpu_milli(&self) -> Option<u64> {
        self.requests.cpu.as_ref()?.milli()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    restart_policy: Option<Box<str>>,
    #[serde(deserialize_with = "lenient")]
    ports: Vec<ContainerPort>,
    #[serde(deserialize_with = "lenient")]
    resources: Resources,
}

impl Container {
    /// Whether an init container runs as long as the Pod does.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerPort {
    name: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    container_port: i32,
    #[serde(deserialize_with = "lenient")]
    protocol: Protocol,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<Box<str>>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<str>>,
    #[serde(rename = "podIPs", deserialize_with = "lenient")]
    pod_ips: Vec<PodIp>,
    #[serde(deserialize_with = "lenient")]
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    #[serde(deserialize_with = "lenient")]
    ip: Box<str>,
}

impl From<Wire> for Pod {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        let some = |text: Option<Box<str>>| text.filter(|text| !text.is_empty());
        Self {
            named_ports: named_ports(&spec),
            cpu_request_milli: cpu_request(&spec),
            node: spec.node_name.filter(|name| !name.is_empty()),
            hostname: some(spec.hostname),
            subdomain: some(spec.subdomain),
            ips: status.pod_ips.iter().filter_map(|entry| parse_address(&entry.ip)).collect(),
            has_address: !status.pod_ips.is_empty() || some(status.pod_ip).is_some(),
            finished: matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")),
            ready: is_ready(&status.conditions),
            ready_since: ready_condition(&status.conditions)
                .and_then(|ready| ready.last_transition_time.0),
            terminating: matches!(metadata.deletion_timestamp, Some(IgnoredAny)),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            labels: Arc::new(metadata.labels),
        }
    }
}

impl Spec {
    /// The containers that run as long as the Pod does: containers, then sidecars.
    fn running(&self) -> impl Iterator<Item = &Container> {
        let sidecars = self.init_containers.iter().filter(|container| container.is_sidecar());
        self.containers.iter().chain(sidecars)
    }
}

/// The CPU that a Pod requests while it runs: what it requests as a whole, otherwise the sum of its containers. What
/// is more than a number can hold counts as the largest.
fn cpu_request(spec: &Spec) -> Option<NonZeroU32> {
    let of_containers = || {
        let requests = spec.running().filter_map(|container| container.resources.cpu_milli());
        requests.reduce(u64::saturating_add)
    };
    let milli = spec.resources.cpu_milli().or_else(of_containers)?;
    NonZeroU32::new(u32::try_from(milli).unwrap_or(u32::MAX))
}

/// Named ports in the order in which they are looked up: containers, then sidecars.
fn named_ports(spec: &Spec) -> Arc<[NamedPort]> {
    let ports = spec.running().flat_map(|container| &container.ports);
    let named = |port: &ContainerPort| {
        let name = port.name.clone().filter(|name| !name.is_empty())?;
        let protocol = port.protocol.clone();
        Some(NamedPort { name, protocol, number: port.container_port })
    };
    ports.filter_map(named).collect()
}
