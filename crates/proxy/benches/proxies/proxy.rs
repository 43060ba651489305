//! A network with one node, its pods, and the program under test on it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fmt, fs};

use anyhow::{Context, Result, ensure};
use zonewise_netns::traffic::Server;
use zonewise_netns::{ClusterNetwork, Namespace, NetnsNode, NetnsPod};
use zonewise_testbed::{Cluster, Gate, Process, User};

use crate::cluster::PORT;
use crate::probe::{Drain, Watcher};

pub(crate) const NODE: &str = "n1";
pub(crate) const ZONE: &str = "zone-a";
/// Pods of a `ClusterNetwork` get their addresses in the order in which they come.
pub(crate) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 2);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 3);
pub(crate) const PATH: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 4);

/// Settings of the whole machine, which a namespace cannot have. All else is left at the defaults.
const FLAGS: [&str; 4] = [
    "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
];
const REFERENCE: [&str; 1] = ["--proxy-mode=nftables"];
const EAGER: [&str; 2] = ["--proxy-mode=nftables", "--iptables-min-sync-period=0s"];
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10249);
/// The unit of CPU time in /proc; a constant of Linux' interface to programs.
const TICKS: f64 = 100.0;
/// A program is quiet when it used less than this share of one CPU for so long.
const IDLE: f64 = 0.03;
const CALM: Duration = Duration::from_secs(3);
/// A program that never rests is measured as it is.
const RESTLESS: Duration = Duration::from_secs(90);

/// A program under test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// kube-proxy in nftables mode, with its defaults.
    Reference,
    /// The same without its pause between two syncs.
    Eager,
    /// `zonewise proxy`, with its defaults.
    Ours,
    /// The same with a counter for every Service port.
    Counting,
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Reference => "kube-proxy",
            Self::Eager => "kube-proxy without a pause between syncs",
            Self::Ours => "ours",
            Self::Counting => "ours with --count services",
        })
    }
}

/// CPU time in seconds, children that have ended included: kube-proxy lets `nft` do a part of its work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) kernel: f64,
}

impl Cpu {
    pub(crate) fn sum(self) -> f64 {
        self.user + self.kernel
    }
}

/// A network with one node and the program under test on it. Dropping it ends the program and removes the network.
pub(crate) struct ProxyUnderTest {
    process: Option<Process>,
    gate: Gate,
    node: NetnsNode,
    pub(crate) caller: NetnsPod,
    _servers: [Server; 2],
    _drain: Drain,
    _network: ClusterNetwork,
}

impl ProxyUnderTest {
    /// The network with its pods and servers, before the program is started.
    pub(crate) fn new(cluster: &Cluster) -> Result<Self> {
        let mut network = ClusterNetwork::new()?;
        let node = network.add_node(NODE, ZONE)?;
        let listener = node.namespace.enter(|| TcpListener::bind("127.0.0.1:0"))?;
        let gate = Gate::open_at(cluster, listener)?;
        let left = server(&mut network, &node, "left", LEFT)?;
        let right = server(&mut network, &node, "right", RIGHT)?;
        let path = network.add_pod(&node, "path")?;
        ensure!(path.v4 == PATH, "the pod path has the address {}", path.v4);
        let drain = Drain::open(&path.namespace, SocketAddr::new(PATH.into(), PORT))?;
        let caller = network.add_pod(&node, "caller")?;
        // Every connection has a port of its own for as long as possible.
        caller.namespace.write_sysctl("net/ipv4/ip_local_port_range", "1024 65535")?;
        let servers = [left, right];
        Ok(Self {
            process: None,
            gate,
            node,
            caller,
            _servers: servers,
            _drain: drain,
            _network: network,
        })
    }

    /// Starts the program; returns when that was.
    pub(crate) fn start(&mut self, subject: Subject, cluster: &Cluster) -> Result<Instant> {
        let kubeconfig = cluster.kubeconfig_through(User::Admin, &self.gate)?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let name = format!("--hostname-override={NODE}");
        let (program, own): (PathBuf, &[&str]) = match subject {
            Subject::Reference => (cluster.program("kube-proxy"), &REFERENCE),
            Subject::Eager => (cluster.program("kube-proxy"), &EAGER),
            Subject::Ours => (binary()?, &["proxy"]),
            Subject::Counting => (binary()?, &["proxy", "--count=services"]),
        };
        let args = [own, &[&kubeconfig, &name], &FLAGS].concat();
        let log = cluster.log("proxy");
        let begin = Instant::now();
        let spawn = || Process::spawn(&program, &args, &[], &log);
        self.process = Some(self.node.namespace.enter(spawn)?);
        Ok(begin)
    }

    /// Ends the program. Its rules stay.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        if let Some(process) = self.process.take() {
            process.stop().await?;
        }
        Ok(())
    }

    /// Begins to wait until `wanted` answers at `to`.
    pub(crate) fn watch(&self, to: SocketAddr, wanted: &'static str, limit: Duration) -> Watcher {
        Watcher::start(self.caller.namespace.clone(), to, wanted, limit)
    }

    /// What was waited for; fails when the program ends before.
    pub(crate) async fn seen(&mut self, mut watcher: Watcher) -> Result<Option<Instant>> {
        loop {
            if let Some(seen) = watcher.wait(Duration::from_secs(1)).await? {
                return Ok(seen);
            }
            self.process()?.check()?;
        }
    }

    /// Waits until the program rests, or for as long as that may take.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < RESTLESS {
            let before = self.cpu()?.sum();
            tokio::time::sleep(CALM).await;
            self.process()?.check()?;
            if self.cpu()?.sum() - before < IDLE * CALM.as_secs_f64() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let stat = self.proc("stat")?;
        cpu(&stat).with_context(|| format!("cannot read CPU time from {stat:?}"))
    }

    /// Memory in MiB: `VmRSS` is what it holds, `VmHWM` the most that it ever held.
    pub(crate) fn memory(&self, field: &str) -> Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: f64 = kilobytes.with_context(|| format!("no {field}"))?.parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// One of the program's own metrics, for IPv4; none if it has none.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let series = format!("{name}{{ip_family=\"IPv4\"}} ");
        page(&self.node.namespace)?
            .lines()
            .find_map(|line| line.strip_prefix(&series)?.parse().ok())
    }

    /// The end of what the program wrote.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(Process::log_tail).unwrap_or_default()
    }

    fn proc(&self, file: &str) -> Result<String> {
        let pid = self.process.as_ref().context("nothing runs")?.pid();
        fs::read_to_string(format!("/proc/{pid}/{file}")).context("the program has ended")
    }

    fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("nothing runs")
    }
}

/// Our program.
pub(crate) fn binary() -> Result<PathBuf> {
    let release = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/zonewise").into();
    let program = env::var_os("ZONEWISE_BINARY").map_or_else(release, PathBuf::from);
    ensure!(
        program.is_file(),
        "no program at {}: build it with cargo build --release --package zonewise, or set ZONEWISE_BINARY",
        program.display()
    );
    // A child of another directory starts it.
    Ok(program.canonicalize()?)
}

fn server(
    network: &mut ClusterNetwork,
    node: &NetnsNode,
    name: &str,
    address: Ipv4Addr,
) -> Result<Server> {
    let pod = network.add_pod(node, name)?;
    ensure!(pod.v4 == address, "the pod {name} has the address {}", pod.v4);
    Ok(Server::tcp(&pod.namespace, name, SocketAddr::new(address.into(), PORT))?)
}

/// The page of metrics. Version 1.0 of HTTP, so that it comes in one piece.
fn page(namespace: &Namespace) -> Option<String> {
    namespace.enter(|| {
        let mut stream = TcpStream::connect_timeout(&METRICS, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    })
}

/// The program's name, in parentheses, may hold anything. Then: 11 others, user, kernel, and both of the children.
fn cpu(stat: &str) -> Option<Cpu> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<f64>().ok());
    let times: Vec<f64> = times.collect::<Option<_>>()?;
    let [user, kernel, child_user, child_kernel] = times[..] else { return None };
    Some(Cpu { user: (user + child_user) / TICKS, kernel: (kernel + child_kernel) / TICKS })
}
