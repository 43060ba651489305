//! Session affinity when clients are many: each Service has a map of its own, and no change waits for it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::common::objects::{endpoint, service, slice, with};
use crate::common::two_nodes::{TwoNodeCluster, both_protocols, by_range, cluster_ip, full};
use crate::common::{Tables, ip, nft, usual_node};
use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_nft::{Batch, Bytes, Data, Element, Family, Socket, Verb};
use zonewise_proxy::testing::{CLIENTS, Kept, Options, TABLE};
use zonewise_routing::NodeLocation;

fn sticky() -> Value {
    json!({"sessionAffinity": "ClientIP"})
}

/// The maps of clients, by name.
fn maps(namespace: &Namespace) -> Vec<String> {
    let listed = nft(namespace, &["list", "maps", "ip"]);
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("map "));
    let names = names.filter_map(|line| line.split(' ').next());
    names.filter(|name| name.starts_with("affinity-")).map(str::to_owned).collect()
}

/// How many clients a map has.
fn count(namespace: &Namespace, map: &str) -> usize {
    let mut keys = BTreeSet::new();
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let mut note = |seen: zonewise_nft::DumpedElement<'_>| {
            keys.insert(Bytes::from_slice(seen.key));
        };
        socket.dump(Family::Ip, TABLE, map, &mut note).unwrap();
    });
    keys.len()
}

/// Puts clients into a map, as packets from so many addresses would. The table has no owner, so that this test can.
fn fill(namespace: &Namespace, map: &str, clients: u32, at: IpAddr, endpoint: IpAddr) {
    let data = Bytes::new().address(endpoint).port(8080);
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let all: Vec<u32> = (0..clients).collect();
        for portion in all.chunks(5000) {
            let mut batch = Batch::new(TABLE);
            let mut elements = batch.elements(Verb::Add, Family::Ip, map);
            for number in portion {
                let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + number);
                let key = Bytes::new().address(client.into()).address(at).protocol(6).port(80);
                let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
                elements.push(&Element { timeout: Some(Duration::from_secs(9000)), ..element });
            }
            drop(elements);
            socket.commit(&batch).unwrap();
        }
    });
}

/// Clients of one Service fill its map: further clients are served without affinity, and those of other Services with
/// it. When the proxy looks at the map it makes room.
#[test]
fn clients_of_one_service_fill_no_other_map() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.tables.kernel.without_owner();
    cluster.offer(&full("flooded", 1, sticky()));
    cluster.tables.sync();
    let namespace = cluster.n1.namespace.clone();
    let [flooded] = <[String; 1]>::try_from(maps(&namespace)).unwrap();
    fill(&namespace, &flooded, CLIENTS, cluster_ip(1, false).ip(), cluster.here.address(false));
    cluster.offer(&full("calm", 2, sticky()));
    cluster.tables.sync();
    assert_eq!(maps(&namespace).len(), 2);
    let caller = cluster.caller.namespace.clone();
    let without = cluster.answers(&caller, cluster_ip(1, false), 24).text();
    assert_eq!(without, "here there", "there is no room for this client");
    let with = cluster.answers(&caller, cluster_ip(2, false), 24).text();
    assert!(["here", "there"].contains(&&*with), "{with}");
    cluster.tables.kernel.look_at_all_clients();
    cluster.tables.forget_clients();
    let left = count(&namespace, &flooded);
    assert!((CLIENTS as usize / 2..CLIENTS as usize / 10 * 9).contains(&left), "{left}");
    let with = cluster.answers(&caller, cluster_ip(1, false), 24).text();
    assert!(["here", "there"].contains(&&*with), "there is room now: {with}");
}

/// An endpoint with many clients goes: they are forgotten a portion at a time, and other Services change in between.
#[test]
fn clients_are_forgotten_in_portions() {
    let namespace = Namespace::new("portions").unwrap();
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    let location = NodeLocation::new("n1", Some("a"), None);
    let mut tables = Tables::new(&namespace, location, Options::default(), node);
    tables.kernel.without_owner();
    let pods = [ip("10.244.0.1"), ip("10.244.0.2")];
    let members = pods.map(|pod| endpoint(pod, "n2", "b"));
    tables
        .service(&with(service("web", &["10.96.0.1"]), sticky()))
        .slice(&slice("web", "web-1", &members))
        .sync();
    tables.forget_clients();
    let [map] = <[String; 1]>::try_from(maps(&namespace)).unwrap();
    fill(&namespace, &map, 9000, ip("10.96.0.1"), pods[0]);
    fill(&namespace, &map, 10, ip("10.96.0.99"), pods[1]);
    tables.slice(&slice("web", "web-1", &members[1..])).sync();
    let mut steps = 0_u8;
    while namespace.enter(|| tables.kernel.keep_clients(Duration::ZERO)).unwrap() != Kept::Done {
        steps += 1;
        let name = format!("other{steps}");
        tables.service(&service(&name, &[&format!("10.96.1.{steps}")])).sync();
    }
    assert!(steps > 20, "{steps}");
    assert_eq!(
        count(&namespace, &map),
        0,
        "and those at an address that the Service does not have"
    );
    tables.kernel.remove_unused().unwrap();
    tables.assert_repaired();
}

/// The map comes and goes with the affinity of the Service, a restart keeps it with its clients, and a map that
/// belongs to no Service is removed.
#[test]
fn maps_come_and_go_with_their_services() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.tables.kernel.without_owner();
    let namespace = cluster.n1.namespace.clone();
    cluster.offer(&full("web", 1, sticky()));
    cluster.tables.sync().assert_repaired();
    let caller = cluster.caller.namespace.clone();
    let stays = cluster.answers(&caller, cluster_ip(1, false), 1).text();
    let [map] = <[String; 1]>::try_from(maps(&namespace)).unwrap();
    let node = usual_node([Some(cluster.n1.address(false)), Some(cluster.n1.address(true))]);
    let location = NodeLocation::new("n1", Some("a"), None);
    cluster.tables = Tables::new(&namespace, location, by_range(), node);
    cluster.tables.kernel.without_owner();
    cluster.offer(&full("web", 1, sticky()));
    cluster.tables.start();
    cluster.tables.forget_clients();
    assert_eq!(cluster.answers(&caller, cluster_ip(1, false), 24).text(), stays);
    cluster.tables.service(&full("web", 1, json!({}))).sync().kernel.remove_unused().unwrap();
    assert_eq!(maps(&namespace), [""; 0]);
    assert_eq!(cluster.answers(&caller, cluster_ip(1, false), 24).text(), "here there");
    cluster.tables.service(&full("web", 1, sticky())).sync().assert_repaired();
    assert_eq!(maps(&namespace), [&*map]);
    let kind =
        "{ type ipv4_addr . ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }";
    nft(&namespace, &["add", "map", "ip", "zonewise", "affinity-0123456789abcdef", kind]);
    cluster.tables.kernel.restore().unwrap();
    cluster.tables.kernel.remove_unused().unwrap();
    assert_eq!(maps(&namespace), [&*map]);
    let members = both_protocols(slice("web", "web-0", &[]));
    cluster.tables.slice(&members).delete_service("ns", "web").sync();
    cluster.tables.kernel.remove_unused().unwrap();
    assert_eq!(maps(&namespace), [""; 0]);
    cluster.tables.assert_repaired();
}
