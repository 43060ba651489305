//! What we write is what the `nft` program lists: every statement and every kind of set, in both
//! families, as text and as JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is the report")]

use serde_json::json;
use zonewise_nft::{Batch, ChainKind, Family, Socket, TableFlags};

use crate::common::{address, find, in_namespace, listed_json, listed_rules, nft};
use crate::everything::{CHAINS, fill, rules, table};

#[test]
fn every_statement_is_listed_as_it_prints_itself() {
    for family in Family::ALL {
        in_namespace(move || {
            let mut batch = table(family);
            let rules = rules(family);
            for rule in &rules {
                batch.add_rule(family, "rules", rule);
            }
            Socket::open().unwrap().commit(&batch).unwrap();
            let ours: Vec<String> = rules.iter().map(|rule| rule.text(family)).collect();
            let listed = listed_rules(family, "zw", "rules");
            for (listed, ours) in listed.iter().zip(&ours) {
                assert_eq!(listed, ours);
            }
            assert_eq!(listed.len(), ours.len());
            let listed = listed_json(family, "zw");
            let count = listed.iter().filter(|object| object.get("rule").is_some()).count();
            assert_eq!(count, rules.len());
        });
    }
}

#[test]
fn every_kind_of_set_is_listed_with_its_elements() {
    for family in Family::ALL {
        in_namespace(move || {
            let mut batch = table(family);
            fill(&mut batch, family);
            Socket::open().unwrap().commit(&batch).unwrap();
            let list = listed_json(family, "zw");
            let a = |n| address(family, n).to_string();
            let ip = if family == Family::Ip { "ipv4_addr" } else { "ipv6_addr" };
            let length = if family == Family::Ip { 24 } else { 120 };

            let ips = find(&list, "set", "ips");
            assert_eq!(ips["type"], ip);
            assert_eq!(ips["comment"], "service addresses");
            assert_eq!(ips["elem"], json!([{"elem": {"val": a(1), "comment": "ns/svc"}}]));

            let slots = find(&list, "map", "slots");
            assert_eq!(slots["type"], json!([ip, "inet_proto", "inet_service", "integer"]));
            let key = json!({"concat": [a(1), "tcp", 80, 2]});
            assert_eq!(slots["elem"], json!([[key, {"concat": [a(99), 8080]}]]));

            let groups = find(&list, "map", "groups");
            assert_eq!(groups["type"], json!([ip, "inet_proto", "inet_service", "integer"]));
            let key = json!({"concat": [a(1), "tcp", 80, 130]});
            assert_eq!(groups["elem"], json!([[key, {"goto": {"target": "other"}}]]));

            let numbers = find(&list, "map", "numbers");
            assert_eq!(numbers["elem"], json!([[300, {"goto": {"target": "other"}}]]));

            let nodeports = find(&list, "map", "nodeports");
            let key = json!({"concat": ["sctp", 30000]});
            assert_eq!(nodeports["elem"], json!([[key, {"goto": {"target": "other"}}]]));

            let zones = find(&list, "map", "zones");
            assert_eq!(zones["elem"], json!([[a(1), "zone-a"]]));
            assert_eq!(zones["map"], "counter");

            let ranges = find(&list, "set", "ranges");
            let network = json!({"prefix": {"addr": a(0), "len": length}});
            let val = json!({"concat": [a(1), "tcp", 80, network]});
            assert_eq!(ranges["elem"], json!([{"elem": {"val": val, "comment": "office"}}]));

            let networks = find(&list, "set", "networks");
            let network = json!({"prefix": {"addr": a(256), "len": length}});
            assert_eq!(networks["elem"], json!([network]));

            assert_eq!(find(&list, "counter", "zone-a")["comment"], "the nearest");
        });
    }
}

#[test]
fn texts_of_sets_show_types_counters_and_times() {
    in_namespace(|| {
        let mut batch = table(Family::Ip);
        fill(&mut batch, Family::Ip);
        Socket::open().unwrap().commit(&batch).unwrap();
        let text = nft(&["-a", "list", "table", "ip", "zw"]);
        for expected in [
            "comment \"a table of ours\"",
            "comment \"nothing here\"",
            "typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport",
            "elements = { 10.0.0.1 . tcp . 80 . 2 : 10.0.0.99 . 8080 }",
            "type ipv4_addr : counter",
            "elements = { 10.0.0.1 : \"zone-a\" }",
            "flags dynamic,timeout",
            "size 1000",
            "10.0.0.1 . tcp . 80 counter packets 0 bytes 0 : goto other",
            "10.0.0.2 . udp . 53 counter packets 0 bytes 0 : drop",
            "10.0.0.7 . 10.0.0.1 . tcp . 80 timeout 1h expires",
            "10.0.0.1 . tcp . 80 . 10.0.0.0/24 comment \"office\"",
            "10.0.1.0/24",
        ] {
            assert!(text.contains(expected), "`{expected}` is missing in\n{text}");
        }
    });
}

#[test]
fn base_chains_hang_where_they_should() {
    in_namespace(|| {
        let mut batch = Batch::new("zw");
        for family in Family::ALL {
            batch.add_table(family, TableFlags::default(), "");
            for (name, base, _) in &CHAINS {
                batch.add_chain(family, name, Some(base), "");
            }
        }
        Socket::open().unwrap().commit(&batch).unwrap();
        for family in Family::ALL {
            let list = listed_json(family, "zw");
            for (name, base, hook) in &CHAINS {
                let listed = find(&list, "chain", name);
                let kind = if base.kind == ChainKind::Nat { "nat" } else { "filter" };
                assert_eq!(listed["hook"], *hook);
                assert_eq!(listed["type"], kind);
                assert_eq!(listed["prio"], base.priority);
                assert_eq!(listed["policy"], "accept");
            }
        }
    });
}
