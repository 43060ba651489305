//! The kinds of proxies, which parts of slices each uses, and which one each node has.

use std::collections::BTreeMap;

use zonewise_common::name::Name;
use zonewise_routing::FeatureGates;
use zonewise_slices::service::Service;

/// A proxy that can run on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProxyKind {
    /// `zonewise proxy`.
    #[default]
    Zonewise,
    /// kube-proxy.
    KubeProxy,
    /// Cilium instead of kube-proxy, with `loadBalancer.serviceTopology`.
    Cilium,
    /// Cilium instead of kube-proxy, without that setting: its default.
    CiliumPlain,
}

impl ProxyKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] =
        [Self::Zonewise, Self::KubeProxy, Self::Cilium, Self::CiliumPlain];

    /// The kinds that do something with zones.
    pub(crate) const ZONAL: [Self; 3] = [Self::Zonewise, Self::KubeProxy, Self::Cilium];

    /// The name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zonewise => "zonewise proxy",
            Self::KubeProxy => "kube-proxy",
            Self::Cilium => "Cilium",
            Self::CiliumPlain => "Cilium without serviceTopology",
        }
    }

    /// The kind with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What it uses, and what it ignores.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Zonewise => "uses node hints, zone shares, zone hints and subsets",
            Self::KubeProxy => "uses node and zone hints; ignores zone shares and subset labels",
            Self::Cilium => {
                "uses hints with loadBalancer.serviceTopology=true, and then only where the Service \
                 has trafficDistribution or the topology annotation"
            }
            Self::CiliumPlain => "ignores all hints",
        }
    }

    /// Which parts of slices it uses.
    pub fn gates(self, service: &Service) -> FeatureGates {
        let all = FeatureGates::default();
        let hints_only = FeatureGates { shares: false, subsetting: false, ..all };
        match self {
            Self::Zonewise => all,
            Self::KubeProxy => hints_only,
            Self::Cilium => {
                let routing_preference = service.traffic_distribution.is_some();
                FeatureGates { routing_preference, ..hints_only }
            }
            Self::CiliumPlain => FeatureGates { hints: false, node_hints: false, ..hints_only },
        }
    }
}

/// The proxy of each node; `None` where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeProxies {
    by_node: BTreeMap<Name, Option<ProxyKind>>,
    /// The proxy of nodes that are not listed.
    others: Option<ProxyKind>,
}

impl NodeProxies {
    /// The same proxy on every node.
    pub fn all(kind: ProxyKind) -> Self {
        Self { by_node: BTreeMap::new(), others: Some(kind) }
    }

    /// These proxies; nothing is known of nodes that are not listed.
    pub fn of_nodes(by_node: BTreeMap<Name, Option<ProxyKind>>) -> Self {
        Self { by_node, others: None }
    }

    /// The proxy of a node.
    pub fn of(&self, node: &str) -> Option<ProxyKind> {
        self.by_node.get(node).copied().unwrap_or(self.others)
    }

    /// Whether the proxy of every one of these nodes is known.
    pub fn are_known<'a>(&self, mut nodes: impl Iterator<Item = &'a str>) -> bool {
        nodes.all(|node| self.of(node).is_some())
    }

    /// The same, with one kind wherever the proxy is not known.
    pub fn or(&self, kind: ProxyKind) -> Self {
        let fill = |(node, known): (&Name, &Option<ProxyKind>)| {
            (Name::clone(node), Some(known.unwrap_or(kind)))
        };
        Self {
            by_node: self.by_node.iter().map(fill).collect(),
            others: Some(self.others.unwrap_or(kind)),
        }
    }
}
