//! Decoding Kubernetes objects: what all kinds of objects have in common.
//!
//! Only the fields that are used are decoded. An absent field, `null` and an empty value mean the same.

use serde::Deserialize;
use serde::de::IgnoredAny;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Name, Uid};
use zonewise_common::time::Seconds;

use crate::labels::Labels;

/// The metadata that Pods and Nodes need.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    #[serde(deserialize_with = "lenient")]
    pub(crate) name: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) namespace: Name,
    #[serde(deserialize_with = "lenient")]
    pub(crate) uid: Uid,
    #[serde(deserialize_with = "lenient")]
    pub(crate) labels: Labels,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
}

/// A condition in a status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(deserialize_with = "lenient")]
    pub(crate) r#type: Box<str>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) status: Box<str>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) last_transition_time: Seconds,
}

/// The Ready condition, if there is one.
pub(crate) fn ready_condition(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| &*condition.r#type == "Ready")
}

/// Whether the Ready condition is True.
pub(crate) fn is_ready(conditions: &[Condition]) -> bool {
    ready_condition(conditions).is_some_and(|condition| &*condition.status == "True")
}
