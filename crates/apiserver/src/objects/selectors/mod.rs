//! Label and field selectors. They are parsed once for each list or watch. No I/O.

use serde_json::Value;

use crate::objects::kind::Kind;
use crate::status::StatusError;

mod fields;
mod labels;

/// The objects that a list or a watch shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<labels::Requirement>,
    fields: Vec<fields::Term>,
}

impl Selector {
    /// From `labelSelector` and `fieldSelector` of a query; empty ones select everything.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, StatusError> {
        Ok(Self {
            labels: labels::parse(labels).map_err(StatusError::bad_request)?,
            fields: fields::parse(kind, fields).map_err(StatusError::bad_request)?,
        })
    }

    /// Whether the object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.labels.iter().all(|one| one.matches(labels))
            && self.fields.iter().all(|term| term.matches(object))
    }
}

#[cfg(test)]
mod tests;
