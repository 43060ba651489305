//! Two nodes in two zones, their pods, and clients: what is reachable from where, and which source
//! address a server sees.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zonewise_common::cidr::Cidr;
use zonewise_netns::traffic::{
    OpenConnection, ProbeResult, Protocol, Server, probe_from, probe_tcp, probe_tcp_many,
    probe_udp, probe_udp_many,
};
use zonewise_netns::{ClusterNetwork, Namespace, NetnsClient, NetnsNode, NetnsPod};

/// Long enough for a busy machine: a probe only waits this long when nothing answers.
const LONG: Duration = Duration::from_secs(5);
/// For probes that are expected to get no answer.
const SHORT: Duration = Duration::from_millis(300);
const PORT: u16 = 8080;

struct TwoNodeCluster {
    network: ClusterNetwork,
    one: NetnsNode,
    two: NetnsNode,
    web: NetnsPod,
    near: NetnsPod,
    far: NetnsPod,
    client: NetnsClient,
}

fn two_nodes() -> TwoNodeCluster {
    let mut network = ClusterNetwork::new().unwrap();
    let one = network.add_node("one", "a").unwrap();
    let two = network.add_node("two", "b").unwrap();
    let web = network.add_pod(&one, "web").unwrap();
    let near = network.add_pod(&one, "near").unwrap();
    let far = network.add_pod(&two, "far").unwrap();
    let client = network.add_client("client").unwrap();
    TwoNodeCluster { network, one, two, web, near, far, client }
}

fn on(address: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(address.into(), PORT)
}

#[test]
fn names_and_addresses_follow_the_numbers() {
    let cluster = two_nodes();
    let node = |n: &NetnsNode| format!("{} {} {} {} {}", n.name, n.zone, n.v4, n.v6, n.pods_v4);
    let pod = |p: &NetnsPod| {
        format!("{} {} {} {} {} {}", p.name, p.node, p.zone, p.v4, p.v6, p.interface)
    };
    assert_eq!(
        cluster.network.nodes().iter().map(node).collect::<Vec<_>>(),
        [
            "one a 192.168.0.1 fd00:192:168::1 10.244.1.0/24",
            "two b 192.168.0.2 fd00:192:168::2 10.244.2.0/24",
        ]
    );
    assert_eq!(
        [&cluster.web, &cluster.near, &cluster.far].map(pod),
        [
            "web one a 10.244.1.2 fd00:10:244:1::2 veth-web",
            "near one a 10.244.1.3 fd00:10:244:1::3 veth-near",
            "far two b 10.244.2.2 fd00:10:244:2::2 veth-far",
        ]
    );
    assert_eq!(
        (cluster.client.v4, cluster.client.v6),
        ("203.0.113.1".parse().unwrap(), "2001:db8::1".parse().unwrap())
    );
}

#[test]
fn pods_are_reachable_from_everywhere_and_see_the_real_source() {
    let cluster = two_nodes();
    for v6 in [false, true] {
        let to = on(cluster.web.address(v6));
        let server = Server::both(&cluster.web.namespace, "web", to).unwrap();
        let callers: [(&Namespace, IpAddr); 6] = [
            (&cluster.web.namespace, cluster.web.address(v6)),
            (&cluster.near.namespace, cluster.near.address(v6)),
            (&cluster.far.namespace, cluster.far.address(v6)),
            (&cluster.one.namespace, cluster.one.address(v6)),
            (&cluster.two.namespace, cluster.two.address(v6)),
            (&cluster.client.namespace, cluster.client.address(v6)),
        ];
        for (namespace, source) in callers {
            let expected = ProbeResult::answered_by("web", source);
            assert_eq!(probe_tcp(namespace, to, LONG), expected, "TCP from {namespace:?}");
            assert_eq!(probe_udp(namespace, to, LONG), expected, "UDP from {namespace:?}");
        }
        assert_eq!(server.count(), 2 * callers.len());
    }
}

#[test]
fn nodes_are_reachable_from_everywhere() {
    let cluster = two_nodes();
    for v6 in [false, true] {
        let to = on(cluster.two.address(v6));
        let _server = Server::tcp(&cluster.two.namespace, "node two", to).unwrap();
        for (namespace, source) in [
            (&cluster.client.namespace, cluster.client.address(v6)),
            (&cluster.one.namespace, cluster.one.address(v6)),
            (&cluster.web.namespace, cluster.web.address(v6)),
            (&cluster.far.namespace, cluster.far.address(v6)),
        ] {
            assert_eq!(
                probe_tcp(namespace, to, LONG),
                ProbeResult::answered_by("node two", source)
            );
        }
    }
}

#[test]
fn a_closed_port_refuses_and_an_unknown_address_is_silent() {
    let cluster = two_nodes();
    let from = &cluster.client.namespace;
    for v6 in [false, true] {
        let closed = on(cluster.web.address(v6));
        assert_eq!(probe_tcp(from, closed, LONG), ProbeResult::Refused);
        assert_eq!(probe_udp(from, closed, LONG), ProbeResult::Refused);
        let unknown = on(if v6 { "fd00:10:96::1" } else { "10.96.0.1" }.parse::<IpAddr>().unwrap());
        assert_eq!(probe_tcp(from, unknown, SHORT), ProbeResult::Silent);
        assert_eq!(probe_udp(from, unknown, SHORT), ProbeResult::Silent);
    }
}

/// With the kernel's default limit, "rejected" would look like "dropped" after the first few.
#[test]
fn refusals_are_not_rate_limited() {
    let cluster = two_nodes();
    for v6 in [false, true] {
        let closed = on(cluster.web.address(v6));
        assert_eq!(
            probe_udp_many(&cluster.client.namespace, closed, 100, LONG),
            BTreeMap::from([("refused".to_owned(), 100)])
        );
    }
}

#[test]
fn a_client_sends_a_network_through_the_node_it_chose() {
    let mut cluster = two_nodes();
    let other = cluster.network.add_client("other").unwrap();
    for (v6, vip, network) in
        [(false, "10.96.0.1", "10.96.0.0/16"), (true, "fd00:10:96::1", "fd00:10:96::/112")]
    {
        let vip: IpAddr = vip.parse().unwrap();
        let network = Cidr::parse(network).unwrap();
        let mut servers = Vec::new();
        for node in [&cluster.one, &cluster.two] {
            node.namespace.add_address("lo", vip, if v6 { 128 } else { 32 }).unwrap();
            servers.push(Server::tcp(&node.namespace, &node.name, on(vip)).unwrap());
        }
        let ask = |client: &NetnsClient| probe_tcp(&client.namespace, on(vip), LONG).to_string();
        cluster.client.route_via(network, &cluster.one).unwrap();
        other.route_via(network, &cluster.two).unwrap();
        assert_eq!([ask(&cluster.client), ask(&other)], ["one", "two"]);

        cluster.client.route_via(network, &cluster.two).unwrap();
        assert_eq!(ask(&cluster.client), "two");
        cluster.client.delete_route_via(network).unwrap();
        assert_eq!(probe_tcp(&cluster.client.namespace, on(vip), SHORT), ProbeResult::Silent);
    }
}

#[test]
fn an_open_connection_lasts_as_long_as_its_server() {
    let cluster = two_nodes();
    let server = Server::both(&cluster.web.namespace, "web", on(cluster.web.v4)).unwrap();
    let from = &cluster.far.namespace;
    let expected = ProbeResult::answered_by("web", cluster.far.v4);
    let mut tcp = OpenConnection::tcp(from, server.address(), LONG).unwrap();
    let mut udp = OpenConnection::udp(from, server.address(), LONG).unwrap();
    for _ in 0..3 {
        assert_eq!([tcp.probe(), udp.probe()], [expected.clone(), expected.clone()]);
    }
    assert_eq!(server.count(), 4, "one connection, three datagrams");
    drop(server);
    assert!(matches!(tcp.probe(), ProbeResult::Other(..)), "the connection is closed");
    assert_eq!(udp.probe(), ProbeResult::Refused);
    assert_eq!(
        OpenConnection::tcp(from, on(cluster.web.v4), LONG).unwrap_err(),
        ProbeResult::Refused
    );
}

#[test]
fn a_chosen_source_is_used_again_and_again() {
    let cluster = two_nodes();
    for v6 in [false, true] {
        let server =
            Server::both(&cluster.web.namespace, "web", on(cluster.web.address(v6))).unwrap();
        let source = SocketAddr::new(cluster.client.address(v6), 4000);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for _ in 0..5 {
                let answer =
                    probe_from(&cluster.client.namespace, protocol, source, server.address(), LONG);
                assert_eq!(answer, ProbeResult::answered_by("web", source.ip()));
            }
        }
    }
}

#[test]
fn answers_are_counted_by_server() {
    let cluster = two_nodes();
    let server = Server::both(&cluster.web.namespace, "web", on(cluster.web.v4)).unwrap();
    let all = BTreeMap::from([("web".to_owned(), 50)]);
    assert_eq!(probe_tcp_many(&cluster.far.namespace, server.address(), 50, LONG), all);
    assert_eq!(probe_udp_many(&cluster.far.namespace, server.address(), 50, LONG), all);
    assert_eq!(server.count(), 100);
}

#[test]
fn a_server_frees_its_port_at_once() {
    let cluster = two_nodes();
    for name in ["first", "second", "third"] {
        let server = Server::both(&cluster.web.namespace, name, on(cluster.web.v4)).unwrap();
        assert_eq!(probe_tcp(&cluster.far.namespace, server.address(), LONG).name(), Some(name));
    }
}

#[test]
fn a_disconnected_node_is_silent_until_it_is_reconnected() {
    let cluster = two_nodes();
    for v6 in [false, true] {
        let server =
            Server::udp(&cluster.far.namespace, "far", on(cluster.far.address(v6))).unwrap();
        let ask =
            |patience| probe_udp(&cluster.client.namespace, server.address(), patience).to_string();
        assert_eq!(ask(LONG), "far");
        cluster.network.disconnect(&cluster.two).unwrap();
        assert_eq!(ask(SHORT), "silent");
        cluster.network.reconnect(&cluster.two).unwrap();
        assert_eq!(ask(LONG), "far");
    }
}

#[test]
fn a_removed_pod_is_gone_and_another_comes() {
    let TwoNodeCluster { mut network, one, web, far, .. } = two_nodes();
    let old = web.v4;
    let links = || one.namespace.links().unwrap().into_iter().map(|l| l.name).collect::<Vec<_>>();
    assert_eq!(links(), ["lo", "eth0", "veth-web", "veth-near"]);
    network.remove_pod(&web).unwrap();
    assert_eq!(network.pods().iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["near", "far"]);
    assert_eq!(links(), ["lo", "eth0", "veth-near"]);

    let again = network.add_pod(&one, "web").unwrap();
    assert_ne!(again.v4, old, "a freed address is not reused at once");
    let server = Server::tcp(&again.namespace, "again", on(again.v4)).unwrap();
    assert_eq!(probe_tcp(&far.namespace, server.address(), LONG).name(), Some("again"));
}

#[test]
fn a_long_name_gets_a_short_interface() {
    let mut cluster = two_nodes();
    let long = "a-name-that-no-interface-can-have";
    let pod = cluster.network.add_pod(&cluster.one, long).unwrap();
    assert_eq!((pod.name.as_str(), pod.interface.as_str()), (long, "veth-p4"));
    let server = Server::tcp(&pod.namespace, "long", on(pod.v6)).unwrap();
    assert_eq!(probe_tcp(&cluster.far.namespace, server.address(), LONG).name(), Some("long"));
}

#[test]
fn a_client_may_choose_any_free_address() {
    let mut cluster = two_nodes();
    let far = cluster.network.add_client_at("far out", 200).unwrap();
    assert_eq!(far.v4.to_string(), "203.0.113.200");
    for (host, text) in [
        (200, "203.0.113.200 is in use or is not a host address"),
        (0, "203.0.113.0 is in use or is not a host address"),
    ] {
        assert_eq!(cluster.network.add_client_at("again", host).unwrap_err().to_string(), text);
    }
}

#[test]
fn eight_networks_side_by_side() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cluster = two_nodes();
                let server =
                    Server::tcp(&cluster.web.namespace, "web", on(cluster.web.v6)).unwrap();
                let answer = probe_tcp(&cluster.client.namespace, server.address(), LONG);
                assert_eq!(answer, ProbeResult::answered_by("web", cluster.client.v6));
                assert_eq!(server.count(), 1, "nobody from another network came");
            });
        }
    });
}
