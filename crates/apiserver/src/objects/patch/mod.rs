//! Patches: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch. No I/O.

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::objects::json::{is_deeper, size};
use crate::objects::kind::Kind;
use crate::objects::types::type_name;
use crate::status::StatusError;

mod strategic;

/// Operations of one JSON patch: `maxJSONPatchOperations` of kube-apiserver
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go>).
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that the `copy` operations of one JSON patch may add. Each can double the object, so a
/// short patch could fill the memory. As many as a request body may have.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// Levels of nested values: as many as `serde_json` accepts in a body. Recursive functions need
/// stack for each level.
const MAX_DEPTH: usize = 127;

/// The type of a patch, from its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
}

/// Applies a patch to an object.
pub(crate) fn patch(
    kind: &Kind,
    patch_type: PatchType,
    current: &Value,
    patch: &Value,
) -> Result<Value, StatusError> {
    let wrong_type = |wanted: &str, prefix: &str| {
        let found = type_name(patch);
        StatusError::bad_request(format!(
            "{prefix}json: cannot unmarshal {found} into Go value of type {wanted}"
        ))
    };
    let decoding = "error decoding patch: ";
    let mut patched = current.clone();
    match (patch_type, patch) {
        (PatchType::Json, Value::Array(operations)) => apply_operations(&mut patched, operations)?,
        (PatchType::Json, _) => return Err(wrong_type("[]handlers.jsonPatchOp", decoding)),
        (PatchType::Merge, Value::Object(_)) => json_patch::merge(&mut patched, patch),
        (PatchType::Merge, _) => return Err(wrong_type("map[string]interface {}", decoding)),
        (PatchType::Strategic, Value::Object(patch)) => {
            strategic::merge(kind, &mut patched, patch)?;
        }
        (PatchType::Strategic, _) => return Err(wrong_type("map[string]interface {}", "")),
    }
    Ok(patched)
}

/// Applies the operations of a JSON patch one after the other, within the limits above.
fn apply_operations(object: &mut Value, operations: &[Value]) -> Result<(), StatusError> {
    if operations.len() > MAX_OPERATIONS {
        return Err(StatusError::too_many_operations(operations.len(), MAX_OPERATIONS));
    }
    let mut copied = 0;
    for operation in operations {
        let operation = parse_operation(object, operation)?;
        copied += check_limits(object, &operation, copied)?;
        json_patch::patch(object, &[operation]).map_err(|_| StatusError::patch_rejected())?;
    }
    Ok(())
}

/// Refuses an operation that makes the object too large or too deep; returns how many bytes it
/// copies.
fn check_limits(
    object: &Value,
    operation: &PatchOperation,
    copied: usize,
) -> Result<usize, StatusError> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(one) => (&one.path, object.pointer(one.from.as_str())),
        PatchOperation::Copy(one) => (&one.path, object.pointer(one.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(0),
    };
    // A missing source is refused when the operation is applied.
    let Some(value) = value else { return Ok(0) };
    let above = path.as_str().matches('/').count();
    if MAX_DEPTH.checked_sub(above).is_none_or(|levels| is_deeper(value, levels)) {
        let why =
            format!("the patch nests values more than {MAX_DEPTH} levels deep: nest them less");
        return Err(StatusError::patch_refused(why));
    }
    let more = if matches!(operation, PatchOperation::Copy(_)) { size(value) } else { 0 };
    if copied + more > MAX_COPIED_BYTES {
        let why = format!(
            "the patch copies more than {MAX_COPIED_BYTES} bytes: copy less, or send several \
             patches"
        );
        return Err(StatusError::patch_refused(why));
    }
    Ok(more)
}

/// One operation. kube-apiserver treats a `replace` of a missing value as an `add`.
fn parse_operation(object: &Value, operation: &Value) -> Result<PatchOperation, StatusError> {
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
