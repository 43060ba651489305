//! One netlink socket: a request, its answers, an acknowledgement.
//!
//! ```text
//!   request, number n ──►           ┌── answer, number n      (none for a change)
//!                          kernel ──┼── answer, number n
//!                                   └── done or error code    (0: it worked)
//! ```
//!
//! A socket speaks to the namespace it was opened in for as long as it lives, whoever holds it.

use std::io;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Length of the header that an error repeats before its attributes.
const HEADER: usize = 16;
/// The attribute of an error that says in words what is wrong.
const TEXT: u16 = 1;

/// A socket for links, addresses and routes.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// A socket for the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors come with a sentence, and without a copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and gathers what it returns.
    pub(crate) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.gather()
    }

    fn gather(&self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut found = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                // Lengths are rounded up to four bytes between messages.
                let length = (message.header.length as usize).max(HEADER).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => found.push(answer),
                    NetlinkPayload::Error(error) => return verdict(&error).map(|()| found),
                    NetlinkPayload::Done(_) => return Ok(found),
                    _ => {}
                }
            }
        }
    }
}

/// What an acknowledgement means.
fn verdict(error: &ErrorMessage) -> io::Result<()> {
    if error.code.is_none() {
        return Ok(());
    }
    let source = error.to_io();
    match sentence(&error.header) {
        Some(text) => Err(io::Error::new(source.kind(), format!("{source}: {text}"))),
        None => Err(source),
    }
}

/// The kernel's sentence about an error, if it has one.
fn sentence(error: &[u8]) -> Option<String> {
    let attributes = NlasIterator::new(error.get(HEADER..)?);
    let text = attributes.flatten().find(|a| a.kind() == TEXT)?;
    Some(String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned())
}
