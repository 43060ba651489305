//! Probes: one question, one answer, and what a missing answer means.

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

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// A datagram.
    Udp,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A server answered.
    From {
        /// Its name.
        name: String,
        /// Whom it thinks it talked to.
        source: IpAddr,
    },
    /// Somebody said no: a reset, or an ICMP message of the unreachable kind.
    Refused,
    /// Nothing, for as long as we waited.
    Silent,
    /// Something else, like a connection that broke.
    Other(ErrorKind, String),
}

impl Answer {
    /// The answer of a server that sees `source`.
    pub fn by(name: &str, source: impl Into<IpAddr>) -> Self {
        Self::From { name: name.to_owned(), source: source.into() }
    }

    /// Who answered, if anybody did.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::From { name, .. } => Some(name),
            _ => None,
        }
    }

    fn read(line: &str) -> Self {
        let parsed = line.trim_end().rsplit_once(' ').and_then(|(name, source)| {
            Some(Self::From { name: name.to_owned(), source: source.parse().ok()? })
        });
        parsed.unwrap_or_else(|| Self::Other(ErrorKind::InvalidData, line.to_owned()))
    }
}

/// The server's name, or `refused`, `silent` or what else happened.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From { name, .. } => f.write_str(name),
            Self::Refused => f.write_str("refused"),
            Self::Silent => f.write_str("silent"),
            Self::Other(kind, text) => write!(f, "{kind}: {text}"),
        }
    }
}

impl From<io::Error> for Answer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // "Permission denied" is how a reject with "administratively prohibited" arrives.
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied => Self::Refused,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::Silent,
            kind => Self::Other(kind, error.to_string()),
        }
    }
}

/// Asks over a new TCP connection.
pub fn ask_tcp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> Answer {
    namespace.enter(|| ask(Protocol::Tcp, None, to, timeout))
}

/// Asks over a new TCP connection, for a thread that has [joined](Namespace::join) a namespace.
pub fn ask_here(to: SocketAddr, timeout: Duration) -> Answer {
    ask(Protocol::Tcp, None, to, timeout)
}

/// Asks with one datagram from a new port.
pub fn ask_udp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> Answer {
    namespace.enter(|| ask(Protocol::Udp, None, to, timeout))
}

/// Asks from an address and port of the caller's choice. Port 0 means any.
pub fn ask_from(
    namespace: &Namespace,
    protocol: Protocol,
    source: SocketAddr,
    to: SocketAddr,
    timeout: Duration,
) -> Answer {
    namespace.enter(|| ask(protocol, Some(source), to, timeout))
}

/// Asks `n` times, one TCP connection after the other, and counts the answers.
///
/// The keys are names of servers, or what [`Answer`] displays if there was none.
pub fn ask_many(
    namespace: &Namespace,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    namespace.enter(|| count(Protocol::Tcp, to, n, timeout))
}

/// Asks `n` times, each datagram from a new port, and counts the answers.
pub fn ask_many_udp(
    namespace: &Namespace,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    namespace.enter(|| count(Protocol::Udp, to, n, timeout))
}

/// A conversation that goes on: a TCP connection, or datagrams from one port.
#[derive(Debug)]
pub struct Held {
    line: Line,
    timeout: Duration,
}

#[derive(Debug)]
enum Line {
    Tcp(BufReader<TcpStream>),
    Udp(UdpSocket),
}

impl Held {
    /// Opens a TCP connection that stays. `timeout` holds for this and for every question.
    pub fn tcp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> Result<Self, Answer> {
        Self::open(namespace, Protocol::Tcp, None, to, timeout)
    }

    /// A UDP socket that stays.
    pub fn udp(namespace: &Namespace, to: SocketAddr, timeout: Duration) -> Result<Self, Answer> {
        Self::open(namespace, Protocol::Udp, None, to, timeout)
    }

    /// The same, from an address and port of the caller's choice.
    pub fn open(
        namespace: &Namespace,
        protocol: Protocol,
        source: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, Answer> {
        let line = namespace.enter(|| Line::open(protocol, source, to, timeout))?;
        Ok(Self { line, timeout })
    }

    /// Asks again. Who answers is who has the connection.
    pub fn ask(&mut self) -> Answer {
        self.line.ask(HOLD, self.timeout).unwrap_or_else(Answer::from)
    }
}

impl Line {
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
                establish(&stream, to, timeout)?;
                // A connection that stands is not to break because of a message.
                report_icmp(&stream, to, false)?;
                Ok(Self::Tcp(BufReader::new(stream)))
            }
            Protocol::Udp => {
                socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
                Ok(Self::Udp(UdpSocket::from(socket)))
            }
        }
    }

    fn ask(&mut self, question: &str, timeout: Duration) -> io::Result<Answer> {
        match self {
            Self::Tcp(stream) => ask_stream(stream, question, timeout),
            Self::Udp(socket) => ask_socket(socket, question, timeout),
        }
    }

    /// Lets the server close first: who closes first cannot use the same two ports again at once.
    fn end(self) {
        if let Self::Tcp(mut stream) = self {
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    }
}

fn ask_stream(
    stream: &mut BufReader<TcpStream>,
    question: &str,
    timeout: Duration,
) -> io::Result<Answer> {
    stream.get_ref().set_read_timeout(Some(timeout))?;
    stream.get_mut().write_all(question.as_bytes())?;
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(Answer::read(&line)),
    }
}

fn ask_socket(socket: &UdpSocket, question: &str, timeout: Duration) -> io::Result<Answer> {
    socket.set_read_timeout(Some(timeout))?;
    match socket.send(question.as_bytes()) {
        // A rule of our own namespace stopped it. Whether it also said no, receiving will tell.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        sent => drop(sent?),
    }
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer)?;
    Ok(Answer::read(&String::from_utf8_lossy(&buffer[..length])))
}

/// Makes a socket report every ICMP message, not only those about closed ports.
fn report_icmp(socket: &impl AsFd, to: SocketAddr, on: bool) -> nix::Result<()> {
    match to {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &on),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &on),
    }
}

/// Connects, or says why not.
///
/// On one box the way there and back can be one function call of the kernel. Then an ICMP message
/// is here before `connect` is done, and the kernel only takes notice: the connection would fail a
/// second later, with the next try. The notice is in the socket's queue of errors.
fn establish(stream: &TcpStream, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let patience = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let mut waiting = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut waiting, patience)? == 0 {
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

/// Asks once, from the namespace of the calling thread.
fn ask(
    protocol: Protocol,
    source: Option<SocketAddr>,
    to: SocketAddr,
    timeout: Duration,
) -> Answer {
    let asked = Line::open(protocol, source, to, timeout).and_then(|mut line| {
        let answer = line.ask(ASK, timeout)?;
        line.end();
        Ok(answer)
    });
    asked.unwrap_or_else(Answer::from)
}

fn count(
    protocol: Protocol,
    to: SocketAddr,
    n: usize,
    timeout: Duration,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        *counts.entry(ask(protocol, None, to, timeout).to_string()).or_default() += 1;
    }
    counts
}
