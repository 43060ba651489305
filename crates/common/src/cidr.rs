//! Blocks of IP addresses: `10.96.0.0/16`, `fd00::/64`.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::ip::{decimal, parse_address};

/// A block of addresses in its canonical form: bits beyond the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

impl Cidr {
    /// The block around an address; `None` for a prefix longer than the address.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        IpNet::new(address, length).ok().map(|net| Self(net.trunc()))
    }

    /// The block around an address whose prefix length is a constant.
    ///
    /// # Panics
    /// If the prefix is longer than the address.
    pub fn new_assert(address: IpAddr, length: u8) -> Self {
        Self(IpNet::new_assert(address, length).trunc())
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

    /// `0.0.0.0/0` or `::/0`, in the family of an address.
    pub fn default_of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(IpNet::V4(Ipv4Net::default())),
            IpAddr::V6(_) => Self(IpNet::V6(Ipv6Net::default())),
        }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Whether it is a block of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address().is_ipv4()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_canonical() {
        let rows = [
            ("203.0.113.000/025", Some("203.0.113.0/25")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3/32", Some("10.1.2.3/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("1.2.3.4/0", Some("0.0.0.0/0")),
            ("fd00::1/64", Some("fd00::/64")),
            ("::/0", Some("::/0")),
            ("fd00::1/128", Some("fd00::1/128")),
            ("::ffff:10.0.0.1/104", Some("10.0.0.0/8")),
            ("10.0.0.0/33", None),
            ("fd00::/129", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/-1", None),
            ("10.0.0.0", None),
            ("nonsense/8", None),
        ];
        for (text, expected) in rows {
            assert_eq!(
                Cidr::parse(text).map(|block| block.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
        let block = Cidr::parse("10.0.0.0/25").unwrap();
        let inside = |ip: &str| block.contains(ip.parse::<IpAddr>().unwrap());
        assert!(inside("10.0.0.127") && !inside("10.0.0.128") && !inside("::a00:1"));
    }

    #[test]
    fn blocks_have_a_first_and_a_last_address() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        // Block, first address, last address, length of the prefix.
        let rows = [
            (Cidr::new_assert(ip("10.1.2.3"), 8), "10.0.0.0", "10.255.255.255", 8),
            (Cidr::new(ip("10.1.2.3"), 31).unwrap(), "10.1.2.2", "10.1.2.3", 31),
            (Cidr::host(ip("10.1.2.3")), "10.1.2.3", "10.1.2.3", 32),
            (Cidr::host(ip("fd00::1")), "fd00::1", "fd00::1", 128),
            (Cidr::default_of(ip("10.1.2.3")), "0.0.0.0", "255.255.255.255", 0),
            (Cidr::default_of(ip("fd00::1")), "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0),
        ];
        for (block, first, last, length) in rows {
            assert_eq!(
                (block.address(), block.last(), block.length()),
                (ip(first), ip(last), length)
            );
            assert_eq!(block.is_ipv4(), first.contains('.'), "{block}");
            assert!(block.contains(ip(first)) && block.contains(ip(last)), "{block}");
        }
        assert_eq!(Cidr::new(ip("10.1.2.3"), 33), None);
    }
}
