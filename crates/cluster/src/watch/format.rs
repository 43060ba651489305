//! The two forms that lists and watches come in.
//!
//! ```text
//!              asked for (Accept)        answered with (Content-Type)      cut into objects by
//!  protobuf    protobuf, json            …vnd.kubernetes.protobuf…  ─────► common::protobuf::stream
//!  json        nothing                   anything else  ─────────────────► common::json_list, lines
//! ```
//!
//! The server decides, and so does a proxy in between: what is read is what the answer says it is. A server that
//! refuses to answer, or protobuf that is not what it says or comes under another name, is an [`ApiError::Format`]; the
//! same is then asked for in JSON. JSON that cannot be read, and a page of HTML, say nothing about protobuf: they are
//! an [`ApiError::Unavailable`], and the same is asked for again.

use std::fmt::Display;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use zonewise_common::encoded::Encoded;
use zonewise_common::json_list;
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::decode::Kind;
use zonewise_common::protobuf::envelope::{MAGIC, WatchEvent};
use zonewise_common::protobuf::kinds::STATUS;
use zonewise_common::protobuf::stream::{FrameCutter, ListCutter, MAX_OBJECT_BYTES};

use crate::api::{self, ApiError};

/// A request for what is at a path, in protobuf if objects of `kind` can be read in it.
pub(super) fn get(path: &str, kind: Option<&'static Kind>) -> Result<Request<Body>, ApiError> {
    let mut request = Request::get(path);
    if kind.is_some() {
        request = request.header(ACCEPT, api::protobuf_or_json());
    }
    request.body(Body::empty()).map_err(|error| api::invalid_path(path, &error))
}

/// The kind that was asked for, if the answer is protobuf.
fn answered(response: &Response<Body>, kind: Option<&'static Kind>) -> Option<&'static Kind> {
    let content_type = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    kind.filter(|_| content_type.trim_start().starts_with(MEDIA_TYPE))
}

/// Why a part of an answer cannot be used, if the answer says that it is protobuf.
fn bad_protobuf(what: &str, error: impl Display) -> ApiError {
    ApiError::Format(format!("{what} cannot be read: {error}"))
}

/// The same for an answer that says something else. `text` is what cannot be read.
fn bad_json(what: &str, text: &[u8], error: impl Display) -> ApiError {
    // Objects begin with the prefix, watches with the highest byte of a length. Text begins with neither.
    if text.starts_with(MAGIC) || text.starts_with(&[0]) {
        return ApiError::Format(format!(
            "{what} is protobuf, and its content type says that it is not"
        ));
    }
    let text = String::from_utf8_lossy(&text[..text.len().min(100)]);
    ApiError::Unavailable(format!("{what} cannot be read: {error}; it begins with {text:?}"))
}

/// An object without a name and version that can be read.
pub(super) fn unidentified(object: Encoded<'_>) -> ApiError {
    let (what, error) = ("an object", "its metadata is missing or damaged");
    match object {
        Encoded::Json(json) => bad_json(what, json.as_bytes(), error),
        Encoded::Protobuf(..) => bad_protobuf(what, error),
    }
}

/// What a page of a list says about itself.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The version of the list.
    pub(super) version: String,
    /// The token for the next page; empty on the last one.
    pub(super) next: String,
}

/// Cuts a page of a list into its objects.
#[derive(Debug)]
pub(super) enum PageReader {
    Json(json_list::Cutter),
    Protobuf(&'static Kind, ListCutter),
}

impl PageReader {
    pub(super) fn new(response: &Response<Body>, kind: Option<&'static Kind>) -> Self {
        answered(response, kind).map_or_else(
            || Self::Json(json_list::Cutter::default()),
            |kind| Self::Protobuf(kind, ListCutter::new(kind.name)),
        )
    }

    /// The next bytes; every object that is whole by now is handed to `take`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        take: &mut (dyn FnMut(Encoded<'_>) + Send),
    ) -> Result<(), ApiError> {
        match self {
            Self::Json(cutter) => {
                let mut text = Ok(());
                cutter.feed(bytes, |item| match std::str::from_utf8(item) {
                    Ok(item) => take(Encoded::Json(item)),
                    Err(error) => text = Err(error),
                });
                text.map_err(|error| bad_json(LIST, cutter.rest(), error))
            }
            Self::Protobuf(kind, cutter) => cutter
                .feed(bytes, |item| take(Encoded::Protobuf(kind, item)))
                .map_err(|error| bad_protobuf(LIST, error)),
        }
    }

    /// What the page says about itself, once all bytes have been fed.
    pub(super) fn finish(self) -> Result<Page, ApiError> {
        match self {
            Self::Json(cutter) => {
                let rest = cutter.rest();
                let list: JsonPage<'_> =
                    serde_json::from_slice(rest).map_err(|error| bad_json(LIST, rest, error))?;
                let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                let JsonPageMeta { resource_version, r#continue } = list.metadata;
                Ok(Page { version: text(resource_version), next: text(r#continue) })
            }
            Self::Protobuf(_, cutter) => {
                // Another attempt in protobuf may succeed, so this is not an error of the format.
                let metadata = cutter.finish().map_err(|error| {
                    ApiError::Unavailable(format!("{LIST} cannot be read: {error}"))
                })?;
                Ok(Page { version: metadata.resource_version, next: metadata.r#continue })
            }
        }
    }
}

/// What errors are about.
const LIST: &str = "a list";
const EVENT: &str = "a watch event";

#[derive(Deserialize)]
struct JsonPage<'a> {
    #[serde(borrow)]
    metadata: JsonPageMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonPageMeta<'a> {
    resource_version: Option<&'a str>,
    r#continue: Option<&'a str>,
}

/// An event of a watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub(super) event_type: &'a str,
    /// The object; a Status for `ERROR`.
    pub(super) object: Encoded<'a>,
}

/// Cuts a watch into its events.
#[derive(Debug)]
pub(super) enum EventReader {
    /// One event per line; holds the beginning of a line.
    Json(Vec<u8>),
    Protobuf(&'static Kind, FrameCutter),
}

impl EventReader {
    pub(super) fn new(response: &Response<Body>, kind: Option<&'static Kind>) -> Self {
        answered(response, kind).map_or_else(
            || Self::Json(Vec::new()),
            |kind| Self::Protobuf(kind, FrameCutter::default()),
        )
    }

    /// The next bytes; every event that is whole by now is handed to `take`. After an error, nothing more may be fed.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Event<'_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        match self {
            Self::Json(buffer) => lines(buffer, bytes, |line| match json_event(line)? {
                Some(event) => take(event),
                None => Ok(()),
            }),
            Self::Protobuf(kind, cutter) => {
                cutter.feed(bytes, |frame| take(protobuf_event(kind, frame)?))
            }
        }
    }

    /// Whether the answer that has ended here was a watch up to its end: the page of a proxy in between may have no
    /// line that is whole.
    pub(super) fn finish(&self) -> Result<(), ApiError> {
        match self {
            Self::Json(buffer) => json_event(buffer).map(drop),
            Self::Protobuf(..) => Ok(()),
        }
    }
}

/// Hands over every line that is whole by now.
fn lines(
    buffer: &mut Vec<u8>,
    bytes: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    buffer.extend_from_slice(bytes);
    let mut start = 0;
    while let Some(end) = buffer[start..].iter().position(|&byte| byte == b'\n') {
        take(&buffer[start..start + end])?;
        start += end + 1;
    }
    buffer.drain(..start);
    match buffer.len() > MAX_OBJECT_BYTES {
        true => Err(bad_json(EVENT, buffer, "it is too large to be one")),
        false => Ok(()),
    }
}

impl From<zonewise_common::protobuf::reader::Error> for ApiError {
    fn from(error: zonewise_common::protobuf::reader::Error) -> Self {
        bad_protobuf(EVENT, error)
    }
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The event in a line; `None` in an empty one.
fn json_event(line: &[u8]) -> Result<Option<Event<'_>>, ApiError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let event: JsonEvent<'_> =
        serde_json::from_slice(line).map_err(|error| bad_json(EVENT, line, error))?;
    Ok(Some(Event { event_type: event.r#type, object: Encoded::Json(event.object.get()) }))
}

fn protobuf_event<'a>(kind: &'static Kind, frame: &'a [u8]) -> Result<Event<'a>, ApiError> {
    let WatchEvent { event_type, envelope } = WatchEvent::read(frame)?;
    let expected = if event_type == "ERROR" { &STATUS } else { kind };
    if envelope.kind != expected.name {
        let error = format!("a {} was asked for and a {} came", expected.name, envelope.kind);
        return Err(bad_protobuf(EVENT, error));
    }
    Ok(Event { event_type, object: Encoded::Protobuf(expected, envelope.object) })
}
