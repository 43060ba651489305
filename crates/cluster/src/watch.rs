//! All objects of one kind: listed once, then watched. client-go calls this a reflector.
//!
//! ```text
//!   list (in pages) ──► apply each object, delete those that are no longer listed
//!        ▲                 │
//!        │ 410 Gone        ▼
//!        └──────────── watch from the list's version ──► apply, delete    ◄── again after the server's timeout
//! ```
//!
//! Both are asked for in protobuf, and read as JSON if the server or a proxy in between answers so (`format`).
//!
//! This is our own loop, not a client library's, for three reasons. Objects are decoded from the
//! bytes of the connection straight into small structs, so neither a whole object nor a whole page
//! is ever held in memory. An object that cannot be decoded does not stop the watch, and its
//! deletion is still noticed, because a deletion needs nothing but the name. A connection that
//! stays silent is closed and opened again.

mod format;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_common::protobuf::decode::Kind;
use zonewise_common::protobuf::{MEDIA_TYPE, kinds};

use self::format::{Event, EventReader, Page, PageReader};
use crate::api::{self, ApiError};

/// The objects that a watch is about.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The name of the resource in logs and metrics.
    pub name: &'static str,
    /// The path that lists the objects of all namespaces.
    pub path: &'static str,
    /// Only the objects of this namespace.
    pub namespace: Option<Name>,
    /// Label and field selectors as [`query_parameter`]s; empty for all objects.
    pub selector: Cow<'static, str>,
    /// The table that its objects are read with in protobuf; `None` to ask for JSON.
    pub kind: Option<&'static Kind>,
}

impl Resource {
    /// All objects of a resource, without a selector.
    pub const fn all(name: &'static str, path: &'static str, kind: &'static Kind) -> Self {
        Self { name, path, namespace: None, selector: Cow::Borrowed(""), kind: Some(kind) }
    }

    /// The same resource in one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// The path that lists its objects.
    fn list_path(&self) -> Cow<'static, str> {
        match &self.namespace {
            Some(namespace) => Cow::Owned(namespaced(namespace, self.path)),
            None => Cow::Borrowed(self.path),
        }
    }

    /// The same resource, asked for in this form.
    #[must_use]
    pub fn encoded_as(self, content_type: ContentType) -> Self {
        let kind = self.kind.filter(|_| content_type == ContentType::Protobuf);
        Self { kind, ..self }
    }
}

/// The path of a resource in one namespace: `/api/v1/pods` becomes `/api/v1/namespaces/NAME/pods`.
pub fn namespaced(namespace: &str, path: &str) -> String {
    let (group, kind) = path.rsplit_once('/').unwrap_or(("", path));
    format!("{group}/namespaces/{namespace}/{kind}")
}

/// The form in which lists and watches are asked for. The server may answer in JSON always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ContentType {
    /// `application/json`.
    #[serde(rename = "application/json")]
    Json,
    /// `application/vnd.kubernetes.protobuf`, which costs the server and us less.
    #[default]
    #[serde(rename = "application/vnd.kubernetes.protobuf")]
    Protobuf,
}

impl ContentType {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => api::JSON,
            Self::Protobuf => MEDIA_TYPE,
        }
    }
}

impl FromStr for ContentType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Json, Self::Protobuf];
        let known = all.into_iter().find(|one| one.media_type() == text);
        known.ok_or_else(|| format!("use {} or {}", api::JSON, MEDIA_TYPE))
    }
}

/// Pods.
pub const PODS: Resource = Resource::all("pods", "/api/v1/pods", &kinds::POD);
/// Services.
pub const SERVICES: Resource = Resource::all("services", "/api/v1/services", &kinds::SERVICE);
/// Nodes.
pub const NODES: Resource = Resource::all("nodes", "/api/v1/nodes", &kinds::NODE);
/// EndpointSlices.
pub const SLICES: Resource = Resource::all(
    "endpointslices",
    "/apis/discovery.k8s.io/v1/endpointslices",
    &kinds::ENDPOINT_SLICE,
);
/// ServiceCIDRs.
pub const SERVICE_CIDRS: Resource =
    Resource::all("servicecidrs", "/apis/networking.k8s.io/v1/servicecidrs", &kinds::SERVICE_CIDR);

/// Receives what a list and the watch after it report. All methods are called from one task, in
/// the order in which things happened.
pub trait WatchListener: Send {
    /// The struct that objects are decoded into.
    type Object: Keyed + Send;

    /// Decodes an object.
    fn read(&self, object: Encoded<'_>) -> Result<Self::Object, DecodeError>;

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
    /// before say nothing any more, and the same versions come again with other content. A listener that compares versions
    /// has to start anew.
    fn rewound(&mut self) {}

    /// The list or watch works, or has failed.
    fn health(&mut self, health: Result<(), &ApiError>);
}

/// Why a process ends after [`WatchListener::rewound`]: the data is older than before.
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

impl Step {
    /// The same once more, from the version that a watch has reached.
    fn repeated(self, reached: Option<String>) -> Self {
        match (self, reached) {
            (Self::Watch(_), Some(reached)) => Self::Watch(reached),
            (step, _) => step,
        }
    }
}

/// Whether an answer shows that the server, or something in between, does not speak protobuf. The resource is then read
/// as JSON.
fn fall_back(resource: &mut Resource, error: &ApiError) -> bool {
    let ApiError::Format(error) = error else { return false };
    let protobuf = resource.kind.take().is_some();
    if protobuf {
        tracing::warn!(
            resource = resource.name,
            error,
            "the API server's answer in protobuf cannot be used; this resource is read as JSON from now on"
        );
    }
    protobuf
}

/// Lists and watches a resource until the future is dropped.
pub async fn follow<L: WatchListener>(client: Client, mut resource: Resource, mut listener: L) {
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
            Err(Interrupted { error, version }) if fall_back(&mut resource, &error) => {
                step.repeated(version)
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
    let path = format!("{}?limit=1{}", resource.list_path(), resource.selector);
    let failed = |error| Interrupted { error, version: Some(version.into()) };
    let page = read_page(client, &path, resource.kind, &mut |_| {}).await.map_err(failed)?;
    let current = version_number(&page.version);
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

/// Objects in one page of a list. It bounds the memory of servers that encode a page as a whole, as those before
/// Kubernetes 1.33 do; ours holds one object at a time. Smaller pages cost the server more: with 1,000 objects in each,
/// half as much again (docs/benchmarks.md). A streaming list (`sendInitialEvents`) costs it as much as those.
const PAGE_SIZE: usize = 5000;

async fn list<L: WatchListener>(
    client: &Client,
    resource: &Resource,
    listener: &mut L,
) -> Result<String, Interrupted> {
    let (mut keys, mut identified) = (BTreeSet::new(), Ok(()));
    let mut take = |object: Encoded<'_>| match apply(listener, object) {
        Some(key) => drop(keys.insert(key)),
        // It must not be taken for deleted.
        None => identified = Err(format::unidentified(object)),
    };
    let Resource { selector, kind, .. } = resource;
    let path = resource.list_path();
    let version = list_pages(client, &path, selector, *kind, &mut take).await?;
    identified?;
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
    let mut take = |object: Encoded<'_>| match object {
        Encoded::Json(json) => take(json),
        // It was not asked for.
        Encoded::Protobuf(..) => {}
    };
    list_pages(client, path, selector, None, &mut take).await
}

/// Lists the objects at a path, page by page, and calls `take` with each. Returns the version of the list.
async fn list_pages(
    client: &Client,
    path: &str,
    selector: &str,
    kind: Option<&'static Kind>,
    take: &mut (dyn FnMut(Encoded<'_>) + Send),
) -> Result<String, ApiError> {
    let mut next = String::new();
    loop {
        let path =
            format!("{path}?limit={PAGE_SIZE}{}{selector}", query_parameter("continue", &next));
        let page = read_page(client, &path, kind, take).await?;
        next = page.next;
        if next.is_empty() {
            return Ok(page.version);
        }
    }
}

/// Calls `take` with each object of a page as soon as it has arrived.
async fn read_page(
    client: &Client,
    path: &str,
    kind: Option<&'static Kind>,
    take: &mut (dyn FnMut(Encoded<'_>) + Send),
) -> Result<Page, ApiError> {
    let response = api::send(client, format::get(path, kind)?).await?;
    let mut reader = PageReader::new(&response, kind);
    let mut body = response.into_body();
    let stopped = |_| ApiError::Unavailable("the list stopped before its end".into());
    while let Some(frame) = timeout(api::READ_TIMEOUT, body.frame()).await.map_err(stopped)? {
        let frame = frame.map_err(|error| ApiError::Unavailable(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            reader.feed(&data, take)?;
        }
    }
    reader.finish()
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

/// The metadata that identifies an object, decoded even where the rest of the object cannot be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentifyingMeta {
    namespace: Option<Name>,
    #[serde(default, deserialize_with = "lenient")]
    name: Name,
    #[serde(default, deserialize_with = "lenient")]
    resource_version: Box<str>,
}

fn key_and_version(object: Encoded<'_>) -> Option<(Key, u64)> {
    let metadata: IdentifyingMeta = object.metadata().ok()?;
    let version = version_number(&metadata.resource_version);
    Some(((metadata.namespace.unwrap_or_default(), metadata.name), version))
}

/// A resource version as a number, for comparison. The API guarantees since Kubernetes 1.35 that
/// resource versions are growing numbers (KEP-5504); with etcd 3 they have always been.
pub fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

/// Decodes an object and hands it to the listener. Returns its key, if that can be read.
fn apply<L: WatchListener>(listener: &mut L, object: Encoded<'_>) -> Option<Key> {
    match listener.read(object) {
        Ok(object) => {
            let key = object.key();
            listener.apply(object);
            Some(key)
        }
        Err(error) => {
            let (key, _) = key_and_version(object)?;
            listener.unreadable(&key, &error.to_string());
            Some(key)
        }
    }
}

/// How long the server keeps a watch open, plus up to a minute of jitter. Opening watches anew
/// spreads clients over API servers again after one of them restarted. client-go's reflector uses
/// 5 to 10 minutes (`defaultMinWatchTimeout` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/client-go/tools/cache/reflector.go>).
const WATCH_SECONDS: u64 = 300;
/// A watch without any data for this long is given up. API servers send a bookmark every minute
/// (`defaultBookmarkFrequency` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go>).
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

async fn watch<L: WatchListener>(
    client: &Client,
    resource: &Resource,
    mut version: String,
    listener: &mut L,
) -> Result<String, Interrupted> {
    let seconds = WATCH_SECONDS + fastrand::u64(..60);
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}{}",
        resource.list_path(),
        resource.selector
    );
    let request = format::get(&path, resource.kind)?;
    let interrupted = |error, version: &str| Interrupted { error, version: Some(version.into()) };
    let response =
        api::send(client, request).await.map_err(|error| interrupted(error, &version))?;
    let mut reader = EventReader::new(&response, resource.kind);
    let mut body = response.into_body();
    listener.health(Ok(()));
    loop {
        let frame = timeout(IDLE_TIMEOUT, body.frame()).await;
        let unavailable = |text: String| interrupted(ApiError::Unavailable(text), &version);
        let silent = |_| {
            let seconds = IDLE_TIMEOUT.as_secs();
            unavailable(format!("nothing was received on the watch for {seconds} s"))
        };
        let Some(frame) = frame.map_err(silent)? else {
            reader.finish().map_err(|error| interrupted(error, &version))?;
            return Ok(version);
        };
        let frame = frame.map_err(|error| unavailable(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let result = reader.feed(&data, |event| handle(event, listener, &mut version));
        result.map_err(|error| interrupted(error, &version))?;
    }
}

/// Handles one event of a watch. `version` becomes the version to watch from next.
fn handle<L: WatchListener>(
    event: Event<'_>,
    listener: &mut L,
    version: &mut String,
) -> Result<(), ApiError> {
    let Event { event_type, object } = event;
    if event_type == "ERROR" {
        return Err(api::watch_error(object));
    }
    let Some((key, at)) = key_and_version(object) else {
        return Err(format::unidentified(object));
    };
    // Versions of a watch grow. A server whose store was restored from a backup sends older ones, and one that is
    // behind the others may; a list shows which of both it is.
    if (1..version_number(version)).contains(&at) {
        return Err(older(version, at));
    }
    match event_type {
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
mod tests;
