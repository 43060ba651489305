//! Names, and the metadata that belongs to the server. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::http::request::{Resource, not_a_number};
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

/// A time as objects have it.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A text of the metadata; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made if it is missing.
pub(crate) fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

/// Sets a field of the metadata, or takes it away.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(metadata) = metadata(object) {
        match value {
            Some(value) if !value.is_null() => metadata.insert(field.into(), value),
            _ => metadata.remove(field),
        };
    }
}

/// Whether it is on its way out.
pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// What must happen before it may go.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Puts the namespace of the path into the object, which may name no other.
pub(crate) fn settle_namespace(resource: &Resource, object: &mut Value) -> Result<(), StatusError> {
    let given = text(object, "namespace");
    let expected = resource.namespace.as_deref().unwrap_or_default();
    if !given.is_empty() && given != expected {
        let why =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(why));
    }
    set(object, "namespace", resource.namespace.as_deref().map(Value::from));
    Ok(())
}

/// The object must say the name that the path says.
pub(crate) fn same_name(resource: &Resource, object: &Value) -> Result<(), StatusError> {
    let (given, expected) = (text(object, "name"), resource.name());
    if given == expected {
        return Ok(());
    }
    let why = if given.is_empty() {
        format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({expected})")
    };
    Err(StatusError::bad_request(why))
}

/// Gives a new object what the server owns.
pub(crate) fn born(kind: &Kind, object: &mut Value, uid: String, time: &str) {
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"]
    {
        set(object, field, None);
    }
    set(object, "uid", Some(uid.into()));
    set(object, "creationTimestamp", Some(time.into()));
    if kind.has_generation {
        set(object, "generation", Some(1.into()));
    }
}

/// Whether a writer means the version that is stored. An empty version means any.
pub(crate) fn same_version(kind: &Kind, stored: &Value, object: &Value) -> Result<(), StatusError> {
    let (name, version) = (text(stored, "name"), text(object, "resourceVersion"));
    let uid = text(object, "uid");
    if !uid.is_empty() && uid != text(stored, "uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            kind.plural,
            crate::store::key(stored["metadata"]["namespace"].as_str(), name),
            text(stored, "uid")
        );
        return Err(StatusError::conflict(kind, name, &why));
    }
    if version.is_empty() || version == "0" {
        return if kind.plural == "leases" { Err(must_have_version(kind, name)) } else { Ok(()) };
    }
    if version.parse::<u64>().is_err() {
        return Err(StatusError::without_reason(not_a_number("ParseUint", version)));
    }
    if version != text(stored, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(StatusError::conflict(kind, name, why));
    }
    Ok(())
}

/// Leases are not overwritten unseen. Here Kubernetes names the plural.
fn must_have_version(kind: &Kind, name: &str) -> StatusError {
    let cause = FieldError::invalid(
        "metadata.resourceVersion",
        &0.into(),
        "must be specified for an update",
    );
    let mut error = StatusError::invalid(kind, name, &[cause]);
    let full = format!("{}.{}", kind.kind, kind.group);
    error.message = error.message.replacen(&full, &kind.qualified(), 1);
    if let Some(details) = &mut error.details {
        details["kind"] = kind.plural.into();
    }
    error
}

/// What the server owns cannot be changed by a patch, nor the time of an end by anybody.
pub(crate) fn check_owned(
    kind: &Kind,
    stored: &Value,
    object: &Value,
    fields: &[&str],
) -> Result<(), StatusError> {
    let changed = |field: &&&str| {
        let value = &object["metadata"][**field];
        !value.is_null() && *value != stored["metadata"][**field]
    };
    let cause = |field: &&str| {
        let value = &object["metadata"][*field];
        FieldError::invalid(format!("metadata.{field}"), value, "field is immutable")
    };
    let causes: Vec<FieldError> = fields.iter().filter(changed).map(cause).collect();
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(kind, text(stored, "name"), &causes))
}

/// Keeps what the server owns as it was.
pub(crate) fn carried(stored: &Value, object: &mut Value) {
    set(object, "selfLink", None);
    let owned = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ];
    for field in owned {
        set(object, field, stored["metadata"].get(field).cloned());
    }
}

/// Counts a change of what is counted.
pub(crate) fn count_generation(kind: &Kind, stored: &Value, object: &mut Value) {
    let labels = kind.plural == "endpointslices"
        && stored["metadata"]["labels"] != object["metadata"]["labels"];
    if kind.has_generation && (labels || counted(stored) != counted(object)) {
        grow_generation(object);
    }
}

/// One generation more, where generations are counted.
pub(crate) fn grow_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_u64().filter(|now| *now > 0) {
        set(object, "generation", Some((generation + 1).into()));
    }
}

fn counted(object: &Value) -> Vec<(&String, &Value)> {
    let apart = ["metadata", "status", "apiVersion", "kind"];
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !apart.contains(&name.as_str()))
        .collect()
}

/// An object that goes may not get new tasks.
pub(crate) fn check_finalizers(
    kind: &Kind,
    stored: &Value,
    object: &Value,
) -> Result<(), StatusError> {
    if !is_going(stored) {
        return Ok(());
    }
    let known = finalizers(stored);
    let new: Vec<String> = finalizers(object)
        .iter()
        .filter(|one| !known.contains(one))
        .map(|one| format!("{one:?}"))
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        new.join(", ")
    );
    let cause = FieldError::forbidden("metadata.finalizers", &why);
    Err(StatusError::invalid(kind, text(object, "name"), &[cause]))
}

/// Whether two states differ in nothing but when somebody wrote what.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    one == other || timeless(one) == timeless(other)
}

fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_counts_what_was_asked_for() {
        let slices = Kind::find("discovery.k8s.io", "v1", "endpointslices").unwrap();
        let before = json!({"metadata": {"generation": 4, "labels": {"a": "1"}}, "ports": []});
        let grown = |after: Value| {
            let mut after = after;
            count_generation(slices, &before, &mut after);
            after["metadata"]["generation"].clone()
        };
        assert_eq!(
            grown(json!({"metadata": {"generation": 4, "labels": {"a": "1"}}, "ports": [1]})),
            5
        );
        assert_eq!(
            grown(json!({"metadata": {"generation": 4, "labels": {"a": "2"}}, "ports": []})),
            5
        );
        let annotated = json!({"metadata": {"generation": 4, "labels": {"a": "1"}, "annotations": {"b": "c"}}, "ports": []});
        assert_eq!(grown(annotated), 4);
    }

    #[test]
    fn a_later_time_alone_is_no_change() {
        let object = |time: &str, value: i32| json!({"data": value, "metadata": {"managedFields": [{"manager": "m", "time": time}]}});
        assert!(same(&object("1", 1), &object("2", 1)));
        assert!(!same(&object("1", 1), &object("1", 2)));
    }
}
