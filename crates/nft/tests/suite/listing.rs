//! What we write is what the `nft` program lists: every statement and every kind of set, in both
//! families, as text and as JSON.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is the report")]

use std::time::Duration;

use crate::common::{address, find, in_namespace, listed_json, listed_rules, nft, service};
use serde_json::json;
use zonewise_nft::{
    BaseChain, Batch, Bytes, ChainKind, Data, Element, Family, FibAddress, Field, Hook, Rule,
    SetFlags, SetSpec, Socket, Statement, TableFlags, Type, Verb,
};

const NO_FLAGS: SetFlags =
    SetFlags { interval: false, dynamic: false, timeout: false, counter: false };

const fn set(name: &'static str, key: &'static [Type], data: &'static [Type]) -> SetSpec {
    SetSpec { name, key, data, flags: NO_FLAGS, size: None, comment: "" }
}

const PORT_KEY: &[Type] = &[Type::Address, Type::Protocol, Type::Port];
const SLOT_KEY: &[Type] = &[Type::Address, Type::Protocol, Type::Port, Type::Number];
const RANGE_KEY: &[Type] = &[Type::Address, Type::Protocol, Type::Port, Type::Address];
const CLIENT_KEY: &[Type] = &[Type::Address, Type::Address, Type::Protocol, Type::Port];
const ENDPOINT: &[Type] = &[Type::Address, Type::Port];

fn sets() -> Vec<SetSpec> {
    vec![
        SetSpec { comment: "service addresses", ..set("ips", &[Type::Address], &[]) },
        set("nodeports", &[Type::Protocol, Type::Port], &[Type::Verdict]),
        SetSpec {
            flags: SetFlags { counter: true, ..NO_FLAGS },
            ..set("services", PORT_KEY, &[Type::Verdict])
        },
        SetSpec { comment: "slots", ..set("slots", SLOT_KEY, ENDPOINT) },
        set("numbers", &[Type::Number], &[Type::Verdict]),
        set("groups", SLOT_KEY, &[Type::Verdict]),
        SetSpec {
            flags: SetFlags { dynamic: true, timeout: true, ..NO_FLAGS },
            size: Some(1000),
            ..set("clients", CLIENT_KEY, ENDPOINT)
        },
        SetSpec {
            flags: SetFlags { dynamic: true, counter: true, ..NO_FLAGS },
            size: Some(2),
            ..set("used", PORT_KEY, &[])
        },
        set("zones", &[Type::Address], &[Type::Counter]),
        SetSpec { flags: SetFlags { interval: true, ..NO_FLAGS }, ..set("ranges", RANGE_KEY, &[]) },
        SetSpec {
            flags: SetFlags { interval: true, ..NO_FLAGS },
            ..set("networks", &[Type::Address], &[])
        },
        set("masked", RANGE_KEY, &[]),
    ]
}

const SERVICE: [Field; 3] = [Field::Daddr, Field::Protocol, Field::Dport];

fn with_slot(modulus: u32) -> Vec<Field> {
    vec![Field::Daddr, Field::Protocol, Field::Dport, Field::Slot(modulus)]
}

fn with_slot_from(count: u32, first: u32) -> Vec<Field> {
    vec![Field::Daddr, Field::Protocol, Field::Dport, Field::SlotFrom { count, first }]
}

fn conditions(family: Family) -> Vec<Statement> {
    let in_set = |fields: &[Field], set: &'static str, negate| Statement::InSet {
        fields: fields.to_vec(),
        set: set.into(),
        negate,
    };
    let prefix = |field, length, negate| Statement::Prefix {
        field,
        address: address(family, 0x000a_0b0c),
        length,
        negate,
    };
    let interface = |name: &str, prefix, negate| Statement::InputInterface {
        name: name.to_owned(),
        prefix,
        negate,
    };
    let mut all = vec![
        Statement::CtStateNew,
        Statement::CtStatusDnat,
        Statement::CtBeginsDnat,
        in_set(&[Field::Daddr], "ips", false),
        in_set(&[Field::Saddr], "ips", true),
        in_set(&[Field::Daddr], "networks", false),
        in_set(&[Field::Daddr, Field::Protocol, Field::Dport, Field::Saddr], "ranges", true),
        interface("veth", true, false),
        interface("veth", true, true),
        interface("cni0", false, false),
        interface("cni0", false, true),
        interface("abcdefgh", true, false),
        interface("abcdefghijklmno", false, false),
        Statement::FibLocal { address: FibAddress::Source },
        Statement::FibLocal { address: FibAddress::Destination },
        Statement::HasMark(0x4000),
    ];
    for length in [0, 8, 12, 24, 31, 32, 64, 77, 128] {
        if usize::from(length) <= family.address_len() * 8 {
            all.push(prefix(Field::Saddr, length, length % 3 == 0));
            all.push(prefix(Field::Daddr, length, length % 3 != 0));
            let masked = [Field::Daddr, Field::Protocol, Field::Dport, Field::SaddrMasked(length)];
            all.push(in_set(&masked, "masked", false));
        }
    }
    all
}

fn actions() -> Vec<Statement> {
    let update = |timeout, original: bool| Statement::Update {
        map: "clients".into(),
        key: if original {
            vec![Field::OriginalSaddr, Field::OriginalDaddr, Field::Protocol, Field::OriginalDport]
        } else {
            vec![Field::Saddr, Field::Daddr, Field::Protocol, Field::Dport]
        },
        timeout: Duration::from_millis(timeout),
        data: vec![Field::Daddr, Field::Dport],
    };
    vec![
        Statement::SetMark(0x4000),
        Statement::ClearMark(0x4000),
        Statement::Vmap { fields: SERVICE.to_vec(), map: "services".into() },
        Statement::Vmap { fields: vec![Field::Protocol, Field::Dport], map: "nodeports".into() },
        Statement::Vmap { fields: vec![Field::Slot(5)], map: "numbers".into() },
        Statement::Vmap { fields: with_slot_from(128, 128), map: "groups".into() },
        Statement::Dnat { fields: with_slot(3), map: "slots".into() },
        Statement::Dnat { fields: with_slot_from(3, 2_000_000), map: "slots".into() },
        Statement::Dnat { fields: with_slot(1000), map: "slots".into() },
        Statement::Dnat {
            fields: vec![Field::Saddr, Field::Daddr, Field::Protocol, Field::Dport],
            map: "clients".into(),
        },
        Statement::Masquerade,
        Statement::Reject,
        Statement::Drop,
        Statement::Accept,
        Statement::Return,
        Statement::Jump("other".into()),
        Statement::Goto("other".into()),
        Statement::Counter,
        Statement::CountIn("zone-a".into()),
        Statement::CountByMap { fields: vec![Field::Daddr], map: "zones".into() },
        Statement::Update {
            map: "used".into(),
            key: vec![Field::OriginalDaddr, Field::Protocol, Field::OriginalDport],
            timeout: Duration::ZERO,
            data: Vec::new(),
        },
        update(10_800_000, true),
        update(30_000, false),
        update(90_061_500, true),
    ]
}

fn rules(family: Family) -> Vec<Rule> {
    let mut rules: Vec<Rule> = conditions(family).into_iter().map(|one| Rule::new([one])).collect();
    rules.extend(actions().into_iter().map(|one| Rule::new([one]).comment("why it is here")));
    rules.push(Rule::new([
        Statement::CtStateNew,
        Statement::InSet { fields: vec![Field::Daddr], set: "ips".into(), negate: false },
        Statement::SetMark(0x4000),
        Statement::Counter,
        Statement::Goto("other".into()),
    ]));
    rules.push(Rule::new([
        Statement::HasMark(0x4000),
        Statement::ClearMark(0x4000),
        Statement::Masquerade,
    ]));
    rules.push(Rule::new([
        Statement::CtStateNew,
        Statement::CtStatusDnat,
        Statement::InSet {
            fields: vec![Field::OriginalDaddr, Field::Protocol, Field::OriginalDport, Field::Saddr],
            set: "masked".into(),
            negate: false,
        },
        Statement::Accept,
    ]));
    rules
}

fn table(family: Family) -> Batch {
    let mut batch = Batch::new("zw");
    batch.add_table(family, TableFlags::default(), "a table of ours");
    for spec in sets() {
        batch.add_set(family, &spec);
    }
    batch.add_counter(family, "zone-a", "the nearest");
    batch.add_chain(family, "other", None, "nothing here");
    batch.add_chain(family, "rules", None, "");
    batch
}

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

/// One element or more for every kind of set.
fn fill(batch: &mut Batch, family: Family) {
    let ip = |n| Bytes::new().address(address(family, n));
    let endpoint = ip(99).port(8080);
    let mut add = |set: &str, element: Element<'_>| {
        batch.elements(Verb::Add, family, set).push(&element);
    };
    add("ips", Element { comment: "ns/svc", ..Element::key(ip(1).as_slice()) });
    let key = service(family, 1, 6, 80);
    add("services", Element::pair(key.as_slice(), Data::Goto("other")));
    let key = service(family, 2, 17, 53);
    add("services", Element::pair(key.as_slice(), Data::Drop));
    let key = Bytes::new().protocol(132).port(30_000);
    add("nodeports", Element::pair(key.as_slice(), Data::Goto("other")));
    let key = service(family, 1, 6, 80).number(2);
    add("slots", Element::pair(key.as_slice(), Data::Value(endpoint.as_slice())));
    let key = service(family, 1, 6, 80).number(130);
    add("groups", Element::pair(key.as_slice(), Data::Goto("other")));
    let key = Bytes::new().number(300);
    add("numbers", Element::pair(key.as_slice(), Data::Goto("other")));
    let key = ip(7).address(address(family, 1)).protocol(6).port(80);
    let timeout = Some(Duration::from_secs(3600));
    let pair = Element::pair(key.as_slice(), Data::Value(endpoint.as_slice()));
    add("clients", Element { timeout, ..pair });
    add("zones", Element::pair(ip(1).as_slice(), Data::Object("zone-a")));
    let (first, last) = (service(family, 1, 6, 80), service(family, 1, 6, 80));
    let (first, last) = (first.address(address(family, 0)), last.address(address(family, 255)));
    let range = Element { key_end: Some(last.as_slice()), ..Element::key(first.as_slice()) };
    add("ranges", Element { comment: "office", ..range });
    let (first, last) = (ip(256), ip(511));
    add("networks", Element { key_end: Some(last.as_slice()), ..Element::key(first.as_slice()) });
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
        let chain = |kind, hook, priority| BaseChain { kind, hook, priority };
        let chains = [
            ("a", chain(ChainKind::Nat, Hook::Prerouting, -100), "prerouting"),
            ("b", chain(ChainKind::Filter, Hook::Input, 0), "input"),
            ("c", chain(ChainKind::Filter, Hook::Forward, -110), "forward"),
            ("d", chain(ChainKind::Nat, Hook::Output, -100), "output"),
            ("e", chain(ChainKind::Nat, Hook::Postrouting, 100), "postrouting"),
        ];
        let mut batch = Batch::new("zw");
        for family in Family::ALL {
            batch.add_table(family, TableFlags::default(), "");
            for (name, base, _) in &chains {
                batch.add_chain(family, name, Some(base), "");
            }
        }
        Socket::open().unwrap().commit(&batch).unwrap();
        for family in Family::ALL {
            let list = listed_json(family, "zw");
            for (name, base, hook) in &chains {
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
