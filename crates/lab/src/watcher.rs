//! Observes the cluster: routes and metrics of the proxies, Services of the API server.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use zonewise_cluster::api::ApiError;
use zonewise_common::keys::{
    CONDITION_PREFIX, ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE,
};
use zonewise_netns::NetnsNode;
use zonewise_netns::traffic::http_get;

use crate::api::{Api, SERVICES};
use crate::proxies::PAGES;
use crate::view::Programming;

/// What a Service asks for and what it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceStatus {
    /// The annotation or field that asks for zone routing, in short; empty if there is none.
    pub(crate) asked: String,
    /// The controller's reason, if it gave one.
    pub(crate) reason: Option<String>,
}

/// How the proxies route a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routed {
    /// Their modes.
    pub(crate) modes: BTreeSet<String>,
    /// Their reasons.
    pub(crate) reasons: BTreeSet<String>,
}

/// The status of all Services of the lab's namespace, by name.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn statuses(api: &Api) -> Result<BTreeMap<String, ServiceStatus>, ApiError> {
    let services = api.list(SERVICES, "").await?;
    let name =
        |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(services.iter().map(|service| (name(service), service_status(service))).collect())
}

fn service_status(service: &Value) -> ServiceStatus {
    let conditions = service["status"]["conditions"].as_array();
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let programmed = conditions.into_iter().flatten().find(|condition| condition["type"] == *kind);
    ServiceStatus {
        asked: asked(service),
        reason: programmed.and_then(|one| one["reason"].as_str()).map(str::to_owned),
    }
}

/// The keys that zone routing is asked for with, strongest first.
const KEYS: [(&str, &str); 4] = [
    (ROUTING_PREFERENCE, "preference"),
    (SUBSETTING, "subsetting"),
    (TOPOLOGY_MODE, "topology-mode"),
    (TOPOLOGY_AWARE_HINTS, "topology-aware-hints"),
];

fn asked(service: &Value) -> String {
    let annotations = &service["metadata"]["annotations"];
    let given = KEYS
        .iter()
        .find_map(|(key, short)| annotations[key].as_str().map(|value| format!("{short}={value}")));
    let distribution = service["spec"]["trafficDistribution"].as_str();
    given.or(distribution.map(|value| format!("distribution={value}"))).unwrap_or_default()
}

/// A node's routes, as the JSON text of its proxy.
pub(crate) fn routes_page(node: &NetnsNode) -> Option<String> {
    http_get(&node.namespace, PAGES, "/routes")
}

#[derive(Deserialize)]
struct Routes {
    routes: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    service: String,
    mode: String,
    reason: String,
}

/// How the nodes route each Service of the lab's namespace, by name.
pub(crate) fn routed<'p>(pages: impl Iterator<Item = &'p str>) -> BTreeMap<String, Routed> {
    let mut all: BTreeMap<String, Routed> = BTreeMap::new();
    for routes in pages.filter_map(|page| serde_json::from_str::<Routes>(page).ok()) {
        for line in routes.routes {
            let name = line.service.strip_prefix("default/").unwrap_or(&line.service);
            let known = all.entry(name.to_owned()).or_default();
            known.modes.insert(line.mode);
            known.reasons.insert(line.reason);
        }
    }
    all
}

/// What a proxy's metrics say about writing rules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SyncMetrics {
    /// When rules were last written, in seconds since the Unix epoch.
    pub(crate) last_sync: f64,
    /// Total time of all writes, in seconds.
    pub(crate) sum: f64,
    /// Number of writes.
    pub(crate) count: f64,
}

/// Reads the metrics of a node's proxy.
pub(crate) fn sync_metrics(node: &NetnsNode) -> Option<SyncMetrics> {
    http_get(&node.namespace, PAGES, "/metrics").map(|text| read(&text))
}

fn read(metrics: &str) -> SyncMetrics {
    let values = |name: &'static str| {
        metrics.lines().filter_map(move |line| {
            let (key, value) = line.rsplit_once(' ')?;
            let bare = key.split('{').next()?;
            (bare == name).then(|| value.parse::<f64>().ok())?
        })
    };
    SyncMetrics {
        last_sync: values("kubeproxy_sync_proxy_rules_last_timestamp_seconds").fold(0.0, f64::max),
        sum: values("kubeproxy_sync_proxy_rules_duration_seconds_sum").sum(),
        count: values("kubeproxy_sync_proxy_rules_duration_seconds_count").sum(),
    }
}

/// The average over all proxies.
pub(crate) fn programming(all_metrics: &[SyncMetrics]) -> Option<Programming> {
    let count: f64 = all_metrics.iter().map(|sync_metrics| sync_metrics.count).sum();
    let sum: f64 = all_metrics.iter().map(|sync_metrics| sync_metrics.sum).sum();
    (count > 0.0).then(|| Programming { mean: sum / count, count: count as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_strongest_key_is_what_a_service_asks_for() {
        let service = json!({
            "metadata": {"annotations": {
                TOPOLOGY_MODE: "Auto", ROUTING_PREFERENCE: "zonewise.dev/balanced",
            }},
            "spec": {"trafficDistribution": "PreferSameZone"},
            "status": {"conditions": [{
                "type": format!("{CONDITION_PREFIX}Programmed"), "status": "True", "reason": "SharesBalanced",
            }]},
        });
        assert_eq!(
            service_status(&service),
            ServiceStatus {
                asked: "preference=zonewise.dev/balanced".into(),
                reason: Some("SharesBalanced".into()),
            }
        );
        assert_eq!(service_status(&json!({"metadata": {}, "spec": {}})), ServiceStatus::default());
    }

    #[test]
    fn metrics_of_both_families_are_read_together() {
        let text = "# HELP x y\n\
            kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 12.5\n\
            kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 11\n\
            kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 0.25\n\
            kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 5\n";
        assert_eq!(read(text), SyncMetrics { last_sync: 12.5, sum: 0.25, count: 5.0 });
    }
}
