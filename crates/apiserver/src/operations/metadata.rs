//! Names, preconditions, and the metadata that the server owns. Nothing here does I/O.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::http::request::{ResourcePath, not_a_number};
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

/// A time in the form of `metav1.Time`.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A string of the metadata; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made if it is missing.
pub(crate) fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

/// Sets a field of the metadata, or removes it.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(metadata) = metadata(object) {
        match value {
            Some(value) if !value.is_null() => metadata.insert(field.into(), value),
            _ => metadata.remove(field),
        };
    }
}

/// Whether the object is being deleted.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Its finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Sets the namespace to that of the path; the object may not name another one.
pub(crate) fn set_namespace(
    resource: &ResourcePath,
    object: &mut Value,
) -> Result<(), StatusError> {
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

/// The object must have the name of the path.
pub(crate) fn check_name(resource: &ResourcePath, object: &Value) -> Result<(), StatusError> {
    let (given, expected) = (text(object, "name"), resource.name());
    if given == expected {
        return Ok(());
    }
    let why = if given.is_empty() {
        format!(
            "the name of the object ({expected} based on URL) was undeterminable: \
             name must be provided"
        )
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({expected})")
    };
    Err(StatusError::bad_request(why))
}

/// Sets the metadata that the server gives to a new object.
pub(crate) fn set_created(kind: &Kind, object: &mut Value, uid: String, time: &str) {
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

/// Refuses a write that names another uid or resourceVersion than those stored. A write without a
/// resourceVersion is unconditional, except for Leases.
pub(crate) fn check_preconditions(
    kind: &Kind,
    stored: &Value,
    object: &Value,
) -> Result<(), StatusError> {
    let (name, version) = (text(stored, "name"), text(object, "resourceVersion"));
    let uid = text(object, "uid");
    if !uid.is_empty() && uid != text(stored, "uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, \
             UID in object meta: {}",
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
        return Err(StatusError::internal(not_a_number("ParseUint", version)));
    }
    if version != text(stored, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        return Err(StatusError::conflict(kind, name, why));
    }
    Ok(())
}

/// The error for a Lease without a resourceVersion. In this one kube-apiserver names the resource,
/// not the kind.
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

/// Refuses a change of these fields of the metadata.
pub(crate) fn check_immutable(
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

/// Keeps the metadata that clients cannot write as it is stored.
pub(crate) fn keep_server_fields(stored: &Value, object: &mut Value) {
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

/// Increments `metadata.generation` if the object has changed outside of its metadata and status.
/// EndpointSlices count changes of labels too.
pub(crate) fn count_generation(kind: &Kind, stored: &Value, object: &mut Value) {
    let labels = kind.plural == "endpointslices"
        && stored["metadata"]["labels"] != object["metadata"]["labels"];
    if kind.has_generation && (labels || counted(stored) != counted(object)) {
        increment_generation(object);
    }
}

/// Increments `metadata.generation`, if the object has one.
pub(crate) fn increment_generation(object: &mut Value) {
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

/// An object that is being deleted may not get new finalizers.
pub(crate) fn check_finalizers(
    kind: &Kind,
    stored: &Value,
    object: &Value,
) -> Result<(), StatusError> {
    if !is_terminating(stored) {
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
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        new.join(", ")
    );
    let cause = FieldError::forbidden("metadata.finalizers", &why);
    Err(StatusError::invalid(kind, text(object, "name"), &[cause]))
}

/// Whether two states are equal but for the times in `managedFields`.
pub(crate) fn is_unchanged(one: &Value, other: &Value) -> bool {
    one == other || without_times(one) == without_times(other)
}

fn without_times(object: &Value) -> Value {
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
    fn a_generation_counts_changes_outside_metadata_and_status() {
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
        let annotated = json!({
            "metadata": {"generation": 4, "labels": {"a": "1"}, "annotations": {"b": "c"}},
            "ports": [],
        });
        assert_eq!(grown(annotated), 4);
    }

    #[test]
    fn a_later_time_alone_is_not_a_change() {
        let object = |time: &str, value: i32| {
            let entry = json!({"manager": "m", "time": time});
            json!({"data": value, "metadata": {"managedFields": [entry]}})
        };
        assert!(is_unchanged(&object("1", 1), &object("2", 1)));
        assert!(!is_unchanged(&object("1", 1), &object("1", 2)));
    }
}
