//! Random objects of any kind that has a table for protobuf, in both forms.

use serde_json::{Map, Value, json};

use super::protobuf::{OUT_OF_RANGE, bytes, encode_parts, fixed, int};
use crate::keys;
use crate::protobuf::decode::{Field, FieldType, Presence};

/// Random numbers that are the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() >> 33).unwrap_or(0) % end
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// Values that mean something somewhere, and values that no version of Kubernetes knows yet.
const TEXTS: [&str; 40] = [
    "",
    "a",
    "web",
    "shop",
    "IPv4",
    "IPv6",
    "FQDN",
    "IPv8",
    "TCP",
    "UDP",
    "SCTP",
    "QUIC",
    "Local",
    "Cluster",
    "Nearby",
    "ClusterIP",
    "None",
    "ExternalName",
    "LoadBalancer",
    "NodePort",
    "True",
    "False",
    "Unknown",
    "Ready",
    "Failed",
    "Running",
    "Always",
    "10.0.0.1",
    "010.0.0.02",
    "fd00::1",
    "::ffff:10.0.0.2",
    "10.0.0.0/8",
    "12",
    "1500m",
    "shop/web shop/api",
    "2026-01-02T03:04:05Z",
    "Auto",
    "VIP",
    "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0001",
    "\u{e4}\"\\\n\u{0}\u{1f980}",
];

const KEYS: [&str; 14] = [
    "app",
    "cpu",
    "memory",
    "",
    keys::ZONE,
    keys::REGION,
    keys::SERVICE_NAME,
    keys::HEADLESS,
    keys::FOR_ZONE,
    keys::FOR_REGION,
    keys::ZONE_SHARES,
    keys::TRIGGER_TIME,
    keys::TOPOLOGY_MODE,
    keys::APPLIED,
];

const NUMBERS: [i64; 9] = [0, 1, -1, 80, 8080, 65535, 65536, 2_147_483_647, -2_147_483_648];

/// A random object with the fields of a table, as an API server would write it in JSON: zero values are left out
/// where Go leaves them out.
pub fn object(random: &mut Random, fields: &[Field]) -> Value {
    let mut members = Map::new();
    for field in fields {
        if let Some(value) = member(random, field) {
            members.insert(field.name.to_owned(), value);
        }
    }
    Value::Object(members)
}

fn member(random: &mut Random, field: &Field) -> Option<Value> {
    // Every object has a name, and every slice a type of addresses.
    let required = ["name", "addressType"].contains(&field.name);
    match field.presence {
        Presence::Plain if matches!(field.field_type, FieldType::Message(_)) => {
            Some(value(random, field.field_type))
        }
        Presence::Plain => {
            let value = Some(value(random, field.field_type)).filter(|value| !is_zero(value));
            value.or_else(|| required.then(|| "web".into()))
        }
        Presence::Explicit if !required && random.below(3) == 0 => None,
        Presence::Explicit => Some(value(random, field.field_type)),
        Presence::List => {
            let length = random.below(4);
            let list: Vec<Value> = (0..length).map(|_| value(random, field.field_type)).collect();
            (length > 0).then_some(list.into())
        }
        Presence::Map => {
            let length = random.below(5);
            let mut entry = || (random.one_of(&KEYS).to_owned(), value(random, field.field_type));
            let map: Map<String, Value> = (0..length).map(|_| entry()).collect();
            (length > 0).then_some(map.into())
        }
    }
}

fn is_zero(value: &Value) -> bool {
    [json!(""), json!(0), json!(false)].contains(value)
}

fn value(random: &mut Random, field_type: FieldType) -> Value {
    let number = NUMBERS[random.below(NUMBERS.len())];
    match field_type {
        FieldType::Text | FieldType::Quantity => random.one_of(&TEXTS).into(),
        FieldType::Bool => (random.below(2) == 0).into(),
        FieldType::Integer => number.into(),
        FieldType::IntOrString if random.below(2) == 0 => number.into(),
        FieldType::IntOrString => random.one_of(&TEXTS).into(),
        FieldType::Time | FieldType::MicroTime if random.below(8) == 0 => {
            OUT_OF_RANGE[random.below(OUT_OF_RANGE.len())].0.into()
        }
        FieldType::Time => "2026-01-02T03:04:05Z".into(),
        FieldType::MicroTime => "1969-12-31T23:59:59.250000Z".into(),
        FieldType::Message(fields) => object(random, fields),
    }
}

/// An object in protobuf as some other encoder may write it: fields in any order, lists apart, and fields between
/// them that no table has.
pub fn scattered(random: &mut Random, fields: &[Field], object: &Value) -> Vec<u8> {
    encode_parts(fields, object, &mut |parts| {
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        let mut out = Vec::new();
        while !parts.is_empty() {
            let index = random.below(parts.len());
            match parts[index].next() {
                Some(part) => out.extend(part),
                None => drop(parts.swap_remove(index)),
            }
            match random.below(12) {
                0 => out.extend(int(1000, u64::MAX)),
                1 => out.extend(bytes(1001, "of the future")),
                2 => out.extend(fixed(1002, 8)),
                3 => out.extend(fixed(1003, 4)),
                _ => {}
            }
        }
        out
    })
}
