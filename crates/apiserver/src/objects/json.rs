//! Short ways to read and change JSON values. `pointer` is a JSON pointer such as `/spec/ports`.

use serde_json::{Map, Value};

/// The string at a pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The string at a pointer, or another one if it is missing or empty.
pub(crate) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, pointer)).filter(|text| !text.is_empty()).unwrap_or(otherwise)
}

/// The list at a pointer; empty if there is none.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The strings of the list at a pointer.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    list(object, pointer).iter().filter_map(Value::as_str)
}

/// The integer at a pointer.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Keys and values of the map at a pointer.
pub(crate) fn entries<'a>(
    object: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// The map at a key; it is made if there is none.
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

/// The items of the list at a pointer, to be changed.
pub(crate) fn items<'a>(
    object: &'a mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// About how many bytes the JSON of a value has, without encoding it.
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

/// Whether lists and maps are nested in more than so many levels.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |one: &Value| is_deeper(one, levels - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(below),
        Value::Object(map) => map.values().any(below),
        _ => false,
    }
}

/// Sets a key that is missing.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if !map.contains_key(key) {
        map.insert(key.into(), value.into());
    }
}
