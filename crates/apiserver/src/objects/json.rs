//! Short ways to what is at a place in an object.

use serde_json::{Map, Value};

/// The text at a place, empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    object.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a place, or a word in its stead.
pub(crate) fn text_or<'a>(object: &'a Value, place: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, place)).filter(|text| !text.is_empty()).unwrap_or(otherwise)
}

/// The list at a place, empty if there is none.
pub(crate) fn list<'a>(object: &'a Value, place: &str) -> &'a [Value] {
    object.pointer(place).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub(crate) fn texts<'a>(object: &'a Value, place: &str) -> impl Iterator<Item = &'a str> {
    list(object, place).iter().filter_map(Value::as_str)
}

/// The whole number at a place.
pub(crate) fn number(object: &Value, place: &str) -> Option<i64> {
    object.pointer(place).and_then(Value::as_i64)
}

/// Keys and values at a place.
pub(crate) fn entries<'a>(
    object: &'a Value,
    place: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(place).and_then(Value::as_object).into_iter().flatten()
}

/// The map at a key, made if there is none.
pub(crate) fn map<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let slot = &mut object[key];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("was made an object above"),
    }
}

/// The items of a list, to be changed.
pub(crate) fn items<'a>(object: &'a mut Value, place: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(place).and_then(Value::as_array_mut).into_iter().flatten()
}

/// About how many bytes the JSON of a value has.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 3,
        Value::Object(map) => {
            map.iter().map(|(key, one)| key.len() + 4 + size(one)).sum::<usize>() + 3
        }
    }
}

/// Whether lists and maps are in each other more often than this.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |one: &Value| is_deeper(one, levels - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(below),
        Value::Object(map) => map.values().any(below),
        _ => false,
    }
}

/// Sets what is not there.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if !map.contains_key(key) {
        map.insert(key.into(), value.into());
    }
}
