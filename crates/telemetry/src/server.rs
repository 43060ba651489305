//! A small HTTP server for pages that are asked for by probes, scrapers and people.
//!
//! ```text
//!  TcpListener ─► Server ─ each request ─► Site::answer(Ask) ─► Page
//! ```
//!
//! One request per connection, few connections, each with little time: a client that is slow or
//! forgets to hang up cannot keep the next probe out.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// The kind of a page of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// `GET`, `HEAD`, …
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// What follows the question mark; empty without one.
    pub query: &'a str,
}

/// What is answered. Every page also says that its kind is not to be guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// 200, 404, …
    pub status: u16,
    /// `Content-Type`.
    pub kind: &'static str,
    /// Further headers, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The text.
    pub body: String,
}

impl Page {
    /// A page without further headers.
    pub fn new(status: u16, kind: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind, headers: Vec::new(), body: body.into() }
    }

    /// Plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, TEXT, body)
    }

    /// Nothing is here.
    pub fn not_found() -> Self {
        Self::text(404, "not found\n")
    }

    /// The page, or a refusal if it is not asked for by GET or HEAD.
    pub fn read_only(ask: Ask<'_>, page: impl FnOnce() -> Self) -> Self {
        if ["GET", "HEAD"].contains(&ask.method) {
            return page();
        }
        let mut refused = Self::text(405, "method not allowed\n");
        refused.headers.push(("allow", "GET, HEAD".to_owned()));
        refused
    }

    fn respond(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
        for (name, value) in self.headers {
            // A value with a line break in it would be a mistake of ours: it is left out.
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// What there is to see. Answers must be quick: they are not computed in a thread of their own.
pub trait Site: Send + Sync + 'static {
    /// The page for this request.
    fn answer(&self, ask: Ask<'_>) -> Page;
}

impl<F: Fn(Ask<'_>) -> Page + Send + Sync + 'static> Site for F {
    fn answer(&self, ask: Ask<'_>) -> Page {
        self(ask)
    }
}

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// At once; the others wait in the kernel's queue.
    pub(crate) connections: usize,
    /// Until the request's head is there.
    pub(crate) head: Duration,
    /// For the whole connection.
    pub(crate) total: Duration,
    /// To finish when the server stops.
    pub(crate) drain: Duration,
}

pub(crate) const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(5),
    total: Duration::from_secs(15),
    drain: Duration::from_secs(1),
};

/// A running server. It goes on while the process goes down, so that the last probes and scrapes are
/// answered: stop it last. Dropped, it stops as well.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<JoinSet<()>>,
    drain: Duration,
}

impl Server {
    /// Where it listens; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections and gives those under way a second.
    pub async fn stop(self) {
        let drain = self.drain;
        finish(self.close_port().await, drain).await;
    }

    /// Takes no more connections: when this returns the port is free. Those under way get their
    /// second without anybody waiting for it.
    pub async fn close(self) {
        let drain = self.drain;
        let connections = self.close_port().await;
        tokio::spawn(finish(connections, drain));
    }

    async fn close_port(self) -> JoinSet<()> {
        drop(self.stop);
        self.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "health server broke");
            JoinSet::new()
        })
    }
}

/// Serves `site` on a socket that listens already.
///
/// # Errors
/// If the socket does not know its own address.
pub fn serve(listener: TcpListener, site: impl Site) -> io::Result<Server> {
    limited(listener, site, LIMITS)
}

pub(crate) fn limited(
    listener: TcpListener,
    site: impl Site,
    limits: Limits,
) -> io::Result<Server> {
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(accept(listener, Arc::new(site), limits, stopped));
    Ok(Server { address, stop, task, drain: limits.drain })
}

/// Returns the connections still open when it is told to stop; the port is free by then.
async fn accept<S: Site>(
    listener: TcpListener,
    site: Arc<S>,
    limits: Limits,
    mut stopped: oneshot::Receiver<()>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limits.connections => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(converse(stream, Arc::clone(&site), limits));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "health server cannot accept");
                        // Out of file descriptors, mostly: trying again at once would spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    }
    connections
}

/// Who is not done by then is cut off when the set is dropped.
async fn finish(mut connections: JoinSet<()>, drain: Duration) {
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(drain, drained).await;
}

async fn converse<S: Site>(stream: TcpStream, site: Arc<S>, limits: Limits) {
    let service = service_fn(move |request: Request<Incoming>| {
        let uri = request.uri();
        let ask = Ask {
            method: request.method().as_str(),
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
        };
        let response = site.answer(ask).respond();
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(limits.total, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "health connection"),
        Err(_) => tracing::debug!("health connection cut: too slow"),
    }
}
