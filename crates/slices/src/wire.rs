//! Reading Kubernetes JSON: what the objects have in common.
//!
//! Only the fields we use are read, everything else is skipped without being stored. An absent
//! field, `null` and an empty value are the same thing.

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Name, Uid};

use crate::labels::Labels;

/// The metadata every object has. What only some kinds need stands with them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) namespace: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) uid: Uid,
    #[serde(deserialize_with = "lenient")]
    pub(crate) labels: Labels,
    pub(crate) creation_timestamp: Option<Box<str>>,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
}

/// A condition in a status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) r#type: Box<str>,
    pub(crate) status: Box<str>,
    pub(crate) last_transition_time: Option<Box<str>>,
}

/// The Ready condition, if there is one.
pub(crate) fn ready_condition(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| &*condition.r#type == "Ready")
}

/// Whether the Ready condition is True.
pub(crate) fn is_ready(conditions: &[Condition]) -> bool {
    ready_condition(conditions).is_some_and(|condition| &*condition.status == "True")
}

/// Seconds since 1970 of a Kubernetes timestamp; `None` for text that is no time.
pub(crate) fn seconds(text: Option<&str>) -> Option<i64> {
    text?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// A Kubernetes timestamp.
pub fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc() {
        assert_eq!(seconds(Some("2026-01-02T03:04:05Z")), Some(1_767_323_045));
        assert_eq!(timestamp(1_767_323_045), "2026-01-02T03:04:05Z");
        assert_eq!(seconds(Some("yesterday")), None);
    }
}
