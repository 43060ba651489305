//! What the proxy does, for people: `/routes`, and gauges computed when somebody asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use zonewise_routing::{ObjectReader, TrafficPolicy};
use zonewise_telemetry::metrics::{Kind, MetricError, Registry};

use crate::kernel::Kernel;
use crate::rules::entries::{Portion, Programmed, Targets};
use crate::rules::layout::FAMILIES;
use crate::watches::Known;

type SharedKernel = Arc<Mutex<Option<Kernel>>>;

/// One port of a Service in one family, as `zonewise route` shows it too.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    service: String,
    port: String,
    protocol: String,
    family: &'static str,
    mode: &'static str,
    reason: String,
    sentence: String,
    cluster: Vec<String>,
    local: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Box<[u32]>>,
    has_any_endpoints: bool,
}

/// All Service ports with their endpoints, and why these.
pub fn routes(kernel: &SharedKernel, known: &Known) -> String {
    let kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let services = kernel.as_ref().map(|kernel| kernel.desired().services());
    let lines: Vec<Line> =
        services.into_iter().flat_map(BTreeMap::values).flat_map(lines).collect();
    let reader = known.reader();
    let location = reader.location();
    let document = serde_json::json!({
        "node": location.node, "zone": location.zone, "region": location.region, "routes": lines,
    });
    document.to_string()
}

/// The lines of one Service.
pub fn lines(programmed: &Programmed) -> Vec<Line> {
    let service = &programmed.service;
    let ports = service.ports.iter().zip(&programmed.ports);
    let families = ports.flat_map(|(port, portions)| {
        let portions = FAMILIES.iter().zip(portions);
        portions.filter_map(move |(family, portion)| Some((port, family, portion.as_ref()?)))
    });
    families
        .map(|(port, family, portion)| Line {
            service: format!("{}/{}", service.namespace, service.name),
            port: port.name.to_string(),
            protocol: port.protocol.to_string(),
            family: if *family == FAMILIES[0] { "IPv4" } else { "IPv6" },
            mode: portion.mode.as_str(),
            reason: portion.reason.code().to_string(),
            sentence: portion.reason.to_string(),
            cluster: texts(&portion.cluster),
            local: texts(&portion.local),
            weights: portion.weights.clone(),
            has_any_endpoints: portion.has_any,
        })
        .collect()
}

fn texts(targets: &Targets) -> Vec<String> {
    targets.iter().map(|target| target.to_string()).collect()
}

/// Registers what is computed from the tables when it is asked for.
///
/// # Errors
/// If a name is taken.
pub fn gauges(
    registry: &Registry,
    kernel: &SharedKernel,
    known: &Arc<Known>,
) -> Result<(), MetricError> {
    ports(registry, kernel)?;
    no_local(registry, kernel)?;
    tables(registry, kernel)?;
    service_connections(registry, kernel)?;
    connections(registry, kernel, known)
}

/// What is computed from the kernel's side alone.
fn tables(registry: &Registry, kernel: &SharedKernel) -> Result<(), MetricError> {
    let gauge = |name: &str, help: &str, kind, value: fn(&Kernel) -> f64| {
        let kernel = Arc::clone(kernel);
        registry.collect(name, help, kind, [], move |samples| {
            let kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push([], kernel.as_ref().map_or(0.0, value));
        })
    };
    let contested = "Addresses and ports that more than one Service asks for";
    gauge("zonewise_proxy_contested_frontends", contested, Kind::Gauge, |kernel| {
        kernel.desired().contested().count() as f64
    })?;
    let batches = "Batches that the kernel has taken";
    gauge("zonewise_proxy_batches_total", batches, Kind::Counter, |kernel| kernel.batches() as f64)
}

/// Connections per Service port, where that is counted.
fn service_connections(registry: &Registry, kernel: &SharedKernel) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_service_connections_total",
        "Connections from this node, by Service and port; with --count services",
    );
    let labels = ["namespace", "service", "protocol", "port"];
    let kernel = Arc::clone(kernel);
    registry.collect(name, help, Kind::Counter, labels, move |samples| {
        let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = kernel.as_mut().map(Kernel::service_connections);
        for ((service, protocol, port), count) in counts.and_then(Result::ok).unwrap_or_default() {
            let values = [&*service.0, &*service.1, &protocol, &port.to_string()];
            samples.push(values, count as f64);
        }
    })
}

/// Hands every portion of every Service to `take`.
fn each(kernel: &SharedKernel, mut take: impl FnMut(&Programmed, usize, &Portion)) {
    let kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let services = kernel.as_ref().map(|kernel| kernel.desired().services());
    for programmed in services.into_iter().flat_map(BTreeMap::values) {
        for portions in &programmed.ports {
            for (family, portion) in portions.iter().enumerate() {
                portion.iter().for_each(|portion| take(programmed, family, portion));
            }
        }
    }
}

fn ports(registry: &Registry, kernel: &SharedKernel) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_service_ports",
        "Service ports by how their endpoints are chosen, and why",
    );
    let kernel = Arc::clone(kernel);
    registry.collect(name, help, Kind::Gauge, ["mode", "reason"], move |samples| {
        let mut counts: BTreeMap<(&str, String), u32> = BTreeMap::new();
        each(&kernel, |_, _, portion| {
            let reason = portion.reason.code().to_string();
            *counts.entry((portion.mode.as_str(), reason)).or_default() += 1;
        });
        for ((mode, reason), count) in counts {
            samples.push([mode, &reason], f64::from(count));
        }
    })
}

fn no_local(registry: &Registry, kernel: &SharedKernel) -> Result<(), MetricError> {
    let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
    let help = "Service ports with a Local policy and no endpoint on this node";
    let labels = ["traffic_policy", "ip_family"];
    let kernel = Arc::clone(kernel);
    registry.collect(name, help, Kind::Gauge, labels, move |samples| {
        let mut counts = [[0_u32; 2]; 2];
        each(&kernel, |programmed, family, portion| {
            let without = portion.has_any && portion.local.is_empty();
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
    kernel: &SharedKernel,
    known: &Arc<Known>,
) -> Result<(), MetricError> {
    let (name, help) = (
        "zonewise_proxy_connections_total",
        "Connections through Services from this node, by zone of the endpoint",
    );
    let (kernel, known) = (Arc::clone(kernel), Arc::clone(known));
    registry.collect(name, help, Kind::Counter, ["from_zone", "to_zone"], move |samples| {
        let reader = known.reader();
        let from = reader.location().zone.clone().unwrap_or_default();
        for (zone, count) in by_zone(&kernel, &reader) {
            samples.push([&from, &zone], count as f64);
        }
    })
}

fn by_zone(kernel: &SharedKernel, reader: &ObjectReader) -> BTreeMap<String, u64> {
    let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = kernel.as_mut() else { return BTreeMap::new() };
    let zones = kernel.counters_of_zones();
    let counts = kernel.zone_connections().unwrap_or_default();
    let named = counts.into_iter().filter_map(|(counter, count)| {
        let zone = reader.zone_name(*zones.get(&counter)?)?;
        Some((zone.to_string(), count))
    });
    named.collect()
}
