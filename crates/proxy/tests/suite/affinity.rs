//! Session affinity when clients are many: each Service has a map of its own, and no change waits for it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::time::Duration;

use crate::common::clients::{count, fill, maps, sticky};
use crate::common::objects::{endpoint, service, slice, with};
use crate::common::two_nodes::{TwoNodeCluster, both_protocols, by_range, cluster_ip, full};
use crate::common::{Tables, ip, nft, usual_node};
use serde_json::json;
use zonewise_netns::Namespace;
use zonewise_proxy::testing::{Kept, Options};
use zonewise_routing::NodeLocation;

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
