//! Validation of the metadata of all kinds.

use serde_json::{Value, json};

use super::{invalid, labels};
use crate::objects::json::{entries, list, text, texts};
use crate::objects::kind::Kind;
use crate::objects::syntax;
use crate::status::FieldError;

/// `TotalAnnotationSizeLimitB` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go>.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;
/// Finalizers without a domain that Kubernetes accepts (`standardFinalizers` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/apis/core/helper/helpers.go>).
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// Removes empty maps and lists, which Go leaves out.
pub(super) fn drop_empty(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty =
            metadata.get(key).is_some_and(|value| *value == json!({}) || *value == json!([]));
        if empty {
            metadata.remove(key);
        }
    }
}

pub(super) fn check(kind: &Kind, stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut causes = if stored.is_none() { name(kind, object) } else { Vec::new() };
    causes.extend(labels("metadata.labels", object, "/metadata/labels"));
    causes.extend(annotations(object));
    causes.extend(owners(object));
    causes.extend(finalizers(object));
    causes
}

fn name(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        return vec![FieldError::required("metadata.name", "name or generateName is required")];
    }
    let messages = match kind.kind {
        "Service" | "Namespace" if name.contains('.') => vec!["must not contain dots".into()],
        "Service" | "Namespace" => syntax::label(name),
        _ => syntax::subdomain(name),
    };
    invalid("metadata.name", name, &messages)
}

fn annotations(object: &Value) -> Vec<FieldError> {
    const FIELD: &str = "metadata.annotations";
    let mut causes = Vec::new();
    let mut bytes = 0;
    for (key, value) in entries(object, "/metadata/annotations") {
        causes.extend(invalid(FIELD, key, &syntax::qualified(&key.to_lowercase())));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATION_BYTES {
        causes.push(FieldError::too_long(FIELD, MAX_ANNOTATION_BYTES));
    }
    causes
}

fn finalizers(object: &Value) -> Vec<FieldError> {
    const POINTER: &str = "/metadata/finalizers";
    let mut causes: Vec<FieldError> = texts(object, POINTER)
        .flat_map(|name| invalid("metadata.finalizers", name, &syntax::qualified(name)))
        .collect();
    for (at, name) in texts(object, POINTER).enumerate() {
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(FieldError::invalid(
                format!("metadata.finalizers[{at}]"),
                &json!(name),
                why,
            ));
        }
    }
    causes
}

fn owners(object: &Value) -> Vec<FieldError> {
    const FIELD: &str = "metadata.ownerReferences";
    let owners = list(object, "/metadata/ownerReferences");
    let mut causes = Vec::new();
    for owner in owners {
        for (key, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(owner, &format!("/{key}")).is_empty() {
                causes.push(FieldError::invalid(format!("{FIELD}.{key}"), &json!(""), why));
            }
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(FieldError::invalid(FIELD, owner, why));
        }
    }
    let controllers: Vec<&Value> =
        owners.iter().filter(|owner| owner["controller"] == true).collect();
    if let [first, second, ..] = controllers[..] {
        let shown = |owner: &Value| format!("{}/{}", text(owner, "/kind"), text(owner, "/name"));
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references \
             for {} and {}",
            shown(first),
            shown(second)
        );
        causes.push(FieldError::invalid(FIELD, &json!(owners), &why));
    }
    causes
}
