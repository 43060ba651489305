//! `--count-bytes`: bytes by Service and zone, against what was sent and what the client's own machine has counted.
//!
//! What a flow has carried is the length of its IP packets: a datagram of 100 bytes is 128 over IPv4 (20 for IP, 8 for
//! UDP) and 148 over IPv6. For TCP all packets count, those without data too, so the truth is what the client's
//! namespace has sent and received, packet by packet.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zonewise_netns::network::NetnsPod;
use zonewise_nft::conntrack::{Carried, Conntrack, Flow};
use zonewise_nft::{Family, Network, Socket};
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{
    Meter, Options, ServiceCount, Sum, by_service, service_counts, unassigned_bytes,
};

use crate::common::objects::{endpoint, ports, slice, with};
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, by_range, cluster_ip, full, node_port, vip,
};
use crate::common::{LONG, at, nft, nft_json};

/// Bytes by names of the zone and of the Service: to the endpoints, and back.
type Sums = BTreeMap<(String, String), (u64, u64)>;

const PORT: u16 = 9000;

/// A cluster whose Service `web` has an endpoint in zone b and `near` one in zone a, on a port where the test itself
/// answers.
struct Measured {
    cluster: TwoNodeCluster,
    meter: Meter,
}

impl Measured {
    fn new() -> Self {
        let mut cluster = TwoNodeCluster::new(Options { count: CountBy::Services, ..by_range() });
        cluster.n1.namespace.write_sysctl("net/netfilter/nf_conntrack_acct", "1").unwrap();
        let (here, there) = (cluster.here.clone(), cluster.there.clone());
        offer(&mut cluster, &full("web", 1, json!({})), &there);
        offer(&mut cluster, &full("near", 2, json!({})), &here);
        cluster.tables.sync();
        let meter = meter(&cluster);
        let mut measured = Self { cluster, meter };
        measured.read(false);
        measured
    }

    fn read(&mut self, all: bool) -> Sums {
        let meter = &mut self.meter;
        self.cluster.n1.namespace.enter(|| meter.read_flows(all)).unwrap();
        let counts = service_counts(&self.cluster.tables.published).into_iter();
        let one = |count: ServiceCount| {
            let bytes = count.sum.bytes;
            let key = (count.to_zone.to_string(), count.service.1.to_string());
            (key, (bytes.original, bytes.reply))
        };
        counts.map(one).collect()
    }

    /// Bytes that are in no sum.
    fn unassigned(&self) -> BTreeMap<&'static str, (u64, u64)> {
        unassigned_bytes(&self.cluster.tables.published)
    }

    /// Ends all flows through Services on this node, as their timeouts would later.
    fn end_flows(&self) {
        self.cluster.n1.namespace.enter(|| {
            let mut conntrack = Conntrack::open().unwrap();
            for family in [Family::Ip, Family::Ip6] {
                let mut flows: Vec<Flow> = Vec::new();
                conntrack.flows(family, None, &mut |flow| flows.push(*flow)).unwrap();
                flows.iter().for_each(|flow| conntrack.delete(flow).unwrap());
            }
        });
    }
}

fn offer(cluster: &mut TwoNodeCluster, service: &Value, pod: &NetnsPod) {
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.tables.service(&with(service.clone(), json!({})));
    for v6 in FAMILIES {
        let member = endpoint(pod.address(v6), &pod.node, &pod.zone);
        let object = slice(&name, &format!("{name}-{}", u8::from(v6)), &[member]);
        cluster.tables.slice(&ports(object, &[("http", PORT, "TCP"), ("udp", PORT, "UDP")]));
    }
}

fn meter(cluster: &TwoNodeCluster) -> Meter {
    let reader = Arc::clone(&cluster.tables.reader);
    let names =
        move |zone| reader.zone_name(zone).map_or_else(String::new, |name| name.to_string());
    Meter::new(Network::default(), Arc::clone(&cluster.tables.published), Box::new(names))
}

fn sums(list: &[(&str, &str, (u64, u64))]) -> Sums {
    let one = |(zone, service, sum): &(&str, &str, (u64, u64))| {
        (((*zone).to_owned(), (*service).to_owned()), *sum)
    };
    list.iter().map(one).collect()
}

/// Sends datagrams of 100 bytes, each answered by one of 40.
fn exchange(from: &zonewise_netns::Namespace, to: SocketAddr, server: &UdpSocket, times: usize) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = from.enter(|| UdpSocket::bind(any)).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    server.set_read_timeout(Some(LONG)).unwrap();
    for _ in 0..times {
        client.send_to(&[1; 100], to).unwrap();
        let (length, peer) = server.recv_from(&mut [0; 200]).unwrap();
        assert_eq!(length, 100);
        server.send_to(&[2; 40], peer).unwrap();
        assert_eq!(client.recv(&mut [0; 200]).unwrap(), 40);
    }
}

fn udp_server(pod: &NetnsPod, v6: bool) -> UdpSocket {
    pod.namespace.enter(|| UdpSocket::bind(at(pod.address(v6), PORT))).unwrap()
}

/// UDP, both families, by ClusterIP, NodePort and load balancer address, to two zones: to the byte.
#[test]
fn bytes_are_what_was_sent_with_its_headers() {
    let mut measured = Measured::new();
    let cluster = &measured.cluster;
    let mut expected = [(0, 0); 2];
    for v6 in FAMILIES {
        let headers = if v6 { 48 } else { 28 };
        for (at, n, pod) in [(0, 1, &cluster.there), (1, 2, &cluster.here)] {
            let server = udp_server(pod, v6);
            let inside = &cluster.caller.namespace;
            let outside = &cluster.client.namespace;
            exchange(inside, cluster_ip(n, v6), &server, 3);
            exchange(outside, node_port(&cluster.n1, n, v6), &server, 2);
            exchange(outside, vip(n, v6), &server, 1);
            expected[at].0 += 6 * (100 + headers);
            expected[at].1 += 6 * (40 + headers);
        }
    }
    assert_eq!(measured.read(false), Sums::new(), "no flow has ended");
    assert_eq!(measured.read(true), Sums::new(), "none carries enough to be counted before");
    measured.end_flows();
    let [web, near] = expected;
    let all = sums(&[("a", "near", near), ("b", "web", web)]);
    assert_eq!(measured.read(false), all);
    assert_eq!(measured.read(true), all, "once");
}

/// The table in which a namespace counts for a Service.
fn table(service: u8) -> String {
    format!("truth-{service}")
}

/// Counts in the client's namespace what it sends to a Service's ClusterIPs and receives from them.
fn watch(pod: &NetnsPod, service: u8) {
    let [four, six] = FAMILIES.map(|v6| cluster_ip(service, v6).ip());
    let table = table(service);
    let rules = format!(
        "add table inet {table}; add counter inet {table} sent; add counter inet {table} received; \
         add chain inet {table} out {{ type filter hook output priority 300; }}; \
         add chain inet {table} in {{ type filter hook input priority 300; }}; \
         add rule inet {table} out ip daddr {four} counter name sent; \
         add rule inet {table} out ip6 daddr {six} counter name sent; \
         add rule inet {table} in ip saddr {four} counter name received; \
         add rule inet {table} in ip6 saddr {six} counter name received"
    );
    nft(&pod.namespace, &[rules.as_str()]);
}

/// What the client's own namespace has sent to a Service and received from it.
fn truth(pod: &NetnsPod, service: u8) -> (u64, u64) {
    let document =
        nft_json(&pod.namespace, &["list", "counters", "table", "inet", &table(service)]);
    let counters = document["nftables"].as_array().unwrap();
    let bytes = |name: &str| {
        let counter = counters.iter().find(|object| object["counter"]["name"] == name).unwrap();
        counter["counter"]["bytes"].as_u64().unwrap()
    };
    (bytes("sent"), bytes("received"))
}

/// What conntrack has for flows to a Service.
fn in_conntrack(measured: &Measured, service: u8) -> (u64, u64) {
    let addresses = FAMILIES.map(|v6| cluster_ip(service, v6).ip());
    let mut sum = (0, 0);
    measured.cluster.n1.namespace.enter(|| {
        for family in [Family::Ip, Family::Ip6] {
            let mut listing = Conntrack::open().unwrap().carried(family).unwrap();
            let mut add = |flow: &Flow, carried: Carried| {
                if addresses.contains(&flow.original.dst) {
                    sum = (sum.0 + carried.original, sum.1 + carried.reply);
                }
            };
            while listing.read(&mut add).unwrap() {}
        }
    });
    sum
}

/// Whether no packet of a TCP connection of the test follows: all that was sent is acknowledged, also by the machine that
/// puts that off, and connections that were closed are closed at both ends. Others listen, or wait for their time to pass.
fn is_quiet(pod: &NetnsPod) -> bool {
    const ESTABLISHED: &str = "01";
    const AT_REST: [&str; 2] = ["06", "0A"];
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let read = || tables.map(|path| std::fs::read_to_string(path).unwrap());
    pod.namespace.enter(read).iter().flat_map(|table| table.lines().skip(1)).all(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[3] {
            ESTABLISHED => fields[4] == "00000000:00000000",
            state => AT_REST.contains(&state),
        }
    })
}

/// What the client's own namespace has sent to a Service and received from it, once all packets have arrived.
fn settled(measured: &Measured, pod: &NetnsPod, service: u8) -> (u64, u64) {
    let deadline = Instant::now() + LONG;
    let cluster = &measured.cluster;
    let ends = [pod, &cluster.here, &cluster.there];
    loop {
        let is_quiet = ends.into_iter().all(is_quiet);
        let (counted, truth) = (in_conntrack(measured, service), truth(pod, service));
        if is_quiet && counted == truth {
            return truth;
        }
        assert!(Instant::now() < deadline, "quiet: {is_quiet}, {counted:?}, {truth:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn transfer(client: &mut TcpStream, server: &mut TcpStream, there: usize, back: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&vec![1; there]).unwrap());
        server.read_exact(&mut vec![0; there]).unwrap();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| server.write_all(&vec![2; back]).unwrap());
        client.read_exact(&mut vec![0; back]).unwrap();
    });
}

/// A TCP connection that stays: counted while it goes on and when it ends, and in sum what the client has sent and
/// received. Another process counts only what comes from its start on.
#[test]
fn a_long_connection_is_counted_before_it_ends() {
    let mut measured = Measured::new();
    let (there, caller) = (measured.cluster.there.clone(), measured.cluster.caller.clone());
    let to = cluster_ip(1, false);
    watch(&caller, 1);
    let listener =
        there.namespace.enter(|| TcpListener::bind(at(there.address(false), PORT))).unwrap();
    let mut client = caller.namespace.enter(|| TcpStream::connect(to)).unwrap();
    let mut server = listener.accept().unwrap().0;
    transfer(&mut client, &mut server, 100_000, 300_000);
    let first = settled(&measured, &caller, 1);
    assert!(first.0 > 100_000 && first.1 > 300_000, "{first:?}");
    assert_eq!(measured.read(true), sums(&[("b", "web", first)]));
    transfer(&mut client, &mut server, 500_000, 1_000);
    let second = settled(&measured, &caller, 1);
    assert_eq!(measured.read(true), sums(&[("b", "web", second)]));
    // Another process begins: what was carried before is not its own.
    let mut after = meter(&measured.cluster);
    let namespace = measured.cluster.n1.namespace.clone();
    namespace.enter(|| after.read_flows(false)).unwrap();
    measured.meter = after;
    transfer(&mut client, &mut server, 10, 20);
    drop((client, server));
    let end = settled(&measured, &caller, 1);
    measured.end_flows();
    assert_eq!(measured.read(false), sums(&[("b", "web", end)]));
}

/// An endpoint that is gone when its flow ends: its zone is known all the same. A Service that is gone has no sum.
#[test]
fn an_endpoint_that_is_gone_has_its_zone() {
    let mut measured = Measured::new();
    let (here, there) = (measured.cluster.here.clone(), measured.cluster.there.clone());
    let exchange_with = |measured: &Measured, pod: &NetnsPod| {
        let server = udp_server(pod, false);
        exchange(&measured.cluster.caller.namespace, cluster_ip(1, false), &server, 1);
    };
    exchange_with(&measured, &there);
    measured.end_flows();
    assert_eq!(measured.read(false), sums(&[("b", "web", (128, 68))]));
    exchange_with(&measured, &there);
    offer(&mut measured.cluster, &full("web", 1, json!({})), &here);
    measured.cluster.tables.sync();
    measured.end_flows();
    assert_eq!(measured.read(false), sums(&[("b", "web", (256, 136))]));
    exchange_with(&measured, &here);
    measured.end_flows();
    let both = sums(&[("a", "web", (128, 68)), ("b", "web", (256, 136))]);
    assert_eq!(measured.read(false), both);
    assert_eq!(measured.unassigned(), BTreeMap::new());
    // A flow whose Service is gone when it ends: nobody knows its zone any more, and its bytes are told.
    exchange_with(&measured, &here);
    measured.cluster.tables.delete_service("ns", "web").sync();
    measured.end_flows();
    assert_eq!(measured.read(false), both);
    assert_eq!(measured.unassigned(), [("no_service", (128, 68))].into());
    measured.cluster.tables.kernel.remove_counts().unwrap();
    assert_eq!(measured.read(false), Sums::new());
}

/// What the machine forwards without a Service is neither counted nor remembered, however much it is.
#[test]
fn flows_that_are_not_to_a_service_are_left_alone() {
    let mut measured = Measured::new();
    let (there, caller) = (measured.cluster.there.clone(), measured.cluster.caller.clone());
    let at = at(there.address(false), PORT);
    let listener = there.namespace.enter(|| TcpListener::bind(at)).unwrap();
    let mut client = caller.namespace.enter(|| TcpStream::connect(at)).unwrap();
    let mut server = listener.accept().unwrap().0;
    transfer(&mut client, &mut server, 100_000, 300_000);
    assert_eq!(measured.read(true), Sums::new());
    assert_eq!(format!("{:?}", measured.meter), "Meter(0 flows remembered)");
    drop((client, server));
    measured.end_flows();
    assert_eq!(measured.read(true), Sums::new());
    assert_eq!(measured.unassigned(), BTreeMap::new());
}

/// Both together, over both families and protocols: connections and bytes of each Service are what the client has counted
/// itself, connection by connection and packet by packet.
#[test]
fn connections_and_bytes_are_what_the_client_has_counted() {
    let mut measured = Measured::new();
    let cluster = &measured.cluster;
    let (caller, mut connections) = (cluster.caller.clone(), [0_u64; 2]);
    for (at_service, n, pod) in [(0, 1, cluster.there.clone()), (1, 2, cluster.here.clone())] {
        watch(&caller, n);
        for v6 in FAMILIES {
            let to = cluster_ip(n, v6);
            let server = udp_server(&pod, v6);
            for datagrams in 1..=4 {
                exchange(&caller.namespace, to, &server, datagrams);
                connections[at_service] += 1;
            }
            let listener = pod.namespace.enter(|| TcpListener::bind(at(pod.address(v6), PORT)));
            let listener = listener.unwrap();
            for size in [0, 1, 1000, 200_000] {
                let mut client = caller.namespace.enter(|| TcpStream::connect(to)).unwrap();
                let mut accepted = listener.accept().unwrap().0;
                transfer(&mut client, &mut accepted, size, 3 * size);
                connections[at_service] += 1;
            }
        }
    }
    let [web, near] = [1, 2].map(|n| settled(&measured, &caller, n));
    measured.read(true);
    measured.end_flows();
    measured.read(false);
    let published = &measured.cluster.tables.published;
    let namespace = &measured.cluster.n1.namespace;
    namespace.enter(|| by_service(&mut Socket::open().unwrap(), published)).unwrap();
    let expected = [("a", "near", connections[1], near), ("b", "web", connections[0], web)];
    let expected = expected.map(|(zone, service, connections, (original, reply))| ServiceCount {
        service: ("ns".into(), service.into()),
        to_zone: zone.into(),
        sum: Sum { connections, failed: 0, bytes: Carried { original, reply } },
    });
    assert_eq!(service_counts(published), expected);
    assert_eq!(measured.unassigned(), BTreeMap::new());
}
