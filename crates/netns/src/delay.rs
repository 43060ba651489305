//! Packets that take their time: the kernel's netem at the end of a cable.

use std::time::Duration;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use crate::{Error, Namespace};

/// `TCA_OPTIONS`: what a queueing discipline is told.
const OPTIONS: u16 = 2;
/// `TCA_NETEM_LATENCY64`: nanoseconds.
const LATENCY: u16 = 10;
/// Packets on their way at once.
const LIMIT: u32 = 10_000;

impl Namespace {
    /// Everything that leaves through an interface takes so much longer.
    pub fn delay(&self, interface: &str, delay: Duration) -> Result<(), Error> {
        let index = i32::try_from(self.link(interface)?.index).unwrap_or(i32::MAX);
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![
            TcAttribute::Kind("netem".into()),
            TcAttribute::Other(DefaultNla::new(OPTIONS, options(delay))),
        ];
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        let doing = || format!("delay what leaves {interface} by {delay:?}");
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE, doing).map(drop)
    }
}

/// `struct tc_netem_qopt` (latency, limit, loss, gap, duplicate, jitter), then the exact latency.
fn options(delay: Duration) -> Vec<u8> {
    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
    let mut bytes = Vec::new();
    for field in [0, LIMIT, 0, 0, 0, 0] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes.extend(12u16.to_ne_bytes());
    bytes.extend(LATENCY.to_ne_bytes());
    bytes.extend(nanos.to_ne_bytes());
    bytes
}
