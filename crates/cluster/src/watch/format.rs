//! The two forms that lists and watches come in.
//!
//! ```text
//!              asked for (Accept)        answered with (Content-Type)      cut into objects by
//!  protobuf    protobuf, json            …vnd.kubernetes.protobuf…  ─────► common::protobuf::stream
//!  json        nothing                   anything else  ─────────────────► common::json_list, lines
//! ```
//!
//! The server decides, and so does a proxy in between: what is read is what the answer says it is. A server that
//! refuses to answer, or an answer that is not what it says, is an [`ApiError::Format`]; the same is then asked for
//! in JSON.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use zonewise_common::encoded::Encoded;
use zonewise_common::json_list;
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::decode::Kind;
use zonewise_common::protobuf::envelope::WatchEvent;
use zonewise_common::protobuf::kinds::STATUS;
use zonewise_common::protobuf::stream::{FrameCutter, ListCutter, MAX_OBJECT_BYTES};

use crate::api::{self, ApiError};

/// A request for what is at a path, in protobuf if objects of `kind` can be read in it.
pub(super) fn get(path: &str, kind: Option<&'static Kind>) -> Result<Request<Body>, ApiError> {
    let mut request = Request::get(path);
    if kind.is_some() {
        request = request.header(ACCEPT, format!("{MEDIA_TYPE},{}", api::JSON));
    }
    request.body(Body::empty()).map_err(|error| api::invalid_path(path, &error))
}

/// The kind that was asked for, if the answer is protobuf.
fn answered(response: &Response<Body>, kind: Option<&'static Kind>) -> Option<&'static Kind> {
    let content_type = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    kind.filter(|_| content_type.trim_start().starts_with(MEDIA_TYPE))
}

fn unreadable(what: &str, error: impl std::fmt::Display) -> ApiError {
    ApiError::Format(format!("{what} cannot be read: {error}"))
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
                text.map_err(unreadable_list)
            }
            Self::Protobuf(kind, cutter) => cutter
                .feed(bytes, |item| take(Encoded::Protobuf(kind, item)))
                .map_err(unreadable_list),
        }
    }

    /// What the page says about itself, once all bytes have been fed.
    pub(super) fn finish(self) -> Result<Page, ApiError> {
        match self {
            Self::Json(cutter) => {
                let rest = cutter.rest();
                let list: JsonPage<'_> = serde_json::from_slice(&rest).map_err(unreadable_list)?;
                let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                let JsonPageMeta { resource_version, r#continue } = list.metadata;
                Ok(Page { version: text(resource_version), next: text(r#continue) })
            }
            Self::Protobuf(_, cutter) => {
                // Another attempt in protobuf may succeed, so this is not an error of the format.
                let metadata = cutter.finish().map_err(|error| {
                    ApiError::Unavailable(format!("a list cannot be read: {error}"))
                })?;
                Ok(Page { version: metadata.resource_version, next: metadata.r#continue })
            }
        }
    }
}

fn unreadable_list(error: impl std::fmt::Display) -> ApiError {
    unreadable("a list", error)
}

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
        true => Err(unreadable_event("it is too large to be one")),
        false => Ok(()),
    }
}

fn unreadable_event(error: impl std::fmt::Display) -> ApiError {
    unreadable("a watch event", error)
}

impl From<zonewise_common::protobuf::reader::Error> for ApiError {
    fn from(error: zonewise_common::protobuf::reader::Error) -> Self {
        unreadable_event(error)
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
    let event: JsonEvent<'_> = serde_json::from_slice(line).map_err(unreadable_event)?;
    Ok(Some(Event { event_type: event.r#type, object: Encoded::Json(event.object.get()) }))
}

fn protobuf_event<'a>(kind: &'static Kind, frame: &'a [u8]) -> Result<Event<'a>, ApiError> {
    let WatchEvent { event_type, envelope } = WatchEvent::read(frame)?;
    let expected = if event_type == "ERROR" { &STATUS } else { kind };
    if envelope.kind != expected.name {
        let error = format!("a {} was asked for and a {} came", expected.name, envelope.kind);
        return Err(unreadable_event(error));
    }
    Ok(Event { event_type, object: Encoded::Protobuf(expected, envelope.object) })
}
