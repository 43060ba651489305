//! Writes protobuf, for tests.

use serde_json::Value;

use crate::protobuf::decode::{Field, FieldType, Presence};

/// A number as protobuf writes it: seven bits in each byte, the lowest first.
pub fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
    out
}

/// A field with a number, a bool or an enum.
pub fn int(field: u32, value: u64) -> Vec<u8> {
    [varint(u64::from(field) << 3), varint(value)].concat()
}

/// A field with a string, bytes or a message.
pub fn bytes(field: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(u64::from(field) << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// A field of four or eight bytes.
pub fn fixed(field: u32, length: usize) -> Vec<u8> {
    let wire_type = if length == 4 { 5 } else { 1 };
    [varint(u64::from(field) << 3 | wire_type), vec![0xa5; length]].concat()
}

/// An object in its envelope, as the API sends it.
pub fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version), bytes(2, kind)].concat();
    let fields = [bytes(1, type_meta), bytes(2, object), bytes(3, ""), bytes(4, "")];
    [b"k8s\0".to_vec(), fields.concat()].concat()
}

/// A message with its length before it, as watches send it.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), message].concat()
}

/// An event of a watch in its frame.
pub fn watch_event(event_type: &str, envelope: &[u8]) -> Vec<u8> {
    frame(&[bytes(1, event_type), bytes(2, bytes(1, envelope))].concat())
}

/// An object with the fields of a table, as Go writes it: in the order of the numbers, with the zero values
/// that JSON leaves out. A value that is not of the field's type is written as zero.
pub fn encode(fields: &[Field], object: &Value) -> Vec<u8> {
    encode_parts(fields, object, &mut |parts| parts.into_iter().flatten().flatten().collect())
}

/// What makes a message of its fields: for each field of the table, as often as it occurs.
type Join<'a> = &'a mut dyn FnMut(Vec<Vec<Vec<u8>>>) -> Vec<u8>;

/// The same, with messages that `join` makes of their fields.
pub(super) fn encode_parts(fields: &[Field], object: &Value, join: Join<'_>) -> Vec<u8> {
    let parts = fields.iter().map(|field| encode_field(field, &object[field.name], join)).collect();
    join(parts)
}

fn encode_field(field: &Field, value: &Value, join: Join<'_>) -> Vec<Vec<u8>> {
    let Field { number, presence, field_type, .. } = field;
    match presence {
        Presence::Explicit if value.is_null() => Vec::new(),
        Presence::Plain | Presence::Explicit => {
            vec![encode_value(*number, *field_type, value, join)]
        }
        Presence::List => {
            let elements = value.as_array().into_iter().flatten();
            elements.map(|element| encode_value(*number, *field_type, element, join)).collect()
        }
        Presence::Map => {
            let entries = value.as_object().into_iter().flatten();
            let entry = |(key, value): (&String, &Value)| {
                let value = encode_value(2, *field_type, value, join);
                bytes(*number, [bytes(1, key), value].concat())
            };
            entries.map(entry).collect()
        }
    }
}

fn encode_value(number: u32, field_type: FieldType, value: &Value, join: Join<'_>) -> Vec<u8> {
    let text = || value.as_str().unwrap_or("");
    match field_type {
        FieldType::Text => bytes(number, text()),
        FieldType::Bool => int(number, u64::from(value == &Value::Bool(true))),
        FieldType::Integer => int(number, value.as_i64().unwrap_or(0).cast_unsigned()),
        FieldType::IntOrString => {
            let digits = value.as_i64().unwrap_or(0).cast_unsigned();
            let fields = [int(1, u64::from(value.is_string())), int(2, digits), bytes(3, text())];
            bytes(number, fields.concat())
        }
        FieldType::Quantity => bytes(number, bytes(1, text())),
        FieldType::Time | FieldType::MicroTime => bytes(number, encode_time(value)),
        FieldType::Message(fields) => bytes(number, encode_parts(fields, value, join)),
    }
}

/// Times that protobuf can hold and RFC 3339 cannot, as Go writes them in JSON, and their seconds since 1970.
pub const OUT_OF_RANGE: [(&str, i64); 2] =
    [("10000-01-01T00:00:00Z", 253_402_300_800), ("-0001-01-01T00:00:00Z", -62_198_755_200)];

/// An empty message for no time, or text that is none.
fn encode_time(value: &Value) -> Vec<u8> {
    let Some(text) = value.as_str() else { return Vec::new() };
    if let Some((_, seconds)) = OUT_OF_RANGE.iter().find(|(time, _)| *time == text) {
        return int(1, seconds.cast_unsigned());
    }
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return Vec::new() };
    // Go counts nanoseconds forward from the second, also before 1970.
    let (whole, rest) = (1_000_000, time.as_microsecond());
    let (seconds, microseconds) = (rest.div_euclid(whole), rest.rem_euclid(whole));
    [int(1, seconds.cast_unsigned()), int(2, microseconds.unsigned_abs() * 1000)].concat()
}
