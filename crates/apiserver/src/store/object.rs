//! Objects as the store keeps them, and the events of their history.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::objects::json::size;

/// An object as it was at one version.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    json: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(value: Value) -> Self {
        Self { value, json: OnceLock::new() }
    }

    /// JSON without `kind` and `apiVersion`, as items of lists have it.
    pub(crate) fn bare(&self) -> &Bytes {
        self.json.get_or_init(|| Bytes::from(bare(&self.value)))
    }

    /// A text of the metadata; empty if it is missing.
    pub(crate) fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    /// The uids of its owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Value> {
        self.value["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }
}

/// JSON of an object without `kind` and `apiVersion`.
pub(crate) fn bare(value: &Value) -> Vec<u8> {
    let all = value.as_object().into_iter().flatten();
    let fields: BTreeMap<&String, &Value> =
        all.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")).collect();
    serde_json::to_vec(&fields).unwrap_or_default()
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// What happened to one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) key: Arc<str>,
    pub(crate) change: Change,
    /// As it is now; if it is gone, as it was, with the version at which it went.
    pub(crate) object: Arc<Object>,
    pub(crate) before: Option<Arc<Object>>,
    left: OnceLock<Arc<Object>>,
    pub(super) size: usize,
}

impl Event {
    pub(super) fn new(
        (version, at): (u64, Instant),
        key: Arc<str>,
        change: Change,
        object: Arc<Object>,
        before: Option<Arc<Object>>,
    ) -> Self {
        let size = size(&object.value);
        Self { version, at, key, change, object, before, left: OnceLock::new(), size }
    }

    /// The object as it was before, with the version of now: for those who no longer select it.
    pub(crate) fn left(&self) -> Arc<Object> {
        let make = || match &self.before {
            Some(before) => Arc::new(Object::new(versioned(before.value.clone(), self.version))),
            None => Arc::clone(&self.object),
        };
        Arc::clone(self.left.get_or_init(make))
    }
}

pub(super) fn versioned(mut value: Value, version: u64) -> Value {
    if let Some(object) = value.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        metadata["resourceVersion"] = version.to_string().into();
    }
    value
}
