//! When what decisions used is stored: at most once in a period and only if it has changed, and once more when the leader
//! ends.
//!
//! The clock is the caller's, and the write is, too: the leader and the tests here ask the same [`Stored`].

use std::time::Duration;

use tokio::time::Instant;
use zonewise_demand::notes::Notes;
use zonewise_inventory::demand::StoredTexts;

/// Why something may have to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Occasion {
    /// A decision was made. So long after a write there is no other.
    Decided {
        /// The least time between two writes.
        period: Duration,
    },
    /// This process does not lead any more.
    Ending,
}

/// What is stored.
#[derive(Default)]
pub(crate) struct Stored {
    texts: StoredTexts,
    /// How many Services were not measured, because too many ask for it.
    left_out: usize,
    /// When it was last written, or tried to.
    attempted: Option<Instant>,
    is_failing: bool,
}

/// What is to be written.
pub(super) struct Writing {
    pub(super) texts: StoredTexts,
    left_out: usize,
}

impl Stored {
    /// What is to be written now; `None` if nothing is. What is in force is encoded only where it may be written: it may be
    /// a megabyte.
    pub(super) fn wanted(
        &self,
        occasion: Occasion,
        now: Instant,
        encoded: impl FnOnce() -> (Notes, StoredTexts),
    ) -> Option<Writing> {
        if !self.is_due(occasion, now) {
            return None;
        }
        let (notes, texts) = encoded();
        let writing = Writing { texts, left_out: notes.not_measured };
        (!self.has(&writing)).then_some(writing)
    }

    /// Notes what became of a write. Returns whether that is something else than became of the one before.
    pub(super) fn written(&mut self, writing: Writing, is_stored: bool, now: Instant) -> bool {
        self.attempted = Some(now);
        if is_stored {
            (self.texts, self.left_out) = (writing.texts, writing.left_out);
        }
        std::mem::replace(&mut self.is_failing, !is_stored) == is_stored
    }

    fn is_due(&self, occasion: Occasion, now: Instant) -> bool {
        match occasion {
            Occasion::Ending => true,
            Occasion::Decided { period } => {
                self.attempted.is_none_or(|at| now.saturating_duration_since(at) >= period)
            }
        }
    }

    /// Whether this is stored already. What notes say besides changes only if what is in force does, but for who is left out.
    fn has(&self, writing: &Writing) -> bool {
        let (known, texts) = (&self.texts, &writing.texts);
        (&known.state, &known.failing, &known.by_use)
            == (&texts.state, &texts.failing, &texts.by_use)
            && self.left_out == writing.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DemandConfig;

    /// What is encoded after a decision: the notes change all the time.
    fn encoded(state: u64, notes: u64) -> (Notes, StoredTexts) {
        let texts = StoredTexts {
            state: state.to_string(),
            notes: notes.to_string(),
            failing: None,
            by_use: None,
        };
        (Notes::default(), texts)
    }

    /// Decides every 15 seconds, so many times, and writes what is wanted. Returns the seconds of the writes.
    fn lead(
        decisions: u64,
        state: impl Fn(u64) -> u64,
        is_stored: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let period = DemandConfig::default().write_period;
        let (mut stored, begin, mut writes) = (Stored::default(), Instant::now(), Vec::new());
        for decision in 0..decisions {
            let seconds = 15 * decision;
            let now = begin + Duration::from_secs(seconds);
            let occasion = Occasion::Decided { period };
            let writing = stored.wanted(occasion, now, || encoded(state(decision), decision));
            if let Some(writing) = writing {
                writes.push(seconds);
                stored.written(writing, is_stored(seconds), now);
            }
        }
        writes
    }

    #[test]
    fn what_decisions_used_is_stored_at_most_once_a_minute_and_only_if_it_has_changed() {
        assert_eq!(DemandConfig::default().write_period, Duration::from_secs(60));
        let minutes = |last: u64| (0..=last).map(|minute| 60 * minute).collect::<Vec<_>>();
        assert_eq!(lead(120, |decision| decision, |_| true), minutes(29), "always something else");
        assert_eq!(lead(120, |decision| decision.min(80), |_| true), minutes(20), "not any more");
        assert_eq!(lead(120, |_| 7, |_| true), [0], "always the same");
        assert_eq!(lead(120, |_| 7, |seconds| seconds > 200), minutes(4), "not accepted at first");
    }

    #[test]
    fn what_was_decided_since_the_last_write_is_stored_when_the_leader_ends() {
        let (mut stored, now) = (Stored::default(), Instant::now());
        let first = stored.wanted(Occasion::Ending, now, || encoded(1, 1)).unwrap();
        stored.written(first, true, now);
        let period = Duration::from_secs(60);
        let never = || -> (Notes, StoredTexts) { panic!("it is not due, so nothing is encoded") };
        assert!(stored.wanted(Occasion::Decided { period }, now, never).is_none());
        assert!(stored.wanted(Occasion::Ending, now, || encoded(2, 2)).is_some());
        assert!(stored.wanted(Occasion::Ending, now, || encoded(1, 2)).is_none(), "notes alone");
        let full = || {
            let (mut notes, texts) = encoded(1, 2);
            notes.not_measured = 1;
            (notes, texts)
        };
        assert!(stored.wanted(Occasion::Ending, now, full).is_some(), "who is left out is stored");
    }

    #[test]
    fn a_failure_is_told_once_and_that_it_is_over_too() {
        let (mut stored, now) = (Stored::default(), Instant::now());
        let mut write = |state, is_stored| {
            let writing = stored.wanted(Occasion::Ending, now, || encoded(state, 0)).unwrap();
            stored.written(writing, is_stored, now)
        };
        let told = [(1, true), (2, false), (3, false), (4, true), (5, true)];
        let told = told.map(|(state, is_stored)| write(state, is_stored));
        assert_eq!(told, [false, true, false, true, false]);
    }
}
