//! The tables as text, in the syntax of `nft list table`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use zonewise_common::cidr::Cidr;
use zonewise_nft::{Family, Parts, Rule, SetSpec, Type};

use super::TABLE;
use super::affinity::{self, AffinityMap};
use super::chains::Chain;
use super::counting;
use super::desired::Desired;
use super::entries::{Entry, Value};
use super::layout::{self, CHECK_CLUSTER_IPS, FAMILIES, Options};
use super::sets::Set;

/// Both tables. `counter` names the counter of a zone.
pub fn tables(
    desired: &Desired,
    options: &Options,
    service_cidrs: &[Cidr],
    counter: &dyn Fn(zonewise_routing::ZoneId) -> String,
) -> String {
    let mut entries: BTreeMap<(Family, Set), Vec<Entry>> = BTreeMap::new();
    let mut chains: BTreeSet<(Family, Chain)> = BTreeSet::new();
    let mut counting: BTreeSet<(Family, String)> = BTreeSet::new();
    desired.each(|entry| {
        if let Value::Chain(chain, _) = entry.value
            && !chain.is_fixed()
        {
            chains.insert((entry.family, chain));
        }
        if let Value::ZoneChain(zone) = entry.value {
            counting.insert((entry.family, counter(zone)));
        }
        entries.entry((entry.family, entry.set)).or_default().push(entry);
    });
    let mut text = String::new();
    for family in FAMILIES {
        let used = chains.iter().filter(|(of, _)| *of == family).map(|(_, chain)| *chain);
        let _ = writeln!(text, "table {family} {TABLE} {{");
        for set in options.sets() {
            let mut members = entries.remove(&(family, set)).unwrap_or_default();
            members.sort_by_key(|entry| entry.key);
            write_set(&mut text, family, set.name(), set.spec(), &members, counter);
        }
        let maps: BTreeSet<AffinityMap> = used.clone().filter_map(Chain::affinity).collect();
        for map in maps {
            write_set(&mut text, family, &map.to_string(), &affinity::SPEC, &[], counter);
        }
        let zones = counting.iter().filter(|(of, _)| *of == family).map(|(_, zone)| zone);
        for zone in zones.clone() {
            write_set(&mut text, family, &counting::set(zone), &counting::SPEC, &[], counter);
        }
        write_chains(&mut text, family, options, service_cidrs, used);
        for zone in zones {
            write_chain(&mut text, family, zone, None, &counting::rules(zone));
        }
        text.push_str("}\n");
    }
    text
}

fn write_set(
    text: &mut String,
    family: Family,
    name: &str,
    spec: &SetSpec,
    entries: &[Entry],
    counter: &dyn Fn(zonewise_routing::ZoneId) -> String,
) {
    let kind = if spec.data.is_empty() { "set" } else { "map" };
    let _ = writeln!(text, "    {kind} {name} {{");
    let _ = writeln!(text, "        type {}", types(family, spec));
    let _ = writeln!(text, "        comment \"{}\"", spec.comment);
    if !entries.is_empty() {
        let members: Vec<String> =
            entries.iter().map(|entry| element(family, spec, entry, counter)).collect();
        let _ =
            writeln!(text, "        elements = {{ {} }}", members.join(",\n                     "));
    }
    text.push_str("    }\n\n");
}

fn types(family: Family, spec: &SetSpec) -> String {
    let name = |kind: &Type| match (kind, family) {
        (Type::Address, Family::Ip) => "ipv4_addr",
        (Type::Address, Family::Ip6) => "ipv6_addr",
        (Type::Protocol, _) => "inet_proto",
        (Type::Port, _) => "inet_service",
        (Type::Number, _) => "integer",
        (Type::Verdict, _) => "verdict",
        (Type::Counter, _) => "counter",
    };
    let joined = |kinds: &[Type]| kinds.iter().map(name).collect::<Vec<_>>().join(" . ");
    if spec.data.is_empty() {
        return joined(spec.key);
    }
    format!("{} : {}", joined(spec.key), joined(spec.data))
}

fn element(
    family: Family,
    spec: &SetSpec,
    entry: &Entry,
    counter: &dyn Fn(zonewise_routing::ZoneId) -> String,
) -> String {
    let key = parts(family, spec.key, entry.key.as_slice());
    let comment = |comment: &str| match comment {
        "" => String::new(),
        comment => format!(" comment \"{comment}\""),
    };
    match &entry.value {
        Value::Present => key.join(" . "),
        Value::Until(end) => {
            let end = parts(family, spec.key, end.as_slice());
            let range = |(from, to): (&String, &String)| {
                if from == to { from.clone() } else { format!("{from}-{to}") }
            };
            key.iter().zip(&end).map(range).collect::<Vec<_>>().join(" . ")
        }
        Value::Endpoint(data) => {
            let data = parts(family, spec.data, data.as_slice());
            format!("{} : {}", key.join(" . "), data.join(" . "))
        }
        Value::Chain(chain, of) => format!("{}{} : goto {chain}", key.join(" . "), comment(&of.0)),
        Value::Drop(of) => format!("{}{} : drop", key.join(" . "), comment(&of.0)),
        Value::Zone(zone) => format!("{} : \"{}\"", key.join(" . "), counter(*zone)),
        Value::ZoneChain(zone) => format!("{} : goto {}", key.join(" . "), counter(*zone)),
    }
}

fn parts(family: Family, kinds: &[Type], bytes: &[u8]) -> Vec<String> {
    let mut parts = Parts(bytes);
    let part = |kind: &Type| match kind {
        Type::Address => parts.address(family).map(|address| address.to_string()),
        Type::Protocol => parts.protocol().map(protocol_name),
        Type::Port => parts.port().map(|port| port.to_string()),
        Type::Number => parts.number().map(|number| number.to_string()),
        Type::Verdict | Type::Counter => None,
    };
    kinds.iter().filter_map(part).collect()
}

/// The name of an IP protocol.
pub fn protocol_name(number: u8) -> String {
    match number {
        6 => "tcp".into(),
        17 => "udp".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

fn write_chains(
    text: &mut String,
    family: Family,
    options: &Options,
    service_cidrs: &[Cidr],
    used: impl Iterator<Item = Chain>,
) {
    for (base, rules) in layout::base_chains(family, options) {
        let kind = format!("{:?}", base.chain.kind).to_lowercase();
        let hook = format!("{:?}", base.chain.hook).to_lowercase();
        let head =
            format!("type {kind} hook {hook} priority {}; policy accept;", base.chain.priority);
        write_chain(text, family, base.name, Some(&head), &rules);
    }
    for (name, rules) in layout::fixed_chains(family, options) {
        write_chain(text, family, &name, None, &rules);
    }
    write_chain(
        text,
        family,
        CHECK_CLUSTER_IPS,
        None,
        &layout::check_cluster_ips(family, service_cidrs),
    );
    for chain in used {
        write_chain(text, family, &chain.to_string(), None, &chain.rules(family, options));
    }
}

fn write_chain(text: &mut String, family: Family, name: &str, head: Option<&str>, rules: &[Rule]) {
    let _ = writeln!(text, "    chain {name} {{");
    if let Some(head) = head {
        let _ = writeln!(text, "        {head}");
    }
    for rule in rules {
        let _ = writeln!(text, "        {}", rule.text(family));
    }
    text.push_str("    }\n\n");
}
