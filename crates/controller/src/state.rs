//! What the controller keeps in memory about each Service, apart from the objects themselves. Losing it
//! does no harm: after a restart, everything that decisions depend on is read back from the slices and
//! from the Service's conditions.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use zonewise_common::name::Key;
use zonewise_routing::{Frontend, Refusal};
use zonewise_slices::plan::Counts;
use zonewise_slices::service::Condition;
use zonewise_slices::upstream::HintsPerZone;
use zonewise_topology::settling::Improvement;

use crate::because::Blame;
use crate::trigger::TriggerTimeTracker;

/// What is kept about one Service.
#[derive(Debug, Default)]
pub(crate) struct ServiceState {
    pub(crate) trigger: TriggerTimeTracker,
    /// Only with `upstream`: see [`zonewise_slices::plan::Input::populated`].
    pub(crate) populated: bool,
    /// Only with `upstream`: the hints of each address family.
    pub(crate) hints_per_zone: Vec<HintsPerZone>,
    /// The reason code of the last sync, for metrics and events.
    pub(crate) code: Option<Box<str>>,
    /// The heuristic of the last sync, for metrics.
    pub(crate) approach: String,
    /// The value of `spec.trafficDistribution`, if it is in effect; for metrics.
    pub(crate) traffic_distribution: String,
    pub(crate) counts: Counts,
    /// How often the reason code has changed.
    pub(crate) transitions: u64,
    /// The conditions that this process wrote last.
    pub(crate) conditions: Option<Vec<Condition>>,
    /// Failed syncs since the last success.
    pub(crate) retries: u32,
    pub(crate) second_writer: SecondWriterDetector,
    /// The addresses and ports that it asks for and does not get, as events said last.
    pub(crate) refused: Vec<(Frontend, Refusal)>,
    /// When its slices were last written.
    pub(crate) written: Option<Instant>,
    pub(crate) quiet: QuietTracker,
    /// What led to slices that are only good enough; `None` if there is nothing to be gained.
    pub(crate) unfinished: Option<Blame>,
}

/// Pods of one Service often change together. After a write, further changes of Pods within this time
/// are written together.
const BATCH_PERIOD: Duration = Duration::from_millis(50);

impl ServiceState {
    /// How long to wait before a change of Pods is synced.
    pub(crate) fn batch_delay(&self, now: Instant) -> Duration {
        let until = self.written.map(|written| written + BATCH_PERIOD);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// Notices when a Service that a fresh decision would improve has been quiet for long enough to get it.
#[derive(Debug, Default)]
pub(crate) struct QuietTracker {
    /// What there is to gain, and since when that is so.
    waiting: Option<(Improvement, Instant)>,
}

impl QuietTracker {
    /// How much longer the Service has to be quiet, if there is something to gain.
    fn remaining(&self, period: Duration, now: Instant) -> Option<Duration> {
        self.waiting.map(|(_, since)| (since + period).saturating_duration_since(now))
    }

    /// Whether the Service has been quiet for this long.
    pub(crate) fn is_over(&self, period: Option<Duration>, now: Instant) -> bool {
        let remaining = period.and_then(|period| self.remaining(period, now));
        remaining.is_some_and(|remaining| remaining.is_zero())
    }

    /// Notes what a sync leaves to be gained. The time begins anew when the sync has written slices, and
    /// when there is something else to gain than before: then Pods or nodes have changed. Returns when to
    /// sync the Service again.
    pub(crate) fn synced(
        &mut self,
        improvement: Option<Improvement>,
        wrote: bool,
        period: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let before = self.waiting.filter(|(known, _)| Some(*known) == improvement && !wrote);
        self.waiting = before.or(improvement.map(|improvement| (improvement, now)));
        self.remaining(period?, now)
    }
}

/// Notices when another program keeps changing the slices that this controller writes.
#[derive(Debug, Default)]
pub(crate) struct SecondWriterDetector {
    corrections: u32,
    last: Option<Instant>,
}

impl SecondWriterDetector {
    /// The number of corrections after which there must be a second writer.
    const NOTICED: u32 = 3;
    /// The time without a correction after which the second writer is gone.
    const OVER: Duration = Duration::from_secs(600);
    /// The longest delay of a correction.
    const MAX_DELAY: Duration = Duration::from_secs(300);

    /// Counts a correction of another program's write. Returns whether to report the second writer now.
    pub(crate) fn corrected(&mut self, now: Instant) -> bool {
        if self.last.is_some_and(|last| now.duration_since(last) > Self::OVER) {
            self.corrections = 0;
        }
        self.last = Some(now);
        self.corrections += 1;
        self.corrections == Self::NOTICED
    }

    /// How long to wait before another program's write is corrected. The delay doubles each time, so that
    /// two controllers do not keep overwriting each other at full speed.
    pub(crate) fn correction_delay(&self) -> Duration {
        let doublings = self.corrections.saturating_sub(1).min(16);
        FOREIGN_WRITE_DELAY.saturating_mul(1 << doublings).min(Self::MAX_DELAY)
    }
}

/// The delay before the first correction: the other program may be about to write more. The reference
/// waits as long (`endpointSliceChangeMinSyncDelay` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/endpointslice/endpointslice_controller.go>).
const FOREIGN_WRITE_DELAY: Duration = Duration::from_secs(1);

/// What is kept about all Services.
#[derive(Debug, Default)]
pub(crate) struct ServiceStates(Mutex<BTreeMap<Key, ServiceState>>);

impl ServiceStates {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, ServiceState>> {
        self.0.lock()
    }

    pub(crate) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut ServiceState) -> T) -> T {
        work(self.lock().entry(key.clone()).or_default())
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// The delay after this many failed syncs in a row before the next attempt: 1 s, doubling up to 1,000 s,
/// as in the reference (`defaultSyncBackOff` and `maxSyncBackOff` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/endpointslice/endpointslice_controller.go>).
/// This controller never gives up. With `upstream`, `None` after 15 attempts more than the first, as in
/// the reference (`maxRetries`).
pub(crate) fn retry_delay(failures: u32, upstream: bool) -> Option<Duration> {
    const MAX_RETRIES: u32 = 15;
    let doublings = failures.saturating_sub(1);
    let delay = Duration::from_secs(1 << doublings.min(10)).min(Duration::from_secs(1000));
    (!upstream || failures <= MAX_RETRIES).then_some(delay)
}

/// The delay after a failure that is the server's, not the Service's: it may end at any moment, and what has changed
/// meanwhile must not wait for a quarter of an hour then. The reference makes no difference.
pub(crate) fn server_retry_delay(delay: Duration, upstream: bool) -> Duration {
    const LONGEST: Duration = Duration::from_secs(30);
    if upstream { delay } else { delay.min(LONGEST) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonewise_topology::settling::Quality;

    #[test]
    fn after_a_failure_of_the_server_it_is_tried_again_within_half_a_minute() {
        let seconds =
            |delay, upstream| server_retry_delay(Duration::from_secs(delay), upstream).as_secs();
        assert_eq!([4, 1000].map(|delay| seconds(delay, false)), [4, 30]);
        assert_eq!([4, 1000].map(|delay| seconds(delay, true)), [4, 1000]);
    }

    #[test]
    fn a_service_is_tried_again_later_and_later() {
        let delays = |upstream| -> Vec<Option<u64>> {
            let delay = |failures| retry_delay(failures, upstream).map(|delay| delay.as_secs());
            (1..=17).map(delay).collect()
        };
        let doubling = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].map(Some);
        assert_eq!(delays(false), [&doubling[..], &[Some(1000); 7]].concat(), "never given up");
        assert_eq!(delays(true), [&doubling[..], &[Some(1000); 5], &[None; 2]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_change_is_written_at_once_and_the_next_are_gathered() {
        let mut state = ServiceState::default();
        assert_eq!(state.batch_delay(Instant::now()), Duration::ZERO);
        state.written = Some(Instant::now());
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!(state.batch_delay(Instant::now()), Duration::from_millis(30));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(state.batch_delay(Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn b20_a_service_is_quiet_when_nothing_was_written_and_nothing_else_is_to_be_gained() {
        let quality = |in_zone| Quality { in_zone, max_overload: 0.25 };
        let gain = |now| Some(Improvement { now: quality(now), fresh: quality(1.0) });
        let seconds = Duration::from_secs;
        let period = Some(seconds(15));
        let mut tracker = QuietTracker::default();
        let mut synced = |improvement, wrote| {
            let (now, over) = (Instant::now(), tracker.is_over(period, Instant::now()));
            (over, tracker.synced(improvement, wrote, period, now))
        };
        assert_eq!(synced(gain(0.9), true), (false, Some(seconds(15))), "a Pod came");
        tokio::time::advance(seconds(10)).await;
        assert_eq!(synced(gain(0.9), false), (false, Some(seconds(5))), "only a label has changed");
        assert_eq!(synced(gain(0.8), false), (false, Some(seconds(15))), "a node has changed");
        tokio::time::advance(seconds(14)).await;
        assert_eq!(synced(gain(0.8), true), (false, Some(seconds(15))), "another Pod came");
        tokio::time::advance(seconds(15)).await;
        assert_eq!(synced(None, true), (true, None), "quiet: it is settled");
        tokio::time::advance(seconds(60)).await;
        assert_eq!(synced(None, false), (false, None), "nothing is left to gain");
        assert_eq!(tracker.synced(gain(0.8), true, None, Instant::now()), None, "switched off");
        tokio::time::advance(seconds(60)).await;
        assert!(!tracker.is_over(None, Instant::now()), "switched off");
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_writer_is_noticed_once_and_met_with_patience() {
        let mut detector = SecondWriterDetector::default();
        assert_eq!(detector.correction_delay(), Duration::from_secs(1));
        let said: Vec<bool> = (0..5).map(|_| detector.corrected(Instant::now())).collect();
        assert_eq!(said, [false, false, true, false, false]);
        assert_eq!(detector.correction_delay(), Duration::from_secs(16));
        tokio::time::advance(SecondWriterDetector::OVER + Duration::from_secs(1)).await;
        assert!(!detector.corrected(Instant::now()));
        assert_eq!(detector.correction_delay(), Duration::from_secs(1));
    }
}
