//! What the cluster says about itself: pages of the proxies, objects of the API server.

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
pub struct Standing {
    /// In short; empty for nothing.
    pub asked: String,
    /// The controller's reason, if it gave one.
    pub reason: Option<String>,
}

/// How the proxies route a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Their modes.
    pub modes: BTreeSet<String>,
    /// Their reasons.
    pub reasons: BTreeSet<String>,
}

/// Standings of all Services of the lab's namespace, by name.
///
/// # Errors
/// If the API server does not answer.
pub async fn standings(api: &Api) -> Result<BTreeMap<String, Standing>, ApiError> {
    let services = api.list(SERVICES, "").await?;
    let name =
        |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(services.iter().map(|service| (name(service), standing(service))).collect())
}

fn standing(service: &Value) -> Standing {
    let conditions = service["status"]["conditions"].as_array();
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let programmed = conditions.into_iter().flatten().find(|condition| condition["type"] == *kind);
    Standing {
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

/// One node's routes, as text that changes when they do.
pub fn routes_page(node: &NetnsNode) -> Option<String> {
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
pub fn routed<'p>(pages: impl Iterator<Item = &'p str>) -> BTreeMap<String, Routed> {
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

/// What one proxy's metrics say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// When rules were last written, in seconds of the epoch.
    pub last_sync: f64,
    /// Seconds that writing rules took, added up.
    pub sum: f64,
    /// How many times they were written.
    pub count: f64,
}

/// One proxy's metrics.
pub fn pace(node: &NetnsNode) -> Option<Pace> {
    http_get(&node.namespace, PAGES, "/metrics").map(|text| read(&text))
}

fn read(metrics: &str) -> Pace {
    let values = |name: &'static str| {
        metrics.lines().filter_map(move |line| {
            let (key, value) = line.rsplit_once(' ')?;
            let bare = key.split('{').next()?;
            (bare == name).then(|| value.parse::<f64>().ok())?
        })
    };
    Pace {
        last_sync: values("kubeproxy_sync_proxy_rules_last_timestamp_seconds").fold(0.0, f64::max),
        sum: values("kubeproxy_sync_proxy_rules_duration_seconds_sum").sum(),
        count: values("kubeproxy_sync_proxy_rules_duration_seconds_count").sum(),
    }
}

/// What all of them say together.
pub fn programming(paces: &[Pace]) -> Option<Programming> {
    let count: f64 = paces.iter().map(|pace| pace.count).sum();
    let sum: f64 = paces.iter().map(|pace| pace.sum).sum();
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
            standing(&service),
            Standing {
                asked: "preference=zonewise.dev/balanced".into(),
                reason: Some("SharesBalanced".into()),
            }
        );
        assert_eq!(standing(&json!({"metadata": {}, "spec": {}})), Standing::default());
    }

    #[test]
    fn metrics_of_both_families_are_read_together() {
        let text = "# HELP x y\n\
            kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 12.5\n\
            kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv6\"} 11\n\
            kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 0.25\n\
            kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 5\n";
        assert_eq!(read(text), Pace { last_sync: 12.5, sum: 0.25, count: 5.0 });
    }
}
