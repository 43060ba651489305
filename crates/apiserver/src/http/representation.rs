//! The representations that clients can ask for with `Accept`: objects, tables, metadata alone.
//! Nothing here does I/O.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubectl::table::{self, Include};
use crate::objects::conversion;
use crate::objects::kind::Kind;
use crate::operations::Outcome;
use crate::operations::paging::ListPage;
use crate::status::StatusError;
use crate::store::{Object, json_without_type};

/// What kube-apiserver names in its answer 406. Only JSON is written here.
const AVAILABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    Json,
    Table(Include),
    Metadata,
}

/// The first representation that the client accepts and that is served. `include` is the query
/// parameter `includeObject`.
pub(crate) fn negotiate(accept: &str, include: &str) -> Result<Representation, StatusError> {
    if accept.trim().is_empty() {
        return Ok(Representation::Json);
    }
    let include = match include {
        "None" => Include::None,
        "Object" => Include::Object,
        other if !["", "Metadata"].contains(&other) && accept.contains("as=Table") => {
            return Err(StatusError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            )));
        }
        _ => Include::Metadata,
    };
    let representation = |one: &str| {
        let mut parts = one.split(';').map(str::trim);
        if !["application/json", "application/*", "*/*"].contains(&parts.next()?) {
            return None;
        }
        match parts.find_map(|page| page.strip_prefix("as=")) {
            None => Some(Representation::Json),
            Some("Table") => Some(Representation::Table(include)),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                Some(Representation::Metadata)
            }
            Some(_) => None,
        }
    };
    accept.split(',').find_map(representation).ok_or_else(|| StatusError::not_acceptable(AVAILABLE))
}

/// Encodes objects of one kind in one representation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    pub(crate) kind: &'static Kind,
    pub(crate) representation: Representation,
    pub(crate) now: Timestamp,
}

impl Encoder {
    /// The body of a response, with its status code.
    pub(crate) fn outcome(&self, outcome: &Outcome) -> (u16, Vec<u8>) {
        match outcome {
            Outcome::Object(code, object) => (*code, self.object(object, true)),
            Outcome::List(page) => (200, self.list(page)),
            Outcome::Status(code, value) => (*code, json(value)),
        }
    }

    /// One object. `columns`: whether a table has column definitions.
    pub(crate) fn object(&self, object: &Object, columns: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(object, columns, &mut out);
        out
    }

    /// Appends one object to `out`.
    pub(crate) fn write(&self, object: &Object, columns: bool, out: &mut Vec<u8>) {
        match self.representation {
            Representation::Json => {
                let head = format!(
                    r#"{{"kind":"{}","apiVersion":"{}","#,
                    self.kind.kind,
                    self.kind.api_version()
                );
                out.extend_from_slice(head.as_bytes());
                match self.kind.stored_as {
                    None => out.extend_from_slice(&object.json_without_type()[1..]),
                    Some(_) => {
                        out.extend_from_slice(
                            &json_without_type(&conversion::from_storage(self.kind, &object.value))
                                [1..],
                        );
                    }
                }
            }
            Representation::Table(include) => {
                let metadata = json!({"resourceVersion": object.meta("resourceVersion")});
                out.extend(json(&self.table(&[object], metadata, include, columns)));
            }
            Representation::Metadata => out.extend(json(&partial(object))),
        }
    }

    fn list(&self, page: &ListPage) -> Vec<u8> {
        match self.representation {
            Representation::Json => self.json_list(page),
            Representation::Table(include) => {
                let objects: Vec<&Object> = page.objects.iter().map(Arc::as_ref).collect();
                json(&self.table(&objects, page.metadata(), include, true))
            }
            Representation::Metadata => {
                let items: Vec<Value> = page.objects.iter().map(|object| partial(object)).collect();
                json(&json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": page.metadata(), "items": items,
                }))
            }
        }
    }

    fn json_list(&self, page: &ListPage) -> Vec<u8> {
        let mut out = format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{},"items":["#,
            self.kind.kind,
            self.kind.api_version(),
            page.metadata()
        )
        .into_bytes();
        for (index, object) in page.objects.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match self.kind.stored_as {
                None => out.extend_from_slice(object.json_without_type()),
                Some(_) => out
                    .extend(json_without_type(&conversion::from_storage(self.kind, &object.value))),
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
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.value["metadata"],
    })
}

/// JSON, as it goes over the wire.
pub(crate) fn json(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_served_representation_is_used() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let rows = [
            ("", Some(Representation::Json)),
            ("*/*", Some(Representation::Json)),
            ("application/json, */*", Some(Representation::Json)),
            (kubectl, Some(Representation::Table(Include::Metadata))),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Representation::Json)),
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Representation::Metadata),
            ),
            ("application/json;as=Else, application/json", Some(Representation::Json)),
        ];
        for (accept, expected) in rows {
            assert_eq!(negotiate(accept, "").ok(), expected, "{accept}");
        }
        assert_eq!(negotiate(kubectl, "Object"), Ok(Representation::Table(Include::Object)));
    }

    #[test]
    fn lists_name_their_kind_once() {
        let object = |name: &str| {
            Arc::new(Object::new(
                json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}),
            ))
        };
        let page = ListPage {
            objects: vec![object("a"), object("b")],
            version: 7,
            continue_token: None,
            remaining: None,
        };
        let kind = Kind::find("", "v1", "nodes").unwrap();
        let encoder =
            Encoder { kind, representation: Representation::Json, now: Timestamp::UNIX_EPOCH };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            text(encoder.list(&page)),
            "{\"kind\":\"NodeList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"},\
             \"items\":[{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}\n"
        );
        assert_eq!(
            text(encoder.object(&page.objects[0], true)),
            r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}"#
        );
    }
}
