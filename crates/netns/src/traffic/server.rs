//! A server on one address: one thread that accepts, and one thread per connection.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Scope};
use std::time::Duration;

use nix::sys::socket;
use parking_lot::{Mutex, MutexGuard};

use super::HOLD;
use crate::{Error, Namespace};

/// How long a client may stay silent before or after it is answered.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an error that may repeat at once, like too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// A server that answers with its name and the client's address, to HTTP requests as an HTTP response. Dropping it stops it and closes all
/// its connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    sockets: Vec<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    opened: u64,
    open: BTreeMap<u64, Arc<TcpStream>>,
}

impl Server {
    /// Answers TCP connections. Port 0 means any: see [`Self::address`].
    pub fn tcp(namespace: &Namespace, name: &str, address: SocketAddr) -> Result<Self, Error> {
        let mut server = Self::new(name, address);
        server.add_tcp(namespace)?;
        Ok(server)
    }

    /// Answers UDP datagrams. Port 0 means any: see [`Self::address`].
    pub fn udp(namespace: &Namespace, name: &str, address: SocketAddr) -> Result<Self, Error> {
        let mut server = Self::new(name, address);
        server.add_udp(namespace)?;
        Ok(server)
    }

    /// Answers both on the same port.
    pub fn both(namespace: &Namespace, name: &str, address: SocketAddr) -> Result<Self, Error> {
        let mut server = Self::tcp(namespace, name, address)?;
        server.add_udp(namespace)?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections and datagrams it has received so far.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::SeqCst)
    }

    fn new(name: &str, address: SocketAddr) -> Self {
        let shared = Shared {
            name: name.to_owned(),
            count: AtomicUsize::new(0),
            state: Mutex::new(State::default()),
        };
        Self { address, shared: Arc::new(shared), sockets: Vec::new(), threads: Vec::new() }
    }

    fn add_tcp(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let address = self.address;
        let made = namespace.enter(|| {
            let listener = TcpListener::bind(address)?;
            Ok((listener.local_addr()?, listener.try_clone()?, listener))
        });
        let (address, copy, listener) = made.map_err(|e| self.error(namespace, "TCP", e))?;
        let shared = Arc::clone(&self.shared);
        self.run(address, copy.into(), move || shared.accept(&listener));
        Ok(())
    }

    fn add_udp(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let address = self.address;
        let made = namespace.enter(|| {
            let socket = UdpSocket::bind(address)?;
            Ok((socket.local_addr()?, socket.try_clone()?, socket))
        });
        let (address, copy, socket) = made.map_err(|e| self.error(namespace, "UDP", e))?;
        let shared = Arc::clone(&self.shared);
        self.run(address, copy.into(), move || shared.receive(&socket));
        Ok(())
    }

    fn run(&mut self, address: SocketAddr, copy: OwnedFd, work: impl FnOnce() + Send + 'static) {
        self.address = address;
        self.sockets.push(copy);
        self.threads.push(thread::spawn(work));
    }

    fn error(&self, namespace: &Namespace, protocol: &str, source: io::Error) -> Error {
        namespace.error(format!("serve {protocol} on {}", self.address), source)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        for socket in &self.sockets {
            // Wakes the thread that waits. On UDP sockets this works too, but returns an error.
            let _ = socket::shutdown(socket.as_raw_fd(), socket::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Accepts until the server stops, then waits for the connections to end.
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.state().stopping {
                match listener.accept() {
                    Ok((stream, peer)) => self.serve(scope, stream, peer.ip()),
                    Err(_) if self.state().stopping => break,
                    Err(_) => thread::sleep(ERROR_PAUSE),
                }
            }
        });
    }

    fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        peer: IpAddr,
    ) {
        let stream = Arc::new(stream);
        // `add` refuses connections after `stop` has closed the open ones.
        let Some(key) = self.state().add(&stream) else { return };
        self.count.fetch_add(1, Ordering::SeqCst);
        scope.spawn(move || {
            let _ = serve_connection(&stream, &self.answer(peer));
            self.state().open.remove(&key);
        });
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut buffer = [0; 64];
        while !self.state().stopping {
            match socket.recv_from(&mut buffer) {
                Ok((_, peer)) => {
                    self.count.fetch_add(1, Ordering::SeqCst);
                    let _ = socket.send_to(self.answer(peer.ip()).as_bytes(), peer);
                }
                Err(_) if self.state().stopping => break,
                Err(_) => thread::sleep(ERROR_PAUSE),
            }
        }
    }

    fn answer(&self, peer: IpAddr) -> String {
        format!("{} {}\n", self.name, peer.to_canonical())
    }

    fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        for stream in state.open.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn add(&mut self, stream: &Arc<TcpStream>) -> Option<u64> {
        if self.stopping {
            return None;
        }
        self.opened += 1;
        self.open.insert(self.opened, Arc::clone(stream));
        Some(self.opened)
    }
}

/// Whether the first line of a client is an HTTP request, such as one of curl.
fn is_http(line: &str) -> bool {
    line.trim_end().ends_with(" HTTP/1.1") || line.trim_end().ends_with(" HTTP/1.0")
}

/// The answer as an HTTP response.
fn http(answer: &str) -> String {
    let length = answer.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
    )
}

/// Serves one connection. The server closes first, so that a client may reuse its port at once.
fn serve_connection(mut stream: &TcpStream, answer: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let read = lines.read_line(&mut line);
        let answer = if is_http(&line) { http(answer) } else { answer.to_owned() };
        stream.write_all(answer.as_bytes())?;
        if read.is_err() || line != HOLD {
            break;
        }
        stream.set_read_timeout(None)?;
        // Waits for the next request without consuming it: at the end of the stream there is none.
        if lines.fill_buf()?.is_empty() {
            break;
        }
    }
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    io::copy(&mut lines.take(u64::from(u16::MAX)), &mut io::sink()).map(drop)
}
