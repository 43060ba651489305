//! A list of addresses of one family, each with a value.
//!
//! An `IpAddr` takes 17 bytes whatever its family. A large cluster has tens of thousands of
//! endpoints, nearly all of them IPv4, so each family has a list of its own with 4 or 16 bytes per
//! address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::net::Family;

/// Addresses of one family, each with a value of type `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressList<T> {
    /// IPv4.
    V4(Box<[(Ipv4Addr, T)]>),
    /// IPv6.
    V6(Box<[(Ipv6Addr, T)]>),
}

impl<T> Default for AddressList<T> {
    fn default() -> Self {
        Self::V4(Box::default())
    }
}

impl<T: Copy> AddressList<T> {
    /// Keeps the items of `list` whose address is of this family.
    pub fn of(family: Family, list: impl Iterator<Item = (IpAddr, T)>) -> Self {
        match family {
            Family::V4 => Self::V4(list.filter_map(|(ip, value)| Some((v4(ip)?, value))).collect()),
            Family::V6 => Self::V6(list.filter_map(|(ip, value)| Some((v6(ip)?, value))).collect()),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::V4(list) => list.len(),
            Self::V6(list) => list.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at an index.
    pub fn get(&self, index: usize) -> Option<(IpAddr, T)> {
        match self {
            Self::V4(list) => list.get(index).map(|&(ip, value)| (ip.into(), value)),
            Self::V6(list) => list.get(index).map(|&(ip, value)| (ip.into(), value)),
        }
    }

    /// All items in their order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, T)> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = ip { Some(ip) } else { None }
}

fn v6(ip: IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(ip) = ip { Some(ip) } else { None }
}
