//! Server-side apply, and which manager owns which field. No I/O.
//!
//! ```text
//!  stored ──┬─► merged with the applied object ─► without the fields that only this manager owned
//!           │                                     and no longer applies
//!           └──────────── compared with ─────────────┘
//!                              │
//!      changed fields of other managers: a conflict, or taken over by force
//! ```
//!
//! - `fields`: a set of fields.
//! - `shape`: which parts of an object are one field.
//! - `managed_fields`: reading and writing `metadata.managedFields`.

use serde_json::{Map, Value, json};

use crate::objects::json::text;
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

mod fields;
mod managed_fields;
mod shape;

use fields::Fields;
use managed_fields::Entry;
use shape::Shape;

/// The client that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer<'a> {
    /// The field manager's name.
    pub(crate) manager: &'a str,
    /// `status`, if the request is for `/status`.
    pub(crate) subresource: Option<&'a str>,
    /// Now, as `2026-01-02T03:04:05Z`.
    pub(crate) time: &'a str,
}

/// The result of an apply on the stored object, with `metadata.managedFields` updated.
///
/// Conflicts with other managers are an error 409 with one cause for each field, unless `force` is
/// set.
pub(crate) fn apply(
    kind: &Kind,
    stored: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    let shape = Shape { kind };
    if let Some(what) = shape.duplicate("", "", applied) {
        let name =
            [text(applied, "/metadata/namespace"), text(applied, "/metadata/name")].join("/");
        let of =
            if kind.group.is_empty() { format!("/{}", kind.version) } else { kind.api_version() };
        let message = format!(
            "failed to create typed patch object ({name}; {of}, Kind={}): {what}",
            kind.kind
        );
        return Err(StatusError::internal(message));
    }
    let live = stored.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let (own, mut others) = partition(kind, stored, writer);
    let mut wanted = shape.fields("", applied);
    wanted.strip(kind, writer.subresource);
    let mut merged = shape.merge("", &live, applied);
    if let Some(own) = &own {
        let mut kept = wanted.clone();
        others.iter().for_each(|entry| kept.add(&entry.fields));
        shape.remove("", &mut merged, &own.fields, &kept);
    }
    let mut change = shape.compare(Some(&live), Some(&merged));
    change.strip(kind, writer.subresource);
    let touched = change.touched();
    let causes = conflicts(&others, &touched);
    if !force && !causes.is_empty() {
        return Err(StatusError::apply_conflict(&causes));
    }
    for entry in &mut others {
        entry.fields.subtract(&touched);
        entry.fields.subtract(&change.removed);
    }
    let still = own.and_then(|entry| entry.time);
    let time = if change.is_empty() && stored.is_some() { still } else { Some(writer.time.into()) };
    others.push(Entry::new(kind, writer, true, time, wanted));
    managed_fields::write(&mut merged, others);
    Ok(merged)
}

/// The entry of this manager's earlier applies, and all other entries.
fn partition(
    kind: &Kind,
    stored: Option<&Value>,
    writer: &Writer<'_>,
) -> (Option<Entry>, Vec<Entry>) {
    let mut others = stored.map(managed_fields::read).unwrap_or_default();
    if let Some(stored) = stored
        && others.is_empty()
    {
        others.extend(before_first_apply(kind, stored, writer));
    }
    let at = others.iter().position(|entry| entry.applied && entry.is_of(writer));
    (at.map(|at| others.remove(at)), others)
}

/// For an object without managed fields: all its fields belong to a manager of this name, as in
/// kube-apiserver.
fn before_first_apply(kind: &Kind, stored: &Value, writer: &Writer<'_>) -> Option<Entry> {
    let mut change = Shape { kind }.compare(Some(&empty_object(kind)), Some(stored));
    change.strip(kind, writer.subresource);
    let writer = Writer { manager: "before-first-apply", ..writer.clone() };
    let fields = change.touched();
    (!fields.is_empty()).then(|| Entry::new(kind, &writer, false, Some(writer.time.into()), fields))
}

fn conflicts(others: &[Entry], touched: &Fields) -> Vec<FieldError> {
    let mut others: Vec<&Entry> = others.iter().collect();
    others.sort_by(|one, other| one.manager.cmp(&other.manager));
    let of = |entry: &&Entry| {
        let message = format!("conflict with {}", entry.describe());
        let cause = move |field| FieldError {
            reason: "FieldManagerConflict",
            field,
            message: message.clone(),
        };
        entry.fields.intersection(touched).paths().into_iter().map(cause).collect::<Vec<_>>()
    };
    others.iter().flat_map(of).collect()
}

/// Makes the writer of a create, update or patch the manager of the fields that it has changed, in
/// `after.metadata.managedFields`.
///
/// A request without managed fields keeps the stored ones. One with an empty list, or with `[{}]`,
/// clears them, and they stay empty until the next apply.
pub(crate) fn track_update(
    kind: &Kind,
    before: Option<&Value>,
    after: &mut Value,
    writer: &Writer<'_>,
) {
    let stored = before.map(managed_fields::read).unwrap_or_default();
    let sent = after.pointer("/metadata/managedFields").and_then(Value::as_array);
    let cleared = sent.is_some_and(|sent| sent.is_empty() || *sent == [json!({})]);
    let mut all = match managed_fields::read(after) {
        _ if before.is_none() => Vec::new(),
        _ if cleared => Vec::new(),
        sent if sent.is_empty() || writer.subresource.is_some() => stored,
        sent => sent,
    };
    if before.is_some() && all.is_empty() {
        managed_fields::write(after, Vec::new());
        return;
    }
    let empty = empty_object(kind);
    let mut change = Shape { kind }.compare(Some(before.unwrap_or(&empty)), Some(after));
    change.strip(kind, writer.subresource);
    let touched = change.touched();
    for entry in &mut all {
        entry.fields.subtract(&touched);
        entry.fields.subtract(&change.removed);
    }
    if !touched.is_empty() {
        match all.iter_mut().find(|entry| !entry.applied && entry.is_of(writer)) {
            Some(entry) => {
                entry.fields.add(&touched);
                entry.time = Some(writer.time.into());
            }
            None => all.push(Entry::new(kind, writer, false, Some(writer.time.into()), touched)),
        }
    }
    managed_fields::write(after, all);
}

/// An empty object of this kind as Go encodes it. Fields that it has count as present from the
/// start, so that the client that creates an object does not become their manager.
fn empty_object(kind: &Kind) -> Value {
    match kind.kind {
        "Pod" => json!({"metadata": {}, "spec": {"containers": []}, "status": {}}),
        "Service" => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        "Event" => json!({
            "metadata": {}, "source": {}, "deprecatedSource": {}, "eventTime": null,
            "firstTimestamp": null, "lastTimestamp": null, "deprecatedFirstTimestamp": null,
            "deprecatedLastTimestamp": null, "involvedObject": {}, "regarding": {},
            "reportingComponent": "", "reportingInstance": "",
        }),
        "Deployment" | "ReplicaSet" => {
            let template = json!({"metadata": {}, "spec": {"containers": []}});
            let spec = json!({"strategy": {}, "template": template});
            json!({"metadata": {}, "spec": spec, "status": {"replicas": 0}})
        }
        "EndpointSlice" => json!({"metadata": {}, "endpoints": null, "ports": null}),
        "ConfigMap" => json!({"metadata": {}}),
        _ => json!({"metadata": {}, "spec": {}, "status": {}}),
    }
}

#[cfg(test)]
mod tests;
