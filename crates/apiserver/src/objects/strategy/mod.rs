//! Defaults, validation and immutable fields of each kind: the `RESTCreateStrategy` and
//! `RESTUpdateStrategy` of kube-apiserver. No I/O.
//!
//! ```text
//!  object ─► drop nulls ─► restore what this request ─► defaults and ─► validation ─► store
//!                          does not write (status or    zero values     of metadata,
//!                          everything else)             per kind        then per kind
//! ```

use serde_json::{Value, json};

use crate::objects::json::{default, map, text};
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

mod config_map;
mod event;
mod lease;
mod metadata;
mod namespace;
mod node;
mod pod;
mod service;
mod service_cidr;
mod slice;
mod workload;
mod zero_values;

pub(crate) use service::{has_address, has_health_port, has_node_ports};
pub(crate) use workload::selector_text;

/// The part of an object that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourcePart {
    /// Everything but the status.
    Main,
    /// The subresource `/status`.
    Status,
}

/// Completes and checks an object before it is stored.
///
/// The metadata that the server owns (uid, resourceVersion, creationTimestamp, generation,
/// managedFields, deletionTimestamp, selfLink) is the business of `operations`.
pub(crate) fn prepare(
    kind: &Kind,
    part: ResourcePart,
    stored: Option<&Value>,
    object: &mut Value,
) -> Result<(), StatusError> {
    drop_nulls(object);
    metadata::drop_empty(object);
    restore_unwritten(kind, part, stored, object);
    defaults(kind, part, stored, object);
    zero_values::normalize(kind, object);
    let mut causes = metadata::check(kind, stored, object);
    causes.extend(check(kind, part, stored, object));
    if causes.is_empty() {
        return Ok(());
    }
    // For events, kube-apiserver names the kind that is stored, whichever group was asked.
    let named = kind.stored_as.and_then(|(group, plural)| Kind::find(group, "v1", plural));
    Err(StatusError::invalid(named.unwrap_or(kind), text(object, "/metadata/name"), &causes))
}

/// What [`without_server_defaults`] has to know of an object as the client sent it: the spec, and the empty lists
/// of an EndpointSlice.
pub(crate) fn sent_parts(kind: &Kind, object: &Value) -> Value {
    if kind.kind != "EndpointSlice" {
        return object["spec"].clone();
    }
    let empty = slice::LISTS.iter().filter(|key| object[**key] == json!([]));
    empty.map(|key| ((*key).to_owned(), json!([]))).collect()
}

/// The object as its writer manages it: without the fields that the server has added to the spec by itself, and
/// with empty lists that are stored as missing ones. `sent` are the [`sent_parts`].
pub(crate) fn without_server_defaults(kind: &Kind, sent: &Value, object: &Value) -> Value {
    let added: &[&str] = match kind.kind {
        "Service" => &["clusterIPs"],
        "Pod" => &["priority", "preemptionPolicy", "tolerations"],
        "Namespace" => &["finalizers"],
        _ => &[],
    };
    let mut object = object.clone();
    for key in added.iter().filter(|key| sent[**key].is_null()) {
        if let Some(spec) = object.get_mut("spec") {
            put(spec, key, None);
        }
    }
    if kind.kind == "EndpointSlice" {
        for (key, list) in sent.as_object().into_iter().flatten() {
            put(&mut object, key, Some(list));
        }
    }
    object
}

/// Removes nulls: they mean the same as a missing key.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Takes the parts that the request does not write from the stored object. A new object has no
/// status, except a Node, which kubelets create with one.
fn restore_unwritten(kind: &Kind, part: ResourcePart, stored: Option<&Value>, object: &mut Value) {
    match (part, stored) {
        (ResourcePart::Status, Some(stored)) => restore_all_but_status(kind, stored, object),
        (ResourcePart::Main, Some(stored)) if kind.has_status => {
            put(object, "status", stored.get("status"));
        }
        (ResourcePart::Main, None) if kind.has_status && kind.kind != "Node" => {
            put(object, "status", None);
        }
        _ => {}
    }
}

/// For `/status`: only the spec is restored, so that labels, annotations and finalizers can be
/// written too. Of Pods the owner references are restored as well, of Deployments the labels, of
/// ServiceCIDRs all metadata.
fn restore_all_but_status(kind: &Kind, stored: &Value, object: &mut Value) {
    put(object, "spec", stored.get("spec"));
    match kind.kind {
        "Pod" => {
            let owners = stored.pointer("/metadata/ownerReferences");
            if let Some(metadata) = object.get_mut("metadata") {
                put(metadata, "ownerReferences", owners);
            }
        }
        "Deployment" => {
            if let Some(metadata) = object.get_mut("metadata") {
                put(metadata, "labels", stored.pointer("/metadata/labels"));
            }
        }
        "ServiceCIDR" => put(object, "metadata", stored.get("metadata")),
        _ => {}
    }
}

/// Sets a key, or removes it.
fn put(object: &mut Value, key: &str, value: Option<&Value>) {
    match (object.as_object_mut(), value) {
        (Some(map), Some(value)) => {
            map.insert(key.into(), value.clone());
        }
        (Some(map), None) => {
            map.remove(key);
        }
        (None, _) => {}
    }
}

fn defaults(kind: &Kind, part: ResourcePart, stored: Option<&Value>, object: &mut Value) {
    match kind.kind {
        "Service" => {
            service::defaults(object);
            if let (ResourcePart::Main, Some(stored)) = (part, stored) {
                service::inherit(stored, object);
            }
        }
        "Pod" => pod::defaults(stored, object),
        "EndpointSlice" => slice::defaults(object),
        "Node" => node::defaults(object),
        "Namespace" => namespace::defaults(stored, object),
        "Deployment" => workload::deployment_defaults(object),
        "ReplicaSet" => workload::replica_set_defaults(object),
        "ServiceCIDR" => {
            map(object, "status");
        }
        _ => {}
    }
}

fn check(
    kind: &Kind,
    part: ResourcePart,
    stored: Option<&Value>,
    object: &Value,
) -> Vec<FieldError> {
    match (kind.kind, part) {
        ("Service", ResourcePart::Main) => service::check(stored, object),
        ("Service", ResourcePart::Status) => service::check_status(object),
        ("Pod", ResourcePart::Main) => pod::check(stored, object),
        ("Pod", ResourcePart::Status) => pod::check_status(object),
        ("EndpointSlice", _) => slice::check(stored, object),
        ("Node", ResourcePart::Main) => node::check(stored, object),
        ("Namespace", ResourcePart::Status) => namespace::check_status(object),
        ("ConfigMap", _) => config_map::check(stored, object),
        ("Lease", _) => lease::check(object),
        ("Deployment" | "ReplicaSet", ResourcePart::Main) => workload::check(kind, stored, object),
        ("ServiceCIDR", ResourcePart::Main) => service_cidr::check(stored, object),
        ("Event", _) => event::check(kind, stored, object),
        _ => Vec::new(),
    }
}

/// One error for each message about the value of a field.
fn invalid(field: &str, value: &str, messages: &[String]) -> Vec<FieldError> {
    let value = json!(value);
    messages.iter().map(|message| FieldError::invalid(field, &value, message)).collect()
}

/// Checks keys and values of a map of labels.
fn labels(field: &str, object: &Value, pointer: &str) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (key, value) in crate::objects::json::entries(object, pointer) {
        let value = value.as_str().unwrap_or_default();
        causes.extend(invalid(field, key, &crate::objects::syntax::qualified(key)));
        causes.extend(invalid(field, value, &crate::objects::syntax::label_value(value)));
    }
    causes
}

/// Checks that a value is one of the known ones; it may be missing.
fn one_of(field: &str, object: &Value, pointer: &str, known: &[&str]) -> Option<FieldError> {
    let value = object.pointer(pointer)?;
    let fine = value.as_str().is_some_and(|text| known.contains(&text));
    (!fine).then(|| FieldError::unsupported(field, value, known))
}

/// Sets keys that are missing in a map, which is made if there is none.
fn default_in(object: &mut Value, key: &str, defaults: &[(&str, Value)]) {
    let map = map(object, key);
    for (key, value) in defaults {
        default(map, key, value.clone());
    }
}

#[cfg(test)]
mod tests;
