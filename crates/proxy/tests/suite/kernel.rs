//! What is in the kernel against what should be: round trips, incremental changes, repairing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeSet;

use crate::common::objects::{Endpoint, annotated, endpoint, service, slice, with, with_status};
use crate::common::{Tables, ip, nft, nft_json, usual_node};
use proptest::prelude::*;
use serde_json::json;
use zonewise_common::cidr::Cidr;
use zonewise_netns::Namespace;
use zonewise_proxy::config::CountBy;
use zonewise_proxy::testing::{FoundTables, LocalTraffic, Options, Repaired, text};
use zonewise_routing::NodeLocation;

fn everything() -> Options {
    Options {
        local: LocalTraffic::Cidrs(vec![
            Cidr::parse("10.244.0.0/16").unwrap(),
            Cidr::parse("fd00:10:244::/48").unwrap(),
        ]),
        nodeports_everywhere: [false, true],
        localhost_nodeports: true,
        count: CountBy::Services,
        ..Options::default()
    }
}

fn tables(namespace: &Namespace, options: Options) -> Tables {
    let node = usual_node([Some(ip("192.168.0.1")), Some(ip("fd00::1"))]);
    let mut tables =
        Tables::new(namespace, NodeLocation::new("n1", Some("a"), None), options, node);
    tables.ranges = vec![Cidr::parse("10.96.0.0/12").unwrap(), Cidr::parse("fd96::/108").unwrap()];
    tables
}

/// A Service that uses every kind of element there is.
pub(crate) fn all_of_a_service(tables: &mut Tables) {
    let object = with(
        service("all", &["10.96.0.10", "fd96::10"]),
        json!({
            "type": "LoadBalancer",
            "externalIPs": ["198.51.100.1", "2001:db8::1"],
            "externalTrafficPolicy": "Local",
            "loadBalancerSourceRanges": ["192.168.0.0/24", "203.0.113.0/25", "203.0.113.0/28", "2001:db8:1::/48"],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 30}},
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
                {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
                {"name": "assoc", "port": 99, "protocol": "SCTP"},
            ],
        }),
    );
    let object = with_status(
        object,
        json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}, {"ip": "2001:db8::9"}]}}),
    );
    let ports = [("http", 8080, "TCP"), ("dns", 5353, "UDP"), ("assoc", 99, "SCTP")];
    let four = [endpoint(ip("10.244.1.1"), "n1", "a"), endpoint(ip("10.244.2.1"), "n2", "b")];
    let six =
        [endpoint(ip("fd00:10:244:1::1"), "n1", "a"), endpoint(ip("fd00:10:244:2::1"), "n2", "b")];
    tables
        .service(&object)
        .slice(&crate::common::objects::ports(slice("all", "all-4", &four), &ports))
        .slice(&crate::common::objects::ports(slice("all", "all-6", &six), &ports));
}

/// Every rule and element we write can be listed by the program people debug with, and means there
/// what our own text says.
#[test]
fn what_we_wrote_is_what_nft_lists() {
    let namespace = Namespace::new("nft").unwrap();
    let mut tables = tables(&namespace, everything());
    all_of_a_service(&mut tables);
    tables.service(&service("none", &["10.96.0.11"])).sync();
    tables.assert_repaired();
    let counter = |zone| format!("zone-{}", tables.reader.zone_name(zone).unwrap());
    let ours = text::tables(tables.kernel.desired(), &tables.options, &tables.ranges, &counter);
    for family in ["ip", "ip6"] {
        let listed = nft(&namespace, &["list", "table", family, "zonewise"]);
        let document = nft_json(&namespace, &["list", "table", family, "zonewise"]);
        assert!(document["nftables"].as_array().unwrap().len() > 50);
        // Elements carry comments too, before a colon.
        let rules = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim).filter(|line| {
                !line.contains("\" : ") && (line.contains(" comment ") || line.contains("jump"))
            });
            lines.map(|line| line.split(" comment ").next().unwrap().to_owned()).collect()
        };
        let start = ours.find(&format!("table {family} ")).unwrap();
        let end = ours[start..].find("\n}\n").unwrap() + start;
        let (ours, listed): (BTreeSet<String>, BTreeSet<String>) =
            (rules(&ours[start..end]).into_iter().collect(), rules(&listed).into_iter().collect());
        let only_ours: Vec<_> = ours.difference(&listed).collect();
        assert!(
            only_ours.is_empty(),
            "{family}: not listed like this: {only_ours:#?}\nlisted: {listed:#?}"
        );
    }
}

/// A chain that the process before has left, and that is wanted again before it is swept.
#[test]
fn a_chain_that_is_used_again_is_not_swept() {
    let namespace = Namespace::new("again").unwrap();
    let with_endpoints = |tables: &mut Tables, count: u8| {
        let address = |number: u8| ip(&format!("10.244.1.{}", number + 1));
        let all: Vec<Endpoint> =
            (0..count).map(|number| endpoint(address(number), "n1", "a")).collect();
        tables.service(&service("web", &["10.96.0.10"])).slice(&slice("web", "web-4", &all));
    };
    let mut first = tables(&namespace, Options::default());
    with_endpoints(&mut first, 4);
    first.start();
    drop(first);
    let mut second = tables(&namespace, Options::default());
    with_endpoints(&mut second, 3);
    assert_eq!(second.start(), FoundTables::Ours);
    with_endpoints(&mut second, 4);
    second.sync();
    second.kernel.remove_unused().unwrap();
    second.assert_repaired();
}

/// B: a second process finds the table and writes nothing; other options replace it.
#[test]
fn a_restart_takes_over_and_an_upgrade_replaces() {
    let namespace = Namespace::new("takeover").unwrap();
    let mut first = tables(&namespace, everything());
    all_of_a_service(&mut first);
    assert_eq!(first.start(), FoundTables::Nothing);
    assert!(first.kernel.is_owned(), "this kernel knows owners");
    drop(first);
    let mut second = tables(&namespace, everything());
    all_of_a_service(&mut second);
    let generation = |namespace: &Namespace| {
        namespace.enter(|| zonewise_nft::Socket::open().unwrap().generation().unwrap())
    };
    let before = generation(&namespace);
    assert_eq!(second.start(), FoundTables::Ours);
    // Only the probe for owners, and the claim.
    assert_eq!(generation(&namespace), before + 2);
    second.assert_repaired();
    drop(second);
    let mut third = tables(&namespace, Options { mark: 1 << 20, ..everything() });
    all_of_a_service(&mut third);
    assert_eq!(third.start(), FoundTables::Other);
    third.assert_repaired();
}

#[test]
fn a_restart_repairs_what_has_changed_meanwhile() {
    let namespace = Namespace::new("meanwhile").unwrap();
    let mut first = tables(&namespace, everything());
    all_of_a_service(&mut first);
    first.service(&service("old", &["10.96.0.20"])).slice(&slice("old", "old-1", &pods(3))).sync();
    drop(first);
    let mut second = tables(&namespace, everything());
    second.service(&service("new", &["10.96.0.21"])).slice(&slice("new", "new-1", &pods(5)));
    assert_eq!(second.start(), FoundTables::Ours);
    second.assert_repaired();
    second.kernel.remove_unused().unwrap();
    second.assert_repaired();
    let listed = nft(&namespace, &["list", "table", "ip", "zonewise"]);
    assert!(listed.contains("clusterip-5") && !listed.contains("clusterip-3"), "{listed}");
}

/// Addresses of NodePorts are part of a start: no moment without them.
#[test]
fn a_restart_does_not_forget_the_addresses_of_nodeports() {
    let namespace = Namespace::new("addresses").unwrap();
    let listed = || vec![ip("192.168.0.1")];
    let mut first = tables(&namespace, everything());
    first.kernel = first.kernel.with_nodeport_ips(listed());
    all_of_a_service(&mut first);
    first.sync().assert_repaired();
    drop(first);
    let mut second = tables(&namespace, everything());
    second.kernel = second.kernel.with_nodeport_ips(listed());
    all_of_a_service(&mut second);
    let generation = |namespace: &Namespace| {
        namespace.enter(|| zonewise_nft::Socket::open().unwrap().generation().unwrap())
    };
    let before = generation(&namespace);
    assert_eq!(second.start(), FoundTables::Ours);
    // The probe for owners and the claim: no element was written.
    assert_eq!(generation(&namespace), before + 2);
    let set = nft(&namespace, &["list", "set", "ip", "zonewise", "nodeport-ips"]);
    assert!(set.contains("192.168.0.1"), "{set}");
}

fn pods(count: u8) -> Vec<Endpoint> {
    (1..=count).map(|n| endpoint(ip(&format!("10.244.3.{n}")), "n3", "c")).collect()
}

/// Where the kernel guards the tables, `nft flush ruleset` of somebody else passes them by.
#[test]
fn a_flush_of_all_rules_leaves_ours_alone() {
    let namespace = Namespace::new("flush").unwrap();
    let mut tables = tables(&namespace, everything());
    all_of_a_service(&mut tables);
    tables.sync();
    nft(&namespace, &["flush", "ruleset"]);
    tables.assert_repaired();
}

#[derive(Clone, Debug)]
enum Step {
    Service { name: u8, kind: u8 },
    DeleteService(u8),
    Slice { service: u8, endpoints: Vec<(u8, u8)>, weighted: bool },
    DeleteSlice(u8),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_u8, 0..6_u8).prop_map(|(name, kind)| Step::Service { name, kind }),
        1 => (0..4_u8).prop_map(Step::DeleteService),
        4 => (0..4_u8, prop::collection::vec((1..9_u8, 0..5_u8), 0..6), any::<bool>())
            .prop_map(|(service, endpoints, weighted)| Step::Slice { service, endpoints, weighted }),
        1 => (0..4_u8).prop_map(Step::DeleteSlice),
        1 => Just(Step::Sweep),
    ]
}

pub(crate) fn object(name: u8, kind: u8) -> serde_json::Value {
    let plain =
        service(&format!("s{name}"), &[&format!("10.96.1.{name}"), &format!("fd96::1:{name}")]);
    let port = json!([{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30000 + u16::from(name % 2)}]);
    match kind {
        0 => plain,
        1 => with(plain, json!({"internalTrafficPolicy": "Local"})),
        2 => with(plain, json!({"type": "NodePort", "ports": port})),
        3 => with(
            plain,
            json!({"type": "NodePort", "ports": port, "externalTrafficPolicy": "Local"}),
        ),
        // All of them ask for the same address.
        4 => with(plain, json!({"externalIPs": ["198.51.100.1"]})),
        _ => with(plain, json!({"sessionAffinity": "ClientIP"})),
    }
}

pub(crate) fn member((address, kind): (u8, u8)) -> Endpoint {
    let node = if kind == 0 { "n1" } else { "n2" };
    let endpoint = endpoint(
        ip(&format!("10.244.9.{address}")),
        node,
        if address % 2 == 0 { "a" } else { "b" },
    );
    match kind {
        1 => endpoint.unready(),
        2 => endpoint.terminating(),
        3 => endpoint.hinted(&["a"]),
        _ => endpoint,
    }
}

/// A third of the traffic stays in zone a, where `member` puts every other endpoint.
pub(crate) fn with_shares(slice: serde_json::Value) -> serde_json::Value {
    let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.3333,"b":0.6667}}}"#;
    annotated(slice, "zonewise.dev/zone-shares", shares)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 10, ..ProptestConfig::default() })]

    /// apply(diff(a, b)) on a is b, whatever a and b are.
    #[test]
    fn changes_lead_to_what_a_fresh_start_would(steps in prop::collection::vec((step(), any::<bool>()), 1..25)) {
        let namespace = Namespace::new("steps").unwrap();
        let mut tables = tables(&namespace, everything());
        tables.sync();
        for (step, sync) in steps {
            match step {
                Step::Service { name, kind } => { tables.service(&object(name, kind)); }
                Step::DeleteService(name) => { tables.delete_service("ns", &format!("s{name}")); }
                Step::Slice { service, endpoints, weighted } => {
                    let members: Vec<Endpoint> = endpoints.into_iter().map(member).collect();
                    let name = format!("s{service}");
                    let object = slice(&name, &format!("{name}-1"), &members);
                    tables.slice(&if weighted { with_shares(object) } else { object });
                }
                Step::DeleteSlice(service) => { tables.delete_slice("ns", &format!("s{service}-1")); }
                Step::Sweep => { tables.kernel.remove_unused().unwrap(); }
            }
            if sync {
                tables.sync();
            }
        }
        tables.sync();
        tables.kernel.remove_unused().unwrap();
        prop_assert_eq!(tables.kernel.repair().unwrap(), Repaired::default());
    }
}

/// A zone that no endpoint has any more gives its counter back, and keeps it as long as elements lead to it.
#[test]
fn counters_of_zones_that_nothing_names_are_removed() {
    let namespace = Namespace::new("counters").unwrap();
    let mut tables = tables(&namespace, Options::default());
    let in_zones = |zones: &[&str]| {
        let numbered = (1..).zip(zones);
        let of =
            |(number, zone): (u8, &&str)| endpoint(ip(&format!("10.244.0.{number}")), "n1", zone);
        slice("web", "web-1", &numbered.map(of).collect::<Vec<_>>())
    };
    let counters = || -> Vec<String> {
        let listed = nft(&namespace, &["list", "counters"]);
        listed.lines().filter(|line| line.contains("counter zone-")).map(str::to_owned).collect()
    };
    tables.service(&service("web", &["10.96.0.1"])).slice(&in_zones(&["a", "b"])).sync();
    assert_eq!(counters().len(), 2, "{:?}", counters());
    tables.slice(&in_zones(&["a"])).sync();
    let forget = |tables: &mut Tables| {
        let unused = tables.reader.unused_zones(&tables.index.zones());
        let removed = tables.kernel.remove_counters(&unused).unwrap();
        tables.reader.forget_zones(&removed);
    };
    // The slice that named it has just been read.
    forget(&mut tables);
    assert_eq!(counters().len(), 2, "{:?}", counters());
    tables.kernel.remove_unused().unwrap();
    forget(&mut tables);
    assert_eq!(counters().len(), 1, "{:?}", counters());
    // Another zone gets the number, and its own counter.
    tables.slice(&in_zones(&["a", "c"])).sync().assert_repaired();
    assert_eq!(counters().len(), 2, "{:?}", counters());
    assert!(counters().iter().any(|line| line.contains("zone-c")), "{:?}", counters());
}
