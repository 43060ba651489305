//! `kind` and `apiVersion` of an object or a list, without parsing all of it.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::yaml;

const NO_KIND: &str =
    "this list has no `kind`: it was cut off, so write it again; or add `kind: List`";

/// `kind` and `apiVersion`, which Kubernetes calls the type metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeMeta {
    pub(super) kind: Option<Box<str>>,
    pub(super) api_version: Option<Box<str>>,
}

impl TypeMeta {
    /// Of a parsed object.
    pub(super) fn of(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(Into::into);
        Self { kind: text("kind"), api_version: text("apiVersion") }
    }

    /// Of a JSON text, which is read only as far as needed and may be cut off.
    pub(super) fn of_json(text: &str) -> Self {
        let mut type_meta = Self::default();
        // An error only means that reading stopped early, or it is one that the parser reports later.
        let _ = serde_json::Deserializer::from_str(text).deserialize_map(Seek(&mut type_meta));
        type_meta
    }

    /// Of a list, from the text before its items.
    pub(super) fn of_beginning(text: &[u8], json: bool) -> Self {
        let text = std::str::from_utf8(text).unwrap_or_default();
        if json {
            return Self::of_json(text);
        }
        yaml::parse::<Value>(text).map(|value| Self::of(&value)).unwrap_or_default()
    }

    /// Of a list, from the text before and after its items. An error is a line and a message.
    pub(super) fn of_outline(text: &[u8], json: bool) -> Result<Self, (usize, String)> {
        let text = std::str::from_utf8(text)
            .map_err(|_| (1, "the text of this list around its items is not UTF-8".to_owned()))?;
        let value: Value = if json {
            serde_json::from_str(text).map_err(|error| (error.line(), syntax(&error)))?
        } else {
            match yaml::parse(text) {
                // The anchor may be in an item. `kind` and `apiVersion` never use one.
                Err(problem) if problem.anchor => return Ok(Self::default()),
                other => other.map_err(|problem| (problem.line, problem.message))?,
            }
        };
        let type_meta = Self::of(&value);
        match value.get("items") {
            Some(Value::Array(items)) if !items.is_empty() => {
                Err((1, "this list has `items` twice: make it two lists".to_owned()))
            }
            // In YAML, kubectl writes `kind` after the items: if it is missing, items may be missing
            // too.
            _ if type_meta.kind.is_none() && !json => Err((1, NO_KIND.to_owned())),
            None | Some(Value::Null | Value::Array(_)) => Ok(type_meta),
            Some(_) => Err((1, "this list has `items` twice: make it two lists".to_owned())),
        }
    }

    /// The type of an item: what it lacks is taken from the type of its list (a `PodList` has Pods).
    pub(super) fn or(self, list: &Self) -> Self {
        let kind = list.kind.as_deref().map(|kind| kind.strip_suffix("List").unwrap_or(kind));
        match kind.filter(|kind| !kind.is_empty()) {
            Some(kind) if self.kind.as_deref().is_none_or(|own| own == kind) => Self {
                kind: Some(kind.into()),
                api_version: self.api_version.or_else(|| list.api_version.clone()),
            },
            _ => self,
        }
    }
}

/// What is wrong with a text that is not JSON, without the position.
pub(super) fn syntax(error: &serde_json::Error) -> String {
    // Brackets are balanced by now, so that the text can only end too early if it is empty.
    if error.is_eof() {
        return "an item is missing here: is there a comma too many?".to_owned();
    }
    format!("this is not JSON: {}", without_location(error))
}

/// The message of an error, without the position.
pub(super) fn without_location(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text).to_owned()
}

/// Reads the fields of an object until both are found.
struct Seek<'a>(&'a mut TypeMeta);

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "kind" => self.0.kind = map.next_value()?,
                "apiVersion" => self.0.api_version = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
            if self.0.kind.is_some() && self.0.api_version.is_some() {
                return Err(A::Error::custom("enough"));
            }
        }
        Ok(())
    }
}
