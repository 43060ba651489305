//! The servers of health and metrics over real sockets, with hand-written HTTP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use zonewise_telemetry::checks::Checks;
use zonewise_telemetry::health::{self, Server};
use zonewise_telemetry::metrics::Registry;
use zonewise_telemetry::server::{self, AccessControl, Page, PageRequest, Protection};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_telemetry::tls::{Certificate, Tls};

struct TestServer {
    checks: Checks,
    shutdown: Shutdown,
    server: Server,
}

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn start() -> TestServer {
    let (checks, shutdown) = (Checks::default(), Shutdown::manual());
    let server = health::serve(ANY_PORT, checks.clone(), &shutdown).await.unwrap();
    assert_ne!(server.address().port(), 0);
    TestServer { checks, shutdown, server }
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

/// Status and body. The read ends because the server closes the connection.
async fn request(test: &TestServer, method: &str, path: &str) -> (u16, String) {
    let text = format!("{method} {path} HTTP/1.1\r\nHost: zonewise\r\n\r\n");
    let response = exchange(test.server.address(), &text).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(test: &TestServer, path: &str) -> (u16, String) {
    request(test, "GET", path).await
}

#[tokio::test]
async fn health_is_ok_or_names_the_failed_check() {
    let test = start().await;
    for path in ["/healthz", "/livez", "/healthz?verbosely=1"] {
        assert_eq!(get(&test, path).await, (200, "ok".to_owned()));
    }
    let verbose = "[+]ping ok\nlivez check passed\n".to_owned();
    assert_eq!(get(&test, "/livez?a=b&verbose").await, (200, verbose.clone()));
    assert_eq!(get(&test, "/livez?verbose=true").await, (200, verbose));

    test.checks.liveness("main loop", || Err("stuck".to_owned()));
    let failed = "[+]ping ok\n[-]main loop failed: stuck\nhealthz check failed\n".to_owned();
    assert_eq!(get(&test, "/healthz").await, (500, failed));
}

#[tokio::test]
async fn ready_when_every_component_is_and_not_while_shutting_down() {
    let test = start().await;
    let pods = test.checks.readiness("watch pods");
    let lines = |pods: &str, shutdown: &str, verdict: &str| {
        format!("[+]ping ok\n{shutdown}\n{pods}\nreadyz check {verdict}\n")
    };
    let up = "[+]shutdown ok";
    let not_yet = lines("[-]watch pods failed: not yet", up, "failed");
    assert_eq!(get(&test, "/readyz").await, (500, not_yet));

    pods.set(Ok(()));
    assert_eq!(get(&test, "/readyz").await, (200, "ok".to_owned()));
    let ready = lines("[+]watch pods ok", up, "passed");
    assert_eq!(get(&test, "/readyz?verbose").await, (200, ready));

    pods.set(Err("410 Gone"));
    let gone = lines("[-]watch pods failed: 410 Gone", up, "failed");
    assert_eq!(get(&test, "/readyz").await, (500, gone));

    pods.set(Ok(()));
    test.shutdown.trigger();
    let down = lines("[+]watch pods ok", "[-]shutdown failed: shutting down", "failed");
    assert_eq!(get(&test, "/readyz").await, (500, down));
    assert_eq!(get(&test, "/healthz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn metrics_with_their_content_type_and_nothing_else() {
    let registry = Registry::default();
    registry.counter("syncs", "Syncs.", []).unwrap().with([]).add(3);
    let server = health::serve_metrics(ANY_PORT, registry, None).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: zonewise\r\n\r\n";
    let response = exchange(server.address(), request).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let kind = "\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(response.contains(kind), "{response}");
    let page = "\r\n\r\n# HELP syncs Syncs.\n# TYPE syncs counter\nsyncs 3\n";
    assert!(response.ends_with(page), "{response}");
    for (method, path, expected) in [("POST", "/metrics", "405"), ("GET", "/healthz", "404")] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: zonewise\r\n\r\n");
        let response = exchange(server.address(), &request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {expected} ")), "{path}: {response}");
    }
}

/// Refuses everybody.
struct Nobody;

impl AccessControl for Nobody {
    fn admit<'a>(
        &'a self,
        _: PageRequest<'a>,
        _: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        Box::pin(async { Err(Page::text(403, "nobody\n")) })
    }
}

#[tokio::test]
async fn protected_pages_are_not_served_to_those_who_do_not_speak_tls() {
    let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
    let protection = Protection { tls, access: Arc::new(Nobody) };
    let registry = Registry::default();
    let server = health::serve_metrics(ANY_PORT, registry, Some(protection)).await.unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: zonewise\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The connection may be reset instead of closed.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
}

/// Admits those who have the token `good`.
struct ByToken;

impl AccessControl for ByToken {
    fn admit<'a>(
        &'a self,
        _: PageRequest<'a>,
        token: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        let admitted = token == Some("good");
        Box::pin(async move { if admitted { Ok(()) } else { Err(Page::text(401, "who?\n")) } })
    }
}

/// Whoever is admitted asks again on the same connection; whoever is not has to come again.
#[tokio::test]
async fn connections_of_those_who_are_admitted_are_kept() {
    let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
    let protection = Protection { tls, access: Arc::new(ByToken) };
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let page = |_: PageRequest<'_>| Page::text(200, "page");
    let server = server::serve_kept(listener, page, protection).unwrap();
    let request =
        |token: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
    let all = [request("good"), request("good"), request("bad"), request("good")].concat();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = trusting().connect(name, stream).await.unwrap();
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers).await;
    let answers = String::from_utf8(answers).unwrap();
    let statuses: Vec<&str> =
        answers.matches("HTTP/1.1 200").chain(answers.matches("HTTP/1.1 401")).collect();
    assert_eq!(statuses.len(), 3, "two pages and a refusal, after which it is over: {answers}");
    assert!(answers.contains("connection: close"), "{answers}");
    server.stop().await;
}

/// Accepts any certificate.
fn trusting() -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn other_pages_and_methods() {
    let test = start().await;
    for path in ["/", "/healthz/", "/metrics", "/debug/pprof"] {
        assert_eq!(get(&test, path).await.0, 404, "{path}");
    }
    assert_eq!(request(&test, "HEAD", "/healthz").await, (200, String::new()));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(request(&test, method, "/healthz").await.0, 405, "{method}");
        assert_eq!(request(&test, method, "/nowhere").await.0, 404, "{method}");
    }
    let request = "POST /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    let refused = exchange(test.server.address(), request).await;
    assert!(refused.contains("\r\nallow: GET, HEAD\r\n"), "{refused}");
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let test = start().await;
    let response = exchange(test.server.address(), "not http at all\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(get(&test, "/healthz").await.0, 200);
}

#[tokio::test]
async fn many_probes_at_once() {
    let test = std::sync::Arc::new(start().await);
    let mut probes = tokio::task::JoinSet::new();
    // More than the server accepts at once, and few enough for the kernel's queue.
    for _ in 0..100 {
        let test = std::sync::Arc::clone(&test);
        probes.spawn(async move { get(&test, "/healthz").await });
    }
    assert!(probes.join_all().await.into_iter().all(|answer| answer == (200, "ok".to_owned())));
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let test = start().await;
    let address = test.server.address();
    let error =
        health::serve(address, Checks::default(), &test.shutdown).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} for health")), "{error}");
    test.server.stop().await;
}
