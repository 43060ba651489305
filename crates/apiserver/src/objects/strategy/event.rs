//! Events: those of the old form need little, those with an `eventTime` need everything.

use serde_json::{Value, json};

use super::wrong;
use crate::objects::json::{number, text};
use crate::objects::kind::Kind;
use crate::objects::syntax;
use crate::status::FieldError;

const MOST: usize = 128;
const MOST_MESSAGE: usize = 1024;

pub(super) fn check(kind: &Kind, stored: Option<&Value>, event: &Value) -> Vec<FieldError> {
    let new_form = !kind.group.is_empty();
    if let (true, Some(stored)) = (new_form, stored) {
        return changes(stored, event);
    }
    let timed = !text(event, "/eventTime").is_empty();
    if !new_form && !timed {
        return old(event);
    }
    let mut causes = Vec::new();
    if timed {
        causes.extend(complete(event, new_form));
    } else {
        causes.push(FieldError::required("eventTime", ""));
    }
    if new_form {
        causes.extend(modern(event));
    }
    causes
}

fn old(event: &Value) -> Vec<FieldError> {
    let about = text(event, "/involvedObject/namespace");
    let home = text(event, "/metadata/namespace");
    // What belongs to no namespace is told of in the default one.
    if about == home || (about.is_empty() && home == "default") {
        return Vec::new();
    }
    let why = "does not match event.namespace";
    vec![FieldError::invalid("involvedObject.namespace", &json!(about), why)]
}

/// At the new door only a series may go on. The reference names the fields as the old door does.
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

fn complete(event: &Value, new_form: bool) -> Vec<FieldError> {
    let reporter = if new_form { "reportingController" } else { "reportingComponent" };
    let name = text(event, &format!("/{reporter}"));
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(FieldError::required(reporter, ""));
    }
    causes.extend(wrong(reporter, name, &syntax::qualified(name)));
    for key in ["reportingInstance", "action", "reason"] {
        let value = text(event, &format!("/{key}"));
        if value.is_empty() {
            causes.push(FieldError::required(key, ""));
        } else if value.len() > MOST {
            causes.push(FieldError::invalid(key, &json!(""), "can have at most 128 characters"));
        }
    }
    causes
}

fn modern(event: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if text(event, "/note").len() > MOST_MESSAGE {
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
