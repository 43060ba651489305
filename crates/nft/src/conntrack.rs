//! The kernel's table of connections: list flows, delete those that lead nowhere.
//!
//! ```text
//!   original: client:4711 ──► service:53        what the client sent
//!   reply:    endpoint:5353 ──► client:4711     where answers come from, after translation
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::Link;
use crate::parse::{Attribute, Attributes, Message};
use crate::value::Family;
use crate::wire::{self, ACK, DUMP, Header, REQUEST};

const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;

/// One direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tuple {
    /// Where packets come from.
    pub src: IpAddr,
    /// Where packets go to.
    pub dst: IpAddr,
    /// The port they come from.
    pub sport: u16,
    /// The port they go to.
    pub dport: u16,
}

/// A flow of a protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Flow {
    /// Its protocol: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// As the client sent it.
    pub original: Tuple,
    /// As answers come back.
    pub reply: Tuple,
    /// The kernel's status bits; 0x20: the destination was translated.
    pub status: u32,
    /// Its mark.
    pub mark: u32,
    /// The kernel's number for it, so that a newer flow with the same addresses is left alone.
    pub id: Option<u32>,
    /// Its conntrack zone, 0 for most.
    pub zone: u16,
}

/// A socket for conntrack.
#[derive(Debug)]
pub struct Conntrack {
    link: Link,
}

impl Conntrack {
    /// Opens one in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no netfilter, or too many files are open.
    pub fn open() -> io::Result<Self> {
        Ok(Self { link: Link::open()? })
    }

    /// Hands every flow of a family to `each`, or only those of one protocol. Protocols without
    /// ports, such as ICMP, are left out.
    ///
    /// # Errors
    /// The socket failed, or the table changed too much meanwhile
    /// ([`io::ErrorKind::Interrupted`]).
    pub fn flows(
        &mut self,
        family: Family,
        protocol: Option<u8>,
        each: &mut dyn FnMut(&Flow),
    ) -> io::Result<()> {
        let mut request = Vec::new();
        wire::message(&mut request, self.header(GET, DUMP, family), |_| {});
        self.link.request(&request, &mut |message| {
            let flow = flow(message);
            let wanted = |flow: &Flow| protocol.is_none_or(|protocol| flow.protocol == protocol);
            if let Some(flow) = flow.filter(wanted) {
                each(&flow);
            }
        })
    }

    /// Deletes a flow. One that is gone already is no error.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_ADMIN`, or the socket failed.
    pub fn delete(&mut self, flow: &Flow) -> io::Result<()> {
        let header = self.header(DELETE, ACK, Family::of(flow.original.src));
        let mut request = Vec::new();
        wire::message(&mut request, header, |out| encode(out, flow));
        match self.link.request(&request, &mut |_| {}) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn header(&mut self, kind: u16, flags: u16, family: Family) -> Header {
        Header {
            kind,
            flags: REQUEST | flags,
            sequence: self.link.next_sequence(),
            family: family.number(),
            resource: 0,
        }
    }
}

fn encode(out: &mut Vec<u8>, flow: &Flow) {
    wire::nest(out, 1, |out| {
        wire::nest(out, 1, |out| {
            address(out, [1, 3], flow.original.src);
            address(out, [2, 4], flow.original.dst);
        });
        wire::nest(out, 2, |out| {
            wire::bytes(out, 1, &[flow.protocol]);
            wire::bytes(out, 2, &flow.original.sport.to_be_bytes());
            wire::bytes(out, 3, &flow.original.dport.to_be_bytes());
        });
    });
    if let Some(id) = flow.id {
        wire::be32(out, 12, id);
    }
    if flow.zone != 0 {
        wire::bytes(out, 18, &flow.zone.to_be_bytes());
    }
}

fn address(out: &mut Vec<u8>, [v4, v6]: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(address) => wire::bytes(out, v4, &address.octets()),
        IpAddr::V6(address) => wire::bytes(out, v6, &address.octets()),
    }
}

fn flow(message: &Message<'_>) -> Option<Flow> {
    let attributes = message.attributes();
    let number = |kind| attributes.get(kind).and_then(Attribute::be32);
    let (protocol, original) = tuple(attributes.get(1)?.nested())?;
    let (_, reply) = tuple(attributes.get(2)?.nested())?;
    Some(Flow {
        protocol,
        original,
        reply,
        status: number(3).unwrap_or_default(),
        mark: number(8).unwrap_or_default(),
        id: number(12),
        zone: attributes.get(18).and_then(Attribute::be16).unwrap_or_default(),
    })
}

fn tuple(attributes: Attributes<'_>) -> Option<(u8, Tuple)> {
    let addresses = attributes.get(1)?.nested();
    let transport = attributes.get(2)?.nested();
    let tuple = Tuple {
        src: read_address(addresses, [1, 3])?,
        dst: read_address(addresses, [2, 4])?,
        sport: transport.get(2)?.be16()?,
        dport: transport.get(3)?.be16()?,
    };
    Some((*transport.get(1)?.value.first()?, tuple))
}

fn read_address(attributes: Attributes<'_>, [v4, v6]: [u16; 2]) -> Option<IpAddr> {
    if let Some(address) = attributes.get(v4) {
        return Some(IpAddr::V4(Ipv4Addr::from(*address.value.first_chunk::<4>()?)));
    }
    Some(IpAddr::V6(Ipv6Addr::from(*attributes.get(v6)?.value.first_chunk::<16>()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse::Messages;

    proptest! {
        #[test]
        fn malformed_flows_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = flow(&message);
            }
            let _ = tuple(Attributes(&bytes));
        }
    }
}
