//! What becomes of an object on its way into the store: defaults, checks, what may not change. Pure.
//!
//! ```text
//!  object ─► tidy ─► keep what this door does not write ─► defaults ─► checks ─► store
//!            nulls   status or the rest                    per kind    metadata, then per kind
//! ```

use serde_json::{Value, json};

use crate::objects::json::{default, map, text};
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

mod event;
mod metadata;
mod node;
mod pod;
mod service;
mod slice;
mod small;
mod zeros;

pub(crate) use service::{has_address, has_health_port, has_node_ports};

/// The door an object comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The object itself: its status stays as it was.
    Main,
    /// `/status`: everything else stays as it was.
    Status,
}

/// Gives defaults, keeps what this door does not write, checks the rest.
///
/// `metadata` that the server owns (uid, resourceVersion, creationTimestamp, generation, managedFields,
/// deletionTimestamp, selfLink) is the store's business, not ours.
pub(crate) fn prepare(
    kind: &Kind,
    door: Door,
    stored: Option<&Value>,
    object: &mut Value,
) -> Result<(), StatusError> {
    tidy(object);
    metadata::tidy(object);
    keep(kind, door, stored, object);
    defaults(kind, door, stored, object);
    zeros::fill(kind, object);
    let mut causes = metadata::check(kind, stored, object);
    causes.extend(check(kind, door, stored, object));
    if causes.is_empty() {
        return Ok(());
    }
    let shown = kind.stored_as.and_then(|(group, plural)| Kind::find(group, "v1", plural));
    Err(StatusError::invalid(shown.unwrap_or(kind), text(object, "/metadata/name"), &causes))
}

/// The object without what the server gave it unasked: nobody owns that. `sent` is the spec that was asked for.
pub(crate) fn without_gifts(kind: &Kind, sent: &Value, object: &Value) -> Value {
    let gifts: &[&str] = match kind.kind {
        "Service" => &["clusterIPs"],
        "Pod" => &["priority", "preemptionPolicy", "tolerations"],
        "Namespace" => &["finalizers"],
        _ => &[],
    };
    let mut object = object.clone();
    for key in gifts.iter().filter(|key| sent[**key].is_null()) {
        if let Some(spec) = object.get_mut("spec") {
            put(spec, key, None);
        }
    }
    object
}

/// A null is nothing.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(tidy);
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn keep(kind: &Kind, door: Door, stored: Option<&Value>, object: &mut Value) {
    match (door, stored) {
        (Door::Status, Some(stored)) => keep_all_but_status(kind, stored, object),
        (Door::Main, Some(stored)) if kind.has_status => {
            put(object, "status", stored.get("status"));
        }
        (Door::Main, None) if kind.has_status && kind.kind != "Node" => put(object, "status", None),
        _ => {}
    }
}

/// Labels, annotations and finalizers may be written by `/status` too; a Pod's owners and all of a ServiceCIDR may not.
fn keep_all_but_status(kind: &Kind, stored: &Value, object: &mut Value) {
    put(object, "spec", stored.get("spec"));
    match kind.kind {
        "Pod" => {
            let owners = stored.pointer("/metadata/ownerReferences");
            if let Some(metadata) = object.get_mut("metadata") {
                put(metadata, "ownerReferences", owners);
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

fn defaults(kind: &Kind, door: Door, stored: Option<&Value>, object: &mut Value) {
    match kind.kind {
        "Service" => {
            service::defaults(object);
            if let (Door::Main, Some(stored)) = (door, stored) {
                service::inherit(stored, object);
            }
        }
        "Pod" => pod::defaults(stored, object),
        "EndpointSlice" => slice::defaults(object),
        "Node" => node::defaults(object),
        "Namespace" => small::namespace(stored, object),
        "ServiceCIDR" => {
            map(object, "status");
        }
        _ => {}
    }
}

fn check(kind: &Kind, door: Door, stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    match (kind.kind, door) {
        ("Service", Door::Main) => service::check(stored, object),
        ("Service", Door::Status) => service::check_status(object),
        ("Pod", Door::Main) => pod::check(stored, object),
        ("Pod", Door::Status) => pod::check_status(object),
        ("EndpointSlice", _) => slice::check(stored, object),
        ("Node", Door::Main) => node::check(stored, object),
        ("Namespace", Door::Status) => small::check_namespace(object),
        ("ConfigMap", _) => small::check_config_map(stored, object),
        ("Lease", _) => small::check_lease(object),
        ("ServiceCIDR", Door::Main) => small::check_range(stored, object),
        ("Event", _) => event::check(kind, stored, object),
        _ => Vec::new(),
    }
}

/// What a check found wrong with one field.
fn wrong(field: &str, value: &str, whys: &[String]) -> Vec<FieldError> {
    let value = json!(value);
    whys.iter().map(|why| FieldError::invalid(field, &value, why)).collect()
}

/// Labels under a field, keys and values.
fn labels(field: &str, object: &Value, place: &str) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (key, value) in crate::objects::json::entries(object, place) {
        let value = value.as_str().unwrap_or_default();
        causes.extend(wrong(field, key, &crate::objects::syntax::qualified(key)));
        causes.extend(wrong(field, value, &crate::objects::syntax::label_value(value)));
    }
    causes
}

/// A value that is one of a few; none is fine.
fn one_of(field: &str, object: &Value, place: &str, known: &[&str]) -> Option<FieldError> {
    let value = object.pointer(place)?;
    let fine = value.as_str().is_some_and(|text| known.contains(&text));
    (!fine).then(|| FieldError::unsupported(field, value, known))
}

/// Sets what is not there, under a map that is made if need be.
fn default_in(object: &mut Value, key: &str, defaults: &[(&str, Value)]) {
    let map = map(object, key);
    for (key, value) in defaults {
        default(map, key, value.clone());
    }
}

#[cfg(test)]
mod tests;
