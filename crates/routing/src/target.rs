//! An endpoint that a connection can be sent to.

use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use crate::slice::{EndpointFlags, SliceEndpoint};
use crate::zones::ZoneId;

/// The address and port of an endpoint.
///
/// Targets are ordered as kube-proxy orders them, by the text `ip:port`: `10.0.1.10:80` comes
/// before `10.0.1.1:80`. They are compared without building the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The zone it runs in.
    pub zone: ZoneId,
    /// Whether it runs on this node.
    pub local: bool,
    /// Ready, serving, terminating. The flags about hints are set only in the result of
    /// [`crate::merge()`].
    pub flags: EndpointFlags,
}

impl Target {
    pub(crate) fn new(endpoint: &SliceEndpoint, port: u16) -> Self {
        Self {
            address: endpoint.address,
            port,
            zone: endpoint.zone,
            local: endpoint.flags.local(),
            flags: endpoint.flags,
        }
    }

    pub(crate) fn without_hints(self) -> Self {
        Self { flags: self.flags.without_hints(), ..self }
    }

    /// Compares the texts `ip:port`; equal only for the same address and port.
    pub fn by_text(&self, other: &Self) -> Ordering {
        match (self.address, other.address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => rank(a, self.port).cmp(&rank(b, other.port)),
            _ => TextBuffer::of(self).cmp(&TextBuffer::of(other)),
        }
    }

    /// A sort key in the order of the text `ip:port`, for targets of one family.
    pub(crate) fn key(&self) -> impl Ord + use<> {
        match self.address {
            IpAddr::V4(ip) => (rank(ip, self.port), None),
            IpAddr::V6(_) => (0, Some(TextBuffer::of(self))),
        }
    }
}

impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        let rest = |target: &Self| (target.zone, target.local, target.flags);
        self.by_text(other).then_with(|| rest(self).cmp(&rest(other)))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(ip) => write!(f, "{ip}:{}", self.port),
            IpAddr::V6(ip) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

/// A number with the same order as the text `ip:port`.
///
/// What ends a number in the text decides: the `.` after an octet sorts before digits, the `:`
/// after the last octet sorts after them, and the end of the text after the port sorts first.
fn rank(ip: Ipv4Addr, port: u16) -> u64 {
    let [a, b, c, d] = ip.octets().map(u16::from);
    let dots = [a, b, c].into_iter().fold(0, |rank, octet| (rank << 11) + digits(octet, 3, false));
    (((dots << 11) + digits(d, 3, true)) << 18) + digits(port, 5, false)
}

/// The digits of a number from the left, in base 11: the eleventh digit stands for the character
/// that ends the number, as the lowest or the highest digit.
fn digits(number: u16, width: u32, end_is_highest: bool) -> u64 {
    let (first, end) = if end_is_highest { (0, 10) } else { (1, 0) };
    let length = number.checked_ilog10().unwrap_or(0) + 1;
    let mut rank = 0;
    for position in 0..width {
        let digit = match position.cmp(&length) {
            Ordering::Less => first + u64::from(number / 10u16.pow(length - 1 - position) % 10),
            Ordering::Equal => end,
            Ordering::Greater => 0,
        };
        rank = rank * 11 + digit;
    }
    // A number of full width needs no digit for its end: no longer number starts with it.
    rank
}

/// The text `[ipv6]:port` in a buffer on the stack. The rest of the buffer is zero, which sorts before
/// any character.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TextBuffer {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl TextBuffer {
    /// `[`, eight groups of four digits with colons, `]:`, five digits.
    const MAX: usize = 48;

    fn of(target: &Target) -> Self {
        let mut buffer = Self { bytes: [0; Self::MAX], length: 0 };
        // It always fits: IPv4-mapped addresses, which have longer texts, were converted to IPv4
        // when they were read.
        let _ = write!(buffer, "{target}");
        buffer
    }
}

impl Write for TextBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let free = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
