//! Frontends: the addresses and ports where clients find a Service, and what each of them is.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::net::{Family, Protocol};
use crate::service::{RoutedService, ServicePort};

/// Where clients find a Service port.
///
/// Frontends of one address follow each other in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// The address; `None` for a port of every node.
    pub address: Option<IpAddr>,
    /// The address family.
    pub family: Family,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
}

impl Frontend {
    /// At an address.
    pub fn at(address: IpAddr, protocol: Protocol, port: u16) -> Self {
        Self { address: Some(address), family: Family::of(&address), protocol, port }
    }

    /// At a port of every node.
    pub fn node_port(family: Family, protocol: Protocol, port: u16) -> Self {
        Self { address: None, family, protocol, port }
    }

    /// Address and port, unless it is a port of every node.
    pub fn socket(&self) -> Option<SocketAddr> {
        self.address.map(|address| SocketAddr::new(address, self.port))
    }
}

/// Address, port and protocol, as people write them.
impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(socket) => write!(f, "{socket}/{}", self.protocol),
            None => write!(f, "node port {}/{}", self.port, self.protocol),
        }
    }
}

/// What a frontend is to its Service. The order is the rank of claims: a ClusterIP was allocated by the API
/// server, a load balancer's address by its controller, while anybody who may write a Service may write
/// external IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exposure {
    /// A cluster IP.
    ClusterIp,
    /// An address of the load balancer.
    LoadBalancer,
    /// A NodePort.
    NodePort,
    /// One of `spec.externalIPs`.
    ExternalIp,
}

impl RoutedService {
    /// Every frontend that it claims, each once, and what it is to the Service.
    pub fn claims(&self) -> Vec<(Frontend, Exposure)> {
        let families = Family::BOTH.into_iter().filter(|family| self.cluster_ip(*family).is_some());
        let of_ports = families.flat_map(|family| {
            self.ports.iter().flat_map(move |port| self.frontends(port, family))
        });
        let mut all: Vec<(Frontend, Exposure)> = of_ports.chain(self.health_check()).collect();
        all.sort_unstable();
        all.dedup_by_key(|(frontend, _)| *frontend);
        all
    }

    /// The port where load balancers ask for the health of a node is a port of the node, like NodePorts.
    fn health_check(&self) -> impl Iterator<Item = (Frontend, Exposure)> {
        let at = |port| Family::BOTH.map(|family| Frontend::node_port(family, Protocol::Tcp, port));
        let frontends = self.health_check_node_port.map(at).into_iter().flatten();
        frontends.map(|frontend| (frontend, Exposure::NodePort))
    }

    /// The frontends of a port in an address family. An address that is in several fields counts as the
    /// one of the highest rank.
    pub fn frontends(&self, port: &ServicePort, family: Family) -> Vec<(Frontend, Exposure)> {
        let at = |address| Frontend::at(address, port.protocol, port.port);
        let cluster_ip = self.cluster_ip(family).map(|address| (at(address), Exposure::ClusterIp));
        let mut frontends: Vec<(Frontend, Exposure)> = cluster_ip.into_iter().collect();
        let vips = self.load_balancer_ips(family).map(|ip| (ip, Exposure::LoadBalancer));
        let external_ips = self.external_ips(family).map(|ip| (ip, Exposure::ExternalIp));
        let mut known: BTreeSet<Frontend> = frontends.iter().map(|(known, _)| *known).collect();
        for (address, exposure) in vips.chain(external_ips) {
            let frontend = at(address);
            if known.insert(frontend) {
                frontends.push((frontend, exposure));
            }
        }
        if port.node_port != 0 {
            let frontend = Frontend::node_port(family, port.protocol, port.node_port);
            frontends.push((frontend, Exposure::NodePort));
        }
        frontends
    }
}
