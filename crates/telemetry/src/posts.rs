//! A small HTTPS server for documents that programs post, such as the reviews of an API server.
//!
//! ```text
//!  TcpListener ─► TLS ─ each POST, one after the other ─► Answerer::answer(document) ─► answer
//! ```
//!
//! Connections are kept, because a client that posts once posts again, and a greeting costs more than an answer. Bounds:
//! connections, requests that are read and answered at once, the size of a document and the time for it.

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
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::connections::HasAsked;
use crate::health::ListenError;
use crate::server::{self, Limits, Server};
use crate::tls::Tls;

/// The largest document that is read. An object of Kubernetes has at most 1.5 MiB, and a review has two of them.
const LARGEST: usize = 4 * 1024 * 1024;
/// Documents that are read and answered at once; others wait.
const AT_ONCE: usize = 16;
/// Time for one document to arrive.
const ARRIVAL: Duration = Duration::from_secs(2);
const LIMITS: Limits = Limits {
    connections: 256,
    // Also how long a connection stays open on which nothing is asked.
    head: Duration::from_secs(60),
    total: Duration::MAX,
    drain: Duration::from_secs(1),
};
/// Time for the greeting.
const GREETING: Duration = Duration::from_secs(2);

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
    let name = posts.name;
    let failed = |source| ListenError { pages: name, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let shared = Arc::new((posts, Semaphore::new(AT_ONCE)));
    let serve = move |stream, has_asked| serve_connection(stream, Arc::clone(&shared), has_asked);
    let server = server::start(listener, LIMITS, serve).map_err(failed)?;
    tracing::info!(address = %server.address(), "serving {name}");
    Ok(server)
}

type Shared<A> = Arc<(Posts<A>, Semaphore)>;

async fn serve_connection<A: Answerer>(stream: TcpStream, shared: Shared<A>, has_asked: HasAsked) {
    let Some(stream) = greeted(&shared.0.tls, stream).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.set();
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LIMITS.head)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client that posts documents failed");
    }
}

/// The connection to a client that has greeted in time.
async fn greeted(tls: &Tls, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let greeting = async { timeout(GREETING, tls.accept(stream)).await? };
    let greeted = greeting.await;
    greeted
        .inspect_err(|error| tracing::debug!(%error, "a client that posts documents does not begin TLS as expected"))
        .ok()
}

async fn answer<A: Answerer>(
    (posts, at_once): &(Posts<A>, Semaphore),
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != posts.path {
        return refused(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Ok(_place) = at_once.acquire().await else {
        return refused(StatusCode::SERVICE_UNAVAILABLE);
    };
    let document = Limited::new(request.into_body(), LARGEST).collect();
    match timeout(ARRIVAL, document).await {
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
    use tokio_rustls::TlsConnector;

    use crate::tls::{Certificate, Pem};

    /// Answers with the length of the document.
    struct Length;

    impl Answerer for Length {
        fn answer(&self, document: &[u8]) -> Vec<u8> {
            document.len().to_string().into_bytes()
        }
    }

    async fn served() -> (Server, TlsConnector) {
        let pair = Pem::self_signed("127.0.0.1", (2020, 1, 1), (2999, 1, 1)).unwrap();
        let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
        tls.replace(&pair).unwrap();
        let posts = Posts { name: "test", path: "/here", tls, answerer: Length };
        let server = serve(([127, 0, 0, 1], 0).into(), posts).await.unwrap();
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

    /// What the server answers to this text on one connection, until it closes it.
    async fn answers(server: &Server, client: &TlsConnector, text: &[u8]) -> String {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = client.connect(host, stream).await.unwrap();
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
            LARGEST + 1
        );
        let request = [head.into_bytes(), vec![b'a'; LARGEST + 1]].concat();
        let answer = answers(&server, &client, &request).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        server.stop().await;
    }
}
