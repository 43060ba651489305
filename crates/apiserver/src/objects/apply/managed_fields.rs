//! Reading and writing `metadata.managedFields`.

use serde_json::{Value, json};

use super::Writer;
use super::fields::Fields;
use crate::objects::json::{list, text};
use crate::objects::kind::Kind;

/// The fields that one manager owns by one operation: Apply or Update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) applied: bool,
    pub(super) time: Option<String>,
    pub(super) manager: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) fields: Fields,
}

impl Entry {
    pub(super) fn new(
        kind: &Kind,
        writer: &Writer<'_>,
        applied: bool,
        time: Option<String>,
        fields: Fields,
    ) -> Self {
        Self {
            applied,
            time,
            manager: writer.manager.into(),
            api_version: kind.api_version(),
            subresource: writer.subresource.unwrap_or_default().into(),
            fields,
        }
    }

    pub(super) fn is_of(&self, writer: &Writer<'_>) -> bool {
        self.manager == writer.manager && self.subresource == writer.subresource.unwrap_or_default()
    }

    /// The manager as messages about conflicts name it.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if !self.applied {
            text += &format!(" using {}", self.api_version);
        }
        text
    }

    fn json(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager, "operation": if self.applied { "Apply" } else { "Update" },
            "apiVersion": self.api_version, "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.json(),
        });
        if let Some(time) = &self.time {
            entry["time"] = time.as_str().into();
        }
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }
}

pub(super) fn read(object: &Value) -> Vec<Entry> {
    let entries = list(object, "/metadata/managedFields").iter();
    let known = entries.filter(|entry| entry["fieldsType"] == "FieldsV1");
    known
        .map(|entry| Entry {
            applied: entry["operation"] == "Apply",
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            manager: text(entry, "/manager").into(),
            api_version: text(entry, "/apiVersion").into(),
            subresource: text(entry, "/subresource").into(),
            fields: Fields::read(&entry["fieldsV1"]),
        })
        .collect()
}

/// Entries of applies come first, then by time; entries without fields are dropped.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    let rank = |entry: &Entry| {
        let Entry { applied, time, manager, api_version, subresource, .. } = entry.clone();
        (!applied, time, manager, api_version, subresource)
    };
    entries.sort_by_key(rank);
    let metadata = crate::objects::json::map(object, "metadata");
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        let entries: Vec<Value> = entries.iter().map(Entry::json).collect();
        metadata.insert("managedFields".into(), entries.into());
    }
}
