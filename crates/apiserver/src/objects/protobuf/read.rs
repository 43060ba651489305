//! From protobuf to JSON: request bodies. Fields that are not in the table are skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zonewise_common::protobuf::envelope::{Envelope, MAGIC};
use zonewise_common::protobuf::leaf::{IntOrString, Time, quantity};
use zonewise_common::protobuf::reader::{Error, Fields, Wire};

use super::table::{Field, Message, Presence, ValueType};
use crate::objects::kind::Kind;
use crate::status::StatusError;

/// The object in a body; it is one of `kind` if the envelope names no other kind.
pub(crate) fn decode(bytes: &[u8], kind: &Kind) -> Result<Value, StatusError> {
    let malformed =
        |why: Error| StatusError::bad_request(format!("the body is not valid protobuf: {why}"));
    if bytes == MAGIC {
        return Err(malformed(Error::new("there is nothing after the first four bytes")));
    }
    let envelope = Envelope::open(bytes).map_err(malformed)?;
    let given = |text: &str, own: &str| if text.is_empty() { own } else { text }.to_owned();
    let api_version = given(envelope.api_version, &kind.api_version());
    let kind = given(envelope.kind, kind.kind);
    let mut object = Map::new();
    // Of an object of an unknown kind nothing is read. It is refused for its kind, as in JSON.
    let fields = Message::of(&api_version, &kind).map_or(&[][..], Message::fields);
    read_fields(envelope.object, fields, &mut object).map_err(malformed)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(object.into())
}

fn read_fields(
    bytes: &[u8],
    fields: &[Field],
    object: &mut Map<String, Value>,
) -> Result<(), Error> {
    for part in Fields::new(bytes) {
        let (number, wire) = part?;
        if let Ok(at) = fields.binary_search_by_key(&number, |field| field.number) {
            put(object, &fields[at], wire)?;
        }
    }
    Ok(())
}

/// Adds one value of a field. If a field that is not a list is repeated, the last value counts.
fn put(object: &mut Map<String, Value>, field: &Field, wire: Wire<'_>) -> Result<(), Error> {
    let name = field.name;
    match (field.presence, field.value_type) {
        (Presence::Inline, ValueType::Message(message)) => {
            read_fields(wire.bytes()?, message.fields(), object)?;
        }
        (Presence::List, value_type) => {
            let one = value(value_type, wire)?;
            if let Value::Array(list) = object.entry(name).or_insert_with(|| json!([])) {
                list.push(one);
            }
        }
        (Presence::Map, value_type) => {
            let (key, one) = entry(value_type, wire.bytes()?)?;
            object.entry(name).or_insert_with(|| json!({}))[key] = one;
        }
        (Presence::Plain | Presence::Inline, value_type) => {
            let one = value(value_type, wire)?;
            if is_empty(&one) {
                object.remove(name);
            } else {
                object.insert(name.into(), one);
            }
        }
        (Presence::Required | Presence::Optional, value_type) => {
            object.insert(name.into(), value(value_type, wire)?);
        }
    }
    Ok(())
}

/// Whether JSON leaves a value out. Messages are never left out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// One entry of a map; a missing key or value is empty.
fn entry(value_type: ValueType, bytes: &[u8]) -> Result<(&str, Value), Error> {
    let (mut key, mut one) = ("", None);
    for part in Fields::new(bytes) {
        match part? {
            (1, wire) => key = wire.text()?,
            (2, wire) => one = Some(value(value_type, wire)?),
            _ => {}
        }
    }
    let one = one.map_or_else(|| value(value_type, Wire::Bytes(&[])), Ok)?;
    Ok((key, one))
}

fn value(value_type: ValueType, wire: Wire<'_>) -> Result<Value, Error> {
    Ok(match value_type {
        ValueType::Text => wire.text()?.into(),
        ValueType::Bytes => STANDARD.encode(wire.bytes()?).into(),
        ValueType::Bool => (wire.integer()? != 0).into(),
        ValueType::Integer => wire.integer()?.into(),
        ValueType::Texts => texts(wire.bytes()?)?,
        ValueType::IntOrString => match IntOrString::read(wire.bytes()?)? {
            IntOrString::Int(number) => number.into(),
            IntOrString::String(text) => text.into(),
        },
        ValueType::Time => time(wire.bytes()?, 0)?,
        ValueType::MicroTime => time(wire.bytes()?, 6)?,
        ValueType::Quantity => quantity(wire.bytes()?)?.into(),
        ValueType::FieldsV1 => fields_v1(wire.bytes()?)?,
        ValueType::Message(message) => {
            let mut object = Map::new();
            read_fields(wire.bytes()?, message.fields(), &mut object)?;
            object.into()
        }
    })
}

fn texts(bytes: &[u8]) -> Result<Value, Error> {
    let texts = Fields::new(bytes).filter_map(|part| match part {
        Ok((1, wire)) => Some(wire.text().map(Value::from)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    texts.collect::<Result<Vec<Value>, Error>>().map(Value::Array)
}

/// A time with so many digits after the second. An empty message is no time.
fn time(bytes: &[u8], digits: usize) -> Result<Value, Error> {
    let time = Time::read(bytes)?;
    match time.timestamp() {
        _ if bytes.is_empty() => Ok(Value::Null),
        Some(_) => Ok(time.text(digits).into()),
        None => Err(Error::new("a time is out of range")),
    }
}

fn fields_v1(bytes: &[u8]) -> Result<Value, Error> {
    let mut json = &b"{}"[..];
    for part in Fields::new(bytes) {
        if let (1, wire) = part? {
            json = wire.bytes()?;
        }
    }
    serde_json::from_slice(json).map_err(|_| Error::new("managed fields are not JSON"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonewise_common::testing::protobuf::{bytes as part, envelope, fixed, int};

    use super::*;

    // Recorded from kubectl 1.36.
    const SHOP: &str = "\
        6b3873000a0f0a02763112094e616d657370616365121c0a140a0473686f7012001a0022002a00320038\
        00420012001a020a001a002200";
    const SETTINGS: &str = "\
        6b3873000a0f0a0276311209436f6e6669674d6170123a0a1c0a0873657474696e677312001a0473686f\
        7022002a0032003800420012060a016112013112050a016212001a0b0a0362696e120461fffe621a0022\
        00";
    const WEB: &str = "\
        6b3873000a0d0a0276311207536572766963651289010a1f0a0377656212001a0022002a003200380042\
        005a0a0a03617070120377656212620a1b0a0738302d38303830120354435018502207080010903f1a00\
        28000a1e0a073434332d746c73120354435018bb032209080110001a03746c732800120a0a0361707012\
        037765621a002209436c757374657249503a00420052005a00600068001a020a001a002200";
    const NODE_PORT: &str = "\
        6b3873000a0d0a02763112075365727669636512670a1d0a026e7012001a0022002a003200380042005a\
        090a0361707012026e7012420a1d0a0738302d38303830120354435018502207080010903f1a002880eb\
        0112090a0361707012026e701a0022084e6f6465506f72743a00420052005a00600068001a020a001a00\
        2200";
    const EXTERNAL: &str = "\
        6b3873000a0d0a027631120753657276696365125a0a1f0a0365787412001a0022002a00320038004200\
        5a0a0a0361707012036578741233120a0a0361707012036578741a00220c45787465726e616c4e616d65\
        3a004200520b6578616d706c652e636f6d5a00600068001a020a001a002200";

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        envelope("v1", kind, raw)
    }

    fn decode(bytes: &[u8]) -> Result<Value, StatusError> {
        super::decode(bytes, &Kind { kind: "ConfigMap", ..Kind::DEFAULTS })
    }

    #[test]
    fn bodies_of_kubectl_decode_to_its_json() {
        let service = |name: &str, spec: Value| {
            let metadata = json!({"name": name, "labels": {"app": name}});
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec,
                "status": {"loadBalancer": {}}})
        };
        let rows = [
            (
                SHOP,
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"},
                    "spec": {}, "status": {}}),
            ),
            (
                SETTINGS,
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "settings", "namespace": "shop"},
                    "data": {"a": "1", "b": ""}, "binaryData": {"bin": "Yf/+Yg=="}}),
            ),
            (
                WEB,
                service(
                    "web",
                    json!({"type": "ClusterIP", "selector": {"app": "web"}, "ports": [
                        {"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080},
                        {"name": "443-tls", "protocol": "TCP", "port": 443, "targetPort": "tls"},
                    ]}),
                ),
            ),
            (
                NODE_PORT,
                service(
                    "np",
                    json!({"type": "NodePort", "selector": {"app": "np"}, "ports": [
                        {"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080,
                            "nodePort": 30080},
                    ]}),
                ),
            ),
            (
                EXTERNAL,
                service(
                    "ext",
                    json!({"type": "ExternalName", "selector": {"app": "ext"},
                        "externalName": "example.com"}),
                ),
            ),
        ];
        for (sent, expected) in rows {
            assert_eq!(decode(&unhex(sent)), Ok(expected));
        }
    }

    #[test]
    fn explicit_zeros_are_kept_and_unknown_fields_are_skipped() {
        let owner = [part(1, "Node"), part(3, "a"), part(4, "u"), part(5, "v1"), int(6, 0)];
        let metadata = [
            part(1, "old"),
            part(1, "web"),
            part(8, [int(1, 86_400), int(2, 5)].concat()),
            part(9, ""),
            int(10, 0),
            part(12, part(1, "note")),
            part(13, owner.concat()),
            part(14, "zonewise.dev/keep"),
            part(99, "a field that is skipped"),
            fixed(99, 4),
            fixed(99, 8),
        ];
        let spec = [
            part(1, [int(3, 0), part(4, int(2, u64::MAX))].concat()),
            part(14, part(1, int(1, 60))),
            part(17, ""),
            part(18, ""),
            part(18, "fd00::1"),
            int(20, 0),
            part(23, "PreferSameZone"),
        ];
        let ingress = [part(1, "192.0.2.1"), part(3, "VIP")].concat();
        let status = part(1, part(1, ingress));
        let raw = [part(1, metadata.concat()), part(2, spec.concat()), part(3, status)].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "web", "creationTimestamp": "1970-01-02T00:00:00Z",
                "deletionTimestamp": null, "deletionGracePeriodSeconds": 0,
                "annotations": {"note": ""}, "finalizers": ["zonewise.dev/keep"],
                "ownerReferences": [
                    {"kind": "Node", "name": "a", "uid": "u", "apiVersion": "v1",
                        "controller": false},
                ],
            },
            "spec": {
                "ports": [{"port": 0, "targetPort": -1}],
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "ipFamilyPolicy": "", "clusterIPs": ["", "fd00::1"],
                "allocateLoadBalancerNodePorts": false,
                "trafficDistribution": "PreferSameZone",
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
        });
        assert_eq!(decode(&body("Service", &raw)), Ok(expected));
    }

    /// Each type of the table, at its edges.
    #[test]
    fn every_type_is_read() {
        let rows = [
            (
                "coordination.k8s.io/v1",
                "Lease",
                part(2, part(4, [int(1, 86_400), int(2, 1_999)].concat())),
                json!({"spec": {"renewTime": "1970-01-02T00:00:00.000001Z"}}),
            ),
            (
                "coordination.k8s.io/v1",
                "Lease",
                part(2, part(4, "")),
                json!({"spec": {"renewTime": null}}),
            ),
            (
                "v1",
                "Node",
                part(3, part(1, [part(1, "cpu"), part(2, part(1, "4"))].concat())),
                json!({"status": {"capacity": {"cpu": "4"}}}),
            ),
            (
                "v1",
                "Node",
                part(3, part(1, part(1, "cpu"))),
                json!({"status": {"capacity": {"cpu": "0"}}}),
            ),
            (
                "v1",
                "ConfigMap",
                part(1, part(17, part(7, part(1, r#"{"f:data":{}}"#)))),
                json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": {}}}]}}),
            ),
            (
                "v1",
                "Pod",
                part(2, part(1, [part(1, "v"), part(2, part(2, part(1, "")))].concat())),
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            ),
        ];
        for (api_version, kind, raw, mut expected) in rows {
            expected["apiVersion"] = api_version.into();
            expected["kind"] = kind.into();
            assert_eq!(decode(&envelope(api_version, kind, &raw)), Ok(expected));
        }
    }

    #[test]
    fn a_body_without_a_kind_is_of_the_kind_that_the_path_names() {
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
        let raw = part(2, [part(1, "a"), part(2, "1")].concat());
        assert_eq!(decode(&envelope("", "", &raw)), Ok(expected));
    }

    #[test]
    fn malformed_bodies_are_refused_with_a_reason() {
        let map = |raw: &[u8]| body("ConfigMap", raw);
        let service = |target: Vec<u8>| body("Service", &part(2, part(1, part(4, target))));
        let born = |seconds| map(&part(1, part(8, int(1, seconds))));
        let rows = [
            (Vec::new(), "the bytes do not begin with \"k8s\\0\""),
            (b"{}".to_vec(), "the bytes do not begin with \"k8s\\0\""),
            (MAGIC.to_vec(), "there is nothing after the first four bytes"),
            (map(&[0x0a, 5, 0]), "the bytes end in the middle of a field"),
            (map(&int(1, 1)), "a field that should be a string or a message is something else"),
            (map(&part(4, "")), "a field that should be a number is something else"),
            (map(&part(1, part(1, [0xff]))), "a string is not UTF-8"),
            (born(u64::MAX >> 1), "a time is out of range"),
            (service(int(1, 2)), "a value is neither a number nor a string"),
            (map(&part(1, part(17, part(7, part(1, "{"))))), "managed fields are not JSON"),
        ];
        for (bytes, why) in rows {
            let error = decode(&bytes).unwrap_err();
            assert_eq!(error.code, 400);
            let start = format!("the body is not valid protobuf: {why}");
            assert!(error.message.starts_with(&start), "{}", error.message);
        }
    }

    #[test]
    fn nothing_is_read_of_unknown_kinds() {
        let expected = json!({"apiVersion": "v1", "kind": "Else"});
        assert_eq!(decode(&body("Else", &part(1, "?"))), Ok(expected));
    }

    #[test]
    fn a_truncated_body_is_an_error() {
        let whole = unhex(WEB);
        // The envelope ends with two empty fields, and begins with the kind: without the others it is
        // a body without an object.
        let (kind, object) = (19, whole.len() - 4);
        for end in (0..object).filter(|end| *end != kind) {
            assert!(decode(&whole[..end]).is_err(), "{end} bytes");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            for kind in ["Namespace", "ConfigMap", "Service", "Pod", "Node", "Event"] {
                let _ = decode(&body(kind, &bytes));
            }
        }

        #[test]
        fn one_wrong_byte_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            for sent in [SHOP, SETTINGS, WEB, NODE_PORT, EXTERNAL] {
                let mut bytes = unhex(sent);
                let at = at.index(bytes.len());
                bytes[at] = byte;
                let _ = decode(&bytes);
            }
        }
    }
}
