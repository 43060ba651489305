//! A set of fields in the notation of `fieldsV1`: `f:name` is a key of a map, `k:{"port":80}` an
//! item of a list by its keys, `v:"x"` a value of a set, and `.` the field itself where it has
//! fields below.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::objects::kind::Kind;

/// Metadata that the server owns, so that it has no manager.
const SERVER_METADATA: [&str; 11] = [
    "f:name",
    "f:namespace",
    "f:uid",
    "f:resourceVersion",
    "f:generation",
    "f:creationTimestamp",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:managedFields",
    "f:selfLink",
    "f:clusterName",
];

/// A tree of fields; `own` says whether the field at this node is in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) own: bool,
    pub(super) below: BTreeMap<String, Fields>,
}

impl Fields {
    /// One field without fields below.
    pub(super) fn leaf() -> Self {
        Self { own: true, below: BTreeMap::new() }
    }

    pub(super) fn read(value: &Value) -> Self {
        let entries = value.as_object().into_iter().flatten().filter(|(step, _)| *step != ".");
        let below = entries.map(|(step, value)| (step.clone(), Self::read_field(value))).collect();
        Self { own: false, below }
    }

    fn read_field(value: &Value) -> Self {
        let mut field = Self::read(value);
        field.own = field.below.is_empty() || value.get(".").is_some();
        field
    }

    pub(super) fn json(&self) -> Value {
        let entries = self.below.iter().map(|(step, field)| (step.clone(), field.json()));
        let mut map: Map<String, Value> = entries.collect();
        if self.own && !map.is_empty() {
            map.insert(".".into(), json!({}));
        }
        Value::Object(map)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.own && self.below.values().all(Self::is_empty)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.own |= other.own;
        for (step, field) in &other.below {
            self.below.entry(step.clone()).or_default().add(field);
        }
    }

    /// Adds a subtree, unless it is empty.
    pub(super) fn put(&mut self, step: &str, field: Self) {
        if !field.is_empty() {
            self.below.insert(step.into(), field);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.own &= !other.own;
        for (step, field) in &other.below {
            if let Some(mine) = self.below.get_mut(step) {
                mine.subtract(field);
                if mine.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    /// The fields that are in both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { own: self.own && other.own, below: BTreeMap::new() };
        for (step, field) in &self.below {
            if let Some(theirs) = other.below.get(step) {
                both.put(step, field.intersection(theirs));
            }
        }
        both
    }

    /// Removes fields that have no manager, and those that a request for this subresource does not
    /// write.
    pub(super) fn strip(&mut self, kind: &Kind, subresource: Option<&str>) {
        for step in ["f:apiVersion", "f:kind"] {
            self.below.remove(step);
        }
        match subresource {
            None if kind.has_status => self.below.remove("f:status"),
            Some("status") => self.below.remove("f:spec"),
            _ => None,
        };
        if let Some(metadata) = self.below.get_mut("f:metadata") {
            metadata.own = false;
            metadata.below.retain(|step, _| !SERVER_METADATA.contains(&step.as_str()));
            if metadata.is_empty() {
                self.below.remove("f:metadata");
            }
        }
    }

    /// The paths of all fields, as messages show them: `.spec.ports[port=80,protocol="TCP"].name`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, path: &str, paths: &mut Vec<String>) {
        if self.own {
            paths.push(path.to_owned());
        }
        for (step, field) in &self.below {
            field.collect(&format!("{path}{}", readable(step)), paths);
        }
    }
}

/// One step of a path, as messages show it.
pub(super) fn readable(step: &str) -> String {
    match step.split_once(':') {
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> =
                keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, name)) => format!(".{name}"),
        None => step.to_owned(),
    }
}
