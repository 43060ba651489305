//! Services: the addresses and ports that clients connect to, and how their traffic is to be routed.

use std::net::IpAddr;

use serde::Deserialize;
use zonewise_common::cidr::Cidr;
use zonewise_common::ip::parse_address;
use zonewise_common::keys;
use zonewise_common::lenient::lenient;
use zonewise_common::name::Name;
use zonewise_common::time::Seconds;

use crate::net::{Family, Protocol};
use crate::reader::Interner;
use crate::slice::parse_version;
use crate::wire::{Meta, Text, name, port, values_by_key};

/// How long a client keeps its endpoint with session affinity, unless the Service sets a time. The
/// API server has the same default, `DefaultClientIPServiceAffinitySeconds` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/api/core/v1/types.go>.
const AFFINITY_SECONDS: u32 = 10_800;

/// A Service, reduced to what a proxy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedService {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The cluster IPs, at most one per address family.
    pub cluster_ips: Box<[IpAddr]>,
    /// `spec.externalIPs`.
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of the load balancer that nodes serve themselves (`ipMode: VIP`).
    pub load_balancer_ips: Box<[IpAddr]>,
    /// `spec.loadBalancerSourceRanges`: clients that may use the load balancer's addresses.
    pub source_ranges: Box<[Cidr]>,
    /// The ports.
    pub ports: Box<[ServicePort]>,
    /// `spec.internalTrafficPolicy`, for traffic to the cluster IP.
    pub internal_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`, for traffic to external addresses; Cluster if the Service has
    /// none.
    pub external_policy: TrafficPolicy,
    /// How long a client keeps its endpoint; `None` without session affinity.
    pub affinity_seconds: Option<u32>,
    /// The port where a load balancer asks whether this node has ready endpoints.
    pub health_check_node_port: Option<u16>,
    /// Whether the annotation `service.kubernetes.io/topology-mode` is `Auto`.
    pub topology_auto: bool,
    /// The label `service.kubernetes.io/service-proxy-name`: another proxy serves this Service.
    pub proxy_name: Option<Name>,
    /// No proxy serves it, because it is headless, an ExternalName, or has no usable cluster IP.
    pub skipped: bool,
    /// When it was created, in seconds since 1970; 0 if the object does not say.
    pub created: u32,
    /// The resource version; 0 if it is not a number.
    pub resource_version: u64,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServicePort {
    /// The name; may be empty.
    pub name: Name,
    /// The protocol.
    pub protocol: Protocol,
    /// The port number.
    pub port: u16,
    /// The node port; 0 for none.
    pub node_port: u16,
}

/// Which endpoints may serve traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficPolicy {
    /// All endpoints.
    #[default]
    Cluster,
    /// Endpoints on the node that received the traffic.
    Local,
}

impl RoutedService {
    /// The cluster IP of an address family.
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        of(&self.cluster_ips, family).next()
    }

    /// The external IPs of an address family.
    pub fn external_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        of(&self.external_ips, family)
    }

    /// The load balancer's addresses of an address family.
    pub fn load_balancer_ips(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        of(&self.load_balancer_ips, family)
    }

    /// The clients of an address family that may use the load balancer; empty means all of them.
    /// Ranges of one family do not restrict clients of the other.
    pub fn source_ranges(&self, family: Family) -> Vec<Cidr> {
        let mine = self
            .source_ranges
            .iter()
            .copied()
            .filter(|source| Family::of(&source.address()) == family);
        let mine: Vec<Cidr> = mine.collect();
        let everyone = mine.iter().any(|source| source.length() == 0);
        if everyone { Vec::new() } else { mine }
    }

    /// Whether a port can be reached from outside the cluster, in any address family.
    pub fn externally_accessible(&self, port: &ServicePort) -> bool {
        port.node_port != 0 || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether a port uses the endpoints for the traffic policy Cluster. Traffic from this node to
    /// an external address does so whatever the policy.
    pub fn uses_cluster(&self, port: &ServicePort) -> bool {
        self.internal_policy == TrafficPolicy::Cluster || self.externally_accessible(port)
    }

    /// Whether a port uses the endpoints for the traffic policy Local.
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
            created,
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
            && *created == other.created
    }
}

fn of(ips: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    ips.iter().copied().filter(move |ip| Family::of(ip) == family)
}

// === Reading ===

#[derive(Deserialize)]
pub(crate) struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "lenient")]
    metadata: Meta<'a, Labels<'a>, Annotations<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    spec: Spec<'a>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    status: Status<'a>,
}

values_by_key! {
    struct Labels {
        proxy_name: keys::SERVICE_PROXY_NAME,
    }
}

values_by_key! {
    struct Annotations {
        mode: keys::TOPOLOGY_MODE,
        hints: keys::TOPOLOGY_AWARE_HINTS,
    }
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
    /// Reduces the object to what a proxy needs.
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
            created: created(metadata.creation_timestamp),
            resource_version: metadata.resource_version.as_deref().map_or(0, parse_version),
        }
    }
}

fn created(Seconds(seconds): Seconds) -> u32 {
    seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(0)
}

impl Annotations<'_> {
    /// The older annotation wins if both are present, as in kube-proxy.
    fn is_auto(&self) -> bool {
        let value = self.hints.as_deref().or(self.mode.as_deref());
        matches!(value, Some("Auto" | "auto"))
    }
}

impl Spec<'_> {
    fn kind(&self) -> &str {
        self.r#type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("ClusterIP")
    }

    /// The first address of each address family. Objects of API servers from before dual stack have
    /// no `ipFamilies`; only `clusterIP` counts there.
    fn cluster_ips(&self) -> Box<[IpAddr]> {
        let single = self.cluster_ip.as_deref().unwrap_or("");
        if matches!(single, "" | "None") {
            return Box::default();
        }
        if self.ip_families.is_empty() {
            return parse_address(single).into_iter().collect();
        }
        let listed = |family: Family| {
            let index =
                self.ip_families.iter().position(|name| Family::named(name) == Some(family));
            let ip = parse_address(self.cluster_ips.get(index?)?)?;
            (Family::of(&ip) == family).then_some(ip)
        };
        Family::BOTH.into_iter().filter_map(listed).collect()
    }

    /// The policy applies only to Services that can be reached from outside the cluster.
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
    /// The address, if nodes serve it themselves. In any mode other than VIP, traffic must go through
    /// the load balancer.
    fn read(&self) -> Option<IpAddr> {
        let served_by_nodes = self.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
        self.ip.as_deref().filter(|_| served_by_nodes).and_then(parse_address)
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
