//! The forms in which clients want to read: JSON as it is, tables, metadata alone. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubectl::table::{self, Include};
use crate::objects::conversion;
use crate::objects::kind::Kind;
use crate::operations::Outcome;
use crate::operations::paging::Part;
use crate::status::StatusError;
use crate::store::{Object, bare};

// As the reference says it; of the three we speak the first.
const KNOWN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Table(Include),
    Metadata,
}

/// The first form that the client accepts and we know. `include` is of the query.
pub(crate) fn negotiate(accept: &str, include: &str) -> Result<Form, StatusError> {
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    let include = match include {
        "None" => Include::None,
        "Object" => Include::Object,
        other if !["", "Metadata"].contains(&other) && accept.contains("as=Table") => {
            return Err(StatusError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            )));
        }
        _ => Include::Metadata,
    };
    let form = |one: &str| {
        let mut parts = one.split(';').map(str::trim);
        if !["application/json", "application/*", "*/*"].contains(&parts.next()?) {
            return None;
        }
        match parts.find_map(|part| part.strip_prefix("as=")) {
            None => Some(Form::Json),
            Some("Table") => Some(Form::Table(include)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Metadata),
            Some(_) => None,
        }
    };
    accept.split(',').find_map(form).ok_or_else(|| StatusError::not_acceptable(KNOWN))
}

/// What a kind's objects look like in a form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: &'static Kind,
    pub(crate) form: Form,
    pub(crate) now: Timestamp,
}

impl Shape {
    /// The body of an answer, with its code.
    pub(crate) fn outcome(&self, outcome: &Outcome) -> (u16, Vec<u8>) {
        match outcome {
            Outcome::Object(code, object) => (*code, self.object(object, true)),
            Outcome::List(part) => (200, self.list(part)),
            Outcome::Status(code, value) => (*code, text(value)),
        }
    }

    /// One object; `columns` says whether a table says what its columns are.
    pub(crate) fn object(&self, object: &Object, columns: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(object, columns, &mut out);
        out
    }

    /// Likewise, at the end of what is there.
    pub(crate) fn write(&self, object: &Object, columns: bool, out: &mut Vec<u8>) {
        match self.form {
            Form::Json => {
                let head = format!(
                    r#"{{"kind":"{}","apiVersion":"{}","#,
                    self.kind.kind,
                    self.kind.api_version()
                );
                out.extend_from_slice(head.as_bytes());
                match self.kind.stored_as {
                    None => out.extend_from_slice(&object.bare()[1..]),
                    Some(_) => {
                        out.extend_from_slice(
                            &bare(&conversion::from_storage(self.kind, &object.value))[1..],
                        );
                    }
                }
            }
            Form::Table(include) => {
                let metadata = json!({"resourceVersion": object.meta("resourceVersion")});
                out.extend(text(&self.table(&[object], metadata, include, columns)));
            }
            Form::Metadata => out.extend(text(&partial(object))),
        }
    }

    fn list(&self, part: &Part) -> Vec<u8> {
        match self.form {
            Form::Json => self.whole_list(part),
            Form::Table(include) => {
                let objects: Vec<&Object> = part.objects.iter().map(Arc::as_ref).collect();
                text(&self.table(&objects, part.metadata(), include, true))
            }
            Form::Metadata => {
                let items: Vec<Value> = part.objects.iter().map(|object| partial(object)).collect();
                text(&json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": part.metadata(), "items": items,
                }))
            }
        }
    }

    fn whole_list(&self, part: &Part) -> Vec<u8> {
        let mut out = format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{},"items":["#,
            self.kind.kind,
            self.kind.api_version(),
            part.metadata()
        )
        .into_bytes();
        for (index, object) in part.objects.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match self.kind.stored_as {
                None => out.extend_from_slice(object.bare()),
                Some(_) => out.extend(bare(&conversion::from_storage(self.kind, &object.value))),
            }
        }
        out.extend_from_slice(b"]}\n");
        out
    }

    fn table(
        &self,
        objects: &[&Object],
        metadata: Value,
        include: Include,
        columns: bool,
    ) -> Value {
        let shown: Vec<_> = objects
            .iter()
            .map(|object| conversion::from_storage(self.kind, &object.value))
            .collect();
        let values: Vec<&Value> = shown.iter().map(AsRef::as_ref).collect();
        table::table(self.kind, &values, metadata, include, columns, self.now)
    }
}

fn partial(object: &Object) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"],
    })
}

/// JSON, as it goes over the wire.
pub(crate) fn text(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_form_is_taken() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let rows = [
            ("", Some(Form::Json)),
            ("*/*", Some(Form::Json)),
            ("application/json, */*", Some(Form::Json)),
            (kubectl, Some(Form::Table(Include::Metadata))),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Json)),
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Metadata),
            ),
            ("application/json;as=Else, application/json", Some(Form::Json)),
        ];
        for (accept, expected) in rows {
            assert_eq!(negotiate(accept, "").ok(), expected, "{accept}");
        }
        assert_eq!(negotiate(kubectl, "Object"), Ok(Form::Table(Include::Object)));
    }

    #[test]
    fn lists_say_their_kind_once() {
        let object = |name: &str| {
            Arc::new(Object::new(
                json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}),
            ))
        };
        let part = Part {
            objects: vec![object("a"), object("b")],
            version: 7,
            resume: None,
            remaining: None,
        };
        let kind = Kind::find("", "v1", "nodes").unwrap();
        let shape = Shape { kind, form: Form::Json, now: Timestamp::UNIX_EPOCH };
        let told = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            told(shape.list(&part)),
            "{\"kind\":\"NodeList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"},\
             \"items\":[{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}\n"
        );
        assert_eq!(
            told(shape.object(&part.objects[0], true)),
            r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}"#
        );
    }
}
