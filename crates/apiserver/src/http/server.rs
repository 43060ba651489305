//! Connections, tokens, bodies and responses.
//!
//! ```text
//!  accept ─► TLS ─► each request:
//!      health, version ─────────────────────────────────────────────────► response
//!      everything else ─► token ─► faults ─► body ─► perform ─► encode ─► response
//!                                                 └─► watch: a task that writes the body
//! ```
//!
//! Every connection is a task of its own. Nothing here may panic: a release build aborts, which
//! ends all connections.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::Value;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch as signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use zonewise_common::clock;

use crate::http::faults::Faults;
use crate::http::representation::{self, Encoder, Form, View};
use crate::http::request::{self, NonResourceUrl, Options, ResourcePath, Route, Verb};
use crate::http::watch::{self, ConnectionAborted, Watch, WatchFilter, WatchSource, WatchTimes};
use crate::kubectl::reviews::{Known, Review};
use crate::kubectl::{discovery, openapi};
use crate::objects::kind::Kind;
use crate::objects::protobuf;
use crate::operations::{self, ApiRequest, ApiState, garbage_collection, workloads};
use crate::status::StatusError;
use crate::store::{Compacted, WatchEvent};
use crate::{Token, random};

/// Bytes of a request body: kube-apiserver's `MaxRequestBodyBytes`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/server/config.go>).
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// How much of a body that is too large is read before the response.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;
/// Time for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from one request to the complete header of the next. It ends idle connections, and clients
/// that send a header too slowly.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for open requests to end when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Watches without `timeoutSeconds` end after this time, or up to twice as long: the default of
/// kube-apiserver's `--min-request-timeout` (`MinRequestTimeout` in the same file).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The longest time for which a watch may ask.
const MAX_WATCH_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Chunks of a watch that wait for a slow client.
const WATCH_BUFFER: usize = 8;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<ApiState>,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) tokens: Vec<Token>,
    /// Time between bookmarks of a watch.
    pub(crate) bookmark_interval: Duration,
    pub(crate) stop: signal::Sender<bool>,
    /// Whether Deployments and ReplicaSets are kept.
    pub(crate) workloads: bool,
    /// Wakes [`run_controllers`].
    pub(crate) work: Notify,
}

impl Shared {
    fn faults(&self) -> Faults {
        self.faults.lock().clone()
    }

    /// The version that stale reads show, if the fault `stale` is on.
    fn stale_version(&self, state: &ApiState) -> Option<u64> {
        let time = Instant::now().checked_sub(self.faults.lock().stale?)?;
        Some(state.store.version_at(time))
    }
}

impl WatchSource for Shared {
    fn events_after(
        &self,
        kind: &Kind,
        position: u64,
    ) -> (Result<Vec<Arc<WatchEvent>>, Compacted>, u64) {
        let state = self.state.lock();
        (state.store.events_after(kind.storage_resource(), position), state.store.version())
    }
}

/// Does what follows from requests, until the server stops: collects garbage, and keeps Deployments and ReplicaSets.
pub(crate) async fn run_controllers(shared: Arc<Shared>) {
    let mut stop = shared.stop.subscribe();
    let mut next = None;
    loop {
        let later = async {
            match next {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.work.notified() => {}
            () = later => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        next = work(&shared);
    }
}

/// Works until nothing is left. Returns when to look again, if that depends on time.
fn work(shared: &Shared) -> Option<Duration> {
    let mut state = shared.state.lock();
    garbage_collection::collect(&mut state, clock::now());
    if !shared.workloads {
        state.workloads_due = false;
        return None;
    }
    let next = workloads::reconcile(&mut state, clock::now());
    // Old ReplicaSets that were deleted.
    garbage_collection::collect(&mut state, clock::now());
    next
}

/// Serves until the server stops, then lets open requests end.
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
            // Most likely no file descriptor is free: connections that end release some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            match tls {
                None => serve_connection(shared, stream).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) =
                        tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await
                    {
                        serve_connection(shared, stream).await;
                    }
                }
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(STOP_GRACE, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

async fn serve_connection<S>(shared: Arc<Shared>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stop = shared.stop.subscribe();
    let service = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // An error of the connection is not reported: the client notices it as well.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The body of a request.
pub(crate) trait RequestBody:
    hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static> + Send + Unpin
{
}

impl<B> RequestBody for B where
    B: hyper::body::Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>
        + Send
        + Unpin
{
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// What a watch writes.
    Stream(mpsc::Receiver<Result<Bytes, ConnectionAborted>>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = ConnectionAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionAborted>>> {
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

/// Answers one request.
pub(crate) async fn respond<B: RequestBody>(
    shared: Arc<Shared>,
    request: Request<B>,
) -> Result<Response<Body>, ConnectionAborted> {
    let (parts, body) = request.into_parts();
    let style = Style::of(&parts);
    let route = match request::route(parts.uri.path()) {
        Ok(route) => route,
        Err(_) if is_outside_api(parts.uri.path()) => return Ok(page_not_found()),
        Err(error) => return Ok(failure(&error, style)),
    };
    if let Some(response) = without_token(&route, &parts) {
        return Ok(response);
    }
    let Some(user) = user(&shared.tokens, &parts.headers) else {
        return Ok(failure(&StatusError::unauthorized(), style));
    };
    if route != Route::NonResource(NonResourceUrl::Faults) {
        let faults = shared.faults();
        tokio::time::sleep(faults.delay(random::fraction())).await;
        if let Some(injected) = faults.injected_error(random::fraction()) {
            let error = injected.status_error();
            return error.map(|error| failure(&error, style)).ok_or(ConnectionAborted);
        }
    }
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(error) => return Ok(failure(&error, style)),
    };
    let response = match &route {
        Route::NonResource(NonResourceUrl::Review(review)) => {
            answer_review(*review, &shared.tokens, user, &parts, &body)
        }
        Route::NonResource(url) => show_document(&shared, url, &parts, &body),
        Route::Resource(resource) => perform(&shared, resource, &parts, &body),
    };
    Ok(response.unwrap_or_else(|error| failure(&error, style)))
}

/// Whether a path is outside of the served API groups: there kube-apiserver answers with plain text
/// instead of a Status.
fn is_outside_api(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    match (segments.next(), segments.next()) {
        (Some("api"), _) => false,
        (Some("apis"), Some(group)) => discovery::group(group).is_none(),
        _ => true,
    }
}

fn page_not_found() -> Response<Body> {
    plain_text(404, "404 page not found\n")
}

fn plain_text(code: u16, text: &'static str) -> Response<Body> {
    whole_response(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// Health and version need no token.
fn without_token(route: &Route, parts: &Parts) -> Option<Response<Body>> {
    match route {
        Route::NonResource(NonResourceUrl::Health) => Some(plain_text(200, "ok")),
        Route::NonResource(NonResourceUrl::Version) if parts.method == Method::GET => {
            Some(match representation::require_json(header(&parts.headers, &ACCEPT)) {
                Ok(()) => whole_document(200, &discovery::version(), Style::PRETTY),
                Err(error) => failure(&error, Style::of(parts)),
            })
        }
        _ => None,
    }
}

/// The user whose token the request has. Tokens that are meant for others open nothing here.
fn user<'a>(tokens: &'a [Token], headers: &HeaderMap) -> Option<&'a str> {
    let given =
        headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.strip_prefix("Bearer ").unwrap_or_default().trim();
    let token = known_token(tokens, given).filter(|token| token.audience.is_none());
    token.map(|token| &*token.user)
}

/// The token with this secret. How long this takes does not depend on how much of a secret is right.
fn known_token<'a>(tokens: &'a [Token], given: &str) -> Option<&'a Token> {
    let matches = |token: &Token| bool::from(token.secret.as_bytes().ct_eq(given.as_bytes()));
    // All tokens are compared, wherever the right one is.
    let known =
        tokens.iter().fold(None, |known, token| if matches(token) { Some(token) } else { known });
    known.filter(|_| !given.is_empty())
}

async fn read_body<B: RequestBody>(mut body: B) -> Result<Bytes, StatusError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match Limited::new(&mut body, MAX_BODY_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            discard(&mut body).await;
            Err(StatusError::too_large(MAX_BODY_BYTES))
        }
        Err(error) => Err(StatusError::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// Reads the rest of a body that is too large, within limits. A client that is still sending when the
/// connection ends may not see the response.
async fn discard<B: RequestBody>(body: &mut B) {
    let mut left = MAX_DISCARDED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(bytes) else { return };
        left = rest;
    }
}

/// How documents and errors are written.
#[derive(Clone, Copy)]
struct Style {
    form: Form,
    /// With line breaks, in JSON.
    pretty: bool,
}

impl Style {
    const PRETTY: Self = Self { form: Form::Json, pretty: true };

    /// As the client wants it. If it accepts no form that is served, errors are JSON, as in
    /// kube-apiserver.
    fn of(parts: &Parts) -> Self {
        let form = representation::negotiate_document(header(&parts.headers, &ACCEPT));
        Self { form: form.unwrap_or(Form::Json), pretty: pretty(parts) }
    }

    /// For documents that protobuf has no message for.
    fn json(self) -> Self {
        Self { form: Form::Json, ..self }
    }
}

/// Whether the response has line breaks: by default for curl, wget and browsers, as in
/// kube-apiserver.
fn pretty(parts: &Parts) -> bool {
    let asked = Options::parse(parts.uri.query().unwrap_or_default()).ok().and_then(|o| o.pretty);
    asked.unwrap_or_else(|| {
        let agent = header(&parts.headers, &USER_AGENT);
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program))
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The media type of the request's body, without parameters.
fn content_type(parts: &Parts) -> &str {
    header(&parts.headers, &CONTENT_TYPE).split(';').next().unwrap_or_default().trim()
}

fn show_document(
    shared: &Shared,
    url: &NonResourceUrl,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, StatusError> {
    if *url == NonResourceUrl::Faults {
        return show_faults(shared, &parts.method, body);
    }
    if parts.method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    let accept = header(&parts.headers, &ACCEPT);
    let aggregated = representation::negotiate_discovery(accept);
    let missing = StatusError::no_such_path;
    let style = Style::of(parts);
    let value = match url {
        NonResourceUrl::CoreVersions | NonResourceUrl::Groups if let Some(form) = aggregated => {
            let document = discovery::aggregated(*url == NonResourceUrl::CoreVersions);
            let body = representation::document(&document, form);
            return Ok(whole_response(200, form.discovery_type(), body.into()));
        }
        NonResourceUrl::CoreVersions => discovery::core_versions(),
        NonResourceUrl::Groups => discovery::groups(),
        NonResourceUrl::Group(group) => match discovery::group(group) {
            Some(group) => group,
            None => return Ok(page_not_found()),
        },
        NonResourceUrl::Resources(group, version) => match discovery::resources(group, version) {
            Some(resources) => resources,
            None if group.is_empty() || discovery::group(group).is_some() => return Err(missing()),
            None => return Ok(page_not_found()),
        },
        // kubectl writes the version as `@v1.0`; in the media type of the answer it is `.v1.0`.
        NonResourceUrl::OpenApiV2 if accept.contains("proto-openapi.spec.v2") => {
            let message = openapi::v2_protobuf().into();
            return Ok(whole_response(200, openapi::V2_PROTOBUF, message));
        }
        NonResourceUrl::OpenApiV2 if representation::require_json(accept).is_err() => {
            let mut response = Response::new(Body::Whole(None));
            *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
            return Ok(response);
        }
        NonResourceUrl::OpenApiV2 => return Ok(whole_document(200, &openapi::v2(), style.json())),
        NonResourceUrl::OpenApiV3 => {
            return Ok(whole_document(200, &openapi::v3_index(), style.json()));
        }
        NonResourceUrl::OpenApiV3Of(group, version) => {
            let document = openapi::v3(group, version).ok_or_else(missing)?;
            return Ok(whole_document(200, &document, style.json()));
        }
        NonResourceUrl::Health
        | NonResourceUrl::Version
        | NonResourceUrl::Review(_)
        | NonResourceUrl::Faults => return Err(missing()),
    };
    let form = representation::negotiate_document(accept).ok_or_else(|| match url {
        NonResourceUrl::Groups | NonResourceUrl::Group(_) => {
            representation::refusal_of_parameters()
        }
        _ => representation::refusal(accept, false),
    })?;
    Ok(whole_document(200, &value, Style { form, ..style }))
}

/// Reviews are answered, and not stored.
fn answer_review(
    review: Review,
    tokens: &[Token],
    user: &str,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, StatusError> {
    if parts.method != Method::POST {
        return Err(StatusError::method_not_allowed());
    }
    let asked = match content_type(parts) {
        protobuf::MEDIA_TYPE => protobuf::decode(body, review.kind())?,
        _ => serde_json::from_slice(body).unwrap_or_default(),
    };
    let spec = &asked["spec"];
    let known = Known {
        user,
        token: known_token(tokens, spec["token"].as_str().unwrap_or_default()),
        users: tokens,
    };
    Ok(whole_document(201, &review.answer(&known, spec), Style::of(parts)))
}

fn show_faults(
    shared: &Shared,
    method: &Method,
    body: &[u8],
) -> Result<Response<Body>, StatusError> {
    if *method == Method::PUT {
        let map: BTreeMap<String, String> = serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!(
                "the body is not a JSON object of strings (example: {{\"errors\":\"5%\"}}): {error}"
            ))
        })?;
        let faults =
            Faults::from_map(&map).map_err(|error| StatusError::bad_request(error.to_string()))?;
        tracing::info!(%faults, "faults changed");
        *shared.faults.lock() = faults;
    } else if *method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    let shown = shared.faults().to_map();
    Ok(whole_document(200, &serde_json::json!(shown), Style::PRETTY))
}

fn perform(
    shared: &Arc<Shared>,
    resource: &ResourcePath,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, StatusError> {
    let options = Options::parse(parts.uri.query().unwrap_or_default())?;
    let verb = request::verb(&parts.method, resource, &options)?;
    let watchable = resource.name.is_none() && parts.method == Method::GET;
    let representation = representation::negotiate(
        header(&parts.headers, &ACCEPT),
        &options.include_object,
        watchable,
    )?;
    if let View::Metadata { list } = representation.view
        && [Verb::Get, Verb::List].contains(&verb)
        && list != (verb == Verb::List)
    {
        return Err(StatusError::not_convertible(resource.kind, list));
    }
    let encoder = Encoder { kind: resource.kind, representation, now: clock::now() };
    if verb == Verb::Watch {
        return start_watch(shared, resource, &options, encoder);
    }
    let content_type = content_type(parts);
    let agent = header(&parts.headers, &USER_AGENT).split('/').next().unwrap_or_default();
    let agent = if agent.is_empty() { "unknown" } else { agent };
    let outcome = {
        let mut state = shared.state.lock();
        let stale_version = shared.stale_version(&state);
        let request = ApiRequest {
            resource,
            options: &options,
            content_type,
            body,
            agent,
            now: encoder.now,
            stale_version,
        };
        let outcome = operations::perform(&mut state, verb, &request);
        if !state.to_collect.is_empty() || state.workloads_due {
            shared.work.notify_one();
        }
        outcome?
    };
    let (code, body) = encoder.outcome(&outcome);
    if representation.form == Form::Json && pretty(parts) {
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        return Ok(whole_document(code, &value, Style::PRETTY));
    }
    Ok(whole_response(code, representation.form.media_type(), body.into()))
}

fn start_watch(
    shared: &Arc<Shared>,
    resource: &ResourcePath,
    options: &Options,
    encoder: Encoder,
) -> Result<Response<Body>, StatusError> {
    let filter = WatchFilter::new(resource.kind, resource.prefix(), options)?;
    let (start, changed) = {
        let state = shared.state.lock();
        let changed = state.store.subscribe(resource.kind.storage_resource());
        let start = watch::start(&state.store, &filter, options, shared.stale_version(&state))?;
        (start, changed.ok_or_else(StatusError::no_such_path)?)
    };
    let faults = shared.faults();
    let now = Instant::now();
    let span = match options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => MIN_WATCH_TIMEOUT.mul_f64(1.0 + random::fraction()),
    };
    let times = WatchTimes {
        end: now + span.min(MAX_WATCH_TIMEOUT),
        bookmarks: options.allow_watch_bookmarks.then_some(shared.bookmark_interval),
        abort: faults.watch_lifetime(random::fraction()).and_then(|span| now.checked_add(span)),
        delay: faults.stale.unwrap_or_default(),
    };
    let (sink, chunks) = mpsc::channel(WATCH_BUFFER);
    let source = Arc::clone(shared);
    let stop = shared.stop.subscribe();
    let watch = Watch { source, filter, encoder, times, sink, changed, stop };
    tokio::spawn(watch.run(start));
    let mut response = Response::new(Body::Stream(chunks));
    set_headers(&mut response, encoder.representation.form.stream_type());
    Ok(response)
}

fn failure(error: &StatusError, style: Style) -> Response<Body> {
    let mut response = whole_document(error.code, &error.status(), style);
    let retry = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = retry {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn whole_document(code: u16, value: &Value, style: Style) -> Response<Body> {
    let mut body = match style {
        Style { form: Form::Json, pretty: true } => {
            serde_json::to_vec_pretty(value).unwrap_or_default()
        }
        Style { form, .. } => representation::document(value, form),
    };
    if style.form == Form::Json {
        body.push(b'\n');
    }
    whole_response(code, style.form.media_type(), body.into())
}

fn whole_response(code: u16, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(body)));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    set_headers(&mut response, kind);
    if code == 413 {
        // The rest of the body is still being sent: no other request can follow on this connection.
        response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn set_headers(response: &mut Response<Body>, kind: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_tokens_are_accepted() {
        let tokens =
            [("abc", None), ("defg", None), ("for", Some("others"))].map(|(secret, audience)| {
                Token {
                    user: "u".into(),
                    secret: secret.into(),
                    audience: audience.map(Into::into),
                }
            });
        let known = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            user(&tokens, &headers).is_some()
        };
        assert!(known("Bearer abc") && known("Bearer defg"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer ab",
            "Bearer abcd",
            "Basic abc",
            "abc",
            "Bearer abd",
            "Bearer for",
        ] {
            assert!(!known(wrong), "{wrong:?}");
        }
        assert_eq!(user(&tokens, &HeaderMap::new()), None);
    }
}
