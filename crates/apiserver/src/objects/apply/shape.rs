//! Which parts of an object are one field. Without a rule in the schema, each key of a map is a
//! field and a list as a whole is one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{Fields, readable};
use crate::objects::kind::Kind;
use crate::objects::schema::{self, ListType};

/// The structure of the objects of one kind.
pub(super) struct Shape<'a> {
    pub(super) kind: &'a Kind,
}

/// The fields in which two objects differ.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) added: Fields,
    pub(super) modified: Fields,
    pub(super) removed: Fields,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(super) fn strip(&mut self, kind: &Kind, subresource: Option<&str>) {
        for fields in [&mut self.added, &mut self.modified, &mut self.removed] {
            fields.strip(kind, subresource);
        }
    }

    /// The fields that were added or modified.
    pub(super) fn touched(&self) -> Fields {
        let mut touched = self.added.clone();
        touched.add(&self.modified);
        touched
    }
}

/// A child of a map or a list that is a field of its own.
struct Part<'v> {
    step: String,
    path: String,
    value: &'v Value,
}

impl Shape<'_> {
    /// The fields below, or `None` if the value is one field.
    fn parts<'v>(&self, path: &str, value: &'v Value) -> Option<Vec<Part<'v>>> {
        match value {
            Value::Object(map) if !schema::is_atomic_map(self.kind, path) => Some(
                map.iter()
                    .map(|(key, value)| Part {
                        step: format!("f:{key}"),
                        path: schema::child(path, key),
                        value,
                    })
                    .collect(),
            ),
            Value::Array(list) => {
                let step = self.item_step(path)?;
                let part = |value| Part { step: step(value), path: format!("{path}[]"), value };
                Some(list.iter().map(part).collect())
            }
            _ => None,
        }
    }

    /// The fields below by their step; empty if there is no value.
    fn named<'v>(
        &self,
        path: &str,
        value: Option<&'v Value>,
    ) -> Option<BTreeMap<String, Part<'v>>> {
        let parts = match value {
            None => Vec::new(),
            Some(value) => self.parts(path, value)?,
        };
        Some(parts.into_iter().map(|part| (part.step.clone(), part)).collect())
    }

    /// A function that gives each item of a list its step; `None` if the list is one field.
    fn item_step(&self, path: &str) -> Option<impl Fn(&Value) -> String + use<>> {
        let rule = schema::list_type(self.kind, path);
        if rule == ListType::Atomic {
            return None;
        }
        Some(move |item: &Value| match rule {
            ListType::Map(keys) => {
                let named = |key: &&&str| {
                    let value = item.get(**key).cloned().filter(|value| !value.is_null());
                    let value = value.or_else(|| schema::default_of(key).map(Value::from))?;
                    Some(((**key).to_owned(), value))
                };
                let keys: Map<String, Value> = keys.iter().filter_map(|key| named(&key)).collect();
                format!("k:{}", Value::Object(keys))
            }
            _ => format!("v:{item}"),
        })
    }

    /// All fields of an applied object.
    pub(super) fn fields(&self, path: &str, value: &Value) -> Fields {
        let Some(parts) = self.parts(path, value) else { return Fields::leaf() };
        let mut fields = Fields {
            own: parts.is_empty() && !path.is_empty() && value.is_object(),
            ..Fields::default()
        };
        for part in parts {
            let mut field = self.fields(&part.path, part.value);
            field.own |= value.is_array();
            fields.put(&part.step, field);
        }
        fields
    }

    /// The fields that differ between two objects.
    pub(super) fn compare(&self, before: Option<&Value>, after: Option<&Value>) -> Change {
        let mut change = self.differ("", before, after);
        for fields in [&mut change.added, &mut change.modified, &mut change.removed] {
            fields.own = false;
        }
        change
    }

    fn differ(&self, path: &str, before: Option<&Value>, after: Option<&Value>) -> Change {
        let mut change = Change::default();
        if before == after {
            return change;
        }
        change.added.own = before.is_none();
        change.removed.own = after.is_none();
        let (Some(old), Some(new)) = (self.named(path, before), self.named(path, after)) else {
            change.modified.own = before.is_some() && after.is_some();
            return change;
        };
        let steps: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for step in steps {
            let (one, other) = (old.get(step), new.get(step));
            let path = one.or(other).map_or("", |part| part.path.as_str());
            let below = self.differ(path, one.map(|part| part.value), other.map(|part| part.value));
            change.added.put(step, below.added);
            change.modified.put(step, below.modified);
            change.removed.put(step, below.removed);
        }
        change
    }

    /// The stored object merged with the applied one.
    pub(super) fn merge(&self, path: &str, live: &Value, applied: &Value) -> Value {
        match (live, applied) {
            (Value::Object(old), Value::Object(new)) if !schema::is_atomic_map(self.kind, path) => {
                let mut merged = old.clone();
                for (key, value) in new {
                    let value = match old.get(key) {
                        Some(old) => self.merge(&schema::child(path, key), old, value),
                        None => value.clone(),
                    };
                    merged.insert(key.clone(), value);
                }
                Value::Object(merged)
            }
            (Value::Array(old), Value::Array(new)) => match self.item_step(path) {
                Some(step) => Value::Array(self.merge_lists(path, old, new, step)),
                None => applied.clone(),
            },
            _ => applied.clone(),
        }
    }

    /// Applied items in their order. Each other item comes before the applied items that it stood
    /// before in the old list.
    fn merge_lists(
        &self,
        path: &str,
        old: &[Value],
        new: &[Value],
        step: impl Fn(&Value) -> String,
    ) -> Vec<Value> {
        let olds: Vec<(String, &Value)> = old.iter().map(|item| (step(item), item)).collect();
        let news: Vec<(String, &Value)> = new.iter().map(|item| (step(item), item)).collect();
        let find =
            |all: &[(String, &Value)], name: &str| all.iter().position(|(one, _)| one == name);
        let mut merged = Vec::new();
        let mut at = 0;
        let others_until = |end: usize, at: &mut usize, merged: &mut Vec<Value>| {
            while *at < end {
                if find(&news, &olds[*at].0).is_none() {
                    merged.push(olds[*at].1.clone());
                }
                *at += 1;
            }
        };
        for (name, item) in &news {
            match find(&olds, name) {
                Some(found) => {
                    others_until(found, &mut at, &mut merged);
                    merged.push(self.merge(&format!("{path}[]"), olds[found].1, item));
                }
                None => {
                    let run = olds[at..].iter().take_while(|(one, _)| find(&news, one).is_none());
                    let end = at + run.count();
                    others_until(end, &mut at, &mut merged);
                    merged.push((*item).clone());
                }
            }
        }
        others_until(olds.len(), &mut at, &mut merged);
        merged
    }

    /// Removes the fields of the manager's last apply that neither its new apply nor another
    /// manager keeps.
    pub(super) fn remove(&self, path: &str, value: &mut Value, last: &Fields, kept: &Fields) {
        let name = self.item_step(path);
        let none = Fields::default();
        for (step, field) in &last.below {
            // An object keeps its metadata even if no manager owns any of it.
            let metadata = (path.is_empty() && step == "f:metadata").then_some(&none);
            let stays = kept.below.get(step).or(metadata);
            match value {
                Value::Object(map) => {
                    let key = step.strip_prefix("f:").unwrap_or(step);
                    match (stays, map.get_mut(key)) {
                        (Some(stays), Some(below)) => {
                            self.remove(&schema::child(path, key), below, field, stays);
                        }
                        _ => {
                            map.remove(key);
                        }
                    }
                }
                Value::Array(list) => {
                    let Some(name) = &name else { continue };
                    match stays {
                        Some(stays) => {
                            for item in list.iter_mut().filter(|item| name(item) == *step) {
                                self.remove(&format!("{path}[]"), item, field, stays);
                            }
                        }
                        None => list.retain(|item| name(item) != *step),
                    }
                }
                _ => {}
            }
        }
    }

    /// A list item that occurs twice, as messages describe it.
    pub(super) fn duplicate(&self, path: &str, read: &str, value: &Value) -> Option<String> {
        let mut seen = BTreeSet::new();
        for part in self.parts(path, value)? {
            let step = readable(&part.step);
            if let Some(what) = self.duplicate(&part.path, &format!("{read}{step}"), part.value) {
                return Some(what);
            }
            if !seen.insert(part.step) {
                return Some(format!("{read}: duplicate entries for key {step}"));
            }
        }
        None
    }
}
