//! The kernel's counters of connections, read on a thread of their own.
//!
//! ```text
//!  /metrics ─ asks ─► thread with a socket of its own ─ reads the counters ─┐
//!     ▲                                                                     │
//!     └── the new figures, or after a moment those of the last reading ◄────┘
//! ```
//!
//! Reading is no change, so it needs neither the socket that owns the tables nor the lock around it. With
//! `--count services` there is a counter per address and port of a Service, and reading a hundred thousand
//! of them takes the kernel a second: a page does not wait for that. A page that shows several counters has all of
//! them read at the same time, and waits once.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zonewise_common::name::{Key, Name};
use zonewise_nft::{DumpedElement, Family, Network, Parts, Socket};
use zonewise_routing::{Frontend, Protocol};

use crate::published::Published;
use crate::rules::TABLE;
use crate::rules::entries::routing_family;
use crate::rules::layout::FAMILIES;
use crate::rules::sets::Set;
use crate::rules::text::protocol_name;

/// How long a page waits for new figures.
const PATIENCE: Duration = Duration::from_millis(30);

/// What connections are counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedPort {
    /// Namespace and name of the Service.
    pub service: Key,
    /// The name of the protocol.
    pub protocol: String,
    /// The Service port.
    pub port: u16,
}

/// The connections counted so far, by name of the zone's counter.
///
/// # Errors
/// If the kernel cannot be read.
pub fn by_zone(socket: &mut Socket) -> io::Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for family in FAMILIES {
        for counter in socket.counters(family, TABLE)? {
            *sums.entry(counter.name).or_insert(0) += counter.packets;
        }
    }
    Ok(sums)
}

/// Connections per Service, protocol and Service port; empty where these are not counted.
///
/// # Errors
/// If the kernel cannot be read.
pub fn by_service(
    socket: &mut Socket,
    published: &Published,
) -> io::Result<BTreeMap<CountedPort, u64>> {
    let mut counted = BTreeMap::new();
    for family in FAMILIES {
        for set in [Set::Connections, Set::NodePortConnections] {
            let mut note = |seen: DumpedElement<'_>| {
                if let Some(frontend) = frontend(family, set, seen.key) {
                    counted.insert(frontend, seen.packets.unwrap_or(0));
                }
            };
            match socket.dump(family, TABLE, set.name(), &mut note) {
                // The set is there only where Services are counted; a counter that was read while another
                // program changed its own tables is right all the same.
                Err(error) if is_harmless(&error) => {}
                result => result?,
            }
        }
    }
    Ok(sums(&mut counted, published))
}

fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Interrupted)
}

fn frontend(family: Family, set: Set, key: &[u8]) -> Option<Frontend> {
    let mut key = Parts(key);
    let address = match set {
        Set::NodePortConnections => None,
        _ => Some(key.address(family)?),
    };
    let protocol = Protocol::of_number(key.protocol()?)?;
    Some(Frontend { address, family: routing_family(family), protocol, port: key.port()? })
}

/// The counts of frontends as counts of the Service ports behind them.
fn sums(
    counted: &mut BTreeMap<Frontend, u64>,
    published: &Published,
) -> BTreeMap<CountedPort, u64> {
    let mut sums = BTreeMap::new();
    let services = if counted.is_empty() { Vec::new() } else { published.services() };
    for known in &services {
        let service = &known.programmed.service;
        let families = FAMILIES.map(routing_family);
        let ports = service.ports.iter().flat_map(|port| families.map(|family| (port, family)));
        for (port, family) in ports {
            let frontends = service.frontends(port, family).into_iter().map(|(at, _)| at);
            let owned = frontends.filter(|at| known.refusal(at).is_none());
            let counts: Vec<u64> = owned.filter_map(|at| counted.remove(&at)).collect();
            if !counts.is_empty() {
                let port = CountedPort {
                    service: (Name::clone(&service.namespace), Name::clone(&service.name)),
                    protocol: protocol_name(port.protocol.number()),
                    port: port.port,
                };
                *sums.entry(port).or_insert(0) += counts.iter().sum::<u64>();
            }
        }
    }
    sums
}

/// Something that a thread of its own reads whenever it is asked for.
#[derive(Debug)]
pub(crate) struct Reading<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// How often it was asked for, and how many of these questions are answered.
    asked: u64,
    answered: u64,
    /// Until when those who ask wait for the answer to the last question.
    patience: Instant,
    last: Arc<T>,
    ended: bool,
}

impl<T: Default + Send + Sync + 'static> Reading<T> {
    /// Starts the thread. It calls `read` with a socket in the network namespace of the calling thread.
    pub(crate) fn start(
        network: &Network,
        mut read: impl FnMut(&mut Socket) -> io::Result<T> + Send + 'static,
    ) -> Self {
        let (last, patience) = (Arc::default(), Instant::now());
        let state = State { asked: 0, answered: 0, patience, last, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (own, network) = (Arc::clone(&shared), network.clone());
        let body = move || {
            let mut socket = None;
            while let Some(question) = own.wait_for_question() {
                let result = open(&mut socket, &network).and_then(&mut read);
                own.answer(question, result);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("connections".into()).spawn(body) {
            tracing::warn!(%error, "cannot start the thread that reads counters: they stay at 0");
        }
        Self(shared)
    }

    /// Has it read, so that whoever gets it soon does not wait as long. Those who ask within a moment, or before there is
    /// an answer, ask the same.
    pub(crate) fn ask(&self) {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        if state.answered == state.asked && now >= state.patience {
            state.asked += 1;
            state.patience = now + PATIENCE;
            self.0.changed.notify_all();
        }
    }

    /// What the kernel has now, or a moment ago if reading takes long.
    pub(crate) fn get(&self) -> Arc<T> {
        self.ask();
        let mut state = self.0.state.lock();
        let (question, patience) = (state.asked, state.patience);
        while state.answered < question {
            if self.0.changed.wait_until(&mut state, patience).timed_out() {
                break;
            }
        }
        Arc::clone(&state.last)
    }
}

fn open<'s>(socket: &'s mut Option<Socket>, network: &Network) -> io::Result<&'s mut Socket> {
    if socket.is_none() {
        *socket = Some(network.socket()?);
    }
    socket.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl<T> Shared<T> {
    /// The number of the last question; `None` when nobody can ask any more.
    fn wait_for_question(&self) -> Option<u64> {
        let mut state = self.state.lock();
        while state.answered == state.asked && !state.ended {
            self.changed.wait(&mut state);
        }
        (!state.ended).then_some(state.asked)
    }

    fn answer(&self, question: u64, result: io::Result<T>) {
        let mut state = self.state.lock();
        match result {
            Ok(value) => state.last = Arc::new(value),
            Err(error) => tracing::debug!(%error, "cannot read the kernel's counters"),
        }
        state.answered = question;
        self.changed.notify_all();
    }
}

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that shows two things of the kernel, which answers neither, waits for both at the same time.
    #[test]
    fn questions_of_one_moment_are_one_question() {
        let reading = Reading(Arc::new(Shared {
            state: Mutex::new(State {
                asked: 0,
                answered: 0,
                patience: Instant::now(),
                last: Arc::new(7),
                ended: false,
            }),
            changed: Condvar::new(),
        }));
        reading.ask();
        let patience = reading.0.state.lock().patience;
        assert_eq!(*reading.get(), 7, "what was read last");
        assert!(Instant::now() >= patience, "it has waited, as nobody answers");
        let state = reading.0.state.lock();
        assert_eq!((state.asked, state.patience), (1, patience), "for the first question");
        drop(state);
        // Longer than a page waits: it is not asked again before there is an answer.
        assert_eq!(*reading.get(), 7);
        let state = reading.0.state.lock();
        assert_eq!((state.asked, state.patience), (1, patience), "for the first question");
        drop(state);
        reading.0.answer(1, Ok(8));
        assert_eq!(*reading.get(), 8);
        assert_eq!(reading.0.state.lock().asked, 2, "after the answer it is asked again");
    }
}
