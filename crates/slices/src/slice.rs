//! EndpointSlices: a small struct in memory, the whole object on the wire.
//!
//! A slice keeps everything that an update must not lose, including annotations and finalizers of
//! others. Strings that repeat (zones, nodes, labels, hints) are shared.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use zonewise_common::api_group::DISCOVERY_V1;
use zonewise_common::ip::parse_address;
use zonewise_common::keys::{FOR_REGION, FOR_ZONE, SERVICE_NAME};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};

use crate::labels::Labels;

/// The most zones, and the most nodes, that the hints of one endpoint may name (`maxZoneHints` and
/// `maxNodeHints` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/apis/discovery/validation/validation.go>).
pub const MAX_HINTS: usize = 8;

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Slice {
    /// Its namespace.
    pub namespace: Name,
    /// Its name; `None` for a new slice, which the API server names.
    pub name: Option<Box<str>>,
    /// What the API server makes the name of a new slice from. Stored slices keep theirs.
    pub generate_name: Option<Box<str>>,
    /// Its uid; empty for a new slice.
    pub uid: Uid,
    /// Its resource version; empty for a new slice, and for updates that must succeed whatever version
    /// is stored.
    pub resource_version: Box<str>,
    /// Its generation.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// Its annotations.
    pub annotations: Labels,
    /// Its finalizers.
    pub finalizers: Box<[Box<str>]>,
    /// Its owner references.
    pub owners: Arc<[Owner]>,
    /// Its address type.
    pub family: AddressType,
    /// Its ports.
    pub ports: Arc<[Port]>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// The owner's API version.
    #[serde(deserialize_with = "lenient")]
    pub api_version: Name,
    /// The owner's kind.
    #[serde(deserialize_with = "lenient")]
    pub kind: Name,
    /// Its name.
    #[serde(deserialize_with = "lenient")]
    pub name: Name,
    /// Its unique id.
    #[serde(deserialize_with = "lenient")]
    pub uid: Uid,
    /// Whether the owner manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner's foreground deletion waits for the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// The address type of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Box<str>")]
pub enum AddressType {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
    /// FQDN, or a type that only older versions wrote.
    #[serde(untagged)]
    Other(Box<str>),
}

impl From<Box<str>> for AddressType {
    fn from(text: Box<str>) -> Self {
        match &*text {
            "IPv4" => Self::IPv4,
            "IPv6" => Self::IPv6,
            _ => Self::Other(text),
        }
    }
}

impl AddressType {
    /// The type of an address.
    pub fn of(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Self::IPv4 } else { Self::IPv6 }
    }
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
            Self::Other(text) => text,
        })
    }
}

/// A transport protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Box<str>")]
pub enum Protocol {
    /// TCP, which is also the default.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
    /// A protocol that this program does not know.
    #[serde(untagged)]
    Other(Box<str>),
}

impl From<Box<str>> for Protocol {
    fn from(text: Box<str>) -> Self {
        match &*text {
            "TCP" | "" => Self::Tcp,
            "UDP" => Self::Udp,
            "SCTP" => Self::Sctp,
            _ => Self::Other(text),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Other(text) => text,
        })
    }
}

/// A port of the endpoints of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// The name of the Service's port; may be empty.
    pub name: Option<Name>,
    /// The protocol.
    pub protocol: Option<Protocol>,
    /// The number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Name>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its addresses, normally one.
    pub addresses: Addresses,
    /// The Pod or other object that it stands for.
    pub target: Target,
    /// The node it runs on.
    pub node: Option<Name>,
    /// The zone of that node.
    pub zone: Option<Name>,
    /// Its DNS label, if the Pod's subdomain is the name of the Service.
    pub hostname: Option<Box<str>>,
    /// The zones and nodes that should use it.
    pub hints: Option<Arc<Hints>>,
    /// Ready, serving, terminating.
    pub conditions: Conditions,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Whether it should get traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether the Pod is ready, even while it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Whether the Pod is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// The addresses of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Addresses {
    /// One IP address, which is the normal case.
    One(IpAddr),
    /// Several addresses, none, or names; sorted.
    Many(Box<[Box<str>]>),
}

/// The object that an endpoint stands for (`targetRef`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Pod in the slice's namespace.
    Pod {
        /// Its name.
        name: Name,
        /// Its unique id.
        uid: Uid,
    },
    /// No object.
    None,
    /// Any other object, kept as it was read.
    Other(Box<ObjectReference>),
}

/// A reference to any object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_path: Option<Box<str>>,
}

/// The zones and nodes that should use an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// The zones.
    #[serde(with = "named", skip_serializing_if = "Vec::is_empty")]
    pub for_zones: Vec<Name>,
    /// The nodes.
    #[serde(with = "named", skip_serializing_if = "Vec::is_empty")]
    pub for_nodes: Vec<Name>,
}

/// Serializes names as a list of `{"name": …}`.
mod named {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use zonewise_common::lenient::lenient;
    use zonewise_common::name::Name;

    #[derive(Serialize, Deserialize)]
    #[serde(bound(deserialize = "T: Default + Deserialize<'de>"))]
    struct Named<T> {
        #[serde(default, deserialize_with = "lenient")]
        name: T,
    }

    pub(super) fn serialize<S: Serializer>(names: &[Name], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(names.iter().map(|name| Named { name }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Name>, D::Error> {
        let entries: Vec<Named<Name>> = lenient(d)?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }
}

impl Hints {
    /// Hints to one zone.
    pub(crate) fn to_zone(zone: impl Into<Name>) -> Self {
        Self { for_zones: vec![zone.into()], for_nodes: Vec::new() }
    }
}

// === impl Slice ===

impl Slice {
    /// The name of the Service that it belongs to, from its label.
    pub fn service(&self) -> Option<&str> {
        self.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())
    }

    /// Its name; empty for a new slice.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }

    /// Whether the Service with this uid owns it.
    pub(crate) fn is_owned_by(&self, service: &Uid) -> bool {
        let owns = |owner: &Owner| {
            &*owner.api_version == "v1" && &*owner.kind == "Service" && owner.uid == *service
        };
        self.owners.iter().any(owns)
    }

    /// The subset that it belongs to, from its labels; `None` if all zones use it.
    pub fn subset(&self) -> Option<Subset> {
        let zone = self.labels.name(FOR_ZONE).cloned().map(Subset::Zone);
        zone.or_else(|| self.labels.name(FOR_REGION).cloned().map(Subset::Region))
    }
}

impl Keyed for Slice {
    fn key(&self) -> Key {
        (Name::clone(&self.namespace), self.name().into())
    }
}

/// The zone or region that uses a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subset {
    /// One zone.
    Zone(Name),
    /// One region.
    Region(Name),
}

impl Subset {
    /// The key and value of the label on its slices.
    pub fn label(&self) -> (&'static str, &Name) {
        match self {
            Self::Zone(zone) => (FOR_ZONE, zone),
            Self::Region(region) => (FOR_REGION, region),
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Whether it should get traffic.
    pub fn is_ready(&self) -> bool {
        self.conditions.ready == Some(true)
    }

    /// The zones that it is hinted to.
    pub fn zone_hints(&self) -> &[Name] {
        self.hints.as_ref().map_or(&[], |hints| &hints.for_zones)
    }

    /// The fields that identify it.
    pub fn identity(&self) -> Identity<'_> {
        let target = match &self.target {
            Target::Pod { name, .. } => (None, &**name),
            Target::None => (None, ""),
            Target::Other(other) => {
                (other.namespace.as_deref(), other.name.as_deref().unwrap_or(""))
            }
        };
        Identity { addresses: &self.addresses, target, hostname: self.hostname.as_deref() }
    }
}

/// The fields that identify an endpoint: addresses, target and hostname, as in the reference
/// (`endpointHash` in `staging/src/k8s.io/endpointslice/util/endpointset.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity<'a> {
    addresses: &'a Addresses,
    target: (Option<&'a str>, &'a str),
    hostname: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// The identity of an endpoint that stands for a Pod.
    pub(crate) fn of_pod(
        addresses: &'a Addresses,
        pod: &'a str,
        hostname: Option<&'a str>,
    ) -> Self {
        Self { addresses, target: (None, pod), hostname }
    }
}

impl Addresses {
    /// Parses addresses, which may be in any order.
    fn read(mut texts: Vec<Box<str>>) -> Self {
        match (texts.as_slice(), texts.first().and_then(|text| parse_address(text))) {
            ([_], Some(ip)) => Self::One(ip),
            _ => {
                texts.sort();
                Self::Many(texts.into())
            }
        }
    }

    /// Those that are IP addresses.
    pub fn ips(&self) -> Vec<IpAddr> {
        match self {
            Self::One(ip) => vec![*ip],
            Self::Many(texts) => texts.iter().filter_map(|text| parse_address(text)).collect(),
        }
    }

    /// The addresses of a Pod that belong to a family; `None` if it has none.
    pub(crate) fn of(ips: &[IpAddr], family: &AddressType) -> Option<Self> {
        let mut ips = ips.iter().filter(|ip| AddressType::of(ip) == *family);
        match (ips.next(), ips.clone().next()) {
            (None, _) => None,
            (Some(ip), None) => Some(Self::One(*ip)),
            (Some(first), Some(_)) => {
                let mut texts: Vec<Box<str>> =
                    std::iter::once(first).chain(ips).map(|ip| ip.to_string().into()).collect();
                texts.sort();
                Some(Self::Many(texts.into()))
            }
        }
    }
}

// === reading ===

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: SliceMeta,
    address_type: AddressType,
    #[serde(default, deserialize_with = "lenient")]
    ports: Vec<Port>,
    #[serde(default, deserialize_with = "lenient")]
    endpoints: Vec<WireEndpoint>,
}

/// The metadata of a slice that an update must not lose.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SliceMeta {
    #[serde(deserialize_with = "lenient")]
    name: Box<str>,
    generate_name: Option<Box<str>>,
    namespace: Option<Name>,
    #[serde(deserialize_with = "lenient")]
    uid: Uid,
    #[serde(deserialize_with = "lenient")]
    resource_version: Box<str>,
    #[serde(deserialize_with = "lenient")]
    generation: i64,
    #[serde(deserialize_with = "lenient")]
    labels: Labels,
    #[serde(deserialize_with = "lenient")]
    annotations: Labels,
    #[serde(deserialize_with = "lenient")]
    finalizers: Box<[Box<str>]>,
    #[serde(deserialize_with = "lenient")]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEndpoint {
    #[serde(deserialize_with = "lenient")]
    addresses: Vec<Box<str>>,
    #[serde(deserialize_with = "lenient")]
    conditions: Conditions,
    hostname: Option<Box<str>>,
    target_ref: Option<ObjectReference>,
    node_name: Option<Name>,
    zone: Option<Name>,
    hints: Option<Hints>,
}

impl From<Wire> for Slice {
    fn from(wire: Wire) -> Self {
        let meta = wire.metadata;
        let namespace = meta.namespace.unwrap_or_else(|| "".into());
        let read = |endpoint| Endpoint::read(endpoint, &namespace);
        Self {
            endpoints: wire.endpoints.into_iter().map(read).collect(),
            name: Some(meta.name),
            generate_name: meta.generate_name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            labels: Arc::new(meta.labels),
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owners: meta.owner_references.into(),
            family: wire.address_type,
            ports: wire.ports.into(),
            namespace,
        }
    }
}

impl Endpoint {
    fn read(wire: WireEndpoint, namespace: &str) -> Self {
        Self {
            addresses: Addresses::read(wire.addresses),
            target: Target::read(wire.target_ref, namespace),
            node: wire.node_name,
            zone: wire.zone,
            hostname: wire.hostname,
            hints: wire.hints.map(Arc::new),
            conditions: wire.conditions,
        }
    }
}

impl Target {
    fn read(reference: Option<ObjectReference>, namespace: &str) -> Self {
        match reference {
            None => Self::None,
            Some(ObjectReference {
                api_version: None,
                kind: Some(kind),
                namespace: Some(ns),
                name: Some(name),
                uid: Some(uid),
                field_path: None,
            }) if &*kind == "Pod" && &*ns == namespace => Self::Pod { name, uid },
            Some(other) => Self::Other(Box::new(other)),
        }
    }
}

// === writing ===

impl Serialize for Slice {
    /// Writes the whole object, as the API server expects it.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Written {
            api_version: DISCOVERY_V1,
            kind: "EndpointSlice",
            metadata: WrittenMeta {
                name: self.name.as_deref(),
                generate_name: self.generate_name.as_deref(),
                namespace: &self.namespace,
                uid: some(&self.uid.to_string()),
                resource_version: some(&self.resource_version),
                labels: &self.labels,
                annotations: &self.annotations,
                finalizers: &self.finalizers,
                owner_references: &self.owners,
            },
            address_type: &self.family,
            endpoints: Endpoints(&self.endpoints, &self.namespace),
            ports: &self.ports,
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: WrittenMeta<'a>,
    address_type: &'a AddressType,
    endpoints: Endpoints<'a>,
    ports: &'a [Port],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generate_name: Option<&'a str>,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    annotations: &'a Labels,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    finalizers: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    owner_references: &'a [Owner],
}

/// Endpoints and the namespace of their Pods.
struct Endpoints<'a>(&'a [Endpoint], &'a str);

impl Serialize for Endpoints<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|endpoint| WrittenEndpoint {
            addresses: &endpoint.addresses,
            conditions: &endpoint.conditions,
            hostname: endpoint.hostname.as_deref(),
            target_ref: match &endpoint.target {
                Target::None => None,
                Target::Other(other) => Some(Reference::Other(other)),
                Target::Pod { name, uid } => {
                    Some(Reference::Pod { kind: "Pod", namespace: self.1, name, uid })
                }
            },
            node_name: endpoint.node.as_deref(),
            zone: endpoint.zone.as_deref(),
            hints: endpoint.hints.as_deref(),
        }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEndpoint<'a> {
    addresses: &'a Addresses,
    conditions: &'a Conditions,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_ref: Option<Reference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hints: Option<&'a Hints>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Reference<'a> {
    Pod { kind: &'static str, namespace: &'a str, name: &'a str, uid: &'a Uid },
    Other(&'a ObjectReference),
}

impl Serialize for Addresses {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(ip) => serializer.collect_seq([ip]),
            Self::Many(texts) => serializer.collect_seq(texts.iter()),
        }
    }
}
