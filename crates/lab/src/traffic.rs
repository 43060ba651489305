//! Those who call: one client on each node, opening connections at a steady rate.
//!
//! ```text
//!  Rates ──► client thread, inside its namespace if there is one ──► next due ─► connect ─► who answered ─► ledger
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use zonewise_netns::traffic::ProbeResult;

use crate::ground::Caller;
use crate::measure::Counts;

/// A connection that is not answered within this time has failed. A lost packet is sent again after a second.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time until a client notices changed rates.
const LOOK: Duration = Duration::from_millis(50);
/// A client that was delayed makes up for missed connections of at most this time.
const CATCH_UP: Duration = Duration::from_millis(200);

/// A Service that clients connect to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Its address.
    pub(crate) to: SocketAddr,
    /// Connections per second of one client in each zone.
    pub(crate) per_client: Vec<f64>,
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    clients: Vec<Client>,
}

/// A client on a node.
#[derive(Debug)]
pub(crate) struct Client {
    node: String,
    zone: usize,
    running: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    targets: Vec<Option<Target>>,
    /// Connections since the last [`Traffic::drain`], by Service.
    ledger: Vec<Counts>,
    first: Option<Instant>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Traffic {
    /// Without clients, for this many Services.
    pub(crate) fn new(services: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let mut state = shared.state();
        state.targets.resize(services, None);
        state.ledger.resize_with(services, Counts::default);
        drop(state);
        Self { shared, clients: Vec::new() }
    }

    /// Starts a client for a node.
    pub(crate) fn start(&mut self, node: &str, zone: usize, caller: Caller) {
        let running = Arc::new(AtomicBool::new(true));
        let (shared, goes_on) = (Arc::clone(&self.shared), Arc::clone(&running));
        let thread = std::thread::spawn(move || match caller.join() {
            Ok(()) => call(&caller, &shared, zone, &goes_on),
            Err(error) => tracing::error!(%error, "a client cannot enter its namespace"),
        });
        let node = node.to_owned();
        self.clients.push(Client { node, zone, running, thread: Some(thread) });
    }

    /// Removes the client of a node. Dropping it waits for its last connection.
    pub(crate) fn take(&mut self, node: &str) -> Option<Client> {
        let index = self.clients.iter().position(|client| client.node == node)?;
        Some(self.clients.remove(index))
    }

    /// Number of clients in a zone.
    pub(crate) fn clients(&self, zone: usize) -> usize {
        self.clients.iter().filter(|client| client.zone == zone).count()
    }

    /// Sets the targets, by Service. A Service without a target gets no connections.
    pub(crate) fn aim(&self, targets: Vec<Option<Target>>) {
        let mut state = self.shared.state();
        if state.targets != targets {
            // Counts of a Service are kept under its number: numbers are added, and never taken away.
            let known = state.ledger.len().max(targets.len());
            state.ledger.resize_with(known, Counts::default);
            state.targets = targets;
            state.version += 1;
        }
    }

    /// Returns the connections since the last call, by Service, and starts anew.
    pub(crate) fn drain(&self) -> Vec<Counts> {
        self.shared.state().ledger.iter_mut().map(std::mem::take).collect()
    }

    /// When the first connection was answered.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.shared.state().first
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.running.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // All clients are told before the first is waited for: each may be waiting for an answer.
        for client in &self.clients {
            client.running.store(false, Ordering::Relaxed);
        }
    }
}

/// When a client connects to a Service next.
struct Due {
    service: usize,
    to: SocketAddr,
    every: Duration,
    next: Instant,
}

fn call(caller: &Caller, shared: &Shared, zone: usize, running: &AtomicBool) {
    let (mut version, mut dues) = (u64::MAX, Vec::new());
    while running.load(Ordering::Relaxed) {
        let state = shared.state();
        if state.version != version {
            version = state.version;
            dues = schedule(&state.targets, zone, Instant::now());
        }
        drop(state);
        let Some(due) = dues.iter_mut().min_by_key(|due| due.next) else {
            std::thread::sleep(LOOK);
            continue;
        };
        let wait = due.next.saturating_duration_since(Instant::now());
        std::thread::sleep(wait.min(LOOK));
        if wait > LOOK {
            continue;
        }
        due.next = (due.next + due.every).max(Instant::now() - CATCH_UP);
        let answer = caller.call(due.to, TIMEOUT);
        note(&mut shared.state(), due.service, zone, &answer);
    }
}

fn note(state: &mut State, service: usize, zone: usize, answer: &ProbeResult) {
    let counts = &mut state.ledger[service];
    match answer {
        ProbeResult::Answered { name, .. } => {
            counts.answered(zone, name);
            state.first.get_or_insert_with(Instant::now);
        }
        other => counts.failed(&other.to_string()),
    }
}

/// The first connection to each Service, spread over time.
fn schedule(targets: &[Option<Target>], zone: usize, now: Instant) -> Vec<Due> {
    let called = targets.iter().enumerate().filter_map(|(service, target)| {
        let target = target.as_ref()?;
        let rate = *target.per_client.get(zone)?;
        let every = Duration::try_from_secs_f64(1.0 / rate).ok().filter(|_| rate > 0.0)?;
        Some((service, target.to, every))
    });
    called
        .map(|(service, to, every)| {
            // Multiples of the golden ratio, modulo 1, are spread evenly for any number of Services.
            let phase = (service as f64 + zone as f64 / 7.0) * 0.618_034 % 1.0;
            Due { service, to, every, next: now + every.min(Duration::from_secs(5)).mul_f64(phase) }
        })
        .collect()
}
