//! Addresses, address blocks, families and protocols.
//!
//! Kubernetes has accepted addresses with leading zeros for years, so they are stored in clusters:
//! `172.30.0.041`. They are read as decimal numbers and only their canonical form leaves this file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The family of this API name.
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text {
            "IPv4" => Some(Self::V4),
            "IPv6" => Some(Self::V6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol of this API name; none means TCP.
    pub(crate) fn named(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// A block of addresses in its canonical form: bits beyond the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// The block around an address; `None` for a prefix longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (length <= bits).then(|| Self { address: masked(address, length), length })
    }

    /// Reads `address/length`, with leading zeros in either.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let length = decimal(length, 128)? as u8;
        let mapped = address.contains(':');
        match parse_address(address)? {
            // An IPv4 address in IPv6 clothes counts its prefix from the IPv6 end.
            ip @ IpAddr::V4(_) if mapped => Self::new(ip, length.checked_sub(96)?),
            ip => Self::new(ip, length),
        }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of its prefix in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(&self.address)
    }

    /// The block of one address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Its last address.
    pub fn last(&self) -> IpAddr {
        let length = u32::from(self.length);
        match self.address {
            IpAddr::V4(ip) => {
                let rest = u32::MAX.checked_shr(length).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | rest))
            }
            IpAddr::V6(ip) => {
                let rest = u128::MAX.checked_shr(length).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() | rest))
            }
        }
    }

    /// Whether an address lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.address.is_ipv4() && masked(ip, self.length) == self.address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn masked(ip: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// Reads an address, with leading zeros in its decimal parts. An IPv4 address written as IPv6
/// (`::ffff:10.0.0.1`) is an IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        // The normal case has no leading zeros.
        let exact = Ipv4Addr::from_str(text).ok();
        return exact.or_else(|| sloppy_v4(text)).map(IpAddr::V4);
    }
    let exact = Ipv6Addr::from_str(text).ok();
    exact.or_else(|| sloppy_v6(text)).map(|ip| IpAddr::V6(ip).to_canonical())
}

fn sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.');
    let mut octets = [0; 4];
    for octet in &mut octets {
        *octet = decimal(parts.next()?, 255)? as u8;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Only an IPv4 tail can have decimal parts.
fn sloppy_v6(text: &str) -> Option<Ipv6Addr> {
    let (head, tail) = text.rsplit_once(':')?;
    let tail = sloppy_v4(tail)?;
    format!("{head}:{tail}").parse().ok()
}

/// A number of digits only, whatever zeros it starts with.
fn decimal(text: &str, max: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    let number = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    (number <= max).then_some(number)
}
