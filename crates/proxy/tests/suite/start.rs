//! The start of the proxy: what it does in which order, and tables that are written while the lists arrive.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::net::SocketAddr;

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_netns::traffic::{ProbeResult, Protocol, probe_from};
use zonewise_proxy::Timeline;
use zonewise_proxy::testing::{FoundTables, Options, programmed_service};
use zonewise_routing::NodeLocation;
use zonewise_testbed::{Cluster, User, eventually, eventually_equals, objects};

use crate::common::live::{Api, LiveNetwork, LiveProxy, slice_of};
use crate::common::objects::{endpoint, service, slice};
use crate::common::roles::apply_roles;
use crate::common::{PROBE_TIMEOUT, Tables, ip, nft, usual_node};

/// More Services than are written at a time.
const MANY: usize = 700;

/// A Service without a selector, at a fixed address.
fn fixed(name: &str, address: &str) -> Value {
    let mut service = objects::service("default", name, name);
    service["spec"].as_object_mut().unwrap().remove("selector");
    service["spec"]["clusterIP"] = json!(address);
    service
}

/// The phases of a start are known in the order in which they began: lists before rules, base chains last. With so many
/// Services some are written while the lists arrive, if those of Services and of slices arrive at the same time.
#[test]
fn the_start_with_many_services_is_a_timeline() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let cluster = Cluster::start().await.unwrap();
        apply_roles(&cluster).await;
        let name = |number: usize| format!("s-{number:04}");
        let address = |number: usize| format!("10.96.{}.{}", 1 + number / 250, 1 + number % 250);
        let services: Vec<Value> = (0..MANY).map(|n| fixed(&name(n), &address(n))).collect();
        let pod =
            |number: usize| if number.is_multiple_of(2) { &network.here } else { &network.there };
        let slices: Vec<Value> =
            (0..MANY).map(|n| slice_of(&name(n), &name(n), &[pod(n)], false)).collect();
        cluster.create(&[network.n1_object()]).await.unwrap();
        cluster.create(&services).await.unwrap();
        cluster.create(&slices).await.unwrap();

        let timeline = Timeline::default();
        let proxy = LiveProxy::start_noting(cluster.client(User::Proxy).unwrap(), timeline.clone());
        for number in [0, 1, MANY / 2, MANY - 1] {
            let to = SocketAddr::new(ip(&address(number)), 80);
            network.answers_at_last(to, &pod(number).name).await;
        }
        let phases = eventually(async || match timeline.phases() {
            phases if phases.is_empty() => Err("the start is not over".to_owned()),
            phases => Ok(phases),
        })
        .await;
        let at = |what: &str| phases.iter().position(|phase| phase.starts_with(what));
        let order = [
            "other proxies",
            "servers of health checks and metrics",
            "list services: 701 objects, the first after ",
            "list endpointslices: ",
            "rules of all other Services, and base chains",
            "flows, health checks and the report",
        ];
        let places: Vec<_> = order.map(|what| at(what).ok_or(what)).into_iter().collect();
        assert!(places.iter().all(Result::is_ok) && places.is_sorted(), "{places:?} {phases:#?}");
        proxy.stop().await;
    });
}

/// A client whose first packet came before there were rules sends it again, from the same port. conntrack knows the
/// connection by then, and would leave its destination as it was for as long as the client tries.
#[test]
fn connections_that_began_before_the_rules_reach_an_endpoint() {
    let network = LiveNetwork::new();
    network.on_n1(async || {
        let api = Api::start().await;
        api.objects.create(&[network.n1_object()]).await.unwrap();
        let web = api.add_service("web").await;
        api.objects.create(&[slice_of("web", "web-1", &[&network.here], false)]).await.unwrap();
        // As on a node where other programs have rules: without any the kernel tracks no connections.
        let node = &network.n1.namespace;
        let tracking = "add table ip others; \
            add chain ip others forwarded { type filter hook forward priority 0; }; \
            add rule ip others forwarded ct state new counter";
        nft(node, &[tracking]);
        let later: SocketAddr = "10.96.0.77:80".parse().unwrap();
        let source = SocketAddr::new(network.caller.address(false), 40_001);
        let probe = |to| {
            let from = &network.caller.namespace;
            probe_from(from, Protocol::Tcp, source, to, PROBE_TIMEOUT)
        };
        assert_eq!([web, later].map(probe), [ProbeResult::Silent, ProbeResult::Silent]);

        let proxy = LiveProxy::start(&api);
        network.answers_at_last(web, "here").await;
        let (service, slice) =
            (fixed("later", "10.96.0.77"), slice_of("later", "later-1", &[&network.here], false));
        api.objects.create(&[service, slice]).await.unwrap();
        network.answers_at_last(later, "here").await;
        let answer = ProbeResult::answered_by("here", network.caller.address(false));
        eventually_equals("the same port", [answer.clone(), answer.clone()], || {
            [web, later].map(probe)
        })
        .await;
        proxy.stop().await;
    });
}

fn tables(namespace: &Namespace) -> Tables {
    let node = usual_node([Some(ip("192.168.0.1")), Some(ip("fd00::1"))]);
    let location = NodeLocation::new("n1", Some("a"), None);
    Tables::new(namespace, location, Options::default(), node)
}

/// Notes a Service with one endpoint, whose last number this is.
fn note(tables: &mut Tables, name: &str, number: u8) {
    let endpoints = [endpoint(ip(&format!("10.244.1.{number}")), "n1", "a")];
    let object = service(name, &[&format!("10.96.0.{number}")]);
    tables.service(&object).slice(&slice(name, name, &endpoints));
}

/// What is to be written of the Services that have changed.
fn add(tables: &mut Tables, complete: bool) {
    let changes = tables.index.take_changes();
    let of = |key| {
        let programmed = programmed_service(&tables.index, &tables.reader, &tables.gates, &key);
        (key, programmed)
    };
    let updates = changes.services.into_iter().map(of).collect();
    match complete {
        true => tables.kernel.complete(updates).unwrap(),
        false => tables.kernel.add(updates).unwrap(),
    }
}

fn hooks(namespace: &Namespace) -> usize {
    nft(namespace, &["list", "chains"]).matches(" hook ").count()
}

/// No packet enters tables that are written in parts before all is there; then they are what they would be if written at
/// once.
#[test]
fn tables_that_are_written_in_parts_have_no_hooks_before_their_end() {
    let namespace = Namespace::new("parts").unwrap();
    let mut first = tables(&namespace);
    assert!(first.kernel.begin(Vec::new()).unwrap());
    note(&mut first, "one", 1);
    add(&mut first, false);
    assert_eq!(hooks(&namespace), 0);
    // What has been written may change before the end.
    note(&mut first, "one", 7);
    note(&mut first, "two", 2);
    add(&mut first, false);
    assert_eq!(hooks(&namespace), 0);
    note(&mut first, "three", 3);
    add(&mut first, true);
    assert!(hooks(&namespace) > 0);
    first.kernel.remove_unused().unwrap();
    first.assert_repaired();

    let mut second = tables(&namespace);
    assert!(
        !second.kernel.begin(Vec::new()).unwrap(),
        "there are tables: nothing is written in parts"
    );
}

/// A process that ends in the middle leaves tables that no packet enters, and the next one completes them.
#[test]
fn tables_that_were_left_in_the_middle_are_completed_by_the_next_process() {
    let namespace = Namespace::new("middle").unwrap();
    let mut first = tables(&namespace);
    assert!(first.kernel.begin(Vec::new()).unwrap());
    note(&mut first, "one", 1);
    add(&mut first, false);
    drop(first);
    let mut second = tables(&namespace);
    note(&mut second, "one", 1);
    note(&mut second, "two", 2);
    assert_eq!(second.start(), FoundTables::Ours);
    assert!(hooks(&namespace) > 0);
    second.assert_repaired();
}
