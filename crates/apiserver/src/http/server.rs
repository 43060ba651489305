//! HTTP: connections, tokens, bodies, answers.
//!
//! ```text
//!  accept ─► TLS ─► each request:  open page? ─► token ─► faults ─► body ─► act ─► form ─► answer
//!                                                                     └ watch: a task that writes into the body
//! ```
//!
//! Every connection is a task of its own. Nothing here may panic: a release build aborts, and all connections with it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::http::faults::Faults;
use crate::http::representation::{self, Shape};
use crate::http::request::{self, Options, Page, Resource, Target, Verb};
use crate::http::watch::{Cut, Source, Subject, Times, Watch, begin};
use crate::kubectl::{discovery, openapi};
use crate::objects::kind::Kind;
use crate::operations::{self, Ask, World, garbage_collection};
use crate::status::StatusError;
use crate::store::{Event, Forgotten, room};
use crate::{Token, random};

/// Larger than any object may be.
const MOST_BYTES: usize = 3 * 1024 * 1024;
const JSON: &str = "application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// For the handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one request to the whole head of the next: slow heads end here, and connections that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// What was begun may end when the server stops.
const GRACE: Duration = Duration::from_secs(2);
/// Watches without a time of their own end after this, or up to twice as long.
const WATCH: Duration = Duration::from_secs(30 * 60);
/// Chunks that wait for a slow reader.
const WAITING: usize = 8;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) world: Mutex<World>,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) bookmarks: Duration,
    pub(crate) stop: watch::Sender<bool>,
    /// Something is to be collected.
    pub(crate) chores: Notify,
}

/// A lock that a panic elsewhere does not close, where a panic is not the end of the process: every change of the world is whole or was not begun.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn faults(&self) -> Faults {
        lock(&self.faults).clone()
    }

    /// The version that stale reads show; `None` is the present.
    fn past(&self, world: &World) -> Option<u64> {
        let time = Instant::now().checked_sub(lock(&self.faults).stale?)?;
        Some(world.store.version_at(time))
    }
}

impl Source for Shared {
    fn follow(&self, kind: &Kind, position: u64) -> (Result<Vec<Arc<Event>>, Forgotten>, u64) {
        let world = lock(&self.world);
        (world.store.follow(room(kind), position), world.store.version())
    }
}

/// Looks after what deletions leave behind, until the server stops.
pub(crate) async fn run_garbage_collector(shared: Arc<Shared>) {
    let mut stop = shared.stop.subscribe();
    loop {
        tokio::select! {
            () = shared.chores.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        garbage_collection::collect(&mut lock(&shared.world), Timestamp::now());
    }
}

/// Serves until told to stop, then lets open requests end.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    let mut stop = shared.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            // No file is free, most likely: those that end make room.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            match tls {
                None => converse(shared, stream).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await
                    {
                        converse(shared, stream).await;
                    }
                }
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} })
        .await;
}

async fn converse<S>(shared: Arc<Shared>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stop = shared.stop.subscribe();
    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // A connection that breaks is the client's to notice.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The body of an answer.
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Result<Bytes, Cut>>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(chunks) => {
                chunks.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Self::Stream(_) => SizeHint::new(),
        }
    }
}

type Answer = Response<Body>;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, Cut> {
    let (parts, body) = request.into_parts();
    let pretty = pretty(&parts);
    let target = match request::target(parts.uri.path()) {
        Ok(target) => target,
        Err(_) if lost(parts.uri.path()) => return Ok(lost_page()),
        Err(error) => return Ok(refusal(&error, pretty)),
    };
    if let Some(page) = open_page(&target, &parts.method) {
        return Ok(page);
    }
    if !is_known(&shared.tokens, &parts.headers) {
        return Ok(refusal(&StatusError::unauthorized(), pretty));
    }
    if target != Target::Page(Page::Faults) {
        let faults = shared.faults();
        tokio::time::sleep(faults.delay(random::fraction())).await;
        if let Some(mishap) = faults.mishap(random::fraction()) {
            return mishap.error().map(|error| refusal(&error, pretty)).ok_or(Cut);
        }
    }
    let body = match read(body).await {
        Ok(body) => body,
        Err(error) => return Ok(refusal(&error, pretty)),
    };
    let done = match &target {
        Target::Page(page) => show(&shared, page, &parts, &body),
        Target::Resource(resource) => perform(&shared, resource, &parts, &body),
    };
    Ok(done.unwrap_or_else(|error| refusal(&error, pretty)))
}

/// Whether nothing of Kubernetes is there, so that Kubernetes would not answer as itself.
fn lost(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    match (segments.next(), segments.next()) {
        (Some("api"), _) => false,
        (Some("apis"), Some(group)) => discovery::group(group).is_none(),
        _ => true,
    }
}

fn lost_page() -> Answer {
    plain(404, "404 page not found\n")
}

fn plain(code: u16, text: &'static str) -> Answer {
    respond(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// Pages for everybody.
fn open_page(target: &Target, method: &Method) -> Option<Answer> {
    match target {
        Target::Page(Page::Health) => Some(plain(200, "ok")),
        Target::Page(Page::Version) if *method == Method::GET => {
            Some(json(200, &discovery::version(), true))
        }
        _ => None,
    }
}

/// Whether the request carries a token that we gave out. Takes as long whatever it carries.
fn is_known(tokens: &[Token], headers: &HeaderMap) -> bool {
    let given =
        headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.strip_prefix("Bearer ").unwrap_or_default().trim();
    tokens
        .iter()
        .fold(false, |known, token| known | same(token.secret.as_bytes(), given.as_bytes()))
}

fn same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0 && one.len() == other.len() && !one.is_empty()
}

async fn read(body: Incoming) -> Result<Bytes, StatusError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match Limited::new(body, MOST_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(StatusError::too_large(MOST_BYTES)),
        Err(error) => Err(StatusError::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// People with curl or a browser get line breaks, as Kubernetes gives them.
fn pretty(parts: &Parts) -> bool {
    let asked = Options::parse(parts.uri.query().unwrap_or_default()).ok().and_then(|o| o.pretty);
    asked.unwrap_or_else(|| {
        let agent = header(&parts.headers, &USER_AGENT);
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn show(shared: &Shared, page: &Page, parts: &Parts, body: &[u8]) -> Result<Answer, StatusError> {
    if *page == Page::Faults {
        return faults(shared, &parts.method, body);
    }
    if parts.method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    let accept = header(&parts.headers, &ACCEPT);
    let aggregated = accept.split(',').any(|one| {
        one.contains("as=APIGroupDiscoveryList")
            && one.contains("g=apidiscovery.k8s.io")
            && one.contains("v=v2;")
            || one.replace(' ', "") == DISCOVERY
    });
    let missing = StatusError::no_such_page;
    let value = match page {
        Page::CoreVersions | Page::Groups if aggregated => {
            let document = discovery::aggregated(*page == Page::CoreVersions);
            return Ok(respond(200, DISCOVERY, representation::text(&document).into()));
        }
        Page::CoreVersions => discovery::core_versions(),
        Page::Groups => discovery::groups(),
        Page::Group(group) => match discovery::group(group) {
            Some(group) => group,
            None => return Ok(lost_page()),
        },
        Page::Resources(group, version) => match discovery::resources(group, version) {
            Some(resources) => resources,
            None if group.is_empty() || discovery::group(group).is_some() => return Err(missing()),
            None => return Ok(lost_page()),
        },
        Page::OpenApiV2 => openapi::v2(),
        Page::OpenApiV3 => openapi::v3_index(),
        Page::OpenApiV3Of(group, version) => openapi::v3(group, version).ok_or_else(missing)?,
        Page::Health | Page::Version | Page::Faults => return Err(missing()),
    };
    Ok(json(200, &value, pretty(parts)))
}

fn faults(shared: &Shared, method: &Method, body: &[u8]) -> Result<Answer, StatusError> {
    if *method == Method::PUT {
        let map: BTreeMap<String, String> = serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!(
                "write an object of texts, such as {{\"errors\":\"5%\"}}: {error}"
            ))
        })?;
        let faults =
            Faults::from_map(&map).map_err(|error| StatusError::bad_request(error.to_string()))?;
        tracing::info!(%faults, "faults changed");
        *lock(&shared.faults) = faults;
    } else if *method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    let shown = shared.faults().to_map();
    Ok(json(200, &serde_json::json!(shown), true))
}

fn perform(
    shared: &Arc<Shared>,
    resource: &Resource,
    parts: &Parts,
    body: &[u8],
) -> Result<Answer, StatusError> {
    let options = Options::parse(parts.uri.query().unwrap_or_default())?;
    let verb = request::verb(&parts.method, resource, &options)?;
    let form = representation::negotiate(header(&parts.headers, &ACCEPT), &options.include)?;
    let shape = Shape { kind: resource.kind, form, now: Timestamp::now() };
    if verb == Verb::Watch {
        return start_watch(shared, resource, &options, shape);
    }
    let content_type =
        header(&parts.headers, &CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let agent = header(&parts.headers, &USER_AGENT).split('/').next().unwrap_or_default();
    let agent = if agent.is_empty() { "unknown" } else { agent };
    let outcome = {
        let mut world = lock(&shared.world);
        let past = shared.past(&world);
        let ask =
            Ask { resource, options: &options, content_type, body, agent, now: shape.now, past };
        let outcome = operations::act(&mut world, verb, &ask);
        if !world.chores.is_empty() {
            shared.chores.notify_one();
        }
        outcome?
    };
    let (code, text) = shape.outcome(&outcome);
    Ok(if pretty(parts) { prettied(code, &text) } else { respond(code, JSON, text.into()) })
}

fn prettied(code: u16, text: &[u8]) -> Answer {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    json(code, &value, true)
}

fn start_watch(
    shared: &Arc<Shared>,
    resource: &Resource,
    options: &Options,
    shape: Shape,
) -> Result<Answer, StatusError> {
    let subject = Subject::new(resource.kind, resource.prefix(), options)?;
    let (start, news) = {
        let world = lock(&shared.world);
        let news = world.store.news(room(resource.kind)).ok_or_else(StatusError::no_such_page)?;
        (begin(&world, &subject, options, shared.past(&world))?, news)
    };
    let faults = shared.faults();
    let now = Instant::now();
    let span = match options.timeout.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => WATCH.mul_f64(1.0 + random::fraction()),
    };
    let times = Times {
        end: now + span.min(WATCH * 48),
        bookmarks: options.bookmarks.then_some(shared.bookmarks),
        cut: faults.lifetime(random::fraction()).and_then(|span| now.checked_add(span)),
        late: faults.stale.unwrap_or_default(),
    };
    let (sink, chunks) = mpsc::channel(WAITING);
    let source = Arc::clone(shared);
    let stop = shared.stop.subscribe();
    let watch = Watch { source, subject, shape, times, sink, news, stop };
    tokio::spawn(watch.run(start));
    let mut response = Response::new(Body::Stream(chunks));
    head(&mut response, JSON);
    Ok(response)
}

fn refusal(error: &StatusError, pretty: bool) -> Answer {
    let mut answer = json(error.code, &error.status(), pretty);
    let retry = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = retry {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}

fn json(code: u16, value: &Value, pretty: bool) -> Answer {
    let text = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    let mut text = text.unwrap_or_default();
    text.push(b'\n');
    respond(code, JSON, text.into())
}

fn respond(code: u16, kind: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Body::Whole(Some(body)));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    head(&mut response, kind);
    if code == 413 {
        // The rest of the body is still on its way: nothing can follow it here.
        response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn head(response: &mut Answer, kind: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_whole_or_wrong() {
        let tokens =
            ["abc", "defg"].map(|secret| Token { user: "u".into(), secret: secret.into() });
        let known = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            is_known(&tokens, &headers)
        };
        assert!(known("Bearer abc") && known("Bearer defg"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer ab", "Bearer abcd", "Basic abc", "abc", "Bearer abd"]
        {
            assert!(!known(wrong), "{wrong:?}");
        }
        assert!(!is_known(&tokens, &HeaderMap::new()));
    }
}
