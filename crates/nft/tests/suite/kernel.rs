//! The kernel accepts what we write, lists it unchanged, explains what it refuses, and keeps other programs
//! from changing owned tables.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is the report")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common::{address, in_namespace, nft, service};
use proptest::prelude::*;
use zonewise_nft::{
    BaseChain, Batch, Bytes, ChainKind, CommitError, CounterInfo, Data, DumpedElement, Element,
    Family, Field, Hook, Parts, Rule, SetFlags, SetSpec, Socket, Statement, TableFlags, Type, Verb,
};

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ERESTART: i32 = 85;
const EOPNOTSUPP: i32 = 95;

const NO_FLAGS: SetFlags =
    SetFlags { interval: false, dynamic: false, timeout: false, counter: false };

const fn set(name: &'static str, key: &'static [Type], data: &'static [Type]) -> SetSpec {
    SetSpec { name, key, data, flags: NO_FLAGS, size: None, comment: "" }
}

const SERVICES: SetSpec =
    set("services", &[Type::Address, Type::Protocol, Type::Port], &[Type::Verdict]);
const SLOTS: SetSpec = set(
    "slots",
    &[Type::Address, Type::Protocol, Type::Port, Type::Number],
    &[Type::Address, Type::Port],
);

const OWNED: TableFlags = TableFlags { owner: true, persist: true };
const OPEN: TableFlags = TableFlags { owner: false, persist: false };

fn table(specs: &[SetSpec]) -> Batch {
    let mut batch = Batch::new("zw");
    for family in Family::ALL {
        batch.add_table(family, OPEN, "");
        batch.add_chain(family, "target", None, "");
        for spec in specs {
            batch.add_set(family, spec);
        }
    }
    batch
}

fn zone_a(packets: u64, bytes: u64) -> CounterInfo {
    CounterInfo { name: "zone-a".to_owned(), packets, bytes }
}

fn count(socket: &mut Socket, set: &str) -> usize {
    let mut count = 0;
    socket.dump(Family::Ip, "zw", set, &mut |_| count += 1).unwrap();
    count
}

#[test]
fn a_hundred_thousand_elements_in_one_batch() {
    in_namespace(|| {
        const MANY: u32 = 100_000;
        let mut socket = Socket::open().unwrap();
        socket.commit(&table(&[SERVICES])).unwrap();
        let start = Instant::now();
        let mut batch = Batch::new("zw");
        let mut elements = batch.elements(Verb::Add, Family::Ip, "services");
        for n in 0..MANY {
            let key = service(Family::Ip, n, 6, 80);
            elements.push(&Element::pair(key.as_slice(), Data::Goto("target")));
        }
        drop(elements);
        let encoded = start.elapsed();
        socket.commit(&batch).unwrap();
        let committed = start.elapsed() - encoded;
        let start = Instant::now();
        assert_eq!(count(&mut socket, "services"), 100_000);
        let dumped = start.elapsed();
        let start = Instant::now();
        let mut one = Batch::new("zw");
        let key = service(Family::Ip, MANY, 6, 80);
        let element = Element::pair(key.as_slice(), Data::Goto("target"));
        one.elements(Verb::Add, Family::Ip, "services").push(&element);
        socket.commit(&one).unwrap();
        let added = start.elapsed();
        let start = Instant::now();
        for n in 0..20 {
            one.clear();
            let key = service(Family::Ip, n, 6, 80);
            let element = Element::key(key.as_slice());
            one.elements(Verb::Delete, Family::Ip, "services").push(&element);
            socket.commit(&one).unwrap();
        }
        println!(
            "{} bytes in {} messages: encode {encoded:?}, commit {committed:?}, dump {dumped:?}, \
             add one {added:?}, delete 20 one by one {:?}",
            batch.len_bytes(),
            batch.messages(),
            start.elapsed()
        );
    });
}

#[test]
fn a_refused_batch_leaves_nothing_and_names_the_message() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        let mut batch = table(&[SERVICES]);
        let good = batch.messages();
        batch.add_rule(Family::Ip, "nowhere", &Rule::new([Statement::Drop]));
        batch.add_chain(Family::Ip, "more", None, "");
        batch.delete_set(Family::Ip6, "unknown");
        batch.add_chain(Family::Ip, "last", None, "");
        let error = socket.commit(&batch).unwrap_err();
        let refused: Vec<(u32, i32, &str)> = error
            .refused
            .iter()
            .map(|refusal| (refusal.message, refusal.errno, refusal.what.as_str()))
            .collect();
        let expected = [
            (good + 1, ENOENT, "add rule in chain ip zw nowhere"),
            (good + 3, ENOENT, "delete set ip6 zw unknown"),
        ];
        assert_eq!(refused, expected);
        let text = error.to_string();
        assert!(text.contains("nowhere") && text.contains("does not exist"), "{text}");
        assert_eq!(socket.tables().unwrap(), []);
    });
}

#[test]
fn what_a_map_says_is_replaced_by_deleting_first() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        socket.commit(&table(&[SERVICES])).unwrap();
        let key = service(Family::Ip, 1, 6, 80);
        let add = |batch: &mut Batch, data| {
            let element = Element::pair(key.as_slice(), data);
            batch.elements(Verb::Add, Family::Ip, "services").push(&element);
        };
        let mut first = Batch::new("zw");
        add(&mut first, Data::Drop);
        socket.commit(&first).unwrap();
        socket.commit(&first).expect("the same again is no error");
        let mut other = Batch::new("zw");
        add(&mut other, Data::Goto("target"));
        let error = socket.commit(&other).unwrap_err();
        assert_eq!(error.errno(), Some(EEXIST));
        assert!(error.to_string().contains("delete it first"), "{error}");
        let mut both = Batch::new("zw");
        both.elements(Verb::Delete, Family::Ip, "services").push(&Element::key(key.as_slice()));
        add(&mut both, Data::Goto("target"));
        socket.commit(&both).unwrap();
        let mut seen = Vec::new();
        let see = &mut |element: DumpedElement<'_>| match element.data {
            Some(Data::Goto(chain)) => seen.push(chain.to_owned()),
            other => panic!("{other:?}"),
        };
        socket.dump(Family::Ip, "zw", "services", see).unwrap();
        assert_eq!(seen, ["target"]);
    });
}

#[test]
fn the_generation_tells_of_changes() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        let before = socket.generation().unwrap();
        assert_eq!(socket.generation().unwrap(), before);
        socket.commit(&table(&[])).unwrap();
        let after = socket.generation().unwrap();
        assert_ne!(after, before);
        let mut batch = Batch::new("zw");
        batch.add_chain(Family::Ip, "late", None, "");
        let error = socket.commit_at(&batch, before).unwrap_err();
        assert_eq!(error.errno(), Some(ERESTART));
        assert!(error.to_string().contains("try again"), "{error}");
        socket.commit_at(&batch, after).unwrap();
    });
}

fn owned() -> Batch {
    let mut batch = Batch::new("zw");
    batch.add_table(Family::Ip, OWNED, "ours");
    batch
}

fn chain(name: &str) -> Batch {
    let mut batch = Batch::new("zw");
    batch.add_chain(Family::Ip, name, None, "");
    batch
}

fn errno(result: Result<(), CommitError>) -> Option<i32> {
    result.err().and_then(|error| error.errno())
}

#[test]
fn an_owned_table_is_changed_by_its_owner_only() {
    in_namespace(|| {
        let mut owner = Socket::open().unwrap();
        owner.commit(&owned()).unwrap();
        owner.commit(&chain("mine")).unwrap();
        let tables = owner.tables().unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].owner, Some(owner.port()));
        assert_eq!((tables[0].flags, tables[0].comment.as_str()), (OWNED.bits(), "ours"));

        let mut other = Socket::open().unwrap();
        let error = other.commit(&chain("theirs")).unwrap_err();
        assert_eq!(error.errno(), Some(EPERM));
        assert!(error.to_string().contains("own the table"), "{error}");
        assert_eq!(errno(other.commit(&owned())), Some(EPERM));
        nft(&["flush", "ruleset"]);
        assert_eq!(owner.chains(Family::Ip, "zw").unwrap()[0].name, "mine");

        drop(owner);
        let tables = other.tables().unwrap();
        assert_eq!((tables.len(), tables[0].owner), (1, None));
        other.commit(&owned()).unwrap();
        other.commit(&chain("theirs")).unwrap();
        let names: Vec<_> =
            other.chains(Family::Ip, "zw").unwrap().into_iter().map(|chain| chain.name).collect();
        assert_eq!(names, ["mine", "theirs"]);
    });
}

#[test]
fn a_table_that_never_had_an_owner_is_made_anew() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        socket.commit(&table(&[SERVICES])).unwrap();
        assert_eq!(errno(socket.commit(&owned())), Some(EOPNOTSUPP));
        let mut batch = Batch::new("zw");
        batch.delete_table(Family::Ip);
        batch.add_table(Family::Ip, OWNED, "");
        batch.add_set(Family::Ip, &SERVICES);
        socket.commit(&batch).unwrap();
        assert_eq!(errno(Socket::open().unwrap().commit(&chain("theirs"))), Some(EPERM));
        assert_eq!(socket.sets(Family::Ip, "zw").unwrap().len(), 1);
    });
}

#[test]
fn without_the_right_the_error_says_so() {
    in_namespace(|| {
        rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(65534)).unwrap();
        let error = Socket::open().unwrap().commit(&table(&[])).unwrap_err();
        assert_eq!(error.errno(), Some(EPERM));
        assert_eq!(error.refused[0].what, "the batch as a whole");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

#[test]
fn more_refusals_than_fit_are_still_a_refusal() {
    in_namespace(|| {
        let mut batch = table(&[]);
        for _ in 0..50_000 {
            batch.delete_set(Family::Ip, "unknown");
        }
        let mut socket = Socket::open().unwrap();
        let error = socket.commit(&batch).unwrap_err();
        assert_eq!(error.errno(), Some(ENOENT));
        assert!(!error.is_unknown());
        socket.commit(&table(&[])).expect("the socket still works");
    });
}

#[test]
fn reads_back_chains_sets_rules_and_counters() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        let mut batch = table(&[SERVICES, SLOTS]);
        let base = BaseChain { kind: ChainKind::Filter, hook: Hook::Input, priority: 0 };
        batch.add_chain(Family::Ip, "input", Some(&base), "first");
        let jump = Rule::new([Statement::CtStateNew, Statement::Jump("target".into())]);
        batch.add_rule(Family::Ip, "input", &jump.comment("new ones"));
        batch.add_rule(Family::Ip, "input", &Rule::new([Statement::Goto("target".into())]));
        batch.add_rule(Family::Ip, "target", &Rule::new([Statement::Counter]));
        batch.add_counter(Family::Ip, "zone-a", "");
        socket.commit(&batch).unwrap();

        let chains = socket.chains(Family::Ip, "zw").unwrap();
        let names: Vec<_> =
            chains.iter().map(|c| (c.name.as_str(), c.comment.as_str(), c.base)).collect();
        assert_eq!(names, [("target", "", false), ("input", "first", true)]);

        let sets = socket.sets(Family::Ip6, "zw").unwrap();
        let names: Vec<_> =
            sets.iter().map(|set| (set.name.as_str(), set.key_len, set.data_len)).collect();
        assert_eq!(names, [("services", 24, 16), ("slots", 28, 20)]);

        let rules = socket.rules(Family::Ip, "zw").unwrap();
        let rules: Vec<_> = rules
            .iter()
            .map(|rule| (rule.chain.as_str(), &rule.jumps_to[..], rule.expressions))
            .collect();
        let target = ["target".to_owned()];
        let expected =
            [("target", &[][..], 1), ("input", &target[..], 4), ("input", &target[..], 1)];
        assert_eq!(rules, expected);
        assert_eq!(socket.counters(Family::Ip, "zw").unwrap(), [zone_a(0, 0)]);
        assert_eq!(socket.counters(Family::Ip6, "zw").unwrap(), []);

        let missing = socket.dump(Family::Ip, "zw", "unknown", &mut |_| {}).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(socket.rules(Family::Ip, "nobody").unwrap(), []);
    });
}

#[test]
fn flushing_and_deleting_leave_nothing() {
    in_namespace(|| {
        let mut socket = Socket::open().unwrap();
        let mut batch = table(&[SERVICES]);
        batch.add_counter(Family::Ip, "c", "");
        batch.add_rule(Family::Ip, "target", &Rule::new([Statement::Drop]));
        let key = service(Family::Ip, 1, 6, 80);
        let element = Element::pair(key.as_slice(), Data::Drop);
        batch.elements(Verb::Add, Family::Ip, "services").push(&element);
        socket.commit(&batch).unwrap();

        let mut flush = Batch::new("zw");
        flush.flush_chain(Family::Ip, "target");
        flush.flush_set(Family::Ip, "services");
        socket.commit(&flush).unwrap();
        assert_eq!(socket.rules(Family::Ip, "zw").unwrap(), []);
        assert_eq!(count(&mut socket, "services"), 0);

        let mut delete = Batch::new("zw");
        delete.delete_chain(Family::Ip, "target");
        delete.delete_set(Family::Ip, "services");
        delete.delete_counter(Family::Ip, "c");
        socket.commit(&delete).unwrap();
        assert_eq!(socket.chains(Family::Ip, "zw").unwrap(), []);
        assert_eq!(socket.sets(Family::Ip, "zw").unwrap(), []);
        assert_eq!(socket.counters(Family::Ip, "zw").unwrap(), []);

        nft(&["add", "table", "ip", "foreign"]);
        let mut gone = Batch::new("zw");
        gone.delete_table(Family::Ip);
        gone.delete_table(Family::Ip6);
        gone.in_table("foreign".to_owned()).delete_table(Family::Ip);
        socket.commit(&gone).unwrap();
        assert_eq!(socket.tables().unwrap(), []);
    });
}

/// Adds or deletes the slot of a service.
#[derive(Clone, Copy, Debug)]
struct Change {
    service: u32,
    slot: u32,
    endpoint: Option<u32>,
}

fn change() -> impl Strategy<Value = Change> {
    (0..4_u32, 0..6_u32, proptest::option::of(0..1000_u32))
        .prop_map(|(service, slot, endpoint)| Change { service, slot, endpoint })
}

type Model = BTreeMap<(u32, u32), u32>;

/// Puts a change into the model and the batch.
fn apply(model: &mut Model, batch: &mut Batch, family: Family, change: Change) {
    let key = service(family, change.service, 17, 53).number(change.slot);
    if model.remove(&(change.service, change.slot)).is_some() {
        batch.elements(Verb::Delete, family, "slots").push(&Element::key(key.as_slice()));
    }
    if let Some(endpoint) = change.endpoint {
        model.insert((change.service, change.slot), endpoint);
        let data = Bytes::new().address(address(family, endpoint)).port(5353);
        let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
        batch.elements(Verb::Add, family, "slots").push(&element);
    }
}

fn kernel(socket: &mut Socket, family: Family) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let each = &mut |element: DumpedElement<'_>| {
        let Some(Data::Value(data)) = element.data else { panic!("{element:?}") };
        found.insert(element.key.to_vec(), data.to_vec());
    };
    socket.dump(family, "zw", "slots", each).unwrap();
    found
}

fn expected(model: &Model, family: Family) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pair = |(&(n, slot), &endpoint): (&(u32, u32), &u32)| {
        let key = service(family, n, 17, 53).number(slot);
        let data = Bytes::new().address(address(family, endpoint)).port(5353);
        (key.as_slice().to_vec(), data.as_slice().to_vec())
    };
    model.iter().map(pair).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of batches the kernel holds exactly what the model says.
    #[test]
    fn the_kernel_holds_what_was_written(
        batches in proptest::collection::vec(proptest::collection::vec(change(), 0..20), 1..6),
        six in any::<bool>(),
    ) {
        let family = if six { Family::Ip6 } else { Family::Ip };
        in_namespace(move || {
            let mut socket = Socket::open().unwrap();
            socket.commit(&table(&[SLOTS])).unwrap();
            let mut model = Model::new();
            for changes in &batches {
                let mut batch = Batch::new("zw");
                for change in changes {
                    apply(&mut model, &mut batch, family, *change);
                }
                socket.commit(&batch).unwrap();
                assert_eq!(kernel(&mut socket, family), expected(&model, family));
            }
        });
    }
}

/// A service on loopback: 127.1.1.1:53 leads to one of the ports, by slot.
pub(crate) fn slots_to(ports: &[u16]) -> Batch {
    let mut batch = table(&[SLOTS]);
    let base = BaseChain { kind: ChainKind::Nat, hook: Hook::Output, priority: -100 };
    batch.add_chain(Family::Ip, "output", Some(&base), "");
    let fields = vec![
        Field::Daddr,
        Field::Protocol,
        Field::Dport,
        Field::Slot(u32::try_from(ports.len()).unwrap()),
    ];
    let dnat = Rule::new([Statement::Dnat { fields, map: "slots".into() }]);
    batch.add_rule(Family::Ip, "output", &dnat);
    for (slot, port) in (0..).zip(ports) {
        let key = Bytes::new().address([127, 1, 1, 1].into()).protocol(17).port(53).number(slot);
        let data = Bytes::new().address([127, 0, 0, 1].into()).port(*port);
        let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
        batch.elements(Verb::Add, Family::Ip, "slots").push(&element);
    }
    batch
}

#[test]
fn rules_learn_clients_and_counters_count() {
    in_namespace(|| {
        const CLIENTS: SetSpec = SetSpec {
            flags: SetFlags { dynamic: true, timeout: true, ..NO_FLAGS },
            size: Some(10),
            ..set(
                "clients",
                &[Type::Address, Type::Address, Type::Protocol, Type::Port],
                &[Type::Address, Type::Port],
            )
        };
        const ZONES: SetSpec = set("zones", &[Type::Address], &[Type::Counter]);
        const SEEN: SetSpec = SetSpec {
            flags: SetFlags { counter: true, ..NO_FLAGS },
            ..set("seen", &[Type::Address], &[])
        };
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let mut batch = slots_to(&[port]);
        for spec in [CLIENTS, ZONES, SEEN] {
            batch.add_set(Family::Ip, &spec);
        }
        let base = BaseChain { kind: ChainKind::Filter, hook: Hook::Postrouting, priority: 90 };
        batch.add_chain(Family::Ip, "learn", Some(&base), "");
        let learn = Statement::Update {
            map: "clients".into(),
            key: vec![
                Field::OriginalSaddr,
                Field::OriginalDaddr,
                Field::Protocol,
                Field::OriginalDport,
            ],
            timeout: Duration::from_secs(600),
            data: vec![Field::Daddr, Field::Dport],
        };
        let count = Statement::CountByMap { fields: vec![Field::Daddr], map: "zones".into() };
        let seen =
            Statement::InSet { fields: vec![Field::Daddr], set: "seen".into(), negate: false };
        batch.add_rule(Family::Ip, "learn", &Rule::new([Statement::CtStateNew, count]));
        batch.add_rule(Family::Ip, "learn", &Rule::new([Statement::CtStatusDnat, seen, learn]));
        batch.add_counter(Family::Ip, "zone-a", "");
        let local = Bytes::new().address([127, 0, 0, 1].into());
        let zone = Element::pair(local.as_slice(), Data::Object("zone-a"));
        batch.elements(Verb::Add, Family::Ip, "zones").push(&zone);
        batch.elements(Verb::Add, Family::Ip, "seen").push(&Element::key(local.as_slice()));
        let mut socket = Socket::open().unwrap();
        socket.commit(&batch).unwrap();

        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"hello", "127.1.1.1:53").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        server.recv(&mut [0; 8]).unwrap();

        let mut learned = Vec::new();
        let each = &mut |element: DumpedElement<'_>| {
            let mut key = Parts(element.key);
            let client = key.address(Family::Ip).unwrap();
            let service = key.address(Family::Ip).unwrap();
            let to = (key.protocol().unwrap(), key.port().unwrap());
            let Some(Data::Value(data)) = element.data else { panic!("{element:?}") };
            let mut data = Parts(data);
            let endpoint = (data.address(Family::Ip).unwrap(), data.port().unwrap());
            assert!(element.expires.unwrap() > Duration::from_secs(500));
            learned.push((client, service, to, endpoint));
        };
        socket.dump(Family::Ip, "zw", "clients", each).unwrap();
        let local = [127, 0, 0, 1].into();
        assert_eq!(learned, [(local, [127, 1, 1, 1].into(), (17, 53), (local, port))]);
        assert_eq!(socket.counters(Family::Ip, "zw").unwrap(), [zone_a(1, 33)]);
        let mut packets = Vec::new();
        socket.dump(Family::Ip, "zw", "seen", &mut |seen| packets.push(seen.packets)).unwrap();
        assert_eq!(packets, [Some(1)]);
    });
}
