//! Request bodies in protobuf, as kubectl's `create namespace`, `create configmap`, `create service`,
//! `create deployment` and `drain` send them. Nothing here does I/O.
//!
//! ```text
//!  k8s\0 ─► Unknown { typeMeta: apiVersion, kind ─► table of the kind
//!                     raw ───────────────────────────► fields by number ─► JSON }
//! ```
//!
//! The tables form a tree, so a body cannot be nested deeper than they are. Fields that are not in
//! the tables are skipped. Numbers and names are those of the `generated.proto` files of k8s.io/api
//! and apimachinery.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::status::StatusError;

use FieldType::{Bool, Bytes, IntOrString, Integer, Message, Part, Text, Time};
use Presence::{Explicit, List, Map as Entries, Plain};

/// The media type of these bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";
const TRUNCATED: &str = "it ends in the middle of a field";

/// Why bytes cannot be decoded.
type DecodeError = &'static str;

/// The type of one value.
#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Bytes,
    Bool,
    Integer,
    IntOrString,
    Time,
    Message(&'static [Field]),
    /// A message whose table has not all fields: a body that uses others is refused, so that nothing is lost.
    Part(&'static [Field]),
}

/// How often a value occurs, and what its zero value means.
#[derive(Clone, Copy)]
enum Presence {
    /// `omitempty` in Go: the zero value is sent, but JSON leaves it out.
    Plain,
    /// A pointer or a required field in Go: a zero value that is sent is kept.
    Explicit,
    List,
    Map,
}

struct Field {
    number: u64,
    name: &'static str,
    presence: Presence,
    field_type: FieldType,
}

const fn field(
    number: u64,
    name: &'static str,
    presence: Presence,
    field_type: FieldType,
) -> Field {
    Field { number, name, presence, field_type }
}

const NAMESPACE: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "spec", Plain, Message(&[field(1, "finalizers", List, Text)])),
    field(3, "status", Plain, Message(NAMESPACE_STATUS)),
];

const NAMESPACE_STATUS: &[Field] =
    &[field(1, "phase", Plain, Text), field(2, "conditions", List, Message(CONDITION))];

const CONFIG_MAP: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "data", Entries, Text),
    field(3, "binaryData", Entries, Bytes),
    field(4, "immutable", Explicit, Bool),
];

const DELETE_OPTIONS: &[Field] = &[
    field(1, "gracePeriodSeconds", Explicit, Integer),
    field(2, "preconditions", Explicit, Message(PRECONDITIONS)),
    field(3, "orphanDependents", Explicit, Bool),
    field(4, "propagationPolicy", Explicit, Text),
    field(5, "dryRun", List, Text),
];

const PRECONDITIONS: &[Field] =
    &[field(1, "uid", Explicit, Text), field(2, "resourceVersion", Explicit, Text)];

const SERVICE: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "spec", Plain, Message(SERVICE_SPEC)),
    field(3, "status", Plain, Message(SERVICE_STATUS)),
];

const SERVICE_SPEC: &[Field] = &[
    field(1, "ports", List, Message(SERVICE_PORT)),
    field(2, "selector", Entries, Text),
    field(3, "clusterIP", Plain, Text),
    field(4, "type", Plain, Text),
    field(5, "externalIPs", List, Text),
    field(7, "sessionAffinity", Plain, Text),
    field(8, "loadBalancerIP", Plain, Text),
    field(9, "loadBalancerSourceRanges", List, Text),
    field(10, "externalName", Plain, Text),
    field(11, "externalTrafficPolicy", Plain, Text),
    field(12, "healthCheckNodePort", Plain, Integer),
    field(13, "publishNotReadyAddresses", Plain, Bool),
    field(14, "sessionAffinityConfig", Explicit, Message(AFFINITY)),
    field(17, "ipFamilyPolicy", Explicit, Text),
    field(18, "clusterIPs", List, Text),
    field(19, "ipFamilies", List, Text),
    field(20, "allocateLoadBalancerNodePorts", Explicit, Bool),
    field(21, "loadBalancerClass", Explicit, Text),
    field(22, "internalTrafficPolicy", Explicit, Text),
    field(23, "trafficDistribution", Explicit, Text),
];

const SERVICE_PORT: &[Field] = &[
    field(1, "name", Plain, Text),
    field(2, "protocol", Plain, Text),
    field(3, "port", Explicit, Integer),
    field(4, "targetPort", Plain, IntOrString),
    field(5, "nodePort", Plain, Integer),
    field(6, "appProtocol", Explicit, Text),
];

const AFFINITY: &[Field] =
    &[field(1, "clientIP", Explicit, Message(&[field(1, "timeoutSeconds", Explicit, Integer)]))];

const SERVICE_STATUS: &[Field] = &[
    field(1, "loadBalancer", Plain, Message(&[field(1, "ingress", List, Message(INGRESS))])),
    field(2, "conditions", List, Message(CONDITION)),
];

const INGRESS: &[Field] = &[
    field(1, "ip", Plain, Text),
    field(2, "hostname", Plain, Text),
    field(3, "ipMode", Explicit, Text),
    field(4, "ports", List, Message(INGRESS_PORT)),
];

const INGRESS_PORT: &[Field] = &[
    field(1, "port", Explicit, Integer),
    field(2, "protocol", Explicit, Text),
    field(3, "error", Explicit, Text),
];

/// Conditions of Services and Namespaces; those of Namespaces have no `observedGeneration`.
const CONDITION: &[Field] = &[
    field(1, "type", Explicit, Text),
    field(2, "status", Explicit, Text),
    field(3, "observedGeneration", Plain, Integer),
    field(4, "lastTransitionTime", Plain, Time),
    field(5, "reason", Plain, Text),
    field(6, "message", Plain, Text),
];

/// As `kubectl create deployment` sends it.
const DEPLOYMENT: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "spec", Plain, Part(DEPLOYMENT_SPEC)),
];

const DEPLOYMENT_SPEC: &[Field] = &[
    field(1, "replicas", Explicit, Integer),
    field(2, "selector", Explicit, Part(&[field(1, "matchLabels", Entries, Text)])),
    field(3, "template", Plain, Part(POD_TEMPLATE)),
    field(4, "strategy", Plain, Part(&[field(1, "type", Plain, Text)])),
    field(5, "minReadySeconds", Plain, Integer),
    field(6, "revisionHistoryLimit", Explicit, Integer),
    field(7, "paused", Plain, Bool),
    field(9, "progressDeadlineSeconds", Explicit, Integer),
];

const POD_TEMPLATE: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "spec", Plain, Part(&[field(2, "containers", List, Part(CONTAINER))])),
];

const CONTAINER: &[Field] = &[
    field(1, "name", Plain, Text),
    field(2, "image", Plain, Text),
    field(3, "command", List, Text),
    field(4, "args", List, Text),
    field(6, "ports", List, Part(CONTAINER_PORT)),
];

const CONTAINER_PORT: &[Field] = &[
    field(1, "name", Plain, Text),
    field(3, "containerPort", Explicit, Integer),
    field(4, "protocol", Plain, Text),
];

const SCALE: &[Field] = &[
    field(1, "metadata", Plain, Message(METADATA)),
    field(2, "spec", Plain, Message(&[field(1, "replicas", Plain, Integer)])),
];

/// Without `managedFields`, which the server writes itself.
const METADATA: &[Field] = &[
    field(1, "name", Plain, Text),
    field(2, "generateName", Plain, Text),
    field(3, "namespace", Plain, Text),
    field(5, "uid", Plain, Text),
    field(6, "resourceVersion", Plain, Text),
    field(7, "generation", Plain, Integer),
    field(8, "creationTimestamp", Plain, Time),
    field(9, "deletionTimestamp", Plain, Time),
    field(10, "deletionGracePeriodSeconds", Explicit, Integer),
    field(11, "labels", Entries, Text),
    field(12, "annotations", Entries, Text),
    field(13, "ownerReferences", List, Message(OWNER)),
    field(14, "finalizers", List, Text),
];

const OWNER: &[Field] = &[
    field(1, "kind", Explicit, Text),
    field(3, "name", Explicit, Text),
    field(4, "uid", Explicit, Text),
    field(5, "apiVersion", Explicit, Text),
    field(6, "controller", Explicit, Bool),
    field(7, "blockOwnerDeletion", Explicit, Bool),
];

/// The object in a body.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, StatusError> {
    let malformed = |why: DecodeError| {
        StatusError::bad_request(format!(
            "the body is not valid protobuf: {why}; send application/json instead"
        ))
    };
    let body = bytes.strip_prefix(MAGIC).ok_or("it does not begin with \"k8s\\0\"");
    let envelope = body.and_then(Envelope::open).map_err(malformed)?;
    let fields = envelope.fields().map_err(StatusError::unsupported_media_type)?;
    let mut object = message(envelope.raw, fields).map_err(malformed)?;
    object.insert("apiVersion".into(), envelope.api_version.into());
    object.insert("kind".into(), envelope.kind.into());
    Ok(object.into())
}

/// `runtime.Unknown`, which wraps each object.
#[derive(Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    encoding: &'a str,
    media_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (mut envelope, mut raw) = (Self::default(), None);
        for part in Parts(bytes) {
            match part? {
                (1, wire) => envelope.open_type(wire.bytes()?)?,
                (2, wire) => raw = Some(wire.bytes()?),
                (3, wire) => envelope.encoding = wire.text()?,
                (4, wire) => envelope.media_type = wire.text()?,
                _ => {}
            }
        }
        // Without this check, a body that ends before the object would decode to an empty one.
        Ok(Self { raw: raw.ok_or("there is no object in it")?, ..envelope })
    }

    fn open_type(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        for part in Parts(bytes) {
            match part? {
                (1, wire) => self.api_version = wire.text()?,
                (2, wire) => self.kind = wire.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The table of fields for the object, or why there is none.
    fn fields(&self) -> Result<&'static [Field], String> {
        const REMEDY: &str = "send application/json or application/yaml";
        let Self { api_version, kind, encoding, media_type, .. } = self;
        if !encoding.is_empty() || !["", MEDIA_TYPE].contains(media_type) {
            return Err(format!(
                "an object with content encoding {encoding:?} and content type {media_type:?} \
                 inside of protobuf is not supported: {REMEDY}"
            ));
        }
        match (*api_version, *kind) {
            // Sent in the version of the objects that are deleted, or in that of `meta.k8s.io`.
            (_, "DeleteOptions") => Ok(DELETE_OPTIONS),
            ("v1", "Namespace") => Ok(NAMESPACE),
            ("v1", "ConfigMap") => Ok(CONFIG_MAP),
            ("v1", "Service") => Ok(SERVICE),
            ("apps/v1", "Deployment") => Ok(DEPLOYMENT),
            ("autoscaling/v1", "Scale") => Ok(SCALE),
            _ => Err(format!(
                "kind {kind:?} of version {api_version:?} is not supported in protobuf: {REMEDY}"
            )),
        }
    }
}

fn message(bytes: &[u8], fields: &[Field]) -> Result<Map<String, Value>, DecodeError> {
    let mut object = Map::new();
    for part in Parts(bytes) {
        let (number, wire) = part?;
        if let Some(field) = fields.iter().find(|field| field.number == number) {
            put(&mut object, field, wire)?;
        }
    }
    Ok(object)
}

/// Fields outside of the table must have their zero values, which Go sends too.
fn refuse_others(bytes: &[u8], fields: &[Field]) -> Result<(), DecodeError> {
    for part in Parts(bytes) {
        let (number, wire) = part?;
        let is_zero = match wire {
            Wire::Integer(number) => number == 0,
            Wire::Bytes(bytes) => bytes.is_empty(),
            Wire::Fixed => false,
        };
        if !is_zero && !fields.iter().any(|field| field.number == number) {
            return Err("it has fields that are read from JSON alone");
        }
    }
    Ok(())
}

/// Adds one value of a field. If a field that is not a list is repeated, the last value counts.
fn put(object: &mut Map<String, Value>, field: &Field, wire: Wire<'_>) -> Result<(), DecodeError> {
    match field.presence {
        List => {
            let one = value(field.field_type, wire)?;
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                list.push(one);
            }
        }
        Entries => {
            let (key, one) = entry(field.field_type, wire.bytes()?)?;
            object.entry(field.name).or_insert_with(|| json!({}))[key] = one;
        }
        Explicit | Plain => {
            let one = value(field.field_type, wire)?;
            if matches!(field.presence, Plain) && is_zero(&one) {
                object.remove(field.name);
            } else {
                object.insert(field.name.into(), one);
            }
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// One entry of a map; a missing key or value is empty.
fn entry(field_type: FieldType, bytes: &[u8]) -> Result<(&str, Value), DecodeError> {
    let (mut key, mut one) = ("", json!(""));
    for part in Parts(bytes) {
        match part? {
            (1, wire) => key = wire.text()?,
            (2, wire) => one = value(field_type, wire)?,
            _ => {}
        }
    }
    Ok((key, one))
}

fn value(field_type: FieldType, wire: Wire<'_>) -> Result<Value, DecodeError> {
    Ok(match field_type {
        Text => wire.text()?.into(),
        Bytes => STANDARD.encode(wire.bytes()?).into(),
        Bool => (wire.integer()? != 0).into(),
        Integer => wire.integer()?.into(),
        IntOrString => int_or_string(wire.bytes()?)?,
        Time => time(wire.bytes()?)?,
        Message(fields) => message(wire.bytes()?, fields)?.into(),
        Part(fields) => {
            refuse_others(wire.bytes()?, fields)?;
            message(wire.bytes()?, fields)?.into()
        }
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    for part in Parts(bytes) {
        match part? {
            (1, wire) => kind = wire.integer()?,
            (2, wire) => number = wire.integer()?,
            (3, wire) => text = wire.text()?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        _ => Err("a value is neither a number nor a string"),
    }
}

/// Whole seconds, as `metav1.Time` has them. An empty message is no time.
fn time(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut seconds = 0;
    for part in Parts(bytes) {
        if let (1, wire) = part? {
            seconds = wire.integer()?;
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let time = Timestamp::from_second(seconds).map_err(|_| "a time is out of range")?;
    Ok(time.to_string().into())
}

/// The value of a field, by its wire type.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes; no field in the tables has this type.
    Fixed,
}

impl<'a> Wire<'a> {
    fn integer(self) -> Result<i64, DecodeError> {
        match self {
            Self::Integer(number) => Ok(number.cast_signed()),
            _ => Err("a field that should be a number is something else"),
        }
    }

    fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err("a field that should be a string or a message is something else"),
        }
    }

    fn text(self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a string is not UTF-8")
    }
}

/// The fields of a message, in the order of the bytes. The first error ends the iteration.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u64, Wire<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn part(&mut self) -> Result<(u64, Wire<'a>), DecodeError> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Integer(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return Err("a field has an unknown wire type"),
        };
        match key >> 3 {
            0 => Err("a field has the number 0"),
            number => Ok((number, wire)),
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(length).map_err(|_| TRUNCATED)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Seven bits in each byte, the lowest first.
    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(TRUNCATED)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number has more than 64 bits")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn varint(mut number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while number > 0x7f {
            out.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        out.push(number.to_le_bytes()[0]);
        out
    }

    fn int(number: u64, value: u64) -> Vec<u8> {
        [varint(number << 3), varint(value)].concat()
    }

    fn part(number: u64, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let bytes = bytes.as_ref();
        [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let typed = [part(1, "v1"), part(2, kind)].concat();
        [MAGIC.to_vec(), part(1, typed), part(2, raw)].concat()
    }

    #[test]
    fn bodies_of_kubectl_decode_to_its_json() {
        let service = |name: &str, spec: Value| {
            let metadata = json!({"name": name, "labels": {"app": name}});
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        };
        let rows = [
            (SHOP, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})),
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
            part(17, "managed fields, which are skipped"),
            [varint(99 << 3 | 5), vec![1, 2, 3, 4]].concat(),
            [varint(99 << 3 | 1), vec![0; 8]].concat(),
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
                "deletionGracePeriodSeconds": 0,
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

    #[test]
    fn malformed_bodies_are_refused_with_a_reason() {
        let map = |raw: &[u8]| body("ConfigMap", raw);
        let service = |target: Vec<u8>| body("Service", &part(2, part(1, part(4, target))));
        let born = |seconds| map(&part(1, part(8, int(1, seconds))));
        let rows = [
            (Vec::new(), "it does not begin with \"k8s\\0\""),
            (b"{}".to_vec(), "it does not begin with \"k8s\\0\""),
            (MAGIC.to_vec(), "there is no object in it"),
            (map(&[0x0a, 5, 0]), TRUNCATED),
            (map(&[0x0a]), TRUNCATED),
            (map(&[0x80]), TRUNCATED),
            (map(&[varint(2), varint(u64::MAX)].concat()), TRUNCATED),
            (map(&[0xff; 11]), "a number has more than 64 bits"),
            (map(&part(0, "")), "a field has the number 0"),
            (map(&[0x0b]), "a field has an unknown wire type"),
            (map(&int(1, 1)), "a field that should be a string or a message is something else"),
            (map(&part(4, "")), "a field that should be a number is something else"),
            (map(&part(1, part(1, [0xff]))), "a string is not UTF-8"),
            (born(u64::MAX >> 1), "a time is out of range"),
            (service(int(1, 2)), "a value is neither a number nor a string"),
        ];
        for (bytes, why) in rows {
            let why =
                format!("the body is not valid protobuf: {why}; send application/json instead");
            assert_eq!(decode(&bytes), Err(StatusError::bad_request(why)), "{bytes:x?}");
        }
    }

    #[test]
    fn other_kinds_are_refused_with_a_remedy() {
        let packed = [body("ConfigMap", &[]), part(3, "gzip")].concat();
        let rows = [
            (body("Pod", &[]), "kind \"Pod\" of version \"v1\" is not supported in protobuf"),
            (
                packed,
                "an object with content encoding \"gzip\" and content type \"\" inside of protobuf \
                 is not supported",
            ),
        ];
        for (bytes, what) in rows {
            let why = format!("{what}: send application/json or application/yaml");
            assert_eq!(decode(&bytes), Err(StatusError::unsupported_media_type(why)));
        }
    }

    #[test]
    fn a_truncated_body_is_an_error() {
        let whole = unhex(WEB);
        // The last four bytes are two empty fields of the envelope: without them the body is valid.
        for end in 0..whole.len() - 4 {
            assert!(decode(&whole[..end]).is_err(), "{end} bytes");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            for kind in ["Namespace", "ConfigMap", "Service"] {
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
