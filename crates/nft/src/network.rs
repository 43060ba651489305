//! Where netlink sockets lead.

use std::io;

use crate::conntrack::{Conntrack, EndedFlows, EndedUnestablished};
use crate::link::Link;
use crate::simulated::Process;
use crate::socket::Socket;

/// The kernel that sockets talk to: by default that of this machine, in the network namespace of the thread
/// that opens the socket.
#[derive(Clone, Debug, Default)]
pub struct Network(Option<Process>);

impl Network {
    /// A kernel in memory, as one of its processes sees it.
    #[must_use]
    pub const fn simulated(process: Process) -> Self {
        Self(Some(process))
    }

    /// Opens a socket for nftables.
    ///
    /// # Errors
    /// The kernel has no netfilter, or too many files are open.
    pub fn socket(&self) -> io::Result<Socket> {
        self.link().map(Socket::over)
    }

    /// Opens a socket for connection tracking.
    ///
    /// # Errors
    /// As [`Network::socket`].
    pub fn conntrack(&self) -> io::Result<Conntrack> {
        self.link().map(Conntrack::over)
    }

    /// Opens a socket on which the kernel reports flows that end, of those whose destination was translated, with a buffer of so
    /// many bytes.
    ///
    /// # Errors
    /// As [`Network::socket`], or the process lacks `CAP_NET_ADMIN`.
    pub fn ended_flows(&self, buffer: usize) -> io::Result<EndedFlows> {
        EndedFlows::over(self.link()?, buffer)
    }

    /// The same for TCP flows that were never established.
    ///
    /// # Errors
    /// As [`Network::ended_flows`].
    pub fn ended_unestablished(&self, buffer: usize) -> io::Result<EndedUnestablished> {
        EndedUnestablished::over(self.link()?, buffer)
    }

    fn link(&self) -> io::Result<Link> {
        match &self.0 {
            None => Link::open(),
            Some(process) => process.connect().map(Link::simulated),
        }
    }
}
