//! Addresses of one family, each with a little more, in as few bytes as the family needs: a cluster has
//! tens of thousands, nearly all of IPv4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::net::Family;

/// Addresses and what belongs to each.
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
    /// Those of a list that are of this family.
    pub fn of(family: Family, list: impl Iterator<Item = (IpAddr, T)>) -> Self {
        match family {
            Family::V4 => Self::V4(list.filter_map(|(ip, rest)| Some((v4(ip)?, rest))).collect()),
            Family::V6 => Self::V6(list.filter_map(|(ip, rest)| Some((v6(ip)?, rest))).collect()),
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

    /// One of them.
    pub fn get(&self, place: usize) -> Option<(IpAddr, T)> {
        match self {
            Self::V4(list) => list.get(place).map(|&(ip, rest)| (ip.into(), rest)),
            Self::V6(list) => list.get(place).map(|&(ip, rest)| (ip.into(), rest)),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, T)> {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}

fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = ip { Some(ip) } else { None }
}

fn v6(ip: IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(ip) = ip { Some(ip) } else { None }
}
