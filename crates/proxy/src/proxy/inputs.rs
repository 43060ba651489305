//! What the rules are made from: configuration, node, Services and slices, as values that the kernel's
//! tables take. Pure functions, shared by the sync loop, `--dry-run` and tests.

use std::net::SocketAddr;
use std::sync::Arc;

use zonewise_common::cidr::Cidr;
use zonewise_common::name::Key;
use zonewise_routing::{self as routing, Protected, RouteQuery, route};

use crate::addresses::{NodeIps, NodePorts};
use crate::config::{Config, DetectLocal};
use crate::index::Index;
use crate::node::NodeInfo;
use crate::rules::entries::{self, NodeSettings, PortRoute, ProgrammedService};
use crate::rules::layout::{FAMILIES, LocalTraffic, Options};

/// What the fixed rules of the tables depend on. `nodeports` are those of IPv4 and IPv6.
pub(crate) fn options(config: &Config, node: &NodeInfo, nodeports: &[NodePorts; 2]) -> Options {
    let local = match &config.detect_local {
        DetectLocal::Cidrs(cidrs) => LocalTraffic::Cidrs(cidrs.clone()),
        DetectLocal::NodeCidr => LocalTraffic::Cidrs(node.pod_cidrs.clone()),
        DetectLocal::Bridge(name) => LocalTraffic::Bridge(name.clone()),
        DetectLocal::InterfacePrefix(name) => LocalTraffic::Prefix(name.clone()),
        DetectLocal::None => LocalTraffic::Unknown,
    };
    Options {
        mark: 1 << config.masquerade_bit,
        masquerade_all: config.masquerade_all,
        local,
        nodeports_everywhere: [nodeports[0] == NodePorts::All, nodeports[1] == NodePorts::All],
        localhost_nodeports: config.localhost_nodeports,
        count: config.count,
    }
}

/// What the elements of all Services depend on.
pub(crate) fn node_settings(
    config: &Config,
    ips: &NodeIps,
    service_cidrs: &[Cidr],
) -> NodeSettings {
    NodeSettings {
        addresses: routing::Family::BOTH.map(|family| ips.known(family)),
        external_ips: config.allow_external_ips,
        count: config.count,
        budget: config.budget,
        protected: Protected {
            service_cidrs: service_cidrs.to_vec(),
            node_ports: config
                .healthz
                .iter()
                .map(SocketAddr::port)
                .chain([Protected::KUBELET_PORT])
                .collect(),
        },
    }
}

/// A Service as it is to be in the kernel; `None` if the index does not have it.
pub fn programmed_service(
    index: &Index,
    reader: &routing::ObjectReader,
    gates: &routing::FeatureGates,
    key: &Key,
) -> Option<ProgrammedService> {
    let service = index.services().get(key)?;
    let slices = index.slices(key);
    let portion = |port, family| {
        let family = entries::routing_family(family);
        service.cluster_ip(family)?;
        let query = RouteQuery { reader, gates, service, port, family, slices: &slices };
        Some(Box::new(PortRoute::new(family, route(&query))))
    };
    let ports = service.ports.iter().map(|port| FAMILIES.map(|family| portion(port, family)));
    Some(ProgrammedService { service: Arc::clone(service), asked: 0, ports: ports.collect() })
}
