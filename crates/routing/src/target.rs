//! Where a connection can go.

use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use crate::reader::ZoneId;
use crate::slice::{EndpointFlags, SliceEndpoint};

/// An address and port of an endpoint.
///
/// Targets are ordered as the reference orders them: by the bytes of `ip:port`, so that
/// `10.0.1.10:80` comes before `10.0.1.1:80`. No string is made for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The zone it runs in.
    pub zone: ZoneId,
    /// It runs on this node.
    pub local: bool,
    /// Ready, serving, terminating; hints only in what [`crate::merge`] gives.
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

    /// The order of `ip:port`; equal only for the same address and port.
    pub fn by_text(&self, other: &Self) -> Ordering {
        match (self.address, other.address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => rank(a, self.port).cmp(&rank(b, other.port)),
            _ => Line::of(self).cmp(&Line::of(other)),
        }
    }

    /// A key in the order of `ip:port`, for targets of one family.
    pub(crate) fn key(&self) -> impl Ord + use<> {
        match self.address {
            IpAddr::V4(ip) => (rank(ip, self.port), None),
            IpAddr::V6(_) => (0, Some(Line::of(self))),
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

/// A number that is ordered as the text `ip:port` is. The end of an octet is `.`, which sorts
/// before digits, but `:` after the last octet sorts behind them; the text ends after the port.
fn rank(ip: Ipv4Addr, port: u16) -> u64 {
    let [a, b, c, d] = ip.octets().map(u16::from);
    let dots = [a, b, c].into_iter().fold(0, |rank, octet| rank << 11 | digits(octet, 3, false));
    (dots << 11 | digits(d, 3, true)) << 18 | digits(port, 5, false)
}

/// The digits of a number in base 11, from the left, with its end as the lowest or highest digit.
fn digits(number: u16, width: u32, end_is_highest: bool) -> u64 {
    let (first, end) = if end_is_highest { (0, 10) } else { (1, 0) };
    let length = number.checked_ilog10().unwrap_or(0) + 1;
    let mut rank = 0;
    for place in 0..width {
        let digit = match place.cmp(&length) {
            Ordering::Less => first + u64::from(number / 10u16.pow(length - 1 - place) % 10),
            Ordering::Equal => end,
            Ordering::Greater => 0,
        };
        rank = rank * 11 + digit;
    }
    // A number of full width has no place for its end, and needs none: no other starts with it.
    rank
}

/// `[ipv6]:port` on the stack. What follows it is zero, which sorts before any character.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl Line {
    /// `[`, eight groups of four digits with colons, `]:`, five digits.
    const MAX: usize = 48;

    fn of(target: &Target) -> Self {
        let mut line = Self { bytes: [0; Self::MAX], length: 0 };
        // It fits: see above. An IPv4 address in IPv6 clothes is an IPv4 address by now.
        let _ = write!(line, "{target}");
        line
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
