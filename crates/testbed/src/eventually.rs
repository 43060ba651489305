//! Waiting for a cluster to reach a state.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Longer than anything in a test takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The first attempts follow each other quickly, because most of what is waited for is there at once. Later ones are rare: a request
/// costs ten milliseconds of CPU time, and what lasts for seconds is seen soon enough.
const FIRST_INTERVAL: Duration = Duration::from_millis(25);
const LAST_INTERVAL: Duration = Duration::from_millis(400);

/// Calls `attempt` until it succeeds, and returns its value.
///
/// # Panics
/// With the last error, if it has not succeeded within three minutes.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    mut attempt: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    let mut interval = FIRST_INTERVAL;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(
                Instant::now() < deadline,
                "not within {} seconds: {error}",
                TIMEOUT.as_secs()
            ),
        }
        tokio::time::sleep(interval).await;
        interval = (interval * 5 / 4).min(LAST_INTERVAL);
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
