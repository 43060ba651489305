//! A small HTTPS server for documents that programs post, such as the reviews of an API server.
//!
//! ```text
//!  TcpListener ─► TLS ─ each POST, one after the other ─► Answerer::answer(document) ─► answer
//! ```
//!
//! Connections are kept, because a client that posts once posts again, and a TLS handshake costs more than an answer.
//!
//! Anybody who reaches the port may post, so that no client may keep others from being answered. A document is read
//! before anything is held for it: one that arrives slowly holds its own connection and nothing else. An address has its
//! share of the connections, and one more is refused. With the size of a document and the time for it, this also bounds
//! the memory. An answer needs no waiting, so that no document waits for more than one answer of each other connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::connections::HasAsked;
use crate::health::ListenError;
use crate::server::{self, Limits, Server};
use crate::tls::Tls;

/// What a client may ask for.
#[derive(Clone, Copy)]
struct Bounds {
    /// The size of a document in bytes.
    largest: usize,
    /// Time for a document to arrive, once its head has.
    arrival: Duration,
    /// Time for the TLS handshake.
    handshake: Duration,
    limits: Limits,
}

const BOUNDS: Bounds = Bounds {
    // A review has the slice before and after, each with a thousand endpoints of about 500 bytes at most.
    largest: 2 * 1024 * 1024,
    // An API server that asks about a slice waits no longer than a second.
    arrival: Duration::from_millis(800),
    handshake: Duration::from_secs(1),
    limits: Limits {
        // With the size of a document, at most 128 MiB.
        connections: 64,
        // More than the writes of slices that an API server has under way: its controllers make five at a time each.
        per_client: 24,
        // Also how long a connection stays open on which nothing is asked.
        head: Duration::from_secs(60),
        total: Duration::MAX,
        drain: Duration::from_secs(1),
        keep_alive: true,
    },
};

/// Answers documents. It must be quick: it runs on the threads of the async runtime.
pub trait Answerer: Send + Sync + 'static {
    /// The answer to a document, in JSON.
    fn answer(&self, document: &[u8]) -> Vec<u8>;
}

/// What is served.
pub struct Posts<A> {
    /// What it is, for messages.
    pub name: &'static str,
    /// The path that documents are posted to.
    pub path: &'static str,
    /// The certificate.
    pub tls: Arc<Tls>,
    /// Who answers.
    pub answerer: A,
}

/// Serves documents on an address.
///
/// # Errors
/// If it cannot listen on the address.
pub async fn serve(
    address: SocketAddr,
    posts: Posts<impl Answerer>,
) -> Result<Server, ListenError> {
    serve_bounded(address, posts, BOUNDS).await
}

async fn serve_bounded(
    address: SocketAddr,
    posts: Posts<impl Answerer>,
    bounds: Bounds,
) -> Result<Server, ListenError> {
    let name = posts.name;
    let failed = |source| ListenError { pages: name, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let posts = Arc::new(posts);
    let serve =
        move |stream, has_asked| serve_connection(stream, Arc::clone(&posts), bounds, has_asked);
    let server = server::start(listener, bounds.limits, serve).map_err(failed)?;
    tracing::info!(address = %server.address(), "serving {name}");
    Ok(server)
}

async fn serve_connection<A: Answerer>(
    stream: TcpStream,
    posts: Arc<Posts<A>>,
    bounds: Bounds,
    has_asked: HasAsked,
) {
    let Some(stream) = shake_hands(&posts.tls, stream, bounds.handshake).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.set();
        let posts = Arc::clone(&posts);
        async move { Ok::<_, Infallible>(answer(&posts, bounds, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.limits.head)
        .keep_alive(bounds.limits.keep_alive)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client that posts documents failed");
    }
}

/// The connection to a client that has finished the TLS handshake in time.
async fn shake_hands(
    tls: &Tls,
    stream: TcpStream,
    within: Duration,
) -> Option<TlsStream<TcpStream>> {
    let handshake = async { timeout(within, tls.accept(stream)).await? };
    let accepted = handshake.await;
    accepted
        .inspect_err(|error| tracing::debug!(%error, "a client that posts documents does not begin TLS as expected"))
        .ok()
}

async fn answer<A: Answerer>(
    posts: &Posts<A>,
    bounds: Bounds,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != posts.path {
        return refused(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED);
    }
    let document = Limited::new(request.into_body(), bounds.largest).collect();
    match timeout(bounds.arrival, document).await {
        Err(_) => refused(StatusCode::REQUEST_TIMEOUT),
        Ok(Err(_)) => refused(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Ok(document)) => {
            let answer = posts.answerer.answer(&document.to_bytes());
            let mut response = Response::new(Full::new(Bytes::from(answer)));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
    }
}

fn refused(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream as ClientStream;

    use crate::tls::{Certificate, Pem};

    /// Answers with the length of the document.
    struct Length;

    impl Answerer for Length {
        fn answer(&self, document: &[u8]) -> Vec<u8> {
            document.len().to_string().into_bytes()
        }
    }

    async fn served() -> (Server, TlsConnector) {
        served_within(BOUNDS).await
    }

    async fn served_within(bounds: Bounds) -> (Server, TlsConnector) {
        let pair = Pem::self_signed("127.0.0.1", (2020, 1, 1), (2999, 1, 1)).unwrap();
        let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
        tls.replace(&pair).unwrap();
        let posts = Posts { name: "test", path: "/here", tls, answerer: Length };
        let server = serve_bounded(([127, 0, 0, 1], 0).into(), posts, bounds).await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, TlsConnector::from(Arc::new(client)))
    }

    /// A connection from an address of loopback that ends in this number; an error if it is refused.
    async fn connection(
        server: &Server,
        client: &TlsConnector,
        from: u8,
    ) -> std::io::Result<ClientStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, from], 0).into())?;
        let stream = socket.connect(server.address()).await?;
        client.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
    }

    /// What the server answers to this text on one connection, until it closes it.
    async fn answers(server: &Server, client: &TlsConnector, text: &[u8]) -> String {
        let mut stream = connection(server, client, 1).await.unwrap();
        // A server that refuses a document need not read it to its end.
        let _ = stream.write_all(text).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn documents_are_answered_one_after_the_other_and_nothing_else_is() {
        let (server, client) = served().await;
        let first = "POST /here HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let last =
            "POST /here HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabcde";
        let both = answers(&server, &client, format!("{first}{last}").as_bytes()).await;
        assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2, "{both}");
        assert!(both.contains("\r\n\r\n3HTTP") && both.ends_with("\r\n\r\n5"), "{both}");
        let close = "Host: a\r\nConnection: close\r\n";
        let rows = [
            (format!("GET /here HTTP/1.1\r\n{close}\r\n"), "405"),
            (format!("POST /there HTTP/1.1\r\n{close}Content-Length: 1\r\n\r\na"), "404"),
            (format!("POST /here HTTP/1.1\r\n{close}Content-Length: 99\r\n\r\n"), "408"),
        ];
        for (request, status) in rows {
            let answer = answers(&server, &client, request.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        }
        server.stop().await;
    }

    #[tokio::test]
    async fn a_document_that_is_too_large_is_refused() {
        let (server, client) = served().await;
        let head = format!(
            "POST /here HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            BOUNDS.largest + 1
        );
        let request = [head.into_bytes(), vec![b'a'; BOUNDS.largest + 1]].concat();
        let answer = answers(&server, &client, &request).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        server.stop().await;
    }

    /// A whole document of one letter, and the head of one whose letters never come.
    const WHOLE: &[u8] =
        b"POST /here HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\na";
    const SLOW: &[u8] = b"POST /here HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n";

    /// Bounds without an end to waiting, so that a server that waits for a slow client waits for ever.
    fn patient(connections: usize, per_client: usize) -> Bounds {
        let hour = Duration::from_secs(3600);
        let limits = Limits { connections, per_client, head: hour, ..BOUNDS.limits };
        Bounds { arrival: hour, handshake: hour, limits, ..BOUNDS }
    }

    /// The answer to a whole document. A minute is no assertion about time: without an answer the test fails.
    async fn answered(server: &Server, client: &TlsConnector) -> String {
        let minute = Duration::from_secs(60);
        timeout(minute, answers(server, client, WHOLE)).await.expect("an answer")
    }

    #[tokio::test]
    async fn a_document_is_answered_while_others_arrive_slowly() {
        let (server, client) = served_within(patient(64, 24)).await;
        let mut slow = Vec::new();
        for number in 0..40 {
            let mut stream = connection(&server, &client, 2 + number % 2).await.unwrap();
            stream.write_all(SLOW).await.unwrap();
            slow.push(stream);
        }
        let answer = answered(&server, &client).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("\r\n\r\n1"), "{answer}");
        drop(slow);
        server.stop().await;
    }

    #[tokio::test]
    async fn one_client_does_not_get_all_connections() {
        const SHARE: usize = 3;
        let (server, client) = served_within(patient(8, SHARE)).await;
        let mut open = Vec::new();
        for _ in 0..SHARE {
            let mut stream = connection(&server, &client, 2).await.unwrap();
            stream.write_all(SLOW).await.unwrap();
            open.push(stream);
        }
        assert!(connection(&server, &client, 2).await.is_err(), "it has its share");
        assert!(answered(&server, &client).await.starts_with("HTTP/1.1 200 OK"));
        // Once it closes one, it may open another.
        open.pop();
        let again = async {
            while connection(&server, &client, 2).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), again).await.expect("a connection");
        server.stop().await;
    }
}
