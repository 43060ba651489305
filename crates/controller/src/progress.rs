//! How far a sync has come: which of its writes are answered, and when.
//!
//! A Service with many slices needs many writes, one after the other. That takes long without anything being wrong, so
//! what counts is not how long the sync takes, but how long it waits for an answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// How long a sync may wait for one answer before it is slow.
pub(crate) const SLOW_ANSWER: Duration = Duration::from_secs(1);
/// How long answers may take on average, beyond [`SLOW_ANSWER`]. Without this limit, a webhook that answers every
/// write just in time would hold a worker for as long as there are slices to write.
const AVERAGE: Duration = Duration::from_millis(100);

/// The answers that a sync has got.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<Answers>);

#[derive(Clone, Copy, Debug)]
struct Answers {
    started: Instant,
    count: u32,
    last: Instant,
}

impl Answers {
    /// When the sync is slow, unless there is another answer before.
    fn deadline(&self) -> Instant {
        (self.last + SLOW_ANSWER).min(self.started + SLOW_ANSWER + AVERAGE * self.count)
    }
}

impl Progress {
    /// Of a sync that starts now.
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Answers { started: now, count: 0, last: now }))
    }

    /// The server has answered a write, whatever it said.
    pub(crate) fn answered(&self) {
        let mut answers = self.0.lock();
        answers.count = answers.count.saturating_add(1);
        answers.last = Instant::now();
    }

    /// Returns when the sync is slow.
    pub(crate) async fn slow(&self) {
        loop {
            let deadline = self.0.lock().deadline();
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}
