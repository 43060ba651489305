//! Metrics that are computed from the kernel's tables when they are scraped.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_routing::{ObjectReader, TrafficPolicy};
use zonewise_telemetry::metrics::{Kind, MetricError, Registry};

use crate::kernel::{CountedPort, Kernel, KernelHandle};
use crate::rules::entries::{PortRoute, ProgrammedService};
use crate::watches::ClusterView;

/// Registers them.
///
/// # Errors
/// If a name is taken.
pub(crate) fn register(
    registry: &Registry,
    kernel: &KernelHandle,
    cluster: &Arc<ClusterView>,
) -> Result<(), MetricError> {
    ports(registry, kernel)?;
    no_local(registry, kernel)?;
    tables(registry, kernel)?;
    service_connections(registry, kernel)?;
    connections(registry, kernel, cluster)
}

/// Figures about the tables as a whole.
fn tables(registry: &Registry, kernel: &KernelHandle) -> Result<(), MetricError> {
    let gauge = |name: &str, help: &str, kind, value: fn(&Kernel) -> f64| {
        let kernel = kernel.clone();
        registry.collect(name, help, kind, [], move |samples| {
            samples.push([], kernel.with(|kernel| value(kernel)).unwrap_or(0.0));
        })
    };
    let contested =
        "Addresses and ports that Services ask for and do not get, because they belong to others";
    gauge("zonewise_proxy_contested_frontends", contested, Kind::Gauge, |kernel| {
        kernel.desired().ownership().refused().count() as f64
    })?;
    let batches = "Batches that the kernel has accepted";
    gauge("zonewise_proxy_batches_total", batches, Kind::Counter, |kernel| kernel.batches() as f64)
}

/// Connections per Service port, where that is counted.
fn service_connections(registry: &Registry, kernel: &KernelHandle) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_service_connections_total",
        "Connections from this node, by Service and port; with --count services",
    );
    let labels = ["namespace", "service", "protocol", "port"];
    let kernel = kernel.clone();
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        let counts = kernel.with(Kernel::service_connections).and_then(Result::ok);
        for (CountedPort { service, protocol, port }, count) in counts.unwrap_or_default() {
            let values = [&*service.0, &*service.1, &protocol, &port.to_string()];
            samples.push(values, count as f64);
        }
    })
}

/// Calls `take` with every Service port in every family: the Service, the place of the family in
/// arrays, and the routes.
fn each(kernel: &KernelHandle, mut take: impl FnMut(&ProgrammedService, usize, &PortRoute)) {
    kernel.with(|kernel| {
        for programmed in kernel.desired().services().values() {
            for families in &programmed.ports {
                for (family, route) in families.iter().enumerate() {
                    route.iter().for_each(|route| take(programmed, family, route));
                }
            }
        }
    });
}

fn ports(registry: &Registry, kernel: &KernelHandle) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_service_ports",
        "Service ports by how their endpoints are chosen, and why",
    );
    let kernel = kernel.clone();
    registry.collect(name, help, Kind::Gauge, ["mode", "reason"], move |samples| {
        let mut counts: BTreeMap<(&str, String), u32> = BTreeMap::new();
        each(&kernel, |_, _, route| {
            let reason = route.reason.code().to_string();
            *counts.entry((route.mode.as_str(), reason)).or_default() += 1;
        });
        for ((mode, reason), count) in counts {
            samples.push([mode, &reason], f64::from(count));
        }
    })
}

fn no_local(registry: &Registry, kernel: &KernelHandle) -> Result<(), MetricError> {
    let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    let help = "Service ports with a Local policy and no endpoint on this node";
    let labels = ["traffic_policy", "ip_family"];
    let kernel = kernel.clone();
    registry.collect(name, help, Kind::Gauge, labels, move |samples| {
        let mut counts = [[0_u32; 2]; 2];
        each(&kernel, |programmed, family, route| {
            let without = route.has_any && route.local.is_empty();
            let policies = [programmed.service.internal_policy, programmed.service.external_policy];
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
    kernel: &KernelHandle,
    cluster: &Arc<ClusterView>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_connections_total",
        "Connections through Services from this node, by zone of the endpoint",
    );
    let (kernel, cluster) = (kernel.clone(), Arc::clone(cluster));
    registry.collect(name, help, Kind::Counter, ["from_zone", "to_zone"], move |samples| {
        let reader = cluster.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        for (zone, count) in by_zone(&kernel, &reader) {
            samples.push([&from, &zone], count as f64);
        }
    })
}

fn by_zone(kernel: &KernelHandle, reader: &ObjectReader) -> BTreeMap<String, u64> {
    let counted = kernel.with(|kernel| {
        let zones = kernel.counters_of_zones();
        (zones, kernel.zone_connections().unwrap_or_default())
    });
    let (zones, counts) = counted.unwrap_or_default();
    let named = counts.into_iter().filter_map(|(counter, count)| {
        let zone = reader.zone_name(*zones.get(&counter)?)?;
        Some((zone.to_string(), count))
    });
    named.collect()
}
