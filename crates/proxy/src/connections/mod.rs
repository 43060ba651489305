//! The kernel's counters of connections, read on a thread of their own.
//!
//! ```text
//!  /metrics ─ asks ─► thread with a socket of its own ─ reads the counters ─┐
//!     ▲                                                                     │
//!     └── the new figures, or after a moment those of the last reading ◄────┘
//! ```
//!
//! Reading is no change, so it needs neither the socket that owns the tables nor the lock around it. With
//! `--count services` there is a counter per zone and used address and port of a Service, and reading many takes the
//! kernel time: a page does not wait for that. A page that shows several counters has all of them read at the same
//! time, and waits once. These counters are also read every few seconds while nobody asks, so that what was counted
//! belongs to the Service that had the address then (`ledger`).

pub(crate) mod bytes;
pub(crate) mod ledger;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zonewise_common::name::{Key, Name};
use zonewise_nft::{Bytes, Family, Network, Socket};
use zonewise_routing::Frontend;

use crate::published::{Published, PublishedService};
use crate::rules::entries::routing_family;
use crate::rules::layout::FAMILIES;
use crate::rules::{TABLE, counting};

/// How long a page waits for new figures.
const PATIENCE: Duration = Duration::from_millis(30);

/// How often the connections of Services are read while nobody asks.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// How often a set is read while other programs change tables.
const READ_AGAIN: usize = 5;

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

/// Which Service has an address and port.
pub(crate) type Owners = BTreeMap<Frontend, Key>;

/// Reads what was counted by Service and zone since the last time into the ledger of `published`. Nothing where that is
/// not counted.
///
/// # Errors
/// If the kernel cannot be read.
pub fn by_service(socket: &mut Socket, published: &Published) -> io::Result<()> {
    for family in FAMILIES {
        let sets = match socket.sets(family, TABLE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            sets => sets?,
        };
        let zones: Vec<&str> =
            sets.iter().filter_map(|set| set.name.strip_prefix(counting::PREFIX)).collect();
        for zone in zones {
            read_set(socket, published, family, zone)?;
        }
    }
    Ok(())
}

/// Reads the set of one zone, by the name of its counter. The counter is read before its elements, so that it never
/// has more than these because of the time in between.
///
/// # Errors
/// If the kernel cannot be read.
pub(crate) fn read_set(
    socket: &mut Socket,
    published: &Published,
    family: Family,
    zone: &str,
) -> io::Result<()> {
    let epoch = published.connections().epoch();
    let counters = socket.counters(family, TABLE)?;
    let total = counters.iter().find(|counter| counter.name == zone);
    let mut elements = BTreeMap::new();
    for _ in 0..READ_AGAIN {
        let read = socket.dump(family, TABLE, &counting::set(zone), &mut |seen| {
            elements.insert(Bytes::from_slice(seen.key), seen.packets.unwrap_or(0));
        });
        match read {
            // Another program has changed its own tables. What was read is right all the same; it may not be all.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The zone has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => {
                result?;
                break;
            }
        }
    }
    let read = ledger::Read { family, total: total.map_or(0, |counter| counter.packets), elements };
    let owners = published.owners();
    published.connections().take(zone, epoch, &read, &owners);
    Ok(())
}

/// The Services of all addresses and ports that are served.
pub(crate) fn owners_of<'s>(services: impl Iterator<Item = &'s PublishedService>) -> Owners {
    let mut owners = Owners::new();
    for known in services {
        let service = &known.programmed.service;
        let families = FAMILIES.map(routing_family);
        let ports = service.ports.iter().flat_map(|port| families.map(|family| (port, family)));
        for (port, family) in ports {
            let frontends = service.frontends(port, family).into_iter().map(|(at, _)| at);
            let owned = frontends.filter(|at| known.refusal(at).is_none());
            let key = || (Name::clone(&service.namespace), Name::clone(&service.name));
            owned.for_each(|at| drop(owners.insert(at, key())));
        }
    }
    owners
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
    /// Starts the thread. It calls `read` with a socket in the network namespace of the calling thread: when somebody
    /// asks, and with a period after that time without a question, too.
    pub(crate) fn start(
        network: &Network,
        period: Option<Duration>,
        mut read: impl FnMut(&mut Socket) -> io::Result<T> + Send + 'static,
    ) -> Self {
        let (last, patience) = (Arc::default(), Instant::now());
        let state = State { asked: 0, answered: 0, patience, last, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (own, network) = (Arc::clone(&shared), network.clone());
        let body = move || {
            let mut socket = None;
            while let Some(question) = own.wait_for_question(period) {
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
    /// The number of the last question, after a period without one, too; `None` when nobody can ask any more.
    fn wait_for_question(&self, period: Option<Duration>) -> Option<u64> {
        let mut state = self.state.lock();
        let until = period.map(|period| Instant::now() + period);
        while state.answered == state.asked && !state.ended {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) if self.changed.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
            }
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
