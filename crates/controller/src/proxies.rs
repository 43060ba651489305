//! The condition `Ready` of Services: which versions of slices the proxies have applied, and which
//! Services wait for that (requirement D12).
//!
//! ```text
//!  Lease of each proxy ─► Proxies ─► ProxyProgress: the version that all proxies have applied
//!  (what it has applied,               │ at most once a second
//!   when it was renewed)               ▼
//!  sync ─► evaluate(Service, version) ─► ReadinessTracker ─► Services whose condition changes ─► queue
//! ```
//!
//! `Ready` belongs to what `Accepted` and `Programmed` say. When one of those changes, `Ready` starts
//! anew: every proxy has to apply the newest of the Service's slices. While they stay the same, `Ready`
//! only moves in one direction:
//!
//! | was     | no proxy reports | a proxy is behind | all proxies have applied it |
//! |---------|------------------|-------------------|-----------------------------|
//! | Unknown | Unknown          | False             | True                        |
//! | False   | Unknown          | False             | True                        |
//! | True    | Unknown          | True              | True                        |
//!
//! In each case it is False when the kernel of a node rejects the Service.
//!
//! Pods that come and go and proxies that start therefore cost no status write. The previous status is
//! read from the Service itself. Only the version that a Service waits for is kept in memory, so that a
//! Service whose slices change faster than proxies report does become ready; after a restart it waits
//! for the newest version.
//!
//! A proxy whose Lease has expired is not waited for. Time in which its renewals could not be seen does
//! not count: while the watch on Leases fails, and before it started. Otherwise an outage of the API
//! server of a few minutes would cost two status writes for each Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, ContentType, Resource, WatchListener};
use zonewise_common::clock;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Name};
use zonewise_common::protobuf::kinds;
use zonewise_common::proxy_report::{self, DemandServer, LEASE_PREFIX, LEASES, ProxyReport};

use crate::metrics::Metrics;

/// Milliseconds since 1970.
type Millis = i64;

// === one proxy ===

/// What is known of a proxy.
#[derive(Clone, Debug)]
struct Proxy {
    /// The version up to which it has applied all slices; 0 if it does not say.
    applied: u64,
    /// The Services that its kernel rejects.
    refused: BTreeSet<Key>,
    /// The time of the last renewal, by the proxy's clock.
    renewed: Option<Timestamp>,
    /// When that renewal was seen, by our clock. The two clocks are only compared for the first report
    /// of a proxy, which may be old.
    seen: Millis,
    /// How long the Lease is valid; 0 if it does not say, and then it never is.
    lease_duration: Millis,
    /// Whether the last report was complete.
    readable: bool,
    /// Where it serves what it has counted.
    demand: Option<DemandServer>,
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

impl Proxy {
    fn is_alive(&self, now: Millis) -> bool {
        now < self.seen.saturating_add(self.lease_duration)
    }
}

/// The node of a Lease.
fn node_of((_, lease): &Key) -> Option<Name> {
    lease.strip_prefix(LEASE_PREFIX).map(Name::from)
}

// === all proxies ===

/// What all proxies together have applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProxyProgress {
    /// The Leases have not been read for long enough to know.
    #[default]
    NotKnownYet,
    /// No proxy has a valid Lease.
    NoProxyReports,
    /// All proxies with a valid Lease have applied everything up to this version.
    AppliedUpTo(u64),
}

/// All proxies that have a Lease.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    known: BTreeMap<Key, Proxy>,
    /// When the Leases were first watched.
    watching_since: Option<Millis>,
    /// Since when the watch has been failing.
    failing_since: Option<Millis>,
}

/// When the watch has failed for longer than this, earlier reports are no longer relied on.
const MAX_WATCH_OUTAGE: Millis = 600_000;

impl Proxies {
    /// Handles the report of a proxy. Returns whether it is incomplete and the one before was not.
    pub(crate) fn apply(&mut self, report: &ProxyReport, now: Millis) -> bool {
        let known = self.known.get(&report.lease);
        let seen = match known {
            Some(known) if known.renewed == report.renewed => known.seen,
            Some(_) => now,
            // The renewal may have been long ago: only the proxy's own clock can say how long.
            None => report.renewed.map_or(now, |renewed| renewed.as_millisecond().min(now)),
        };
        let readable =
            report.applied.is_some() && report.renewed.is_some() && report.duration.is_some();
        let newly_unreadable = !readable && known.is_none_or(|known| known.readable);
        let proxy = Proxy {
            applied: report.applied.unwrap_or(0),
            refused: report.refused.clone(),
            renewed: report.renewed,
            seen,
            lease_duration: report.renewed.and(report.duration).map_or(0, millis),
            readable,
            demand: report.demand,
        };
        self.known.insert(report.lease.clone(), proxy);
        newly_unreadable
    }

    /// Where proxies serve what they have counted, by node.
    fn demand_servers(&self, now: Millis) -> BTreeMap<Name, DemandServer> {
        let now = self.failing_since.unwrap_or(now);
        let alive = self.known.iter().filter(|(_, proxy)| proxy.is_alive(now));
        alive.filter_map(|(lease, proxy)| Some((node_of(lease)?, proxy.demand?))).collect()
    }

    /// Forgets a proxy whose Lease was deleted.
    pub(crate) fn delete(&mut self, key: &Key) {
        self.known.remove(key);
    }

    /// Forgets all proxies but these.
    fn retain(&mut self, keys: &BTreeSet<Key>) {
        self.known.retain(|key, _| keys.contains(key));
    }

    /// The watch on Leases works, maybe again. Proxies that were alive when it failed get the whole
    /// duration of their Lease to report.
    pub(crate) fn watch_works(&mut self, now: Millis) {
        self.watching_since.get_or_insert(now);
        if let Some(failed) = self.failing_since.take() {
            let alive = |proxy: &&mut Proxy| proxy.is_alive(failed);
            self.known.values_mut().filter(alive).for_each(|proxy| proxy.seen = now);
        }
    }

    /// The watch on Leases fails.
    pub(crate) fn watch_failed(&mut self, now: Millis) {
        self.failing_since.get_or_insert(now);
    }

    /// What all proxies that are alive have applied.
    pub(crate) fn progress(&self, now: Millis) -> ProxyProgress {
        let Some(since) = self.watching_since else { return ProxyProgress::NotKnownYet };
        if self.failing_since.is_some_and(|failed| now.saturating_sub(failed) > MAX_WATCH_OUTAGE) {
            return ProxyProgress::NoProxyReports;
        }
        let now = self.failing_since.unwrap_or(now);
        let lowest = self.counted(since, now).map(|proxy| proxy.applied).min();
        let any_alive = self.known.values().any(|proxy| proxy.is_alive(now));
        match lowest {
            None => ProxyProgress::NoProxyReports,
            Some(_) if !any_alive => ProxyProgress::NotKnownYet,
            Some(lowest) => ProxyProgress::AppliedUpTo(lowest),
        }
    }

    /// The Services that the kernel of some node rejects.
    fn refused(&self, now: Millis) -> BTreeSet<Key> {
        let now = self.failing_since.unwrap_or(now);
        let counted = self.watching_since.into_iter().flat_map(|since| self.counted(since, now));
        counted.flat_map(|proxy| proxy.refused.iter().cloned()).collect()
    }

    /// The proxies that have to be waited for: those with a valid Lease, and for the duration of a Lease
    /// after the watch started, those with an expired one, because they may not have been able to renew.
    fn counted(&self, since: Millis, now: Millis) -> impl Iterator<Item = &Proxy> {
        let counts = move |proxy: &&Proxy| {
            proxy.is_alive(now) || now < since.saturating_add(proxy.lease_duration)
        };
        self.known.values().filter(counts)
    }
}

// === Services ===

/// How far the proxies have applied the slices of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceReadiness {
    /// No proxy reports.
    Unknown,
    /// Some proxy has not applied this version yet.
    Behind(u64),
    /// The kernel of some node rejects the Service.
    Refused,
    /// All proxies have applied it.
    Ready,
}

impl ServiceReadiness {
    /// The table in the module's documentation. `last` is the previous result, if there is one; `was` is
    /// the status of the condition, or `None` when it starts anew; `newest` is the highest version of
    /// the Service's slices; `refused` says whether the kernel of some node rejects the Service.
    fn next(
        last: Option<Self>,
        was: Option<&str>,
        newest: u64,
        progress: ProxyProgress,
        refused: bool,
    ) -> Self {
        let target = match (last, was) {
            (Some(Self::Behind(target)), Some("False")) => target.min(newest),
            _ => newest,
        };
        match (progress, was) {
            (ProxyProgress::NoProxyReports, _) => Self::Unknown,
            (ProxyProgress::AppliedUpTo(_), _) if refused => Self::Refused,
            (_, Some("True")) => Self::Ready,
            (ProxyProgress::NotKnownYet, Some("False")) => Self::Behind(target),
            (ProxyProgress::NotKnownYet, _) => Self::Unknown,
            (ProxyProgress::AppliedUpTo(lowest), _) if lowest >= target => Self::Ready,
            (ProxyProgress::AppliedUpTo(_), _) => Self::Behind(target),
        }
    }

    /// Whether the condition has to change because of what the proxies report now.
    fn is_outdated(self, progress: ProxyProgress, refused: bool) -> bool {
        match (progress, self) {
            (ProxyProgress::NotKnownYet, _) | (ProxyProgress::NoProxyReports, Self::Unknown) => {
                false
            }
            (ProxyProgress::NoProxyReports, _) | (ProxyProgress::AppliedUpTo(_), Self::Unknown) => {
                true
            }
            (ProxyProgress::AppliedUpTo(_), Self::Refused) => !refused,
            (ProxyProgress::AppliedUpTo(lowest), Self::Behind(target)) => {
                refused || lowest >= target
            }
            (ProxyProgress::AppliedUpTo(_), Self::Ready) => refused,
        }
    }
}

/// The proxies, and the Services whose condition `Ready` depends on them.
#[derive(Debug, Default)]
struct ReadinessTracker {
    proxies: Proxies,
    progress: ProxyProgress,
    refused: BTreeSet<Key>,
    /// Services that are not ready, with the last result for each.
    waiting: BTreeMap<Key, ServiceReadiness>,
    /// Services that are ready.
    ready: BTreeSet<Key>,
}

impl ReadinessTracker {
    fn evaluate(&mut self, key: &Key, was: Option<&str>, newest: u64) -> ServiceReadiness {
        let last = self.waiting.get(key).copied();
        let refused = self.refused.contains(key);
        let readiness = ServiceReadiness::next(last, was, newest, self.progress, refused);
        self.forget(key);
        match readiness {
            ServiceReadiness::Ready => drop(self.ready.insert(key.clone())),
            waiting => drop(self.waiting.insert(key.clone(), waiting)),
        }
        readiness
    }

    fn forget(&mut self, key: &Key) {
        self.waiting.remove(key);
        self.ready.remove(key);
    }

    /// Updates the progress of the proxies. Returns the Services whose condition has to change.
    fn refresh(&mut self, now: Millis) -> Vec<Key> {
        let (progress, refused) = (self.proxies.progress(now), self.proxies.refused(now));
        if (self.progress, &self.refused) == (progress, &refused) {
            return Vec::new();
        }
        (self.progress, self.refused) = (progress, refused);
        let outdated = |readiness: ServiceReadiness, key: &Key| {
            readiness.is_outdated(progress, self.refused.contains(key))
        };
        let waiting = self.waiting.iter().filter(|(key, readiness)| outdated(**readiness, key));
        let ready = self.ready.iter().filter(|key| outdated(ServiceReadiness::Ready, key));
        waiting.map(|(key, _)| key).chain(ready).cloned().collect()
    }
}

// === the shell ===

/// The tracker, shared between the watch on Leases and the workers.
#[derive(Debug, Default)]
pub(crate) struct ProxyReadiness {
    tracker: Mutex<ReadinessTracker>,
    changed: Notify,
}

/// Reports within this time are handled together.
const BATCH_PERIOD: Duration = Duration::from_secs(1);
/// How often expired Leases are looked for, when no report arrives.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl ProxyReadiness {
    fn tracker(&self) -> MutexGuard<'_, ReadinessTracker> {
        self.tracker.lock()
    }

    /// The readiness of a Service. `was` is the status of its condition, or `None` when it starts anew;
    /// `newest` is the highest version of its slices.
    pub(crate) fn evaluate(&self, key: &Key, was: Option<&str>, newest: u64) -> ServiceReadiness {
        self.tracker().evaluate(key, was, newest)
    }

    /// Forgets a Service that was deleted or that has no conditions.
    pub(crate) fn forget(&self, key: &Key) {
        self.tracker().forget(key);
    }

    /// What all proxies together have applied.
    pub(crate) fn progress(&self) -> ProxyProgress {
        self.tracker().proxies.progress(now())
    }

    /// Updates the progress of the proxies. Returns the Services whose condition has to change.
    pub(crate) fn refresh(&self) -> Vec<Key> {
        self.tracker().refresh(now())
    }

    /// Where proxies serve what they have counted, by node.
    pub(crate) fn demand_servers(&self) -> BTreeMap<Name, DemandServer> {
        self.tracker().proxies.demand_servers(now())
    }

    /// Waits until a report has arrived or a Lease may have expired.
    pub(crate) async fn next_change(&self) {
        let _ = timeout(CHECK_INTERVAL, self.changed.notified()).await;
        sleep(BATCH_PERIOD).await;
    }

    /// Watches the Leases of proxies until the future is dropped.
    pub(crate) async fn follow(
        self: Arc<Self>,
        client: Client,
        content_type: ContentType,
        metrics: Arc<Metrics>,
    ) {
        let selector = watch::query_parameter("labelSelector", &proxy_report::selector());
        let resource = Resource {
            selector: selector.into(),
            ..Resource::all("leases", LEASES, &kinds::LEASE)
        };
        let resource = resource.encoded_as(content_type);
        watch::follow(client, resource, LeaseListener { readiness: self, metrics }).await;
    }
}

fn now() -> Millis {
    clock::now().as_millisecond()
}

/// Receives the Leases of proxies from the watch.
struct LeaseListener {
    readiness: Arc<ProxyReadiness>,
    metrics: Arc<Metrics>,
}

impl LeaseListener {
    fn change<T>(&self, work: impl FnOnce(&mut Proxies, Millis) -> T) -> T {
        let result = work(&mut self.readiness.tracker().proxies, now());
        self.readiness.changed.notify_one();
        result
    }
}

impl WatchListener for LeaseListener {
    type Object = ProxyReport;

    fn read(&self, object: Encoded<'_>) -> Result<ProxyReport, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, report: ProxyReport) {
        if self.change(|proxies, now| proxies.apply(&report, now)) {
            tracing::warn!(
                lease = %report.lease.1, ?report.applied, renewed = report.renewed.is_some(),
                "the Lease of a proxy is incomplete: without a version the proxy counts as behind, without a renewal time or duration it is not waited for"
            );
        }
    }

    fn unreadable(&mut self, (_, lease): &Key, error: &str) {
        self.metrics.own.unreadable.with(["leases"]).inc();
        tracing::warn!(%lease, error, "the Lease of a proxy cannot be decoded; its last report is kept");
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.change(|proxies, _| proxies.delete(key));
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        self.change(|proxies, _| proxies.retain(keys));
    }

    /// Only one condition depends on this watch, so its failure does not make the controller unready.
    fn health(&mut self, health: Result<(), &ApiError>) {
        if health.is_err() {
            self.metrics.own.watch_failures.with(["leases"]).inc();
        }
        self.change(|proxies, now| match health {
            Ok(()) => proxies.watch_works(now),
            Err(_) => proxies.watch_failed(now),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use zonewise_common::name::SYSTEM_NAMESPACE;

    const LEASE_DURATION: Millis = 60_000;

    fn key(name: &str) -> Key {
        (SYSTEM_NAMESPACE.into(), name.into())
    }

    fn report(node: &str, applied: u64, renewed: Millis) -> ProxyReport {
        ProxyReport {
            lease: key(node),
            applied: Some(applied),
            refused: BTreeSet::new(),
            renewed: Timestamp::from_millisecond(renewed).ok(),
            duration: Some(Duration::from_millis(LEASE_DURATION.unsigned_abs())),
            demand: None,
        }
    }

    /// Proxies that have been watched for long and have just reported.
    fn proxies(reports: &[(&str, u64)], now: Millis) -> Proxies {
        let mut proxies = Proxies { watching_since: Some(i64::MIN / 2), ..Proxies::default() };
        for (node, applied) in reports {
            assert!(!proxies.apply(&report(node, *applied, now), now), "it can be read");
        }
        proxies
    }

    #[test]
    fn d12_every_proxy_with_a_valid_lease_counts_and_the_slowest_decides() {
        let progress = |reports: &[(&str, u64)], later: Millis| proxies(reports, 0).progress(later);
        assert_eq!(progress(&[], 0), ProxyProgress::NoProxyReports);
        assert_eq!(progress(&[("a", 7)], LEASE_DURATION - 1), ProxyProgress::AppliedUpTo(7));
        assert_eq!(progress(&[("a", 7)], LEASE_DURATION), ProxyProgress::NoProxyReports);
        assert_eq!(progress(&[("a", 7), ("b", 5)], 0), ProxyProgress::AppliedUpTo(5));

        let mut two = proxies(&[("a", 7), ("b", 5)], 0);
        two.apply(&report("a", 9, LEASE_DURATION), LEASE_DURATION);
        assert_eq!(
            two.progress(LEASE_DURATION),
            ProxyProgress::AppliedUpTo(9),
            "an expired Lease is not waited for"
        );
        two.apply(&report("a", 9, LEASE_DURATION), 2 * LEASE_DURATION);
        assert_eq!(
            two.progress(2 * LEASE_DURATION),
            ProxyProgress::NoProxyReports,
            "the same report again is not a renewal"
        );
        two.apply(&report("b", 5, 3), 2 * LEASE_DURATION);
        assert_eq!(
            two.progress(2 * LEASE_DURATION),
            ProxyProgress::AppliedUpTo(5),
            "another renewal time, whatever the clock"
        );
        two.delete(&key("b"));
        assert_eq!(two.progress(2 * LEASE_DURATION), ProxyProgress::NoProxyReports);
    }

    #[test]
    fn d12_a_report_that_cannot_be_read_counts_as_behind_or_silent_and_is_named_once() {
        let mut one = proxies(&[("a", 7), ("b", 7)], 0);
        let no_version = ProxyReport { applied: None, ..report("a", 0, 1) };
        assert_eq!([one.apply(&no_version, 1), one.apply(&no_version, 2)], [true, false]);
        assert_eq!(one.progress(2), ProxyProgress::AppliedUpTo(0));
        let no_time = ProxyReport { renewed: None, ..report("a", 3, 0) };
        assert!(!one.apply(&no_time, 3));
        assert_eq!(one.progress(3), ProxyProgress::AppliedUpTo(7));
        one.apply(&report("a", 6, 4), 4);
        assert_eq!(one.progress(4), ProxyProgress::AppliedUpTo(6), "it has recovered");
        assert!(
            one.apply(&ProxyReport { duration: None, ..report("a", 6, 5) }, 5),
            "and can become incomplete again"
        );
    }

    #[test]
    fn d12_time_in_which_leases_could_not_be_read_does_not_count() {
        let mut starting = Proxies::default();
        assert_eq!(starting.progress(0), ProxyProgress::NotKnownYet, "nothing was listed");
        let now = 10 * LEASE_DURATION;
        starting.apply(&report("old", 3, 0), now);
        starting.watch_works(now);
        assert_eq!(
            starting.progress(now),
            ProxyProgress::NotKnownYet,
            "it may not have been able to renew"
        );
        starting.apply(&report("new", 8, now), now);
        assert_eq!(starting.progress(now), ProxyProgress::AppliedUpTo(3), "both are waited for");
        assert_eq!(starting.progress(now + LEASE_DURATION - 1), ProxyProgress::AppliedUpTo(3));
        starting.apply(&report("new", 8, now + LEASE_DURATION), now + LEASE_DURATION);
        assert_eq!(starting.progress(now + LEASE_DURATION), ProxyProgress::AppliedUpTo(8));

        let mut failing = proxies(&[("a", 7)], 0);
        failing.watch_failed(LEASE_DURATION - 1);
        failing.watch_failed(LEASE_DURATION);
        assert_eq!(
            failing.progress(5 * LEASE_DURATION),
            ProxyProgress::AppliedUpTo(7),
            "time does not count"
        );
        assert_eq!(
            failing.progress(LEASE_DURATION + MAX_WATCH_OUTAGE),
            ProxyProgress::NoProxyReports,
            "but only for so long"
        );
        failing.watch_works(5 * LEASE_DURATION);
        assert_eq!(
            failing.progress(6 * LEASE_DURATION - 1),
            ProxyProgress::AppliedUpTo(7),
            "time to report"
        );
        assert_eq!(failing.progress(6 * LEASE_DURATION), ProxyProgress::NoProxyReports);
    }

    #[test]
    fn d12_ready_goes_one_way_while_the_other_conditions_say_the_same() {
        use ServiceReadiness::{Behind, Ready, Unknown};
        let table = [
            // was, last, then for: no proxy reports, not known yet, behind, applied
            (None, None, [Unknown, Unknown, Behind(5), Ready]),
            (Some("Unknown"), Some(Unknown), [Unknown, Unknown, Behind(5), Ready]),
            (Some("False"), None, [Unknown, Behind(5), Behind(5), Ready]),
            (Some("True"), None, [Unknown, Ready, Ready, Ready]),
            (None, Some(Behind(3)), [Unknown, Unknown, Behind(5), Ready]),
            (Some("False"), Some(Behind(3)), [Unknown, Behind(3), Ready, Ready]),
            (Some("False"), Some(Behind(9)), [Unknown, Behind(5), Behind(5), Ready]),
        ];
        for (was, last, expected) in table {
            let progress = [
                ProxyProgress::NoProxyReports,
                ProxyProgress::NotKnownYet,
                ProxyProgress::AppliedUpTo(4),
                ProxyProgress::AppliedUpTo(5),
            ];
            let found =
                progress.map(|progress| ServiceReadiness::next(last, was, 5, progress, false));
            assert_eq!(found, expected, "{was:?} {last:?}");
        }
    }

    #[test]
    fn d12_only_services_whose_condition_changes_are_looked_at() {
        let mut tracker =
            ReadinessTracker { proxies: proxies(&[], 0), ..ReadinessTracker::default() };
        let names = |keys: Vec<Key>| keys.iter().map(|key| key.1.to_string()).collect::<Vec<_>>();
        assert_eq!(names(tracker.refresh(0)), [""; 0]);
        assert_eq!(tracker.evaluate(&key("early"), None, 5), ServiceReadiness::Unknown);
        assert_eq!(tracker.evaluate(&key("late"), None, 9), ServiceReadiness::Unknown);

        tracker.proxies.apply(&report("a", 4, 0), 0);
        assert_eq!(names(tracker.refresh(0)), ["early", "late"], "a proxy reports");
        assert_eq!(
            tracker.evaluate(&key("early"), Some("Unknown"), 5),
            ServiceReadiness::Behind(5)
        );
        assert_eq!(tracker.evaluate(&key("late"), Some("Unknown"), 9), ServiceReadiness::Behind(9));

        tracker.proxies.apply(&report("a", 6, 1), 1);
        assert_eq!(names(tracker.refresh(1)), ["early"], "the other one still waits");
        assert_eq!(tracker.evaluate(&key("early"), Some("False"), 7), ServiceReadiness::Ready);
        assert_eq!(names(tracker.refresh(2)), [""; 0], "nothing has changed");

        tracker.proxies.apply(&report("b", 0, 2), 2);
        assert_eq!(names(tracker.refresh(2)), [""; 0], "a proxy that starts takes nothing back");
        tracker.proxies.delete(&key("a"));
        tracker.proxies.delete(&key("b"));
        assert_eq!(names(tracker.refresh(3)), ["late", "early"], "no proxy reports any more");
        tracker.forget(&key("early"));
        tracker.proxies.apply(&report("a", 9, 4), 4);
        assert_eq!(
            tracker.evaluate(&key("late"), Some("False"), 9),
            ServiceReadiness::Unknown,
            "not refreshed yet"
        );
        assert_eq!(names(tracker.refresh(4)), ["late"]);
    }
    #[test]
    fn d12_what_a_kernel_refuses_is_not_ready_whatever_it_was() {
        for was in [None, Some("Unknown"), Some("False"), Some("True")] {
            let next = |progress| ServiceReadiness::next(None, was, 5, progress, true);
            assert_eq!(next(ProxyProgress::AppliedUpTo(9)), ServiceReadiness::Refused, "{was:?}");
            assert_eq!(next(ProxyProgress::NoProxyReports), ServiceReadiness::Unknown, "{was:?}");
        }
        let refusing = |node: &str, at: Millis| ProxyReport {
            refused: BTreeSet::from([key("bad")]),
            ..report(node, 9, at)
        };
        let mut tracker = ReadinessTracker {
            proxies: proxies(&[("a", 9), ("b", 9)], 0),
            ..ReadinessTracker::default()
        };
        tracker.refresh(0);
        for name in ["bad", "good"] {
            assert_eq!(tracker.evaluate(&key(name), None, 5), ServiceReadiness::Ready);
        }
        tracker.proxies.apply(&refusing("b", 1), 1);
        assert_eq!(tracker.refresh(1), [key("bad")], "it is not ready any more");
        assert_eq!(tracker.evaluate(&key("bad"), Some("True"), 5), ServiceReadiness::Refused);
        assert_eq!(tracker.evaluate(&key("good"), Some("True"), 5), ServiceReadiness::Ready);
        tracker.proxies.apply(&refusing("b", 2), 2);
        assert_eq!(tracker.refresh(2), [], "nothing new");
        tracker.proxies.apply(&report("b", 9, 3), 3);
        assert_eq!(tracker.refresh(3), [key("bad")], "the kernel accepts it");
        assert_eq!(tracker.evaluate(&key("bad"), Some("False"), 5), ServiceReadiness::Ready);
        tracker.proxies.apply(&refusing("b", 4), 4);
        tracker.refresh(4);
        tracker.proxies.apply(&report("a", 9, LEASE_DURATION), LEASE_DURATION);
        assert_eq!(
            tracker.proxies.refused(LEASE_DURATION + 4),
            BTreeSet::new(),
            "an expired Lease does not count"
        );
    }
}
