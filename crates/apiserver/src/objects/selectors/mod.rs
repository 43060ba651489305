//! Label and field selectors. Pure.
//!
//! Both are parsed once per list or watch; matching an object is a few lookups and comparisons.

use serde_json::Value;

use crate::objects::kind::Kind;
use crate::status::StatusError;

mod fields;
mod labels;

/// What a list or a watch is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<labels::Requirement>,
    fields: Vec<fields::Term>,
}

impl Selector {
    /// From `labelSelector` and `fieldSelector`, both as in a query after decoding; empty selects everything.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, StatusError> {
        Ok(Self {
            labels: labels::parse(labels).map_err(StatusError::bad_request)?,
            fields: fields::parse(kind, fields).map_err(StatusError::bad_request)?,
        })
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.labels.iter().all(|one| one.holds(labels))
            && self.fields.iter().all(|term| term.holds(object))
    }
}

#[cfg(test)]
mod tests;
