//! `--count services`: connections by Service and zone, against what clients and servers have counted themselves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_netns::traffic::{ProbeResult, probe_tcp, probe_udp};
use zonewise_nft::Socket;
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{
    COUNTED, Found, Options, by_service, by_zone, service_connections, unassigned_connections,
};
use zonewise_routing::NodeLocation;

use crate::common::objects::{endpoint, ports, service, slice, with};
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, by_range, cluster_ip, full, node_port, vip,
};
use crate::common::{LONG, Tables, at, nft, usual_node};

/// Connections by name of the zone's counter and of the Service.
type Sums = BTreeMap<(String, String), u64>;

fn cluster() -> TwoNodeCluster {
    TwoNodeCluster::new(Options { count: CountBy::Services, ..by_range() })
}

/// What the proxy knows after one more reading.
fn counted(cluster: &TwoNodeCluster) -> Sums {
    let read = || by_service(&mut Socket::open().unwrap(), &cluster.tables.published);
    cluster.n1.namespace.enter(read).unwrap();
    let sums = service_connections(&cluster.tables.published).into_iter();
    sums.map(|((zone, _, service), sum)| ((zone, service), sum)).collect()
}

fn sums(list: &[(&str, &str, u64)]) -> Sums {
    let one = |(zone, service, sum): &(&str, &str, u64)| {
        ((format!("zone-{zone}"), (*service).to_owned()), *sum)
    };
    list.iter().map(one).collect()
}

/// What the clients of a test have counted: who answered, for which Service.
#[derive(Default)]
struct Clients(Sums);

impl Clients {
    fn note(&mut self, service: &str, answer: &ProbeResult) {
        let zone = match answer.name() {
            Some("here") => "zone-a",
            Some("there") => "zone-b",
            other => panic!("{service}: {answer}, {other:?}"),
        };
        *self.0.entry((zone.to_owned(), service.to_owned())).or_default() += 1;
    }

    /// So many TCP connections and UDP flows.
    fn connect(&mut self, service: &str, from: &Namespace, to: SocketAddr, times: usize) {
        for _ in 0..times {
            self.note(service, &probe_tcp(from, to, LONG));
            self.note(service, &probe_udp(from, to, LONG));
        }
    }
}

/// ClusterIPs, NodePorts and load balancer addresses, TCP and UDP, both families, two Services over two zones: every
/// connection is counted once, for its Service and the zone of the endpoint that answered.
#[test]
fn counts_are_those_of_clients_and_servers() {
    let mut cluster = cluster();
    cluster.offer(&full("web", 1, json!({})));
    cluster.offer(&full("shop", 2, json!({"sessionAffinity": "ClientIP"})));
    cluster.tables.sync();
    let mut clients = Clients::default();
    for v6 in FAMILIES {
        for (name, n, times) in [("web", 1, 20), ("shop", 2, 7)] {
            let pod = &cluster.caller.namespace;
            clients.connect(name, pod, cluster_ip(n, v6), times);
            clients.connect(name, pod, vip(n, v6), 3);
            let outside = &cluster.client.namespace;
            clients.connect(name, outside, node_port(&cluster.n1, n, v6), 5);
            clients.connect(name, outside, vip(n, v6), 2);
            // The node itself.
            clients.connect(name, &cluster.n1.namespace, cluster_ip(n, v6), 2);
        }
    }
    assert_eq!(counted(&cluster), clients.0);
    let received: usize = cluster.servers.iter().map(zonewise_netns::traffic::Server::count).sum();
    assert_eq!(clients.0.values().sum::<u64>(), received as u64, "what the servers have received");
    // The counters of zones have the same, whatever Service.
    let zones = cluster.n1.namespace.enter(|| by_zone(&mut Socket::open().unwrap())).unwrap();
    let mut of_zones: BTreeMap<String, u64> = BTreeMap::new();
    clients.0.iter().for_each(|((zone, _), n)| *of_zones.entry(zone.clone()).or_default() += n);
    assert_eq!(zones, of_zones);
    assert_eq!(counted(&cluster), clients.0, "another reading adds nothing");
    cluster.tables.assert_mended();
    assert_eq!(counted(&cluster), clients.0, "mending takes nothing");
    assert_eq!(unassigned_connections(&cluster.tables.published).values().sum::<u64>(), 0);
}

/// A datagram that nobody answers is sent again: the flow is one connection.
#[test]
fn a_flow_is_counted_once_before_its_answer() {
    let mut cluster = cluster();
    let object = with(
        service("silent", &["10.96.0.9"]),
        json!({"ports": [{"name": "udp", "port": 53, "protocol": "UDP"}]}),
    );
    let member = endpoint(cluster.there.address(false), "n2", "b");
    cluster.tables.service(&object);
    cluster.tables.slice(&ports(slice("silent", "s-1", &[member]), &[("udp", 9999, "UDP")]));
    cluster.tables.sync();
    cluster.caller.namespace.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..3 {
            socket.send_to(b"anybody?", "10.96.0.9:53").unwrap();
        }
    });
    assert_eq!(counted(&cluster), sums(&[("b", "silent", 1)]));
}

/// Endpoints without a zone are counted, too: for the zone without a name.
#[test]
fn endpoints_without_a_zone_are_counted() {
    let mut cluster = cluster();
    cluster.tables.service(&service("web", &["10.96.0.1"]));
    let mut object = slice("web", "web-1", &[endpoint(cluster.here.address(false), "n1", "a")]);
    object["endpoints"][0].as_object_mut().unwrap().remove("zone");
    cluster.tables.slice(&object).sync();
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 4);
    assert_eq!(counted(&cluster), sums(&[("", "web", 4)]));
}

/// A Service that is deleted and created anew, at the same address and at another, and an address that another Service
/// gets: what was counted stays with who it was for.
#[test]
fn a_service_comes_and_goes() {
    let mut cluster = cluster();
    let connect = |cluster: &TwoNodeCluster, n, times| {
        let answers = cluster.answers(&cluster.caller.namespace, cluster_ip(n, false), times);
        assert_eq!(answers.names, ["here".to_owned()].into());
    };
    let offer = |cluster: &mut TwoNodeCluster, name: &str, address: &str| {
        let member = endpoint(cluster.here.address(false), "n1", "a");
        cluster.tables.service(&service(name, &[address]));
        cluster.tables.slice(&slice(name, &format!("{name}-1"), &[member])).sync();
    };
    offer(&mut cluster, "web", "10.96.0.1");
    connect(&cluster, 1, 3);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 3)]));
    // Anew at the same address, before anybody has noticed.
    cluster.tables.delete_service("ns", "web").sync();
    offer(&mut cluster, "web", "10.96.0.1");
    connect(&cluster, 1, 2);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 5)]));
    // Another one gets the address.
    cluster.tables.delete_service("ns", "web").sync();
    offer(&mut cluster, "shop", "10.96.0.1");
    connect(&cluster, 1, 4);
    assert_eq!(counted(&cluster), sums(&[("a", "shop", 4), ("a", "web", 5)]));
    // Care for the tables: a Service that is gone has no sum any more, and an address that nobody has no element.
    offer(&mut cluster, "web", "10.96.0.2");
    connect(&cluster, 2, 1);
    cluster.tables.delete_service("ns", "shop").sync();
    assert_eq!(counted(&cluster), sums(&[("a", "shop", 4), ("a", "web", 6)]));
    assert!(!cluster.tables.kernel.remove_counts().unwrap());
    assert_eq!(counted(&cluster), sums(&[("a", "web", 6)]));
    let listed =
        nft(&cluster.n1.namespace, &["list", "set", "ip", "zonewise", "connections-zone-a"]);
    assert!(listed.contains("10.96.0.2 . tcp . 80 counter packets 1"), "{listed}");
    assert!(!listed.contains("10.96.0.1 "), "{listed}");
    connect(&cluster, 2, 1);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 7)]));
}

/// The process ends and another one takes over the tables: what the kernel has counted goes on.
#[test]
fn counts_go_on_after_a_restart() {
    let mut cluster = cluster();
    cluster.offer(&full("web", 1, json!({})));
    cluster.tables.sync();
    let mut clients = Clients::default();
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 5);
    assert_eq!(counted(&cluster), clients.0);
    let node = usual_node([Some(cluster.n1.address(false)), Some(cluster.n1.address(true))]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let options = cluster.tables.options.clone();
    let ranges = cluster.tables.ranges.clone();
    cluster.tables = Tables::new(&cluster.n1.namespace, location, options, node);
    cluster.tables.ranges = ranges;
    // Nobody is there, and connections go on. Services are not known yet when the first reading comes.
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 3);
    assert_eq!(counted(&cluster), Sums::new());
    cluster.offer(&full("web", 1, json!({})));
    assert_eq!(cluster.tables.start(), Found::Ours);
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 2);
    assert_eq!(counted(&cluster), clients.0);
    cluster.tables.assert_mended();
}

/// A zone that no endpoint has any more gives back its chain, its set and its counter; what was counted is noted
/// before. Endpoints that come back are counted again.
#[test]
fn a_zone_comes_and_goes() {
    let mut cluster = cluster();
    let zone = |cluster: &mut TwoNodeCluster, name: &str| {
        let member = endpoint(cluster.here.address(false), "n1", name);
        cluster.tables.slice(&slice("web", "web-1", &[member])).sync();
    };
    cluster.tables.service(&service("web", &["10.96.0.1"]));
    zone(&mut cluster, "x");
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 3);
    zone(&mut cluster, "a");
    // The slice that named it has just been read, the first time.
    for _ in 0..2 {
        let unused = cluster.tables.reader.unused_zones(&cluster.tables.index.zones());
        let removed = cluster.tables.kernel.remove_counters(&unused).unwrap();
        cluster.tables.reader.forget_zones(&removed);
    }
    cluster.tables.assert_mended();
    let listed = nft(&cluster.n1.namespace, &["list", "table", "ip", "zonewise"]);
    assert!(listed.contains("zone-a") && !listed.contains("zone-x"), "{listed}");
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 2);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 2), ("x", "web", 3)]));
    zone(&mut cluster, "x");
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 1);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 2), ("x", "web", 4)]));
    cluster.tables.assert_mended();
}

/// A zone that has just lost its last endpoint still has its chain. That is no damage, and no reason for an alert.
#[test]
fn chains_of_zones_without_endpoints_are_no_damage() {
    let mut cluster = cluster();
    cluster.tables.service(&service("web", &["10.96.0.1"]));
    for zone in ["x", "a"] {
        let member = endpoint(cluster.here.address(false), "n1", zone);
        cluster.tables.slice(&slice("web", "web-1", &[member])).sync();
    }
    cluster.tables.kernel.remove_unused().unwrap();
    cluster.tables.assert_mended();
    cluster.tables.kernel.remove_unused().unwrap();
    cluster.tables.kernel.remove_counters(&BTreeSet::new()).unwrap();
    cluster.tables.assert_mended();
    let listed = nft(&cluster.n1.namespace, &["list", "table", "ip", "zonewise"]);
    assert!(listed.contains("zone-a") && !listed.contains("zone-x"), "{listed}");
}

/// More addresses are used than the kernel counts by themselves: the others are counted together, and what is counted
/// by itself goes on.
#[test]
fn beyond_the_limit_connections_are_counted_together() {
    const MORE: u32 = 100;
    let mut cluster = cluster();
    let address = |n: u32| std::net::Ipv4Addr::from(0x6440_0000 + n);
    let external: Vec<String> = (0..COUNTED + MORE).map(|n| address(n).to_string()).collect();
    let udp: Value = json!([{"name": "udp", "port": 53, "protocol": "UDP"}]);
    let object =
        with(service("flood", &["10.96.0.9"]), json!({"ports": udp, "externalIPs": external}));
    let member = endpoint(cluster.here.address(false), "n1", "a");
    cluster.tables.service(&object);
    cluster.tables.slice(&ports(slice("flood", "f-1", &[member]), &[("udp", 9999, "UDP")]));
    cluster.tables.service(&service("web", &["10.96.0.1"]));
    let member = endpoint(cluster.here.address(false), "n1", "a");
    cluster.tables.slice(&slice("web", "web-1", &[member])).sync();
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 1);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 1)]));
    cluster.caller.namespace.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..COUNTED + MORE {
            // The socket tells of the closed port once; the next datagram goes out.
            while socket.send_to(b"flood", at(address(n).into(), 53)).is_err() {}
        }
    });
    let all = u64::from(COUNTED - 1);
    assert_eq!(counted(&cluster), sums(&[("a", "flood", all), ("a", "web", 1)]));
    let together = || unassigned_connections(&cluster.tables.published);
    assert_eq!(together(), [("zone-a".to_owned(), u64::from(MORE) + 1)].into());
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 2);
    assert_eq!(counted(&cluster), sums(&[("a", "flood", all), ("a", "web", 3)]));
    assert_eq!(together(), [("zone-a".to_owned(), u64::from(MORE) + 1)].into());
}
