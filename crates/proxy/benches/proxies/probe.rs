//! Connections from a pod: one after the other until somebody else answers, or as many as possible.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::libc::linger;
use nix::sys::socket::{
    self, AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrStorage, setsockopt,
    sockopt,
};
use zonewise_netns::Namespace;

/// Nobody is there yet: how soon the next try begins. A handshake on one box takes a tenth of a millisecond.
const KNOCK: Duration = Duration::from_millis(5);
/// Whoever has taken a connection will answer, if only the box lets it.
const ANSWER: Duration = Duration::from_millis(500);
/// Between two tries, so that waiting costs little of the CPU that the program needs.
const PAUSE: Duration = Duration::from_micros(500);
const CONNECT: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted: more than come while the server's thread is not let run.
const BACKLOG: i32 = 4096;

/// Asks again and again on a thread of its own; ends on drop.
pub(crate) struct Watcher {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Option<Instant>>,
}

impl Watcher {
    pub(crate) fn start(
        from: Namespace,
        to: SocketAddr,
        wanted: &'static str,
        limit: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || from.enter(|| until(to, wanted, limit, &stopped));
        Self { stop, task: tokio::task::spawn_blocking(work) }
    }

    /// When the wanted answer came, or that it never did; nothing if it may still come.
    pub(crate) async fn wait(&mut self, patience: Duration) -> Result<Option<Option<Instant>>> {
        match tokio::time::timeout(patience, &mut self.task).await {
            Ok(done) => Ok(Some(done?)),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn until(to: SocketAddr, wanted: &str, limit: Duration, stop: &AtomicBool) -> Option<Instant> {
    let begin = Instant::now();
    while begin.elapsed() < limit && !stop.load(Ordering::Relaxed) {
        if let Ok(stream) = TcpStream::connect_timeout(&to, KNOCK) {
            match ask(stream) {
                Ok(name) if name == wanted => return Some(Instant::now()),
                Ok(_) => {}
                // Nothing that should happen: what it has delayed must not pass for the program's figure.
                Err(error) => eprintln!("           {to} accepted and did not answer: {error}"),
            }
        }
        thread::sleep(PAUSE);
    }
    None
}

/// Who answers.
fn ask(mut stream: TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"ask\n")?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    // The server closes first, and our port is free again at once.
    io::copy(&mut lines, &mut io::sink())?;
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}

/// Connects and closes for a while, one connection at a time; the time each took.
pub(crate) fn hurry(from: &Namespace, to: SocketAddr, time: Duration) -> Result<Vec<Duration>> {
    from.enter(|| {
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < time {
            times.push(knock(to).with_context(|| format!("no connection to {to}"))?);
        }
        Ok(times)
    })
}

/// One connection, ended with a reset: nobody remembers it, and no port is used up.
fn knock(to: SocketAddr) -> io::Result<Duration> {
    let begin = Instant::now();
    let stream = TcpStream::connect_timeout(&to, CONNECT)?;
    let took = begin.elapsed();
    setsockopt(&stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 })?;
    Ok(took)
}

/// A server that accepts and says nothing; ends on drop.
pub(crate) struct Drain {
    socket: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn open(namespace: &Namespace, at: SocketAddr) -> Result<Self> {
        let socket = namespace.enter(|| listen(at)).context("cannot listen in a pod")?;
        let copy = socket.try_clone()?;
        let thread = thread::spawn(move || while copy.accept().is_ok() {});
        Ok(Self { socket, thread: Some(thread) })
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let _ = socket::shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn listen(at: SocketAddr) -> nix::Result<TcpListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let made: OwnedFd = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    socket::bind(made.as_raw_fd(), &SockaddrStorage::from(at))?;
    socket::listen(&made, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(made))
}
