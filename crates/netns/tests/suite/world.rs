//! Two nodes in two zones, their pods, and clients: who reaches whom, and who is seen.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zonewise_netns::traffic::{
    Answer, Held, Protocol, Server, ask_from, ask_many, ask_many_udp, ask_tcp, ask_udp,
};
use zonewise_netns::{Client, Namespace, Node, Pod, World};

/// Long enough for a busy machine: only silence waits for it.
const PATIENT: Duration = Duration::from_secs(5);
/// For what is expected to be silent.
const SHORT: Duration = Duration::from_millis(300);
const PORT: u16 = 8080;

struct Town {
    world: World,
    one: Node,
    two: Node,
    web: Pod,
    near: Pod,
    far: Pod,
    client: Client,
}

fn town() -> Town {
    let mut world = World::new().unwrap();
    let one = world.node("one", "a").unwrap();
    let two = world.node("two", "b").unwrap();
    let web = world.pod(&one, "web").unwrap();
    let near = world.pod(&one, "near").unwrap();
    let far = world.pod(&two, "far").unwrap();
    let client = world.client("client").unwrap();
    Town { world, one, two, web, near, far, client }
}

fn on(address: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(address.into(), PORT)
}

#[test]
fn names_and_addresses_follow_the_numbers() {
    let town = town();
    let node = |n: &Node| format!("{} {} {} {} {:?}", n.name, n.zone, n.v4, n.v6, n.pods_v4);
    let pod =
        |p: &Pod| format!("{} {} {} {} {} {}", p.name, p.node, p.zone, p.v4, p.v6, p.interface);
    assert_eq!(
        town.world.nodes().iter().map(node).collect::<Vec<_>>(),
        [
            "one a 192.168.0.1 fd00:192:168::1 (10.244.1.0, 24)",
            "two b 192.168.0.2 fd00:192:168::2 (10.244.2.0, 24)",
        ]
    );
    assert_eq!(
        [&town.web, &town.near, &town.far].map(pod),
        [
            "web one a 10.244.1.2 fd00:10:244:1::2 veth-web",
            "near one a 10.244.1.3 fd00:10:244:1::3 veth-near",
            "far two b 10.244.2.2 fd00:10:244:2::2 veth-far",
        ]
    );
    assert_eq!(
        (town.client.v4, town.client.v6),
        ("203.0.113.1".parse().unwrap(), "2001:db8::1".parse().unwrap())
    );
}

#[test]
fn everybody_reaches_a_pod_and_is_seen_with_its_own_address() {
    let town = town();
    for v6 in [false, true] {
        let to = on(town.web.address(v6));
        let server = Server::both(&town.web.namespace, "web", to).unwrap();
        let callers: [(&Namespace, IpAddr); 6] = [
            (&town.web.namespace, town.web.address(v6)),
            (&town.near.namespace, town.near.address(v6)),
            (&town.far.namespace, town.far.address(v6)),
            (&town.one.namespace, town.one.address(v6)),
            (&town.two.namespace, town.two.address(v6)),
            (&town.client.namespace, town.client.address(v6)),
        ];
        for (namespace, source) in callers {
            let expected = Answer::by("web", source);
            assert_eq!(ask_tcp(namespace, to, PATIENT), expected, "TCP from {namespace:?}");
            assert_eq!(ask_udp(namespace, to, PATIENT), expected, "UDP from {namespace:?}");
        }
        assert_eq!(server.count(), 2 * callers.len());
    }
}

#[test]
fn everybody_reaches_a_node() {
    let town = town();
    for v6 in [false, true] {
        let to = on(town.two.address(v6));
        let _server = Server::tcp(&town.two.namespace, "node two", to).unwrap();
        for (namespace, source) in [
            (&town.client.namespace, town.client.address(v6)),
            (&town.one.namespace, town.one.address(v6)),
            (&town.web.namespace, town.web.address(v6)),
            (&town.far.namespace, town.far.address(v6)),
        ] {
            assert_eq!(ask_tcp(namespace, to, PATIENT), Answer::by("node two", source));
        }
    }
}

#[test]
fn a_closed_port_refuses_and_an_unknown_address_is_silent() {
    let town = town();
    let from = &town.client.namespace;
    for v6 in [false, true] {
        let closed = on(town.web.address(v6));
        assert_eq!(ask_tcp(from, closed, PATIENT), Answer::Refused);
        assert_eq!(ask_udp(from, closed, PATIENT), Answer::Refused);
        let nobody = on(if v6 { "fd00:10:96::1" } else { "10.96.0.1" }.parse::<IpAddr>().unwrap());
        assert_eq!(ask_tcp(from, nobody, SHORT), Answer::Silent);
        assert_eq!(ask_udp(from, nobody, SHORT), Answer::Silent);
    }
}

/// Without this, "rejected" would look like "dropped" after the first few.
#[test]
fn refusals_are_not_rationed() {
    let town = town();
    for v6 in [false, true] {
        let closed = on(town.web.address(v6));
        assert_eq!(
            ask_many_udp(&town.client.namespace, closed, 100, PATIENT),
            BTreeMap::from([("refused".to_owned(), 100)])
        );
    }
}

#[test]
fn a_client_sends_a_network_through_the_node_it_chose() {
    let mut town = town();
    let other = town.world.client("other").unwrap();
    for (v6, vip, network) in
        [(false, "10.96.0.1", "10.96.0.0"), (true, "fd00:10:96::1", "fd00:10:96::")]
    {
        let vip: IpAddr = vip.parse().unwrap();
        let network = (network.parse().unwrap(), if v6 { 112 } else { 16 });
        let mut servers = Vec::new();
        for node in [&town.one, &town.two] {
            node.namespace.add_address("lo", vip, if v6 { 128 } else { 32 }).unwrap();
            servers.push(Server::tcp(&node.namespace, &node.name, on(vip)).unwrap());
        }
        let ask = |client: &Client| ask_tcp(&client.namespace, on(vip), PATIENT).to_string();
        town.client.route_via(network, &town.one).unwrap();
        other.route_via(network, &town.two).unwrap();
        assert_eq!([ask(&town.client), ask(&other)], ["one", "two"]);

        town.client.route_via(network, &town.two).unwrap();
        assert_eq!(ask(&town.client), "two");
        town.client.forget_route(network).unwrap();
        assert_eq!(ask_tcp(&town.client.namespace, on(vip), SHORT), Answer::Silent);
    }
}

#[test]
fn a_held_connection_goes_on_and_ends_with_its_server() {
    let town = town();
    let server = Server::both(&town.web.namespace, "web", on(town.web.v4)).unwrap();
    let from = &town.far.namespace;
    let expected = Answer::by("web", town.far.v4);
    let mut tcp = Held::tcp(from, server.address(), PATIENT).unwrap();
    let mut udp = Held::udp(from, server.address(), PATIENT).unwrap();
    for _ in 0..3 {
        assert_eq!([tcp.ask(), udp.ask()], [expected.clone(), expected.clone()]);
    }
    assert_eq!(server.count(), 4, "one connection, three datagrams");
    drop(server);
    assert!(matches!(tcp.ask(), Answer::Other(..)), "the connection is closed");
    assert_eq!(udp.ask(), Answer::Refused);
    assert_eq!(Held::tcp(from, on(town.web.v4), PATIENT).unwrap_err(), Answer::Refused);
}

#[test]
fn a_chosen_source_is_used_again_and_again() {
    let town = town();
    for v6 in [false, true] {
        let server = Server::both(&town.web.namespace, "web", on(town.web.address(v6))).unwrap();
        let source = SocketAddr::new(town.client.address(v6), 4000);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for _ in 0..5 {
                let answer =
                    ask_from(&town.client.namespace, protocol, source, server.address(), PATIENT);
                assert_eq!(answer, Answer::by("web", source.ip()));
            }
        }
    }
}

#[test]
fn answers_are_counted_by_server() {
    let town = town();
    let server = Server::both(&town.web.namespace, "web", on(town.web.v4)).unwrap();
    let all = BTreeMap::from([("web".to_owned(), 50)]);
    assert_eq!(ask_many(&town.far.namespace, server.address(), 50, PATIENT), all);
    assert_eq!(ask_many_udp(&town.far.namespace, server.address(), 50, PATIENT), all);
    assert_eq!(server.count(), 100);
}

#[test]
fn a_server_frees_its_port_at_once() {
    let town = town();
    for name in ["first", "second", "third"] {
        let server = Server::both(&town.web.namespace, name, on(town.web.v4)).unwrap();
        assert_eq!(ask_tcp(&town.far.namespace, server.address(), PATIENT).name(), Some(name));
    }
}

#[test]
fn a_cut_node_is_silent_until_it_is_mended() {
    let town = town();
    for v6 in [false, true] {
        let server = Server::udp(&town.far.namespace, "far", on(town.far.address(v6))).unwrap();
        let ask =
            |patience| ask_udp(&town.client.namespace, server.address(), patience).to_string();
        assert_eq!(ask(PATIENT), "far");
        town.world.cut(&town.two).unwrap();
        assert_eq!(ask(SHORT), "silent");
        town.world.mend(&town.two).unwrap();
        assert_eq!(ask(PATIENT), "far");
    }
}

#[test]
fn a_removed_pod_is_gone_and_another_comes() {
    let Town { mut world, one, web, far, .. } = town();
    let old = web.v4;
    let links = || one.namespace.links().unwrap().into_iter().map(|l| l.name).collect::<Vec<_>>();
    assert_eq!(links(), ["lo", "eth0", "veth-web", "veth-near"]);
    world.remove(&web).unwrap();
    assert_eq!(world.pods().iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["near", "far"]);
    assert_eq!(links(), ["lo", "eth0", "veth-near"]);

    let again = world.pod(&one, "web").unwrap();
    assert_ne!(again.v4, old, "an address rests before it is given away again");
    let server = Server::tcp(&again.namespace, "again", on(again.v4)).unwrap();
    assert_eq!(ask_tcp(&far.namespace, server.address(), PATIENT).name(), Some("again"));
}

#[test]
fn a_long_name_gets_a_short_interface() {
    let mut town = town();
    let long = "a-name-that-no-interface-can-have";
    let pod = town.world.pod(&town.one, long).unwrap();
    assert_eq!((pod.name.as_str(), pod.interface.as_str()), (long, "veth-p4"));
    let server = Server::tcp(&pod.namespace, "long", on(pod.v6)).unwrap();
    assert_eq!(ask_tcp(&town.far.namespace, server.address(), PATIENT).name(), Some("long"));
}

#[test]
fn a_client_may_choose_its_address_but_not_somebody_elses() {
    let mut town = town();
    let far = town.world.client_at("far out", 200).unwrap();
    assert_eq!(far.v4.to_string(), "203.0.113.200");
    for (host, text) in [(200, "203.0.113.200 is taken"), (0, "203.0.113.0 is taken")] {
        assert_eq!(town.world.client_at("again", host).unwrap_err().to_string(), text);
    }
}

#[test]
fn eight_worlds_side_by_side() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let town = town();
                let server = Server::tcp(&town.web.namespace, "web", on(town.web.v6)).unwrap();
                let answer = ask_tcp(&town.client.namespace, server.address(), PATIENT);
                assert_eq!(answer, Answer::by("web", town.client.v6));
                assert_eq!(server.count(), 1, "nobody from another world came");
            });
        }
    });
}
