//! The kernel's connection tracking table: lists and deletes flows, and reports which have ended.
//!
//! ```text
//!   original: client:4711 ──► service:53        what the client sent
//!   reply:    endpoint:5353 ──► client:4711     what comes back, after translation
//! ```

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::abi;
use crate::filter;
use crate::link::{Link, Received};
use crate::parse::{Attribute, Attributes, Message};
use crate::value::Family;
use crate::wire::{self, Header};

/// One direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tuple {
    /// The source address.
    pub src: IpAddr,
    /// The destination address.
    pub dst: IpAddr,
    /// The source port.
    pub sport: u16,
    /// The destination port.
    pub dport: u16,
}

/// A flow of a protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Flow {
    /// Its protocol: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// The direction from the client.
    pub original: Tuple,
    /// The direction back to the client.
    pub reply: Tuple,
    /// Its destination was translated (`IPS_DST_NAT`).
    pub destination_translated: bool,
    /// The kernel's id for it: a deletion with it leaves a newer flow with the same addresses alone.
    pub id: Option<u32>,
    /// Its conntrack zone, 0 for most.
    pub zone: u16,
}

/// What a flow has carried so far, headers of IP included. The kernel counts it where `nf_conntrack_acct` was 1 when the
/// flow began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Carried {
    /// From the client.
    pub original: u64,
    /// Back to the client.
    pub reply: u64,
}

impl std::ops::AddAssign for Carried {
    fn add_assign(&mut self, more: Self) {
        self.original += more.original;
        self.reply += more.reply;
    }
}

/// A TCP flow whose destination was translated, and that was never established: the client has sent nothing after an
/// answer.
///
/// | what the endpoint does | the kernel |
/// |---|---|
/// | it answers nothing | keeps the flow for two minutes, without a reply, in the state `SYN_SENT` |
/// | it refuses with a reset | ends the flow at once, in the state `CLOSE`, and does not call the reset a reply |
/// | it accepts, and the client gives up | keeps the flow for seconds, with a reply, in the state `CLOSE` |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unestablished {
    /// The flow.
    pub flow: Flow,
    /// Something came back from the endpoint (`IPS_SEEN_REPLY`).
    pub replied: bool,
    /// The state of TCP, by its number in `nf_conntrack_tcp.h`: 1 is `SYN_SENT`, 2 `SYN_RECV`, 8 `CLOSE`.
    pub state: u8,
}

impl Unestablished {
    /// Whether the endpoint has refused the connection.
    pub fn is_refused(&self) -> bool {
        !self.replied && self.state == abi::TCP_CONNTRACK_CLOSE
    }
}

/// A netlink socket on which the kernel reports the flows that end in this network namespace, of those whose destination was
/// translated.
#[derive(Debug)]
pub struct EndedFlows {
    link: Link,
}

impl EndedFlows {
    pub(crate) fn over(link: Link, buffer: usize) -> io::Result<Self> {
        let filter = filter::by_status(abi::IPS_DST_NAT, abi::IPS_DST_NAT);
        link.join(abi::NFNLGRP_CONNTRACK_DESTROY, &filter.filters(), buffer)?;
        Ok(Self { link })
    }

    /// Opens a socket in the network namespace of this thread, with room for so many bytes of what was not read yet.
    ///
    /// # Errors
    /// The kernel has no netfilter, the process lacks `CAP_NET_ADMIN`, or too many files are open.
    pub fn open(buffer: usize) -> io::Result<Self> {
        Self::over(Link::open()?, buffer)
    }

    /// Calls `each` for flows that have ended, as far as the kernel has reported them, without waiting. It stops after
    /// about `most`: where flows end faster than they are read, there are always more. Flows of protocols without ports, and those
    /// whose bytes were not counted, are left out.
    ///
    /// # Errors
    /// The socket failed.
    pub fn read(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&Flow, Carried),
    ) -> io::Result<EndedRead> {
        read_ended(&mut self.link, most, &mut |message| {
            if let Some((flow, carried)) = flow(message).zip(carried(message)) {
                each(&flow, carried);
            }
        })
    }
}

/// A netlink socket on which the kernel reports the TCP flows that end and were never established, of those whose destination
/// was translated. Most flows are established: of them nothing reaches this process.
#[derive(Debug)]
pub struct EndedUnestablished {
    link: Link,
}

impl EndedUnestablished {
    pub(crate) fn over(link: Link, buffer: usize) -> io::Result<Self> {
        let mask = abi::IPS_DST_NAT | abi::IPS_ASSURED;
        let filter = filter::by_status_and_protocol(mask, abi::IPS_DST_NAT, abi::IPPROTO_TCP);
        link.join(abi::NFNLGRP_CONNTRACK_DESTROY, &filter.filters(), buffer)?;
        Ok(Self { link })
    }

    /// As [`EndedFlows::open`].
    ///
    /// # Errors
    /// As [`EndedFlows::open`].
    pub fn open(buffer: usize) -> io::Result<Self> {
        Self::over(Link::open()?, buffer)
    }

    /// As [`EndedFlows::read`], whether the bytes of a flow were counted or not.
    ///
    /// # Errors
    /// As [`EndedFlows::read`].
    pub fn read(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(&Unestablished),
    ) -> io::Result<EndedRead> {
        read_ended(&mut self.link, most, &mut |message| {
            if let Some(unestablished) = unestablished(message) {
                each(&unestablished);
            }
        })
    }
}

/// Calls `each` for what the kernel has reported, until there is nothing more, or after about `most`.
fn read_ended(
    link: &mut Link,
    most: usize,
    each: &mut dyn FnMut(&Message<'_>),
) -> io::Result<EndedRead> {
    let mut result = EndedRead { overruns: 0, more: true };
    let mut reported = 0;
    while reported < most {
        match link.receive()? {
            Received::Nothing => {
                result.more = false;
                break;
            }
            Received::Overrun => result.overruns += 1,
            Received::Messages(messages) => {
                for message in messages {
                    reported += 1;
                    each(&message);
                }
            }
        }
    }
    Ok(result)
}

/// How a reading of flows that have ended went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRead {
    /// How often the socket's buffer was full, so that reports were lost.
    pub overruns: u64,
    /// Whether there may be more to read.
    pub more: bool,
}

/// All flows of a family whose destination was translated, with what they have carried, read in portions: the kernel goes
/// on whenever it is asked for more. It has prepared the next portion when one is read.
#[derive(Debug)]
pub struct CarriedListing {
    link: Link,
}

impl CarriedListing {
    /// Calls `each` for the flows of the next portion, about a hundred; whether there are more. Protocols without ports,
    /// flows whose bytes are not counted, and flows that are just ending are left out: their end is reported.
    ///
    /// # Errors
    /// The socket failed.
    pub fn read(&mut self, each: &mut dyn FnMut(&Flow, Carried)) -> io::Result<bool> {
        self.link.portion(&mut |message| {
            let found = flow(message).zip(carried(message));
            // Older kernels list all flows, whatever was asked for.
            if let Some((flow, carried)) = found
                && flow.destination_translated
                && status(message.attributes()) & abi::IPS_DYING == 0
            {
                each(&flow, carried);
            }
        })
    }
}

/// All TCP flows of a family whose destination was translated and that were never established, read in portions as a
/// [`CarriedListing`].
#[derive(Debug)]
pub struct UnestablishedListing {
    link: Link,
}

impl UnestablishedListing {
    /// Calls `each` for the flows of the next portion; whether there are more. Flows that are just ending are left out:
    /// their end is reported.
    ///
    /// # Errors
    /// The socket failed.
    pub fn read(&mut self, each: &mut dyn FnMut(&Unestablished)) -> io::Result<bool> {
        self.link.portion(&mut |message| {
            if let Some(found) = unestablished(message)
                && status(message.attributes()) & abi::IPS_DYING == 0
            {
                each(&found);
            }
        })
    }
}

/// A netlink socket for connection tracking.
#[derive(Debug)]
pub struct Conntrack {
    link: Link,
}

impl Conntrack {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no netfilter, or too many files are open.
    pub fn open() -> io::Result<Self> {
        Ok(Self::over(Link::open()?))
    }

    pub(crate) fn over(link: Link) -> Self {
        Self { link }
    }

    /// Calls `each` for every flow of a family, or only for those of one protocol. Protocols
    /// without ports, such as ICMP, are skipped.
    ///
    /// # Errors
    /// The socket failed, or the table changed too much during the dump
    /// ([`io::ErrorKind::Interrupted`]).
    pub fn flows(
        &mut self,
        family: Family,
        protocol: Option<u8>,
        each: &mut dyn FnMut(&Flow),
    ) -> io::Result<()> {
        let mut request = Vec::new();
        wire::message(
            &mut request,
            self.header(abi::IPCTNL_MSG_CT_GET, abi::NLM_F_DUMP, family),
            |_| {},
        );
        self.link.request(&request, &mut |message| {
            let flow = flow(message);
            let wanted = |flow: &Flow| protocol.is_none_or(|protocol| flow.protocol == protocol);
            if let Some(flow) = flow.filter(wanted) {
                each(&flow);
            }
        })
    }

    /// Calls `each` for every flow of a family that nobody has answered, and whose destination was not translated.
    ///
    /// # Errors
    /// As [`Conntrack::flows`].
    pub fn unanswered(&mut self, family: Family, each: &mut dyn FnMut(&Flow)) -> io::Result<()> {
        const EITHER: u32 = abi::IPS_SEEN_REPLY | abi::IPS_DST_NAT;
        let mut request = Vec::new();
        let header = self.header(abi::IPCTNL_MSG_CT_GET, abi::NLM_F_DUMP, family);
        wire::message(&mut request, header, |out| {
            wire::be32(out, abi::CTA_STATUS, 0);
            wire::be32(out, abi::CTA_STATUS_MASK, EITHER);
        });
        self.link.request(&request, &mut |message| {
            // Older kernels list all flows, whatever was asked for.
            if let Some(flow) = flow(message).filter(|_| status(message.attributes()) & EITHER == 0)
            {
                each(&flow);
            }
        })
    }

    /// Begins to read all TCP flows of a family whose destination was translated and that were never established. The
    /// socket is for nothing else until the end.
    ///
    /// # Errors
    /// The socket failed.
    pub fn unestablished(self, family: Family) -> io::Result<UnestablishedListing> {
        let link =
            self.list_by_status(family, abi::IPS_DST_NAT, abi::IPS_DST_NAT | abi::IPS_ASSURED)?;
        Ok(UnestablishedListing { link })
    }

    /// Begins to read all flows of a family whose destination was translated, with what they have carried. The socket is
    /// for nothing else until the end.
    ///
    /// # Errors
    /// The socket failed.
    pub fn carried(self, family: Family) -> io::Result<CarriedListing> {
        let link = self.list_by_status(family, abi::IPS_DST_NAT, abi::IPS_DST_NAT)?;
        Ok(CarriedListing { link })
    }

    /// Asks for the flows whose status has these bits, of those in the mask.
    fn list_by_status(mut self, family: Family, status: u32, mask: u32) -> io::Result<Link> {
        let mut request = Vec::new();
        let header = self.header(abi::IPCTNL_MSG_CT_GET, abi::NLM_F_DUMP, family);
        wire::message(&mut request, header, |out| {
            wire::be32(out, abi::CTA_STATUS, status);
            wire::be32(out, abi::CTA_STATUS_MASK, mask);
        });
        self.link.send(&[IoSlice::new(&request)])?;
        Ok(self.link)
    }

    /// Deletes a flow. It is not an error if it is already gone.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_ADMIN`, or the socket failed.
    pub fn delete(&mut self, flow: &Flow) -> io::Result<()> {
        let family = Family::of(flow.original.src);
        let header = self.header(abi::IPCTNL_MSG_CT_DELETE, abi::NLM_F_ACK, family);
        let mut request = Vec::new();
        wire::message(&mut request, header, |out| encode(out, flow));
        match self.link.request(&request, &mut |_| {}) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Deletes all flows of a family.
    ///
    /// # Errors
    /// As [`Conntrack::delete`].
    pub fn flush(&mut self, family: Family) -> io::Result<()> {
        let header = self.header(abi::IPCTNL_MSG_CT_DELETE, abi::NLM_F_ACK, family);
        let mut request = Vec::new();
        wire::message(&mut request, header, |_| {});
        self.link.request(&request, &mut |_| {})
    }

    fn header(&mut self, kind: u16, flags: u16, family: Family) -> Header {
        Header {
            kind: abi::nfnl_message(abi::NFNL_SUBSYS_CTNETLINK, kind),
            flags: abi::NLM_F_REQUEST | flags,
            sequence: self.link.next_sequence(),
            family: family.number(),
            resource: 0,
        }
    }
}

fn encode(out: &mut Vec<u8>, flow: &Flow) {
    encode_tuple(out, abi::CTA_TUPLE_ORIG, flow.protocol, &flow.original);
    if let Some(id) = flow.id {
        wire::be32(out, abi::CTA_ID, id);
    }
    if flow.zone != 0 {
        wire::bytes(out, abi::CTA_ZONE, &flow.zone.to_be_bytes());
    }
}

fn encode_tuple(out: &mut Vec<u8>, kind: u16, protocol: u8, tuple: &Tuple) {
    wire::nest(out, kind, |out| {
        wire::nest(out, abi::CTA_TUPLE_IP, |out| {
            SOURCE.write(out, tuple.src);
            DESTINATION.write(out, tuple.dst);
        });
        wire::nest(out, abi::CTA_TUPLE_PROTO, |out| {
            wire::bytes(out, abi::CTA_PROTO_NUM, &[protocol]);
            wire::bytes(out, abi::CTA_PROTO_SRC_PORT, &tuple.sport.to_be_bytes());
            wire::bytes(out, abi::CTA_PROTO_DST_PORT, &tuple.dport.to_be_bytes());
        });
    });
}

/// A flow as the kernel lists it.
pub(crate) fn encode_whole(out: &mut Vec<u8>, flow: &Flow) {
    encode(out, flow);
    encode_tuple(out, abi::CTA_TUPLE_REPLY, flow.protocol, &flow.reply);
    let status = if flow.destination_translated { abi::IPS_DST_NAT } else { 0 };
    wire::be32(out, abi::CTA_STATUS, status);
}

/// The protocol and the original direction in a message.
pub(crate) fn original(attributes: Attributes<'_>) -> Option<(u8, Tuple)> {
    tuple(attributes.get(abi::CTA_TUPLE_ORIG)?.nested())
}

/// An address of a tuple: each family has an attribute of its own.
struct AddressAttributes {
    v4: u16,
    v6: u16,
}

const SOURCE: AddressAttributes =
    AddressAttributes { v4: abi::CTA_IP_V4_SRC, v6: abi::CTA_IP_V6_SRC };
const DESTINATION: AddressAttributes =
    AddressAttributes { v4: abi::CTA_IP_V4_DST, v6: abi::CTA_IP_V6_DST };

impl AddressAttributes {
    fn write(&self, out: &mut Vec<u8>, address: IpAddr) {
        match address {
            IpAddr::V4(address) => wire::bytes(out, self.v4, &address.octets()),
            IpAddr::V6(address) => wire::bytes(out, self.v6, &address.octets()),
        }
    }

    fn read(&self, attributes: Attributes<'_>) -> Option<IpAddr> {
        if let Some(address) = attributes.get(self.v4) {
            return Some(IpAddr::V4(Ipv4Addr::from(*address.value.first_chunk::<4>()?)));
        }
        Some(IpAddr::V6(Ipv6Addr::from(*attributes.get(self.v6)?.value.first_chunk::<16>()?)))
    }
}

fn flow(message: &Message<'_>) -> Option<Flow> {
    let attributes = message.attributes();
    let number = |kind| attributes.get(kind).and_then(Attribute::be32);
    let (protocol, original) = original(attributes)?;
    let (_, reply) = tuple(attributes.get(abi::CTA_TUPLE_REPLY)?.nested())?;
    Some(Flow {
        protocol,
        original,
        reply,
        destination_translated: status(attributes) & abi::IPS_DST_NAT != 0,
        id: number(abi::CTA_ID),
        zone: attributes.get(abi::CTA_ZONE).and_then(Attribute::be16).unwrap_or_default(),
    })
}

fn status(attributes: Attributes<'_>) -> u32 {
    attributes.get(abi::CTA_STATUS).and_then(Attribute::be32).unwrap_or_default()
}

/// The flow in a message, if it is one of TCP whose destination was translated and that was never established. Older
/// kernels list all flows, whatever was asked for.
fn unestablished(message: &Message<'_>) -> Option<Unestablished> {
    let attributes = message.attributes();
    let status = status(attributes);
    let flow = flow(message)?;
    let is_one = flow.protocol == abi::IPPROTO_TCP
        && flow.destination_translated
        && status & abi::IPS_ASSURED == 0;
    let tcp = attributes.get(abi::CTA_PROTOINFO)?.nested().get(abi::CTA_PROTOINFO_TCP)?.nested();
    let state = *tcp.get(abi::CTA_PROTOINFO_TCP_STATE)?.value.first()?;
    is_one.then_some(Unestablished { flow, replied: status & abi::IPS_SEEN_REPLY != 0, state })
}

fn carried(message: &Message<'_>) -> Option<Carried> {
    let attributes = message.attributes();
    let bytes = |kind| attributes.get(kind)?.nested().get(abi::CTA_COUNTERS_BYTES)?.be64();
    let (original, reply) = (bytes(abi::CTA_COUNTERS_ORIG)?, bytes(abi::CTA_COUNTERS_REPLY)?);
    Some(Carried { original, reply })
}

fn tuple(attributes: Attributes<'_>) -> Option<(u8, Tuple)> {
    let addresses = attributes.get(abi::CTA_TUPLE_IP)?.nested();
    let transport = attributes.get(abi::CTA_TUPLE_PROTO)?.nested();
    let tuple = Tuple {
        src: SOURCE.read(addresses)?,
        dst: DESTINATION.read(addresses)?,
        sport: transport.get(abi::CTA_PROTO_SRC_PORT)?.be16()?,
        dport: transport.get(abi::CTA_PROTO_DST_PORT)?.be16()?,
    };
    Some((*transport.get(abi::CTA_PROTO_NUM)?.value.first()?, tuple))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::Network;
    use crate::parse::Messages;
    use crate::simulated::{SimulatedFault, SimulatedKernel};

    proptest! {
        #[test]
        fn malformed_flows_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = (flow(&message), carried(&message), unestablished(&message));
            }
            let _ = tuple(Attributes(&bytes));
        }

        #[test]
        fn a_flow_is_read_as_it_was_written(flow in any_flow()) {
            let bytes = listed(|out| encode_whole(out, &flow));
            prop_assert_eq!(super::flow(&only(&bytes)), Some(flow));
        }
    }

    fn any_flow() -> impl Strategy<Value = Flow> {
        let ip = |v4: bool, n: u128| -> IpAddr {
            if v4 { Ipv4Addr::from(n as u32).into() } else { Ipv6Addr::from(n).into() }
        };
        let tuple = any::<(u128, u128, u16, u16)>();
        let rest = (any::<bool>(), any::<u8>(), any::<bool>(), any::<Option<u32>>(), 0..3_u16);
        (tuple, tuple, rest).prop_map(
            move |(original, reply, (v4, protocol, destination_translated, id, zone))| {
                let tuple = |(src, dst, sport, dport)| Tuple {
                    src: ip(v4, src),
                    dst: ip(v4, dst),
                    sport,
                    dport,
                };
                let (original, reply) = (tuple(original), tuple(reply));
                Flow { protocol, original, reply, destination_translated, id, zone }
            },
        )
    }

    /// A message as the kernel lists a flow.
    fn listed(body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let kind = abi::nfnl_message(abi::NFNL_SUBSYS_CTNETLINK, abi::IPCTNL_MSG_CT_GET);
        let header = Header { kind, flags: 0, sequence: 1, family: abi::NFPROTO_IPV4, resource: 0 };
        let mut bytes = Vec::new();
        wire::message(&mut bytes, header, body);
        bytes
    }

    fn only(bytes: &[u8]) -> Message<'_> {
        Messages(bytes).next().unwrap()
    }

    /// A flow of TCP whose destination was translated.
    fn translated() -> Flow {
        let tuple = |src: [u8; 4], dst: [u8; 4], sport, dport| Tuple {
            src: src.into(),
            dst: dst.into(),
            sport,
            dport,
        };
        Flow {
            protocol: 6,
            original: tuple([10, 0, 0, 1], [10, 96, 0, 1], 4711, 80),
            reply: tuple([10, 1, 0, 7], [10, 0, 0, 1], 8080, 4711),
            destination_translated: true,
            id: Some(7),
            zone: 0,
        }
    }

    fn with_status(flow: &Flow, status: u32, state: Option<u8>) -> Vec<u8> {
        listed(|out| {
            encode(out, flow);
            encode_tuple(out, abi::CTA_TUPLE_REPLY, flow.protocol, &flow.reply);
            wire::be32(out, abi::CTA_STATUS, status);
            if let Some(state) = state {
                wire::nest(out, abi::CTA_PROTOINFO, |out| {
                    wire::nest(out, abi::CTA_PROTOINFO_TCP, |out| {
                        wire::bytes(out, abi::CTA_PROTOINFO_TCP_STATE, &[state]);
                    });
                });
            }
        })
    }

    #[test]
    fn connections_count_as_unestablished_until_the_client_goes_on() {
        const NAT: u32 = abi::IPS_DST_NAT | abi::IPS_CONFIRMED;
        const CLOSE: u8 = abi::TCP_CONNTRACK_CLOSE;
        let udp = Flow { protocol: 17, ..translated() };
        // Status and state of TCP; replied and refused.
        type Row = (&'static str, Flow, u32, Option<u8>, Option<(bool, bool)>);
        let rows: [Row; 8] = [
            ("no answer", translated(), NAT, Some(1), Some((false, false))),
            ("answered", translated(), NAT | abi::IPS_SEEN_REPLY, Some(2), Some((true, false))),
            ("reset", translated(), NAT, Some(CLOSE), Some((false, true))),
            ("given up", translated(), NAT | abi::IPS_SEEN_REPLY, Some(CLOSE), Some((true, false))),
            (
                "established",
                translated(),
                NAT | abi::IPS_SEEN_REPLY | abi::IPS_ASSURED,
                Some(3),
                None,
            ),
            ("not translated", translated(), abi::IPS_CONFIRMED, Some(1), None),
            ("not TCP", udp, NAT, Some(1), None),
            ("without a state", translated(), NAT, None, None),
        ];
        for (name, flow, status, state, expected) in rows {
            let bytes = with_status(&flow, status, state);
            let found = unestablished(&only(&bytes));
            assert_eq!(found.map(|found| (found.replied, found.is_refused())), expected, "{name}");
            if let Some(found) = found {
                assert_eq!((found.flow, Some(found.state)), (flow, state), "{name}");
            }
        }
    }

    #[test]
    fn what_a_flow_has_carried_needs_both_directions() {
        let counted = |directions: &[(u16, u64)]| {
            listed(|out| {
                for (kind, bytes) in directions {
                    wire::nest(out, *kind, |out| wire::be64(out, abi::CTA_COUNTERS_BYTES, *bytes));
                }
            })
        };
        let (there, back) = ((abi::CTA_COUNTERS_ORIG, 1 << 33), (abi::CTA_COUNTERS_REPLY, 5));
        let expected = Carried { original: 1 << 33, reply: 5 };
        assert_eq!(carried(&only(&counted(&[there, back]))), Some(expected));
        assert_eq!(carried(&only(&counted(&[there]))), None);
        assert_eq!(carried(&only(&counted(&[back]))), None);
        let mut sum = expected;
        sum += Carried { original: 1, reply: 10 };
        assert_eq!(sum, Carried { original: (1 << 33) + 1, reply: 15 });
    }

    #[test]
    fn a_flow_without_ports_or_a_reply_is_none() {
        let flow = translated();
        let without_reply = listed(|out| encode(out, &flow));
        assert_eq!(super::flow(&only(&without_reply)), None);
        let icmp = listed(|out| {
            for kind in [abi::CTA_TUPLE_ORIG, abi::CTA_TUPLE_REPLY] {
                wire::nest(out, kind, |out| {
                    wire::nest(out, abi::CTA_TUPLE_IP, |out| {
                        SOURCE.write(out, flow.original.src);
                        DESTINATION.write(out, flow.original.dst);
                    });
                    wire::nest(out, abi::CTA_TUPLE_PROTO, |out| {
                        wire::bytes(out, abi::CTA_PROTO_NUM, &[1]);
                    });
                });
            }
        });
        assert_eq!(super::flow(&only(&icmp)), None);
    }

    fn v6() -> Flow {
        let ip = |n: u128| Ipv6Addr::from((0xfd00 << 112) + n).into();
        let tuple = |src, dst| Tuple { src: ip(src), dst: ip(dst), sport: 1, dport: 53 };
        Flow {
            protocol: 17,
            original: tuple(1, 2),
            reply: tuple(3, 1),
            id: None,
            zone: 5,
            ..translated()
        }
    }

    fn listed_by(conntrack: &mut Conntrack, family: Family, protocol: Option<u8>) -> Vec<Flow> {
        let mut found = Vec::new();
        conntrack.flows(family, protocol, &mut |flow| found.push(*flow)).unwrap();
        found
    }

    #[test]
    fn flows_are_listed_by_family_and_protocol_and_deleted_by_id() {
        let kernel = SimulatedKernel::new(true);
        let network = Network::simulated(kernel.process());
        let mut conntrack = network.conntrack().unwrap();
        let newer = Flow { id: Some(8), ..translated() };
        [translated(), v6()].into_iter().for_each(|flow| kernel.add_flow(flow));
        assert_eq!(listed_by(&mut conntrack, Family::Ip, None), [translated()]);
        assert_eq!(listed_by(&mut conntrack, Family::Ip6, None), [v6()]);
        assert_eq!(listed_by(&mut conntrack, Family::Ip6, Some(17)), [v6()]);
        assert_eq!(listed_by(&mut conntrack, Family::Ip6, Some(6)), []);
        conntrack.delete(&newer).unwrap();
        assert_eq!(kernel.flows().len(), 2, "a newer flow with the same addresses is another one");
        conntrack.delete(&translated()).unwrap();
        assert_eq!(kernel.flows(), [v6()]);
        conntrack.delete(&translated()).expect("it is gone already");
        kernel.set_hook(|call| {
            assert!(call.is_conntrack());
            Some(SimulatedFault::Refused(1))
        });
        assert_eq!(conntrack.delete(&v6()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(kernel.flows(), [v6()]);
    }

    /// Older kernels list all flows, whatever was asked for.
    #[test]
    fn listings_leave_out_what_was_not_asked_for() {
        const NAT: u32 = abi::IPS_DST_NAT;
        let states = [
            NAT,
            0,
            NAT | abi::IPS_SEEN_REPLY,
            abi::IPS_SEEN_REPLY,
            NAT | abi::IPS_DYING,
            NAT | abi::IPS_ASSURED | abi::IPS_SEEN_REPLY,
        ];
        let mut bytes = Vec::new();
        for (id, status) in (0..).zip(states) {
            let flow = Flow { id: Some(id), ..translated() };
            let mut one = with_status(&flow, status, Some(1));
            for kind in [abi::CTA_COUNTERS_ORIG, abi::CTA_COUNTERS_REPLY] {
                wire::nest(&mut one, kind, |out| wire::be64(out, abi::CTA_COUNTERS_BYTES, 5));
            }
            wire::end(&mut one, 0);
            bytes.extend(one);
        }
        // The error number of the end is in the place of the family.
        let done = Header { kind: abi::NLMSG_DONE, flags: 0, sequence: 1, family: 0, resource: 0 };
        wire::message(&mut bytes, done, |_| {});
        let kernel = SimulatedKernel::new(true);
        kernel.answer_with(&bytes);
        let open = || Network::simulated(kernel.process()).conntrack().unwrap();
        let mut found = Vec::new();
        open().unanswered(Family::Ip, &mut |flow| found.push(flow.id.unwrap())).unwrap();
        assert_eq!(std::mem::take(&mut found), [1]);
        let mut unestablished = open().unestablished(Family::Ip).unwrap();
        let more = unestablished.read(&mut |one| found.push(one.flow.id.unwrap())).unwrap();
        assert_eq!((more, std::mem::take(&mut found)), (false, vec![0, 2]));
        let mut carried = open().carried(Family::Ip).unwrap();
        let five = Carried { original: 5, reply: 5 };
        let more = carried
            .read(&mut |flow, carried| {
                assert_eq!(carried, five);
                found.push(flow.id.unwrap());
            })
            .unwrap();
        assert_eq!((more, found), (false, vec![0, 2, 5]));
    }
}
