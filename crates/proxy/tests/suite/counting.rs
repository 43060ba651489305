//! `--count services`: connections by Service and zone, against what clients and servers have counted themselves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_netns::traffic::{ProbeResult, Protocol, Server, probe_from, probe_tcp};
use zonewise_nft::Socket;
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{
    COUNTED, FoundTables, Options, ServiceCount, by_service, by_zone, service_counts,
    unassigned_connections,
};
use zonewise_routing::NodeLocation;

use crate::common::objects::{endpoint, ports, service, slice, with};
use crate::common::pages::ask;
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, both_protocols, by_range, cluster_ip, full, node_port, vip,
};
use crate::common::{LONG, Tables, at, nft, usual_node};

/// Connections by names of the zone and of the Service.
type Sums = BTreeMap<(String, String), u64>;

fn cluster() -> TwoNodeCluster {
    TwoNodeCluster::new(Options { count: CountBy::Services, ..by_range() })
}

/// What the proxy knows after one more reading.
fn counted(cluster: &TwoNodeCluster) -> Sums {
    let read = || by_service(&mut Socket::open().unwrap(), &cluster.tables.published);
    cluster.n1.namespace.enter(read).unwrap();
    let counts = service_counts(&cluster.tables.published).into_iter();
    let one = |count: ServiceCount| {
        ((count.to_zone.to_string(), count.service.1.to_string()), count.sum.connections)
    };
    counts.map(one).collect()
}

fn sums(list: &[(&str, &str, u64)]) -> Sums {
    let one = |(zone, service, sum): &(&str, &str, u64)| {
        (((*zone).to_owned(), (*service).to_owned()), *sum)
    };
    list.iter().map(one).collect()
}

/// What the clients of a test have counted: who answered, for which Service.
#[derive(Default)]
struct Clients(Sums);

/// A port from which no test has sent anything. The kernel may choose one twice within seconds, and takes what comes from the
/// same port for the same flow; these are below those that it chooses.
fn fresh_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(port < 30_000, "no ports are left: begin anew where none is remembered any more");
    port
}

impl Clients {
    fn note(&mut self, service: &str, answer: &ProbeResult) {
        let zone = match answer.name() {
            Some("here" | "host") => "a",
            Some("there") => "b",
            other => panic!("{service}: {answer}, {other:?}"),
        };
        *self.0.entry((zone.to_owned(), service.to_owned())).or_default() += 1;
    }

    /// So many TCP connections and UDP flows.
    fn connect(&mut self, service: &str, from: &Namespace, to: SocketAddr, times: usize) {
        for _ in 0..times {
            self.note(service, &probe_tcp(from, to, LONG));
            let source = at(unspecified(to), fresh_port());
            self.note(service, &probe_from(from, Protocol::Udp, source, to, LONG));
        }
    }
}

/// Any address of the same family.
fn unspecified(to: SocketAddr) -> IpAddr {
    match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
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
    let received: usize = cluster.servers.iter().map(Server::count).sum();
    assert_eq!(clients.0.values().sum::<u64>(), received as u64, "what the servers have received");
    // The counters of zones have the same, whatever Service.
    let zones = cluster.n1.namespace.enter(|| by_zone(&mut Socket::open().unwrap())).unwrap();
    let mut of_zones: BTreeMap<String, u64> = BTreeMap::new();
    for ((zone, _), n) in &clients.0 {
        *of_zones.entry(format!("zone-{zone}")).or_default() += n;
    }
    assert_eq!(zones, of_zones);
    assert_eq!(counted(&cluster), clients.0, "another reading adds nothing");
    cluster.tables.assert_repaired();
    assert_eq!(counted(&cluster), clients.0, "repairing takes nothing");
    assert_eq!(unassigned_connections(&cluster.tables.published), BTreeMap::new());
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

/// Another process takes over the tables of `cluster`, and knows no Service yet.
fn restart(cluster: &mut TwoNodeCluster) {
    let node = usual_node([Some(cluster.n1.address(false)), Some(cluster.n1.address(true))]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let options = cluster.tables.options.clone();
    let ranges = cluster.tables.ranges.clone();
    cluster.tables = Tables::new(&cluster.n1.namespace, location, options, node);
    cluster.tables.ranges = ranges;
}

/// The process ends and another one takes over the tables: it counts what comes from its start on. What was there, the
/// process before has told.
#[test]
fn counts_begin_with_the_process() {
    let mut cluster = cluster();
    cluster.offer(&full("web", 1, json!({})));
    cluster.tables.sync();
    let mut clients = Clients::default();
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 5);
    assert_eq!(counted(&cluster), clients.0);
    restart(&mut cluster);
    // Nobody is there, and connections go on. Services are not known yet when the first reading comes.
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 3);
    assert_eq!(counted(&cluster), Sums::new());
    cluster.offer(&full("web", 1, json!({})));
    assert_eq!(cluster.tables.start(), FoundTables::Ours);
    assert_eq!(counted(&cluster), Sums::new());
    let mut clients = Clients::default();
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, false), 2);
    clients.connect("web", &cluster.caller.namespace, cluster_ip(1, true), 2);
    assert_eq!(counted(&cluster), clients.0);
    cluster.tables.assert_repaired();
    assert_eq!(unassigned_connections(&cluster.tables.published), BTreeMap::new());
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
    cluster.tables.assert_repaired();
    let listed = nft(&cluster.n1.namespace, &["list", "table", "ip", "zonewise"]);
    assert!(listed.contains("zone-a") && !listed.contains("zone-x"), "{listed}");
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 2);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 2), ("x", "web", 3)]));
    let [page, _] = ask(&cluster.tables.published, &cluster.n1.namespace);
    for (zone, count) in [("a", 2), ("x", 3)] {
        let series = format!("service=\"web\",from_zone=\"\",to_zone=\"{zone}\"}} {count}\n");
        assert!(page.contains(&series), "a total never becomes less: {page}");
    }
    zone(&mut cluster, "x");
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 1);
    assert_eq!(counted(&cluster), sums(&[("a", "web", 2), ("x", "web", 4)]));
    cluster.tables.assert_repaired();
}

/// A zone that has lost its last IPv6 endpoint goes on with IPv4: nothing is counted twice.
#[test]
fn a_zone_goes_in_one_family() {
    let mut cluster = cluster();
    cluster.tables.service(&service("web", &["10.96.0.1", "fd96::1"]));
    let offer = |cluster: &mut TwoNodeCluster, v6: bool, zone: &str| {
        let member = endpoint(cluster.here.address(v6), "n1", zone);
        let object = slice("web", &format!("web-{}", u8::from(v6)), &[member]);
        cluster.tables.slice(&object).sync();
    };
    for v6 in FAMILIES {
        offer(&mut cluster, v6, "x");
        cluster.answers(&cluster.caller.namespace, cluster_ip(1, v6), 3);
    }
    assert_eq!(counted(&cluster), sums(&[("x", "web", 6)]));
    offer(&mut cluster, true, "a");
    cluster.tables.kernel.remove_unused().unwrap();
    cluster.tables.assert_repaired();
    cluster.tables.kernel.remove_counters(&BTreeSet::new()).unwrap();
    let listed = nft(&cluster.n1.namespace, &["list", "tables"]);
    assert!(listed.contains("ip6 zonewise"), "{listed}");
    let listed = nft(&cluster.n1.namespace, &["list", "table", "ip6", "zonewise"]);
    assert!(!listed.contains("zone-x"), "{listed}");
    assert_eq!(counted(&cluster), sums(&[("x", "web", 6)]));
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 1);
    assert_eq!(counted(&cluster), sums(&[("x", "web", 7)]));
}

/// Elements of addresses whose Service came and went between two readings, and of those that an earlier process has left:
/// all are removed, and what they have counted is told.
#[test]
fn elements_without_a_service_are_removed() {
    const MANY: u32 = 1200;
    let mut cluster = cluster();
    let flood = |cluster: &mut TwoNodeCluster| {
        let external = (0..MANY).map(|n| std::net::Ipv4Addr::from(0x6440_0000 + n).to_string());
        let external: Vec<String> = external.collect();
        let udp = json!([{"name": "udp", "port": 53, "protocol": "UDP"}]);
        let object =
            with(service("flood", &["10.96.0.9"]), json!({"ports": udp, "externalIPs": external}));
        let member = endpoint(cluster.here.address(false), "n1", "a");
        cluster.tables.service(&object);
        let object = slice("flood", "f-1", &[member]);
        cluster.tables.slice(&ports(object, &[("udp", 9999, "UDP")])).sync();
        cluster.caller.namespace.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for address in &external {
                // The socket tells of the closed port once; the next datagram goes out.
                while socket.send_to(b"flood", (address.as_str(), 53)).is_err() {}
            }
        });
        cluster.tables.delete_service("ns", "flood").sync();
    };
    let remove_all = |cluster: &mut TwoNodeCluster| {
        assert_eq!(counted(cluster), Sums::new());
        let mut portions = 1;
        while cluster.tables.kernel.remove_counts().unwrap() {
            portions += 1;
        }
        assert!(portions > 1, "{portions}");
        let set = ["list", "set", "ip", "zonewise", "connections-zone-a"];
        let listed = nft(&cluster.n1.namespace, &set);
        assert!(!listed.contains("100.64."), "{listed}");
    };
    // Another Service keeps the zone.
    let keep = |cluster: &mut TwoNodeCluster| {
        cluster.tables.service(&service("web", &["10.96.0.1"]));
        let member = endpoint(cluster.here.address(false), "n1", "a");
        cluster.tables.slice(&slice("web", "web-1", &[member]));
    };
    keep(&mut cluster);
    flood(&mut cluster);
    remove_all(&mut cluster);
    let unassigned = unassigned_connections(&cluster.tables.published);
    assert_eq!(unassigned, [(("a".to_owned(), "no_service"), u64::from(MANY))].into());
    flood(&mut cluster);
    restart(&mut cluster);
    keep(&mut cluster);
    assert_eq!(cluster.tables.start(), FoundTables::Ours);
    remove_all(&mut cluster);
    assert_eq!(unassigned_connections(&cluster.tables.published), BTreeMap::new());
}

/// An endpoint on this node itself, with the node's network, is reached by another way through the kernel than Pods.
/// Connections from Pods, from outside and from the node are counted, once; and clients stay with it that are to.
#[test]
fn endpoints_with_the_nodes_network_are_counted_and_remembered() {
    let mut cluster = cluster();
    let host = cluster.n1.clone();
    for v6 in FAMILIES {
        let server = Server::both(&host.namespace, "host", at(host.address(v6), 8080)).unwrap();
        cluster.servers.push(server);
    }
    let offer = |cluster: &mut TwoNodeCluster, also_there: bool| {
        for v6 in FAMILIES {
            let mut members = vec![endpoint(host.address(v6), "n1", "a")];
            if also_there {
                members.push(endpoint(cluster.there.address(v6), "n2", "b"));
            }
            let object = slice("web", &format!("web-{}", u8::from(v6)), &members);
            cluster.tables.slice(&both_protocols(object));
        }
        cluster.tables.sync();
    };
    cluster.tables.service(&full("web", 1, json!({"sessionAffinity": "ClientIP"})));
    offer(&mut cluster, false);
    let mut clients = Clients::default();
    for also_there in [false, true] {
        offer(&mut cluster, also_there);
        for v6 in FAMILIES {
            clients.connect("web", &cluster.caller.namespace, cluster_ip(1, v6), 10);
            clients.connect("web", &host.namespace, cluster_ip(1, v6), 2);
            let outside = &cluster.client.namespace;
            clients.connect("web", outside, node_port(&host, 1, v6), 10);
            clients.connect("web", outside, vip(1, v6), 10);
        }
    }
    // All clients stay with the only endpoint that there was at first.
    let all = 2 * 2 * (10 + 2 + 10 + 10) * 2;
    assert_eq!(clients.0, sums(&[("a", "web", all)]));
    assert_eq!(counted(&cluster), clients.0);
    cluster.tables.assert_repaired();
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
    cluster.tables.assert_repaired();
    cluster.tables.kernel.remove_unused().unwrap();
    cluster.tables.kernel.remove_counters(&BTreeSet::new()).unwrap();
    cluster.tables.assert_repaired();
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
    let expected = [(("a".to_owned(), "too_many_services"), u64::from(MORE) + 1)].into();
    assert_eq!(together(), expected);
    cluster.answers(&cluster.caller.namespace, cluster_ip(1, false), 2);
    assert_eq!(counted(&cluster), sums(&[("a", "flood", all), ("a", "web", 3)]));
    assert_eq!(together(), expected);
}
