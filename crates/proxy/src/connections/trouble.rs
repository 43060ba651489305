//! When connection tracking is read again after that has failed, and what the log says of it.

use std::io;
use std::time::{Duration, Instant};

/// The first and the longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Failures that follow each other, and when it is tried again.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<(Duration, Instant)>);

impl Trouble {
    /// Whether it may be tried.
    pub(super) fn lets_try(&self, now: Instant) -> bool {
        self.0.is_none_or(|(_, until)| now >= until)
    }

    /// Says in the log that `what` is not counted, at the first of several failures, and that it is again.
    pub(super) fn note(&mut self, now: Instant, what: &str, result: io::Result<()>) {
        match result {
            Ok(()) if self.worked() => tracing::info!("{what} are counted again"),
            Ok(()) => {}
            Err(error) if self.failed(now) => tracing::warn!(
                %error,
                "{what} are not counted, because connection tracking cannot be read: check that the proxy has the \
                 capability NET_ADMIN, and that the kernel has the module nf_conntrack_netlink; it is tried again"
            ),
            Err(_) => {}
        }
    }

    /// It has failed; whether it worked before.
    fn failed(&mut self, now: Instant) -> bool {
        let pause = self.0.map_or(FIRST_PAUSE, |(pause, _)| (pause * 2).min(LONGEST_PAUSE));
        self.0.replace((pause, now + pause)).is_none()
    }

    /// It has worked; whether it failed before.
    fn worked(&mut self) -> bool {
        self.0.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_followed_by_longer_and_longer_pauses() {
        let mut trouble = Trouble::default();
        let begin = Instant::now();
        let mut now = begin;
        let mut pauses = Vec::new();
        for attempt in 0..8 {
            assert!(trouble.lets_try(now));
            assert_eq!(trouble.failed(now), attempt == 0);
            let (pause, until) = trouble.0.unwrap();
            assert!(!trouble.lets_try(now + pause / 2));
            now = until;
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(trouble.worked() && !trouble.worked());
        assert!(trouble.lets_try(begin));
    }
}
