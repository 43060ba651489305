//! Patches: JSON, merge and strategic merge. Pure.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::objects::json::{is_deeper, size};
use crate::objects::kind::Kind;
use crate::status::StatusError;

mod strategic;

/// Operations of one JSON patch: as many as Kubernetes takes.
const MOST_OPERATIONS: usize = 10_000;
/// Bytes that the copies of one JSON patch may add: repeated, they double an object each time.
const MOST_COPIED: usize = 3 * 1024 * 1024;
/// As deep as a body may be: who walks an object needs stack for each level.
const DEEPEST: usize = 127;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
}

/// The object with the patch on it.
pub(crate) fn patch(
    kind: &Kind,
    form: Form,
    current: &Value,
    patch: &Value,
) -> Result<Value, StatusError> {
    let unfit = |wanted: &str, prefix: &str| {
        let found = match patch {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        StatusError::bad_request(format!(
            "{prefix}json: cannot unmarshal {found} into Go value of type {wanted}"
        ))
    };
    let decoding = "error decoding patch: ";
    let mut patched = current.clone();
    match (form, patch) {
        (Form::Json, Value::Array(operations)) => steps(&mut patched, operations)?,
        (Form::Json, _) => return Err(unfit("[]handlers.jsonPatchOp", decoding)),
        (Form::Merge, Value::Object(_)) => json_patch::merge(&mut patched, patch),
        (Form::Merge, _) => return Err(unfit("map[string]interface {}", decoding)),
        (Form::Strategic, Value::Object(patch)) => strategic::merge(kind, &mut patched, patch)?,
        (Form::Strategic, _) => return Err(unfit("map[string]interface {}", "")),
    }
    Ok(patched)
}

/// One operation after the other, as long as the object stays of a size that others can live with.
fn steps(object: &mut Value, operations: &[Value]) -> Result<(), StatusError> {
    if operations.len() > MOST_OPERATIONS {
        return Err(StatusError::too_many_operations(operations.len(), MOST_OPERATIONS));
    }
    let mut copied = 0;
    for operation in operations {
        let operation = read(object, operation)?;
        copied += check(object, &operation, copied)?;
        json_patch::patch(object, &[operation]).map_err(|_| StatusError::patch_rejected())?;
    }
    Ok(())
}

/// Refuses what makes the object too large or too deep; says how many bytes are copied.
fn check(object: &Value, operation: &PatchOperation, copied: usize) -> Result<usize, StatusError> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(one) => (&one.path, object.pointer(one.from.as_str())),
        PatchOperation::Copy(one) => (&one.path, object.pointer(one.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(0),
    };
    // What is not there is refused when it is looked for.
    let Some(value) = value else { return Ok(0) };
    let above = path.as_str().matches('/').count();
    if DEEPEST.checked_sub(above).is_none_or(|levels| is_deeper(value, levels)) {
        let why = format!("the patch nests values more than {DEEPEST} levels deep: nest them less");
        return Err(StatusError::patch_refused(why));
    }
    let more = if matches!(operation, PatchOperation::Copy(_)) { size(value) } else { 0 };
    if copied + more > MOST_COPIED {
        let why = format!(
            "the patch copies more than {MOST_COPIED} bytes: copy less, or send several patches"
        );
        return Err(StatusError::patch_refused(why));
    }
    Ok(more)
}

/// An operation. The reference takes a `replace` of what is not there for an `add`.
fn read(object: &Value, operation: &Value) -> Result<PatchOperation, StatusError> {
    let mut operation: PatchOperation =
        serde_json::from_value(operation.clone()).map_err(|_| StatusError::patch_rejected())?;
    if let PatchOperation::Replace(replace) = &operation
        && object.pointer(replace.path.as_str()).is_none()
    {
        let (path, value) = (replace.path.clone(), replace.value.clone());
        operation = PatchOperation::Add(AddOperation { path, value });
    }
    Ok(operation)
}

#[cfg(test)]
mod tests;
