//! Health checks of Services: a load balancer asks each node whether it has ready endpoints of the
//! Service, on the Service's `healthCheckNodePort`.
//!
//! ```text
//!  reconcile(wanted, addresses) ─► close what is not wanted ─► open what is missing ─► new counts
//!                                                                 │
//!  any path: 200 if this node has ready endpoints and the proxy   └─ fails: reported, tried next time
//!            keeps up, else 503
//! ```
//!
//! When the addresses of the node change, the listeners follow with the next reconcile. They use
//! [`Health`] itself, so that they work even where `/healthz` is turned off.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zonewise_common::media_type::JSON;

use serde_json::Value;
use thiserror::Error;
use zonewise_routing::Family;
use zonewise_telemetry::server::{self, Page, PageRequest, Server};

use super::listen::bind_one_family;
use super::status::{Health, Moment};
use crate::addresses::NodePorts;

/// Namespace and name of a Service.
type Key = (String, String);

/// The health check of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthPort {
    /// Its `healthCheckNodePort`.
    pub port: u16,
    /// Distinct addresses of ready endpoints on this node, for each family the Service has. A family
    /// that is missing is not listened on.
    pub ready: BTreeMap<Family, usize>,
}

/// A health check that cannot be listened on; it is tried again with the next reconcile.
#[derive(Debug, Error)]
#[error("cannot listen on {address} for the health checks of {namespace}/{name}: {source}")]
pub struct PortError {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The address that it should listen on.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
    /// Whether the last attempt failed, too.
    pub again: bool,
}

/// All health checks of Services on this node.
#[derive(Debug)]
pub struct HealthPorts {
    health: Health,
    open: BTreeMap<(Key, Family), Open>,
    failed: BTreeSet<(Key, Family)>,
}

#[derive(Debug, Default)]
struct Open {
    servers: BTreeMap<SocketAddr, Server>,
    ready: Arc<AtomicUsize>,
}

/// What should be listened on for a Service and family.
struct Wanted {
    addresses: BTreeSet<SocketAddr>,
    ready: usize,
}

impl HealthPorts {
    /// Without Services.
    pub fn new(health: Health) -> Self {
        Self { health, open: BTreeMap::new(), failed: BTreeSet::new() }
    }

    /// Listens for these Services, by namespace and name, and for no others. `addresses` are those
    /// of NodePorts; a family that is missing there is not listened on.
    pub async fn reconcile(
        &mut self,
        services: &BTreeMap<(String, String), HealthPort>,
        addresses: &BTreeMap<Family, NodePorts>,
    ) -> Vec<PortError> {
        let wanted = wanted(services, addresses);
        // First close, then open: a port may go from one Service to another.
        self.close_unwanted(&wanted).await;
        let mut errors = Vec::new();
        for ((key, family), wanted) in &wanted {
            let at = (key.clone(), *family);
            match self.listen(&at, wanted).await {
                Ok(()) => {
                    self.failed.remove(&at);
                }
                Err((address, source)) => {
                    let (namespace, name) = key.clone();
                    let again = !self.failed.insert(at);
                    errors.push(PortError { namespace, name, address, source, again });
                }
            }
        }
        self.failed.retain(|at| wanted.contains_key(at));
        errors
    }

    /// Closes all of them.
    pub async fn stop(mut self) {
        self.close_unwanted(&BTreeMap::new()).await;
    }

    async fn close_unwanted(&mut self, wanted: &BTreeMap<(Key, Family), Wanted>) {
        for (at, open) in &mut self.open {
            let keep = |address: &SocketAddr| {
                wanted.get(at).is_some_and(|wanted| wanted.addresses.contains(address))
            };
            let gone: Vec<_> = open.servers.extract_if(.., |address, _| !keep(address)).collect();
            for (_, server) in gone {
                server.close().await;
            }
        }
        self.open.retain(|at, _| wanted.contains_key(at));
    }

    /// Listens on all addresses or on none: otherwise load balancers would see different answers.
    async fn listen(
        &mut self,
        at: &(Key, Family),
        wanted: &Wanted,
    ) -> Result<(), (SocketAddr, io::Error)> {
        let mut open = self.open.remove(at).unwrap_or_default();
        open.ready.store(wanted.ready, Relaxed);
        for &address in &wanted.addresses {
            if open.servers.contains_key(&address) {
                continue;
            }
            let page = page(&at.0, Arc::clone(&open.ready), self.health.clone());
            match bind_one_family(address).and_then(|listener| server::serve(listener, page)) {
                Ok(server) => drop(open.servers.insert(address, server)),
                Err(error) => {
                    for server in open.servers.into_values() {
                        server.close().await;
                    }
                    return Err((address, error));
                }
            }
        }
        self.open.insert(at.clone(), open);
        Ok(())
    }
}

fn wanted(
    services: &BTreeMap<Key, HealthPort>,
    addresses: &BTreeMap<Family, NodePorts>,
) -> BTreeMap<(Key, Family), Wanted> {
    let one = |key: &Key, health: &HealthPort, family: Family, ready: usize| {
        let sockets = sockets(addresses.get(&family)?, family, health.port);
        Some(((key.clone(), family), Wanted { addresses: sockets, ready }))
    };
    services
        .iter()
        .flat_map(|(key, health)| {
            health.ready.iter().filter_map(move |(family, ready)| one(key, health, *family, *ready))
        })
        .collect()
}

fn sockets(node_ports: &NodePorts, family: Family, port: u16) -> BTreeSet<SocketAddr> {
    let list = match (node_ports, family) {
        (NodePorts::Listed(list), _) => list.clone(),
        (NodePorts::All, Family::V4) => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        (NodePorts::All, Family::V6) => vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };
    // A link-local address cannot be listened on without its interface.
    let on_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let list = list.into_iter().filter(|ip| Family::of(ip) == family && !on_link(ip));
    list.map(|ip| SocketAddr::new(ip, port)).collect()
}

fn page(
    (namespace, name): &Key,
    ready: Arc<AtomicUsize>,
    health: Health,
) -> impl Fn(PageRequest<'_>) -> Page + Send + Sync + 'static {
    let (namespace, name) = (Value::from(namespace.as_str()), Value::from(name.as_str()));
    let service = format!("\t\t\"namespace\": {namespace},\n\t\t\"name\": {name}\n");
    move |_| {
        let (ready, healthy) = (ready.load(Relaxed), health.is_healthy(Moment::now()));
        let body = format!(
            "{{\n\t\"service\": {{\n{service}\t}},\n\t\"localEndpoints\": {ready},\n\
             \t\"serviceProxyHealthy\": {healthy}\n}}"
        );
        let code = if ready > 0 && healthy { 200 } else { 503 };
        let mut page = Page::new(code, JSON, body);
        page.headers.push(("x-load-balancing-endpoint-weight", ready.to_string()));
        page
    }
}
