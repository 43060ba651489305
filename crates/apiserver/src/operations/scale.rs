//! `/scale` of Deployments and ReplicaSets: the number of replicas as an object of its own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ApiRequest, ApiState, Outcome, write};
use crate::http::request::Verb;
use crate::objects::json::text;
use crate::objects::kind::Kind;
use crate::objects::strategy::selector_text;
use crate::status::{FieldError, StatusError};
use crate::store::Object;

/// For messages: Scales are not stored.
static SCALE: Kind = Kind {
    group: "autoscaling",
    kind: "Scale",
    plural: "scales",
    singular: "scale",
    ..Kind::DEFAULTS
};

pub(super) fn perform(
    state: &mut ApiState,
    verb: Verb,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    let (kind, key) = (request.kind(), request.resource.key());
    let stored = state.store.get(kind.storage_resource(), &key).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(kind, request.resource.name()))?;
    let wanted = match verb {
        Verb::Get => return Ok(Outcome::Status(200, document(&stored.value))),
        Verb::Update => write::parse(request, &SCALE)?,
        Verb::Patch => write::patched(request, &document(&stored.value))?,
        _ => return Err(StatusError::method_not_allowed()),
    };
    let object = with_replicas(&stored, &wanted)?;
    let outcome = write::replace_tracked(state, request, &stored, object)?;
    Ok(match outcome {
        Outcome::Object(code, object) => Outcome::Status(code, document(&object.value)),
        other => other,
    })
}

/// The object with the number of replicas and the precondition of a Scale.
fn with_replicas(stored: &Arc<Object>, scale: &Value) -> Result<Value, StatusError> {
    let replicas = match &scale["spec"]["replicas"] {
        // Go leaves a zero out.
        Value::Null => json!(0),
        number if number.is_i64() => number.clone(),
        other => {
            return Err(StatusError::bad_request(format!(
                "spec.replicas: {other} is not a number"
            )));
        }
    };
    if replicas.as_i64().is_some_and(|number| number < 0) {
        let why = "must be greater than or equal to 0";
        let cause = FieldError::invalid("spec.replicas", &replicas, why);
        return Err(StatusError::invalid(&SCALE, text(&stored.value, "/metadata/name"), &[cause]));
    }
    let mut object = stored.value.clone();
    object["spec"]["replicas"] = replicas;
    if let Some(version) =
        scale["metadata"]["resourceVersion"].as_str().filter(|one| !one.is_empty())
    {
        object["metadata"]["resourceVersion"] = version.into();
    }
    Ok(object)
}

/// An `autoscaling/v1` Scale.
fn document(object: &Value) -> Value {
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[key] = object["metadata"][key].clone();
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {},
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector_text(&object["spec"]["selector"]),
        },
    });
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|number| *number > 0) {
        scale["spec"]["replicas"] = replicas.into();
    }
    scale
}
