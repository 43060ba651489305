//! All objects of one kind: listed once, then watched. client-go calls this a reflector.
//!
//! ```text
//!   list (in pages) ──► apply each object, delete those that are no longer listed
//!        ▲                 │
//!        │ 410 Gone        ▼
//!        └──────────── watch from the list's version ──► apply, delete    ◄── again after the server's timeout
//! ```
//!
//! This is our own loop, not a client library's, for three reasons. Objects are decoded from the
//! bytes of the connection straight into small structs, so neither a whole object nor a whole page
//! is ever held in memory. An object that cannot be decoded does not stop the watch, and its
//! deletion is still noticed, because a deletion needs nothing but the name. A connection that
//! stays silent is closed and opened again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use zonewise_common::json_list::Cutter;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name};

use crate::api::{self, ApiError};

/// The objects that a watch is about.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The name of the resource in logs and metrics.
    pub name: &'static str,
    /// The path that lists the objects of all namespaces.
    pub path: &'static str,
    /// Label and field selectors as [`query_parameter`]s; empty for all objects.
    pub selector: Cow<'static, str>,
}

impl Resource {
    /// All objects of a resource, without a selector.
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

/// Receives what a list and the watch after it report. All methods are called from one task, in
/// the order in which things happened.
pub trait WatchListener: Send {
    /// The struct that objects are decoded into.
    type Object: Keyed + Send;

    /// Decodes an object.
    fn read(&self, json: &str) -> Result<Self::Object, serde_json::Error>;

    /// An object is new or has changed.
    fn apply(&mut self, object: Self::Object);

    /// Whether this version of an object is known already; then it is not decoded again.
    fn knows(&self, key: &Key, version: u64) -> bool {
        let _ = (key, version);
        false
    }

    /// An object cannot be decoded. What was known of it before stays as it is.
    fn unreadable(&mut self, key: &Key, error: &str);

    /// An object was deleted.
    fn delete(&mut self, version: u64, key: &Key);

    /// A list is complete as of `version`. Objects that it does not contain no longer exist.
    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>);

    /// Every change up to this version has been reported.
    fn seen(&mut self, version: u64) {
        let _ = version;
    }

    /// The API server has older data than it had: its store was restored from a backup. Versions that were seen
    /// before say nothing any more, and the same versions come again with other content. Whoever compares versions
    /// has to start anew.
    fn rewound(&mut self) {}

    /// The list or watch works, or has failed.
    fn health(&mut self, health: Result<(), &ApiError>);
}

/// Why a process ends whose listeners were told that the data is older than before.
pub const REWOUND: &str = "the API server has older data than before: its store was restored from a backup; this \
    process ends and must be restarted, so that it keeps nothing that is no longer true";

/// A watch that ends by itself before this was closed too early. It is opened again at most once in this time.
const SHORT: Duration = Duration::from_secs(1);

/// What is done next about a resource.
enum Step {
    List,
    /// Open a watch from this version.
    Watch(String),
    /// The same after it broke off: first see whether the server still has this version.
    Resume(String),
}

/// Lists and watches a resource until the future is dropped.
pub async fn follow<L: WatchListener>(client: Client, resource: Resource, mut listener: L) {
    let mut backoff = Backoff::default();
    let mut step = Step::List;
    // The newest version that was seen. A list is read from a quorum of the store, so it is never older, whichever API
    // server answers.
    let mut newest = 0;
    loop {
        let began = Instant::now();
        let result = match &step {
            Step::List => list(&client, &resource, &mut listener).await,
            Step::Watch(from) => watch(&client, &resource, from.clone(), &mut listener).await,
            Step::Resume(from) => check_version(&client, &resource, from).await,
        };
        step = match result {
            Ok(next) => {
                listener.health(Ok(()));
                match step {
                    Step::List if version_number(&next) < newest => listener.rewound(),
                    Step::Watch(from) if began.elapsed() < SHORT => {
                        // A load balancer in between, or a server that stops, closes watches at once. The delay
                        // grows only while they bring nothing.
                        let new = from != next;
                        let delay = if new { jittered(SHORT) } else { backoff.next().max(SHORT) };
                        sleep(delay.saturating_sub(began.elapsed())).await;
                    }
                    Step::List | Step::Watch(_) => backoff.reset(),
                    Step::Resume(_) => {}
                }
                newest = version_number(&next);
                Step::Watch(next)
            }
            Err(Interrupted { error, version }) => {
                listener.health(Err(&error));
                tracing::warn!(resource = resource.name, %error, "the watch was interrupted and is started again");
                newest = newest.max(version.as_deref().map_or(0, version_number));
                sleep(backoff.next()).await;
                let version = version.filter(|_| !matches!(error, ApiError::Gone(_)));
                version.map_or(Step::List, Step::Resume)
            }
        };
    }
}

/// Checks that the API server still has the version that a watch has reached. If its store was restored from a backup,
/// a watch from there would be opened, and stay silent until that version is reached again.
async fn check_version(
    client: &Client,
    resource: &Resource,
    version: &str,
) -> Result<String, Interrupted> {
    let path = format!("{}?limit=1{}", resource.path, resource.selector);
    let failed = |error| Interrupted { error, version: Some(version.into()) };
    let page = items(client, &path, |_| {}).await.map_err(failed)?;
    let page: Page<'_> = serde_json::from_slice(&page).map_err(unreadable_list).map_err(failed)?;
    let current = version_number(page.metadata.resource_version.unwrap_or_default());
    if current < version_number(version) {
        return Err(failed(older(version, current)));
    }
    Ok(version.into())
}

fn older(reached: &str, current: u64) -> ApiError {
    ApiError::Gone(format!("the watch has reached {reached} and the server is at {current}"))
}

/// Why a list or watch ended early.
struct Interrupted {
    error: ApiError,
    /// The version to watch from next; `None` to list again.
    version: Option<String>,
}

impl From<ApiError> for Interrupted {
    fn from(error: ApiError) -> Self {
        Self { error, version: None }
    }
}

/// How long to wait before a failed list or watch is tried again: 0.5 s, doubling up to 30 s, with
/// jitter so that many processes do not come back at the same moment.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(500);
    const LAST: Duration = Duration::from_secs(30);

    /// The delay after one more failure.
    #[expect(
        clippy::should_implement_trait,
        reason = "the sequence has no end, so an iterator's Option would never be None"
    )]
    pub fn next(&mut self) -> Duration {
        let delay = Self::FIRST.saturating_mul(1 << self.failures.min(16)).min(Self::LAST);
        self.failures += 1;
        jittered(delay)
    }

    /// Starts again with the shortest delay, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A delay changed at random by up to a quarter, so that processes that started together drift apart.
pub fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// A random part of a delay, for requests that many processes would otherwise send at the same moment.
pub fn random_part(delay: Duration) -> Duration {
    delay.mul_f64(fastrand::f64())
}

/// Objects in one page of a list. It bounds the server's memory; ours holds one object at a time.
const PAGE_SIZE: usize = 1000;

async fn list<L: WatchListener>(
    client: &Client,
    resource: &Resource,
    listener: &mut L,
) -> Result<String, Interrupted> {
    let mut keys = BTreeSet::new();
    let version = list_each(client, resource.path, &resource.selector, &mut |json| {
        if let Some(key) = apply(listener, json) {
            keys.insert(key);
        }
    })
    .await?;
    listener.listed(version_number(&version), &keys);
    Ok(version)
}

/// Lists the objects at a path, page by page, and calls `take` with the JSON of each. Returns the
/// version of the list. `selector` consists of [`query_parameter`]s.
///
/// # Errors
/// If the server does not answer, or not with lists.
pub async fn list_each(
    client: &Client,
    path: &str,
    selector: &str,
    take: &mut (dyn FnMut(&str) + Send),
) -> Result<String, ApiError> {
    let mut next = String::new();
    loop {
        let page =
            format!("{path}?limit={PAGE_SIZE}{}{selector}", query_parameter("continue", &next));
        let rest = items(client, &page, &mut *take).await?;
        let page: Page<'_> = serde_json::from_slice(&rest).map_err(unreadable_list)?;
        next = page.metadata.r#continue.unwrap_or_default().into();
        if next.is_empty() {
            return Ok(page.metadata.resource_version.unwrap_or_default().into());
        }
    }
}

/// Calls `take` with each item of a page as soon as it has arrived. Returns the page without them.
async fn items(
    client: &Client,
    path: &str,
    mut take: impl FnMut(&str),
) -> Result<Vec<u8>, ApiError> {
    let mut body = api::send(client, get(path)?).await?.into_body();
    let mut cutter = Cutter::default();
    let stopped = |_| ApiError::Unavailable("the list stopped before its end".into());
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
    Request::get(path).body(Body::empty()).map_err(|error| api::invalid_path(path, &error))
}

/// The characters of a query parameter that are percent-encoded: all but RFC 3986's unreserved
/// ones. (`~` is encoded too, which is allowed.)
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A query parameter as `&name=value`, with the value percent-encoded; empty for an empty value.
pub fn query_parameter(name: &str, value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    format!("&{name}={}", utf8_percent_encode(value, ENCODED))
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

/// The metadata that identifies an object, decoded even where the rest of the object cannot be.
#[derive(Deserialize)]
struct Identified {
    metadata: IdentifyingMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentifyingMeta {
    namespace: Option<Name>,
    #[serde(default, deserialize_with = "lenient")]
    name: Name,
    #[serde(default, deserialize_with = "lenient")]
    resource_version: Box<str>,
}

fn key_and_version(json: &str) -> Option<(Key, u64)> {
    let Identified { metadata } = serde_json::from_str(json).ok()?;
    let version = version_number(&metadata.resource_version);
    Some(((metadata.namespace.unwrap_or_default(), metadata.name), version))
}

/// A resource version as a number, for comparison. The API guarantees since Kubernetes 1.35 that
/// resource versions are growing numbers (KEP-5504); with etcd 3 they have always been.
pub fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Decodes an object and hands it to the listener. Returns its key, if that can be read.
fn apply<L: WatchListener>(listener: &mut L, json: &str) -> Option<Key> {
    match listener.read(json) {
        Ok(object) => {
            let key = object.key();
            listener.apply(object);
            Some(key)
        }
        Err(error) => {
            let (key, _) = key_and_version(json)?;
            listener.unreadable(&key, &error.to_string());
            Some(key)
        }
    }
}

/// How long the server keeps a watch open, plus up to a minute of jitter. Opening watches anew
/// spreads clients over API servers again after one of them restarted. client-go's reflector uses
/// 5 to 10 minutes.
const WATCH_SECONDS: u64 = 300;
/// A watch without any data for this long is given up. API servers send a bookmark every minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// The most bytes that one watch event may have. No object of Kubernetes comes near it: etcd accepts
/// 1.5 MiB by default.
const MAX_EVENT_BYTES: usize = 64 << 20;

async fn watch<L: WatchListener>(
    client: &Client,
    resource: &Resource,
    mut version: String,
    listener: &mut L,
) -> Result<String, Interrupted> {
    let seconds = WATCH_SECONDS + fastrand::u64(..60);
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}{}",
        resource.path, resource.selector
    );
    let request = get(&path)?;
    let interrupted = |error, version: &str| Interrupted { error, version: Some(version.into()) };
    let response = api::send(client, request).await;
    let mut body = response.map_err(|error| interrupted(error, &version))?.into_body();
    listener.health(Ok(()));
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let frame = timeout(IDLE_TIMEOUT, body.frame()).await;
        let unavailable = |text: String| interrupted(ApiError::Unavailable(text), &version);
        let silent = |_| {
            let seconds = IDLE_TIMEOUT.as_secs();
            unavailable(format!("nothing was received on the watch for {seconds} s"))
        };
        let Some(frame) = frame.map_err(silent)? else { return Ok(version) };
        let frame = frame.map_err(|error| unavailable(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        let mut start = 0;
        while let Some(end) = buffer[start..].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[start..start + end];
            event(line, listener, &mut version).map_err(|error| interrupted(error, &version))?;
            start += end + 1;
        }
        buffer.drain(..start);
        if buffer.len() > MAX_EVENT_BYTES {
            let error = ApiError::Unavailable("a watch event is too large to be one".into());
            return Err(interrupted(error, &version));
        }
    }
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct ErrorObject {
    #[serde(default, deserialize_with = "lenient")]
    code: u16,
}

/// Handles one line of a watch. `version` becomes the version to watch from next.
fn event<L: WatchListener>(
    line: &[u8],
    listener: &mut L,
    version: &mut String,
) -> Result<(), ApiError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let unreadable =
        |error| ApiError::Unavailable(format!("a watch event cannot be read: {error}"));
    let event: WatchEvent<'_> = serde_json::from_slice(line).map_err(unreadable)?;
    let object = event.object.get();
    if event.r#type == "ERROR" {
        let code = serde_json::from_str::<ErrorObject>(object).map_or(500, |error| error.code);
        let code =
            http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        return Err(api::error(code, object.as_bytes()));
    }
    let Some((key, at)) = key_and_version(object) else {
        return Err(ApiError::Unavailable("a watch event has no metadata".into()));
    };
    // Versions of a watch grow. A server whose store was restored from a backup sends older ones, and one that is
    // behind the others may; a list tells which of both it is.
    if (1..version_number(version)).contains(&at) {
        return Err(older(version, at));
    }
    match event.r#type {
        "ADDED" | "MODIFIED" if listener.knows(&key, at) => {}
        "ADDED" | "MODIFIED" => {
            apply(listener, object);
        }
        "DELETED" => listener.delete(at, &key),
        // BOOKMARK carries nothing but a version.
        _ => {}
    }
    if at > 0 {
        *version = at.to_string();
        listener.seen(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// An object with a field that can be wrong.
    #[derive(Deserialize)]
    struct Ported {
        metadata: IdentifyingMeta,
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

    /// Records the calls that it gets.
    #[derive(Default)]
    struct RecordingListener(Vec<String>);

    impl WatchListener for RecordingListener {
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

    /// The calls that these lines of a watch lead to, the version to go on from, and the error.
    fn calls(lines: &[&str]) -> (Vec<String>, String, Option<ApiError>) {
        let (mut listener, mut version) = (RecordingListener::default(), "1".to_owned());
        let result =
            lines.iter().try_for_each(|line| event(line.as_bytes(), &mut listener, &mut version));
        (listener.0, version, result.err())
    }

    /// An object that cannot be decoded does not end the watch, and its deletion is noticed.
    #[test]
    fn an_object_that_does_not_parse_is_named_and_can_still_be_deleted() {
        let (calls, version, error) = calls(&[
            r#"{"type":"ADDED","object":{"metadata":{"name":"good","namespace":"n","resourceVersion":"5"}}}"#,
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"6"},"spec":{"ports":"none"}}}"#,
            r#"{"type":"DELETED","object":{"metadata":{"name":"bad","namespace":"n","resourceVersion":"7"},"spec":{"ports":"none"}}}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
            "",
        ]);
        assert_eq!(calls, ["apply good", "unreadable bad", "delete bad at 7"]);
        assert_eq!((version.as_str(), error.is_none()), ("9", true));
    }

    #[test]
    fn a_version_that_is_too_old_means_to_list_again() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(calls(&[line]).2, Some(ApiError::Gone(_))));
        let line = r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
        assert!(matches!(calls(&[line]).2, Some(ApiError::Failed(_))));
    }

    /// A server whose lists are empty and whose watches end at once; each brings an event, or none.
    async fn requests_in_a_minute(with_events: bool) -> usize {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let answer = move |request: Request<Body>| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 10;
            let watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let body = match (watch, with_events) {
                (false, _) => r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned(),
                (true, false) => String::new(),
                (true, true) => format!(
                    r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{number}"}}}}}}{}"#,
                    '\n'
                ),
            };
            async {
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                    body.into_bytes(),
                )))
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let minute = Duration::from_secs(60);
        let _ = timeout(minute, follow(client, PODS, RecordingListener::default())).await;
        requests.load(Ordering::SeqCst)
    }

    /// A load balancer that closes streams early costs at most one request per second, fewer if nothing happens.
    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_are_not_opened_in_a_tight_loop() {
        let (idle, busy) = (requests_in_a_minute(false).await, requests_in_a_minute(true).await);
        assert!((4..=12).contains(&idle), "{idle} requests without an event");
        assert!((40..=82).contains(&busy), "{busy} requests with an event each");
    }

    #[test]
    fn half_an_event_or_no_event_ends_the_watch_not_the_program() {
        for line in ["{", "{}", r#"{"type":"ADDED","object":{}}"#, "\u{0}"] {
            assert!(matches!(calls(&[line]).2, Some(ApiError::Unavailable(_))), "{line}");
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
        assert_eq!(query_parameter("continue", ""), "");
        assert_eq!(query_parameter("continue", "a&limit=1#ä"), "&continue=a%26limit%3D1%23%C3%A4");
    }
}
