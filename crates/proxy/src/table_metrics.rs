//! Metrics that are computed from the kernel's tables when they are scraped.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::name::Name;
use zonewise_common::proxy_pages::{SERVICE_BYTES, SERVICE_CONNECTIONS};
use zonewise_nft::Network;
use zonewise_routing::TrafficPolicy;
use zonewise_telemetry::metrics::{Kind, MetricError, Registry};
use zonewise_topology::reason::Code;

use crate::connections::service_counts::{Counting, ServiceCount, ServiceCounts};
use crate::connections::{Pace, Reading, by_zone};
use crate::published::{Published, PublishedService};
use crate::rules::entries::PortRoute;
use crate::watches::ClusterView;

/// Registers them. Returns what was counted by Service, for others who want to know it.
///
/// # Errors
/// If a name is taken.
pub(crate) fn register(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    network: &Network,
    counting: Counting,
) -> Result<Arc<ServiceCounts>, MetricError> {
    ports(registry, published)?;
    no_local(registry, published)?;
    tables(registry, published)?;
    over_budget(registry, published)?;
    let names = Arc::clone(cluster);
    let name = move |zone| {
        names.reader().zone_name(zone).map_or_else(String::new, |name| name.to_string())
    };
    let counts = ServiceCounts::start(network, published, Box::new(name), counting);
    let counts = Arc::new(counts);
    connections(registry, published, cluster, network, &counts)?;
    service_connections(registry, cluster, &counts)?;
    failed_connections(registry, cluster, &counts)?;
    unassigned_connections(registry, published, cluster, &counts)?;
    service_bytes(registry, cluster, &counts)?;
    unassigned_bytes(registry, published)?;
    Ok(counts)
}

/// The zone of this node.
pub(crate) fn own_zone(cluster: &ClusterView) -> Name {
    cluster.reader().location().zone.clone().unwrap_or_default()
}

/// Figures about the tables as a whole.
fn tables(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let gauge = |name: &str, help: &str, kind, value: fn(&Published) -> f64| {
        let published = Arc::clone(published);
        registry.collect(name, help, kind, [], move |samples| {
            samples.push([], value(&published));
        })
    };
    let contested =
        "Addresses and ports that Services ask for and do not get (reason AddressRefused)";
    gauge("zonewise_proxy_contested_frontends", contested, Kind::Gauge, |published| {
        published.services().iter().map(|known| known.refused.len()).sum::<usize>() as f64
    })?;
    let elements = "nftables elements that the Services need for what they are granted";
    gauge("zonewise_proxy_elements", elements, Kind::Gauge, |published| {
        published.elements() as f64
    })?;
    let batches = "Batches that the kernel has accepted";
    gauge("zonewise_proxy_batches_total", batches, Kind::Counter, |published| {
        published.batches() as f64
    })
}

/// Services that ask for more elements than they may have, by what they lose.
fn over_budget(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_over_budget_services",
        "Services that need more nftables elements than their limit, by what they lose",
    );
    let published = Arc::clone(published);
    registry.collect(name, help, Kind::Gauge, ["lost"], move |samples| {
        let services = published.services();
        let over = services.iter().filter(|known| known.grant.is_some());
        let addresses = over.clone().filter(|known| known.lost_frontends().is_some()).count();
        samples.push(["addresses"], addresses as f64);
        samples.push(["weights"], (over.count() - addresses) as f64);
    })
}

/// Connections per Service and zone, where that is counted.
fn service_connections(
    registry: &Registry,
    cluster: &Arc<ClusterView>,
    counts: &Arc<ServiceCounts>,
) -> Result<(), MetricError> {
    let (name, help) = (
        SERVICE_CONNECTIONS,
        "Connections from this node to a Service, by zone of the endpoint; with --count services",
    );
    let labels = ["namespace", "service", "from_zone", "to_zone"];
    let (counts, cluster) = (Arc::clone(counts), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        let from = own_zone(&cluster);
        for ServiceCount { service: (namespace, service), to_zone, sum } in counts.get() {
            samples.push([&namespace, &service, &from, &to_zone], sum.connections as f64);
        }
    })
}

/// Connections per Service and zone that have failed, where that is counted.
fn failed_connections(
    registry: &Registry,
    cluster: &Arc<ClusterView>,
    counts: &Arc<ServiceCounts>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_service_failed_connections_total",
        "TCP connections from this node to a Service that the endpoint has refused, or not answered for 4 seconds, by \
         zone of the endpoint; with --count services",
    );
    let labels = ["namespace", "service", "from_zone", "to_zone"];
    let (counts, cluster) = (Arc::clone(counts), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        if !counts.has_failed() {
            return;
        }
        let from = own_zone(&cluster);
        for ServiceCount { service: (namespace, service), to_zone, sum } in counts.get() {
            samples.push([&namespace, &service, &from, &to_zone], sum.failed as f64);
        }
    })
}

/// Connections that are not in the metric of Services.
fn unassigned_connections(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    counts: &Arc<ServiceCounts>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_unassigned_connections_total",
        "Connections that are not in zonewise_service_connections_total: too_many_services are used from this node, or \
         no_service has the address that they were made to",
    );
    let labels = ["from_zone", "to_zone", "reason"];
    let (published, counts) = (Arc::clone(published), Arc::clone(counts));
    let cluster = Arc::clone(cluster);
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        counts.refresh();
        let from = own_zone(&cluster);
        for (to, why, count) in published.connections().unassigned() {
            samples.push([&from, to, why.as_str()], count as f64);
        }
    })
}

/// The directions of bytes.
const TO: &str = "to_endpoint";
const FROM: &str = "from_endpoint";

/// Bytes per Service and zone, where they are counted.
fn service_bytes(
    registry: &Registry,
    cluster: &Arc<ClusterView>,
    counts: &Arc<ServiceCounts>,
) -> Result<(), MetricError> {
    let (name, help) = (
        SERVICE_BYTES,
        "Bytes of connections from this node to a Service that have ended or carry much, IP headers included, by zone \
         of the endpoint; with --count-bytes",
    );
    let labels = ["namespace", "service", "from_zone", "to_zone", "direction"];
    let (counts, cluster) = (Arc::clone(counts), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        if !counts.has_bytes() {
            return;
        }
        let from = own_zone(&cluster);
        for ServiceCount { service: (namespace, service), to_zone, sum } in counts.get() {
            for (direction, bytes) in [(TO, sum.bytes.original), (FROM, sum.bytes.reply)] {
                samples.push([&namespace, &service, &from, &to_zone, direction], bytes as f64);
            }
        }
    })
}

fn unassigned_bytes(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_unassigned_bytes_total",
        "Bytes that are not in zonewise_service_bytes_total: too_many_services are used from this node, or no_service \
         has the address, or the endpoint, of the connection any more",
    );
    let ledger = Arc::clone(published);
    registry.collect(name, help, Kind::Counter, ["direction", "reason"], move |samples| {
        for (why, bytes) in ledger.connections().unassigned_bytes() {
            samples.push([TO, why.as_str()], bytes.original as f64);
            samples.push([FROM, why.as_str()], bytes.reply as f64);
        }
    })?;
    let (name, help) = (
        "zonewise_proxy_lost_flow_events_total",
        "How often conntrack events of ended connections were lost, because there were too many at once or reading failed; \
         the bytes of those connections are not counted",
    );
    let ledger = Arc::clone(published);
    registry.collect(name, help, Kind::Counter, [], move |samples| {
        samples.push([], ledger.connections().lost() as f64);
    })
}

/// Calls `take` with every Service port in every family: the Service, the place of the family in
/// arrays, and the routes.
fn each(published: &Published, mut take: impl FnMut(&PublishedService, usize, &PortRoute)) {
    for known in published.services() {
        for families in &*known.programmed.ports {
            for (family, route) in families.iter().enumerate() {
                route.iter().for_each(|route| take(&known, family, route));
            }
        }
    }
}

fn ports(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_service_ports",
        "Service ports by how their endpoints are chosen, and why",
    );
    let published = Arc::clone(published);
    registry.collect(name, help, Kind::Gauge, ["mode", "reason"], move |samples| {
        let mut counts: BTreeMap<(&str, Code), u32> = BTreeMap::new();
        each(&published, |known, _, route| {
            *counts.entry((route.mode.as_str(), known.reason(route).code())).or_default() += 1;
        });
        for ((mode, reason), count) in counts {
            samples.push([mode, &reason.to_string()], f64::from(count));
        }
    })
}

fn no_local(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    let help = "Service ports with a Local policy and no endpoint on this node";
    let labels = ["traffic_policy", "ip_family"];
    let published = Arc::clone(published);
    registry.collect(name, help, Kind::Gauge, labels, move |samples| {
        let mut counts = [[0_u32; 2]; 2];
        each(&published, |known, family, route| {
            let without = route.has_any && route.local.is_empty();
            let service = &known.programmed.service;
            let policies = [service.internal_policy, service.external_policy];
            for (policy, count) in policies.iter().zip(&mut counts) {
                count[family] += u32::from(without && *policy == TrafficPolicy::Local);
            }
        });
        for (policy, counts) in ["internal", "external"].iter().zip(counts) {
            for (family, count) in ["IPv4", "IPv6"].iter().zip(counts) {
                samples.push([policy, family], f64::from(count));
            }
        }
    })
}

/// Connections from here to each zone, from the kernel's counters.
fn connections(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    network: &Network,
    by_service: &Arc<ServiceCounts>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_connections_total",
        "Connections through Services from this node, by zone of the endpoint",
    );
    let (published, cluster) = (Arc::clone(published), Arc::clone(cluster));
    let (by_service, counts) =
        (Arc::clone(by_service), Reading::start(network, Pace::Asked, by_zone));
    registry.collect(name, help, Kind::Counter, ["from_zone", "to_zone"], move |samples| {
        // All are read at the same time: this metric comes first on the page.
        by_service.ask();
        let from = own_zone(&cluster);
        let counts = counts.get();
        for (counter, zone) in published.zones() {
            if let Some(count) = counts.get(&counter) {
                samples.push([&from, &zone], *count as f64);
            }
        }
    })
}
