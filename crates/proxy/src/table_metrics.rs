//! Metrics that are computed from the kernel's tables when they are scraped.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_nft::Network;
use zonewise_routing::{ObjectReader, TrafficPolicy};
use zonewise_telemetry::metrics::{Kind, MetricError, Registry};
use zonewise_topology::reason::Code;

use crate::config::{Config, CountBy};
use crate::connections::bytes::{DRAIN, Meter};
use crate::connections::{self, PERIOD, Reading};
use crate::kernel::counter_name;
use crate::published::{Published, PublishedService};
use crate::rules::entries::PortRoute;
use crate::watches::ClusterView;

/// What is counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counting {
    /// By what connections are.
    pub by: CountBy,
    /// Whether bytes are, too.
    pub bytes: bool,
}

impl From<&Config> for Counting {
    fn from(config: &Config) -> Self {
        Self { by: config.count, bytes: config.count_bytes }
    }
}

/// Has the connections of Services read into what is published.
type ByService = Reading<()>;

/// Registers them.
///
/// # Errors
/// If a name is taken.
pub(crate) fn register(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    network: &Network,
    count: Counting,
) -> Result<(), MetricError> {
    ports(registry, published)?;
    no_local(registry, published)?;
    tables(registry, published)?;
    over_budget(registry, published)?;
    let ledger = Arc::clone(published);
    let period = (count.by == CountBy::Services).then_some(PERIOD);
    let by_service = Reading::start(network, period, move |socket| match count.by {
        CountBy::Services => connections::by_service(socket, &ledger),
        CountBy::None | CountBy::Zones => Ok(()),
    });
    let by_service = Arc::new(by_service);
    service_connections(registry, published, cluster, Arc::clone(&by_service))?;
    unassigned(registry, published, cluster, Arc::clone(&by_service))?;
    bytes(registry, published, cluster, network, count)?;
    connections(registry, published, cluster, network, by_service)
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
        "Addresses and ports that Services ask for and do not get, because they belong to others";
    gauge("zonewise_proxy_contested_frontends", contested, Kind::Gauge, |published| {
        published.services().iter().map(|known| known.refused.len()).sum::<usize>() as f64
    })?;
    let elements = "Kernel elements that the Services need for what they are granted";
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
        "Services that ask for more kernel elements than they may have, by what they lose for it",
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
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    reading: Arc<ByService>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_service_connections_total",
        "Connections from this node to a Service, by zone of the endpoint; with --count services",
    );
    let labels = ["namespace", "service", "from_zone", "to_zone"];
    let (published, cluster) = (Arc::clone(published), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        reading.get();
        let reader = cluster.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        let zones = zones(&published, &reader);
        for (zone, (namespace, service), count) in published.connections().sums() {
            if let Some(to) = zones.get(zone) {
                samples.push([namespace, service, &from, to], count as f64);
            }
        }
    })
}

/// Connections to Services for which there is no room in the metric of Services.
fn unassigned(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    reading: Arc<ByService>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_unassigned_connections_total",
        "Connections that zonewise_service_connections_total has not, because too many Services are used from this node",
    );
    let (published, cluster) = (Arc::clone(published), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, ["from_zone", "to_zone"], move |samples| {
        reading.get();
        let reader = cluster.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        let zones = zones(&published, &reader);
        for (zone, count) in published.connections().unassigned() {
            if let Some(to) = zones.get(zone) {
                samples.push([&from, to], count as f64);
            }
        }
    })
}

/// Bytes per Service and zone, and what is missing there, where that is counted.
fn bytes(
    registry: &Registry,
    published: &Arc<Published>,
    cluster: &Arc<ClusterView>,
    network: &Network,
    count: Counting,
) -> Result<(), MetricError> {
    let names = Arc::clone(cluster);
    let name = move |zone| {
        names.reader().zone_name(zone).map_or_else(String::new, |name| name.to_string())
    };
    let mut meter = Meter::new(network.clone(), Arc::clone(published), Box::new(name));
    let reading = count.bytes.then(|| Reading::start(network, Some(DRAIN), move |_| meter.read()));
    let (name, help) = (
        "zonewise_service_bytes_total",
        "Bytes of connections from this node to a Service that have ended or carry much, IP headers included, by zone \
         of the endpoint; with --count-bytes",
    );
    let labels = ["namespace", "service", "from_zone", "to_zone", "direction"];
    let (ledger, cluster) = (Arc::clone(published), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        if let Some(reading) = &reading {
            reading.get();
        }
        let reader = cluster.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        let zones = zones(&ledger, &reader);
        for (zone, (namespace, service), sum) in ledger.connections().bytes() {
            let Some(to) = zones.get(zone) else { continue };
            for (direction, bytes) in [(TO, sum.original), (FROM, sum.reply)] {
                samples.push([namespace, service, &from, to, direction], bytes as f64);
            }
        }
    })?;
    missing_bytes(registry, published)
}

/// The directions of bytes.
const TO: &str = "to_endpoint";
const FROM: &str = "from_endpoint";

fn missing_bytes(registry: &Registry, published: &Arc<Published>) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_unassigned_bytes_total",
        "Bytes that zonewise_service_bytes_total has not, because too many Services are used from this node",
    );
    let ledger = Arc::clone(published);
    registry.collect(name, help, Kind::Counter, ["direction"], move |samples| {
        let beyond = ledger.connections().beyond_bytes();
        samples.push([TO], beyond.original as f64);
        samples.push([FROM], beyond.reply as f64);
    })?;
    let (name, help) = (
        "zonewise_proxy_lost_flow_events_total",
        "How often connections ended faster than they could be read, so that bytes of some are not counted",
    );
    let ledger = Arc::clone(published);
    registry.collect(name, help, Kind::Counter, [], move |samples| {
        samples.push([], ledger.connections().lost() as f64);
    })
}

/// The names of zones by those of their counters. The zone of endpoints without one has an empty name.
fn zones(published: &Published, reader: &ObjectReader) -> BTreeMap<String, String> {
    let name = |zone| reader.zone_name(zone).map_or_else(String::new, |name| name.to_string());
    let names = published.zones().into_iter().map(name);
    names.map(|name| (counter_name(&name), name)).collect()
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
    by_service: Arc<ByService>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_connections_total",
        "Connections through Services from this node, by zone of the endpoint",
    );
    let (published, cluster) = (Arc::clone(published), Arc::clone(cluster));
    let counts = Reading::start(network, None, connections::by_zone);
    registry.collect(name, help, Kind::Counter, ["from_zone", "to_zone"], move |samples| {
        // Both are read at the same time: this metric comes first on the page.
        by_service.ask();
        let reader = cluster.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        for (zone, count) in by_zone(&counts.get(), &published, &reader) {
            samples.push([&from, &zone], count as f64);
        }
    })
}

/// Counts by name of the zone's counter, as counts by name of the zone.
fn by_zone(
    counts: &BTreeMap<String, u64>,
    published: &Published,
    reader: &ObjectReader,
) -> Vec<(String, u64)> {
    let names = zones(published, reader).into_iter();
    names.filter_map(|(counter, name)| Some((name, *counts.get(&counter)?))).collect()
}
