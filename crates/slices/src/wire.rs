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
