//! The types of fields: what kube-apiserver refuses to decode is refused here in the same words.
//!
//! Objects are JSON values, and most fields are not checked. The table has those that clients rely on,
//! or that are often wrong in what people write: text that YAML takes for a number, a map where a list
//! belongs.

use base64::DecodeError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::objects::kind::Kind;

/// The type of a field in Go.
#[derive(Clone, Copy)]
enum GoType {
    /// With the name of the type.
    Text(&'static str),
    /// With the name of the type.
    Integer(&'static str),
    Bool,
    /// With the type of an item.
    List(&'static str),
    /// Strings by name.
    TextMap,
    /// Base64 by name.
    BytesMap,
    Struct(&'static str),
    Time,
    /// A time with six digits after the second.
    MicroTime,
}

use GoType::{Bool, BytesMap, Integer, List, MicroTime, Struct, Text, TextMap, Time};

const STRING: GoType = Text("string");

/// Kind (empty: all kinds), path, the struct in Go that has the field, its type there.
type Rule = (&'static str, &'static str, &'static str, GoType);

const RULES: [Rule; 41] = [
    ("", "metadata.name", "ObjectMeta", STRING),
    ("", "metadata.namespace", "ObjectMeta", STRING),
    ("", "metadata.generateName", "ObjectMeta", STRING),
    ("", "metadata.uid", "ObjectMeta", Text("types.UID")),
    ("", "metadata.resourceVersion", "ObjectMeta", STRING),
    ("", "metadata.creationTimestamp", "ObjectMeta", Time),
    ("", "metadata.labels", "ObjectMeta", TextMap),
    ("", "metadata.annotations", "ObjectMeta", TextMap),
    ("", "metadata.finalizers", "ObjectMeta", List("string")),
    ("", "metadata.ownerReferences", "ObjectMeta", List("v1.OwnerReference")),
    ("ConfigMap", "data", "ConfigMap", TextMap),
    ("ConfigMap", "binaryData", "ConfigMap", BytesMap),
    ("Service", "spec", "Service", Struct("v1.ServiceSpec")),
    ("Service", "spec.type", "ServiceSpec", Text("v1.ServiceType")),
    ("Service", "spec.selector", "ServiceSpec", TextMap),
    ("Service", "spec.ports", "ServiceSpec", List("v1.ServicePort")),
    ("Service", "spec.ports[].name", "ServicePort", STRING),
    ("Service", "spec.ports[].port", "ServicePort", Integer("int32")),
    ("Service", "spec.ports[].nodePort", "ServicePort", Integer("int32")),
    ("Service", "spec.externalIPs", "ServiceSpec", List("string")),
    ("Service", "spec.publishNotReadyAddresses", "ServiceSpec", Bool),
    ("Service", "spec.trafficDistribution", "ServiceSpec", STRING),
    ("EndpointSlice", "addressType", "EndpointSlice", Text("v1.AddressType")),
    ("EndpointSlice", "endpoints", "EndpointSlice", List("v1.Endpoint")),
    ("EndpointSlice", "endpoints[].addresses", "Endpoint", List("string")),
    ("EndpointSlice", "endpoints[].conditions.ready", "EndpointConditions", Bool),
    ("EndpointSlice", "endpoints[].conditions.serving", "EndpointConditions", Bool),
    ("EndpointSlice", "endpoints[].conditions.terminating", "EndpointConditions", Bool),
    ("EndpointSlice", "endpoints[].zone", "Endpoint", STRING),
    ("EndpointSlice", "endpoints[].nodeName", "Endpoint", STRING),
    ("EndpointSlice", "ports", "EndpointSlice", List("v1.EndpointPort")),
    ("EndpointSlice", "ports[].port", "EndpointPort", Integer("int32")),
    ("Pod", "spec", "Pod", Struct("v1.PodSpec")),
    ("Pod", "spec.nodeName", "PodSpec", STRING),
    ("Pod", "spec.containers", "PodSpec", List("v1.Container")),
    ("Pod", "status.podIPs", "PodStatus", List("v1.PodIP")),
    ("Node", "spec.podCIDRs", "NodeSpec", List("string")),
    ("Lease", "spec.holderIdentity", "LeaseSpec", STRING),
    ("Lease", "spec.leaseDurationSeconds", "LeaseSpec", Integer("int32")),
    ("Lease", "spec.renewTime", "LeaseSpec", MicroTime),
    ("Lease", "spec.acquireTime", "LeaseSpec", MicroTime),
];

/// What is wrong with the type of a field: the first one of the table.
pub(crate) fn check(kind: &Kind, object: &Value) -> Result<(), String> {
    for (of, path, owner, go) in RULES {
        if of.is_empty() || of == kind.kind {
            let steps: Vec<&str> = path.split('.').collect();
            let field = format!("{owner}.{}", path.replace("[]", ""));
            check_at(object, &steps, &field, go)?;
        }
    }
    Ok(())
}

/// Checks all values at a path; a value of another type on the way has a rule of its own, or none.
fn check_at(value: &Value, steps: &[&str], field: &str, go: GoType) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else { return check_value(value, field, go) };
    match step.strip_suffix("[]") {
        Some(name) => {
            let items = value[name].as_array().into_iter().flatten();
            items.into_iter().try_for_each(|item| check_at(item, rest, field, go))
        }
        None => check_at(&value[*step], rest, field, go),
    }
}

fn check_value(value: &Value, field: &str, go: GoType) -> Result<(), String> {
    let wrong = |value: &Value, wanted: &str| {
        let found = type_name(value);
        Err(format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"))
    };
    let is_or = |fits: bool, wanted: &str| if fits { Ok(()) } else { wrong(value, wanted) };
    if value.is_null() {
        return Ok(());
    }
    match go {
        Text(name) => is_or(value.is_string(), name),
        Integer(name) => is_or(value.is_number(), name),
        Bool => is_or(value.is_boolean(), "bool"),
        List(item) => is_or(value.is_array(), &format!("[]{item}")),
        Struct(name) => is_or(value.is_object(), name),
        Time => check_time(value, "2006-01-02T15:04:05Z07:00"),
        MicroTime => check_time(value, "2006-01-02T15:04:05.000000Z07:00"),
        TextMap | BytesMap => {
            let wanted =
                if matches!(go, TextMap) { "map[string]string" } else { "map[string][]uint8" };
            let Some(entries) = value.as_object() else { return wrong(value, wanted) };
            let entries = entries.values().filter(|entry| !entry.is_null());
            entries.into_iter().try_for_each(|entry| match (entry.as_str(), go) {
                (None, _) => wrong(entry, "string"),
                (Some(text), BytesMap) => check_base64(text),
                (Some(_), _) => Ok(()),
            })
        }
    }
}

fn check_base64(text: &str) -> Result<(), String> {
    let at = match STANDARD.decode(text) {
        Ok(_) => return Ok(()),
        Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => at,
        Err(_) => text.len(),
    };
    Err(format!("illegal base64 data at input byte {at}"))
}

/// A time in the layout of Go.
fn check_time(value: &Value, layout: &str) -> Result<(), String> {
    let Some(text) = value.as_str() else {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type string",
            type_name(value)
        ));
    };
    let refuse = |rest: &str, part: &str| {
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"))
    };
    if text.parse::<Timestamp>().is_err() {
        return refuse(text, "2006");
    }
    let after_seconds = text.get("2006-01-02T15:04:05".len()..).unwrap_or_default();
    let digits = after_seconds
        .strip_prefix('.')
        .map_or(0, |fraction| fraction.bytes().take_while(u8::is_ascii_digit).count());
    if layout.contains(".000000") && digits != 6 {
        return refuse(after_seconds, ".000000");
    }
    Ok(())
}

/// The name of a JSON type in messages of Go.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
