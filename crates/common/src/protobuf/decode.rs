//! serde's view of a protobuf message.
//!
//! ```text
//!  table        3 "spec" ─ 10 "nodeName", text                    bytes   1a 06 52 04 6e 6f 64 65
//!                               │                                                │
//!                               └────────────► {"spec":{"nodeName":"node"}} ◄────┘
//!                                              as serde would see it in JSON
//! ```
//!
//! Strings are borrowed from the bytes. What the table does not name is skipped, and so is what the
//! struct does not ask for. A field that occurs twice and is no list is an error for structs: no encoder
//! of Kubernetes writes one.

use std::borrow::Cow;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de, forward_to_deserialize_any};

use super::leaf::{IntOrString, Time, quantity};
use super::reader::{Error, Fields, Wire};

/// A kind of objects.
#[derive(Debug)]
pub struct Kind {
    /// Its name, such as `Pod`.
    pub name: &'static str,
    /// The fields of its message that any of our readers uses.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its number in protobuf.
    pub number: u32,
    /// Its name in JSON.
    pub name: &'static str,
    /// How often it occurs.
    pub presence: Presence,
    /// What it holds.
    pub field_type: FieldType,
}

/// How often a field occurs, and what its zero value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// `omitempty` in Go: protobuf has the zero value, and JSON leaves it out.
    Plain,
    /// A pointer or a required field in Go: a zero value that is sent means something.
    Explicit,
    /// A list.
    List,
    /// A map with strings as keys.
    Map,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// A string.
    Text,
    /// A bool.
    Bool,
    /// A number.
    Integer,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `resource.Quantity`, which is a string.
    Quantity,
    /// `metav1.Time`: whole seconds.
    Time,
    /// `metav1.MicroTime`: microseconds.
    MicroTime,
    /// A message.
    Message(&'static [Field]),
}

/// Reads a message into a struct.
///
/// # Errors
/// If the bytes are not such a message, or the struct does not accept its values.
pub fn decode<'de, T: Deserialize<'de>>(
    fields: &'static [Field],
    bytes: &'de [u8],
) -> Result<T, Error> {
    T::deserialize(Message { fields, bytes })
}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

/// The methods of a deserializer that do not depend on what is read: a value that is there is `Some`, and its type
/// decides what a visitor sees. `i64` is added where it needs no method of
/// its own.
macro_rules! regardless_of_type {
    ($($also:ident)?) => {
        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.visit_some(self)
        }

        fn deserialize_newtype_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            visitor: V,
        ) -> Result<V::Value, Error> {
            visitor.visit_newtype_struct(self)
        }

        fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.visit_unit()
        }

        fn is_human_readable(&self) -> bool {
            false
        }

        forward_to_deserialize_any! {
            $($also)? bool i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            unit unit_struct seq tuple tuple_struct map struct enum identifier
        }
    };
}

/// A message as serde's map.
#[derive(Clone, Copy)]
struct Message<'de> {
    fields: &'static [Field],
    bytes: &'de [u8],
}

impl<'de> Deserializer<'de> for Message<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Members {
            table: self.fields,
            rest: Fields::new(self.bytes),
            next: 0,
            lists_seen: 0,
            value: None,
        })
    }

    regardless_of_type!(i64);
}

/// The fields of a message that are in its table, one after the other.
struct Members<'de> {
    table: &'static [Field],
    rest: Fields<'de>,
    /// Where in the table the search for the next number begins: encoders write fields in the order of
    /// their numbers, so it is found at once.
    next: usize,
    /// One bit for each list or map of the table that was handed over as a whole.
    lists_seen: u64,
    value: Option<(&'static Field, Wire<'de>)>,
}

impl Members<'_> {
    fn position(&self, number: u32) -> Option<usize> {
        let found = |field: &Field| field.number == number;
        let (before, after) = self.table.split_at(self.next);
        let later = after.iter().position(found).map(|index| self.next + index);
        later.or_else(|| before.iter().position(found))
    }

    /// Whether a field is new: of a list, the first element stands for all.
    fn is_new(&mut self, index: usize, presence: Presence) -> bool {
        if !matches!(presence, Presence::List | Presence::Map) {
            return true;
        }
        let bit = 1 << index;
        let new = self.lists_seen & bit == 0;
        self.lists_seen |= bit;
        new
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        while let Some(field) = self.rest.next() {
            let (number, wire) = field?;
            let Some(index) = self.position(number) else { continue };
            self.next = index;
            let field = &self.table[index];
            if field.is_absent(wire) || !self.is_new(index, field.presence) {
                continue;
            }
            self.value = Some((field, wire));
            return seed.deserialize(BorrowedStrDeserializer::new(field.name)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (field, wire) = self.value.take().ok_or_else(|| Error::new("a value without a key"))?;
        let first = Element { field_type: field.field_type, wire };
        let elements = || Elements {
            number: field.number,
            field_type: field.field_type,
            first: Some(wire),
            rest: self.rest.clone(),
            value: None,
        };
        let value = match field.presence {
            Presence::Plain | Presence::Explicit => seed.deserialize(first),
            Presence::List => seed.deserialize(List(elements())),
            Presence::Map => seed.deserialize(Map(elements())),
        };
        value.map_err(|error| error.within(field.name))
    }
}

impl Field {
    /// Whether a value means that the field is not there.
    fn is_absent(&self, wire: Wire<'_>) -> bool {
        match (self.presence, self.field_type) {
            // An empty message is no time: the epoch is written with its zeros.
            (_, FieldType::Time | FieldType::MicroTime) => wire == Wire::Bytes(&[]),
            (Presence::Plain, FieldType::Text) => wire == Wire::Bytes(&[]),
            (Presence::Plain, FieldType::Bool | FieldType::Integer) => wire == Wire::Varint(0),
            _ => false,
        }
    }
}

/// The elements of a list or the entries of a map: the first, and those of the same number after it.
struct Elements<'de> {
    number: u32,
    field_type: FieldType,
    first: Option<Wire<'de>>,
    rest: Fields<'de>,
    /// The value of the map's entry whose key was asked for last.
    value: Option<Wire<'de>>,
}

impl<'de> Elements<'de> {
    fn next(&mut self) -> Result<Option<Wire<'de>>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        for field in &mut self.rest {
            let (number, wire) = field?;
            if number == self.number {
                return Ok(Some(wire));
            }
        }
        Ok(None)
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(wire) = self.next()? else { return Ok(None) };
        seed.deserialize(Element { field_type: self.field_type, wire }).map(Some)
    }
}

impl<'de> MapAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(wire) = self.next()? else { return Ok(None) };
        // Go writes both parts of an entry always; an entry without a value has the zero value.
        let (mut key, mut value) = ("", Wire::Bytes(&[]));
        for field in Fields::new(wire.bytes()?) {
            match field? {
                (1, wire) => key = wire.text()?,
                (2, wire) => value = wire,
                _ => {}
            }
        }
        self.value = Some(value);
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let wire = self.value.take().ok_or_else(|| Error::new("a value without a key"))?;
        seed.deserialize(Element { field_type: self.field_type, wire })
    }
}

/// One value.
struct Element<'de> {
    field_type: FieldType,
    wire: Wire<'de>,
}

impl<'de> Element<'de> {
    fn text<V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Error> {
        let text: StrDeserializer<'_, Error> = text.into_deserializer();
        text.deserialize_any(visitor)
    }
}

impl<'de> Deserializer<'de> for Element<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let wire = self.wire;
        match self.field_type {
            // The API server does not check strings in protobuf; in JSON it writes U+FFFD for what is not UTF-8.
            FieldType::Text => match String::from_utf8_lossy(wire.bytes()?) {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            FieldType::Bool => visitor.visit_bool(wire.integer()? != 0),
            FieldType::Integer => visitor.visit_i64(wire.integer()?),
            FieldType::IntOrString => match IntOrString::read(wire.bytes()?)? {
                IntOrString::Int(number) => visitor.visit_i64(number),
                IntOrString::String(text) => visitor.visit_borrowed_str(text),
            },
            FieldType::Quantity => visitor.visit_borrowed_str(quantity(wire.bytes()?)?),
            FieldType::Time => Self::text(&Time::read(wire.bytes()?)?.text(0), visitor),
            FieldType::MicroTime => Self::text(&Time::read(wire.bytes()?)?.text(6), visitor),
            FieldType::Message(fields) => {
                Message { fields, bytes: wire.bytes()? }.deserialize_any(visitor)
            }
        }
    }

    /// A time is a number for those who ask for one: seconds since 1970. If it is out of range, it is text that is no
    /// time, as in JSON.
    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.field_type, FieldType::Time)
            && let Some(time) = Time::read(self.wire.bytes()?)?.timestamp()
        {
            return visitor.visit_i64(time.as_second());
        }
        self.deserialize_any(visitor)
    }

    regardless_of_type!();
}

/// A list, as a whole.
struct List<'de>(Elements<'de>);

/// A map, as a whole.
struct Map<'de>(Elements<'de>);

impl<'de> Deserializer<'de> for List<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(self.0)
    }

    regardless_of_type!(i64);
}

impl<'de> Deserializer<'de> for Map<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self.0)
    }

    regardless_of_type!(i64);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protobuf::kinds::{ENDPOINT_SLICE, LEASE, METADATA, NODE, POD, SERVICE};
    use crate::testing::protobuf::{bytes, encode, fixed, int};
    use crate::testing::{full_lease, full_node, full_pod, full_service, full_slice};
    use crate::time::Seconds;

    /// The part of an object that its table has.
    fn known(fields: &[Field], object: &Value) -> Value {
        let members = fields.iter().filter_map(|field| {
            let value = object.get(field.name)?;
            let value = match (field.field_type, value) {
                (FieldType::Message(fields), Value::Array(elements)) => {
                    elements.iter().map(|element| known(fields, element)).collect()
                }
                (FieldType::Message(fields), value) => known(fields, value),
                _ => value.clone(),
            };
            // Zero values that are not written in JSON.
            let zero =
                field.presence == Presence::Plain && [json!(false), json!("")].contains(&value);
            (!zero).then(|| (field.name.to_owned(), value))
        });
        Value::Object(members.collect())
    }

    #[test]
    fn objects_are_read_as_their_json() {
        let rows = [
            (NODE, full_node()),
            (POD, full_pod()),
            (SERVICE, full_service()),
            (ENDPOINT_SLICE, full_slice()),
            (LEASE, full_lease()),
        ];
        for (kind, object) in rows {
            let message = encode(kind.fields, &object);
            let read: Value = decode(kind.fields, &message).unwrap();
            assert_eq!(read, known(kind.fields, &object), "{}", kind.name);
        }
    }

    const FIELDS: &[Field] = &[
        field(1, "plain", Presence::Plain, FieldType::Text),
        field(2, "explicit", Presence::Explicit, FieldType::Text),
        field(3, "list", Presence::List, FieldType::Integer),
        field(4, "map", Presence::Map, FieldType::Quantity),
        field(5, "time", Presence::Explicit, FieldType::Time),
        field(6, "micro", Presence::Plain, FieldType::MicroTime),
        field(7, "either", Presence::Plain, FieldType::IntOrString),
        field(8, "bool", Presence::Plain, FieldType::Bool),
        field(9, "inner", Presence::Plain, FieldType::Message(METADATA)),
    ];

    const fn field(
        number: u32,
        name: &'static str,
        presence: Presence,
        field_type: FieldType,
    ) -> Field {
        Field { number, name, presence, field_type }
    }

    fn read(message: &[Vec<u8>]) -> Result<Value, Error> {
        decode(FIELDS, &message.concat())
    }

    #[test]
    fn zero_values_are_absent_where_json_leaves_them_out() {
        let zeros =
            [bytes(1, ""), bytes(2, ""), bytes(5, ""), bytes(6, ""), int(8, 0), bytes(9, "")];
        assert_eq!(read(&zeros), Ok(json!({"explicit": "", "inner": {}})));
        assert_eq!(read(&[]), Ok(json!({})));
        let values = [
            int(3, 0),
            bytes(4, bytes(1, "cpu")),
            bytes(5, int(1, 0)),
            bytes(6, [int(1, 1), int(2, 500_000_999)].concat()),
            bytes(7, int(2, (-1_i64).cast_unsigned())),
        ];
        let expected = json!({"list": [0], "map": {"cpu": "0"}, "time": "1970-01-01T00:00:00Z",
            "micro": "1970-01-01T00:00:01.500000Z", "either": -1});
        assert_eq!(read(&values), Ok(expected));
    }

    /// Other encoders may write fields in any order, and the elements of a list apart.
    #[test]
    fn order_and_unknown_fields_do_not_matter() {
        let message = [
            int(3, 1),
            bytes(9, bytes(1, "n")),
            fixed(70, 8),
            int(3, 2),
            bytes(4, [bytes(2, bytes(1, "1")), bytes(1, "a")].concat()),
            fixed(71, 4),
            bytes(1, "p"),
            bytes(4, [bytes(1, "b"), bytes(2, bytes(1, "2")), int(3, 9)].concat()),
            int(3, 3),
        ];
        let expected = json!({"list": [1, 2, 3], "inner": {"name": "n"}, "map": {"a": "1", "b": "2"}, "plain": "p"});
        assert_eq!(read(&message), Ok(expected));
    }

    #[test]
    fn a_time_out_of_range_is_what_it_is_in_json() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Times {
            time: Seconds,
            micro: Option<Seconds>,
        }
        let year_10000 = int(1, 253_402_300_800);
        let message = [bytes(5, &year_10000), bytes(6, &year_10000)].concat();
        let json = r#"{"time": "10000-01-01T00:00:00Z", "micro": "10000-01-01T00:00:00.000000Z"}"#;
        let expected = Times { time: Seconds(None), micro: Some(Seconds(None)) };
        assert_eq!(serde_json::from_str::<Times>(json).unwrap(), expected);
        assert_eq!(decode::<Times>(FIELDS, &message), Ok(expected));
    }

    /// A client that writes protobuf may put any bytes into a string. The object stays readable.
    #[test]
    fn a_string_that_is_not_utf8_is_what_it_is_in_json() {
        assert_eq!(read(&[bytes(1, *b"a\xff")]), Ok(json!({"plain": "a\u{fffd}"})));
    }

    #[test]
    fn values_of_another_type_are_refused_and_named() {
        let rows = [
            (int(1, 5), "plain: a field that should be a string or a message is something else"),
            (bytes(3, "1"), "list: a field that should be a number is something else"),
            (bytes(5, bytes(1, "1")), "time: a field that should be a number is something else"),
            (bytes(7, int(1, 2)), "either: a value is neither a number nor a string"),
            (fixed(8, 4), "bool: a field that should be a number is something else"),
            (
                bytes(9, int(1, 5)),
                "inner.name: a field that should be a string or a message is something else",
            ),
            (bytes(9, [0x0a]), "inner: the bytes end in the middle of a field"),
        ];
        for (message, expected) in rows {
            assert_eq!(read(&[message]).unwrap_err().to_string(), expected);
        }
    }
}
