//! A netlink socket to netfilter: sends requests, reads responses, and never waits for ever.
//!
//! The kernel responds before the sending call returns, so waiting is only a safety net.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};
use socket2::{SockFilter, SockRef};

use crate::abi;
use crate::parse::{Message, Messages, acknowledgement};
use crate::simulated;

/// How long to wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Size of the read buffer; the kernel never returns more in one read.
const READ_BUFFER: usize = 256 * 1024;
/// Size of the socket's receive buffer: the kernel drops responses that do not fit.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

/// Sequence numbers of single requests start here, far from the message numbers of a batch.
const FIRST_SEQUENCE: u32 = 1 << 31;

/// The result of one read.
pub(crate) enum Received<'a> {
    /// Messages.
    Messages(Messages<'a>),
    /// The receive buffer was full, and the kernel dropped responses.
    Overrun,
    /// There is nothing to read now.
    Nothing,
}

/// The socket with its read buffer.
pub(crate) struct Link {
    transport: Transport,
    port: u32,
    buffer: Vec<u8>,
    sequence: u32,
}

/// What answers.
enum Transport {
    /// The kernel of this machine.
    Kernel(KernelSocket),
    /// A kernel in memory.
    Simulated(simulated::Connection),
}

struct KernelSocket {
    socket: Socket,
    /// The size of the kernel's send buffer.
    send_buffer: usize,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(port {})", self.port)
    }
}

impl Link {
    /// Opens a socket in the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        let (socket, port) = KernelSocket::open()?;
        Ok(Self::new(Transport::Kernel(socket), port, READ_BUFFER))
    }

    /// A connection to a kernel in memory.
    pub(crate) fn simulated(connection: simulated::Connection) -> Self {
        let port = connection.port();
        Self::new(Transport::Simulated(connection), port, 0)
    }

    fn new(transport: Transport, port: u32, buffer: usize) -> Self {
        Self { transport, port, buffer: vec![0; buffer], sequence: FIRST_SEQUENCE }
    }

    /// Has the kernel send the messages of a multicast group as well, those that pass the filter, into a buffer of this size.
    pub(crate) fn join(&self, group: u32, filter: &[SockFilter], buffer: usize) -> io::Result<()> {
        match &self.transport {
            Transport::Kernel(socket) => socket.join(group, filter, buffer),
            // It never has any.
            Transport::Simulated(_) => Ok(()),
        }
    }

    /// The socket's netlink port id.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// The sequence number of the next request.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(FIRST_SEQUENCE);
        self.sequence
    }

    /// Discards late responses to earlier requests, then sends all parts as one datagram.
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.drain()?;
        match &mut self.transport {
            Transport::Kernel(socket) => socket.send(parts),
            Transport::Simulated(connection) => connection.send(parts),
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        while !matches!(self.receive()?, Received::Nothing) {}
        Ok(())
    }

    /// Reads without waiting.
    pub(crate) fn receive(&mut self) -> io::Result<Received<'_>> {
        match &mut self.transport {
            Transport::Kernel(socket) => socket.receive(&mut self.buffer),
            Transport::Simulated(connection) => Ok(connection.receive(&mut self.buffer)),
        }
    }

    /// Waits until there is something to read.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match &self.transport {
            Transport::Kernel(socket) => socket.wait(),
            // It has answered before, or it never will.
            Transport::Simulated(_) => Err(no_response()),
        }
    }

    /// Calls `each` for the responses of one read of a dump; whether there are more.
    pub(crate) fn portion(&mut self, each: &mut dyn FnMut(&Message<'_>)) -> io::Result<bool> {
        loop {
            match self.receive()? {
                Received::Nothing => self.wait()?,
                Received::Overrun => {
                    return Err(io::Error::other(
                        "responses of the kernel were lost: its receive buffer was full",
                    ));
                }
                Received::Messages(messages) => {
                    let mut ignored = false;
                    return match responses(messages, abi::NLM_F_DUMP, &mut ignored, each) {
                        Some(outcome) => outcome.map(|()| false),
                        None => Ok(true),
                    };
                }
            }
        }
    }

    /// Sends one request and calls `each` for every response, up to the end of the dump or the
    /// acknowledgement; a request for neither has exactly one response.
    pub(crate) fn request(
        &mut self,
        request: &[u8],
        each: &mut dyn FnMut(&Message<'_>),
    ) -> io::Result<()> {
        let sent = Messages(request).next().ok_or(io::ErrorKind::InvalidInput)?;
        self.send(&[IoSlice::new(request)])?;
        let mut interrupted = false;
        let outcome = loop {
            match self.receive()? {
                Received::Nothing => self.wait()?,
                Received::Overrun => {
                    break Err(io::Error::other(
                        "responses of the kernel were lost: its receive buffer was full",
                    ));
                }
                Received::Messages(messages) => {
                    let mine = messages.filter(|message| message.sequence == sent.sequence);
                    if let Some(outcome) = responses(mine, sent.flags, &mut interrupted, each) {
                        break outcome;
                    }
                }
            }
        };
        outcome?;
        if interrupted {
            let text = "the tables changed while they were read: read them again";
            return Err(io::Error::new(io::ErrorKind::Interrupted, text));
        }
        Ok(())
    }
}

fn no_response() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no response from the kernel within 30 seconds")
}

impl KernelSocket {
    /// Opens a socket; returns its port id as well.
    fn open() -> io::Result<(Self, u32)> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let address = socket.bind_auto()?;
        // A connected socket receives messages from the kernel only.
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        // Without CAP_NET_ADMIN the default size has to do.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
        let send_buffer = sockopt::socket_send_buffer_size(&socket)?;
        Ok((Self { socket, send_buffer }, address.port_number()))
    }

    fn join(&self, group: u32, filter: &[SockFilter], buffer: usize) -> io::Result<()> {
        SockRef::from(&self.socket).attach_filter(filter)?;
        let _ = sockopt::set_socket_recv_buffer_size_force(&self.socket, buffer);
        self.socket.add_membership(group)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.grow_send_buffer(length)?;
        loop {
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, parts, &mut control, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Grows the send buffer: the kernel only accepts a datagram that fits as a whole.
    fn grow_send_buffer(&mut self, length: usize) -> io::Result<()> {
        const SLACK: usize = 4096;
        let needed = length.saturating_add(SLACK);
        if needed > self.send_buffer {
            if i32::try_from(needed).is_err() {
                return Err(Errno::MSGSIZE.into());
            }
            sockopt::set_socket_send_buffer_size_force(&self.socket, needed)?;
            self.send_buffer = needed;
        }
        Ok(())
    }

    fn receive<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Received<'b>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let read = loop {
            match recv(&self.socket, &mut *buffer, flags) {
                Ok((read, whole)) if whole > read => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a response of the kernel was truncated",
                    ));
                }
                Ok((read, _)) => break read,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NOBUFS) => return Ok(Received::Overrun),
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Received::Messages(Messages(&buffer[..read])))
    }

    /// Waits until there is something to read.
    fn wait(&self) -> io::Result<()> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(no_response());
            }
            let seconds = i64::try_from(left.as_secs()).unwrap_or(1);
            let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Handles the messages of one read; `Some` after the last response.
fn responses<'a>(
    messages: impl Iterator<Item = Message<'a>>,
    flags: u16,
    interrupted: &mut bool,
    each: &mut dyn FnMut(&Message<'_>),
) -> Option<io::Result<()>> {
    for message in messages {
        *interrupted |= message.flags & abi::NLM_F_DUMP_INTR != 0;
        if matches!(message.kind, abi::NLMSG_ERROR | abi::NLMSG_DONE) {
            return Some(outcome(&message));
        }
        each(&message);
        if flags & (abi::NLM_F_DUMP | abi::NLM_F_ACK) == 0 {
            return Some(Ok(()));
        }
    }
    None
}

/// The result in the last message of a request.
fn outcome(message: &Message<'_>) -> io::Result<()> {
    // The end of a dump may have no error number.
    let errno = match acknowledgement(message) {
        Some(found) => found.errno,
        None if message.kind == abi::NLMSG_DONE => 0,
        None => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a malformed response of the kernel",
            ));
        }
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Whether a message acknowledges another, with or without an error.
pub(crate) fn is_acknowledgement(message: &Message<'_>) -> bool {
    message.kind == abi::NLMSG_ERROR
}
