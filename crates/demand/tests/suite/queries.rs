//! What a Prometheus is asked for demand.

use serde_json::json;
use zonewise_demand::queries::{Preset, Queries};

#[test]
fn presets_are_read_by_their_names() {
    for preset in Preset::ALL {
        assert_eq!(serde_json::from_value::<Preset>(json!(preset.name())).unwrap(), preset);
    }
    assert_eq!(Preset::ALL.map(Preset::name), ["zonewise", "hubble", "istio"]);
}

/// Zonewise's own proxies have the zone of a connection in a label of their own, and Prometheus may have renamed the others.
#[test]
fn zonewise_is_asked_by_service_zone_and_proxy() {
    let rate = r#"rate(zonewise_service_connections_total{from_zone!=""}[2m])"#;
    let renamed = format!(
        r#"label_replace(label_replace(label_replace({rate}, "namespace", "$1", "exported_namespace", "(.+)"), "service", "$1", "exported_service", "(.+)"), "zone", "$1", "from_zone", "(.+)")"#
    );
    let scraped = r#"label_replace(zonewise_proxy_connections_total{from_zone!=""}, "zone", "$1", "from_zone", "(.+)")"#;
    let expected = Queries {
        rates: format!("sum by (namespace, service, zone) ({renamed})"),
        largest: Some(format!(
            "max by (namespace, service, zone) (sum by (namespace, service, zone, instance) ({renamed}))"
        )),
        reporting: Some(format!("count by (zone) (count by (zone, instance) ({scraped}))")),
    };
    assert_eq!(Preset::Zonewise.queries().over("2m"), expected);
}

/// Others count by node; the zone of a node comes from kube-state-metrics.
#[test]
fn other_sources_are_joined_with_the_zones_of_nodes() {
    let rows = [
        (Preset::Hubble, "rate(hubble_tcp_flags_total{flag=\"SYN\", ", "[90s]"),
        (Preset::Istio, "rate(istio_requests_total{reporter=\"source\"}", "[90s]"),
    ];
    for (preset, metric, window) in rows {
        let Queries { rates, largest, reporting } = preset.queries().over("90s");
        let zoned = rates.strip_prefix("sum by (namespace, service, zone) (").unwrap();
        let largest = largest.unwrap();
        assert_eq!(largest.strip_prefix("max by (namespace, service, zone) ("), Some(zoned));
        assert!(zoned.starts_with("label_replace(sum by (namespace, service, node) ("), "{zoned}");
        let joined = " * on (node) group_left (label_topology_kubernetes_io_zone) max by (node, label_topology_kubernetes_io_zone) \
                      (kube_node_labels{label_topology_kubernetes_io_zone!=\"\"}), \
                      \"zone\", \"$1\", \"label_topology_kubernetes_io_zone\", \"(.+)\"))";
        assert!(zoned.ends_with(joined), "{zoned}");
        assert!(zoned.contains(metric) && zoned.contains(window), "{zoned}");
        assert!(!zoned.contains("$window"), "{zoned}");
        assert_eq!(zoned.matches('(').count() + 1, zoned.matches(')').count());
        assert_eq!(reporting, None, "it does not know which nodes are scraped");
    }
}
