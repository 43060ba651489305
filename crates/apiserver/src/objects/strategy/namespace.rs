//! Defaults and validation of Namespaces.

use serde_json::{Value, json};
use zonewise_common::keys::METADATA_NAME;

use super::{default_in, put};
use crate::objects::json::{map, text};
use crate::status::FieldError;

/// Sets the label with the name. `spec` is not written by clients: it keeps its finalizers.
pub(super) fn defaults(stored: Option<&Value>, namespace: &mut Value) {
    let name = text(namespace, "/metadata/name").to_owned();
    if let Some(metadata) = namespace.get_mut("metadata") {
        map(metadata, "labels").insert(METADATA_NAME.into(), name.into());
    }
    match stored {
        Some(stored) => put(namespace, "spec", stored.get("spec")),
        None => {
            map(namespace, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        }
    }
    default_in(namespace, "status", &[("phase", json!("Active"))]);
}

/// The phase follows from the deletionTimestamp.
pub(super) fn check_status(namespace: &Value) -> Vec<FieldError> {
    let phase = text(namespace, "/status/phase");
    let terminating = namespace.pointer("/metadata/deletionTimestamp").is_some();
    let (wanted, when) =
        if terminating { ("Terminating", "not empty") } else { ("Active", "empty") };
    if phase == wanted {
        return Vec::new();
    }
    let why = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
    vec![FieldError::invalid("status.Phase", &json!(phase), &why)]
}
