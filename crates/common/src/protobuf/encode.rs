//! Writes a struct as a protobuf message: the way back from [`decode`](super::decode), with the same tables.
//!
//! ```text
//!  {"spec":{"nodeName":"node"}}, as serde writes JSON       table   3 "spec" ─ 10 "nodeName", text
//!            │                                                │
//!            └──────────────► 1a 06 52 04 6e 6f 64 65 ◄───────┘
//! ```
//!
//! What the table does not name cannot be written: an object would lose it silently. Such an object is an error, and
//! is sent as JSON. So are times and quantities, which nothing that we write in this form has.

use serde::ser::{Error as _, Impossible, SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::decode::{Field, FieldType, Kind, Presence};
use super::envelope::{MAGIC, unknown};
use super::reader::Error;

/// An object in its envelope, as the API takes it. Its own `apiVersion` and `kind` are left out.
///
/// # Errors
/// If the table of its kind does not name all of its fields.
pub fn encode<T: Serialize>(
    api_version: &str,
    kind: &'static Kind,
    object: &T,
) -> Result<Vec<u8>, Error> {
    let mut out = MAGIC.to_vec();
    nest(&mut out, unknown::TYPE_META, |out| {
        text(out, 1, api_version);
        text(out, 2, kind.name);
    });
    let presence = Presence::Plain;
    let field_type = FieldType::Message(kind.fields);
    let field = Field { number: unknown::RAW, name: kind.name, presence, field_type };
    object.serialize(Value { out: &mut out, field, is_object: true })?;
    Ok(out)
}

const LENGTH_PREFIXED: u64 = 2;

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

fn text(out: &mut Vec<u8>, number: u32, value: &str) {
    varint(out, u64::from(number) << 3 | LENGTH_PREFIXED);
    varint(out, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Begins a message and returns where its length belongs.
fn begin(out: &mut Vec<u8>, number: u32) -> usize {
    varint(out, u64::from(number) << 3 | LENGTH_PREFIXED);
    out.len()
}

/// Ends a message: its length is known now, and put before it.
fn end(out: &mut Vec<u8>, start: usize) {
    let mut length = Vec::with_capacity(3);
    varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}

fn nest(out: &mut Vec<u8>, number: u32, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(out, number);
    fields(out);
    end(out, start);
}

impl serde::ser::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

/// The value of a field.
struct Value<'a> {
    out: &'a mut Vec<u8>,
    field: Field,
    /// Whether it is a whole object, whose API version and kind are in the envelope.
    is_object: bool,
}

impl<'a> Value<'a> {
    fn unsuitable<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::new(format!("{what} cannot be written here")))
    }

    /// What it holds, if it is one value; `None` for lists and maps.
    fn single(&self) -> Option<FieldType> {
        let single = matches!(self.field.presence, Presence::Plain | Presence::Explicit);
        single.then_some(self.field.field_type)
    }

    fn integer(self, value: u64) -> Result<(), Error> {
        match self.single() {
            Some(FieldType::Integer) => integer(self.out, self.field.number, value),
            _ => return self.unsuitable("a number"),
        }
        Ok(())
    }

    /// A message or a map. Which one is decided by the table: serde has structs and maps for both.
    fn members(self) -> Result<Members<'a>, Error> {
        if self.field.presence == Presence::Map {
            return Ok(Members::Map(self, None));
        }
        let Some(FieldType::Message(fields)) = self.single() else {
            return self.unsuitable("a message");
        };
        let start = begin(self.out, self.field.number);
        let is_object = self.is_object;
        Ok(Members::Message(Message { out: self.out, fields, start, is_object, key: None }))
    }
}

/// What no field of the tables holds.
macro_rules! unsuitable {
    ($($method:ident($($type:ty),*) $what:literal;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<(), Error> {
            self.unsuitable($what)
        })*
    };
}

/// Numbers of all sizes. Negative ones are sent as 64-bit numbers in two's complement.
macro_rules! integers {
    ($($method:ident($type:ty);)*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            self.integer(i64::from(value).cast_unsigned())
        })*
    };
}

impl<'a> Serializer for Value<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Elements<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Members<'a>;
    type SerializeStructVariant = Impossible<(), Error>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;

    integers! {
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
    }

    unsuitable! {
        serialize_f32(f32) "a fraction";
        serialize_f64(f64) "a fraction";
        serialize_char(char) "a character";
        serialize_bytes(&[u8]) "bytes";
        serialize_unit() "nothing";
        serialize_unit_struct(&'static str) "nothing";
    }

    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        self.integer(value)
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        match self.single() {
            Some(FieldType::Bool) => integer(self.out, self.field.number, u64::from(value)),
            _ => return self.unsuitable("a bool"),
        }
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        match self.single() {
            Some(FieldType::Text) => text(self.out, self.field.number, value),
            _ => return self.unsuitable("a string"),
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Error> {
        self.unsuitable("a variant with a value")
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, Error> {
        match self.field.presence {
            Presence::List => Ok(Elements(self)),
            _ => self.unsuitable("a list"),
        }
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members<'a>, Error> {
        self.members()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members<'a>, Error> {
        self.members()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        self.unsuitable("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Error> {
        self.unsuitable("a tuple")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        self.unsuitable("a tuple")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        self.unsuitable("a variant with fields")
    }
}

/// A list: the same field again and again.
struct Elements<'a>(Value<'a>);

impl SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        // An element is not a list once more.
        let field = Field { presence: Presence::Plain, ..self.0.field };
        value.serialize(Value { out: self.0.out, field, is_object: false })
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

/// The fields of a message, or the entries of a map and the key of the next one.
enum Members<'a> {
    Message(Message<'a>),
    Map(Value<'a>, Option<String>),
}

struct Message<'a> {
    out: &'a mut Vec<u8>,
    fields: &'static [Field],
    /// Where its length belongs.
    start: usize,
    is_object: bool,
    /// The name of the next field, where serde has a map.
    key: Option<String>,
}

impl Message<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error> {
        match self.fields.iter().find(|field| field.name == name) {
            Some(field) => {
                let written = Value { out: self.out, field: *field, is_object: false };
                value.serialize(written).map_err(|error| error.within(name))
            }
            None if self.is_object && matches!(name, "apiVersion" | "kind") => Ok(()),
            None => Err(Error::new("no table has the number of this field").within(name)),
        }
    }
}

/// An entry of a map is a message of its key and its value.
fn entry<T: Serialize + ?Sized>(map: &mut Value<'_>, key: &str, value: &T) -> Result<(), Error> {
    let start = begin(map.out, map.field.number);
    text(map.out, 1, key);
    let field = Field { number: 2, presence: Presence::Plain, ..map.field };
    value.serialize(Value { out: map.out, field, is_object: false })?;
    end(map.out, start);
    Ok(())
}

impl Members<'_> {
    fn next_key(&mut self) -> &mut Option<String> {
        match self {
            Self::Message(message) => &mut message.key,
            Self::Map(_, key) => key,
        }
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error> {
        match self {
            Self::Message(message) => message.field(name, value),
            Self::Map(map, _) => entry(map, name, value),
        }
    }

    fn finish(self) {
        if let Self::Message(message) = self {
            end(message.out, message.start);
        }
    }
}

impl SerializeStruct for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.member(name, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

impl SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let key = serde_json::to_value(key).map_err(Error::custom)?;
        let key = key.as_str().ok_or_else(|| Error::new("a key is not a string"))?;
        *self.next_key() = Some(key.to_owned());
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.next_key().take().unwrap_or_default();
        self.member(&key, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::kinds::{ENDPOINT_SLICE, POD};
    use crate::testing::protobuf as expected;

    fn slice() -> serde_json::Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": "web-",
                "namespace": "shop",
                "labels": {"a": "1", "b": ""},
                "ownerReferences": [{"kind": "Service", "name": "web", "uid": "u", "controller": true}],
            },
            "addressType": "IPv4",
            "endpoints": [{
                "addresses": ["10.0.0.1"],
                "conditions": {"ready": true, "terminating": false},
                "nodeName": "n1",
                "hints": {"forZones": [{"name": "a"}]},
            }],
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        })
    }

    #[test]
    fn every_field_is_written_under_its_number() {
        let written = encode("discovery.k8s.io/v1", &ENDPOINT_SLICE, &slice()).unwrap();
        let envelope = crate::protobuf::envelope::Envelope::open(&written).unwrap();
        assert_eq!((envelope.api_version, envelope.kind), ("discovery.k8s.io/v1", "EndpointSlice"));
        let read: serde_json::Value =
            crate::protobuf::decode::decode(ENDPOINT_SLICE.fields, envelope.object).unwrap();
        let mut wanted = slice();
        for key in ["apiVersion", "kind"] {
            wanted.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(read, wanted);
    }

    #[test]
    fn lengths_and_numbers_are_written_as_protobuf_wants_them() {
        let name = "x".repeat(300);
        let written = encode("v1", &POD, &json!({"metadata": {"name": name}})).unwrap();
        let object = expected::bytes(1, expected::bytes(1, &name));
        let envelope = expected::envelope("v1", "Pod", &object);
        // The envelope's last two fields are empty, and need not be there.
        assert_eq!(written, envelope[..envelope.len() - 4]);
        let port = json!({"spec": {"containers": [{"ports": [{"containerPort": -1}]}]}});
        let written = encode("v1", &POD, &port).unwrap();
        let ports = expected::bytes(6, expected::int(3, u64::MAX));
        let object = expected::bytes(2, expected::bytes(2, ports));
        assert!(written.ends_with(&object));
    }

    #[test]
    fn variants_are_written_by_their_names() {
        #[derive(Serialize)]
        enum Type {
            IPv4,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Slice {
            address_type: Option<Type>,
        }
        let written =
            |slice: &Slice| encode("discovery.k8s.io/v1", &ENDPOINT_SLICE, slice).unwrap();
        let typed = Slice { address_type: Some(Type::IPv4) };
        let text = encode("discovery.k8s.io/v1", &ENDPOINT_SLICE, &json!({"addressType": "IPv4"}));
        assert_eq!(written(&typed), text.unwrap());
        assert_ne!(written(&typed), written(&Slice { address_type: None }));
    }

    #[test]
    fn what_would_be_lost_is_an_error_that_names_it() {
        for (object, told) in [
            (json!({"metadata": {"colour": "red"}}), "metadata.colour: no table has the number"),
            (json!({"metadata": {"name": 7}}), "metadata.name: a number cannot be written"),
            (json!({"metadata": {"finalizers": "x"}}), "a string cannot be written here"),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}), "a string cannot"),
            (json!({"metadata": {"finalizers": [["x"]]}}), "a list cannot be written here"),
            (json!({"colour": "red"}), "colour: no table"),
            (json!("red"), "a string cannot be written here"),
        ] {
            let error = encode("v1", &POD, &object).unwrap_err().to_string();
            assert!(error.contains(told), "{object}: {error}");
        }
    }
}
