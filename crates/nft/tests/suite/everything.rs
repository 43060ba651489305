//! A table with one of everything: each statement, each kind of set with elements, in both families. `listing` compares it
//! with what the `nft` program lists, and `recorded` in the library with the bytes that were sent then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use zonewise_nft::{
    BaseChain, Batch, Bytes, ChainKind, Data, Element, Family, FibAddress, Field, Hook, Rule,
    SetFlags, SetSpec, Statement, TableFlags, Type, Verb,
};

/// The n-th address of a family.
pub(crate) fn address(family: Family, n: u32) -> IpAddr {
    match family {
        Family::Ip => IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)),
        Family::Ip6 => IpAddr::V6(Ipv6Addr::from((0xfd00_u128 << 112) + u128::from(n))),
    }
}

/// Address, protocol, port.
pub(crate) fn service(family: Family, n: u32, protocol: u8, port: u16) -> Bytes {
    Bytes::new().address(address(family, n)).protocol(protocol).port(port)
}

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

pub(crate) fn rules(family: Family) -> Vec<Rule> {
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

pub(crate) fn table(family: Family) -> Batch {
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

/// One element or more for every kind of set.
pub(crate) fn fill(batch: &mut Batch, family: Family) {
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

/// Every hook with each type of chain that it can have.
pub(crate) const CHAINS: [(&str, BaseChain, &str); 5] = {
    const fn chain(kind: ChainKind, hook: Hook, priority: i32) -> BaseChain {
        BaseChain { kind, hook, priority }
    }
    [
        ("a", chain(ChainKind::Nat, Hook::Prerouting, -100), "prerouting"),
        ("b", chain(ChainKind::Filter, Hook::Input, 0), "input"),
        ("c", chain(ChainKind::Filter, Hook::Forward, -110), "forward"),
        ("d", chain(ChainKind::Nat, Hook::Output, -100), "output"),
        ("e", chain(ChainKind::Nat, Hook::Postrouting, 100), "postrouting"),
    ]
};
