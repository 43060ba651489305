//! Addresses of this node: its own, and those that accept NodePorts.
//!
//! ```text
//!  Node.status.addresses ┐
//!  bindAddress           ┴─► NodeIps ─┐
//!  nodePortAddresses ─────────────────┼─► per family: NodePorts::All, or a list
//!  addresses of interfaces ───────────┘
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zonewise_common::cidr::Cidr;
use zonewise_common::ip::parse_address;
use zonewise_routing::Family;

use crate::config::NodePortAddresses;

/// This node's own address of each family. Where none is known it is the loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeIps {
    /// The family of the address that the Node is known by.
    pub primary: Family,
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

impl Default for NodeIps {
    fn default() -> Self {
        Self { primary: Family::V4, v4: Ipv4Addr::LOCALHOST, v6: Ipv6Addr::LOCALHOST }
    }
}

impl NodeIps {
    /// From the Node's `status.addresses`, as pairs of type and address, and `bindAddress`. Internal
    /// addresses go before external ones; what is not an IP address is ignored.
    pub(crate) fn new<'a>(
        addresses: impl IntoIterator<Item = (&'a str, &'a str)>,
        bind_address: Option<IpAddr>,
    ) -> Self {
        let (mut raw, mut external) = (Vec::new(), Vec::new());
        for (kind, text) in addresses {
            match kind {
                "InternalIP" => raw.extend(parse_address(text)),
                "ExternalIP" => external.extend(parse_address(text)),
                _ => {}
            }
        }
        raw.append(&mut external);
        let mut ips = Self::default();
        // The first of each family counts; the very first comes last, so that it decides `primary`.
        let first_of = |family| raw.iter().copied().find(|ip| Family::of(ip) == family);
        for ip in [first_of(Family::V4), first_of(Family::V6), raw.first().copied()] {
            ip.into_iter().for_each(|ip| ips.prefer(ip));
        }
        bind_address.filter(|ip| !ip.is_unspecified()).into_iter().for_each(|ip| ips.prefer(ip));
        ips
    }

    fn prefer(&mut self, ip: IpAddr) {
        self.primary = Family::of(&ip);
        match ip {
            IpAddr::V4(ip) => self.v4 = ip,
            IpAddr::V6(ip) => self.v6 = ip,
        }
    }

    /// The address of a family.
    pub(crate) fn of(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }

    /// The address of a family, if the node has one that others can reach.
    pub(crate) fn known(&self, family: Family) -> Option<IpAddr> {
        Some(self.of(family)).filter(|ip| !ip.is_loopback())
    }
}

/// Which addresses of one family accept NodePorts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePorts {
    /// All addresses of the machine but for loopback.
    All,
    /// These, sorted, none of them loopback.
    Listed(Vec<IpAddr>),
}

impl NodePorts {
    /// The addresses, where not all accept NodePorts.
    pub fn listed(&self) -> &[IpAddr] {
        match self {
            Self::All => &[],
            Self::Listed(addresses) => addresses,
        }
    }
}

/// The addresses of a family that accept NodePorts, and warnings for the log. `interfaces` are the
/// addresses that the machine has now.
pub(crate) fn node_ports(
    setting: &NodePortAddresses,
    ips: &NodeIps,
    interfaces: &[IpAddr],
    family: Family,
) -> (NodePorts, Vec<String>) {
    let ranges: Vec<Cidr> = match setting {
        NodePortAddresses::Primary => ips.known(family).into_iter().filter_map(single).collect(),
        NodePortAddresses::Cidrs(all) => {
            all.iter().copied().filter(|range| Family::of(&range.address()) == family).collect()
        }
    };
    if ranges.is_empty() {
        return (NodePorts::All, vec![every_address_warning(setting, family)]);
    }
    if ranges.iter().any(|range| range.length() == 0) {
        return (NodePorts::All, Vec::new());
    }
    let within = |ip: &&IpAddr| ranges.iter().any(|range| range.contains(**ip));
    let (loopback, mut listed): (Vec<_>, Vec<_>) =
        interfaces.iter().filter(within).copied().partition(IpAddr::is_loopback);
    listed.sort_unstable();
    listed.dedup();
    let mut warnings = Vec::new();
    if !loopback.is_empty() {
        warnings.push(format!(
            "nodePortAddresses has {}, where NodePorts do not answer; set --localhost-nodeports for \
             127.0.0.1",
            joined(&loopback)
        ));
    }
    if listed.is_empty() {
        warnings.push(format!(
            "no interface has an {family} address in {}: {family} NodePorts answer nowhere; set \
             nodePortAddresses to a range that this node has addresses in",
            joined(&ranges)
        ));
    }
    (NodePorts::Listed(listed), warnings)
}

fn single(ip: IpAddr) -> Option<Cidr> {
    Cidr::new(ip, if ip.is_ipv4() { 32 } else { 128 })
}

fn every_address_warning(setting: &NodePortAddresses, family: Family) -> String {
    let why = match setting {
        NodePortAddresses::Primary => format!("this node has no {family} address of its own"),
        NodePortAddresses::Cidrs(_) => format!("nodePortAddresses has no {family} range"),
    };
    format!(
        "{why}: {family} NodePorts answer on every {family} address of the machine, as in \
         kube-proxy; name {family} ranges in nodePortAddresses to narrow that"
    )
}

fn joined(list: &[impl ToString]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The addresses that the machine's interfaces have now, sorted.
///
/// # Errors
/// If the kernel cannot be asked.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list: Vec<IpAddr> = nix::ifaddrs::getifaddrs()?
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        })
        .collect();
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cidrs(list: &[&str]) -> NodePortAddresses {
        NodePortAddresses::Cidrs(list.iter().map(|text| Cidr::parse(text).unwrap()).collect())
    }

    /// The addresses of the Node count, internal ones first; `bindAddress` replaces that of its family.
    #[test]
    fn node_ips_from_node_and_bind_address() {
        let internal = |address| ("InternalIP", address);
        let (v4, v6) = (internal("192.168.1.1"), internal("fd00:1234::1"));
        let external = ("ExternalIP", "203.0.113.7");
        let rows = [
            (vec![], Some("10.0.0.1"), Family::V4, "10.0.0.1", "::1"),
            (vec![], Some("0.0.0.0"), Family::V4, "127.0.0.1", "::1"),
            (vec![], None, Family::V4, "127.0.0.1", "::1"),
            (vec![], Some("::"), Family::V4, "127.0.0.1", "::1"),
            (vec![v4], Some("::"), Family::V4, "192.168.1.1", "::1"),
            (vec![v6], Some("0.0.0.0"), Family::V6, "127.0.0.1", "fd00:1234::1"),
            (vec![v6, v4], None, Family::V6, "192.168.1.1", "fd00:1234::1"),
            (vec![v6, v4], Some("80.80.80.80"), Family::V4, "80.80.80.80", "fd00:1234::1"),
            (vec![v4, v6], Some("::1"), Family::V6, "192.168.1.1", "::1"),
            (vec![external, v6], None, Family::V6, "203.0.113.7", "fd00:1234::1"),
            (vec![external, v4], None, Family::V4, "192.168.1.1", "::1"),
            (vec![v4, internal("192.168.1.2")], None, Family::V4, "192.168.1.1", "::1"),
            (vec![internal("192.168.001.001")], None, Family::V4, "192.168.1.1", "::1"),
            (vec![("Hostname", "node-1"), internal("?")], None, Family::V4, "127.0.0.1", "::1"),
        ];
        for (addresses, bind, primary, v4, v6) in rows {
            let found = NodeIps::new(addresses.clone(), bind.map(ip));
            let expected = NodeIps { primary, v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
            assert_eq!(found, expected, "{addresses:?} {bind:?}");
        }
    }

    /// `primary` without an address of a family means every address of that family, as in kube-proxy.
    #[test]
    fn where_nodeports_answer() {
        let interfaces =
            ["127.0.0.1", "192.0.2.1", "192.0.2.9", "198.51.100.3", "::1", "fd00::1"].map(ip);
        let known = NodeIps::new([("InternalIP", "192.0.2.1")], None);
        let both = NodeIps::new([("InternalIP", "192.0.2.1"), ("InternalIP", "fd00::1")], None);
        let elsewhere = NodeIps::new([("ExternalIP", "203.0.113.7")], None);
        let listed = |list: &[&str]| NodePorts::Listed(list.iter().map(|text| ip(text)).collect());
        let primary = NodePortAddresses::Primary;
        let (v4, v6) = (Family::V4, Family::V6);
        let rows = [
            (primary.clone(), known, v4, listed(&["192.0.2.1"]), None),
            (primary.clone(), known, v6, NodePorts::All, Some("no IPv6 address of its own")),
            (primary.clone(), both, v6, listed(&["fd00::1"]), None),
            (primary.clone(), elsewhere, v4, listed(&[]), Some("answer nowhere")),
            (primary, NodeIps::default(), v4, NodePorts::All, Some("no IPv4 address of its own")),
            (cidrs(&["192.0.2.0/24"]), known, v4, listed(&["192.0.2.1", "192.0.2.9"]), None),
            (cidrs(&["192.0.2.0/24"]), known, v6, NodePorts::All, Some("has no IPv6 range")),
            (cidrs(&["192.0.2.0/24", "0.0.0.0/0"]), known, v4, NodePorts::All, None),
            (cidrs(&["::/0"]), known, v6, NodePorts::All, None),
            (
                cidrs(&["127.0.0.0/8", "198.51.100.0/24"]),
                known,
                v4,
                listed(&["198.51.100.3"]),
                Some("has 127.0.0.1, where NodePorts do not answer"),
            ),
            (cidrs(&["10.0.0.0/8"]), known, v4, listed(&[]), Some("address in 10.0.0.0/8")),
        ];
        for (setting, ips, family, expected, warning) in rows {
            let (found, warnings) = node_ports(&setting, &ips, &interfaces, family);
            assert_eq!(found, expected, "{setting:?} {family}");
            let said: Vec<_> = warning.into_iter().collect();
            assert_eq!(warnings.len(), said.len(), "{setting:?} {family}: {warnings:?}");
            for (text, part) in warnings.iter().zip(said) {
                assert!(text.contains(part), "{setting:?} {family}: {text}");
            }
        }
    }

    #[test]
    fn the_machine_has_a_loopback_address() {
        let found = interface_addresses().unwrap();
        assert!(found.contains(&ip("127.0.0.1")), "{found:?}: bring up lo");
    }
}
