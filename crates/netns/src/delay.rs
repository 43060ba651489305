//! Delayed packets: the kernel's `netem` queueing discipline on an interface.

use std::time::Duration;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::{Error, Namespace};

/// Options of a queueing discipline (linux/rtnetlink.h).
const TCA_OPTIONS: u16 = 2;
/// Latency in nanoseconds (linux/pkt_sched.h).
const TCA_NETEM_LATENCY64: u16 = 10;
/// How many packets may be delayed at once.
const PACKET_LIMIT: u32 = 10_000;

impl Namespace {
    /// Delays every packet that leaves through an interface.
    pub fn delay(&self, interface: &str, delay: Duration) -> Result<(), Error> {
        let index = i32::try_from(self.link(interface)?.index).unwrap_or(i32::MAX);
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![
            TcAttribute::Kind("netem".into()),
            TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, netem_options(delay))),
        ];
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        let doing = || format!("delay packets that leave through {interface} by {delay:?}");
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE, doing).map(drop)
    }
}

/// `struct tc_netem_qopt` (latency, limit, loss, gap, duplicate, jitter), then the exact latency.
fn netem_options(delay: Duration) -> Vec<u8> {
    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
    let mut bytes = Vec::new();
    for field in [0, PACKET_LIMIT, 0, 0, 0, 0] {
        bytes.extend(field.to_ne_bytes());
    }
    // The attribute's length: a header of 4 bytes and a value of 8.
    bytes.extend(12u16.to_ne_bytes());
    bytes.extend(TCA_NETEM_LATENCY64.to_ne_bytes());
    bytes.extend(nanos.to_ne_bytes());
    bytes
}
