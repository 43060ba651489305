//! Blocks of IP addresses: `10.96.0.0/16`, `fd00::/64`.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::ip::{decimal, parse_address};

/// A block of addresses in its canonical form: bits beyond the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

impl Cidr {
    /// The block around an address; `None` for a prefix longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        IpNet::new(address, length).ok().map(|net| Self(net.trunc()))
    }

    /// Reads `address/length`, with leading zeros in either (see [`crate::ip`]).
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let length = u8::try_from(decimal(length)?).ok()?;
        let mapped = address.contains(':');
        match parse_address(address)? {
            // The prefix of an IPv4 address that is written as IPv6 counts from the IPv6 end.
            ip @ IpAddr::V4(_) if mapped => Self::new(ip, length.checked_sub(96)?),
            ip => Self::new(ip, length),
        }
    }

    /// The block of one address.
    pub fn host(address: IpAddr) -> Self {
        Self(address.into())
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// The length of its prefix in bits.
    pub fn length(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Its last address.
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// Whether an address lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
