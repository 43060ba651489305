//! Whether the proxy keeps up with changes, from two time stamps per family.
//!
//! ```text
//!  queued  ─ the first change that is not in the kernel yet
//!  updated ─ the kernel has everything
//!  healthy   unless a change waits for as long as two sync periods
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use zonewise_common::clock;
use zonewise_routing::Family;

/// A point in time, by the monotonic clock and by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// To measure with.
    pub instant: Instant,
    /// To show.
    pub wall: Timestamp,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        // tokio's clock, which a simulation can stop.
        Self { instant: tokio::time::Instant::now().into_std(), wall: clock::now() }
    }
}

/// The state behind `/healthz`, `/livez` and the health checks of Services. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    limit: Duration,
    families: BTreeMap<Family, Stamps>,
    /// Whether load balancers should send traffic to this node; not before the Node was seen.
    eligible: bool,
    /// What the start waits for, and what to do about it; `None` once it is over.
    waits_for: Option<String>,
}

#[derive(Debug, Default)]
struct Stamps {
    oldest_queued: Option<Instant>,
    updated: Option<Timestamp>,
}

/// The health at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The moment.
    pub now: Timestamp,
    /// When the kernel last had everything, in any family.
    pub updated: Option<Timestamp>,
    /// Whether load balancers should send traffic to this node.
    pub eligible: bool,
    /// Whether no family is behind.
    pub healthy: bool,
    /// What the start waits for, and what to do about it; `None` once it is over.
    pub waits_for: Option<String>,
    /// By family, once it has been updated for the first time.
    pub families: BTreeMap<Family, FamilyStatus>,
}

/// The health of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyStatus {
    /// When the kernel last had everything.
    pub updated: Timestamp,
    /// Whether no change waits for too long.
    pub healthy: bool,
}

impl Health {
    /// A proxy with this sync period. It is healthy until a change waits for twice as long.
    pub fn new(sync_period: Duration) -> Self {
        let limit = sync_period.saturating_mul(2);
        let families = BTreeMap::new();
        let state = State { limit, families, eligible: false, waits_for: None };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A change waits for a sync. The first one since the last update counts.
    pub fn queued(&self, family: Family, now: Moment) {
        self.stamps(family, |stamps| {
            stamps.oldest_queued.get_or_insert(now.instant);
        });
    }

    /// The kernel has everything: after a sync, and when the loop starts.
    pub fn updated(&self, family: Family, now: Moment) {
        self.stamps(family, |stamps| {
            *stamps = Stamps { oldest_queued: None, updated: Some(now.wall) };
        });
    }

    /// The Node was seen; `eligible` as [`is_eligible`] says.
    pub fn node_seen(&self, eligible: bool) {
        self.state.lock().eligible = eligible;
    }

    /// The start waits for this; `None` when it is over.
    pub fn waits_for(&self, missing: Option<String>) {
        self.state.lock().waits_for = missing;
    }

    /// Whether no family is behind.
    pub fn is_healthy(&self, now: Moment) -> bool {
        self.status(now).healthy
    }

    /// The health at this moment.
    pub fn status(&self, now: Moment) -> Status {
        let state = self.state.lock();
        let families: BTreeMap<_, _> = state
            .families
            .iter()
            .filter_map(|(family, stamps)| {
                let healthy = stamps.keeps_up(now.instant, state.limit);
                Some((*family, FamilyStatus { updated: stamps.updated?, healthy }))
            })
            .collect();
        Status {
            now: now.wall,
            updated: families.values().map(|family| family.updated).max(),
            eligible: state.eligible,
            waits_for: state.waits_for.clone(),
            healthy: families.values().all(|family| family.healthy),
            families,
        }
    }

    fn stamps(&self, family: Family, change: impl FnOnce(&mut Stamps)) {
        change(self.state.lock().families.entry(family).or_default());
    }
}

impl Stamps {
    fn keeps_up(&self, now: Instant, limit: Duration) -> bool {
        self.oldest_queued.is_none_or(|queued| now.saturating_duration_since(queued) < limit)
    }
}

impl Status {
    /// Status code and body of `/healthz`: healthy, and eligible.
    pub fn healthz(&self) -> (u16, String) {
        self.page(self.healthy && self.eligible, Some(self.eligible))
    }

    /// Status code and body of `/livez`: healthy.
    pub fn livez(&self) -> (u16, String) {
        self.page(self.healthy, None)
    }

    /// While all is well, `lastUpdated` is the current time: some clients look only at that.
    fn page(&self, good: bool, eligible: Option<bool>) -> (u16, String) {
        let updated = if good { Some(self.now) } else { self.updated };
        let updated = updated.map_or_else(|| NEVER.to_owned(), |time| time.to_string());
        let body = Body {
            last_updated: updated,
            current_time: self.now.to_string(),
            node_eligible: eligible,
            healthy: self.healthy,
            waiting_for: self.waits_for.as_deref().filter(|_| eligible.is_some()),
            status: self.families.iter().map(FamilyBody::new).collect(),
        };
        let body = serde_json::to_string(&body).unwrap_or_default();
        (if good { 200 } else { 503 }, body)
    }
}

/// Go's zero time (<https://pkg.go.dev/time#Time.IsZero>), which kube-proxy writes before the first update.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The fields of kube-proxy's answer, in its order (`pkg/proxy/healthcheck/proxy_health.go`), and one
/// of our own while the proxy starts: `waitingFor`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<&'a str>,
    status: BTreeMap<String, FamilyBody>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyBody {
    last_updated: String,
    healthy: bool,
}

impl FamilyBody {
    fn new((family, status): (&Family, &FamilyStatus)) -> (String, Self) {
        let body = Self { last_updated: status.updated.to_string(), healthy: status.healthy };
        (family.to_string(), body)
    }
}

/// The cluster autoscaler taints nodes that it is about to remove; `ToBeDeletedTaint` in kube-proxy
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/proxy/healthcheck/proxy_health.go>).
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Whether load balancers should send traffic to a Node with these taints (their keys).
pub(crate) fn is_eligible<'a>(
    being_deleted: bool,
    taints: impl IntoIterator<Item = &'a str>,
) -> bool {
    !being_deleted && taints.into_iter().all(|key| key != TO_BE_DELETED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    /// A clock for tests, in seconds since a fixed time.
    struct Clock(Instant);

    impl Clock {
        fn at(&self, second: u64) -> Moment {
            let wall: Timestamp = "2026-03-01T08:00:00.5Z".parse().unwrap();
            let since = Duration::from_secs(second);
            Moment { instant: self.0 + since, wall: wall + since }
        }
    }

    enum Step {
        Queued(Family, u64),
        Updated(Family, u64),
        Node(bool),
    }
    use Step::{Node, Queued, Updated};

    /// Status codes of `/healthz` and `/livez`, and the field `healthy`.
    type Answer = (u16, u16, bool);

    fn codes(steps: &[Step], second: u64) -> Answer {
        let (health, clock) = (Health::new(PERIOD), Clock(Instant::now()));
        for step in steps {
            match *step {
                Queued(family, second) => health.queued(family, clock.at(second)),
                Updated(family, second) => health.updated(family, clock.at(second)),
                Node(eligible) => health.node_seen(eligible),
            }
        }
        let status = health.status(clock.at(second));
        (status.healthz().0, status.livez().0, status.healthy)
    }

    /// Steps, the second at which the health is asked for, and the answer.
    #[test]
    fn a_proxy_that_keeps_up_is_healthy() {
        let (v4, v6) = (Family::V4, Family::V6);
        let rows: [(&[Step], u64, Answer); 11] = [
            // The Node was never seen.
            (&[], 0, (503, 200, true)),
            (&[Node(true)], 0, (200, 200, true)),
            // Idle for a day.
            (&[Node(true), Updated(v4, 0), Updated(v6, 0)], 86_400, (200, 200, true)),
            (&[Node(true), Updated(v4, 0), Queued(v4, 10)], 69, (200, 200, true)),
            (&[Node(true), Updated(v4, 0), Queued(v4, 10)], 70, (503, 503, false)),
            // The first waiting change counts, not the last.
            (&[Node(true), Updated(v4, 0), Queued(v4, 10), Queued(v4, 60)], 70, (503, 503, false)),
            (&[Node(true), Updated(v4, 0), Queued(v4, 10), Updated(v4, 65)], 500, (200, 200, true)),
            // One family is enough to be behind.
            (
                &[Node(true), Updated(v4, 0), Updated(v6, 0), Queued(v6, 1), Updated(v4, 60)],
                61,
                (503, 503, false),
            ),
            // A family counts from its first update on.
            (&[Node(true), Queued(v4, 0)], 100, (200, 200, true)),
            // Healthy, but about to be removed.
            (&[Node(false), Updated(v4, 0)], 1, (503, 200, true)),
            (&[Node(false), Node(true), Updated(v4, 0)], 1, (200, 200, true)),
        ];
        for (at, (steps, second, expected)) in rows.into_iter().enumerate() {
            assert_eq!(codes(steps, second), expected, "row {at}");
        }
    }

    #[test]
    fn bodies_have_the_fields_of_the_reference() {
        let (health, clock) = (Health::new(PERIOD), Clock(Instant::now()));
        let never = health.status(clock.at(0)).healthz();
        let expected = r#"{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-03-01T08:00:00.5Z","nodeEligible":false,"healthy":true,"status":{}}"#;
        assert_eq!(never, (503, expected.to_owned()));

        health.node_seen(true);
        health.updated(Family::V6, clock.at(2));
        health.updated(Family::V4, clock.at(1));
        let good = health.status(clock.at(9)).healthz();
        let expected = r#"{"lastUpdated":"2026-03-01T08:00:09.5Z","currentTime":"2026-03-01T08:00:09.5Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-03-01T08:00:01.5Z","healthy":true},"IPv6":{"lastUpdated":"2026-03-01T08:00:02.5Z","healthy":true}}}"#;
        assert_eq!(good, (200, expected.to_owned()));

        health.queued(Family::V4, clock.at(10));
        let behind = health.status(clock.at(100)).livez();
        let expected = r#"{"lastUpdated":"2026-03-01T08:00:02.5Z","currentTime":"2026-03-01T08:01:40.5Z","healthy":false,"status":{"IPv4":{"lastUpdated":"2026-03-01T08:00:01.5Z","healthy":false},"IPv6":{"lastUpdated":"2026-03-01T08:00:02.5Z","healthy":true}}}"#;
        assert_eq!(behind, (503, expected.to_owned()));
    }

    #[test]
    fn a_node_about_to_go_is_not_eligible() {
        assert!(is_eligible(false, []));
        assert!(is_eligible(false, ["node.kubernetes.io/unschedulable"]));
        assert!(!is_eligible(false, ["a", TO_BE_DELETED]));
        assert!(!is_eligible(true, []));
    }
}
