//! The health and metrics server.
//!
//! ```text
//!  /healthz /livez  200 "ok", or 500 with a line per check      is it alive?
//!  /readyz          the same, and fails while going down        can it work?
//!  /metrics         the registry as Prometheus text
//! ```
//!
//! `?verbose` lists the checks also when all pass. One request per connection, few connections, each
//! with little time: a client that is slow or forgets to hang up cannot keep the next probe out.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::checks::{Checks, Question};
use crate::metrics::{self, Registry};
use crate::shutdown::Shutdown;

const TEXT: &str = "text/plain; charset=utf-8";
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// What a client may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// At once; the others wait in the kernel's queue.
    connections: usize,
    /// Until the request's head is there.
    head: Duration,
    /// For the whole connection.
    total: Duration,
    /// To finish when the server stops.
    drain: Duration,
}

const LIMITS: Limits = Limits {
    connections: 64,
    head: Duration::from_secs(5),
    total: Duration::from_secs(15),
    drain: Duration::from_secs(1),
};

/// The server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics: {source}; free it or choose another")]
pub struct ListenError {
    /// Where it should have listened.
    pub address: SocketAddr,
    /// Why it could not.
    pub source: io::Error,
}

/// A running server. It goes on while the process goes down, so that the last probes and scrapes are
/// answered: stop it last. Dropped, it stops as well.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Where it listens; the real port if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections and gives those under way a second.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "health server broke");
        }
    }
}

/// Serves health and metrics. Once `shutdown` goes down, `/readyz` fails; the server stays.
///
/// # Errors
/// If it cannot listen there.
pub async fn serve(
    address: SocketAddr,
    registry: Registry,
    checks: Checks,
    shutdown: &Shutdown,
) -> Result<Server, ListenError> {
    let shutdown = shutdown.clone();
    checks.readiness_when("shutdown", move || {
        if shutdown.is_down() { Err("going down".to_owned()) } else { Ok(()) }
    });
    listen(address, Site { registry, checks }, LIMITS).await
}

async fn listen(address: SocketAddr, site: Site, limits: Limits) -> Result<Server, ListenError> {
    let failed = |source| ListenError { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(accept(listener, Arc::new(site), limits, stopped));
    tracing::info!(%address, "health and metrics");
    Ok(Server { address, stop, task })
}

async fn accept(
    listener: TcpListener,
    site: Arc<Site>,
    limits: Limits,
    mut stopped: oneshot::Receiver<()>,
) {
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
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // Who is not done by then is cut off when the set is dropped.
    let _ = timeout(limits.drain, drained).await;
}

async fn converse(stream: TcpStream, site: Arc<Site>, limits: Limits) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = site.answer(request.method(), request.uri());
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

/// What there is to see.
struct Site {
    registry: Registry,
    checks: Checks,
}

impl Site {
    fn answer(&self, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        let page: fn(&Self, &Uri) -> Response<Full<Bytes>> = match uri.path() {
            "/healthz" => |site, uri| site.health(uri, "healthz", Question::Live),
            "/livez" => |site, uri| site.health(uri, "livez", Question::Live),
            "/readyz" => |site, uri| site.health(uri, "readyz", Question::Ready),
            "/metrics" => {
                |site, _| respond(StatusCode::OK, metrics::CONTENT_TYPE, site.registry.text())
            }
            _ => return respond(StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
        };
        if [Method::GET, Method::HEAD].contains(method) { page(self, uri) } else { not_allowed() }
    }

    fn health(&self, uri: &Uri, endpoint: &str, question: Question) -> Response<Full<Bytes>> {
        let report = self.checks.ask(question);
        match (report.passed(), is_verbose(uri)) {
            (true, false) => respond(StatusCode::OK, TEXT, "ok".to_owned()),
            (true, true) => respond(StatusCode::OK, TEXT, report.text(endpoint)),
            (false, _) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, report.text(endpoint)),
        }
    }
}

fn is_verbose(uri: &Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| parameter.split('=').next() == Some("verbose"))
}

fn not_allowed() -> Response<Full<Bytes>> {
    let text = "method not allowed\n".to_owned();
    let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    //! Slow clients, on a paused clock: hours pass at once when nobody has anything to do.

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    async fn server(limits: Limits) -> Server {
        let registry = Registry::default();
        let help = "Too much for the socket's buffers.";
        registry
            .collect("big", help, metrics::Kind::Gauge, ["n"], |samples| {
                (0..200_000).for_each(|n| samples.push([&format!("{n:0>64}")], 1.0));
            })
            .unwrap();
        let site = Site { registry, checks: Checks::default() };
        listen(([127, 0, 0, 1], 0).into(), site, limits).await.unwrap()
    }

    async fn until_closed(mut client: TcpStream) -> String {
        let mut text = Vec::new();
        // A reset is as good an end as a close.
        let _ = client.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_finishes_the_head_is_cut_off() {
        let server = server(LIMITS).await;
        let start = Instant::now();
        let mut client = TcpStream::connect(server.address()).await.unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
        assert!(!until_closed(client).await.contains("200 OK"));
        assert!(start.elapsed() >= LIMITS.head && start.elapsed() < LIMITS.total);
        server.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_reads_the_answer_is_cut_off() {
        let server = server(LIMITS).await;
        let mut client = TcpStream::connect(server.address()).await.unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        tokio::time::sleep(LIMITS.total + LIMITS.head).await;
        let page = until_closed(client).await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && !page.ends_with("} 1\n"));
        server.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn idle_clients_delay_a_probe_but_do_not_keep_it_out() {
        let server = server(Limits { connections: 2, ..LIMITS }).await;
        let start = Instant::now();
        let first = TcpStream::connect(server.address()).await.unwrap();
        let second = TcpStream::connect(server.address()).await.unwrap();
        let mut probe = TcpStream::connect(server.address()).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(until_closed(probe).await.ends_with("\r\n\r\nok"));
        assert!(start.elapsed() >= LIMITS.head, "two at once, no more");
        drop((first, second));
        server.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_waits_a_moment_for_clients_and_closes_the_port() {
        let server = server(LIMITS).await;
        let address = server.address();
        let client = TcpStream::connect(address).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let start = Instant::now();
        server.stop().await;
        assert!(start.elapsed() < LIMITS.head);
        assert_eq!(until_closed(client).await, "");
        assert!(TcpStream::connect(address).await.is_err());
    }
}
