//! Checks documents against the JSON Schemas in `docs/schemas`.
#![allow(dead_code, reason = "every test target uses its part of this")]

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::observe::run::root;

/// The folder of the schemas.
pub(crate) fn folder() -> PathBuf {
    root().join("docs/schemas/v1")
}

/// The keywords that the schemas use. Any other one would be ignored silently, so that is a failure.
const KEYWORDS: [&str; 15] = [
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "pattern",
    "minimum",
    "oneOf",
    "const",
];

/// The only pattern in use: a reason code.
const CODE: &str = "^[A-Z][A-Za-z]+$";

/// A schema, as far as our documents need it.
pub(crate) struct Schema {
    pub(crate) root: Value,
}

impl Schema {
    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(format!("{name}.schema.json"))).unwrap();
        Self { root: serde_json::from_str(&text).unwrap() }
    }

    /// Lists the faults of a document, each with its place.
    pub(crate) fn faults(&self, document: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(&self.root, document, "$", &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, faults: &mut Vec<String>) {
        let Some(schema) = schema.as_object() else {
            if schema == &json!(false) {
                faults.push(format!("{path}: not in the schema"));
            }
            return;
        };
        for keyword in schema.keys() {
            assert!(KEYWORDS.contains(&keyword.as_str()), "the validator does not know {keyword}");
        }
        if let Some(name) = schema.get("$ref") {
            let name = name.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            let target = self.root["$defs"].get(name);
            self.check(target.unwrap_or_else(|| panic!("no $defs/{name}")), value, path, faults);
        }
        if let Some(kinds) = schema.get("type").filter(|kinds| !has_type(value, kinds)) {
            return faults.push(format!("{path}: {value} is not {kinds}"));
        }
        if let Some(choices) = schema.get("enum")
            && !choices.as_array().unwrap().contains(value)
        {
            faults.push(format!("{path}: {value} is not one of {choices}"));
        }
        if let Some(pattern) = schema.get("pattern") {
            assert_eq!(pattern, CODE, "the validator knows one pattern");
            let text = value.as_str().unwrap_or_default();
            let letters = text.chars().all(|letter| letter.is_ascii_alphabetic());
            if !(text.starts_with(|first: char| first.is_ascii_uppercase()) && letters) {
                faults.push(format!("{path}: {value} is no reason code"));
            }
        }
        if let (Some(least), Some(number)) = (schema.get("minimum"), value.as_f64())
            && number < least.as_f64().unwrap()
        {
            faults.push(format!("{path}: {value} is less than {least}"));
        }
        if let Some(choices) = schema.get("oneOf") {
            self.check_one_of(choices.as_array().unwrap(), value, path, faults);
        }
        if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
            for (index, value) in values.iter().enumerate() {
                self.check(items, value, &format!("{path}[{index}]"), faults);
            }
        }
        if let Some(object) = value.as_object() {
            self.check_object(schema, object, path, faults);
        }
    }

    fn check_one_of(&self, choices: &[Value], value: &Value, path: &str, faults: &mut Vec<String>) {
        let tried = choices.iter().map(|choice| {
            let mut faults = Vec::new();
            self.check(choice, value, path, &mut faults);
            faults
        });
        let tried: Vec<Vec<String>> = tried.collect();
        match tried.iter().filter(|faults| faults.is_empty()).count() {
            1 => {}
            0 => faults.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default()),
            several => faults.push(format!("{path}: {several} alternatives match")),
        }
    }

    fn check_object(
        &self,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        path: &str,
        faults: &mut Vec<String>,
    ) {
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().map(|name| name.as_str().unwrap()) {
            if !object.contains_key(name) {
                faults.push(format!("{path}.{name}: missing"));
            }
        }
        let everything = Value::Bool(true);
        let others = schema.get("additionalProperties").unwrap_or(&everything);
        for (name, value) in object {
            let named = schema.get("properties").and_then(|properties| properties.get(name));
            self.check(named.unwrap_or(others), value, &format!("{path}.{name}"), faults);
        }
    }
}

fn has_type(value: &Value, kinds: &Value) -> bool {
    let kinds: Vec<&str> = match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    kinds.iter().any(|kind| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the validator does not know the type {other}"),
    })
}

/// Fails if a document is not as its schema says.
pub(crate) fn assert_valid(name: &str, document: &Value) {
    let faults = Schema::read(name).faults(document);
    assert!(faults.is_empty(), "{name}: {}\n{document:#}", faults.join("\n"));
}
