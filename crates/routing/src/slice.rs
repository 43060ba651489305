//! EndpointSlices, reduced to what one node needs.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use zonewise_common::ip::{may_be_endpoint, parse_address};
use zonewise_common::keys;
use zonewise_common::lenient::lenient;
use zonewise_common::name::Name;

use crate::addresses::AddressList;
use crate::location::NodeLocation;
use crate::net::{Family, Protocol};
use crate::reader::Interner;
use crate::wire::{First, Meta, Names, Text, name, port, values_by_key};
use crate::zones::ZoneId;

/// An EndpointSlice as one node sees it: [`EndpointFlags`] holds what depends on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedSlice {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The Service that it belongs to (label `kubernetes.io/service-name`); empty without the label.
    pub service: Name,
    /// The family of its addresses; `None` for `FQDN` and unknown address types.
    pub family: Option<Family>,
    /// Which nodes consume it.
    pub subset: Subset,
    /// Whether it belongs to a headless Service.
    pub headless: bool,
    /// The ports, without those that cannot be used.
    pub ports: Arc<[SlicePort]>,
    /// The endpoints, without those that cannot be used; see [`Self::endpoints`].
    pub endpoints: AddressList<(ZoneId, EndpointFlags)>,
    /// How many endpoints are left out because of their address ([`may_be_endpoint`]).
    pub special_addresses: u32,
    /// The text of the annotation `zonewise.dev/zone-shares`.
    pub zone_shares: Option<Arc<str>>,
    /// The annotation `endpoints.kubernetes.io/last-change-trigger-time`, in microseconds since 1970.
    pub trigger_time_us: Option<i64>,
    /// The resource version; 0 if it is not a number.
    pub resource_version: u64,
}

/// Which nodes consume a slice. If a slice has both labels, that of the zone counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subset {
    /// All nodes: it has neither label.
    #[default]
    All,
    /// The nodes of a zone (label `endpointslice.kubernetes.io/for-zone`).
    Zone(Name),
    /// The nodes of a region (label `endpointslice.kubernetes.io/for-region`).
    Region(Name),
}

/// A port that the endpoints of a slice serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlicePort {
    /// The name of the Service's port; may be empty.
    pub name: Name,
    /// The protocol.
    pub protocol: Protocol,
    /// The port number.
    pub number: u16,
}

/// An endpoint of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The address.
    pub address: IpAddr,
    /// The zone it runs in.
    pub zone: ZoneId,
    /// Conditions and hints.
    pub flags: EndpointFlags,
}

/// Conditions and hints of an endpoint, as seen from one node.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointFlags(u8);

impl EndpointFlags {
    const READY: u8 = 1;
    const SERVING: u8 = 1 << 1;
    const TERMINATING: u8 = 1 << 2;
    const LOCAL: u8 = 1 << 3;
    const ZONE_HINTED: u8 = 1 << 4;
    const FOR_MY_ZONE: u8 = 1 << 5;
    const NODE_HINTED: u8 = 1 << 6;
    const FOR_MY_NODE: u8 = 1 << 7;

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    fn set(self, bit: u8, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { self }
    }

    /// It is ready to get traffic.
    pub fn ready(self) -> bool {
        self.has(Self::READY)
    }

    /// It can serve traffic, even if it is terminating.
    pub fn serving(self) -> bool {
        self.has(Self::SERVING)
    }

    /// It is shutting down.
    pub fn terminating(self) -> bool {
        self.has(Self::TERMINATING)
    }

    /// It runs on this node.
    pub fn local(self) -> bool {
        self.has(Self::LOCAL)
    }

    /// It is hinted to some zone.
    pub fn zone_hinted(self) -> bool {
        self.has(Self::ZONE_HINTED)
    }

    /// It is hinted to this node's zone.
    pub fn for_my_zone(self) -> bool {
        self.has(Self::FOR_MY_ZONE)
    }

    /// It is hinted to some node.
    pub fn node_hinted(self) -> bool {
        self.has(Self::NODE_HINTED)
    }

    /// It is hinted to this node.
    pub fn for_my_node(self) -> bool {
        self.has(Self::FOR_MY_NODE)
    }

    /// It still serves while it terminates: used when no endpoint is ready.
    pub fn last_resort(self) -> bool {
        self.serving() && self.terminating()
    }

    /// It can get traffic, at least when no endpoint is ready.
    pub fn usable(self) -> bool {
        self.ready() || self.last_resort()
    }

    /// The same without the flags about hints.
    pub(crate) fn without_hints(self) -> Self {
        Self(self.0 & (Self::READY | Self::SERVING | Self::TERMINATING | Self::LOCAL))
    }
}

impl fmt::Debug for EndpointFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = [
            "ready",
            "serving",
            "terminating",
            "local",
            "zone-hinted",
            "for-my-zone",
            "node-hinted",
            "for-my-node",
        ];
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.has(1 << bit));
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

impl RoutedSlice {
    /// The endpoints that can be used.
    pub fn endpoints(&self) -> impl Iterator<Item = SliceEndpoint> {
        self.endpoints.iter().map(|(address, (zone, flags))| SliceEndpoint { address, zone, flags })
    }

    /// Whether some endpoint is ready.
    pub fn has_ready_endpoint(&self) -> bool {
        self.endpoints().any(|endpoint| endpoint.flags.ready())
    }

    /// Whether two versions of a slice say the same. Resource versions and trigger times may
    /// differ.
    ///
    /// All fields are named, so that a new field does not compile until it is decided whether
    /// it counts.
    pub fn same_content(&self, other: &Self) -> bool {
        let Self {
            namespace,
            name,
            service,
            family,
            subset,
            headless,
            ports,
            endpoints,
            special_addresses,
            zone_shares,
            trigger_time_us: _,
            resource_version: _,
        } = self;
        *namespace == other.namespace
            && *name == other.name
            && *service == other.service
            && *family == other.family
            && *subset == other.subset
            && *headless == other.headless
            && *ports == other.ports
            && *endpoints == other.endpoints
            && *special_addresses == other.special_addresses
            && *zone_shares == other.zone_shares
    }

    /// Whether it offers a port.
    pub fn offers(&self, name: &str, protocol: Protocol) -> bool {
        self.ports.iter().any(|port| port.is(name, protocol))
    }
}

impl SlicePort {
    pub(crate) fn is(&self, name: &str, protocol: Protocol) -> bool {
        self.protocol == protocol && *self.name == *name
    }
}

// === Reading ===

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    metadata: Meta<'a, WireLabels<'a>, Annotations<'a>>,
    #[serde(borrow, default)]
    address_type: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    endpoints: Vec<WireEndpoint<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    ports: Vec<WirePort<'a>>,
}

values_by_key! {
    struct WireLabels {
        service: keys::SERVICE_NAME,
        headless: keys::HEADLESS,
        zone: keys::FOR_ZONE,
        region: keys::FOR_REGION,
    }
}

values_by_key! {
    struct Annotations {
        shares: keys::ZONE_SHARES,
        triggered: keys::TRIGGER_TIME,
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePort<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
    port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEndpoint<'a> {
    #[serde(borrow)]
    addresses: First<'a>,
    #[serde(deserialize_with = "lenient")]
    conditions: Conditions,
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
    #[serde(borrow)]
    zone: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "lenient")]
    hints: Hints<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hints<'a> {
    #[serde(borrow)]
    for_zones: Names<'a>,
    #[serde(borrow)]
    for_nodes: Names<'a>,
}

impl Wire<'_> {
    /// Reduces the object to what the node at a location needs.
    pub(crate) fn read(&self, location: &NodeLocation, interner: &mut Interner) -> RoutedSlice {
        let Meta { labels, annotations, .. } = &self.metadata;
        let family = self.address_type.as_deref().and_then(Family::named);
        let ports = self.ports.iter().filter_map(|port| port.read(interner)).collect();
        let mut special_addresses = 0;
        let endpoints = family
            .map(|family| self.endpoints(family, location, interner, &mut special_addresses))
            .unwrap_or_default();
        RoutedSlice {
            namespace: interner.name(self.metadata.namespace.as_deref()),
            name: name(self.metadata.name.as_ref()),
            service: name(labels.service.as_ref()),
            family,
            subset: labels.subset(interner),
            headless: labels.headless.is_some(),
            ports: interner.ports(ports),
            endpoints,
            special_addresses,
            zone_shares: annotations.shares.as_deref().map(|text| interner.shares(text)),
            trigger_time_us: annotations.triggered.as_deref().and_then(microseconds),
            resource_version: self.metadata.resource_version.as_deref().map_or(0, parse_version),
        }
    }

    fn endpoints(
        &self,
        family: Family,
        location: &NodeLocation,
        interner: &mut Interner,
        special_addresses: &mut u32,
    ) -> AddressList<(ZoneId, EndpointFlags)> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or("");
        let read = |one: &WireEndpoint<'_>| {
            // As in kube-proxy, only the first address counts, and only if it is of the slice's
            // address type.
            let address = parse_address(one.addresses.0.as_ref()?)?;
            if !may_be_endpoint(address) {
                *special_addresses += 1;
                return None;
            }
            let zone = interner.zones.id(namespace, one.zone.as_deref().unwrap_or(""));
            Some((address, (zone, one.flags(location))))
        };
        AddressList::of(family, self.endpoints.iter().filter_map(read))
    }
}

/// A resource version as a number; 0 if it is not one.
pub(crate) fn parse_version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

fn microseconds(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
}

impl WireLabels<'_> {
    fn subset(&self, interner: &mut Interner) -> Subset {
        match (self.zone.as_deref(), self.region.as_deref()) {
            (Some(zone), _) => Subset::Zone(interner.name(Some(zone))),
            (None, Some(region)) => Subset::Region(interner.name(Some(region))),
            (None, None) => Subset::All,
        }
    }
}

impl WirePort<'_> {
    /// A port without a name or number is left out. The API allows it to mean "all ports", but
    /// kube-proxy does not use it either.
    fn read(&self, interner: &mut Interner) -> Option<SlicePort> {
        Some(SlicePort {
            name: interner.name(Some(self.name.as_deref()?)),
            protocol: Protocol::named(self.protocol.as_deref())?,
            number: port(self.port)?,
        })
    }
}

impl WireEndpoint<'_> {
    fn flags(&self, location: &NodeLocation) -> EndpointFlags {
        let node = (!location.node.is_empty()).then_some(&*location.node);
        let Hints { for_zones, for_nodes } = &self.hints;
        let zone = location.zone.as_deref();
        EndpointFlags::default()
            .set(EndpointFlags::READY, self.conditions.ready.unwrap_or(true))
            .set(EndpointFlags::SERVING, self.conditions.serving.unwrap_or(true))
            .set(EndpointFlags::TERMINATING, self.conditions.terminating.unwrap_or(false))
            .set(EndpointFlags::LOCAL, node.is_some() && self.node_name.as_deref() == node)
            .set(EndpointFlags::ZONE_HINTED, !for_zones.is_empty())
            .set(EndpointFlags::FOR_MY_ZONE, zone.is_some_and(|zone| for_zones.contains(zone)))
            .set(EndpointFlags::NODE_HINTED, !for_nodes.is_empty())
            .set(EndpointFlags::FOR_MY_NODE, node.is_some_and(|node| for_nodes.contains(node)))
    }
}
