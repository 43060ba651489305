//! One kind of object, listed and then watched for ever.
//!
//! ```text
//!   list (pages) ──► apply each, drop what is gone
//!        ▲              │
//!        │ 410          ▼
//!        └────────── watch from there ──► apply / delete    ◄── again after the server's timeout
//! ```
//!
//! Our own loop instead of a client library's: objects are decoded straight from the bytes into
//! small structs and never exist in full, and neither does a page of them; an object that cannot be read stops nobody, and its
//! deletion still counts, because a deletion needs a name only; a silent connection is given up.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use zonewise_common::json_list::Cutter;
use zonewise_common::name::{Key, Keyed, Name};

use crate::api::{self, ApiError};

/// A kind of object.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its name in logs and metrics.
    pub name: &'static str,
    /// Where it is listed, in all namespaces.
    pub path: &'static str,
    /// Selectors for the request, see [`parameter`]; may be empty.
    pub selector: Cow<'static, str>,
}

impl Resource {
    /// All of a kind.
    pub const fn all(name: &'static str, path: &'static str) -> Self {
        Self { name, path, selector: Cow::Borrowed("") }
    }
}

/// Pods.
pub const PODS: Resource = Resource::all("pods", "/api/v1/pods");
/// Services.
pub const SERVICES: Resource = Resource::all("services", "/api/v1/services");
/// Nodes.
pub const NODES: Resource = Resource::all("nodes", "/api/v1/nodes");
/// EndpointSlices.
pub const SLICES: Resource =
    Resource::all("endpointslices", "/apis/discovery.k8s.io/v1/endpointslices");

/// Takes what a watch finds. Called from one task, in order.
pub trait Sink: Send {
    /// What objects become at the door.
    type Object: Keyed + Send;

    /// Reads an object.
    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error>;

    /// An object is new or has changed.
    fn apply(&mut self, object: Self::Object);

    /// Whether this version of an object is known already, so that it need not be read.
    fn knows(&self, key: &Key, version: u64) -> bool {
        let _ = (key, version);
        false
    }

    /// An object cannot be read; what was known of it stays.
    fn unreadable(&mut self, key: &Key, error: &str);

    /// An object is gone.
    fn delete(&mut self, version: u64, key: &Key);

    /// A list is complete as of `version`: what it does not hold is gone.
    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>);

    /// Everything up to this version has been told.
    fn seen(&mut self, version: u64) {
        let _ = version;
    }

    /// The watch works (again), or does not.
    fn health(&mut self, health: Result<(), &ApiError>);
}

/// Follows one kind of object until dropped.
pub async fn follow<S: Sink>(client: Client, resource: Resource, mut sink: S) {
    let mut backoff = Backoff::default();
    let mut version: Option<String> = None;
    loop {
        let result = match version.take() {
            None => list(&client, &resource, &mut sink).await,
            Some(from) => watch(&client, &resource, from, &mut sink).await,
        };
        match result {
            Ok(next) => {
                sink.health(Ok(()));
                backoff.reset();
                version = Some(next);
            }
            Err(Broken { error, version: kept }) => {
                sink.health(Err(&error));
                tracing::warn!(resource = resource.name, %error, "watch interrupted");
                version = kept.filter(|_| !matches!(error, ApiError::Gone(_)));
                sleep(backoff.next()).await;
            }
        }
    }
}

/// A list or watch that ended early, and where to go on (nowhere: from the list).
struct Broken {
    error: ApiError,
    version: Option<String>,
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        Self { error, version: None }
    }
}

/// Half a second, doubling to half a minute, never twice the same.
#[derive(Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(500);
    const LAST: Duration = Duration::from_secs(30);

    /// How long to wait now.
    #[expect(clippy::should_implement_trait, reason = "an endless sequence is no iterator here")]
    pub fn next(&mut self) -> Duration {
        let delay = Self::FIRST.saturating_mul(1 << self.tries.min(16)).min(Self::LAST);
        self.tries += 1;
        delay.mul_f64(0.75 + jitter() / 2.0)
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// A number from 0 to 1 that is not the same in two processes.
pub fn jitter() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.subsec_nanos());
    f64::from(nanos.wrapping_mul(2_654_435_761) >> 8) / f64::from(u32::MAX >> 8)
}

/// What a server reads for one answer; of ours it takes no memory.
const PAGE: usize = 1000;

async fn list<S: Sink>(
    client: &Client,
    resource: &Resource,
    sink: &mut S,
) -> Result<String, Broken> {
    let mut keys = BTreeSet::new();
    let version = each(client, resource.path, &resource.selector, &mut |json| {
        if let Some(key) = take(sink, json) {
            keys.insert(key);
        }
    })
    .await?;
    sink.listed(number(&version), &keys);
    Ok(version)
}

/// Lists what is at a path, page by page, and hands over each object as JSON. Returns the version
/// of the list. Selectors are [`parameter`]s.
///
/// # Errors
/// If the server does not answer with lists.
pub async fn each(
    client: &Client,
    path: &str,
    selector: &str,
    take: &mut (dyn FnMut(&str) + Send),
) -> Result<String, ApiError> {
    let mut next = String::new();
    loop {
        let page = format!("{path}?limit={PAGE}{}{selector}", parameter("continue", &next));
        let rest = items(client, &page, &mut *take).await?;
        let page: Page<'_> = serde_json::from_slice(&rest).map_err(unreadable_list)?;
        next = page.metadata.r#continue.unwrap_or_default().into();
        if next.is_empty() {
            return Ok(page.metadata.resource_version.unwrap_or_default().into());
        }
    }
}

/// Hands each item of a page to `take` as soon as it has arrived; returns the page without them.
async fn items(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&str),
) -> Result<Vec<u8>, ApiError> {
    let mut body = api::open(client, get(path)?).await?.into_body();
    let mut cutter = Cutter::default();
    let stopped = |_| ApiError::Unavailable("the list stopped half-way".into());
    while let Some(frame) = timeout(api::READ_TIMEOUT, body.frame()).await.map_err(stopped)? {
        let frame = frame.map_err(|error| ApiError::Unavailable(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let mut text = Ok(());
        cutter.feed(&data, |item| match std::str::from_utf8(item) {
            Ok(item) => take(item),
            Err(error) => text = Err(error),
        });
        text.map_err(unreadable_list)?;
    }
    Ok(cutter.rest())
}

fn unreadable_list(error: impl std::fmt::Display) -> ApiError {
    ApiError::Unavailable(format!("a list cannot be read: {error}"))
}

fn get(path: &str) -> Result<Request<Body>, ApiError> {
    Request::get(path)
        .body(Body::empty())
        .map_err(|error| ApiError::Refused(format!("`{path}` is no path: {error}")))
}

/// A parameter of a request, as `&name=value`; nothing for an empty value.
pub fn parameter(name: &str, value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    let encoded: String = value
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                (byte as char).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    format!("&{name}={encoded}")
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    metadata: PageMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta<'a> {
    resource_version: Option<&'a str>,
    r#continue: Option<&'a str>,
}

/// What every object can be known by, whatever else is wrong with it.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    #[serde(default)]
    namespace: Option<Name>,
    #[serde(default)]
    name: Name,
    #[serde(default)]
    resource_version: Box<str>,
}

fn head(json: &str) -> Option<(Key, u64)> {
    let head: Head = serde_json::from_str(json).ok()?;
    let meta = head.metadata;
    Some(((meta.namespace.unwrap_or_default(), meta.name), number(&meta.resource_version)))
}

/// Versions are numbers that grow (guaranteed since Kubernetes 1.35, true since the first etcd 3).
pub fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Hands an object over; returns its key if it has one.
fn take<S: Sink>(sink: &mut S, json: &str) -> Option<Key> {
    match sink.read(json) {
        Ok(object) => {
            let key = object.key();
            sink.apply(object);
            Some(key)
        }
        Err(error) => {
            let (key, _) = head(json)?;
            sink.unreadable(&key, &error.to_string());
            Some(key)
        }
    }
}

/// Asked of the server; it ends the watch then, and load spreads over servers again.
const WATCH_SECONDS: u64 = 300;
/// Bookmarks come every minute: a connection silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(150);
/// No object comes near this; a server that sends it is not one.
const LONGEST_LINE: usize = 64 << 20;

async fn watch<S: Sink>(
    client: &Client,
    resource: &Resource,
    mut version: String,
    sink: &mut S,
) -> Result<String, Broken> {
    let seconds = WATCH_SECONDS + (jitter() * 60.0) as u64;
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}{}",
        resource.path, resource.selector
    );
    let request = get(&path)?;
    let broken = |error, version: &str| Broken { error, version: Some(version.into()) };
    let mut body =
        api::open(client, request).await.map_err(|error| broken(error, &version))?.into_body();
    sink.health(Ok(()));
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let frame = timeout(SILENCE, body.frame()).await;
        let silent = |_| broken(ApiError::Unavailable("the watch fell silent".into()), &version);
        let Some(frame) = frame.map_err(silent)? else { return Ok(version) };
        let frame =
            frame.map_err(|error| broken(ApiError::Unavailable(error.to_string()), &version))?;
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        let mut start = 0;
        while let Some(end) = buffer[start..].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[start..start + end];
            event(line, sink, &mut version).map_err(|error| broken(error, &version))?;
            start += end + 1;
        }
        buffer.drain(..start);
        if buffer.len() > LONGEST_LINE {
            return Err(broken(ApiError::Unavailable("a watch event never ends".into()), &version));
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct ErrorObject {
    #[serde(default)]
    code: u16,
}

fn event<S: Sink>(line: &[u8], sink: &mut S, version: &mut String) -> Result<(), ApiError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let unreadable =
        |error| ApiError::Unavailable(format!("a watch event cannot be read: {error}"));
    let event: Event<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    let object = event.object.get();
    if event.r#type == "ERROR" {
        let code = serde_json::from_str::<ErrorObject>(object).map_or(500, |error| error.code);
        let code =
            http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        return Err(api::error(code, object.as_bytes()));
    }
    let Some((key, at)) = head(object) else {
        return Err(ApiError::Unavailable("a watch event has no metadata".into()));
    };
    match event.r#type {
        "ADDED" | "MODIFIED" if sink.knows(&key, at) => {}
        "ADDED" | "MODIFIED" => {
            take(sink, object);
        }
        "DELETED" => sink.delete(at, &key),
        _ => {}
    }
    if at > 0 {
        *version = at.to_string();
        sink.seen(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object with a field that can be wrong.
    #[derive(Deserialize)]
    struct Ported {
        metadata: HeadMeta,
        #[serde(rename = "spec")]
        _spec: Option<Ports>,
    }

    #[derive(Deserialize)]
    struct Ports {
        #[serde(rename = "ports")]
        _ports: Vec<u16>,
    }

    impl Keyed for Ported {
        fn key(&self) -> Key {
            let namespace = self.metadata.namespace.clone();
            (namespace.unwrap_or_default(), Name::clone(&self.metadata.name))
        }
    }

    /// Writes down what it is told.
    #[derive(Default)]
    struct Diary(Vec<String>);

    impl Sink for Diary {
        type Object = Ported;

        fn read(&self, json: &str) -> Result<Ported, serde_json::Error> {
            serde_json::from_str(json)
        }

        fn apply(&mut self, object: Ported) {
            self.0.push(format!("apply {}", object.metadata.name));
        }

        fn unreadable(&mut self, key: &Key, error: &str) {
            assert!(!error.is_empty());
            self.0.push(format!("unreadable {}", key.1));
        }

        fn delete(&mut self, version: u64, key: &Key) {
            self.0.push(format!("delete {} at {version}", key.1));
        }

        fn listed(&mut self, _: u64, _: &BTreeSet<Key>) {}

        fn health(&mut self, _: Result<(), &ApiError>) {}
    }

    fn told(lines: &[&str]) -> (Vec<String>, String, Option<ApiError>) {
        let (mut diary, mut version) = (Diary::default(), "1".to_owned());
        let result =
            lines.iter().try_for_each(|line| event(line.as_bytes(), &mut diary, &mut version));
        (diary.0, version, result.err())
    }

    /// An object that cannot be read stops nobody, and its deletion still counts.
    #[test]
    fn an_object_that_does_not_parse_is_named_and_can_still_be_deleted() {
        let (diary, version, error) = told(&[
            r#"{"type":"ADDED","object":{"metadata":{"name":"good","namespace":"n","resourceVersion":"5"}}}"#,
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"6"},"spec":{"ports":"none"}}}"#,
            r#"{"type":"DELETED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"7"},"spec":{"ports":"none"}}}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
            "",
        ]);
        assert_eq!(diary, ["apply good", "unreadable bad", "delete bad at 7"]);
        assert_eq!((version.as_str(), error.is_none()), ("9", true));
    }

    #[test]
    fn a_version_that_is_too_old_means_to_list_again() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(told(&[line]).2, Some(ApiError::Gone(_))));
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
        assert!(matches!(told(&[line]).2, Some(ApiError::Unavailable(_))));
    }

    #[test]
    fn half_an_event_or_no_event_ends_the_watch_not_the_program() {
        for line in ["{", "{}", r#"{"type":"ADDED","object":{}}"#, "\u{0}"] {
            assert!(matches!(told(&[line]).2, Some(ApiError::Unavailable(_))), "{line}");
        }
    }

    #[test]
    fn waiting_grows_to_half_a_minute() {
        let mut backoff = Backoff::default();
        let waits: Vec<f64> = (0..10).map(|_| backoff.next().as_secs_f64()).collect();
        for (wait, full) in
            waits.iter().zip([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0])
        {
            assert!((0.75 * full..=1.25 * full).contains(wait), "{wait} of {full}");
        }
        backoff.reset();
        assert!(backoff.next().as_secs_f64() < 0.7);
    }

    #[test]
    fn tokens_of_the_server_cannot_change_the_request() {
        assert_eq!(parameter("continue", ""), "");
        assert_eq!(parameter("continue", "a&limit=1#ä"), "&continue=a%26limit%3D1%23%C3%A4");
    }
}
