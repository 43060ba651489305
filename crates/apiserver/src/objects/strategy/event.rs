//! Validation of events. `v1` requires little, as long as there is no `eventTime`; with one, and
//! always in `events.k8s.io/v1`, all fields are required.

use serde_json::{Value, json};

use super::invalid;
use crate::objects::json::{number, text};
use crate::objects::kind::Kind;
use crate::objects::syntax;
use crate::status::FieldError;

/// Limits of kube-apiserver
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/apis/core/validation/events.go>):
/// reporter, action and reason, and the note.
const MAX_NAME_BYTES: usize = 128;
const MAX_NOTE_BYTES: usize = 1024;

pub(super) fn check(kind: &Kind, stored: Option<&Value>, event: &Value) -> Vec<FieldError> {
    let is_events_v1 = !kind.group.is_empty();
    if let (true, Some(stored)) = (is_events_v1, stored) {
        return changes(stored, event);
    }
    let timed = !text(event, "/eventTime").is_empty();
    if !is_events_v1 && !timed {
        return check_core_event(event);
    }
    let mut causes = Vec::new();
    if timed {
        causes.extend(check_required(event, is_events_v1));
    } else {
        causes.push(FieldError::required("eventTime", ""));
    }
    if is_events_v1 {
        causes.extend(check_events_v1(event));
    }
    causes
}

fn check_core_event(event: &Value) -> Vec<FieldError> {
    let involved = text(event, "/involvedObject/namespace");
    let own = text(event, "/metadata/namespace");
    // Events about cluster-scoped objects are in the namespace `default`.
    if involved == own || (involved.is_empty() && own == "default") {
        return Vec::new();
    }
    let why = "does not match event.namespace";
    vec![FieldError::invalid("involvedObject.namespace", &json!(involved), why)]
}

/// In `events.k8s.io/v1` only `series` may change. kube-apiserver names the fields as in `v1`.
fn changes(stored: &Value, event: &Value) -> Vec<FieldError> {
    const FIXED: [(&str, &str); 13] = [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    let changed = FIXED.iter().filter(|(key, _)| stored.get(key) != event.get(key));
    let cause = |(key, field): &(&str, &str)| {
        FieldError::invalid(*field, event.get(key).unwrap_or(&Value::Null), "field is immutable")
    };
    changed.map(cause).collect()
}

fn check_required(event: &Value, is_events_v1: bool) -> Vec<FieldError> {
    let reporter = if is_events_v1 { "reportingController" } else { "reportingComponent" };
    let name = text(event, &format!("/{reporter}"));
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(FieldError::required(reporter, ""));
    }
    causes.extend(invalid(reporter, name, &syntax::qualified(name)));
    for key in ["reportingInstance", "action", "reason"] {
        let value = text(event, &format!("/{key}"));
        if value.is_empty() {
            causes.push(FieldError::required(key, ""));
        } else if value.len() > MAX_NAME_BYTES {
            causes.push(FieldError::invalid(key, &json!(""), "can have at most 128 characters"));
        }
    }
    causes
}

fn check_events_v1(event: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if text(event, "/note").len() > MAX_NOTE_BYTES {
        causes.push(FieldError::invalid("message", &json!(""), "can have at most 1024 characters"));
    }
    let of = text(event, "/type");
    if !["Normal", "Warning"].contains(&of) {
        causes.push(FieldError::invalid("type", &json!(""), &format!("has invalid value: {of}")));
    }
    if event.get("series").is_some() {
        if number(event, "/series/count").unwrap_or(0) < 2 {
            causes.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
        }
        if text(event, "/series/lastObservedTime").is_empty() {
            causes.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    if number(event, "/deprecatedCount").unwrap_or(0) != 0 {
        causes.push(FieldError::invalid("count", &json!(""), "needs to be unset"));
    }
    causes
}
