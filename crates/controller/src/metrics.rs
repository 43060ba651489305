//! The controller's metrics. Those that the reference has too carry its names, so that its dashboards
//! keep working
//! (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/endpointslice/metrics/metrics.go>).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zonewise_common::name::Name;
use zonewise_slices::plan::{Counts, FamilyPlan};
use zonewise_telemetry::metrics::{Counter, Family, Histogram, Kind, MetricError, Registry};

use crate::because::Because;
use crate::guard::{Outcome, Policy, QuotaHolder};
use crate::queue::Queue;
use crate::state::{ServiceState, ServiceStates};

/// All metrics of the controller.
pub(crate) struct Metrics {
    pub(crate) syncs: Family<Counter, 1>,
    pub(crate) changes: Family<Counter, 1>,
    added: Histogram,
    removed: Histogram,
    changed_per_sync: Family<Histogram, 2>,
    changes_by_approach: Family<Histogram, 1>,
    reallocated: Histogram,
    /// The values of `spec.trafficDistribution` that were ever in force. As in the reference, a value
    /// that no Service has any more is shown with 0.
    traffic_distributions: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) leading: Arc<AtomicBool>,
    pub(crate) own: OwnMetrics,
}

/// Metrics that the reference does not have.
pub(crate) struct OwnMetrics {
    pub(crate) duration: Histogram,
    pub(crate) condition_writes: Counter,
    pub(crate) demand_writes: Family<Counter, 1>,
    pub(crate) events_dropped: Counter,
    pub(crate) unreadable: Family<Counter, 1>,
    pub(crate) watch_failures: Family<Counter, 1>,
    pub(crate) retries: Counter,
    pub(crate) pauses: Counter,
    pub(crate) second_writers: Counter,
    pub(crate) reloads: Family<Counter, 1>,
}

/// The labels of a sync.
pub(crate) struct SyncLabels<'a> {
    pub(crate) topology: &'a str,
    pub(crate) traffic_distribution: &'a str,
    pub(crate) approach: &'a str,
}

const PREFIX: &str = "endpoint_slice_controller_";

/// The reference's buckets for numbers of endpoints: 2, 4, … 32,768.
fn endpoint_buckets() -> Vec<f64> {
    (1..=15).map(|power| f64::from(1 << power)).collect()
}

/// The default buckets of the Prometheus libraries.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, MetricError> {
        let endpoints = |name: &str, help: &str| {
            let family =
                registry.histogram(&format!("{PREFIX}{name}"), help, [], &endpoint_buckets())?;
            Ok::<_, MetricError>(family.with([]))
        };
        Ok(Self {
            added: endpoints(
                "endpoints_added_per_sync",
                "Endpoints added in a sync, per address family",
            )?,
            removed: endpoints(
                "endpoints_removed_per_sync",
                "Endpoints removed in a sync, per address family",
            )?,
            reallocated: endpoints(
                "reallocated_endpoints_per_sync",
                "Endpoints that other zones use than before, per sync and address family",
            )?,
            changes: registry.counter(
                &format!("{PREFIX}changes"),
                "EndpointSlices written, by operation",
                ["operation"],
            )?,
            changed_per_sync: registry.histogram(
                &format!("{PREFIX}endpointslices_changed_per_sync"),
                "EndpointSlices written in a sync, per address family",
                ["topology", "traffic_distribution"],
                &DEFAULT_BUCKETS,
            )?,
            changes_by_approach: registry.histogram(
                &format!("{PREFIX}changes_endpointslices_per_sync"),
                "EndpointSlices written in a sync, by the heuristic that decided",
                ["approach"],
                &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
            )?,
            syncs: registry.counter(
                &format!("{PREFIX}syncs"),
                "Syncs of Services, by how they ended",
                ["result"],
            )?,
            own: OwnMetrics::new(registry)?,
            traffic_distributions: Arc::default(),
            leading: Arc::default(),
        })
    }

    /// Registers the metrics that are computed from the state of Services when they are scraped.
    pub(crate) fn computed(
        &self,
        registry: &Registry,
        states: &Arc<ServiceStates>,
        queue: &Arc<Queue>,
    ) -> Result<(), MetricError> {
        let sum = |name: &str, help: &str, value: fn(&Counts) -> usize| {
            let states = Arc::clone(states);
            registry.collect(&format!("{PREFIX}{name}"), help, Kind::Gauge, [], move |samples| {
                let total: usize = states.lock().values().map(|state| value(&state.counts)).sum();
                samples.push([], total as f64);
            })
        };
        sum("endpoints_desired", "Endpoints that should exist", |counts| counts.endpoints)?;
        sum("num_endpoint_slices", "EndpointSlices that exist", |counts| counts.slices)?;
        sum(
            "desired_endpoint_slices",
            "The fewest EndpointSlices that could hold all endpoints",
            |counts| counts.slices_needed,
        )?;
        self.by_service(registry, states)?;
        let (depth, added) = (Arc::clone(queue), Arc::clone(queue));
        registry.collect(
            "workqueue_depth",
            "Services that wait to be synced",
            Kind::Gauge,
            ["name"],
            move |samples| {
                samples.push(["endpoint_slice"], depth.depth() as f64);
            },
        )?;
        registry.collect(
            "workqueue_adds_total",
            "Times a Service was added to the queue",
            Kind::Counter,
            ["name"],
            move |samples| {
                samples.push(["endpoint_slice"], added.added() as f64);
            },
        )?;
        let leading = Arc::clone(&self.leading);
        registry.collect(
            "zonewise_leader",
            "1 while this process may write",
            Kind::Gauge,
            [],
            move |samples| {
                samples.push([], f64::from(u8::from(leading.load(Ordering::Relaxed))));
            },
        )
    }

    /// Registers the number of endpoints that are stored, which `endpoints` counts.
    pub(crate) fn stored(
        registry: &Registry,
        endpoints: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        registry.collect(
            &format!("{PREFIX}total_endpoints"),
            "Endpoints in all EndpointSlices that this controller manages, of both address families",
            Kind::Gauge,
            [],
            move |samples| samples.push([], endpoints() as f64),
        )
    }

    /// Registers what is in use of the zones for which there are ZoneEvacuations: `zones` has the percentages.
    pub(crate) fn evacuated(
        registry: &Registry,
        zones: impl Fn() -> Vec<(Name, u8)> + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        registry.collect(
            "zonewise_zone_in_use_percent",
            "The percentage of a zone's endpoints that new connections use, for zones with a ZoneEvacuation",
            Kind::Gauge,
            ["zone"],
            move |samples| {
                for (zone, percent) in zones() {
                    samples.push([&*zone], f64::from(percent));
                }
            },
        )
    }

    /// Registers the answers of the webhook of guard mode.
    pub(crate) fn reviews(registry: &Registry) -> Result<Family<Counter, 1>, MetricError> {
        let answered = registry.counter(
            "zonewise_guard_reviews_total",
            "Reviews of slices that the webhook of guard mode has answered, by result",
            ["result"],
        )?;
        // Shown from the start, so that an alert sees the first one as an increase.
        for outcome in Outcome::ALL {
            answered.with([outcome.name()]);
        }
        Ok(answered)
    }

    /// Registers what guard mode has places for, of which `in_force` has the Services that have one, and whether hints are
    /// in force: `reasons` has what each Service's condition `Enforced` says.
    pub(crate) fn guarded(
        registry: &Registry,
        policy: &Arc<Policy>,
        in_force: impl Fn() -> Vec<QuotaHolder> + Send + Sync + 'static,
        reasons: impl Fn() -> Vec<Box<str>> + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        registry.collect(
            "zonewise_guard_services",
            "Services in guard mode, by the reason in their condition Enforced",
            Kind::Gauge,
            ["reason"],
            move |samples| {
                for (reason, number) in count(reasons().into_iter()) {
                    samples.push([&reason], number);
                }
            },
        )?;
        let (names, waiting, limit) = (Arc::clone(policy), Arc::clone(policy), policy.limit());
        let gauge = |name: &str, help: &str, value: Box<dyn Fn() -> usize + Send + Sync>| {
            registry.collect(name, help, Kind::Gauge, [], move |samples| {
                samples.push([], value() as f64);
            })
        };
        gauge(
            "zonewise_guard_service_names",
            "Names of Services whose hints guard mode keeps",
            Box::new(move || names.names(in_force()).len()),
        )?;
        gauge(
            "zonewise_guard_service_names_limit",
            "The most names of Services whose hints guard mode keeps (guard.maxServiceNames)",
            Box::new(move || limit),
        )?;
        gauge(
            "zonewise_guard_waiting_services",
            "Services that ask for hints and get none, because that limit or the share of their namespace is reached",
            Box::new(move || waiting.waiting()),
        )
    }

    fn by_service(
        &self,
        registry: &Registry,
        states: &Arc<ServiceStates>,
    ) -> Result<(), MetricError> {
        let all = Arc::clone(states);
        let seen = Arc::clone(&self.traffic_distributions);
        registry.collect(
            &format!("{PREFIX}services_count_by_traffic_distribution"),
            "Services handled by trafficDistribution",
            Kind::Gauge,
            ["traffic_distribution"],
            move |samples| {
                let states = all.lock();
                let used = states.values().map(|state| state.traffic_distribution.clone());
                let counts = count(used.filter(|value| !value.is_empty()));
                for value in &*seen.lock() {
                    samples.push([value], counts.get(value).copied().unwrap_or(0.0));
                }
            },
        )?;
        let all = Arc::clone(states);
        registry.collect(
            "zonewise_services",
            "Services by heuristic and reason",
            Kind::Gauge,
            ["heuristic", "reason"],
            move |samples| {
                let pair = |state: &ServiceState| {
                    state.code.as_ref().map(|code| (state.approach.clone(), code.clone()))
                };
                for ((heuristic, code), number) in count(all.lock().values().filter_map(pair)) {
                    samples.push([&heuristic, &code], number);
                }
            },
        )?;
        let all = Arc::clone(states);
        registry.collect(
            "zonewise_routing_transitions_total",
            "Changes of the reason code of a Service; only Services with conditions",
            Kind::Counter,
            ["namespace", "service"],
            move |samples| {
                for ((namespace, service), state) in
                    all.lock().iter().filter(|(_, one)| one.transitions > 0)
                {
                    samples.push([namespace, service], state.transitions as f64);
                }
            },
        )
    }

    /// Counts what a sync found in one address family.
    pub(crate) fn planned(&self, plan: &FamilyPlan, labels: &SyncLabels<'_>) {
        if !labels.traffic_distribution.is_empty() {
            self.traffic_distributions.lock().insert(labels.traffic_distribution.to_owned());
        }
        self.added.observe(plan.counts.added as f64);
        self.removed.observe(plan.counts.removed as f64);
        self.reallocated.observe(plan.counts.reallocated as f64);
    }

    /// Counts what a sync wrote in one address family. As in the reference, a sync that failed there is
    /// not counted.
    pub(crate) fn written(&self, plan: &FamilyPlan, labels: &SyncLabels<'_>) {
        let writes = plan.writes() as f64;
        self.changed_per_sync.with([labels.topology, labels.traffic_distribution]).observe(writes);
        self.changes_by_approach.with([labels.approach]).observe(writes);
    }
}

impl OwnMetrics {
    fn new(registry: &Registry) -> Result<Self, MetricError> {
        let single = |name: &str, help: &str| {
            Ok::<_, MetricError>(registry.counter(name, help, [])?.with([]))
        };
        let reloads = registry.counter(
            "zonewise_config_reloads_total",
            "Changes of the configuration file, by whether they could be used",
            ["result"],
        )?;
        let demand_writes = registry.counter(
            "zonewise_demand_slice_writes_total",
            "EndpointSlices written because what is measured has changed, and nothing else: demand, which zones fail, or CPU use",
            ["because"],
        )?;
        // Shown from the start, so that an alert sees the first failure as an increase.
        reloads.with(["error"]);
        Because::ALL.into_iter().for_each(|because| drop(demand_writes.with([because.label()])));
        Ok(Self {
            reloads,
            duration: registry
                .histogram(
                    "zonewise_sync_duration_seconds",
                    "Time a sync took, writes included",
                    [],
                    &DEFAULT_BUCKETS,
                )?
                .with([]),
            condition_writes: single(
                "zonewise_condition_writes_total",
                "Writes of conditions on Services",
            )?,
            demand_writes,
            events_dropped: single(
                "zonewise_events_dropped_total",
                "Events dropped because too many were waiting",
            )?,
            unreadable: registry.counter(
                "zonewise_unreadable_objects_total",
                "Objects from the API server that could not be read",
                ["resource"],
            )?,
            watch_failures: registry.counter(
                "zonewise_watch_failures_total",
                "Lists and watches that failed",
                ["resource"],
            )?,
            pauses: single(
                "zonewise_write_pauses_total",
                "Syncs after which all workers waited, because no write succeeded",
            )?,
            retries: single(
                "zonewise_sync_retries_total",
                "Syncs that failed and are tried again",
            )?,
            second_writers: single(
                "zonewise_second_writers_total",
                "Services whose slices another program was found to write too",
            )?,
        })
    }
}

/// Every distinct value and how often it occurs.
fn count<T: Ord>(values: impl Iterator<Item = T>) -> BTreeMap<T, f64> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1.0;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::{DemandConfig, Source};
    use crate::guard::AdmissionKind;
    use zonewise_slices::slice::AddressType;
    use zonewise_testbed::page::keep_section;
    use zonewise_topology::reason::Reason;

    /// The metrics of a controller, all of them registered.
    fn registered() -> (Registry, Metrics, Arc<ServiceStates>) {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry).unwrap();
        let states = Arc::<ServiceStates>::default();
        metrics.computed(&registry, &states, &Arc::default()).unwrap();
        Metrics::evacuated(&registry, Vec::new).unwrap();
        Metrics::stored(&registry, || 5).unwrap();
        let reasons =
            || ["HintsEnforced", "HintsNotEnforced", "HintsEnforced"].map(Box::from).to_vec();
        let policy = Arc::new(Policy::new(9, AdmissionKind::Policy));
        Metrics::guarded(&registry, &policy, Vec::new, reasons).unwrap();
        Metrics::reviews(&registry).unwrap();
        let demand =
            DemandConfig { source: Source::Proxies, pod_metrics: true, ..DemandConfig::default() };
        crate::demand::Demand::new(&registry, &demand).unwrap();
        (registry, metrics, states)
    }

    #[test]
    fn a16_b9_a_sync_is_counted_under_the_names_of_the_reference() {
        let (registry, metrics, states) = registered();
        let counts = Counts { endpoints: 7, reallocated: 3, ..Counts::default() };
        states.with(&("shop".into(), "web".into()), |state| state.counts = counts);
        let plan = FamilyPlan {
            family: AddressType::IPv4,
            creates: Vec::new(),
            updates: Vec::new(),
            deletes: Vec::new(),
            unchanged: 1,
            served_elsewhere: Vec::new(),
            reason: Reason::ClusterWide,
            counts,
            missing_nodes: Vec::new(),
            hints_per_zone: Default::default(),
            improvement: None,
            settles: None,
        };
        let labels =
            SyncLabels { topology: "Auto", traffic_distribution: "", approach: "local-subset" };
        metrics.planned(&plan, &labels);
        metrics.written(&plan, &labels);
        metrics.syncs.with(["stale"]).inc();
        let text = registry.text();
        for line in [
            "endpoint_slice_controller_changes_endpointslices_per_sync_count{approach=\"local-subset\"} 1",
            "endpoint_slice_controller_reallocated_endpoints_per_sync_sum 3",
            "endpoint_slice_controller_endpoints_desired 7",
            "endpoint_slice_controller_total_endpoints 5",
            "endpoint_slice_controller_endpointslices_changed_per_sync_count{topology=\"Auto\",traffic_distribution=\"\"} 1",
            "endpoint_slice_controller_syncs{result=\"stale\"} 1",
            "zonewise_guard_services{reason=\"HintsEnforced\"} 2",
            "zonewise_guard_services{reason=\"HintsNotEnforced\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_page_lists_every_metric_of_the_controller() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let (registry, ..) = registered();
        assert_eq!(keep_section(&page, "## Controller", &registry.reference()), Ok(()));
        let both = Registry::default();
        zonewise_telemetry::metrics::process(&both, "1").unwrap();
        assert_eq!(keep_section(&page, "## Both", &both.reference()), Ok(()));
    }

    #[test]
    fn b17_alerts_name_metrics_that_exist() {
        let rules = include_str!("../../../deploy/controller/alerts.yaml");
        let (registry, ..) = registered();
        let known = format!("{registry:?}");
        let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words
            .filter(|word| word.starts_with(PREFIX) || word.starts_with("zonewise_"))
            .collect();
        for metric in &metrics {
            assert!(known.contains(&format!("\"{metric}\"")), "{metric} is not in {known}");
        }
        for (alert, metric, limit) in [
            ("ZonewiseSyncsFail", "endpoint_slice_controller_syncs", "> 0.1"),
            ("ZonewiseHintsInUse", "zonewise_services{heuristic=\"auto\"}", "> 0"),
            ("ZonewiseServiceFlaps", "zonewise_routing_transitions_total", "> 4"),
        ] {
            let (_, rule) = rules.split_once(&format!("alert: {alert}\n")).unwrap();
            let rule = rule.split("labels:").next().unwrap();
            assert!(rule.contains(metric) && rule.contains(limit), "{alert}: {rule}");
        }
    }
}
