//! Queries that ask a Prometheus for demand.
//!
//! A query of rates gives an instant vector with the labels `namespace`, `service` and `zone`: connections per second to
//! the Service that start in the zone. `$window` in it stands for the time that rates are taken over.
//!
//! Prometheus gives a label of a metric the prefix `exported_` where it has the same label of the target. Its operator does
//! that with `namespace`, so the queries take both.

use serde::Deserialize;

/// Where the numbers come from that a Prometheus has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The proxies of zonewise, which count by Service (`count: services`).
    #[default]
    Zonewise,
    /// Cilium's Hubble.
    Hubble,
    /// Istio's proxies.
    Istio,
}

/// What a Prometheus is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    /// Connections per second by Service and zone.
    pub rates: String,
    /// The same, of the node alone that sends most.
    pub largest: Option<String>,
    /// How many nodes of each zone are scraped.
    pub reporting: Option<String>,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Zonewise, Self::Hubble, Self::Istio];

    /// Its name in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zonewise => "zonewise",
            Self::Hubble => "hubble",
            Self::Istio => "istio",
        }
    }

    /// Its queries. `$window` is not replaced yet.
    pub fn queries(self) -> Queries {
        match self {
            Self::Zonewise => zonewise(),
            Self::Hubble => joined(HUBBLE),
            Self::Istio => joined(ISTIO),
        }
    }
}

impl Queries {
    /// With rates over this time, such as `2m`.
    #[must_use]
    pub fn over(self, window: &str) -> Self {
        let over = |query: String| query.replace("$window", window);
        Self {
            rates: over(self.rates),
            largest: self.largest.map(over),
            reporting: self.reporting.map(over),
        }
    }
}

/// Gives a label another name.
fn named(vector: &str, to: &str, from: &str) -> String {
    format!(r#"label_replace({vector}, "{to}", "$1", "{from}", "(.+)")"#)
}

fn zonewise() -> Queries {
    let rate = r#"rate(zonewise_service_connections_total{from_zone!=""}[$window])"#;
    let renamed = [
        ("namespace", "exported_namespace"),
        ("service", "exported_service"),
        ("zone", "from_zone"),
    ]
    .iter()
    .fold(rate.to_owned(), |vector, (to, from)| named(&vector, to, from));
    let scraped = named(r#"zonewise_proxy_connections_total{from_zone!=""}"#, "zone", "from_zone");
    Queries {
        rates: format!("sum by (namespace, service, zone) ({renamed})"),
        largest: Some(format!(
            "max by (namespace, service, zone) (sum by (namespace, service, zone, instance) ({renamed}))"
        )),
        reporting: Some(format!("count by (zone) (count by (zone, instance) ({scraped}))")),
    }
}

/// New connections as Hubble sees them where they start. Hubble knows workloads: a Service has to have the name of its.
const HUBBLE: &str = r#"label_replace(label_replace(sum by (destination_namespace, destination_workload, node) (rate(hubble_tcp_flags_total{flag="SYN", traffic_direction="egress", destination_workload!=""}[$window])), "namespace", "$1", "destination_namespace", "(.+)"), "service", "$1", "destination_workload", "(.+)")"#;

/// Requests as Istio's proxies count them where they start; the Pod is joined with its node.
const ISTIO: &str = r#"label_replace(label_replace(sum by (destination_service_namespace, destination_service_name, node) (sum by (destination_service_namespace, destination_service_name, namespace, pod) (rate(istio_requests_total{reporter="source"}[$window])) * on (namespace, pod) group_left (node) max by (namespace, pod, node) (kube_pod_info{node!=""})), "namespace", "$1", "destination_service_namespace", "(.+)"), "service", "$1", "destination_service_name", "(.+)")"#;

/// Rates by node, joined with the zone of the node as kube-state-metrics tells it.
fn joined(by_node: &str) -> Queries {
    let zones = r#"max by (node, label_topology_kubernetes_io_zone) (kube_node_labels{label_topology_kubernetes_io_zone!=""})"#;
    let by_node = format!("sum by (namespace, service, node) ({by_node})");
    let joined =
        format!("{by_node} * on (node) group_left (label_topology_kubernetes_io_zone) {zones}");
    let zoned = named(&joined, "zone", "label_topology_kubernetes_io_zone");
    Queries {
        rates: format!("sum by (namespace, service, zone) ({zoned})"),
        largest: Some(format!("max by (namespace, service, zone) ({zoned})")),
        reporting: None,
    }
}
