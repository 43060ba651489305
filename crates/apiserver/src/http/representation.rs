//! The representations that clients can ask for with `Accept`: objects, tables, metadata alone.
//! Nothing here does I/O.

use std::borrow::Cow;
use std::sync::Arc;
use zonewise_common::api_group::METADATA_V1;
use zonewise_common::media_type::JSON;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubectl::table::{self, Include};
use crate::objects::conversion;
use crate::objects::kind::Kind;
use crate::objects::protobuf;
use crate::operations::Outcome;
use crate::operations::paging::ListPage;
use crate::status::StatusError;
use crate::store::{Object, json_without_type};

/// What kube-apiserver names in its answer 406. YAML is not written here.
const AVAILABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str =
    ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// How bodies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

impl Form {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// The media type of watches.
    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// The media type of aggregated discovery.
    pub(crate) fn discovery_type(self) -> &'static str {
        match self {
            Self::Json => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::Protobuf => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
        }
    }
}

/// What is shown of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Whole,
    /// In JSON only.
    Table(Include),
    Metadata {
        /// Whether the client expects a list.
        list: bool,
    },
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) form: Form,
    pub(crate) view: View,
}

/// One of the media types in `Accept`.
struct Clause<'a> {
    media_type: &'a str,
    /// The parameter `q`.
    quality: f64,
    /// Names and values.
    parameters: Vec<(&'a str, &'a str)>,
}

/// What a client wants an answer to be converted to: group, version and kind.
type Target<'a> = (&'a str, &'a str, &'a str);

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
        Self { media_type, quality, parameters }
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The forms that its media type allows.
    fn forms(&self) -> &'static [Form] {
        match self.media_type {
            JSON => &[Form::Json],
            protobuf::MEDIA_TYPE => &[Form::Protobuf],
            "application/*" | "*/*" | "*" => &[Form::Json, Form::Protobuf],
            _ => &[],
        }
    }

    /// Whether it asks for no kind of stream, or for one that is served.
    fn is_streamable(&self) -> bool {
        self.parameter("stream").is_none_or(|value| ["", "watch"].contains(&value))
    }

    fn target(&self) -> Option<Target<'a>> {
        let [group, version, kind] = ["g", "v", "as"].map(|name| self.parameter(name));
        group.or(version).or(kind)?;
        Some((group.unwrap_or_default(), version.unwrap_or_default(), kind.unwrap_or_default()))
    }
}

/// The first thing that the client accepts and that `serves` makes; nothing if there is none.
fn choose<T>(accept: &str, serves: impl Fn(Form, Option<Target<'_>>) -> Option<T>) -> Option<T> {
    if accept.is_empty() {
        return serves(Form::Json, None);
    }
    let mut clauses: Vec<Clause<'_>> =
        accept.split(',').map(|one| Clause::parse(one.trim())).collect();
    let rank = |clause: &Clause<'_>| clause.media_type.bytes().filter(|byte| *byte == b'*').count();
    clauses.sort_by(|one, other| {
        other.quality.total_cmp(&one.quality).then(rank(one).cmp(&rank(other)))
    });
    let made =
        |clause: &Clause<'_>| clause.forms().iter().find_map(|form| serves(*form, clause.target()));
    clauses.iter().filter(|clause| clause.is_streamable()).find_map(made)
}

/// Why a client gets nothing: it accepts no media type that is served, or none with parameters that are
/// served. kube-apiserver finds the former when it looks for the path, and names what watches send there.
pub(crate) fn refusal(accept: &str, watchable: bool) -> StatusError {
    if accept.split(',').any(|clause| !Clause::parse(clause.trim()).forms().is_empty()) {
        return refusal_of_parameters();
    }
    let streams = if watchable { STREAMS } else { "" };
    StatusError::not_acceptable(&format!("{AVAILABLE}{streams}"))
}

/// The latter of the two.
pub(crate) fn refusal_of_parameters() -> StatusError {
    StatusError::not_accepted(AVAILABLE)
}

/// The first representation of objects that the client accepts and that is served. `include` is the
/// query parameter `includeObject`; `watchable` paths are those of collections.
pub(crate) fn negotiate(
    accept: &str,
    include: &str,
    watchable: bool,
) -> Result<Representation, StatusError> {
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
    let view = |form: Form, target: Option<Target<'_>>| match target {
        None => Some(View::Whole),
        Some(("meta.k8s.io", "v1" | "v1beta1", kind)) => match kind {
            "Table" => (form == Form::Json).then_some(View::Table(include)),
            "PartialObjectMetadata" => Some(View::Metadata { list: false }),
            "PartialObjectMetadataList" => Some(View::Metadata { list: true }),
            _ => None,
        },
        Some(_) => None,
    };
    choose(accept, |form, target| Some(Representation { form, view: view(form, target)? }))
        .ok_or_else(|| refusal(accept, watchable))
}

/// The form of what can be shown in one way only: documents and errors. Nothing if the client accepts
/// none.
pub(crate) fn negotiate_document(accept: &str) -> Option<Form> {
    choose(accept, |form, target| target.is_none().then_some(form))
}

/// Checks that the client accepts JSON, for a document that has no other form.
pub(crate) fn require_json(accept: &str) -> Result<(), StatusError> {
    choose(accept, |form, target| (form == Form::Json && target.is_none()).then_some(()))
        .ok_or_else(|| StatusError::not_acceptable(JSON))
}

/// The form of aggregated discovery, if the client asks for that.
pub(crate) fn negotiate_discovery(accept: &str) -> Option<Form> {
    let aggregated = ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
    choose(accept, |form, target| (target == Some(aggregated)).then_some(form))
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
            Outcome::Status(code, value) => (*code, document(value, self.representation.form)),
        }
    }

    /// One object. `columns`: whether a table has column definitions.
    pub(crate) fn object(&self, object: &Object, columns: bool) -> Vec<u8> {
        match (self.representation.view, self.representation.form) {
            (View::Whole, Form::Json) => {
                let head = format!(
                    r#"{{"kind":"{}","apiVersion":"{}","#,
                    self.kind.kind,
                    self.kind.api_version()
                );
                let json = self.item(object);
                [head.as_bytes(), &json[1..]].concat()
            }
            (View::Whole, Form::Protobuf) => {
                protobuf::envelope(&self.kind.api_version(), self.kind.kind, &self.item(object))
            }
            (View::Table(include), _) => {
                let metadata = json!({"resourceVersion": object.meta("resourceVersion")});
                json(&self.table(&[object], metadata, include, columns))
            }
            (View::Metadata { .. }, form) => document(&partial(object), form),
        }
    }

    /// One object without its kind, as lists have it.
    fn item<'a>(&self, object: &'a Object) -> Cow<'a, [u8]> {
        match (self.kind.stored_as, self.representation.form) {
            (None, Form::Json) => Cow::Borrowed(object.json_without_type()),
            (None, Form::Protobuf) => Cow::Borrowed(object.protobuf_without_type()),
            (Some(_), form) => {
                let shown = conversion::from_storage(self.kind, &object.value);
                Cow::Owned(match form {
                    Form::Json => json_without_type(&shown),
                    Form::Protobuf => protobuf::message(&shown).unwrap_or_default(),
                })
            }
        }
    }

    /// An event of a watch.
    pub(crate) fn event(&self, event_type: &str, object: &[u8], out: &mut Vec<u8>) {
        match self.representation.form {
            Form::Json => {
                out.extend_from_slice(format!(r#"{{"type":"{event_type}","object":"#).as_bytes());
                out.extend_from_slice(object);
                out.extend_from_slice(b"}\n");
            }
            Form::Protobuf => protobuf::frame(event_type, object, out),
        }
    }

    fn list(&self, page: &ListPage) -> Vec<u8> {
        match self.representation.view {
            View::Whole => {
                let items: Vec<_> = page.objects.iter().map(|object| self.item(object)).collect();
                let kind = format!("{}List", self.kind.kind);
                self.list_of(&self.kind.api_version(), &kind, page, &items)
            }
            View::Table(include) => {
                let objects: Vec<&Object> = page.objects.iter().map(Arc::as_ref).collect();
                json(&self.table(&objects, page.metadata(), include, true))
            }
            View::Metadata { .. } => {
                // In JSON each item has its kind.
                let item = |object: &Arc<Object>| match self.representation.form {
                    Form::Json => json(&partial(object)),
                    Form::Protobuf => protobuf::message(&partial(object)).unwrap_or_default(),
                };
                let items: Vec<_> =
                    page.objects.iter().map(|object| Cow::Owned(item(object))).collect();
                self.list_of(METADATA_V1, "PartialObjectMetadataList", page, &items)
            }
        }
    }

    fn list_of(
        &self,
        api_version: &str,
        kind: &str,
        page: &ListPage,
        items: &[Cow<'_, [u8]>],
    ) -> Vec<u8> {
        let metadata = page.metadata();
        if self.representation.form == Form::Protobuf {
            return protobuf::list(api_version, kind, &metadata, items.iter().map(AsRef::as_ref));
        }
        let head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
        );
        [head.as_bytes(), &items.join(&b','), b"]}\n"].concat()
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
        "kind": "PartialObjectMetadata", "apiVersion": METADATA_V1,
        "metadata": object.value["metadata"],
    })
}

/// A value with a kind of its own. Protobuf is for kinds in the table: all that are served.
pub(crate) fn document(value: &Value, form: Form) -> Vec<u8> {
    match form {
        Form::Json => json(value),
        Form::Protobuf => protobuf::encode(value).unwrap_or_default(),
    }
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
            ("", Some((Form::Json, View::Whole))),
            ("*/*", Some((Form::Json, View::Whole))),
            ("application/json, */*", Some((Form::Json, View::Whole))),
            (kubectl, Some((Form::Json, View::Table(Include::Metadata)))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Form::Protobuf, View::Whole)),
            ),
            (
                "application/vnd.kubernetes.protobuf;q=0.5,application/json;q=0.9",
                Some((Form::Json, View::Whole)),
            ),
            ("*/*, application/vnd.kubernetes.protobuf", Some((Form::Protobuf, View::Whole))),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                Some((Form::Protobuf, View::Whole)),
            ),
            ("application/vnd.kubernetes.protobuf;stream=else", None),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", None),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Some((Form::Protobuf, View::Metadata { list: false })),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some((Form::Json, View::Metadata { list: true })),
            ),
            ("application/json;as=Else, application/json", Some((Form::Json, View::Whole))),
            ("application/json;as=Table", None),
            ("application/cbor", None),
        ];
        for (accept, expected) in rows {
            let found = negotiate(accept, "", false).ok();
            assert_eq!(found.map(|found| (found.form, found.view)), expected, "{accept}");
        }
        let found = negotiate(kubectl, "Object", false).map(|found| found.view);
        assert_eq!(found, Ok(View::Table(Include::Object)));
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
        let representation = Representation { form: Form::Json, view: View::Whole };
        let encoder = Encoder { kind, representation, now: Timestamp::UNIX_EPOCH };
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
