//! Conversion between API versions. Events alone have two: `v1`, which is stored, and
//! `events.k8s.io/v1`, which shows the same objects with other field names.
//!
//! ```text
//!  v1 (stored)            events.k8s.io/v1
//!  involvedObject    ◄──► regarding
//!  message           ◄──► note
//!  source            ◄──► deprecatedSource
//!  firstTimestamp    ◄──► deprecatedFirstTimestamp
//!  lastTimestamp     ◄──► deprecatedLastTimestamp
//!  count             ◄──► deprecatedCount
//!  reportingComponent◄──► reportingController
//! ```

use std::borrow::Cow;

use serde_json::Value;

use crate::objects::kind::Kind;

/// Field names in `v1` and in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The fields that name the reporter. In `v1` they are always shown, if need be as empty strings;
/// in `events.k8s.io/v1` empty ones are left out.
const REPORTER_V1: [&str; 2] = ["reportingComponent", "reportingInstance"];
const REPORTER_EVENTS_V1: [&str; 2] = ["reportingController", "reportingInstance"];

/// A stored object in the version of this kind.
pub(crate) fn from_storage<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    match kind.stored_as {
        None => Cow::Borrowed(stored),
        Some(_) => {
            let mut event = rename_fields(stored.clone(), NAMES, &kind.api_version());
            if let Some(fields) = event.as_object_mut() {
                fields.retain(|key, value| {
                    !REPORTER_EVENTS_V1.contains(&key.as_str()) || *value != ""
                });
            }
            Cow::Owned(event)
        }
    }
}

/// An object of this kind in the version in which it is stored.
pub(crate) fn to_storage(kind: &Kind, object: Value) -> Value {
    match kind.stored_as {
        None => object,
        Some(_) => {
            let mut event = rename_fields(object, NAMES.map(|(core, new)| (new, core)), "v1");
            if let Some(fields) = event.as_object_mut() {
                REPORTER_V1.iter().for_each(|key| crate::objects::json::default(fields, key, ""));
            }
            event
        }
    }
}

fn rename_fields(mut object: Value, names: [(&str, &str); 7], version: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        let moved = names.map(|(from, to)| (to, fields.remove(from)));
        for (to, value) in moved {
            if let Some(value) = value {
                fields.insert(to.into(), value);
            }
        }
        fields.insert("apiVersion".into(), version.into());
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_convert_both_ways() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Started",
            "message": "it runs", "involvedObject": {"kind": "Pod", "name": "p"},
            "source": {"component": "me"}, "count": 3, "type": "Normal",
            "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:06Z",
            "reportingComponent": "me", "reportingInstance": "me-1",
        });
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "reason": "Started", "note": "it runs", "regarding": {"kind": "Pod", "name": "p"},
            "deprecatedSource": {"component": "me"}, "deprecatedCount": 3, "type": "Normal",
            "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
            "deprecatedLastTimestamp": "2026-01-02T03:04:06Z",
            "reportingController": "me", "reportingInstance": "me-1",
        });
        let kind = Kind::find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(*from_storage(kind, &core), new);
        assert_eq!(to_storage(kind, new), core);
    }
}
