//! What the controller remembers of each Service. Nothing that matters is only here: after a
//! restart it is read back from the slices and the Service.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use zonewise_common::name::Key;
use zonewise_slices::plan::Counts;
use zonewise_slices::service::Condition;
use zonewise_slices::upstream::Allocated;

use crate::trigger::Trigger;

/// One Service.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) trigger: Trigger,
    /// Only with `upstream`.
    pub(crate) populated: bool,
    pub(crate) allocated: Vec<Allocated>,
    /// How the last sync ended, for metrics and events.
    pub(crate) code: Option<Box<str>>,
    pub(crate) approach: String,
    pub(crate) near: String,
    pub(crate) counts: Counts,
    /// Times its routing changed sides.
    pub(crate) transitions: u64,
    /// Conditions as we last wrote them.
    pub(crate) conditions: Option<Vec<Condition>>,
    pub(crate) retries: u32,
    pub(crate) rival: Rival,
    /// When its slices were last written.
    pub(crate) written: Option<Instant>,
}

/// Pods of one Service come and go together: after a write, what follows within this time is
/// gathered for the next.
const GATHER: Duration = Duration::from_millis(50);

impl Memory {
    /// How long a change of Pods has to wait.
    pub(crate) fn gathering(&self, now: Instant) -> Duration {
        let until = self.written.map(|written| written + GATHER);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// Somebody else who writes the same slices.
#[derive(Debug, Default)]
pub(crate) struct Rival {
    rounds: u32,
    last: Option<Instant>,
}

impl Rival {
    /// Rounds after which it is no coincidence.
    const NOTICED: u32 = 3;
    /// Quiet time after which it is over.
    const OVER: Duration = Duration::from_secs(600);
    /// Longest pause between our corrections.
    const PAUSE: Duration = Duration::from_secs(300);

    /// We had to correct what somebody else wrote. Returns whether to say so now.
    pub(crate) fn corrected(&mut self, now: Instant) -> bool {
        if self.last.is_some_and(|last| now.duration_since(last) > Self::OVER) {
            self.rounds = 0;
        }
        self.last = Some(now);
        self.rounds += 1;
        self.rounds == Self::NOTICED
    }

    /// How long to leave a foreign write alone: longer each time, so that it is no fight.
    pub(crate) fn patience(&self) -> Duration {
        let doublings = self.rounds.saturating_sub(1).min(16);
        FOREIGN_WRITE_DELAY.saturating_mul(1 << doublings).min(Self::PAUSE)
    }
}

/// Somebody who changes a slice may not be done yet.
const FOREIGN_WRITE_DELAY: Duration = Duration::from_secs(1);

/// All Services.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<BTreeMap<Key, Memory>>);

impl Memories {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut Memory) -> T) -> T {
        work(self.lock().entry(key.clone()).or_default())
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// How long to wait before the next try: 1 s, doubling to 1,000 s, as the reference; but a Service
/// is never given up.
pub(crate) fn retry_delay(retries: u32) -> Duration {
    Duration::from_secs(1 << retries.min(10)).min(Duration::from_secs(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_tried_again_later_and_later() {
        let delays: Vec<u64> = (0..12).map(|tries| retry_delay(tries).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_change_is_written_at_once_and_the_next_are_gathered() {
        let mut memory = Memory::default();
        assert_eq!(memory.gathering(Instant::now()), Duration::ZERO);
        memory.written = Some(Instant::now());
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!(memory.gathering(Instant::now()), Duration::from_millis(30));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.gathering(Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_writer_is_noticed_once_and_met_with_patience() {
        let mut rival = Rival::default();
        assert_eq!(rival.patience(), Duration::from_secs(1));
        let said: Vec<bool> = (0..5).map(|_| rival.corrected(Instant::now())).collect();
        assert_eq!(said, [false, false, true, false, false]);
        assert_eq!(rival.patience(), Duration::from_secs(16));
        tokio::time::advance(Rival::OVER + Duration::from_secs(1)).await;
        assert!(!rival.corrected(Instant::now()));
        assert_eq!(rival.patience(), Duration::from_secs(1));
    }
}
