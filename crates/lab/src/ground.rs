//! The ground that a cluster stands on: its nodes, its Pods, and how a connection is opened. Only here do the two kernels
//! differ; controller, proxies, API server, clients and figures are the same on both.
//!
//! | | the machine's kernel | a kernel in memory ([`memory`]) |
//! |---|---|---|
//! | node | network namespace, with its proxy's rules | simulated kernel, with its proxy's rules |
//! | Pod | network namespace with servers | address with ports |
//! | connection | made, answered by a server | first packet walked through the rules of the client's node |
//! | API server | through a relay inside the network | as it is |

mod memory;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use zonewise_common::cidr::Cidr;
use zonewise_netns::traffic::{ProbeResult, Server, http_get, probe_tcp_here};
use zonewise_netns::{ClusterNetwork, Namespace, NetnsNode, NetnsPod};
use zonewise_proxy::Host;

use crate::proxies::PAGES;
use crate::view::Kernel;
use memory::{MemoryCaller, MemoryNetwork, MemoryNode, MemoryPod, MemoryServers};

/// Nodes and Pods, and the network between them.
pub(crate) enum Ground {
    Real(ClusterNetwork),
    Memory(MemoryNetwork),
}

/// A node. Copies refer to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) pods_v4: Cidr,
    pub(crate) pods_v6: Cidr,
    on: NodeOn,
}

#[derive(Clone, Debug)]
enum NodeOn {
    Real(NetnsNode),
    Memory(MemoryNode),
}

/// A Pod. Copies refer to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) zone: String,
    pub(crate) v4: Ipv4Addr,
    on: PodOn,
}

#[derive(Clone, Debug)]
enum PodOn {
    Real(NetnsPod),
    Memory(MemoryPod),
}

/// The servers of a Pod. They serve until they are dropped.
pub(crate) enum Servers {
    Real { _servers: Vec<Server> },
    Memory { _servers: MemoryServers },
}

/// A place from which a client opens connections.
pub(crate) enum Caller {
    Real(Namespace),
    Memory(MemoryCaller),
}

/// The address inside the network that every node reaches.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 254);

impl Ground {
    /// Makes an empty network, with the delay between zones, and a listener that every node reaches. In memory there is neither.
    pub(crate) fn new(
        kernel: Kernel,
        zones: &[String],
        delay: Duration,
    ) -> anyhow::Result<(Self, Option<TcpListener>)> {
        if kernel == Kernel::Memory {
            return Ok((Self::Memory(MemoryNetwork::default()), None));
        }
        let mut network = ClusterNetwork::new()?;
        if !delay.is_zero() {
            for zone in zones {
                network.delay_zone(zone, delay)?;
            }
        }
        let listener = network.fabric().enter(|| TcpListener::bind((ROUTER, 0)));
        let listener = listener.context("cannot listen inside the fabric")?;
        Ok((Self::Real(network), Some(listener)))
    }

    /// The network namespace from which all nodes are reached; `None` in memory.
    pub(crate) fn router(&self) -> Option<Namespace> {
        match self {
            Self::Real(network) => Some(network.fabric().clone()),
            Self::Memory(_) => None,
        }
    }

    pub(crate) fn add_node(&mut self, name: &str, zone: &str) -> anyhow::Result<Node> {
        match self {
            Self::Real(network) => Ok(network.add_node(name, zone)?.into()),
            Self::Memory(network) => network.add_node(name, zone),
        }
    }

    /// Disconnects a node: packets from it and to it are lost.
    pub(crate) fn disconnect(&mut self, node: &Node) -> anyhow::Result<()> {
        match (self, &node.on) {
            (Self::Real(network), NodeOn::Real(node)) => network.disconnect(node)?,
            (Self::Memory(network), _) => network.connect(&node.name, false),
            (Self::Real(_), NodeOn::Memory(_)) => {}
        }
        Ok(())
    }

    /// Connects a disconnected node again.
    pub(crate) fn reconnect(&mut self, node: &Node) -> anyhow::Result<()> {
        match (self, &node.on) {
            (Self::Real(network), NodeOn::Real(node)) => network.reconnect(node)?,
            (Self::Memory(network), _) => network.connect(&node.name, true),
            (Self::Real(_), NodeOn::Memory(_)) => {}
        }
        Ok(())
    }

    pub(crate) fn add_pod(&mut self, node: &Node, name: &str) -> anyhow::Result<Pod> {
        match (self, &node.on) {
            (Self::Real(network), NodeOn::Real(node)) => Ok(network.add_pod(node, name)?.into()),
            (Self::Memory(network), NodeOn::Memory(on)) => network.add_pod(node, on, name),
            _ => anyhow::bail!("node {} belongs to another lab", node.name),
        }
    }

    pub(crate) fn remove_pod(&mut self, pod: &Pod) -> anyhow::Result<()> {
        match (self, &pod.on) {
            (Self::Real(network), PodOn::Real(pod)) => network.remove_pod(pod)?,
            (Self::Memory(network), PodOn::Memory(on)) => network.remove_pod(pod, on),
            _ => {}
        }
        Ok(())
    }

    /// The Pod of this name.
    pub(crate) fn pod(&self, name: &str) -> Option<Pod> {
        match self {
            Self::Real(network) => {
                network.pods().iter().find(|pod| pod.name == name).cloned().map(Into::into)
            }
            Self::Memory(network) => network.pod(name),
        }
    }
}

impl Node {
    /// The network namespace that its programs run in; `None` in memory.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        match &self.on {
            NodeOn::Real(node) => Some(node.namespace.clone()),
            NodeOn::Memory(_) => None,
        }
    }

    /// What Pods run in, and what the node is, for its Node object.
    pub(crate) fn runtime(&self) -> (&'static str, &'static str) {
        match &self.on {
            NodeOn::Real(_) => ("netns://1", "network namespace"),
            NodeOn::Memory(_) => ("memory://1", "kernel in memory (simulated)"),
        }
    }

    /// The machine of a proxy that is about to start on it.
    pub(crate) fn start_host(&self) -> Host {
        match &self.on {
            NodeOn::Real(_) => Host::default(),
            NodeOn::Memory(node) => node.start_host(),
        }
    }

    /// The body of a page of its proxy, such as `/routes`.
    pub(crate) fn page(&self, path: &str) -> Option<String> {
        match &self.on {
            NodeOn::Real(node) => http_get(&node.namespace, PAGES, path),
            NodeOn::Memory(node) => node.page(path),
        }
    }
}

impl From<NetnsNode> for Node {
    fn from(node: NetnsNode) -> Self {
        Self {
            name: node.name.clone(),
            zone: node.zone.clone(),
            v4: node.v4,
            v6: node.v6,
            pods_v4: node.pods_v4,
            pods_v6: node.pods_v6,
            on: NodeOn::Real(node),
        }
    }
}

impl Pod {
    /// Serves on these ports: every connection is answered with the Pod's name.
    pub(crate) fn serve(&self, ports: &BTreeSet<u16>) -> anyhow::Result<Servers> {
        match &self.on {
            PodOn::Real(pod) => {
                let serve = |port: &u16| {
                    Server::tcp(&pod.namespace, &pod.name, SocketAddr::new(pod.v4.into(), *port))
                };
                Ok(Servers::Real { _servers: ports.iter().map(serve).collect::<Result<_, _>>()? })
            }
            PodOn::Memory(pod) => Ok(Servers::Memory { _servers: pod.serve(self, ports) }),
        }
    }

    /// A client in it.
    pub(crate) fn caller(&self) -> Caller {
        match &self.on {
            PodOn::Real(pod) => Caller::Real(pod.namespace.clone()),
            PodOn::Memory(pod) => Caller::Memory(pod.caller(self)),
        }
    }

    /// Its network namespace as a path; `None` in memory.
    pub(crate) fn namespace_path(&self) -> Option<PathBuf> {
        match &self.on {
            PodOn::Real(pod) => Some(pod.namespace.path()),
            PodOn::Memory(_) => None,
        }
    }
}

impl From<NetnsPod> for Pod {
    fn from(pod: NetnsPod) -> Self {
        Self {
            name: pod.name.clone(),
            node: pod.node.clone(),
            zone: pod.zone.clone(),
            v4: pod.v4,
            on: PodOn::Real(pod),
        }
    }
}

impl Caller {
    /// Moves the calling thread to where connections start.
    pub(crate) fn join(&self) -> Result<(), zonewise_netns::Error> {
        match self {
            Self::Real(namespace) => namespace.join(),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Opens a connection, from a thread that has joined, and waits at most so long for the answer.
    pub(crate) fn call(&self, to: SocketAddr, timeout: Duration) -> ProbeResult {
        match self {
            Self::Real(_) => probe_tcp_here(to, timeout),
            Self::Memory(caller) => caller.call(to, timeout),
        }
    }
}
