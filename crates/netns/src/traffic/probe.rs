//! Probes: one request to a [`Server`](super::Server), its answer, and what a missing answer means.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, sockopt,
};

use super::{ASK, HOLD};
use crate::Namespace;

/// How long a probe waits for the answer of a server that has accepted its connection.
///
/// The kernel accepts connections by itself, within the client's system call when both are on one machine: whether a
/// packet was lost shows within milliseconds, however busy the machine is. The answer needs a thread of the server,
/// which may wait long for a processor, and that says nothing about packets.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The protocol of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// A UDP datagram.
    Udp,
}

/// What a probe got back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// A server answered.
    Answered {
        /// Its name.
        name: String,
        /// The source address that the server saw.
        source: IpAddr,
    },
    /// A TCP reset, or an ICMP error such as "port unreachable".
    Refused,
    /// Nothing until the timeout.
    Silent,
    /// Another error, like a connection that broke.
    Other(ErrorKind, String),
}

impl ProbeResult {
    /// The answer of a server that sees `source`.
    pub fn answered_by(name: &str, source: impl Into<IpAddr>) -> Self {
        Self::Answered { name: name.to_owned(), source: source.into() }
    }

    /// The name of the server that answered.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Answered { name, .. } => Some(name),
            _ => None,
        }
    }

    fn parse(line: &str) -> Self {
        let parsed = line.trim_end().rsplit_once(' ').and_then(|(name, source)| {
            Some(Self::Answered { name: name.to_owned(), source: source.parse().ok()? })
        });
        parsed.unwrap_or_else(|| Self::Other(ErrorKind::InvalidData, line.to_owned()))
    }
}

/// The server's name, or `refused`, `silent` or the error.
impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { name, .. } => f.write_str(name),
            Self::Refused => f.write_str("refused"),
            Self::Silent => f.write_str("silent"),
            Self::Other(kind, text) => write!(f, "{kind}: {text}"),
        }
    }
}

impl From<io::Error> for ProbeResult {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // ICMP "administratively prohibited" arrives as "permission denied".
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied => Self::Refused,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::Silent,
            kind => Self::Other(kind, error.to_string()),
        }
    }
}

/// Probes over a new TCP connection that must be accepted within `timeout`.
pub fn probe_tcp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> ProbeResult {
    namespace.enter(|| probe(Protocol::Tcp, None, to, timeout))
}

/// Probes over a new TCP connection from the calling thread, which has
/// [joined](Namespace::join) a namespace. `timeout` holds for the connection and for its answer.
pub fn probe_tcp_here(to: SocketAddr, timeout: Duration) -> ProbeResult {
    connect_and_ask(Protocol::Tcp, None, to, timeout, timeout)
}

/// Probes with one datagram from a new source port.
pub fn probe_udp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> ProbeResult {
    namespace.enter(|| probe(Protocol::Udp, None, to, timeout))
}

/// Probes from a given source address and port. Port 0 means any.
pub fn probe_from(
    namespace: &Namespace,
    protocol: Protocol,
    source: SocketAddr,
    to: SocketAddr,
    timeout: Duration,
) -> ProbeResult {
    namespace.enter(|| probe(protocol, Some(source), to, timeout))
}

/// Probes `n` times, one TCP connection after the other, and counts the results.
///
/// The keys are the results as [`ProbeResult`] displays them: names of servers, `refused`, `silent`.
pub fn probe_tcp_many(
    namespace: &Namespace,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    namespace.enter(|| count(Protocol::Tcp, to, n, timeout))
}

/// Probes `n` times, each datagram from a new source port, and counts the results.
pub fn probe_udp_many(
    namespace: &Namespace,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    namespace.enter(|| count(Protocol::Udp, to, n, timeout))
}

/// A TCP connection that stays open, or a UDP socket that keeps its source port.
#[derive(Debug)]
pub struct OpenConnection {
    socket: ProbeSocket,
    answer_timeout: Duration,
}

#[derive(Debug)]
enum ProbeSocket {
    Tcp(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl OpenConnection {
    /// Opens a TCP connection, which must be accepted within `timeout`.
    pub fn tcp(
        namespace: &Namespace,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, ProbeResult> {
        Self::open(namespace, Protocol::Tcp, None, to, timeout)
    }

    /// Opens a UDP socket. `timeout` holds for every request.
    pub fn udp(
        namespace: &Namespace,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, ProbeResult> {
        Self::open(namespace, Protocol::Udp, None, to, timeout)
    }

    /// Opens either, from a given source address and port if there is one.
    pub fn open(
        namespace: &Namespace,
        protocol: Protocol,
        source: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, ProbeResult> {
        let socket = namespace.enter(|| ProbeSocket::open(protocol, source, to, timeout))?;
        Ok(Self { socket, answer_timeout: answer_timeout(protocol, timeout) })
    }

    /// Sends one more request. The server that the connection leads to answers.
    pub fn probe(&mut self) -> ProbeResult {
        self.socket.request(HOLD, self.answer_timeout).unwrap_or_else(ProbeResult::from)
    }
}

impl ProbeSocket {
    fn open(
        protocol: Protocol,
        source: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        let kind = match protocol {
            Protocol::Tcp => SockType::Stream,
            Protocol::Udp => SockType::Datagram,
        };
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = socket::socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        if let Some(source) = source {
            setsockopt(&socket, sockopt::ReuseAddr, &true)?;
            socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(source))?;
        }
        report_icmp(&socket, to, true)?;
        match protocol {
            Protocol::Tcp => {
                let stream = TcpStream::from(socket);
                connect(&stream, to, timeout)?;
                // Later ICMP messages must not break the established connection.
                report_icmp(&stream, to, false)?;
                Ok(Self::Tcp(BufReader::new(stream)))
            }
            Protocol::Udp => {
                socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
                Ok(Self::Udp(UdpSocket::from(socket)))
            }
        }
    }

    fn request(&mut self, request: &str, timeout: Duration) -> io::Result<ProbeResult> {
        match self {
            Self::Tcp(stream) => request_tcp(stream, request, timeout),
            Self::Udp(socket) => request_udp(socket, request, timeout),
        }
    }

    /// Lets the server close first: the side that closes first keeps the connection in `TIME_WAIT`
    /// and cannot use the same pair of ports again at once.
    fn close(self) {
        if let Self::Tcp(mut stream) = self {
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    }
}

fn request_tcp(
    stream: &mut BufReader<TcpStream>,
    request: &str,
    timeout: Duration,
) -> io::Result<ProbeResult> {
    stream.get_ref().set_read_timeout(Some(timeout))?;
    stream.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(ProbeResult::parse(&line)),
    }
}

fn request_udp(socket: &UdpSocket, request: &str, timeout: Duration) -> io::Result<ProbeResult> {
    socket.set_read_timeout(Some(timeout))?;
    match socket.send(request.as_bytes()) {
        // A firewall rule in this namespace dropped or rejected it; `recv` tells which.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        sent => drop(sent?),
    }
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer)?;
    Ok(ProbeResult::parse(&String::from_utf8_lossy(&buffer[..length])))
}

/// Makes a socket report every ICMP error, not only "port unreachable".
fn report_icmp(socket: &impl AsFd, to: SocketAddr, on: bool) -> nix::Result<()> {
    match to {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &on),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &on),
    }
}

/// Connects, and reports ICMP errors at once.
///
/// Between namespaces of one machine a packet and its answer can be handled within the `connect`
/// call. The kernel then only queues an ICMP error and would fail the connection a second later,
/// when it sends again. `POLLERR` shows that the socket's error queue is not empty.
fn connect(stream: &TcpStream, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let poll_timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let mut waiting = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut waiting, poll_timeout)? == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    if waiting[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
        return Err(ErrorKind::HostUnreachable.into());
    }
    stream.set_nonblocking(false)
}

/// Probes once, from the namespace of the calling thread.
fn probe(
    protocol: Protocol,
    source: Option<SocketAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> ProbeResult {
    connect_and_ask(protocol, source, to, timeout, answer_timeout(protocol, timeout))
}

/// A UDP datagram that got lost and a server that takes its time look alike: only the caller knows how long to wait.
fn answer_timeout(protocol: Protocol, timeout: Duration) -> Duration {
    match protocol {
        Protocol::Tcp => timeout.max(ANSWER_TIMEOUT),
        Protocol::Udp => timeout,
    }
}

fn connect_and_ask(
    protocol: Protocol,
    source: Option<SocketAddr>,
    to: SocketAddr,
    for_connection: Duration,
    for_answer: Duration,
) -> ProbeResult {
    let result = ProbeSocket::open(protocol, source, to, for_connection).and_then(|mut socket| {
        let answer = socket.request(ASK, for_answer)?;
        socket.close();
        Ok(answer)
    });
    result.unwrap_or_else(ProbeResult::from)
}

fn count(
    protocol: Protocol,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        *counts.entry(probe(protocol, None, to, timeout).to_string()).or_default() += 1;
    }
    counts
}
