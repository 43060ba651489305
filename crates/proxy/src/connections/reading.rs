//! A thread that reads something from the kernel whenever somebody asks.
//!
//! ```text
//!  /metrics ─ asks ─► thread with a socket of its own ─ reads the counters ─┐
//!     ▲                                                                     │
//!     └── the new figures, or after a moment those of the last reading ◄────┘
//! ```
//!
//! Reading many counters takes the kernel time, and a page does not wait for that. A page that shows several things has
//! all of them read at the same time, and waits once.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zonewise_nft::{Network, Socket};

/// How long a page waits for new figures.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(30);

/// A reading that takes longer is followed by a rest, so that readings take a tenth of the time at most.
const LONG: Duration = Duration::from_millis(100);
const REST: u32 = 9;

/// When it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// When somebody asks.
    Asked,
    /// And after this time without a question. After a long reading there is a rest.
    Every(Duration),
    /// The same without a rest, for what is lost if it is not read.
    Always(Duration),
}

impl Pace {
    fn period(self) -> Option<Duration> {
        match self {
            Self::Asked => None,
            Self::Every(period) | Self::Always(period) => Some(period),
        }
    }

    /// How long to rest after a reading that took so long.
    fn rest(self, took: Duration) -> Duration {
        match self {
            Self::Always(_) => Duration::ZERO,
            Self::Asked | Self::Every(_) if took < LONG => Duration::ZERO,
            Self::Asked | Self::Every(_) => took * REST,
        }
    }
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
    deadline: Instant,
    last: Arc<T>,
    /// Whether the last reading failed.
    failed: bool,
    ended: bool,
}

impl<T> State<T> {
    fn succeed(&mut self, value: T) {
        self.last = Arc::new(value);
        if std::mem::take(&mut self.failed) {
            tracing::info!("the kernel's counters can be read again");
        }
    }

    /// Logs the first of several failures. There are no tables before the first sync, which is none.
    fn fail(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound && !std::mem::replace(&mut self.failed, true) {
            tracing::warn!(%error, "cannot read the kernel's counters: figures stay as they are until it works again");
        }
    }
}

impl<T: Default + Send + Sync + 'static> Reading<T> {
    /// Starts the thread. It calls `read` with a socket in the network namespace of the calling thread.
    pub(crate) fn start(
        network: &Network,
        pace: Pace,
        mut read: impl FnMut(&mut Socket) -> io::Result<T> + Send + 'static,
    ) -> Self {
        let (last, deadline) = (Arc::default(), Instant::now());
        let state = State { asked: 0, answered: 0, deadline, last, failed: false, ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (own, network) = (Arc::clone(&shared), network.clone());
        let body = move || {
            let mut socket = None;
            while let Some(question) = own.wait_for_question(pace.period()) {
                let began = Instant::now();
                let result = open(&mut socket, &network).and_then(&mut read);
                own.answer(question, result);
                own.rest(pace.rest(began.elapsed()));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("connections".into()).spawn(body) {
            tracing::warn!(%error, "cannot start the thread that reads counters: they stay at 0");
        }
        Self(shared)
    }

    /// Has it read now, so that a call of `get` soon after does not wait as long. Questions within a moment, or before there
    /// is an answer, share one reading.
    pub(crate) fn ask(&self) {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        if state.answered == state.asked && now >= state.deadline {
            state.asked += 1;
            state.deadline = now + ANSWER_TIMEOUT;
            self.0.changed.notify_all();
        }
    }

    /// What the kernel has now, or a moment ago if reading takes long.
    pub(crate) fn get(&self) -> Arc<T> {
        self.ask();
        let mut state = self.0.state.lock();
        let (question, deadline) = (state.asked, state.deadline);
        while state.answered < question {
            if self.0.changed.wait_until(&mut state, deadline).timed_out() {
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

    /// Waits, unless nobody can ask any more.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.ended && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
    }

    fn answer(&self, question: u64, result: io::Result<T>) {
        let mut state = self.state.lock();
        match result {
            Ok(value) => state.succeed(value),
            Err(error) => state.fail(&error),
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
                deadline: Instant::now(),
                last: Arc::new(7),
                failed: false,
                ended: false,
            }),
            changed: Condvar::new(),
        }));
        reading.ask();
        let deadline = reading.0.state.lock().deadline;
        assert_eq!(*reading.get(), 7, "what was read last");
        assert!(Instant::now() >= deadline, "it has waited, as nobody answers");
        let state = reading.0.state.lock();
        assert_eq!((state.asked, state.deadline), (1, deadline), "for the first question");
        drop(state);
        // Longer than a page waits: it is not asked again before there is an answer.
        assert_eq!(*reading.get(), 7);
        let state = reading.0.state.lock();
        assert_eq!((state.asked, state.deadline), (1, deadline), "for the first question");
        drop(state);
        reading.0.answer(1, Ok(8));
        assert_eq!(*reading.get(), 8);
        assert_eq!(reading.0.state.lock().asked, 2, "after the answer it is asked again");
    }

    #[test]
    fn long_readings_take_a_tenth_of_the_time() {
        let (short, long) = (Duration::from_millis(99), Duration::from_secs(2));
        let rests = |pace: Pace| [short, long].map(|took| pace.rest(took).as_secs());
        assert_eq!(rests(Pace::Asked), [0, 18]);
        assert_eq!(rests(Pace::Every(short)), [0, 18]);
        assert_eq!(rests(Pace::Always(short)), [0, 0]);
    }
}
