//! A netlink socket to netfilter: sends requests, reads answers, never waits for ever.
//!
//! The kernel answers before the sending call returns, so waiting is only a safety net.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg, sockopt};

use crate::parse::{Message, Messages, verdict};
use crate::wire::{ACK, DUMP};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than the kernel puts into one read.
const BUFFER: usize = 256 * 1024;
/// Room for answers: the kernel drops what does not fit.
const RECEIVE: usize = 4 * 1024 * 1024;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const INTERRUPTED: u16 = 0x10;

/// What one read gave.
pub(crate) enum Received<'a> {
    /// Messages.
    Messages(Messages<'a>),
    /// Some answers did not fit and are gone.
    Overrun,
    /// Nothing is there now.
    Nothing,
}

/// The socket with its buffer.
pub(crate) struct Link {
    socket: Socket,
    port: u32,
    buffer: Vec<u8>,
    send_buffer: usize,
    sequence: u32,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(port {})", self.port)
    }
}

impl Link {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let address = socket.bind_auto()?;
        // A connected socket takes messages from the kernel only.
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        // Without the right to force it, the usual size has to do.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE);
        let send_buffer = sockopt::socket_send_buffer_size(&socket)?;
        let port = address.port_number();
        // Far from the numbers of a batch's messages.
        Ok(Self { socket, port, buffer: vec![0; BUFFER], send_buffer, sequence: 1 << 31 })
    }

    /// The number by which the kernel knows this socket.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// A number for the next request.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1 << 31);
        self.sequence
    }

    /// Throws away late answers, then sends all parts as one.
    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.drain()?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.make_room(length)?;
        loop {
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, parts, &mut control, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The kernel wants room for a whole message before it takes any of it.
    fn make_room(&mut self, length: usize) -> io::Result<()> {
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

    fn drain(&mut self) -> io::Result<()> {
        while !matches!(self.receive()?, Received::Nothing) {}
        Ok(())
    }

    /// What is there now.
    pub(crate) fn receive(&mut self) -> io::Result<Received<'_>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        loop {
            match recv(&self.socket, &mut self.buffer[..], flags) {
                Ok((read, whole)) if whole > read => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer was cut"));
                }
                Ok((read, _)) => return Ok(Received::Messages(Messages(&self.buffer[..read]))),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::NOBUFS) => return Ok(Received::Overrun),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until something is there.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no answer from the kernel in 30 seconds",
                ));
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

    /// Sends one request and hands every answer to `each`, up to the end of the dump, the
    /// acknowledgement, or for a plain request its one answer.
    pub(crate) fn request(
        &mut self,
        request: &[u8],
        each: &mut dyn FnMut(&Message<'_>),
    ) -> io::Result<()> {
        let asked = Messages(request).next().ok_or(io::ErrorKind::InvalidInput)?;
        self.send(&[IoSlice::new(request)])?;
        let mut interrupted = false;
        let outcome = loop {
            match self.receive()? {
                Received::Nothing => self.wait()?,
                Received::Overrun => {
                    break Err(io::Error::other("answers of the kernel were lost"));
                }
                Received::Messages(messages) => {
                    let mine = messages.filter(|message| message.sequence == asked.sequence);
                    if let Some(outcome) = answers(mine, asked.flags, &mut interrupted, each) {
                        break outcome;
                    }
                }
            }
        };
        outcome?;
        if interrupted {
            let text = "the rules changed while they were read: read again";
            return Err(io::Error::new(io::ErrorKind::Interrupted, text));
        }
        Ok(())
    }
}

/// Handles what one read gave; `Some` when it was the last.
fn answers<'a>(
    messages: impl Iterator<Item = Message<'a>>,
    flags: u16,
    interrupted: &mut bool,
    each: &mut dyn FnMut(&Message<'_>),
) -> Option<io::Result<()>> {
    for message in messages {
        *interrupted |= message.flags & INTERRUPTED != 0;
        if message.kind == ERROR || message.kind == DONE {
            return Some(outcome(&message));
        }
        each(&message);
        if flags & (DUMP | ACK) == 0 {
            return Some(Ok(()));
        }
    }
    None
}

/// How a request ended.
fn outcome(message: &Message<'_>) -> io::Result<()> {
    // The end of a dump may come without a number.
    let errno = match verdict(message) {
        Some(verdict) => verdict.errno,
        None if message.kind == DONE => 0,
        None => return Err(io::Error::new(io::ErrorKind::InvalidData, "a malformed answer")),
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Whether a message is a verdict on another.
pub(crate) fn is_verdict(message: &Message<'_>) -> bool {
    message.kind == ERROR
}
