//! Services: where traffic comes in, and what its owner asks for.

use std::net::IpAddr;

use serde::Deserialize;

use crate::Name;
use crate::net::{Cidr, Family, Protocol, parse_address};
use crate::reader::Interner;
use crate::slice::parse_version;
use crate::wire::{Meta, Text, lenient, name, port};

/// A client keeps its endpoint this long, unless its Service says otherwise.
const AFFINITY_SECONDS: u32 = 10_800;

/// A Service, as small as a proxy needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedService {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its cluster IPs, at most one per family.
    pub cluster_ips: Box<[IpAddr]>,
    /// Its external IPs.
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of its load balancer that are to be served here.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// Clients that may use its load balancer; both families.
    pub source_ranges: Box<[Cidr]>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
    /// TrafficPolicy for traffic from inside.
    pub internal_policy: TrafficPolicy,
    /// TrafficPolicy for traffic from outside; Cluster where there is no outside.
    pub external_policy: TrafficPolicy,
    /// Seconds that a client keeps its endpoint.
    pub affinity_seconds: Option<u32>,
    /// Where a load balancer asks for endpoints on this node.
    pub health_check_node_port: Option<u16>,
    /// The topology annotation is at Auto.
    pub topology_auto: bool,
    /// The proxy it belongs to, if it names one.
    pub proxy_name: Option<Name>,
    /// No proxy serves it: headless, ExternalName, or without a usable cluster IP.
    pub skipped: bool,
    /// Its resource version; 0 if that is no number.
    pub resource_version: u64,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: Name,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// Its number on every node; 0 for none.
    pub node_port: u16,
}

/// Which endpoints may serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficPolicy {
    /// All.
    #[default]
    Cluster,
    /// Those on the node that got the traffic.
    Local,
}

impl RoutedService {
    /// Its cluster IP of a family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        of(&self.cluster_ips, family).next()
    }

    /// Its external IPs of a family.
    pub fn external_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        of(&self.external_ips, family)
    }

    /// Its load balancer's addresses of a family.
    pub fn load_balancer_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        of(&self.load_balancer_ips, family)
    }

    /// Clients of a family that may use its load balancer; empty means all. Blocks of the other
    /// family alone restrict nobody in this one.
    pub fn source_ranges(&self, family: Family) -> Vec<Cidr> {
        let mine = self.source_ranges.iter().copied().filter(|source| source.family() == family);
        let mine: Vec<Cidr> = mine.collect();
        let everyone = mine.iter().any(|source| source.length() == 0);
        if everyone { Vec::new() } else { mine }
    }

    /// Whether traffic from outside can reach a port, in any family.
    pub fn externally_accessible(&self, port: &ServicePort) -> bool {
        port.node_port != 0 || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether endpoints anywhere are used for a port. Traffic from this node to an address for the
    /// outside goes anywhere, whatever the policy.
    pub fn uses_cluster(&self, port: &ServicePort) -> bool {
        self.internal_policy == TrafficPolicy::Cluster || self.externally_accessible(port)
    }

    /// Whether endpoints on this node are singled out for a port.
    pub fn uses_local(&self, port: &ServicePort) -> bool {
        self.internal_policy == TrafficPolicy::Local
            || (self.external_policy == TrafficPolicy::Local && self.externally_accessible(port))
    }

    /// Whether two versions of a Service say the same. Resource versions may differ.
    ///
    /// All fields are named, so that a new field does not compile until it is decided whether
    /// it counts.
    pub fn same_content(&self, other: &Self) -> bool {
        let Self {
            namespace,
            name,
            cluster_ips,
            external_ips,
            load_balancer_ips,
            source_ranges,
            ports,
            internal_policy,
            external_policy,
            affinity_seconds,
            health_check_node_port,
            topology_auto,
            proxy_name,
            skipped,
            resource_version: _,
        } = self;
        *namespace == other.namespace
            && *name == other.name
            && *cluster_ips == other.cluster_ips
            && *external_ips == other.external_ips
            && *load_balancer_ips == other.load_balancer_ips
            && *source_ranges == other.source_ranges
            && *ports == other.ports
            && *internal_policy == other.internal_policy
            && *external_policy == other.external_policy
            && *affinity_seconds == other.affinity_seconds
            && *health_check_node_port == other.health_check_node_port
            && *topology_auto == other.topology_auto
            && *proxy_name == other.proxy_name
            && *skipped == other.skipped
    }
}

fn of(ips: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    ips.iter().copied().filter(move |ip| Family::of(ip) == family)
}

// === reading ===

#[derive(Deserialize)]
pub(crate) struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    metadata: Meta<'a, Labels<'a>, Annotations<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    spec: Spec<'a>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels<'a> {
    #[serde(borrow, rename = "service.kubernetes.io/service-proxy-name")]
    proxy_name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations<'a> {
    #[serde(borrow, rename = "service.kubernetes.io/topology-mode")]
    mode: Option<Text<'a>>,
    #[serde(borrow, rename = "service.kubernetes.io/topology-aware-hints")]
    hints: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    r#type: Option<Text<'a>>,
    #[serde(borrow, rename = "clusterIP")]
    cluster_ip: Option<Text<'a>>,
    #[serde(borrow, rename = "clusterIPs", deserialize_with = "lenient")]
    cluster_ips: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "lenient")]
    ip_families: Vec<Text<'a>>,
    #[serde(borrow, rename = "externalIPs", deserialize_with = "lenient")]
    external_ips: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "lenient")]
    load_balancer_source_ranges: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "lenient")]
    ports: Vec<WirePort<'a>>,
    #[serde(borrow)]
    internal_traffic_policy: Option<Text<'a>>,
    #[serde(borrow)]
    external_traffic_policy: Option<Text<'a>>,
    #[serde(borrow)]
    session_affinity: Option<Text<'a>>,
    #[serde(deserialize_with = "lenient")]
    session_affinity_config: AffinityConfig,
    health_check_node_port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePort<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    protocol: Option<Text<'a>>,
    port: Option<i64>,
    node_port: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP", deserialize_with = "lenient")]
    client_ip: ClientIp,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientIp {
    timeout_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow, deserialize_with = "lenient")]
    load_balancer: LoadBalancer<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoadBalancer<'a> {
    #[serde(borrow, deserialize_with = "lenient")]
    ingress: Vec<Ingress<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ingress<'a> {
    #[serde(borrow)]
    ip: Option<Text<'a>>,
    #[serde(borrow)]
    ip_mode: Option<Text<'a>>,
}

impl Wire<'_> {
    /// The small form.
    pub(crate) fn read(&self, interner: &mut Interner) -> RoutedService {
        let Wire { metadata, spec, status } = self;
        let cluster_ips = spec.cluster_ips();
        let external = spec.external();
        let source_ranges = spec.load_balancer_source_ranges.iter();
        RoutedService {
            namespace: interner.name(metadata.namespace.as_deref()),
            name: name(metadata.name.as_ref()),
            skipped: spec.kind() == "ExternalName" || cluster_ips.is_empty(),
            cluster_ips,
            external_ips: addresses(&spec.external_ips),
            load_balancer_ips: status
                .load_balancer
                .ingress
                .iter()
                .filter_map(Ingress::read)
                .collect(),
            source_ranges: source_ranges.filter_map(|source| Cidr::parse(source.trim())).collect(),
            ports: spec.ports.iter().filter_map(|port| port.read(interner)).collect(),
            internal_policy: policy(spec.internal_traffic_policy.as_deref()),
            external_policy: external,
            affinity_seconds: spec.affinity(),
            health_check_node_port: port(spec.health_check_node_port)
                .filter(|_| spec.kind() == "LoadBalancer" && external == TrafficPolicy::Local),
            topology_auto: metadata.annotations.is_auto(),
            proxy_name: metadata.labels.proxy_name.as_deref().map(|text| interner.name(Some(text))),
            resource_version: metadata.resource_version.as_deref().map_or(0, parse_version),
        }
    }
}

impl Annotations<'_> {
    /// The older name wins where both are present.
    fn is_auto(&self) -> bool {
        let value = self.hints.as_deref().or(self.mode.as_deref());
        matches!(value, Some("Auto" | "auto"))
    }
}

impl Spec<'_> {
    fn kind(&self) -> &str {
        self.r#type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("ClusterIP")
    }

    /// One per family: the first that is listed for it. Without a list of families (API servers of
    /// before dual stack) there is only `clusterIP`.
    fn cluster_ips(&self) -> Box<[IpAddr]> {
        let single = self.cluster_ip.as_deref().unwrap_or("");
        if matches!(single, "" | "None") {
            return Box::default();
        }
        if self.ip_families.is_empty() {
            return parse_address(single).into_iter().collect();
        }
        let listed = |family: Family| {
            let place =
                self.ip_families.iter().position(|name| Family::named(name) == Some(family));
            let ip = parse_address(self.cluster_ips.get(place?)?)?;
            (Family::of(&ip) == family).then_some(ip)
        };
        Family::BOTH.into_iter().filter_map(listed).collect()
    }

    /// Local means something only where traffic can come from outside.
    fn external(&self) -> TrafficPolicy {
        let outside = match self.kind() {
            "LoadBalancer" | "NodePort" => true,
            "ClusterIP" => !self.external_ips.is_empty(),
            _ => false,
        };
        if outside {
            policy(self.external_traffic_policy.as_deref())
        } else {
            TrafficPolicy::Cluster
        }
    }

    fn affinity(&self) -> Option<u32> {
        let asked = self.session_affinity.as_deref() == Some("ClientIP");
        let seconds = self.session_affinity_config.client_ip.timeout_seconds;
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        let seconds = seconds.filter(|seconds| *seconds != 0).unwrap_or(AFFINITY_SECONDS);
        asked.then_some(seconds)
    }
}

fn policy(text: Option<&str>) -> TrafficPolicy {
    if text == Some("Local") { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
}

fn addresses(texts: &[Text<'_>]) -> Box<[IpAddr]> {
    texts.iter().filter_map(|text| parse_address(text)).collect()
}

impl Ingress<'_> {
    /// An address in another mode than VIP leads to the load balancer itself.
    fn read(&self) -> Option<IpAddr> {
        let here = self.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
        self.ip.as_deref().filter(|_| here).and_then(parse_address)
    }
}

impl WirePort<'_> {
    fn read(&self, interner: &mut Interner) -> Option<ServicePort> {
        Some(ServicePort {
            name: interner.name(self.name.as_deref()),
            protocol: Protocol::named(self.protocol.as_deref())?,
            port: port(self.port)?,
            node_port: port(self.node_port).unwrap_or(0),
        })
    }
}
