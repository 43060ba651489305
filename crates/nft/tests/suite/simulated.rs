//! Packets that are walked through the rules of a kernel in memory.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use zonewise_nft::simulated::{Destination, Packet, SimulatedKernel};
use zonewise_nft::{
    BaseChain, Batch, Bytes, ChainKind, Data, Element, Family, Field, Hook, Network, Rule,
    SetFlags, SetSpec, Statement, TableFlags, Type, Verb,
};

const SLOTS: SetSpec = SetSpec {
    name: "slots",
    key: &[Type::Number],
    data: &[Type::Address, Type::Port],
    flags: SetFlags { interval: false, dynamic: false, timeout: false, counter: false },
    size: None,
    comment: "",
};

fn endpoint(slot: u32) -> SocketAddr {
    let last = u8::try_from(slot + 1).unwrap();
    (Ipv4Addr::new(10, 244, 0, last), 8080).into()
}

/// Every packet goes to one of these slots, by a random number.
fn rules(slots: u32) -> Batch {
    let mut batch = Batch::new("zw");
    batch.add_table(Family::Ip, TableFlags { owner: false, persist: false }, "");
    batch.add_set(Family::Ip, &SLOTS);
    let base = BaseChain { kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -100 };
    batch.add_chain(Family::Ip, "prerouting", Some(&base), "");
    let fields = vec![Field::Slot(slots)];
    let rule = Rule::new([Statement::Dnat { fields, map: "slots".into() }]);
    batch.add_rule(Family::Ip, "prerouting", &rule);
    let mut elements = batch.elements(Verb::Add, Family::Ip, "slots");
    for slot in 0..slots {
        let (key, to) = (Bytes::new().number(slot), endpoint(slot));
        let data = Bytes::new().address(to.ip()).port(to.port());
        elements.push(&Element::pair(key.as_slice(), Data::Value(data.as_slice())));
    }
    drop(elements);
    batch
}

#[test]
fn the_caller_draws_the_random_numbers_of_a_walk() {
    let kernel = SimulatedKernel::new(true);
    let destination: IpAddr = Ipv4Addr::new(10, 96, 0, 1).into();
    let packet = Packet {
        source: Ipv4Addr::new(10, 244, 1, 2).into(),
        destination,
        protocol: 6,
        port: 80,
        local: BTreeSet::new(),
    };
    let walk = |slot: u32| {
        kernel.look(|rules| {
            rules.destination(&packet, |modulus| {
                assert_eq!(modulus, 3);
                slot
            })
        })
    };
    assert_eq!(walk(0), Destination::Unchanged, "there is no rule");
    let mut socket = Network::simulated(kernel.process()).socket().unwrap();
    socket.commit(&rules(3)).unwrap();
    let expected: Vec<Destination> =
        (0..3).map(|slot| Destination::Endpoint(endpoint(slot))).collect();
    assert_eq!((0..3).map(walk).collect::<Vec<_>>(), expected);
    let all = kernel.look(|rules| rules.destinations(&packet));
    assert_eq!(all, expected.into_iter().collect());
}
