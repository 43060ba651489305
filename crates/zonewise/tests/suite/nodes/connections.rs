//! Connections that are made all the time while something changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use zonewise_netns::Namespace;
use zonewise_netns::traffic::{ProbeResult, probe_tcp};
use zonewise_testbed::eventually_equals;

/// A connection that is not accepted until then has lost its first packet, which is sent again after a second.
const LOST: Duration = Duration::from_millis(900);
/// More connections than any test needs.
const MOST: usize = 1_000_000;

/// One thread that makes connections, and those that no server answered.
pub(crate) struct Connections {
    made: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    failed: Arc<Mutex<BTreeMap<String, usize>>>,
    thread: JoinHandle<()>,
}

impl Connections {
    /// From each of these to each of those, in turn.
    pub(crate) fn start(ways: Vec<(Namespace, SocketAddr)>) -> Self {
        let (made, stop, failed) = (Arc::default(), Arc::default(), Arc::default());
        let (count, end, failures): (Arc<AtomicUsize>, Arc<AtomicBool>, Arc<Mutex<_>>) =
            (Arc::clone(&made), Arc::clone(&stop), Arc::clone(&failed));
        let work = move || {
            for (from, to) in ways.iter().cycle().take(MOST) {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let answer = probe_tcp(from, *to, LOST);
                if !matches!(answer, ProbeResult::Answered { .. }) {
                    let mut failures = failures.lock().unwrap();
                    *BTreeMap::entry(&mut *failures, format!("{to}: {answer}")).or_insert(0) += 1;
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        Self { made, stop, failed, thread: std::thread::spawn(work) }
    }

    /// Waits for so many connections more.
    pub(crate) async fn more(&self, many: usize) {
        let goal = self.made.load(Ordering::SeqCst) + many;
        eventually_equals("connections", true, || self.made.load(Ordering::SeqCst) >= goal).await;
    }

    /// What was seen instead of an answer, and how often.
    pub(crate) fn failures(&self) -> BTreeMap<String, usize> {
        self.failed.lock().unwrap().clone()
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}
