//! A small HTTP server for pages that probes, scrapers and people request.
//!
//! ```text
//!  TcpListener ─► Server ─ each request ─► PageHandler::handle(PageRequest) ─► Page
//! ```
//!
//! Pages that are not for everybody have a [`Protection`]: TLS, and a [`AccessControl`] that each request has to pass.
//!
//! One request per connection, few connections at once, and short timeouts: a slow client, or many that ask
//! nothing, cannot keep the next probe out (see `connections.rs`). Where programs ask again and again, the connections of
//! those that access control admits are kept ([`serve_kept`]); clients that are refused have one request per connection all
//! the same.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connections::{Connections, HasAsked};
use crate::tls::Tls;

/// The content type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// A request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<'a> {
    /// `GET`, `HEAD`, …
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The query after the question mark; empty without one.
    pub query: &'a str,
}

/// The response. Every page forbids browsers to guess its content type (`nosniff`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// 200, 404, …
    pub status: u16,
    /// The `Content-Type`.
    pub content_type: &'static str,
    /// Further headers, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Page {
    /// A page without further headers.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: body.into() }
    }

    /// Plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, TEXT, body)
    }

    /// A page for unknown paths.
    pub fn not_found() -> Self {
        Self::text(404, "not found\n")
    }

    /// The page for GET and HEAD; 405 for other methods.
    pub fn read_only(request: PageRequest<'_>, page: impl FnOnce() -> Self) -> Self {
        if ["GET", "HEAD"].contains(&request.method) {
            return page();
        }
        let mut refused = Self::text(405, "method not allowed\n");
        refused.headers.push(("allow", "GET, HEAD".to_owned()));
        refused
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
        for (name, value) in self.headers {
            // A value with a line break would be a bug of the handler: the header is left out.
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Makes the pages of a server. It must be quick: it runs on the threads of the async runtime.
pub trait PageHandler: Send + Sync + 'static {
    /// The page for this request.
    fn handle(&self, request: PageRequest<'_>) -> Page;
}

impl<F: Fn(PageRequest<'_>) -> Page + Send + Sync + 'static> PageHandler for F {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        self(request)
    }
}

/// Decides who gets a page.
pub trait AccessControl: Send + Sync + 'static {
    /// Whether the client with this bearer token gets the page.
    ///
    /// # Errors
    /// The page that says why not.
    fn admit<'a>(
        &'a self,
        request: PageRequest<'a>,
        token: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>>;
}

/// What protects pages that are not for everybody.
#[derive(Clone)]
pub struct Protection {
    /// The certificate of the server: tokens must not be read on their way.
    pub tls: Arc<Tls>,
    /// Who gets a page.
    pub access: Arc<dyn AccessControl>,
}

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once; one more closes another.
    pub(crate) connections: usize,
    /// Connections at once of one address; one more is refused.
    pub(crate) per_client: usize,
    /// Time until the request's head has arrived; also how long a connection is kept on which nothing is asked.
    pub(crate) head: Duration,
    /// Time for the whole connection.
    pub(crate) total: Duration,
    /// Time for open connections when the server stops.
    pub(crate) drain: Duration,
    /// Whether a client may ask again on its connection.
    pub(crate) keep_alive: bool,
}

pub(crate) const LIMITS: Limits = Limits {
    connections: 512,
    // Each is closed after one request, and those that ask nothing make room.
    per_client: usize::MAX,
    head: Duration::from_secs(5),
    total: Duration::from_secs(15),
    drain: Duration::from_secs(1),
    keep_alive: false,
};

/// For clients that ask every few seconds. A connection ends after a while, whatever its client does: a client that does
/// not read the answer does not keep it for ever.
const KEPT: Limits = Limits {
    connections: 64,
    // One for each replica of the controller, and some that are about to end.
    per_client: 8,
    head: Duration::from_secs(60),
    total: Duration::from_secs(600),
    drain: Duration::from_secs(1),
    keep_alive: true,
};

/// A running server. Stop it last, so that probes and scrapes are answered while the process shuts down.
/// Dropping it stops it as well.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Connections>,
    drain: Duration,
}

impl Server {
    /// The address it listens on; with the real port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections and gives the open ones a second.
    pub async fn stop(self) {
        let drain = self.drain;
        self.close_port().await.finish(drain).await;
    }

    /// Accepts no more connections; the port is free when this returns. The open ones get their second in
    /// the background.
    pub async fn close(self) {
        let drain = self.drain;
        let connections = self.close_port().await;
        tokio::spawn(connections.finish(drain));
    }

    async fn close_port(self) -> Connections {
        drop(self.stop);
        self.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the HTTP server of health pages failed");
            Connections::new(0)
        })
    }
}

/// Serves pages on a listening socket.
///
/// # Errors
/// If the socket has no local address.
pub fn serve(listener: TcpListener, handler: impl PageHandler) -> io::Result<Server> {
    serve_limited(listener, Pages { handler, protection: None }, LIMITS)
}

/// Serves pages only to clients that access control admits, and keeps their connections.
///
/// # Errors
/// If the socket has no local address.
pub fn serve_kept(
    listener: TcpListener,
    handler: impl PageHandler,
    protection: Protection,
) -> io::Result<Server> {
    serve_limited(listener, Pages { handler, protection: Some(protection) }, KEPT)
}

/// The pages of a server.
pub(crate) struct Pages<H> {
    pub(crate) handler: H,
    pub(crate) protection: Option<Protection>,
}

pub(crate) fn serve_limited(
    listener: TcpListener,
    pages: Pages<impl PageHandler>,
    limits: Limits,
) -> io::Result<Server> {
    let pages = Arc::new(pages);
    let serve =
        move |stream, has_asked| serve_connection(stream, Arc::clone(&pages), limits, has_asked);
    start(listener, limits, serve)
}

/// Serves each connection to a listening socket.
pub(crate) fn start<F>(
    listener: TcpListener,
    limits: Limits,
    serve: impl Fn(TcpStream, HasAsked) -> F + Send + 'static,
) -> io::Result<Server>
where
    F: Future<Output = ()> + Send + 'static,
{
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(accept(listener, limits, serve, stopped));
    Ok(Server { address, stop, task, drain: limits.drain })
}

/// Accepts connections until it is stopped; returns those that are still open. The port is free then.
async fn accept<F>(
    listener: TcpListener,
    limits: Limits,
    serve: impl Fn(TcpStream, HasAsked) -> F,
    mut stopped: oneshot::Receiver<()>,
) -> Connections
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = Connections::new(limits.connections);
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            () = connections.ended() => {}
            accepted = accepted(&listener) => {
                let Some((stream, client)) = accepted else { continue };
                // Closed at once, so that others do not wait for it.
                if connections.of(client) >= limits.per_client {
                    tracing::debug!(%client, "a client has too many connections; one more was refused");
                    continue;
                }
                connections.make_room().await;
                connections.add(client, |has_asked| serve(stream, has_asked));
            }
        }
    }
    connections
}

/// The next connection and its client; `None` if it could not be accepted.
async fn accepted(listener: &TcpListener) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, client)) => Some((stream, client.ip())),
        Err(error) => {
            tracing::warn!(%error, "an HTTP server cannot accept a connection");
            // Usually out of file descriptors: an immediate retry would spin.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn serve_connection<H: PageHandler>(
    stream: TcpStream,
    pages: Arc<Pages<H>>,
    limits: Limits,
    has_asked: HasAsked,
) {
    let connection = async {
        let Some(protection) = pages.protection.clone() else {
            return serve_http(stream, pages, limits, has_asked).await;
        };
        match timeout(LIMITS.head, protection.tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, pages, limits, has_asked).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a client of protected pages does not speak TLS");
            }
            Err(_) => tracing::debug!("a client of protected pages took too long to begin TLS"),
        }
    };
    if timeout(limits.total, connection).await.is_err() {
        tracing::debug!("a client of the health pages was too slow: closed its connection");
    }
}

async fn serve_http<H: PageHandler>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: Arc<Pages<H>>,
    limits: Limits,
    has_asked: HasAsked,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.set();
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(pages.respond(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(limits.keep_alive)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client of the health pages failed");
    }
}

impl<H: PageHandler> Pages<H> {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let page = self.answer(request).await;
        let refused = page.status >= 400;
        let mut response = page.into_response();
        if refused {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer(&self, request: &Request<Incoming>) -> Page {
        let uri = request.uri();
        let page_request = PageRequest {
            method: request.method().as_str(),
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
        };
        if let Some(protection) = &self.protection {
            let token = bearer_token(request.headers());
            if let Err(refused) = protection.access.admit(page_request, token).await {
                return refused;
            }
        }
        self.handler.handle(page_request)
    }
}

/// The token of `Authorization: Bearer TOKEN`.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_header() {
        let rows = [
            ("Bearer abc.def", Some("abc.def")),
            ("bearer  abc", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ];
        for (value, expected) in rows {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer_token(&headers), expected, "{value:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
