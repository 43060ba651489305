//! A set of fields, in the form in which it is written down: `f:name`, `k:{"port":80}`, `v:"x"`, and `.` for a field
//! that has fields of its own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::objects::kind::Kind;

/// What nobody owns.
const OF_THE_SERVER: [&str; 11] = [
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

/// A field, whether it is in the set, and the fields below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) own: bool,
    pub(super) below: BTreeMap<String, Fields>,
}

impl Fields {
    /// A field alone.
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

    /// Puts a field below, if there is anything in it.
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

    /// What is in both.
    pub(super) fn shared(&self, other: &Self) -> Self {
        let mut shared = Self { own: self.own && other.own, below: BTreeMap::new() };
        for (step, field) in &self.below {
            if let Some(theirs) = other.below.get(step) {
                shared.put(step, field.shared(theirs));
            }
        }
        shared
    }

    /// Drops what is not for managers, and what this door does not write.
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
            metadata.below.retain(|step, _| !OF_THE_SERVER.contains(&step.as_str()));
            if metadata.is_empty() {
                self.below.remove("f:metadata");
            }
        }
    }

    /// The fields as people read them: `.spec.ports[port=80,protocol="TCP"].name`.
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
            field.collect(&format!("{path}{}", shown(step)), paths);
        }
    }
}

/// One step of a path as people read it.
pub(super) fn shown(step: &str) -> String {
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
