//! Keys and data as the kernel stores them: each part starts at a multiple of four bytes.
//!
//! ```text
//!   10.0.0.1 . tcp . 80 . slot 2   =   0a 00 00 01 | 06 00 00 00 | 00 50 00 00 | 02 00 00 00
//!                                      network order                             host order
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::abi;

/// The address family of a table. zonewise has one table for each, and none of family `inet`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::Ip, Self::Ip6];

    /// The length of an address in bytes.
    #[must_use]
    pub const fn address_len(self) -> usize {
        match self {
            Self::Ip => 4,
            Self::Ip6 => 16,
        }
    }

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ip,
            IpAddr::V6(_) => Self::Ip6,
        }
    }

    /// The kernel's number for it (`NFPROTO_…`).
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Ip => abi::NFPROTO_IPV4,
            Self::Ip6 => abi::NFPROTO_IPV6,
        }
    }

    /// The family with this number.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            abi::NFPROTO_IPV4 => Some(Self::Ip),
            abi::NFPROTO_IPV6 => Some(Self::Ip6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        })
    }
}

/// A key or data of at most 40 bytes, without heap memory: two IPv6 addresses, a protocol and a port. The kernel
/// would take 64, but tens of thousands of these are in memory at a time. Longer ones are cut, and the kernel
/// rejects the element for its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes {
    bytes: [u8; Self::MAX],
    length: u8,
}

impl Bytes {
    /// The most bytes.
    pub const MAX: usize = 40;

    /// An empty value.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; Self::MAX], length: 0 }
    }

    /// These bytes unchanged, for example from a dump. Bytes beyond the limit are cut off.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        Self::new().part(bytes)
    }

    /// Appends an address.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.part(&address.octets()),
            IpAddr::V6(address) => self.part(&address.octets()),
        }
    }

    /// Appends a protocol number: 6 is TCP.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        self.part(&[protocol])
    }

    /// Appends a port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.part(&port.to_be_bytes())
    }

    /// Appends a number such as a slot, in host byte order, as `numgen` produces it.
    #[must_use]
    pub fn number(self, number: u32) -> Self {
        self.part(&number.to_ne_bytes())
    }

    /// The bytes so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn part(mut self, part: &[u8]) -> Self {
        let start = usize::from(self.length);
        let taken = part.len().min(Self::MAX - start);
        self.bytes[start..start + taken].copy_from_slice(&part[..taken]);
        let end = (start + taken).next_multiple_of(4).min(Self::MAX);
        self.length = u8::try_from(end).unwrap_or(u8::MAX);
        self
    }
}

const _: () = assert!(Bytes::MAX <= abi::NFT_DATA_VALUE_MAXLEN, "the kernel takes no more");

impl Default for Bytes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({:02x?})", self.as_slice())
    }
}

/// Reads a key or data part by part, as [`Bytes`] wrote it. Each method takes the next part and returns
/// `None` when too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a>(pub &'a [u8]);

impl Parts<'_> {
    /// An address of that family.
    pub fn address(&mut self, family: Family) -> Option<IpAddr> {
        Some(match family {
            Family::Ip => IpAddr::V4(Ipv4Addr::from(self.take::<4>()?)),
            Family::Ip6 => IpAddr::V6(Ipv6Addr::from(self.take::<16>()?)),
        })
    }

    /// A protocol number.
    pub fn protocol(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// A port.
    pub fn port(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    /// A number in host byte order.
    pub fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let part = *self.0.first_chunk::<N>()?;
        self.0 = self.0.get(N.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    }
}

/// The data of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// None: the element of a set.
    None,
    /// Bytes, see [`Bytes`].
    Value(&'a [u8]),
    /// The verdict to drop the packet.
    Drop,
    /// The verdict to continue in a chain, without coming back.
    Goto(&'a str),
    /// A named object, such as a counter.
    Object(&'a str),
}

/// An element of a set or map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element<'a> {
    /// The key, or the first key of its interval.
    pub key: &'a [u8],
    /// The last key of the interval, in interval sets. If the key has only one part, it must be an
    /// address.
    pub key_end: Option<&'a [u8]>,
    /// Its data, in maps.
    pub data: Data<'a>,
    /// After this time the kernel removes the element; the set needs the timeout flag.
    pub timeout: Option<Duration>,
    /// A comment for `nft list`; may be empty.
    pub comment: &'a str,
}

impl<'a> Element<'a> {
    /// A bare key: what a set holds, and all that a deletion needs.
    #[must_use]
    pub const fn key(key: &'a [u8]) -> Self {
        Self { key, key_end: None, data: Data::None, timeout: None, comment: "" }
    }

    /// A key and its data in a map.
    #[must_use]
    pub const fn pair(key: &'a [u8], data: Data<'a>) -> Self {
        Self { key, key_end: None, data, timeout: None, comment: "" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_read_as_they_were_written(
            (v4, address, protocol, port, number) in any::<(bool, u128, u8, u16, u32)>(),
        ) {
            let address: IpAddr =
                if v4 { Ipv4Addr::from(address as u32).into() } else { Ipv6Addr::from(address).into() };
            let bytes = Bytes::new().address(address).protocol(protocol).port(port).number(number);
            let family = Family::of(address);
            prop_assert_eq!(bytes.as_slice().len(), family.address_len() + 12);
            let mut parts = Parts(bytes.as_slice());
            prop_assert_eq!(parts.address(family), Some(address));
            prop_assert_eq!(parts.protocol(), Some(protocol));
            prop_assert_eq!(parts.port(), Some(port));
            prop_assert_eq!(parts.number(), Some(number));
            prop_assert_eq!((parts.protocol(), parts.number()), (None, None));
        }

        #[test]
        fn bytes_are_padded_and_cut(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let stored = Bytes::from_slice(&bytes);
            let mut expected = bytes.clone();
            expected.resize(bytes.len().next_multiple_of(4), 0);
            expected.truncate(Bytes::MAX);
            prop_assert_eq!(stored.as_slice(), &expected[..]);
            prop_assert_eq!(stored.number(7).as_slice().len(), (expected.len() + 4).min(Bytes::MAX));
        }
    }

    #[test]
    fn families_have_the_kernels_numbers() {
        for (family, number, name) in [(Family::Ip, 2, "ip"), (Family::Ip6, 10, "ip6")] {
            assert_eq!((family.number(), family.to_string().as_str()), (number, name));
            assert_eq!(Family::from_number(number), Some(family));
        }
        assert_eq!(Family::from_number(1), None);
        assert_eq!(format!("{:?}", Bytes::new().port(80)), "Bytes([00, 50, 00, 00])");
        assert_eq!(Bytes::default(), Bytes::new());
    }
}
