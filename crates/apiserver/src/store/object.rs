//! Objects as the store keeps them, and the events of their history.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::objects::json::size;
use crate::objects::protobuf;

/// An object as it was at one resourceVersion.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    /// Encoded when it is first read, and then never again.
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(value: Value) -> Self {
        Self { value, json: OnceLock::new(), protobuf: OnceLock::new() }
    }

    /// JSON without `kind` and `apiVersion`, as items of lists have it.
    pub(crate) fn json_without_type(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(json_without_type(&self.value)))
    }

    /// Its message in protobuf, without an envelope, as items of lists have it.
    pub(crate) fn protobuf_without_type(&self) -> &Bytes {
        self.protobuf
            .get_or_init(|| Bytes::from(protobuf::message(&self.value).unwrap_or_default()))
    }

    /// A string of the metadata; empty if it is missing.
    pub(crate) fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    /// Its owner references.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Value> {
        self.value["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }
}

/// JSON of an object without `kind` and `apiVersion`.
pub(crate) fn json_without_type(value: &Value) -> Vec<u8> {
    let all = value.as_object().into_iter().flatten();
    let fields: BTreeMap<&String, &Value> =
        all.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")).collect();
    serde_json::to_vec(&fields).unwrap_or_default()
}

/// The kind of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One write to one object.
#[derive(Debug)]
pub(crate) struct WatchEvent {
    /// The resourceVersion of the write.
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) key: Arc<str>,
    pub(crate) change: Change,
    /// The new state. For a deletion: the last state, with the resourceVersion of the deletion.
    pub(crate) object: Arc<Object>,
    /// The state before, unless the object was added.
    pub(crate) before: Option<Arc<Object>>,
    deselected: OnceLock<Arc<Object>>,
    /// About how many bytes this event costs the history.
    pub(super) size: usize,
}

impl WatchEvent {
    pub(super) fn new(
        version: u64,
        at: Instant,
        key: Arc<str>,
        change: Change,
        object: Arc<Object>,
        before: Option<Arc<Object>>,
    ) -> Self {
        let size = size(&object.value);
        Self { version, at, key, change, object, before, deselected: OnceLock::new(), size }
    }

    /// What a watch shows as DELETED when its selector no longer matches the object: the state
    /// before, with the resourceVersion of this event.
    pub(crate) fn deselected(&self) -> Arc<Object> {
        let make = || match &self.before {
            Some(before) => Arc::new(Object::new(with_version(before.value.clone(), self.version))),
            None => Arc::clone(&self.object),
        };
        Arc::clone(self.deselected.get_or_init(make))
    }
}

/// The object with this `metadata.resourceVersion`.
pub(super) fn with_version(mut value: Value, version: u64) -> Value {
    if let Some(object) = value.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        metadata["resourceVersion"] = version.to_string().into();
    }
    value
}
