//! What must hold for the process to be alive, and to be ready.
//!
//! ```text
//!  component ─ readiness("watch pods") ─► handle: set(Ok(())), set(Err("…")); dropped = failed
//!            ─ liveness("disk", closure), heartbeat("main loop", 60 s)
//!                                  │
//!  /livez, /healthz  ◄─ liveness ──┤
//!  /readyz           ◄─ all        ┘  (what must be restarted is not ready either)
//! ```
//!
//! A failed liveness check gets the process restarted, a failed readiness check keeps work away from
//! it: only what a restart can mend belongs to the first.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

type Probe = dyn Fn() -> Result<(), String> + Send + Sync;

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Should the process go on running?
    Live,
    /// Can it do its work now?
    Ready,
}

/// The named checks of a process, in the order they were added. Clones are the same list.
#[derive(Clone, Default)]
pub struct Checks {
    list: Arc<Mutex<Vec<Check>>>,
}

#[derive(Clone)]
struct Check {
    name: String,
    question: Question,
    probe: Arc<Probe>,
}

impl Checks {
    /// Adds a check that the process is alive. It must be quick: it is asked over HTTP.
    pub fn liveness(
        &self,
        name: &str,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name, Question::Live, Arc::new(probe));
    }

    /// Adds a check that a loop comes round: it fails when the last beat is longer ago than `limit`.
    pub fn heartbeat(&self, name: &str, limit: Duration) -> Heartbeat {
        let heartbeat = Heartbeat { start: Instant::now(), last: Arc::default() };
        let seen = heartbeat.clone();
        self.liveness(name, move || match seen.age() {
            age if age <= limit => Ok(()),
            age => Err(format!("last seen {age:.1?} ago, at most {limit:?} is good")),
        });
        heartbeat
    }

    /// Adds a check that the process is ready, computed when asked.
    pub fn readiness_when(
        &self,
        name: &str,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(name, Question::Ready, Arc::new(probe));
    }

    /// Adds a component that is not ready until it says so.
    pub fn readiness(&self, name: &str) -> Readiness {
        let state = Arc::new(Mutex::new(Err("not yet".to_owned())));
        let seen = Arc::clone(&state);
        self.readiness_when(name, move || seen.lock().clone());
        Readiness { state }
    }

    fn add(&self, name: &str, question: Question, probe: Arc<Probe>) {
        self.list.lock().push(Check { name: name.to_owned(), question, probe });
    }

    /// Runs the checks that answer this question.
    pub fn ask(&self, question: Question) -> Report {
        // A probe may take its time: the list is not locked meanwhile.
        let mut checks = self.list.lock().clone();
        checks.retain(|check| check.question == Question::Live || question == Question::Ready);
        let ping = ("ping".to_owned(), Ok(()));
        let answers = checks.into_iter().map(|check| (check.name, (check.probe)()));
        Report { answers: std::iter::once(ping).chain(answers).collect() }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.list.lock().iter().map(|check| check.name.clone())).finish()
    }
}

/// A component's say in whether the process is ready. When it is dropped the component is gone, and
/// the process is not ready any more.
#[derive(Debug)]
pub struct Readiness {
    state: Arc<Mutex<Result<(), String>>>,
}

impl Readiness {
    /// Ready, or why not.
    pub fn set(&self, state: Result<(), &str>) {
        *self.state.lock() = state.map_err(str::to_owned);
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.set(Err("stopped"));
    }
}

/// A loop's sign of life.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Milliseconds since `start`.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Still here.
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

/// The answers of all checks asked, in order; `ping`, which always passes, first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    answers: Vec<(String, Result<(), String>)>,
}

impl Report {
    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.answers.iter().all(|(_, answer)| answer.is_ok())
    }

    /// One line for each check and one for the whole, as the reference's servers write them.
    pub fn text(&self, endpoint: &str) -> String {
        let mut text = String::new();
        for (name, answer) in &self.answers {
            // Writing to a String cannot fail.
            let _ = match answer {
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
    fn ready_means_all_checks_alive_means_liveness_only() {
        let checks = Checks::default();
        let pods = checks.readiness("watch pods");
        checks.liveness("disk", || Ok(()));
        assert!(checks.ask(Question::Live).passed());
        assert_eq!(
            checks.ask(Question::Ready).text("readyz"),
            "[+]ping ok\n[-]watch pods failed: not yet\n[+]disk ok\nreadyz check failed\n"
        );

        pods.set(Ok(()));
        assert!(checks.ask(Question::Ready).passed());

        checks.liveness("loop", || Err("stuck\nfor 60 s".to_owned()));
        let text = "[+]ping ok\n[+]disk ok\n[-]loop failed: stuck for 60 s\nlivez check failed\n";
        assert_eq!(checks.ask(Question::Live).text("livez"), text);
        assert!(!checks.ask(Question::Ready).passed());
    }

    #[test]
    fn a_dropped_component_is_not_ready() {
        let checks = Checks::default();
        let pods = checks.readiness("watch pods");
        pods.set(Ok(()));
        drop(pods);
        let text = checks.ask(Question::Ready).text("readyz");
        assert_eq!(text, "[+]ping ok\n[-]watch pods failed: stopped\nreadyz check failed\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_must_come_round() {
        let checks = Checks::default();
        let main_loop = checks.heartbeat("main loop", Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(checks.ask(Question::Live).passed());
        main_loop.beat();
        tokio::time::advance(Duration::from_secs(61)).await;
        let text = checks.ask(Question::Live).text("livez");
        let line = "[-]main loop failed: last seen 61.0s ago, at most 60s is good\n";
        assert!(text.contains(line), "{text}");
        main_loop.beat();
        assert!(checks.ask(Question::Live).passed());
    }
}
