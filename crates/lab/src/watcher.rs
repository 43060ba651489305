//! Observes the cluster: routes and metrics of the proxies, Services of the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde_json::Value;
use zonewise_cluster::api::ApiError;
use zonewise_common::keys::CONDITION_PREFIX;
use zonewise_slices::requested::{TRAFFIC_DISTRIBUTION, requested_routing};
use zonewise_slices::routing_keys::is_routing_key;
use zonewise_slices::settings::Settings;

use crate::api::{ALL_SERVICES, Api};
use crate::ground::Node;
use crate::kubelet::PodView;
use crate::view::Programming;

/// A Service: what it asks for and what it gets, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceStatus {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its selector.
    pub(crate) selector: BTreeMap<String, String>,
    /// Its cluster IP; headless Services have none.
    pub(crate) ip: Option<IpAddr>,
    /// Its first TCP port.
    pub(crate) port: Option<u16>,
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

impl ServiceStatus {
    /// Where clients connect to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip?, self.port?))
    }

    /// Whether the Service selects a Pod.
    pub(crate) fn selects(&self, pod: &PodView) -> bool {
        !self.selector.is_empty()
            && self.namespace == pod.namespace
            && self.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}

/// The name of an object on the screen: with its namespace, unless that is the lab's.
pub(crate) fn shown_name(namespace: &str, name: &str) -> String {
    if namespace == "default" { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// All Services by their names on the screen, without that of the API server.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn statuses(api: &Api) -> Result<BTreeMap<String, ServiceStatus>, ApiError> {
    let services = api.list(ALL_SERVICES, "").await?;
    let name = |service: &Value| {
        let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
        shown_name(text("namespace"), text("name"))
    };
    let all = services.iter().map(|service| (name(service), service_status(service)));
    Ok(all.filter(|(name, _)| name != "kubernetes").collect())
}

/// The text of a hosts file with all Services, under the names that the DNS of a cluster gives them.
pub(crate) fn hosts(statuses: &BTreeMap<String, ServiceStatus>) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (shown, status) in statuses {
        let Some(ip) = status.ip else { continue };
        let name = shown.rsplit('/').next().unwrap_or(shown);
        let full = format!("{name}.{}", status.namespace);
        let short = if name == shown { format!("{name} ") } else { String::new() };
        text += &format!("{ip} {short}{full} {full}.svc {full}.svc.cluster.local\n");
    }
    text
}

fn service_status(service: &Value) -> ServiceStatus {
    let conditions = service["status"]["conditions"].as_array();
    let kind = format!("{CONDITION_PREFIX}Programmed");
    let programmed = conditions.into_iter().flatten().find(|condition| condition["type"] == *kind);
    let spec = &service["spec"];
    let selector = spec["selector"].as_object().into_iter().flatten();
    let selector = selector.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.into())));
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    let port = ports.find(|port| port["protocol"].as_str().is_none_or(|name| name == "TCP"));
    let port = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    ServiceStatus {
        namespace: service["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
        selector: selector.collect(),
        ip: spec["clusterIP"].as_str().and_then(|ip| ip.parse().ok()),
        port,
        asked: asked(service),
        reason: programmed.and_then(|one| one["reason"].as_str()).map(str::to_owned),
    }
}

/// The key that the controller follows, in short, and its value; empty for the controller's default.
fn asked(service: &Value) -> String {
    let Ok(service) = serde_json::from_value(service.clone()) else { return String::new() };
    let requested = requested_routing(&service, &Settings::default());
    let source = requested.source;
    if source != TRAFFIC_DISTRIBUTION && !is_routing_key(source) {
        return String::new();
    }
    let key = source.rsplit(['/', '.']).next().unwrap_or(source);
    format!("{}={}", key.strip_prefix("routing-").unwrap_or(key), requested.value)
}

/// A node's routes, as the JSON text of its proxy.
pub(crate) fn routes_page(node: &Node) -> Option<String> {
    node.page("/routes")
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

/// How the nodes route each Service, by its name on the screen.
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
pub(crate) fn sync_metrics(node: &Node) -> Option<SyncMetrics> {
    node.page("/metrics").map(|text| read(&text))
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
    use serde_json::json;
    use zonewise_common::keys::{ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_MODE};

    use super::*;

    fn service(annotations: &Value) -> Value {
        json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "annotations": annotations,
            },
            "spec": {
                "trafficDistribution": "PreferSameZone", "selector": {"app": "web"},
                "clusterIP": "10.96.0.7",
                "ports": [{"port": 53, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}],
            },
            "status": {"conditions": [{
                "type": format!("{CONDITION_PREFIX}Programmed"), "status": "True", "reason": "SharesBalanced",
            }]},
        })
    }

    #[test]
    fn a_service_is_shown_with_what_the_controller_follows() {
        let expected = ServiceStatus {
            namespace: "shop".into(),
            selector: [("app".to_owned(), "web".to_owned())].into(),
            ip: Some([10, 96, 0, 7].into()),
            port: Some(80),
            asked: "trafficDistribution=PreferSameZone".into(),
            reason: Some("SharesBalanced".into()),
        };
        assert_eq!(service_status(&service(&json!({}))), expected);
        assert_eq!(service_status(&json!({"metadata": {}, "spec": {}})), ServiceStatus::default());
    }

    /// The order is the controller's: the key that loses is not what the Service gets.
    #[test]
    fn the_key_that_wins_is_shown() {
        let preference = (ROUTING_PREFERENCE, "zonewise.dev/balanced");
        let cases: [(&[(&str, &str)], &str); 4] = [
            (&[(TOPOLOGY_MODE, "Auto"), preference], "topology-mode=Auto"),
            (&[(SUBSETTING, "Auto"), preference], "subsetting=Auto"),
            (&[preference], "preference=zonewise.dev/balanced"),
            (&[(ROUTING_PREFERENCE, "balancd")], "trafficDistribution=PreferSameZone"),
        ];
        for (annotations, expected) in cases {
            let annotations: serde_json::Map<String, Value> =
                annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            assert_eq!(asked(&service(&annotations.into())), expected);
        }
    }

    #[test]
    fn services_have_the_names_that_the_dns_of_a_cluster_gives_them() {
        let status = |namespace: &str, last: u8| ServiceStatus {
            namespace: namespace.into(),
            ip: Some([10, 96, 0, last].into()),
            ..ServiceStatus::default()
        };
        let statuses = [
            ("headless".to_owned(), ServiceStatus { ip: None, ..status("default", 1) }),
            ("shop/cart".to_owned(), status("shop", 3)),
            ("web".to_owned(), status("default", 2)),
        ];
        assert_eq!(
            hosts(&statuses.into()),
            "127.0.0.1 localhost\n::1 localhost\n\
             10.96.0.3 cart.shop cart.shop.svc cart.shop.svc.cluster.local\n\
             10.96.0.2 web web.default web.default.svc web.default.svc.cluster.local\n"
        );
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
