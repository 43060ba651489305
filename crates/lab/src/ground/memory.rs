//! A network in memory. Rules are those that the proxies write, each into the simulated kernel of its node; of a connection, its
//! first packet is walked through them.
//!
//! ```text
//!  client ─ packet ─► rules of its node (random numbers drawn) ─► endpoint ─► is its node connected, does its Pod serve?
//! ```
//!
//! Nothing takes time but what is lost: a packet without an answer is sent again after a second, to where connection tracking
//! has sent it first, as TCP does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use zonewise_netns::network::{Numbers, node_addresses, node_number, pod_addresses, pod_ranges};
use zonewise_netns::traffic::ProbeResult;
use zonewise_nft::Network;
use zonewise_nft::simulated::{Destination, Packet, SimulatedKernel};
use zonewise_proxy::Host;

use super::{Node, NodeOn, Pod, PodOn};

/// The protocol number of TCP.
const TCP: u8 = 6;
/// Time until a packet without an answer is sent again: the kernel's `TCP_TIMEOUT_INIT`.
const RESEND: Duration = Duration::from_secs(1);

/// The nodes, and who answers behind them.
#[derive(Default)]
pub(crate) struct MemoryNetwork {
    nodes: Vec<String>,
    pods: Vec<Pod>,
    reach: Arc<Mutex<Reach>>,
}

/// What a packet can reach.
#[derive(Debug, Default)]
struct Reach {
    nodes: BTreeMap<u8, Connection>,
    /// Pods that serve.
    serving: BTreeMap<Ipv4Addr, Serving>,
}

#[derive(Debug)]
struct Connection {
    name: String,
    connected: bool,
    pods: Numbers,
}

#[derive(Debug)]
struct Serving {
    name: String,
    ports: BTreeSet<u16>,
}

/// A node: its kernel, and the machine of the proxy that was started last.
#[derive(Clone, Debug)]
pub(super) struct MemoryNode {
    number: u8,
    kernel: SimulatedKernel,
    addresses: Arc<BTreeSet<IpAddr>>,
    host: Arc<Mutex<Option<Host>>>,
}

/// A Pod: the node it is on, and the network.
#[derive(Clone, Debug)]
pub(super) struct MemoryPod {
    node: MemoryNode,
    number: u8,
    reach: Arc<Mutex<Reach>>,
}

impl MemoryNetwork {
    pub(super) fn add_node(&mut self, name: &str, zone: &str) -> anyhow::Result<Node> {
        let number = node_number(self.nodes.len())
            .context("the network has no address for one more node")?;
        let (v4, v6) = node_addresses(number);
        let (pods_v4, pods_v6) = pod_ranges(number);
        let local: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses = Arc::new(local.into_iter().chain([v4.into(), v6.into()]).collect());
        let kernel = SimulatedKernel::new(true);
        let on = MemoryNode { number, kernel, addresses, host: Arc::default() };
        let connection =
            Connection { name: name.to_owned(), connected: true, pods: Numbers::of_pods() };
        self.reach.lock().nodes.insert(number, connection);
        self.nodes.push(name.to_owned());
        let (name, zone) = (name.to_owned(), zone.to_owned());
        Ok(Node { name, zone, v4, v6, pods_v4, pods_v6, on: NodeOn::Memory(on) })
    }

    /// Connects a node, or disconnects it.
    pub(super) fn connect(&self, node: &str, connected: bool) {
        let mut reach = self.reach.lock();
        if let Some(found) = reach.nodes.values_mut().find(|found| found.name == node) {
            found.connected = connected;
        }
    }

    pub(super) fn add_pod(
        &mut self,
        node: &Node,
        on: &MemoryNode,
        name: &str,
    ) -> anyhow::Result<Pod> {
        let mut reach = self.reach.lock();
        let number = reach.nodes.get_mut(&on.number).and_then(|node| node.pods.next());
        let number = number
            .with_context(|| format!("node {} has no address for one more Pod", node.name))?;
        drop(reach);
        let pod = Pod {
            name: name.to_owned(),
            node: node.name.clone(),
            zone: node.zone.clone(),
            v4: pod_addresses(on.number, number).0,
            on: PodOn::Memory(MemoryPod {
                node: on.clone(),
                number,
                reach: Arc::clone(&self.reach),
            }),
        };
        self.pods.push(pod.clone());
        Ok(pod)
    }

    pub(super) fn remove_pod(&mut self, pod: &Pod, on: &MemoryPod) {
        self.pods.retain(|other| other.v4 != pod.v4);
        if let Some(node) = self.reach.lock().nodes.get_mut(&on.node.number) {
            node.pods.free(on.number);
        }
    }

    pub(super) fn pod(&self, name: &str) -> Option<Pod> {
        self.pods.iter().find(|pod| pod.name == name).cloned()
    }
}

impl MemoryNode {
    pub(super) fn start_host(&self) -> Host {
        let addresses: Vec<IpAddr> = self.addresses.iter().copied().collect();
        let host = Host::simulated(Network::simulated(self.kernel.process()), &addresses);
        *self.host.lock() = Some(host.clone());
        host
    }

    pub(super) fn page(&self, path: &str) -> Option<String> {
        let host = self.host.lock().clone();
        host?.page(path)
    }
}

impl MemoryPod {
    pub(super) fn serve(&self, pod: &Pod, ports: &BTreeSet<u16>) -> MemoryServers {
        let serving = Serving { name: pod.name.clone(), ports: ports.clone() };
        self.reach.lock().serving.insert(pod.v4, serving);
        MemoryServers { address: pod.v4, reach: Arc::clone(&self.reach) }
    }

    pub(super) fn caller(&self, pod: &Pod) -> MemoryCaller {
        MemoryCaller { address: pod.v4, node: self.node.clone(), reach: Arc::clone(&self.reach) }
    }
}

/// The servers of a Pod. They serve until this is dropped.
pub(crate) struct MemoryServers {
    address: Ipv4Addr,
    reach: Arc<Mutex<Reach>>,
}

impl Drop for MemoryServers {
    fn drop(&mut self) {
        self.reach.lock().serving.remove(&self.address);
    }
}

/// A client in a Pod.
pub(crate) struct MemoryCaller {
    address: Ipv4Addr,
    node: MemoryNode,
    reach: Arc<Mutex<Reach>>,
}

impl MemoryCaller {
    pub(super) fn call(&self, to: SocketAddr, timeout: Duration) -> ProbeResult {
        let packet = Packet {
            source: self.address.into(),
            destination: to.ip(),
            protocol: TCP,
            port: to.port(),
            local: BTreeSet::clone(&self.node.addresses),
        };
        let draw = |modulus| fastrand::u32(0..modulus);
        let to = match self.node.kernel.look(|rules| rules.destination(&packet, draw)) {
            Destination::Endpoint(endpoint) => Some(endpoint),
            Destination::Unchanged => Some(to),
            Destination::Dropped => None,
            Destination::Rejected => return ProbeResult::Refused,
            Destination::Unknown(expression) => {
                let text = format!("the kernel in memory does not know {expression}");
                return ProbeResult::Other(ErrorKind::Unsupported, text);
            }
        };
        let mut left = timeout;
        loop {
            if let Some(answer) = to.and_then(|to| self.answer(to)) {
                return answer;
            }
            if left.is_zero() {
                return ProbeResult::Silent;
            }
            std::thread::sleep(left.min(RESEND));
            left = left.saturating_sub(RESEND);
        }
    }

    /// The answer to a packet; `None` if it is lost.
    fn answer(&self, to: SocketAddr) -> Option<ProbeResult> {
        let IpAddr::V4(address) = to.ip() else { return None };
        let [_, _, number, _] = address.octets();
        let reach = self.reach.lock();
        // The network between the nodes drops what is for none of them.
        let node = reach.nodes.get(&number).filter(|_| pod_ranges(number).0.contains(to.ip()))?;
        let here = reach.nodes.get(&self.node.number).is_some_and(|here| here.connected);
        if number != self.node.number && !(node.connected && here) {
            return None;
        }
        match reach.serving.get(&address) {
            Some(serving) if serving.ports.contains(&to.port()) => {
                Some(ProbeResult::answered_by(&serving.name, self.address))
            }
            // Its node knows no such Pod, or the Pod does not listen there.
            _ => Some(ProbeResult::Refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ground, Kernel};
    use super::*;

    const SOON: Duration = Duration::ZERO;

    /// What becomes of packets to Pods, without any rule.
    #[test]
    fn pods_answer_as_long_as_they_serve_and_their_nodes_are_connected() {
        let (mut ground, listener) = Ground::new(Kernel::Memory, &[], Duration::ZERO).unwrap();
        assert!(listener.is_none());
        let (one, two) =
            (ground.add_node("one", "a").unwrap(), ground.add_node("two", "b").unwrap());
        let (client, web) =
            (ground.add_pod(&one, "client").unwrap(), ground.add_pod(&two, "web").unwrap());
        let caller = client.caller();
        let call = |port: u16| caller.call((web.v4, port).into(), SOON);
        let answered = ProbeResult::answered_by("web", client.v4);
        assert_eq!(call(80), ProbeResult::Refused, "nothing serves");
        let servers = web.serve(&BTreeSet::from([80])).unwrap();
        assert_eq!((call(80), call(81)), (answered.clone(), ProbeResult::Refused));
        for node in [&one, &two] {
            ground.disconnect(node).unwrap();
            assert_eq!(call(80), ProbeResult::Silent, "{} is away", node.name);
            ground.reconnect(node).unwrap();
            assert_eq!(call(80), answered);
        }
        drop(servers);
        assert_eq!(call(80), ProbeResult::Refused, "it serves no more");
        let nowhere = caller.call(([203, 0, 113, 1], 80).into(), SOON);
        assert_eq!(nowhere, ProbeResult::Silent);
    }

    /// A lost packet is sent again, so a node that comes back in time costs no connection.
    #[test]
    fn a_lost_packet_is_sent_again() {
        let (mut ground, _) = Ground::new(Kernel::Memory, &[], Duration::ZERO).unwrap();
        let (one, two) =
            (ground.add_node("one", "a").unwrap(), ground.add_node("two", "b").unwrap());
        let (client, web) =
            (ground.add_pod(&one, "client").unwrap(), ground.add_pod(&two, "web").unwrap());
        let _servers = web.serve(&BTreeSet::from([80])).unwrap();
        ground.disconnect(&two).unwrap();
        let answer = std::thread::scope(|scope| {
            let caller = client.caller();
            let to = (web.v4, 80).into();
            let called = scope.spawn(move || caller.call(to, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(50));
            ground.reconnect(&two).unwrap();
            called.join().unwrap()
        });
        assert_eq!(answer, ProbeResult::answered_by("web", client.v4));
    }

    #[test]
    fn an_address_is_given_out_again_only_after_all_others() {
        let (mut ground, _) = Ground::new(Kernel::Memory, &[], Duration::ZERO).unwrap();
        let node = ground.add_node("one", "a").unwrap();
        let first = ground.add_pod(&node, "first").unwrap();
        assert_eq!(ground.pod("first").map(|pod| pod.v4), Some(first.v4));
        ground.remove_pod(&first).unwrap();
        assert!(ground.pod("first").is_none());
        assert_ne!(ground.add_pod(&node, "second").unwrap().v4, first.v4);
    }
}
