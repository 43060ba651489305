//! Links (network interfaces) and their addresses.
//!
//! ```text
//!   ┌─ a ──────┐             ┌─ b ──────┐        ┌─ b ──────────────────┐
//!   │   name_a ├─────────────┤ name_b   │        │ bridge ─┬─ interface │
//!   └──────────┘    veth     └──────────┘        │         └─ interface │   add_bridge_port
//!                                                └──────────────────────┘
//! ```

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    State,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Error, Namespace};

const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// How long to wait for work that the kernel does in the background, usually within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A link as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index for it, unique in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: Vec<u8>,
    /// It is set up (`IFF_UP`).
    pub up: bool,
    /// It carries packets: it is up, and so is the interface it is connected to.
    pub running: bool,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub prefix: u8,
}

/// Adds a veth pair between two namespaces. Both ends are still down.
pub fn veth(a: &Namespace, name_a: &str, b: &Namespace, name_b: &str) -> Result<(), Error> {
    let mut peer = named(name_b);
    peer.attributes.push(LinkAttribute::NetNsFd(b.raw_fd()));
    let mut link = named(name_a);
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    a.request(RouteNetlinkMessage::NewLink(link), NEW, || {
        format!("add veth {name_a}, with {name_b} in {}", b.name())
    })?;
    Ok(())
}

/// Adds a bridge and sets it up.
pub fn bridge(namespace: &Namespace, name: &str) -> Result<(), Error> {
    let mut link = named(name);
    link.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Bridge),
        // With snooping but without a multicast querier, the bridge would stop forwarding IPv6
        // neighbour solicitations.
        LinkInfo::Data(InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)])),
    ]));
    namespace.request(RouteNetlinkMessage::NewLink(link), NEW, || format!("add bridge {name}"))?;

    // By default a bridge takes over the lowest hardware address of its ports, and neighbours that
    // have cached the old address lose the bridge for a while.
    let found = namespace.link(name)?;
    let mut fixed = numbered(found.index);
    fixed.attributes.push(LinkAttribute::Address(found.mac));
    namespace.set_link(fixed, || format!("fix the hardware address of {name}"))?;
    namespace.set_up(name)
}

/// Makes an interface a port of a bridge in the same namespace.
pub fn add_bridge_port(namespace: &Namespace, interface: &str, bridge: &str) -> Result<(), Error> {
    let mut port = numbered(namespace.link(interface)?.index);
    port.attributes.push(LinkAttribute::Controller(namespace.link(bridge)?.index));
    namespace.set_link(port, || format!("add {interface} to bridge {bridge}"))
}

/// Removes an interface from its bridge. It stays up.
pub(crate) fn remove_bridge_port(namespace: &Namespace, interface: &str) -> Result<(), Error> {
    let mut port = numbered(namespace.link(interface)?.index);
    port.attributes.push(LinkAttribute::Controller(0));
    namespace.set_link(port, || format!("remove {interface} from its bridge"))
}

impl Namespace {
    /// All links, in the kernel's order.
    pub fn links(&self) -> Result<Vec<Link>, Error> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = self.request(all, NLM_F_DUMP, || "list links".to_owned())?;
        Ok(found.into_iter().filter_map(link).collect())
    }

    /// The link of that name.
    pub fn link(&self, name: &str) -> Result<Link, Error> {
        let doing = || format!("find link {name}");
        let found = self.request(RouteNetlinkMessage::GetLink(named(name)), 0, doing)?;
        let missing = || self.error(doing(), std::io::ErrorKind::NotFound.into());
        found.into_iter().find_map(link).ok_or_else(missing)
    }

    /// Sets an interface up.
    pub fn set_up(&self, interface: &str) -> Result<(), Error> {
        self.set_flags(interface, LinkFlags::Up, "up")
    }

    /// Sets an interface down. The kernel removes its routes.
    pub fn set_down(&self, interface: &str) -> Result<(), Error> {
        self.set_flags(interface, LinkFlags::empty(), "down")
    }

    /// Deletes a link; of a veth pair, both ends.
    pub fn delete_link(&self, interface: &str) -> Result<(), Error> {
        let gone = RouteNetlinkMessage::DelLink(numbered(self.link(interface)?.index));
        self.request(gone, 0, || format!("delete link {interface}")).map(drop)
    }

    /// Waits until an interface that is up carries packets.
    ///
    /// The kernel sets interfaces up in the background, and drops packets until it has.
    pub fn wait_running(&self, interface: &str) -> Result<(), Error> {
        let doing = || format!("wait for {interface} to carry packets");
        self.wait_until(doing, || Ok(self.link(interface)?.running))
    }

    /// Adds an address to an interface. If the interface is up, the address is reachable when this
    /// returns.
    pub fn add_address(&self, interface: &str, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let new = self.address_message(interface, address, prefix)?;
        let doing = || format!("add {address}/{prefix} to {interface}");
        self.request(RouteNetlinkMessage::NewAddress(new), NEW, doing)?;
        match address {
            // The kernel activates a new IPv6 address in the background.
            IpAddr::V6(address) if self.link(interface)?.up => {
                let doing = || format!("wait for {address} on {interface}");
                self.wait_until(doing, || self.delivers_locally(interface, address))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(()),
        }
    }

    /// Deletes an address from an interface.
    pub fn delete_address(
        &self,
        interface: &str,
        address: IpAddr,
        prefix: u8,
    ) -> Result<(), Error> {
        let old = self.address_message(interface, address, prefix)?;
        let doing = || format!("delete {address}/{prefix} from {interface}");
        self.request(RouteNetlinkMessage::DelAddress(old), 0, doing).map(drop)
    }

    /// All addresses of all interfaces, sorted.
    pub fn addresses(&self) -> Result<Vec<Address>, Error> {
        let links = self.links()?;
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let found = self.request(all, NLM_F_DUMP, || "list addresses".to_owned())?;
        let mut addresses: Vec<_> =
            found.into_iter().filter_map(|message| address_of(&links, message)).collect();
        addresses.sort();
        Ok(addresses)
    }

    /// Adds a permanent neighbour entry, so that no ARP or neighbour discovery is needed.
    pub fn add_neighbour(&self, interface: &str, address: IpAddr, mac: &[u8]) -> Result<(), Error> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.link(interface)?.index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(address.into()),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let doing = || format!("add neighbour {address} on {interface}");
        self.request(RouteNetlinkMessage::NewNeighbour(message), NEW, doing).map(drop)
    }

    fn wait_until(
        &self,
        doing: impl Fn() -> String,
        done: impl Fn() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + TIMEOUT;
        while !done()? {
            if Instant::now() > deadline {
                return Err(self.error(doing(), std::io::ErrorKind::TimedOut.into()));
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn set_flags(&self, interface: &str, flags: LinkFlags, name: &str) -> Result<(), Error> {
        let mut message = numbered(self.link(interface)?.index);
        message.header.flags = flags;
        message.header.change_mask = LinkFlags::Up;
        self.set_link(message, || format!("set {interface} {name}"))
    }

    fn set_link(&self, link: LinkMessage, doing: impl FnOnce() -> String) -> Result<(), Error> {
        self.request(RouteNetlinkMessage::SetLink(link), 0, doing).map(drop)
    }

    fn address_message(
        &self,
        interface: &str,
        address: IpAddr,
        prefix: u8,
    ) -> Result<AddressMessage, Error> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.link(interface)?.index;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        Ok(message)
    }
}

/// The family of an address.
pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn numbered(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut found = Link {
        index: message.header.index,
        name: String::new(),
        mac: Vec::new(),
        up: message.header.flags.contains(LinkFlags::Up),
        running: false,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Address(mac) => found.mac = mac,
            // A loopback interface always reports "unknown".
            LinkAttribute::OperState(state) => {
                found.running = found.up && matches!(state, State::Up | State::Unknown);
            }
            _ => {}
        }
    }
    Some(found)
}

fn address_of(links: &[Link], message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let interface = links.iter().find(|l| l.index == message.header.index)?.name.clone();
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })?;
    Some(Address { interface, address, prefix: message.header.prefix_len })
}
