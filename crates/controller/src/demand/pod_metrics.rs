//! What the metrics API says of the Pods of Services whose endpoints count by the CPU that they use.
//!
//! Asked are only the namespaces of such Services, one after another and at most once a minute; kept are only their ready Pods, with
//! three numbers each. What is lost once stays as it was, and gets old.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::time::sleep;
use zonewise_cluster::pod_metrics::{self, PodMetricsError};
use zonewise_cluster::watch::random_part;
use zonewise_common::name::{Key, Name};
use zonewise_demand::cpu_use::{Known, PodUse, SourceFault};
use zonewise_slices::pod_metrics::{CpuUse, PodMetrics};
use zonewise_telemetry::metrics::{Counter, Family, MetricError, Registry};

use super::SUCCESS;

/// The Pods that are wanted, by namespace.
pub(super) type WantedPods = BTreeMap<Name, BTreeSet<Name>>;

/// What is known of Pods.
pub(super) struct PodMetricsFeed {
    pods: Mutex<BTreeMap<Key, Known>>,
    last: Mutex<Last>,
    requests: Family<Counter, 1>,
}

/// What became of the last questions.
#[derive(Default)]
struct Last {
    problem: Option<PodMetricsError>,
    /// The problem that the log has told.
    told: Option<&'static str>,
    /// The namespace that the next questions begin with.
    first: Option<Name>,
}

impl PodMetricsFeed {
    pub(super) fn new(registry: &Registry) -> Result<Self, MetricError> {
        let requests = registry.counter(
            "zonewise_pod_metrics_requests_total",
            "Lists of PodMetrics that were asked for, one for each namespace, by result",
            ["result"],
        )?;
        // Shown from the start, so that an alert sees the first one as an increase.
        for result in PodMetricsError::NAMES.into_iter().chain([SUCCESS]) {
            requests.with([result]);
        }
        Ok(Self { pods: Mutex::default(), last: Mutex::default(), requests })
    }

    /// Asks again and again, until the future is dropped.
    pub(super) async fn collect(
        &self,
        client: &Client,
        period: Duration,
        wanted: impl Fn() -> WantedPods,
    ) {
        sleep(random_part(period / 4)).await;
        loop {
            self.ask(client, &wanted()).await;
            self.tell();
            sleep(period).await;
        }
    }

    /// Asks for the Pods of all namespaces, beginning with one that could not be asked the last time.
    async fn ask(&self, client: &Client, wanted: &WantedPods) {
        let is_wanted = |(namespace, name): &Key| {
            wanted.get(namespace).is_some_and(|names| names.contains(name))
        };
        self.pods.lock().retain(|pod, _| is_wanted(pod));
        let first = self.last.lock().first.take();
        let before = |name: &&Name| first.as_ref().is_some_and(|first| *name < first);
        let mut order: Vec<&Name> = wanted.keys().filter(|name| !before(name)).collect();
        order.extend(wanted.keys().filter(before));
        let mut problem = None;
        for (at, namespace) in order.iter().enumerate() {
            let result = self.list(client, namespace, &wanted[*namespace]).await;
            self.requests
                .with([result.as_ref().err().map_or(SUCCESS, PodMetricsError::name)])
                .inc();
            let Err(error) = result else { continue };
            let is_general = error.is_general();
            problem.get_or_insert(error);
            if is_general {
                // The others would have to wait as long. Next time it is their turn.
                let next = order.get(at + 1).or(order.first());
                self.last.lock().first = next.map(|name| Name::clone(name));
                break;
            }
        }
        self.last.lock().problem = problem;
    }

    async fn list(
        &self,
        client: &Client,
        namespace: &Name,
        wanted: &BTreeSet<Name>,
    ) -> Result<(), PodMetricsError> {
        let take = |item: &[u8]| {
            let Ok(PodMetrics { name, cpu }) = serde_json::from_slice(item) else { return };
            if let Some(name) = wanted.get(&name) {
                let key = (Name::clone(namespace), Name::clone(name));
                self.pods.lock().insert(key, known(cpu));
            }
        };
        pod_metrics::list(client, namespace, take).await
    }

    /// What is known of a Pod.
    pub(super) fn of(&self, pod: &Key) -> Known {
        self.pods.lock().get(pod).copied().unwrap_or(Known::Nothing)
    }

    /// Why the metrics API gives nothing; `None` if it does.
    pub(super) fn fault(&self) -> Option<SourceFault> {
        let last = self.last.lock();
        last.problem.as_ref().map(|problem| match problem {
            PodMetricsError::Missing => SourceFault::Missing,
            PodMetricsError::Forbidden(_) => SourceFault::Forbidden,
            PodMetricsError::Unavailable(_) | PodMetricsError::Late => SourceFault::Unavailable,
            PodMetricsError::TooLarge(_) => SourceFault::TooLarge,
            PodMetricsError::Nonsense(_) => SourceFault::Nonsense,
        })
    }

    /// Says in the log what gives nothing, once, and that it does again.
    fn tell(&self) {
        let (problem, told) = {
            let mut last = self.last.lock();
            let problem = last.problem.clone();
            let name = problem.as_ref().map(PodMetricsError::name);
            (problem, std::mem::replace(&mut last.told, name))
        };
        match problem {
            Some(problem) if told != Some(problem.name()) => tracing::warn!(
                "the CPU use of Pods cannot be read: {problem}; what zones count for by use stays for some minutes and then goes \
                 back to 100 %"
            ),
            None if told.is_some() => tracing::info!("the CPU use of Pods is read again"),
            _ => {}
        }
    }
}

fn known(cpu: Option<CpuUse>) -> Known {
    let told = |CpuUse { milli, at, window }| {
        let at = u64::try_from(at).ok()?.checked_mul(1000)?;
        Some(PodUse { milli, at, window })
    };
    cpu.and_then(told).map_or(Known::Nonsense, Known::Use)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_or_is_before_1970_is_nonsense() {
        let usual = CpuUse { milli: 7, at: 1_772_366_407, window: 15_000 };
        let read = PodUse { milli: 7, at: 1_772_366_407_000, window: 15_000 };
        let rows = [
            (None, Known::Nonsense),
            (Some(usual), Known::Use(read)),
            (Some(CpuUse { at: -1, ..usual }), Known::Nonsense),
            (Some(CpuUse { at: i64::MAX, ..usual }), Known::Nonsense),
        ];
        for (cpu, expected) in rows {
            assert_eq!(known(cpu), expected, "{cpu:?}");
        }
    }
}
