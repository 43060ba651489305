//! EndpointSlices: small in memory, whole on the wire.
//!
//! A slice of ours holds everything that has to survive a rewrite: foreign annotations and
//! finalizers too. Strings that repeat (zones, nodes, labels, hints) are shared.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use zonewise_common::ip::parse_address;
use zonewise_common::keys::{FOR_REGION, FOR_ZONE, SERVICE_NAME};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name, Uid};

use crate::labels::Labels;

/// Most zones, and most nodes, that hints of one endpoint may name.
pub const MAX_HINTS: usize = 8;

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Slice {
    /// Its namespace.
    pub namespace: Name,
    /// Its name; `None` for one the API server is to name.
    pub name: Option<Box<str>>,
    /// Its unique id; empty for one that is not stored yet.
    pub uid: Uid,
    /// Its version; empty for one that is not stored, and for writes that are to succeed whatever
    /// is stored.
    pub resource_version: Box<str>,
    /// Its generation.
    pub generation: i64,
    /// It is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// Its annotations.
    pub annotations: Labels,
    /// Its finalizers.
    pub finalizers: Box<[Box<str>]>,
    /// Who owns it.
    pub owners: Arc<[Owner]>,
    /// The kind of its addresses.
    pub family: AddressType,
    /// Its ports.
    pub ports: Arc<[Port]>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Version of its kind.
    pub api_version: Name,
    /// Its kind.
    pub kind: Name,
    /// Its name.
    pub name: Name,
    /// Its unique id.
    pub uid: Uid,
    /// It manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Its deletion in the foreground waits for the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// The kind of addresses in a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Box<str>")]
pub enum AddressType {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
    /// FQDN, and what older versions wrote.
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
    /// The kind of an address.
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
    /// TCP, also when none is given.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
    /// One this program does not know.
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

/// A port that the endpoints of a slice serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// The name of the Service's port; may be empty.
    #[serde(deserialize_with = "present")]
    pub name: Option<Name>,
    /// The protocol.
    #[serde(deserialize_with = "present")]
    pub protocol: Option<Protocol>,
    /// The number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// What is spoken on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Name>,
}

fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its addresses, normally one.
    pub addresses: Addresses,
    /// The Pod behind it.
    pub target: Target,
    /// The node it runs on.
    pub node: Option<Name>,
    /// The zone of that node.
    pub zone: Option<Name>,
    /// Its DNS name, for Pods that have one in this Service.
    pub hostname: Option<Box<str>>,
    /// Who should use it.
    pub hints: Option<Arc<Hints>>,
    /// Ready, serving, terminating.
    pub conditions: Conditions,
}

/// Whether an endpoint takes traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// It should get traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// It could serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// It is going away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// Addresses of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Addresses {
    /// One IP address: the normal case.
    One(IpAddr),
    /// Several, or no IP addresses; sorted.
    Many(Box<[Box<str>]>),
}

/// What an endpoint stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Pod in the slice's namespace.
    Pod {
        /// Its name.
        name: Name,
        /// Its unique id.
        uid: Uid,
    },
    /// Nothing.
    None,
    /// Anything else, as it was written.
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

/// Who should use an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Zones.
    #[serde(with = "named", skip_serializing_if = "Vec::is_empty")]
    pub for_zones: Vec<Name>,
    /// Nodes.
    #[serde(with = "named", skip_serializing_if = "Vec::is_empty")]
    pub for_nodes: Vec<Name>,
}

/// Lists of `{"name": …}`.
mod named {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use zonewise_common::name::Name;

    #[derive(Serialize, Deserialize)]
    struct Named<T> {
        name: T,
    }

    pub(super) fn serialize<S: Serializer>(names: &[Name], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(names.iter().map(|name| Named { name }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Name>, D::Error> {
        let entries = Option::<Vec<Named<Name>>>::deserialize(d)?.unwrap_or_default();
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }
}

// === impl Slice ===

impl Slice {
    /// The Service it belongs to, by its label.
    pub fn service(&self) -> Option<&str> {
        self.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())
    }

    /// Its name; empty for one that has none yet.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("")
    }

    /// Whether it belongs to the Service with this id.
    pub fn is_owned_by(&self, service: &Uid) -> bool {
        let owns = |owner: &Owner| {
            &*owner.api_version == "v1" && &*owner.kind == "Service" && owner.uid == *service
        };
        self.owners.iter().any(owns)
    }

    /// The subset it is, by its labels.
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

/// Who consumes a slice, where that is not everyone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subset {
    /// One zone.
    Zone(Name),
    /// One region.
    Region(Name),
}

impl Subset {
    /// Its label's key and value.
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

    /// Zones it is hinted to.
    pub fn zone_hints(&self) -> &[Name] {
        self.hints.as_ref().map_or(&[], |hints| &hints.for_zones)
    }

    /// What makes it this endpoint and no other.
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

    /// Whether the content is the same, identity given and hints apart.
    pub fn same_content(&self, other: &Self) -> bool {
        self.conditions == other.conditions
            && self.node == other.node
            && self.zone == other.zone
            && self.target == other.target
    }
}

/// What makes an endpoint this endpoint: two with equal identities are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity<'a> {
    addresses: &'a Addresses,
    target: (Option<&'a str>, &'a str),
    hostname: Option<&'a str>,
}

impl Addresses {
    /// From the addresses as text, in any order.
    fn read(mut texts: Vec<Box<str>>) -> Self {
        match (texts.as_slice(), texts.first().and_then(|text| parse_address(text))) {
            ([_], Some(ip)) => Self::One(ip),
            _ => {
                texts.sort();
                Self::Many(texts.into())
            }
        }
    }

    /// From the addresses of a Pod.
    pub fn of(ips: &[IpAddr]) -> Option<Self> {
        match ips {
            [] => None,
            [ip] => Some(Self::One(*ip)),
            several => {
                let mut texts: Vec<Box<str>> =
                    several.iter().map(|ip| ip.to_string().into()).collect();
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

/// The metadata of a slice: all of it that has to survive a rewrite.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SliceMeta {
    name: Box<str>,
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
    /// As the API server takes it.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let generate = self.labels.get(SERVICE_NAME).filter(|_| self.name.is_none());
        Written {
            api_version: "discovery.k8s.io/v1",
            kind: "EndpointSlice",
            metadata: WrittenMeta {
                name: self.name.as_deref(),
                generate_name: generate.map(|service| format!("{service}-")),
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
    generate_name: Option<String>,
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
