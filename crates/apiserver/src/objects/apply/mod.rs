//! Server-side apply, and who owns which field. Pure.
//!
//! ```text
//!  stored ──┬─► merged with what is applied ─► without what this manager no longer applies and nobody else owns
//!           │                                        │
//!           └──────────── compared with ─────────────┘
//!                              │
//!      fields that others own and that changed: a conflict, or taken over
//! ```
//!
//! `fields` is a set of fields, `shape` knows what of an object is one field, `entries` is `metadata.managedFields`.

use serde_json::{Map, Value, json};

use crate::objects::json::text;
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};

mod entries;
mod fields;
mod shape;

use entries::Entry;
use fields::Fields;
use shape::Shape;

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer<'a> {
    /// The field manager's name.
    pub(crate) manager: &'a str,
    /// `status`, if that door was used.
    pub(crate) subresource: Option<&'a str>,
    /// Now, as `2026-01-02T03:04:05Z`.
    pub(crate) time: &'a str,
}

/// The object that an apply makes of what is stored, with `metadata.managedFields` renewed.
///
/// Conflicts with other managers are a 409 with causes, unless forced.
pub(crate) fn apply(
    kind: &Kind,
    stored: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, StatusError> {
    let shape = Shape { kind };
    if let Some(what) = shape.duplicate("", "", applied) {
        let place =
            [text(applied, "/metadata/namespace"), text(applied, "/metadata/name")].join("/");
        let of =
            if kind.group.is_empty() { format!("/{}", kind.version) } else { kind.api_version() };
        let message = format!(
            "failed to create typed patch object ({place}; {of}, Kind={}): {what}",
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
    entries::write(&mut merged, others);
    Ok(merged)
}

/// The entry of this manager's former applies, and all others.
fn partition(
    kind: &Kind,
    stored: Option<&Value>,
    writer: &Writer<'_>,
) -> (Option<Entry>, Vec<Entry>) {
    let mut others = stored.map(entries::read).unwrap_or_default();
    if let Some(stored) = stored
        && others.is_empty()
    {
        others.extend(before_first_apply(kind, stored, writer));
    }
    let at = others.iter().position(|entry| entry.applied && entry.is_of(writer));
    (at.map(|at| others.remove(at)), others)
}

/// An object that nobody was noted for has one owner of everything.
fn before_first_apply(kind: &Kind, stored: &Value, writer: &Writer<'_>) -> Option<Entry> {
    let mut change = Shape { kind }.compare(Some(&nothing(kind)), Some(stored));
    change.strip(kind, writer.subresource);
    let writer = Writer { manager: "before-first-apply", ..writer.clone() };
    let fields = change.touched();
    (!fields.is_empty()).then(|| Entry::new(kind, &writer, false, Some(writer.time.into()), fields))
}

fn conflicts(others: &[Entry], touched: &Fields) -> Vec<FieldError> {
    let mut others: Vec<&Entry> = others.iter().collect();
    others.sort_by(|one, other| one.manager.cmp(&other.manager));
    let of = |entry: &&Entry| {
        let message = format!("conflict with {}", entry.shown());
        let cause = move |field| FieldError {
            reason: "FieldManagerConflict",
            field,
            message: message.clone(),
        };
        entry.fields.shared(touched).paths().into_iter().map(cause).collect::<Vec<_>>()
    };
    others.iter().flat_map(of).collect()
}

/// Notes in `after.metadata.managedFields` who has changed what (create, update and patch).
///
/// An update that sends no owners keeps them; one that sends an empty list, or `[{}]`, forgets them all. Nothing is
/// noted then until somebody applies.
pub(crate) fn note(kind: &Kind, before: Option<&Value>, after: &mut Value, writer: &Writer<'_>) {
    let stored = before.map(entries::read).unwrap_or_default();
    let sent = after.pointer("/metadata/managedFields").and_then(Value::as_array);
    let forgotten = sent.is_some_and(|sent| sent.is_empty() || *sent == [json!({})]);
    let mut all = match entries::read(after) {
        _ if before.is_none() => Vec::new(),
        _ if forgotten => Vec::new(),
        sent if sent.is_empty() || writer.subresource.is_some() => stored,
        sent => sent,
    };
    if before.is_some() && all.is_empty() {
        entries::write(after, Vec::new());
        return;
    }
    let nothing = nothing(kind);
    let mut change = Shape { kind }.compare(Some(before.unwrap_or(&nothing)), Some(after));
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
    entries::write(after, all);
}

/// What an object of this kind has before anybody has written anything: these are not fields that somebody adds.
fn nothing(kind: &Kind) -> Value {
    match kind.kind {
        "Pod" => json!({"metadata": {}, "spec": {"containers": []}, "status": {}}),
        "Service" => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        "Event" => json!({
            "metadata": {}, "source": {}, "deprecatedSource": {}, "eventTime": null, "firstTimestamp": null,
            "lastTimestamp": null, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
            "involvedObject": {}, "regarding": {}, "reportingComponent": "", "reportingInstance": "",
        }),
        "EndpointSlice" | "ConfigMap" => json!({"metadata": {}}),
        _ => json!({"metadata": {}, "spec": {}, "status": {}}),
    }
}

#[cfg(test)]
mod tests;
