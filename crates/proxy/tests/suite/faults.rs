//! What may go wrong with objects and the kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use crate::common::objects::{endpoint, labelled, ports, service, slice, with};
use crate::common::two_nodes::{
    FAMILIES, TwoNodeCluster, both_protocols, by_range, cluster_ip, full,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{LONG, Tables, ip, nft, usual_node};
use serde_json::{Value, json};
use zonewise_common::name::Key;
use zonewise_netns::Namespace;
use zonewise_netns::traffic::{Server, probe_tcp};
use zonewise_nft::{Batch, Bytes, Data, Element, Family, Network, Socket, TableFlags, Verb};
use zonewise_proxy::testing::{
    Applied, FoundTables, Kernel, Options, ProgrammedService, TABLE, Verification,
    programmed_service,
};
use zonewise_routing::NodeLocation;

fn tables(namespace: &Namespace) -> Tables {
    let node = usual_node([Some(ip("192.168.0.1")), None]);
    Tables::new(namespace, NodeLocation::new("n1", Some("a"), None), Options::default(), node)
}

/// Names that would break a text of rules are only data here.
#[test]
fn names_with_odd_characters_are_data() {
    let namespace = Namespace::new("names").unwrap();
    let mut tables = tables(&namespace);
    let odd = "svc\"; flush ruleset; #\n\u{1F600}";
    let mut object = service("x", &["10.96.0.1"]);
    object["metadata"]["name"] = json!(odd);
    let mut members = slice("x", "x-1", &[endpoint(ip("10.244.0.1"), "n1", "zone \"a\"\n{};")]);
    members["metadata"]["labels"]["kubernetes.io/service-name"] = json!(odd);
    tables.service(&object).slice(&members).service(&service("good", &["10.96.0.2"])).sync();
    tables.assert_repaired();
    nft(&namespace, &["list", "table", "ip", "zonewise"]);
    nft(&namespace, &["-j", "list", "table", "ip", "zonewise"]);
}

/// Ten thousand endpoints of one Service are ten thousand elements and one chain.
#[test]
fn ten_thousand_endpoints_are_one_chain() {
    let namespace = Namespace::new("many").unwrap();
    let mut tables = tables(&namespace);
    tables.service(&service("big", &["10.96.0.1"]));
    for part in 0..10_u8 {
        let members: Vec<_> = (0..1000_u16)
            .map(|n| endpoint(ip(&format!("10.{part}.{}.{}", n / 250, n % 250 + 1)), "n2", "b"))
            .collect();
        tables.slice(&slice("big", &format!("big-{part}"), &members));
    }
    tables.sync();
    let chains = nft(&namespace, &["list", "chains", "ip"]);
    assert_eq!(chains.matches("clusterip-").count(), 1, "{chains}");
    assert!(chains.contains("clusterip-10000"));
    // One leaves: one batch, and a chain for the new count.
    let members: Vec<_> = (0..999_u16)
        .map(|n| endpoint(ip(&format!("10.0.{}.{}", n / 250, n % 250 + 1)), "n2", "b"))
        .collect();
    tables.slice(&slice("big", "big-0", &members)).sync();
    tables.kernel.remove_unused().unwrap();
    tables.assert_repaired();
}

/// Two Services that ask for the same external address: the older has it, whatever its name and whichever was
/// seen first; the other gets it when the first goes.
#[test]
fn a_contested_address_has_one_stable_owner() {
    let mut cluster = TwoNodeCluster::new(by_range());
    let vip = json!({"externalIPs": ["198.51.100.50"]});
    for (name, n) in [("zed", 1), ("abc", 2)] {
        let mut object = with(full(name, n, json!({"type": "ClusterIP"})), vip.clone());
        object["metadata"]["creationTimestamp"] = json!(format!("202{n}-01-01T00:00:00Z"));
        let pod = if name == "abc" { &cluster.here } else { &cluster.there };
        let member = endpoint(pod.address(false), &pod.node, &pod.zone);
        cluster.tables.service(&object).slice(&slice(name, &format!("{name}-1"), &[member]));
        cluster.tables.sync().assert_repaired();
    }
    let to = crate::common::at(ip("198.51.100.50"), 80);
    assert_eq!(cluster.answers(&cluster.caller.namespace, to, 6).text(), "there");
    // TCP and UDP.
    assert_eq!(refused(&cluster), 2);
    cluster.tables.delete_service("ns", "zed").sync().assert_repaired();
    assert_eq!(cluster.answers(&cluster.caller.namespace, to, 6).text(), "here");
    assert_eq!(refused(&cluster), 0);
}

fn refused(cluster: &TwoNodeCluster) -> usize {
    cluster.tables.kernel.desired().ownership().refused().count()
}

/// A tenant's Service whose external IPs are the ClusterIP of another Service and the addresses of the node: it
/// gets nothing that belongs to others, in whichever order the Services come and go, and it keeps the rest.
#[test]
fn external_ips_take_nothing_from_others() {
    for thief_comes_first in [false, true] {
        for v6 in FAMILIES {
            let mut cluster = TwoNodeCluster::new(by_range());
            let (dns, own) = (cluster_ip(1, v6), cluster.n1.address(v6));
            let free = ip(if v6 { "2001:db8:1::77" } else { "198.51.100.77" });
            let taken = json!({"externalIPs": [dns.ip(), own, free], "ports": [
                {"name": "a", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 80, "protocol": "UDP"},
                {"name": "c", "port": 81, "protocol": "TCP"}, {"name": "d", "port": 30_001, "protocol": "TCP"},
                {"name": "e", "port": 10_250, "protocol": "TCP"}, {"name": "f", "port": 6443, "protocol": "TCP"},
            ]});
            // The name sorts before all others, and nothing says that it is younger.
            let thief = with(full("aaa", 9, json!({"type": "ClusterIP"})), taken);
            let steal = |cluster: &mut TwoNodeCluster| {
                let member = endpoint(cluster.here.address(v6), "n1", "a");
                let object = slice("aaa", "aaa-1", &[member]);
                let all = ["a", "b", "c", "d", "e", "f"];
                let all = all.map(|name| (name, 8080, if name == "b" { "UDP" } else { "TCP" }));
                cluster.tables.service(&thief).slice(&ports(object, &all));
            };
            let offer = |cluster: &mut TwoNodeCluster| {
                let member = endpoint(cluster.there.address(v6), "n2", "b");
                cluster.tables.service(&full("dns", 1, json!({})));
                cluster.tables.slice(&both_protocols(slice("dns", "dns-1", &[member])));
                let mut kubernetes = full("kubernetes", 2, json!({"type": "ClusterIP"}));
                let mut api_servers =
                    slice("kubernetes", "kubernetes-1", &[endpoint(own, "n1", "a")]);
                for object in [&mut kubernetes, &mut api_servers] {
                    object["metadata"]["namespace"] = json!("default");
                }
                api_servers = ports(api_servers, &[("http", 6443, "TCP")]);
                cluster.tables.service(&kubernetes).slice(&api_servers);
            };
            if thief_comes_first {
                steal(&mut cluster);
                cluster.tables.sync();
                offer(&mut cluster);
            } else {
                offer(&mut cluster);
                cluster.tables.sync();
                steal(&mut cluster);
            }
            cluster.tables.sync().assert_repaired();
            let from = cluster.client.namespace.clone();
            let reached =
                |address, port| cluster.answers(&from, crate::common::at(address, port), 4).text();
            let rows = [
                (dns.ip(), 80, "there"),
                (dns.ip(), 81, "refused"),
                (own, 80, "here"),
                (own, 30_001, "there"),
                (own, 10_250, "refused"),
                (own, 6443, "refused"),
                (free, 80, "here"),
                (free, 81, "here"),
                // It may be another node's address, and the port is a NodePort.
                (free, 30_001, "silent"),
                (free, 6443, "here"),
            ];
            for (address, port, expected) in rows {
                assert_eq!(reached(address, port), expected, "{address} port {port}");
            }
            assert_eq!(cluster.answers_udp(&from, dns, 4).text(), "there");
            // UDP flows are looked for at these alone: changes of the thief remove no flow of the other.
            let owned = cluster.tables.kernel.desired().owned(&("ns".into(), "aaa".into()));
            assert!(owned.iter().all(|frontend| frontend.address != Some(dns.ip())));
        }
    }
}

/// Absurd objects: what can be used is used, the others are left out, nobody else suffers.
#[test]
fn malformed_objects_lose_nothing() {
    let mut cluster = TwoNodeCluster::new(by_range());
    cluster.offer(&full("good", 1, json!({})));
    let wrong: [(&str, Value); 6] = [
        ("no-ports", json!({"ports": []})),
        ("huge-port", json!({"ports": [{"name": "p", "port": 99_999_999, "protocol": "TCP"}]})),
        ("odd-protocol", json!({"ports": [{"name": "p", "port": 80, "protocol": "QUIC"}]})),
        ("bad-ips", json!({"externalIPs": ["nonsense", "", "999.1.1.1", "198.51.100.3"]})),
        ("bad-ranges", json!({"loadBalancerSourceRanges": ["x", "10.0.0.0/99", ""]})),
        ("null", json!({"ports": null, "clusterIPs": null, "externalIPs": null})),
    ];
    for (n, (name, changes)) in (10..).zip(wrong) {
        let object = with(service(name, &[&format!("10.96.0.{n}")]), changes);
        // Refused at the door or programmed in part: never a panic.
        if let Ok(read) = cluster.tables.reader.read_service(&object.to_string()) {
            cluster.tables.index.apply_service(read);
        }
        let odd = endpoint(ip("127.0.0.1"), "n1", "a");
        let link_local = endpoint(ip("169.254.3.3"), "n1", "a");
        cluster.tables.slice(&slice(name, &format!("{name}-1"), &[odd, link_local]));
    }
    let mut no_family = slice("good", "odd-1", &[]);
    no_family["addressType"] = json!("FQDN");
    no_family["endpoints"] = json!([{"addresses": ["example.com"]}, {"addresses": []}]);
    cluster.tables.slice(&no_family);
    cluster.tables.slice(&ports(slice("good", "odd-2", &[]), &[("", 0, "TCP")]));
    cluster.tables.slice(&labelled(
        slice("good", "odd-3", &[]),
        "service.kubernetes.io/headless",
        "",
    ));
    cluster.tables.sync().assert_repaired();
    for v6 in FAMILIES {
        let responses = cluster.answers(&cluster.caller.namespace, cluster_ip(1, v6), 24);
        assert_eq!(responses.text(), "here there");
    }
}

/// Kernels without owners: somebody empties the table, deletes it, adds to it. Simulated on a table
/// that lost its owner flag, as an older kernel would keep it.
#[test]
fn what_others_change_is_noticed_and_repaired() {
    let namespace = Namespace::new("others").unwrap();
    let mut tables = tables(&namespace);
    tables.kernel.without_owner();
    tables
        .service(&service("a", &["10.96.0.1"]))
        .slice(&slice("a", "a-1", &[endpoint(ip("10.244.0.1"), "n1", "a")]))
        .sync();
    assert!(!tables.kernel.is_owned());
    assert!(!tables.kernel.is_disturbed().unwrap());
    for damage in [
        &["flush", "ruleset"][..],
        &["delete", "table", "ip", "zonewise"],
        &["flush", "chain", "ip", "zonewise", "services"],
        &["add", "chain", "ip", "zonewise", "stranger"],
        // A rule more without a comment, as the base chains have them.
        &["add", "rule", "ip", "zonewise", "nat-output", "accept"],
    ] {
        nft(&namespace, damage);
        assert!(tables.kernel.is_disturbed().unwrap(), "{damage:?}");
        assert!(!tables.kernel.restore().unwrap().is_clean(), "{damage:?}");
        tables.kernel.remove_unused().unwrap();
        assert!(!tables.kernel.is_disturbed().unwrap(), "{damage:?}");
        tables.assert_repaired();
    }
    // A rule in the place of another that has no comment either.
    nft(&namespace, &["flush", "chain", "ip", "zonewise", "nat-output"]);
    nft(&namespace, &["add", "rule", "ip", "zonewise", "nat-output", "accept"]);
    assert!(tables.kernel.is_disturbed().unwrap());
    assert_eq!(tables.kernel.restore().unwrap().chains, 1);
    // Elements are found out by a verification.
    nft(&namespace, &["flush", "map", "ip", "zonewise", "slots"]);
    let repaired = tables.kernel.restore().unwrap();
    assert_eq!((repaired.added, repaired.removed, repaired.chains), (1, 0, 0));
    // Somebody else's changes to tables of their own are none of our business.
    nft(&namespace, &["add", "table", "ip", "theirs"]);
    assert!(!tables.kernel.is_disturbed().unwrap());
}

/// Somebody has put an element in the place of ours: that is repaired, nobody is refused.
#[test]
fn a_strangers_element_gives_way() {
    let namespace = Namespace::new("stranger").unwrap();
    let mut tables = tables(&namespace);
    tables.kernel.without_owner();
    tables.sync();
    let key = Bytes::new().address(ip("10.96.0.5")).protocol(6).port(80);
    namespace.enter(|| {
        let mut batch = Batch::new(TABLE);
        let element = Element::pair(key.as_slice(), Data::Drop);
        batch.elements(Verb::Add, Family::Ip, "services").push(&element);
        Socket::open().unwrap().commit(&batch).unwrap();
    });
    nine_services(&mut tables);
    assert!(tables.try_sync().unwrap().is_empty());
    tables.assert_repaired();
}

/// Nine Services; the fifth has two endpoints, the others one.
fn nine_services(tables: &mut Tables) {
    for n in 1..=9_u8 {
        let name = format!("s{n}");
        let count = if n == 5 { 2 } else { 1 };
        let members: Vec<_> =
            (0..count).map(|m| endpoint(ip(&format!("10.244.{m}.{n}")), "n2", "b")).collect();
        tables.service(&service(&name, &[&format!("10.96.0.{n}")]));
        tables.slice(&slice(&name, &format!("{name}-1"), &members));
    }
}

/// A batch that the kernel refuses: the Service at fault is found, the others go in.
#[test]
fn a_service_that_the_kernel_refuses_stands_alone() {
    let namespace = Namespace::new("refused").unwrap();
    let mut tables = tables(&namespace);
    tables.kernel.without_owner();
    tables.sync();
    // A hook under the name of a chain of ours: the kernel lets nothing lead there.
    let chain = "{ type filter hook input priority 7; }";
    nft(&namespace, &["add", "chain", "ip", "zonewise", "clusterip-2", chain]);
    nine_services(&mut tables);
    let rejected = tables.try_sync().unwrap();
    let names: Vec<&str> = rejected.iter().map(|rejected| &*rejected.service.1).collect();
    assert_eq!(names, ["s5"], "{rejected:?}");
    // The controller is told which one is not there.
    let applied = Applied::default().then(7, rejected.iter().map(|rejected| &rejected.service));
    assert_eq!(applied, Applied { version: 7, refused: [("ns".into(), "s5".into())].into() });
    assert_eq!(tables.kernel.desired().services().len(), 8);
    // The stranger is removed, and the Service can go in.
    tables.kernel.restore().unwrap();
    tables.kernel.remove_unused().unwrap();
    tables.index.mark_dirty([("ns".into(), "s5".into())]);
    tables.sync().assert_repaired();
    assert_eq!(tables.kernel.desired().services().len(), 9);
}

/// Every connection that is made during a restart reaches an endpoint. The node itself serves the ClusterIP, so that
/// a connection which no rule leads elsewhere is answered by the node, and not lost and tried again.
fn connections_during(cluster: &TwoNodeCluster, restart: impl FnOnce()) {
    let node = &cluster.n1.namespace;
    node.add_address("lo", cluster_ip(1, false).ip(), 32).unwrap();
    let _server = Server::both(node, "the node", cluster_ip(1, false)).unwrap();
    let over = AtomicBool::new(false);
    let from = &cluster.caller.namespace;
    let failed: Vec<String> = std::thread::scope(|scope| {
        let probing = scope.spawn(|| {
            let mut failed = Vec::new();
            // At least once after it is over.
            while failed.is_empty() {
                let last = over.load(Relaxed);
                let answer = probe_tcp(from, cluster_ip(1, false), LONG).to_string();
                if !["here", "there"].contains(&&*answer) {
                    failed.push(answer);
                }
                if last {
                    break;
                }
            }
            failed
        });
        restart();
        over.store(true, Relaxed);
        probing.join().unwrap()
    });
    assert!(failed.is_empty(), "{failed:?}");
}

/// A Service whose endpoints are of the wrong family, which no API server would let pass: the kernel rejects its
/// elements in any table.
fn rejected_service(tables: &mut Tables) -> (Key, Option<ProgrammedService>) {
    let object = service("bad", &["10.96.9.9", "fd96::99"]);
    let four = slice("bad", "bad-4", &[endpoint(ip("10.244.9.9"), "n2", "b")]);
    let six = slice("bad", "bad-6", &[endpoint(ip("fd00:10:244::9"), "n2", "b")]);
    tables.service(&object).slice(&four).slice(&six);
    let key: Key = ("ns".into(), "bad".into());
    let mut programmed =
        programmed_service(&tables.index, &tables.reader, &tables.gates, &key).unwrap();
    programmed.ports = programmed.ports.iter().cloned().map(|[four, six]| [six, four]).collect();
    (key, Some(programmed))
}

/// Enough Services that tables without them would be seen.
fn many_services(tables: &mut Tables) {
    for n in 0..400_u16 {
        let (name, address) = (format!("m{n}"), format!("10.96.{}.{}", 10 + n / 250, n % 250 + 1));
        let member = endpoint(ip("10.244.7.7"), "n2", "b");
        tables.service(&service(&name, &[&address]));
        tables.slice(&slice(&name, &format!("{name}-1"), &[member]));
    }
}

/// A restart that finds tables of another version, and a Service that the kernel rejects: the old tables work until
/// the new ones are in their place, with all other Services.
#[test]
fn the_old_tables_work_until_the_new_ones_are_in() {
    for other_version in [true, false] {
        let mut cluster = TwoNodeCluster::new(by_range());
        cluster.offer(&full("web", 1, json!({})));
        many_services(&mut cluster.tables);
        cluster.tables.sync();
        let options = match other_version {
            true => Options { mark: 1 << 20, ..by_range() },
            false => by_range(),
        };
        let location = NodeLocation::new("n1", Some("a"), None);
        let node = usual_node([Some(cluster.n1.address(false)), Some(cluster.n1.address(true))]);
        let new = Tables::new(&cluster.n1.namespace, location, options, node);
        // The old process ends: its socket is closed, and its tables stay.
        let old = std::mem::replace(&mut cluster.tables, new);
        drop(old);
        cluster.offer(&full("web", 1, json!({})));
        many_services(&mut cluster.tables);
        let bad = rejected_service(&mut cluster.tables);
        let good = cluster.tables.index.services().keys().filter(|key| **key != bad.0).cloned();
        let of = |key: Key| {
            let tables = &cluster.tables;
            let programmed = programmed_service(&tables.index, &tables.reader, &tables.gates, &key);
            (key, programmed)
        };
        let mut updates: Vec<_> = good.map(of).collect();
        updates.push(bad);
        let Tables { kernel, .. } = &mut cluster.tables;
        let mut kernel = std::mem::replace(kernel, cluster.n1.namespace.enter(unused_kernel));
        connections_during(&cluster, || {
            let (found, rejected) = kernel.start(updates, Vec::new()).unwrap();
            assert_eq!(found, if other_version { FoundTables::Other } else { FoundTables::Ours });
            let names: Vec<&str> = rejected.iter().map(|rejected| &*rejected.service.1).collect();
            assert_eq!(names, ["bad"], "{rejected:?}");
        });
        assert_eq!(kernel.desired().services().len(), 401);
        assert!(kernel.repair().unwrap().is_clean());
    }
}

/// A kernel that is never started.
fn unused_kernel() -> Kernel {
    let node = usual_node([None, None]);
    let names = Box::new(|_| String::new());
    Kernel::open(&Network::default(), Options::default(), Vec::new(), node, names).unwrap()
}

/// Another program changes tables of its own all the time: our tables can be read and changed all the same.
#[test]
fn other_writers_of_nftables_cause_no_failures() {
    let namespace = Namespace::new("writers").unwrap();
    let mut tables = tables(&namespace);
    many_services(&mut tables);
    // A map that takes the kernel many messages to list.
    let members: Vec<_> = (0..5000_u16)
        .map(|n| endpoint(ip(&format!("10.245.{}.{}", n / 250, n % 250 + 1)), "n2", "b"))
        .collect();
    tables.service(&service("big", &["10.96.0.1"])).slice(&slice("big", "big-1", &members)).sync();
    let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            namespace.enter(|| {
                let mut socket = Socket::open().unwrap();
                while !over.load(Relaxed) {
                    let mut batch = Batch::new("theirs");
                    batch.add_table(Family::Ip, TableFlags::default(), "");
                    socket.commit(&batch).unwrap();
                    let mut batch = Batch::new("theirs");
                    batch.delete_table(Family::Ip);
                    socket.commit(&batch).unwrap();
                    written.fetch_add(2, Relaxed);
                }
            });
        });
        for round in 0..30_u8 {
            let address = ip(&format!("10.244.8.{}", round + 1));
            let member = endpoint(address, "n2", "b");
            tables.slice(&slice("m1", "m1-1", &[member]));
            let synced = tables.try_sync();
            let restored = tables.kernel.restore();
            if synced.is_err() || restored.is_err() || !restored.as_ref().unwrap().is_clean() {
                over.store(true, Relaxed);
                panic!("round {round}: {synced:?} {restored:?}");
            }
        }
        over.store(true, Relaxed);
    });
    assert!(written.load(Relaxed) > 30, "the other program has written {written:?} times");
}

/// A verification of large tables stops when its time is over and goes on later. What is missing is found, and
/// everything is repaired.
#[test]
fn a_verification_goes_on_where_it_stopped() {
    let namespace = Namespace::new("portions").unwrap();
    let mut tables = tables(&namespace);
    tables.kernel.without_owner();
    for n in 0..60_u8 {
        let members: Vec<_> =
            (1..=50).map(|m| endpoint(ip(&format!("10.244.{n}.{m}")), "n2", "b")).collect();
        let name = format!("s{n:02}");
        tables.service(&service(&name, &[&format!("10.96.0.{}", n + 1)]));
        tables.slice(&slice(&name, &format!("{name}-1"), &members));
    }
    tables.sync();
    let mut verify = || {
        let mut verification = Verification::default();
        for portions in 1.. {
            let repaired = tables.kernel.verify(&mut verification, Duration::ZERO).unwrap();
            if let Some(repaired) = repaired {
                return (portions, repaired);
            }
        }
        unreachable!("a verification ends");
    };
    let (portions, repaired) = verify();
    assert!(portions > 5 && repaired.is_clean(), "{portions} {repaired:?}");
    for (set, key) in [
        ("slots", "10.96.0.60 . tcp . 80 . 49"),
        ("services", "10.96.0.30 . tcp . 80"),
        ("endpoint-zones", "10.244.59.50"),
        ("cluster-ips", "10.96.0.1"),
    ] {
        nft(&namespace, &["delete", "element", "ip", "zonewise", set, "{", key, "}"]);
        let (_, repaired) = verify();
        assert_eq!((repaired.added, repaired.removed), (1, 0), "{set} {repaired:?}");
        assert!(verify().1.is_clean());
    }
    nft(&namespace, &["delete", "table", "ip", "zonewise"]);
    assert!(!verify().1.is_clean());
    assert!(verify().1.is_clean());
}
