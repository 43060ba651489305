//! `--count services`: connections that fail, against what clients have seen: an endpoint where nothing listens, one that
//! drops what it gets, and one that serves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use zonewise_netns::Namespace;
use zonewise_netns::network::NetnsPod;
use zonewise_nft::Network;
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{FailedConnections, Options, SILENT, ServiceCount, service_counts};

use crate::common::objects::{endpoint, ports, slice};
use crate::common::two_nodes::{FAMILIES, TwoNodeCluster, by_range, cluster_ip, full, node_port};
use crate::common::{LONG, at, nft};

/// Failed connections by names of the zone and of the Service.
type Sums = BTreeMap<(String, String), u64>;

/// How long a client waits that nobody answers.
const SHORT: Duration = Duration::from_millis(100);

/// The Services, by the number in their addresses.
const REFUSES: (u8, &str, u16) = (1, "refuses", 9001);
const DROPS: (u8, &str, u16) = (2, "drops", 9002);
const SERVES: (u8, &str, u16) = (3, "serves", 9003);

/// A cluster with three Services, each with one endpoint, and what reads the failed connections of its first node.
struct Counted {
    cluster: TwoNodeCluster,
    failed: FailedConnections,
    /// When the test began.
    begin: Instant,
}

impl Counted {
    fn new() -> Self {
        let mut cluster = TwoNodeCluster::new(Options { count: CountBy::Services, ..by_range() });
        let (here, there) = (cluster.here.clone(), cluster.there.clone());
        for (service, pod) in [(REFUSES, &there), (DROPS, &here), (SERVES, &there)] {
            offer(&mut cluster, service, pod);
        }
        cluster.tables.sync();
        let (_, _, port) = DROPS;
        let drop = format!(
            "add table inet wall; add chain inet wall in {{ type filter hook input priority 0; }}; \
             add rule inet wall in tcp dport {port} drop"
        );
        nft(&here.namespace, &[drop.as_str()]);
        let (failed, begin) = (reader(&cluster), Instant::now());
        let mut counted = Self { cluster, failed, begin };
        assert_eq!(counted.read(0), Sums::new());
        counted
    }

    /// What is known so many times the silence after the beginning.
    fn read(&mut self, silences: u32) -> Sums {
        let (failed, now) = (&mut self.failed, self.begin + SILENT * silences);
        self.cluster.n1.namespace.enter(|| failed.read_flows(now, true)).unwrap();
        let counts = service_counts(&self.cluster.tables.published).into_iter();
        let one = |ServiceCount { service: (_, name), to_zone, sum }| {
            ((to_zone.to_string(), name.to_string()), sum.failed)
        };
        counts.map(one).filter(|(_, failed)| *failed > 0).collect()
    }

    /// Has so many connections made to a Service, from a Pod by its ClusterIP and from outside by its NodePort, over both
    /// families, and says how each has ended.
    fn connect(&self, (n, ..): (u8, &str, u16), times: usize) -> Vec<Result<(), ErrorKind>> {
        let inside = &self.cluster.caller.namespace;
        let outside = &self.cluster.client.namespace;
        let ways = FAMILIES.into_iter().flat_map(|v6| {
            [(inside, cluster_ip(n, v6)), (outside, node_port(&self.cluster.n1, n, v6))]
        });
        let connections = ways.flat_map(|way| vec![way; times]);
        connections.map(|(from, to)| connect(from, to)).collect()
    }
}

fn connect(from: &Namespace, to: SocketAddr) -> Result<(), ErrorKind> {
    let limit = if is_dropped(to) { SHORT } else { LONG };
    let connected = from.enter(|| TcpStream::connect_timeout(&to, limit));
    connected.map(drop).map_err(|error| error.kind())
}

fn is_dropped(to: SocketAddr) -> bool {
    let addresses = FAMILIES.map(|v6| cluster_ip(DROPS.0, v6));
    addresses.contains(&to) || to.port() == 30_000 + u16::from(DROPS.0)
}

fn offer(cluster: &mut TwoNodeCluster, (n, name, port): (u8, &str, u16), pod: &NetnsPod) {
    cluster.tables.service(&full(name, n, json!({})));
    for v6 in FAMILIES {
        let member = endpoint(pod.address(v6), &pod.node, &pod.zone);
        let object = slice(name, &format!("{name}-{}", u8::from(v6)), &[member]);
        cluster.tables.slice(&ports(object, &[("http", port, "TCP"), ("udp", port, "UDP")]));
    }
}

fn reader(cluster: &TwoNodeCluster) -> FailedConnections {
    let reader = Arc::clone(&cluster.tables.reader);
    let names =
        move |zone| reader.zone_name(zone).map_or_else(String::new, |name| name.to_string());
    let published = Arc::clone(&cluster.tables.published);
    FailedConnections::new(Network::default(), published, Box::new(names))
}

fn sums(list: &[(&str, (u8, &str, u16), u64)]) -> Sums {
    let one = |(zone, (_, name, _), sum): &(&str, (u8, &str, u16), u64)| {
        (((*zone).to_owned(), (*name).to_owned()), *sum)
    };
    list.iter().map(one).collect()
}

/// Two families, each from a Pod and from outside.
const WAYS: usize = 4;

#[test]
fn connections_that_are_refused_or_not_answered_are_counted_once() {
    let mut counted = Counted::new();
    let serving = counted.cluster.there.clone();
    let _listeners = FAMILIES.map(|v6| {
        let at = at(serving.address(v6), SERVES.2);
        serving.namespace.enter(|| TcpListener::bind(at)).unwrap()
    });
    assert_eq!(counted.connect(SERVES, 3), [Ok(()); 3 * WAYS]);
    assert_eq!(counted.connect(REFUSES, 5), [Err(ErrorKind::ConnectionRefused); 5 * WAYS]);
    assert_eq!(counted.connect(DROPS, 2), [Err(ErrorKind::TimedOut); 2 * WAYS]);
    let refused = ("b", REFUSES, 5 * WAYS as u64);
    assert_eq!(counted.read(1), sums(&[refused]), "what is silent may still be answered");
    let both = sums(&[refused, ("a", DROPS, 2 * WAYS as u64)]);
    for silences in 2..5 {
        assert_eq!(counted.read(silences), both, "each once");
    }
    assert_eq!(counted.connect(REFUSES, 1).len(), WAYS);
    let more = sums(&[("b", REFUSES, 6 * WAYS as u64), ("a", DROPS, 2 * WAYS as u64)]);
    assert_eq!(counted.read(5), more);
}

/// What an earlier process has counted, or seen, is not counted again by the next.
#[test]
fn another_process_counts_what_begins_after_its_start() {
    let mut counted = Counted::new();
    counted.connect(DROPS, 1);
    assert_eq!(counted.read(1), Sums::new());
    counted.failed = reader(&counted.cluster);
    for silences in 1..4 {
        assert_eq!(counted.read(silences), Sums::new());
    }
    counted.connect(DROPS, 1);
    assert_eq!(counted.read(4), Sums::new());
    assert_eq!(counted.read(5), sums(&[("a", DROPS, WAYS as u64)]));
}

/// Nobody knows any more which Service it was: nothing is counted. What goes past Services is left alone.
#[test]
fn connections_to_services_that_are_gone_are_not_counted() {
    let mut counted = Counted::new();
    counted.connect(DROPS, 1);
    let direct = at(counted.cluster.there.address(false), REFUSES.2);
    let refused = connect(&counted.cluster.caller.namespace, direct);
    assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
    assert_eq!(counted.read(1), Sums::new());
    assert_eq!(format!("{:?}", counted.failed), "FailedConnections(4 flows remembered)");
    counted.cluster.tables.delete_service("ns", DROPS.1).sync();
    assert_eq!(counted.read(2), Sums::new());
}
