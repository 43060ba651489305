//! What counting costs a connection: nothing, zones, Services (with connections that fail, and without), Services and
//! bytes, each in a network of its own.
//!
//! ```text
//!  caller ── ClusterIP ── rules of one way of counting ─► server     a part of each in turns, never in one order
//! ```
//!
//! A part makes connections one after the other, and ends their flows, which is when bytes are counted. The CPU time of
//! the process, which has both ends of the connections and reads the counters, is divided by the connections. Parts are
//! short, so that a machine that gets slower for a while does so for all ways alike.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use zonewise_common::cidr::Cidr;
use zonewise_netns::network::{ClusterNetwork, NetnsPod};
use zonewise_nft::conntrack::Conntrack;
use zonewise_nft::{Family, Network, Socket};
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{
    FailedConnections, Index, Kernel, LocalTraffic, Meter, NodeSettings, Options, Published,
    WatchId, by_service, programmed_service,
};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader};
use zonewise_testbed::objects;

use crate::Row;
use crate::node::cluster_ip;

/// So many rounds; the medians are shown.
const ROUNDS: usize = 9;
/// Connections are made for so long, and then their flows end.
const PART: Duration = Duration::from_millis(250);
const PARTS: usize = 12;
/// The first round finds neighbours and warms caches.
const WARM: usize = 1;

/// The name, what connections are counted by, whether those that fail are, and whether bytes are.
const WAYS: [(&str, CountBy, bool, bool); 5] = [
    ("none", CountBy::None, false, false),
    ("zones", CountBy::Zones, false, false),
    ("services, but not what fails", CountBy::Services, false, false),
    ("services", CountBy::Services, true, false),
    ("services and bytes", CountBy::Services, true, true),
];

/// One way of counting.
struct Lane {
    network: ClusterNetwork,
    caller: NetnsPod,
    _kernel: Kernel,
    published: Arc<Published>,
    failed: Option<FailedConnections>,
    meter: Option<Meter>,
    /// What this round has taken so far.
    taken: Taken,
    /// Microseconds of CPU and of time for a connection, by round.
    figures: Vec<[f64; 2]>,
}

/// What a number of connections has taken.
#[derive(Default)]
struct Taken {
    connections: u32,
    connecting: Duration,
    cpu: Duration,
}

pub(crate) fn measure() -> Result<Vec<Row>> {
    let lanes = WAYS.iter().map(|(_, count, failed, bytes)| Lane::new(*count, *failed, *bytes));
    let mut lanes: Vec<Lane> = lanes.collect::<Result<_>>()?;
    for round in 0..WARM + ROUNDS {
        for part in 0..PARTS {
            for place in 0..lanes.len() {
                let number = (part + place) % lanes.len();
                lanes[number].part()?;
            }
        }
        for lane in &mut lanes {
            let figures = lane.end_round();
            if round >= WARM {
                lane.figures.push(figures);
            }
        }
    }
    let off = lanes[0].figures.clone();
    let rows = lanes.iter().zip(WAYS).map(|(lane, (name, ..))| {
        let ratios = lane.figures.iter().zip(&off).map(|(own, off)| own[0] / off[0]);
        let [cpu, time] = [0, 1].map(|at| median(lane.figures.iter().map(|figures| figures[at])));
        let (low, high) = spread(lane.figures.iter().map(|figures| figures[0]));
        let ratio = median(ratios);
        Row::new(
            format!("a connection, counting {name}"),
            format!("{cpu:.1} µs of CPU ({low:.1} to {high:.1}), {ratio:.3} of none; {time:.1} µs"),
        )
    });
    Ok(rows.collect())
}

impl Lane {
    fn new(count: CountBy, failed: bool, bytes: bool) -> Result<Self> {
        let mut network = ClusterNetwork::new()?;
        let node = network.add_node("n1", "a")?;
        let server = network.add_pod(&node, "server")?;
        let caller = network.add_pod(&node, "caller")?;
        let reader = Arc::new(ObjectReader::new(NodeLocation::new("n1", Some("a"), None)));
        let published = Arc::new(Published::default());
        let index = objects_of(&reader, &server)?;
        let cidrs = vec![Cidr::parse("10.244.0.0/16").context("a range")?];
        let options = Options { count, local: LocalTraffic::Cidrs(cidrs), ..Options::default() };
        let settings = NodeSettings { count, ..NodeSettings::default() };
        let kernel = node.namespace.enter(|| -> Result<Kernel> {
            let names = zone_names(&reader);
            let network = Network::default();
            let kernel = Kernel::open(&network, options, vec![Family::Ip], settings, names)?;
            let mut kernel = kernel.publishing(Arc::clone(&published));
            let of = |key: &zonewise_common::name::Key| {
                let gates = FeatureGates::default();
                (key.clone(), programmed_service(&index, &reader, &gates, key))
            };
            kernel.start(index.services().keys().map(of).collect(), Vec::new())?;
            Ok(kernel)
        })?;
        let accounting = if bytes { "1" } else { "0" };
        node.namespace.write_sysctl("net/netfilter/nf_conntrack_acct", accounting)?;
        let (of, names) = (|| Arc::clone(&published), || zone_names(&reader));
        let failed = failed.then(|| FailedConnections::new(Network::default(), of(), names()));
        let meter = bytes.then(|| Meter::new(Network::default(), of(), names()));
        serve(&server)?;
        let (taken, figures) = (Taken::default(), Vec::new());
        let mut lane =
            Self { network, caller, _kernel: kernel, published, failed, meter, taken, figures };
        lane.read()?;
        Ok(lane)
    }

    /// As the proxy reads, every quarter of a second.
    fn read(&mut self) -> Result<()> {
        let node = &self.network.nodes()[0];
        let Self { failed, meter, published, .. } = self;
        node.namespace.enter(|| -> Result<()> {
            if let Some(failed) = failed {
                failed.read();
            }
            if let Some(meter) = meter {
                meter.read();
            }
            Ok(by_service(&mut Socket::open()?, published)?)
        })
    }

    fn part(&mut self) -> Result<()> {
        let before = busy();
        let (connections, connecting) =
            self.caller.namespace.enter(|| connect(SocketAddr::new(cluster_ip(1), 80)))?;
        self.network.nodes()[0].namespace.enter(|| Conntrack::open()?.flush(Family::Ip))?;
        self.read()?;
        self.taken.cpu += busy() - before;
        self.taken.connections += connections;
        self.taken.connecting += connecting;
        Ok(())
    }

    fn end_round(&mut self) -> [f64; 2] {
        let Taken { connections, connecting, cpu } = std::mem::take(&mut self.taken);
        [cpu, connecting].map(|time| time.as_secs_f64() * 1e6 / f64::from(connections))
    }
}

type ZoneNames = Box<dyn Fn(zonewise_routing::ZoneId) -> String + Send + Sync>;

fn zone_names(reader: &Arc<ObjectReader>) -> ZoneNames {
    let reader = Arc::clone(reader);
    Box::new(move |zone| reader.zone_name(zone).map_or_else(String::new, |name| name.to_string()))
}

/// A Service whose endpoint is the server.
fn objects_of(reader: &ObjectReader, server: &NetnsPod) -> Result<Index> {
    let mut index = Index::default();
    let address = cluster_ip(1);
    let service = json!({
        "metadata": {"namespace": "bench", "name": "s1", "resourceVersion": "1"},
        "spec": {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"],
                 "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    });
    let endpoint = objects::endpoint(server.address(false), "n1", "a");
    let mut slice = objects::endpoint_slice("bench", "s1", "s1-1", &[endpoint]);
    slice["metadata"]["resourceVersion"] = json!("1");
    slice["ports"] = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    index.apply_service(reader.read_service(&service.to_string())?);
    index.apply_slice(reader.read_slice(&slice.to_string())?, WatchId(0));
    Ok(index)
}

/// Accepts and closes until the process ends.
fn serve(pod: &NetnsPod) -> Result<()> {
    let at = SocketAddr::new(pod.address(false), 8080);
    let listener = pod.namespace.enter(|| TcpListener::bind(at))?;
    thread::spawn(move || while listener.accept().is_ok() {});
    Ok(())
}

/// Connects and closes for a while. The server closes too, so that no port is used up.
fn connect(to: SocketAddr) -> Result<(u32, Duration)> {
    let begin = Instant::now();
    let (mut connections, mut taken) = (0, Duration::ZERO);
    while begin.elapsed() < PART {
        let started = Instant::now();
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
        taken += started.elapsed();
        // Until the server has closed.
        std::io::Read::read(&mut stream, &mut [0; 1])?;
        connections += 1;
    }
    Ok((connections, taken))
}

/// What this process has used of all CPUs: client, server, reading, and the kernel's work for their packets, which it
/// does in their name.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = sorted(values);
    let at = |place: Option<&f64>| place.copied().unwrap_or_default();
    (at(values.first()), at(values.last()))
}
