//! From JSON to protobuf. A value of a wrong type is written as the zero value of the right one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use zonewise_common::protobuf::envelope::MAGIC;

use super::table::{Field, Message, Presence, ValueType};

/// In nanoseconds.
const SECOND: i128 = 1_000_000_000;
const MICROSECOND: i128 = 1_000;

/// An object in its envelope; `None` if the table has no message of its kind.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = type_of(object);
    Some(envelope(api_version, kind, &message(object)?))
}

/// An object without an envelope, as items of lists have it; `None` if the table has no message of its
/// kind.
pub(crate) fn message(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = type_of(object);
    let mut out = Vec::new();
    write_fields(object, Message::of(api_version, kind)?.fields(), &mut out);
    Some(out)
}

fn type_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// `runtime.Unknown` around an object, with the prefix of all that the API has in protobuf.
pub(crate) fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    delimited(1, &mut out, |out| {
        bytes(1, api_version.as_bytes(), out);
        bytes(2, kind.as_bytes(), out);
    });
    bytes(2, object, &mut out);
    // No content encoding, and no other content type.
    bytes(3, &[], &mut out);
    bytes(4, &[], &mut out);
    out
}

/// A list in its envelope. `items` are messages.
pub(crate) fn list<'a>(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut list = Vec::new();
    let metadata_fields = Message::named("meta/v1.ListMeta").map_or(&[][..], Message::fields);
    delimited(1, &mut list, |out| write_fields(metadata, metadata_fields, out));
    items.for_each(|item| bytes(2, item, &mut list));
    envelope(api_version, kind, &list)
}

/// Appends a frame of a watch: the length, and a `metav1.WatchEvent` with an object in its envelope.
pub(crate) fn frame(event_type: &str, object: &[u8], out: &mut Vec<u8>) {
    let mut event = Vec::new();
    bytes(1, event_type.as_bytes(), &mut event);
    delimited(2, &mut event, |out| bytes(1, object, out));
    // An object is smaller than a request body, so the length fits.
    out.extend(u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(event);
}

fn write_fields(object: &Value, fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        let (number, value_type, found) = (field.number, field.value_type, &object[field.name]);
        match field.presence {
            Presence::Inline => value(number, value_type, object, out),
            Presence::Plain | Presence::Required => value(number, value_type, found, out),
            Presence::Optional if found.is_null() => {}
            Presence::Optional => value(number, value_type, found, out),
            Presence::List => {
                let items = found.as_array().into_iter().flatten();
                items.for_each(|item| value(number, value_type, item, out));
            }
            Presence::Map => {
                let mut entries: Vec<_> = found.as_object().into_iter().flatten().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, one) in entries {
                    delimited(number, out, |out| {
                        bytes(1, key.as_bytes(), out);
                        value(2, value_type, one, out);
                    });
                }
            }
        }
    }
}

fn value(number: u32, value_type: ValueType, value: &Value, out: &mut Vec<u8>) {
    let text = || value.as_str().unwrap_or_default();
    match value_type {
        ValueType::Text => bytes(number, text().as_bytes(), out),
        ValueType::Bytes => bytes(number, &STANDARD.decode(text()).unwrap_or_default(), out),
        ValueType::Bool => integer(number, value.as_bool().unwrap_or_default().into(), out),
        ValueType::Integer => integer(number, value.as_i64().unwrap_or_default(), out),
        ValueType::Texts => delimited(number, out, |out| {
            let items = value.as_array().into_iter().flatten();
            items.for_each(|item| bytes(1, item.as_str().unwrap_or_default().as_bytes(), out));
        }),
        ValueType::IntOrString => delimited(number, out, |out| {
            integer(1, value.is_string().into(), out);
            integer(2, value.as_i64().unwrap_or_default(), out);
            bytes(3, text().as_bytes(), out);
        }),
        ValueType::Time => time(number, text(), SECOND, out),
        ValueType::MicroTime => time(number, text(), MICROSECOND, out),
        ValueType::Quantity => delimited(number, out, |out| match value {
            // A quantity without a unit may be a number in JSON.
            Value::Number(number) => bytes(1, number.to_string().as_bytes(), out),
            Value::String(text) if is_quantity(text) => bytes(1, text.as_bytes(), out),
            _ => bytes(1, b"0", out),
        }),
        ValueType::FieldsV1 => delimited(number, out, |out| {
            bytes(1, &serde_json::to_vec(value).unwrap_or_default(), out);
        }),
        ValueType::Message(message) => {
            delimited(number, out, |out| write_fields(value, message.fields(), out));
        }
    }
}

/// Whether clients in Go can read a quantity; they would refuse the whole object otherwise. The pattern is
/// that of apimachinery (pkg/api/resource): `^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$`.
fn is_quantity(text: &str) -> bool {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let unit = number.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let exponent = unit.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    unit.len() < number.len() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A time in steps of so many nanoseconds. No time is an empty message.
fn time(number: u32, text: &str, step: i128, out: &mut Vec<u8>) {
    delimited(number, out, |out| {
        if let Ok(time) = text.parse::<Timestamp>() {
            // The nanoseconds count from the second before, for times before 1970 as well.
            let rest = time.as_nanosecond().rem_euclid(SECOND);
            let seconds = time.as_nanosecond().div_euclid(SECOND);
            integer(1, i64::try_from(seconds).unwrap_or_default(), out);
            integer(2, i64::try_from(rest / step * step).unwrap_or_default(), out);
        }
    });
}

fn bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(number) << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    varint(u64::from(number) << 3, out);
    varint(value.cast_unsigned(), out);
}

/// A message that `write` writes.
fn delimited(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    varint(u64::from(number) << 3 | 2, out);
    let start = out.len();
    write(out);
    let end = out.len();
    varint((end - start) as u64, out);
    // The length is known now, and belongs before the message.
    let length = out.len() - end;
    out[start..].rotate_right(length);
}

/// Seven bits in each byte, the lowest first.
fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}
