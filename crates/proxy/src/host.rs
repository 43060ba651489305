//! The machine that the proxy runs on: its kernel's netlink and its addresses.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Handle, RuntimeFlavor};
use zonewise_nft::Network;
use zonewise_telemetry::server::{PageHandler, PageRequest};

use crate::addresses;
use crate::health::{Health, MetricsPages, Moment};
use crate::setup::Machine;

/// The machine that the proxy runs on. By default it is this one, in the network namespace of the thread that
/// asks; a simulation has others.
#[derive(Clone, Debug, Default)]
pub struct Host {
    network: Network,
    simulated: Option<Arc<SimulatedMachine>>,
}

/// What a simulated machine has in place of interfaces and ports.
#[derive(Debug)]
struct SimulatedMachine {
    /// The addresses of its interfaces.
    addresses: Box<[IpAddr]>,
    /// What would answer at `/healthz`; empty until the proxy has begun.
    health: OnceLock<Health>,
    /// The pages of the server of metrics; empty until the proxy has begun, and without such a server.
    pages: OnceLock<MetricsPages>,
}

impl Host {
    /// A machine with this kernel and these addresses.
    pub fn simulated(network: Network, addresses: &[IpAddr]) -> Self {
        let machine = SimulatedMachine {
            addresses: addresses.into(),
            health: OnceLock::new(),
            pages: OnceLock::new(),
        };
        Self { network, simulated: Some(Arc::new(machine)) }
    }

    /// Returns the body of a page of a simulated machine's metrics server, such as `/routes`. `None` while nothing listens there,
    /// and for a page that does not exist.
    pub fn page(&self, path: &str) -> Option<String> {
        let pages = self.simulated.as_ref()?.pages.get()?;
        let page = pages.handle(PageRequest { method: "GET", path, query: "" });
        (page.status == 200).then_some(page.body)
    }

    /// Keeps the pages of metrics if the machine is simulated; no port is opened for them then. Returns them otherwise.
    pub(crate) fn keep_pages(&self, pages: MetricsPages) -> Option<MetricsPages> {
        match &self.simulated {
            Some(machine) => {
                machine.pages.get_or_init(|| pages);
                None
            }
            None => Some(pages),
        }
    }

    /// The status code that `/healthz` of a simulated machine has now; `None` while nothing listens there.
    pub fn healthz(&self) -> Option<u16> {
        let health = self.simulated.as_ref()?.health.get()?;
        Some(health.status(Moment::now()).healthz().0)
    }

    /// This health answers at `/healthz` from now on.
    pub(crate) fn with_health(&self, health: Health) -> Health {
        if let Some(machine) = &self.simulated {
            machine.health.get_or_init(|| health.clone());
        }
        health
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
            Some(machine) => Ok(machine.addresses.to_vec()),
        }
    }

    /// Whether its kernel has IPv6.
    pub(crate) fn has_ipv6(&self) -> bool {
        match &self.simulated {
            None => Machine::default().has_ipv6(),
            Some(machine) => machine.addresses.iter().any(IpAddr::is_ipv6),
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
