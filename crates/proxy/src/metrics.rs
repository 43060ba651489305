//! Metrics: those of kube-proxy under its names (`pkg/proxy/metrics/metrics.go`), and our own.

use zonewise_telemetry::metrics::{Counter, Family, Gauge, Histogram, MetricError, Registry};

/// The metrics that the proxy writes while it works.
pub(crate) struct Metrics {
    /// Duration of all syncs, by family.
    pub sync: Family<Histogram, 1>,
    /// Duration of syncs of all Services.
    pub full: Family<Histogram, 1>,
    /// Duration of syncs of changed Services.
    pub partial: Family<Histogram, 1>,
    /// When the last sync ended.
    pub last: Family<Gauge, 1>,
    /// When a sync was last asked for.
    pub queued: Family<Gauge, 1>,
    /// Time from a change in the cluster to the kernel.
    pub programming: Family<Histogram, 1>,
    /// Syncs that failed.
    pub failures: Family<Counter, 1>,
    /// Removals of unused elements that failed.
    pub cleanup_failures: Family<Counter, 1>,
    /// Time to remove stale flows.
    pub conntrack: Family<Histogram, 1>,
    /// Stale UDP flows removed.
    pub flows_deleted: Family<Counter, 1>,
    endpoint_changes: Counter,
    endpoint_pending: Gauge,
    service_changes: Counter,
    service_pending: Gauge,
    /// Metrics that kube-proxy does not have.
    pub ours: Ours,
}

/// Metrics that kube-proxy does not have.
pub(crate) struct Ours {
    /// Services that the kernel rejects.
    pub rejected: Gauge,
    /// How often the tables were not as they should be, and were repaired.
    pub repaired: Counter,
    unreadable: Family<Counter, 1>,
    watch_failures: Family<Counter, 1>,
}

const PREFIX: &str = "kubeproxy_";

/// kube-proxy's buckets for durations: 1 ms, then doubling up to 16 s.
fn durations() -> Vec<f64> {
    (0..15).map(|power| 0.001 * f64::from(1 << power)).collect()
}

/// kube-proxy's buckets for the time from a change to the kernel, and finer ones below its first of
/// 250 ms: syncs here are faster.
fn latencies() -> Vec<f64> {
    let fine = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];
    let seconds = (1..60).map(f64::from);
    let minutes = (0..12).map(|step| 60.0 + 5.0 * f64::from(step));
    let long = (0..7).map(|step| 120.0 + 30.0 * f64::from(step));
    fine.into_iter().chain(seconds).chain(minutes).chain(long).collect()
}

impl Metrics {
    /// Registers all of them.
    ///
    /// # Errors
    /// If a name is taken.
    pub(crate) fn new(registry: &Registry) -> Result<Self, MetricError> {
        let family = ["ip_family"];
        let name = |name: &str| format!("{PREFIX}{name}");
        let duration =
            |of: &str, help: &str| registry.histogram(&name(of), help, family, &durations());
        let gauge = |of: &str, help: &str| registry.gauge(&name(of), help, family);
        let counter = |of: &str, help: &str| registry.counter(&name(of), help, family);
        let alone = |of: &str, help: &str| {
            Ok::<_, MetricError>(registry.counter(&name(of), help, [])?.with([]))
        };
        let level = |of: &str, help: &str| {
            Ok::<_, MetricError>(registry.gauge(&name(of), help, [])?.with([]))
        };
        Ok(Self {
            sync: duration("sync_proxy_rules_duration_seconds", "Duration of a sync")?,
            full: duration(
                "sync_full_proxy_rules_duration_seconds",
                "Duration of a sync of all Services",
            )?,
            partial: duration(
                "sync_partial_proxy_rules_duration_seconds",
                "Duration of a sync of changed Services",
            )?,
            last: gauge("sync_proxy_rules_last_timestamp_seconds", "When rules were last synced")?,
            queued: gauge(
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "When a sync was last asked for",
            )?,
            programming: registry.histogram(
                &name("network_programming_duration_seconds"),
                "Time from a change in the cluster to the kernel",
                family,
                &latencies(),
            )?,
            failures: counter(
                "sync_proxy_rules_nftables_sync_failures_total",
                "Syncs that the kernel rejected",
            )?,
            cleanup_failures: counter(
                "sync_proxy_rules_nftables_cleanup_failures_total",
                "Removals of unused elements that the kernel rejected",
            )?,
            conntrack: duration(
                "conntrack_reconciler_sync_duration_seconds",
                "Duration of a search for stale UDP flows",
            )?,
            flows_deleted: counter(
                "conntrack_reconciler_deleted_entries_total",
                "Stale flows removed",
            )?,
            endpoint_changes: alone(
                "sync_proxy_rules_endpoint_changes_total",
                "Changes of EndpointSlices seen",
            )?,
            endpoint_pending: level(
                "sync_proxy_rules_endpoint_changes_pending",
                "Changes of EndpointSlices not synced yet",
            )?,
            service_changes: alone(
                "sync_proxy_rules_service_changes_total",
                "Changes of Services seen",
            )?,
            service_pending: level(
                "sync_proxy_rules_service_changes_pending",
                "Changes of Services not synced yet",
            )?,
            ours: Ours::new(registry)?,
        })
    }

    /// Counts a change of a slice.
    pub(crate) fn slice_change(&self) {
        self.endpoint_changes.inc();
        self.endpoint_pending.inc();
    }

    /// How many changes of slices were counted.
    pub(crate) fn slice_changes(&self) -> u64 {
        self.endpoint_changes.get()
    }

    /// Counts a change of a Service.
    pub(crate) fn service_change(&self) {
        self.service_changes.inc();
        self.service_pending.inc();
    }

    /// A sync has taken all changes.
    pub(crate) fn taken(&self) {
        self.endpoint_pending.set(0.0);
        self.service_pending.set(0.0);
    }

    /// Counts an object that cannot be read.
    pub(crate) fn unreadable(&self, resource: &str) {
        self.ours.unreadable.with([resource]).inc();
    }

    /// Counts interruptions of a watch.
    pub(crate) fn watch_health(&self, resource: &str, healthy: bool) {
        if !healthy {
            self.ours.watch_failures.with([resource]).inc();
        }
    }
}

impl Ours {
    fn new(registry: &Registry) -> Result<Self, MetricError> {
        let gauge =
            |name: &str, help: &str| Ok::<_, MetricError>(registry.gauge(name, help, [])?.with([]));
        let counter = |name: &str, help: &str| {
            Ok::<_, MetricError>(registry.counter(name, help, [])?.with([]))
        };
        Ok(Self {
            rejected: gauge(
                "zonewise_proxy_rejected_services",
                "Services that the kernel rejects",
            )?,
            repaired: counter(
                "zonewise_proxy_mended_total",
                "How often the kernel's tables were not as they should be, and were repaired",
            )?,
            unreadable: registry.counter(
                "zonewise_proxy_unreadable_objects_total",
                "Objects that could not be read",
                ["resource"],
            )?,
            watch_failures: registry.counter(
                "zonewise_proxy_watch_failures_total",
                "Watches that were interrupted",
                ["resource"],
            )?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use zonewise_cluster::watch::ContentType;
    use zonewise_nft::Network;
    use zonewise_routing::FeatureGates;
    use zonewise_testbed::page::keep_section;

    use super::*;
    use crate::connections::service_counts::Counting;
    use crate::health::{Health, HealthPages};
    use crate::published::Published;
    use crate::table_metrics;
    use crate::timeline::Timeline;
    use crate::watches::ClusterView;

    /// The metrics of a proxy, all of them registered.
    fn registered() -> Registry {
        let registry = Registry::default();
        let metrics = Arc::new(Metrics::new(&registry).unwrap());
        let cluster = ClusterView::new(
            "n1",
            FeatureGates::default(),
            ContentType::default(),
            metrics,
            Timeline::default(),
        );
        let published = Arc::new(Published::default());
        let (network, count) = (Network::default(), Counting::default());
        table_metrics::register(&registry, &published, &cluster, &network, count).unwrap();
        HealthPages::new(Health::new(Duration::from_secs(30)), &registry).unwrap();
        registry
    }

    #[test]
    fn the_page_lists_every_metric_of_the_proxy() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        assert_eq!(keep_section(&page, "## Proxy", &registered().reference()), Ok(()));
    }

    #[test]
    fn b17_alerts_name_metrics_that_exist() {
        let rules = include_str!("../../../deploy/proxy/alerts.yaml");
        let registry = registered();
        let known = format!("{registry:?}");
        let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words
            .filter(|word| word.starts_with("kubeproxy_") || word.starts_with("zonewise_proxy_"))
            .collect();
        assert!(!metrics.is_empty());
        for metric in metrics {
            let name = metric.strip_suffix("_bucket").unwrap_or(metric);
            assert!(known.contains(&format!("\"{name}\"")), "{metric} is not in {known}");
        }
    }
}
