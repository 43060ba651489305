//! Strategic merge patches: lists are merged by keys, and directives express what a merge cannot.
//!
//! | directive | what it does |
//! |---|---|
//! | `$patch: replace`, `delete`, `merge` | for a map; as an item of a list, for the list |
//! | `$retainKeys` | removes all other keys of the map |
//! | `$deleteFromPrimitiveList/KEY` | removes values from a list |
//! | `$setElementOrder/KEY` | sets the order of a list |

use serde_json::{Map, Value};

use crate::objects::kind::Kind;
use crate::objects::schema::{self, PatchStrategy};
use crate::status::StatusError;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

pub(super) fn merge(kind: &Kind, object: &mut Value, patch: &Object) -> Result<(), StatusError> {
    if let Value::Object(object) = object {
        return Merge { kind }.map("", object, patch);
    }
    Err(StatusError::internal("there is no object to patch"))
}

/// As Go prints values: messages of kube-apiserver contain them in this form.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key}:{}", go_syntax(value)));
            format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(go_syntax).collect::<Vec<_>>().join(" "))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unknown_directive(directive: &Value, patch: &Object) -> StatusError {
    let map = go_syntax(&Value::Object(patch.clone()));
    StatusError::internal(format!("unknown patch type: {} in map: {map}", go_syntax(directive)))
}

struct Merge<'a> {
    kind: &'a Kind,
}

impl Merge<'_> {
    fn map(&self, path: &str, current: &mut Object, patch: &Object) -> Result<(), StatusError> {
        match patch.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
            None | Some((_, Some("merge"))) => {}
            Some((_, Some("replace"))) => {
                *current = patch.clone();
                current.remove(DIRECTIVE);
                return Ok(());
            }
            Some((_, Some("delete"))) => {
                current.clear();
                return Ok(());
            }
            Some((directive, _)) => return Err(unknown_directive(directive, patch)),
        }
        if let Some(Value::Array(keys)) = patch.get(RETAIN) {
            current.retain(|key, _| keys.iter().any(|kept| kept == key));
        }
        for (key, value) in patch {
            if let Some(key) = key.strip_prefix(DELETE) {
                delete_values(current, key, value);
            } else if !key.starts_with('$') {
                self.entry(path, current, key, value, patch.get(&format!("{ORDER}{key}")))?;
            }
        }
        self.orders(path, current, patch)
    }

    fn entry(
        &self,
        path: &str,
        current: &mut Object,
        key: &str,
        value: &Value,
        order: Option<&Value>,
    ) -> Result<(), StatusError> {
        let path = schema::child(path, key);
        match value {
            Value::Null => {
                current.remove(key);
            }
            Value::Object(patch) => {
                let slot = current.entry(key).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Object::new());
                }
                if let Value::Object(slot) = slot {
                    self.map(&path, slot, patch)?;
                }
            }
            Value::Array(patch) => {
                let slot = current.entry(key).or_insert(Value::Null);
                let old = slot.as_array().cloned().unwrap_or_default();
                *slot = Value::Array(self.list(&path, &old, patch, order)?);
            }
            value => {
                current.insert(key.into(), value.clone());
            }
        }
        Ok(())
    }

    fn list(
        &self,
        path: &str,
        old: &[Value],
        patch: &[Value],
        order: Option<&Value>,
    ) -> Result<Vec<Value>, StatusError> {
        match schema::patch_strategy(self.kind, path) {
            PatchStrategy::Replace => Ok(patch.to_vec()),
            PatchStrategy::MergeSet => {
                let mut merged = old.to_vec();
                let new = patch.iter().filter(|value| !old.contains(value));
                merged.extend(new.cloned());
                let order = order.and_then(Value::as_array).map_or(patch, Vec::as_slice);
                Ok(arrange(merged, old, order, Value::eq))
            }
            PatchStrategy::MergeBy(key) => self.keyed(path, old, patch, order, key),
        }
    }

    fn keyed(
        &self,
        path: &str,
        old: &[Value],
        patch: &[Value],
        order: Option<&Value>,
        key: &str,
    ) -> Result<Vec<Value>, StatusError> {
        let plain = |item: &&Value| item.get(DIRECTIVE).is_none();
        if patch.iter().any(|item| item.get(DIRECTIVE).is_some_and(|what| what == "replace")) {
            return Ok(patch.iter().filter(plain).cloned().collect());
        }
        let same =
            |one: &Value, other: &Value| one.get(key).is_some() && one.get(key) == other.get(key);
        let order = order.and_then(Value::as_array);
        check_order(patch, order, same)?;
        let mut merged = old.to_vec();
        for item in patch {
            let Value::Object(change) = item else { continue };
            match change.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
                Some((_, Some("delete"))) => {
                    merged.retain(|one| !same(one, item));
                    continue;
                }
                None | Some((_, Some("merge"))) => {}
                Some((directive, _)) => return Err(unknown_directive(directive, change)),
            }
            if !change.contains_key(key) {
                let map = go_syntax(item);
                let message = format!("map: {map} does not contain declared merge key: {key}");
                return Err(StatusError::internal(message));
            }
            let mut kept = Object::new();
            let found =
                merged.iter_mut().find(|one| same(one, item)).and_then(Value::as_object_mut);
            match found {
                Some(slot) => self.map(&format!("{path}[]"), slot, change)?,
                None => {
                    self.map(&format!("{path}[]"), &mut kept, change)?;
                    merged.push(Value::Object(kept));
                }
            }
        }
        Ok(arrange(merged, old, order.map_or(patch, Vec::as_slice), same))
    }

    /// Applies `$setElementOrder` to lists that the patch does not change otherwise.
    fn orders(&self, path: &str, current: &mut Object, patch: &Object) -> Result<(), StatusError> {
        for (directive, order) in patch {
            let Some(key) = directive.strip_prefix(ORDER) else { continue };
            if patch.contains_key(key) || !current.contains_key(key) {
                continue;
            }
            self.entry(path, current, key, &Value::Array(Vec::new()), Some(order))?;
        }
        Ok(())
    }
}

fn delete_values(current: &mut Object, key: &str, values: &Value) {
    if let (Some(list), Some(values)) =
        (current.get_mut(key).and_then(Value::as_array_mut), values.as_array())
    {
        list.retain(|value| !values.contains(value));
    }
}

/// Items of the patch must be in the order of `$setElementOrder`.
fn check_order(
    patch: &[Value],
    order: Option<&Vec<Value>>,
    same: impl Fn(&Value, &Value) -> bool,
) -> Result<(), StatusError> {
    let Some(order) = order else { return Ok(()) };
    let mut rest = order.iter();
    let kept = patch.iter().filter(|item| item.get(DIRECTIVE).is_none_or(|what| what != "delete"));
    for item in kept {
        if !rest.any(|one| same(one, item)) {
            let (patch, order) =
                (go_syntax(&Value::Array(patch.to_vec())), go_syntax(&Value::Array(order.clone())));
            let message = format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n\
                 {order}\n"
            );
            return Err(StatusError::internal(message));
        }
    }
    Ok(())
}

/// Sorts a merged list. Items that `order` names come in that order; each of the others stays
/// before the items that it stood before in the old list.
fn arrange(
    merged: Vec<Value>,
    old: &[Value],
    order: &[Value],
    same: impl Fn(&Value, &Value) -> bool,
) -> Vec<Value> {
    let rank = |item: &Value| order.iter().position(|one| same(one, item));
    let place = |item: &Value| old.iter().position(|one| same(one, item));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| rank(item).is_some());
    named.sort_by_key(rank);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let at = place(&item);
        while let Some(other) = others.next_if(|other| at.is_some() && place(other) < at) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}
