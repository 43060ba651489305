//! A route netlink socket: a request, its responses, an acknowledgement.
//!
//! ```text
//!   request, sequence n ──►         ┌── response, sequence n    (none for a change)
//!                          kernel ──┼── response, sequence n
//!                                   └── done or error code      (0: success)
//! ```
//!
//! A socket belongs to the namespace it was opened in, whichever thread uses it later.

use std::io;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Length of `struct nlmsghdr`, which an error message repeats before its attributes.
const NLMSG_HDRLEN: usize = 16;
/// The attribute of an error message with the kernel's explanation
/// (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netlink.h>).
const NLMSGERR_ATTR_MSG: u16 = 1;

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
        // Errors carry an explanation, and no copy of the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and returns the kernel's responses.
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
        self.receive()
    }

    fn receive(&self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut responses = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                // Lengths are rounded up to four bytes between messages.
                let length = (message.header.length as usize).max(NLMSG_HDRLEN).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(response) => responses.push(response),
                    NetlinkPayload::Error(error) => return result(&error).map(|()| responses),
                    NetlinkPayload::Done(_) => return Ok(responses),
                    _ => {}
                }
            }
        }
    }
}

/// The result that an acknowledgement carries.
fn result(error: &ErrorMessage) -> io::Result<()> {
    if error.code.is_none() {
        return Ok(());
    }
    let source = error.to_io();
    match explanation(&error.header) {
        Some(text) => Err(io::Error::new(source.kind(), format!("{source}: {text}"))),
        None => Err(source),
    }
}

/// The kernel's explanation of an error, if it gives one.
fn explanation(error: &[u8]) -> Option<String> {
    let attributes = NlasIterator::new(error.get(NLMSG_HDRLEN..)?);
    let text = attributes.flatten().find(|a| a.kind() == NLMSGERR_ATTR_MSG)?;
    Some(String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned())
}
