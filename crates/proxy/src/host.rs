//! The machine that the proxy runs on: its kernel's netlink and its addresses.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use zonewise_nft::Network;

use crate::addresses;
use crate::setup::Machine;

/// The machine that the proxy runs on. By default it is this one, in the network namespace of the thread that
/// asks; a simulation has others.
#[derive(Clone, Debug, Default)]
pub struct Host {
    network: Network,
    /// The addresses of the interfaces of a simulated machine.
    simulated: Option<Arc<[IpAddr]>>,
}

impl Host {
    /// A machine with this kernel and these addresses.
    pub fn simulated(network: Network, addresses: &[IpAddr]) -> Self {
        Self { network, simulated: Some(addresses.into()) }
    }

    /// Where netlink sockets lead.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Whether it is not a real machine: no file of this one says anything about it.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }

    /// The addresses that its interfaces have now, sorted.
    pub(crate) fn interface_addresses(&self) -> io::Result<Vec<IpAddr>> {
        match &self.simulated {
            None => addresses::interface_addresses(),
            Some(addresses) => Ok(addresses.to_vec()),
        }
    }

    /// Whether its kernel has IPv6.
    pub(crate) fn has_ipv6(&self) -> bool {
        match &self.simulated {
            None => Machine::default().has_ipv6(),
            Some(addresses) => addresses.iter().any(IpAddr::is_ipv6),
        }
    }
}

/// Runs work that blocks, such as netlink. The runtime moves other tasks off this thread; where it has no other
/// thread, they wait.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}
