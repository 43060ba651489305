//! Waiting for a cluster to reach a state.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Longer than anything in a test takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Calls `attempt` until it succeeds, and returns its value.
///
/// # Panics
/// With the last error, if it has not succeeded within three minutes.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    mut attempt: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(
                Instant::now() < deadline,
                "not within {} seconds: {error}",
                TIMEOUT.as_secs()
            ),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Calls `actual` until it returns `expected`. `what` names the value in the failure.
///
/// # Panics
/// With the last value, if it has not become the expected one within three minutes.
pub async fn eventually_equals<T: PartialEq + Debug>(
    what: &str,
    expected: T,
    mut actual: impl FnMut() -> T,
) {
    eventually(|| {
        let found = actual();
        let result = if found == expected {
            Ok(())
        } else {
            Err(format!("{what}: {found:?} instead of {expected:?}"))
        };
        std::future::ready(result)
    })
    .await;
}
