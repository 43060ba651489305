//! Patches: JSON, merge and strategic merge. Pure.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::kind::Kind;
use crate::problem::Problem;

mod strategic;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
}

/// The object with the patch on it.
pub fn patch(kind: &Kind, form: Form, current: &Value, patch: &Value) -> Result<Value, Problem> {
    let unfit = |wanted: &str, prefix: &str| {
        let found = match patch {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Problem::bad_request(format!(
            "{prefix}json: cannot unmarshal {found} into Go value of type {wanted}"
        ))
    };
    let decoding = "error decoding patch: ";
    let mut patched = current.clone();
    match (form, patch) {
        (Form::Json, Value::Array(operations)) => {
            for operation in operations {
                step(&mut patched, operation).map_err(|()| Problem::patch_rejected())?;
            }
        }
        (Form::Json, _) => return Err(unfit("[]handlers.jsonPatchOp", decoding)),
        (Form::Merge, Value::Object(_)) => json_patch::merge(&mut patched, patch),
        (Form::Merge, _) => return Err(unfit("map[string]interface {}", decoding)),
        (Form::Strategic, Value::Object(patch)) => strategic::merge(kind, &mut patched, patch)?,
        (Form::Strategic, _) => return Err(unfit("map[string]interface {}", "")),
    }
    Ok(patched)
}

/// One operation. The reference takes a `replace` of what is not there for an `add`.
fn step(object: &mut Value, operation: &Value) -> Result<(), ()> {
    let mut operation: PatchOperation =
        serde_json::from_value(operation.clone()).map_err(|_| ())?;
    if let PatchOperation::Replace(replace) = &operation
        && object.pointer(replace.path.as_str()).is_none()
    {
        let (path, value) = (replace.path.clone(), replace.value.clone());
        operation = PatchOperation::Add(AddOperation { path, value });
    }
    json_patch::patch(object, &[operation]).map_err(|_| ())
}

#[cfg(test)]
mod tests;
