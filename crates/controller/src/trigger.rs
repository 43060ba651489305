//! Finds the time of the change that a write answers to. It is written on slices
//! (`endpoints.kubernetes.io/last-change-trigger-time`), and proxies measure their delay by it.
//!
//! The rules are the reference's:
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/endpointslice/util/trigger_time_tracker.go>

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;

/// The state of a Service at its last sync.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimeTracker {
    /// When the Service was created.
    service: Option<i64>,
    /// A hash of each Pod's name, and when its readiness last changed; sorted.
    pods: Vec<(u64, i64)>,
}

impl TriggerTimeTracker {
    /// The time of the earliest change since the last call; for the first call, when the Service was
    /// created.
    pub(crate) fn next(&mut self, service: &Service, pods: &[Arc<Pod>]) -> Option<i64> {
        let mut now: Vec<(u64, i64)> =
            pods.iter().filter_map(|pod| Some((digest(&pod.name), pod.ready_since?))).collect();
        now.sort_unstable();
        let before = std::mem::replace(&mut self.pods, now);
        let first = self.service.is_none();
        let known = std::mem::replace(&mut self.service, service.created);
        if first {
            return service.created;
        }
        let newer = |(pod, time): &&(u64, i64)| {
            let found = before.binary_search_by_key(pod, |(known, _)| *known);
            found.map_or(true, |index| before[index].1 < *time)
        };
        let pods = self.pods.iter().filter(newer).map(|(_, time)| *time);
        pods.chain(service.created.filter(|created| Some(*created) > known)).min()
    }
}

fn digest(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(created: i64) -> Service {
        let created = zonewise_common::time::timestamp(created);
        let json = serde_json::json!({"metadata": {"name": "web", "creationTimestamp": created}});
        serde_json::from_value(json).unwrap()
    }

    fn pod(name: &str, since: i64) -> Arc<Pod> {
        let since = zonewise_common::time::timestamp(since);
        let json = serde_json::json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]},
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    /// The cases of the reference's own test, in its order.
    #[test]
    fn times_of_changes_are_the_references() {
        let mut trigger = TriggerTimeTracker::default();
        let mut next = |created, pods: &[(&str, i64)]| {
            let pods: Vec<Arc<Pod>> = pods.iter().map(|(name, since)| pod(name, *since)).collect();
            trigger.next(&service(created), &pods)
        };
        assert_eq!(next(100, &[("a", 50), ("b", 150)]), Some(100), "a new Service");
        assert_eq!(next(100, &[("a", 50), ("b", 150)]), None, "no change");
        assert_eq!(
            next(100, &[("a", 50), ("b", 150), ("c", 170), ("d", 160)]),
            Some(160),
            "two added"
        );
        assert_eq!(
            next(100, &[("a", 200), ("b", 210), ("c", 170)]),
            Some(200),
            "two changed, one left"
        );
        assert_eq!(next(100, &[("b", 210), ("c", 170)]), None, "one left");
        assert_eq!(next(100, &[("a", 220), ("b", 210), ("c", 170)]), Some(220), "one came back");
        assert_eq!(
            next(300, &[("a", 220), ("b", 210), ("c", 170)]),
            Some(300),
            "a new Service of that name"
        );
    }
}
