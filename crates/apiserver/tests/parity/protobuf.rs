//! Objects in protobuf, read and written by the embedded server's own code. The second tier holds that code equal to the types of
//! Kubernetes, byte by byte, and makes all comparisons with those.

use serde_json::{Map, Value, json};
use zonewise_apiserver::testing::{from_protobuf, to_protobuf};
use zonewise_common::protobuf::decode::{Field, FieldType, Presence};
use zonewise_common::protobuf::envelope::{Envelope, WatchEvent};
use zonewise_common::protobuf::kinds::{
    ENDPOINT_SLICE, LEASE, NODE, POD, SERVICE, SERVICE_CIDR, STATUS,
};
use zonewise_common::protobuf::reader::{Fields, Wire};
use zonewise_common::testing::protobuf::{bytes, envelope, int};

use crate::table::lines_of;
pub(crate) use crate::table::{MEDIA_TYPE, Read, STREAM_TYPE, read_frames, split_frame};

/// An object in its envelope.
pub(crate) fn read(whole: &[u8]) -> Read {
    let Envelope { api_version, kind, object } = Envelope::open(whole).unwrap();
    if is_known(api_version, kind) {
        let Ok(object) = from_protobuf(whole) else {
            assert_eq!(
                kind, "Status",
                "only what is said of a request may hold bytes that are no text"
            );
            let texts = with_whole_texts(object, &CAUSES);
            assert_ne!(texts, object, "{whole:x?}");
            return read(&envelope(api_version, kind, &texts));
        };
        // Whether these are the bytes of Kubernetes is for its own types to say.
        let same = from_protobuf(&to_protobuf(&object).unwrap()).as_ref() == Ok(&object);
        return Read { object, same };
    }
    let item = kind.strip_suffix("List").unwrap_or_else(|| panic!("no {api_version} {kind}"));
    let (mut list, mut items, mut same) = (Map::new(), Vec::new(), true);
    for part in Fields::new(object) {
        let (number, wire) = part.unwrap();
        let kind = if number == 1 { "ListMeta" } else { item };
        let mut read = read(&envelope(api_version, kind, wire.bytes().unwrap()));
        same &= read.same;
        let fields = read.object.as_object_mut().unwrap();
        if number == 1 {
            fields.retain(|field, _| field != "apiVersion" && field != "kind");
            list.insert("metadata".into(), read.object);
        } else {
            items.push(read.object);
        }
    }
    list.insert("apiVersion".into(), api_version.into());
    list.insert("kind".into(), kind.into());
    list.insert("items".into(), items.into());
    Read { object: list.into(), same }
}

/// The fields that lead from a Status to its causes: `details`, `causes`.
const CAUSES: [u32; 2] = [5, 4];

/// A Status that says U+FFFD for bytes that are no text, as JSON does.
fn with_whole_texts(status: &[u8], inner: &[u32]) -> Vec<u8> {
    let fields = Fields::new(status).map(|part| match (part.unwrap(), inner) {
        ((number, Wire::Bytes(value)), [first, rest @ ..]) if number == *first => {
            bytes(number, with_whole_texts(value, rest))
        }
        ((number, Wire::Bytes(value)), _) => {
            bytes(number, String::from_utf8_lossy(value).as_bytes())
        }
        ((number, wire), _) => int(number, wire.integer().unwrap().unsigned_abs()),
    });
    fields.collect::<Vec<_>>().concat()
}

/// True if the table has the fields of a kind.
fn is_known(api_version: &str, kind: &str) -> bool {
    to_protobuf(&json!({"apiVersion": api_version, "kind": kind})).is_some()
}

/// An event of a watch, without the length of its frame.
pub(crate) fn read_frame(frame: &[u8]) -> Read {
    let WatchEvent { event_type, envelope: Envelope { api_version, kind, object } } =
        WatchEvent::read(frame).unwrap();
    let Read { object, same } = read(&envelope(api_version, kind, object));
    Read { object: json!({"type": event_type, "object": object}), same }
}

/// An object in protobuf; `None` if the table has no place for all of it.
pub(crate) fn write(object: &Value) -> Option<Vec<u8>> {
    let bytes = to_protobuf(object)?;
    let read = from_protobuf(&bytes).ok()?;
    holds(&read, object).then_some(bytes)
}

/// True if a value has all that another one has, but for what is empty.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, value)| {
            is_empty(value) || whole.get(name).is_some_and(|one| holds(one, value))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| holds(whole, part))
        }
        _ => whole == part,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

/// The tables with which the controller and the proxies read objects are a part of that of Kubernetes.
#[test]
fn what_our_readers_know_is_what_kubernetes_writes() {
    let kinds = [
        ("core/v1.Pod", POD),
        ("core/v1.Node", NODE),
        ("core/v1.Service", SERVICE),
        ("discovery/v1.EndpointSlice", ENDPOINT_SLICE),
        ("coordination/v1.Lease", LEASE),
        ("networking/v1.ServiceCIDR", SERVICE_CIDR),
        ("meta/v1.Status", STATUS),
    ];
    for (message, kind) in kinds {
        check_fields(message, kind.fields);
    }
}

fn check_fields(message: &str, fields: &[Field]) {
    let lines = lines_of(message);
    assert!(!lines.is_empty(), "{message}");
    for field in fields {
        let found = lines.iter().find(|[number, ..]| *number == field.number.to_string());
        let [_, name, signed] = found.unwrap_or_else(|| panic!("no {field:?} in {message}"));
        let value_type = signed.trim_start_matches(['!', '*', '[', ']', '{', '}']);
        let fits: &[Presence] = match signed.strip_suffix(value_type).unwrap() {
            // In Go it is a struct, which JSON never leaves out.
            "" if value_type == "IntOrString" => &[Presence::Explicit],
            "" => &[Presence::Plain],
            // A reader may take an empty value for an absent one, where it makes no difference to it.
            "!" => &[Presence::Plain, Presence::Explicit],
            "*" => &[Presence::Explicit],
            "[]" => &[Presence::List],
            _ => &[Presence::Map],
        };
        assert_eq!(field.name, *name, "{message}");
        assert!(fits.contains(&field.presence), "{message}: {signed} is {field:?}");
        let expected = match field.field_type {
            FieldType::Text => "text",
            FieldType::Bool => "bool",
            FieldType::Integer => "int",
            FieldType::IntOrString => "IntOrString",
            FieldType::Quantity => "Quantity",
            FieldType::Time => "Time",
            FieldType::MicroTime => "MicroTime",
            FieldType::Message(fields) => {
                check_fields(value_type, fields);
                value_type
            }
        };
        assert_eq!(value_type, expected, "{message} {name}");
    }
}
