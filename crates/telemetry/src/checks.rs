//! Liveness and readiness checks of the process.
//!
//! ```text
//!  component ─ readiness("watch pods") ─► handle: set(Ok(())), set(Err("…")); dropped: failed
//!            ─ liveness("disk", closure), heartbeat("main loop", 60 s)
//!                                  │
//!  /livez, /healthz  ◄─ liveness ──┤
//!  /readyz           ◄─ all        ┘  (a process that is not alive is not ready either)
//! ```
//!
//! A failed liveness check makes the kubelet restart the process; a failed readiness check only keeps
//! requests away from it. A liveness check must therefore be one that a restart can repair.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

type CheckFn = dyn Fn() -> Result<(), String> + Send + Sync;

/// The kind of a health check, as a kubelet probes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The process should keep running.
    Liveness,
    /// The process can do its work now.
    Readiness,
}

/// The named checks of a process, in the order they were added. Clones are the same list.
#[derive(Clone, Default)]
pub struct Checks {
    list: Arc<Mutex<Vec<Check>>>,
}

#[derive(Clone)]
struct Check {
    name: String,
    probe: Probe,
    check: Arc<CheckFn>,
}

impl Checks {
    /// Adds a liveness check. It must be quick: it runs within an HTTP request.
    pub fn liveness(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name, Probe::Liveness, Arc::new(check));
    }

    /// Adds a liveness check of a loop: it fails when the last heartbeat is longer ago than `limit`.
    pub fn heartbeat(&self, name: &str, limit: Duration) -> Heartbeat {
        let heartbeat = Heartbeat { start: Instant::now(), last: Arc::default() };
        let checked = heartbeat.clone();
        self.liveness(name, move || match checked.age() {
            age if age <= limit => Ok(()),
            age => Err(format!("last heartbeat {age:.1?} ago, the limit is {limit:?}")),
        });
        heartbeat
    }

    /// Adds a readiness check that is computed for each request.
    pub fn readiness_when(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name, Probe::Readiness, Arc::new(check));
    }

    /// Adds a component that is not ready until its handle is set.
    pub fn readiness(&self, name: &str) -> Readiness {
        let state = Arc::new(Mutex::new(Err("not yet".to_owned())));
        let checked = Arc::clone(&state);
        self.readiness_when(name, move || checked.lock().clone());
        Readiness { state }
    }

    fn add(&self, name: &str, probe: Probe, check: Arc<CheckFn>) {
        self.list.lock().push(Check { name: name.to_owned(), probe, check });
    }

    /// Runs the checks of a probe. Readiness includes liveness.
    pub fn run(&self, probe: Probe) -> Report {
        // A check may be slow: the list is not locked meanwhile.
        let mut checks = self.list.lock().clone();
        checks.retain(|check| check.probe == Probe::Liveness || probe == Probe::Readiness);
        let ping = ("ping".to_owned(), Ok(()));
        let results = checks.into_iter().map(|check| (check.name, (check.check)()));
        Report { results: std::iter::once(ping).chain(results).collect() }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.list.lock().iter().map(|check| check.name.clone())).finish()
    }
}

/// The handle by which a component reports whether it is ready. Dropping it means that the component has
/// stopped: the process is not ready any more.
#[derive(Debug)]
pub struct Readiness {
    state: Arc<Mutex<Result<(), String>>>,
}

impl Readiness {
    /// Sets the component ready, or not ready with a reason.
    pub fn set(&self, state: Result<(), &str>) {
        *self.state.lock() = state.map_err(str::to_owned);
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.set(Err("stopped"));
    }
}

/// The handle by which a loop reports that it still runs.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Milliseconds since `start`.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Reports that the loop still runs.
    pub fn beat(&self) {
        self.last.store(millis(self.start.elapsed()), Relaxed);
    }

    fn age(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Relaxed)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The results of checks in order; `ping`, which always passes, is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    results: Vec<(String, Result<(), String>)>,
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.results.iter().all(|(_, result)| result.is_ok())
    }

    /// One line for each check and one for all, as the servers of Kubernetes write them.
    pub fn text(&self, endpoint: &str) -> String {
        let mut text = String::new();
        for (name, result) in &self.results {
            // Writing to a String cannot fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => writeln!(text, "[-]{name} failed: {}", why.replace('\n', " ")),
            };
        }
        let verdict = if self.passed() { "passed" } else { "failed" };
        text + &format!("{endpoint} check {verdict}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_runs_all_checks_liveness_its_own_only() {
        let checks = Checks::default();
        let pods = checks.readiness("watch pods");
        checks.liveness("disk", || Ok(()));
        assert!(checks.run(Probe::Liveness).passed());
        assert_eq!(
            checks.run(Probe::Readiness).text("readyz"),
            "[+]ping ok\n[-]watch pods failed: not yet\n[+]disk ok\nreadyz check failed\n"
        );

        pods.set(Ok(()));
        assert!(checks.run(Probe::Readiness).passed());

        checks.liveness("loop", || Err("stuck\nfor 60 s".to_owned()));
        let text = "[+]ping ok\n[+]disk ok\n[-]loop failed: stuck for 60 s\nlivez check failed\n";
        assert_eq!(checks.run(Probe::Liveness).text("livez"), text);
        assert!(!checks.run(Probe::Readiness).passed());
    }

    #[test]
    fn a_dropped_component_is_not_ready() {
        let checks = Checks::default();
        let pods = checks.readiness("watch pods");
        pods.set(Ok(()));
        drop(pods);
        let text = checks.run(Probe::Readiness).text("readyz");
        assert_eq!(text, "[+]ping ok\n[-]watch pods failed: stopped\nreadyz check failed\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_heartbeat_fails() {
        let checks = Checks::default();
        let main_loop = checks.heartbeat("main loop", Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(checks.run(Probe::Liveness).passed());
        main_loop.beat();
        tokio::time::advance(Duration::from_secs(61)).await;
        let text = checks.run(Probe::Liveness).text("livez");
        let line = "[-]main loop failed: last heartbeat 61.0s ago, the limit is 60s\n";
        assert!(text.contains(line), "{text}");
        main_loop.beat();
        assert!(checks.run(Probe::Liveness).passed());
    }
}
