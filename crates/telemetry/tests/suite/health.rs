//! The health and metrics server over a real socket, with hand-written HTTP.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zonewise_telemetry::checks::Checks;
use zonewise_telemetry::health::{self, Server};
use zonewise_telemetry::metrics::Registry;
use zonewise_telemetry::shutdown::Shutdown;

struct TestServer {
    registry: Registry,
    checks: Checks,
    shutdown: Shutdown,
    server: Server,
}

async fn start() -> TestServer {
    let (registry, checks) = (Registry::default(), Checks::default());
    let shutdown = Shutdown::manual();
    let address = ([127, 0, 0, 1], 0).into();
    let server = health::serve(address, registry.clone(), checks.clone(), &shutdown).await.unwrap();
    assert_ne!(server.address().port(), 0);
    TestServer { registry, checks, shutdown, server }
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
async fn metrics_with_their_content_type() {
    let test = start().await;
    test.registry.counter("syncs", "Syncs.", []).unwrap().with([]).add(3);
    let request = "GET /metrics HTTP/1.1\r\nHost: zonewise\r\n\r\n";
    let response = exchange(test.server.address(), request).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let kind = "\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(response.contains(kind), "{response}");
    let page = "\r\n\r\n# HELP syncs Syncs.\n# TYPE syncs counter\nsyncs 3\n";
    assert!(response.ends_with(page), "{response}");
}

#[tokio::test]
async fn other_pages_and_methods() {
    let test = start().await;
    for path in ["/", "/healthz/", "/metrics/x", "/debug/pprof"] {
        assert_eq!(get(&test, path).await.0, 404, "{path}");
    }
    assert_eq!(request(&test, "HEAD", "/healthz").await, (200, String::new()));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(request(&test, method, "/metrics").await.0, 405, "{method}");
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
    let error = health::serve(address, Registry::default(), Checks::default(), &test.shutdown)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} for health")), "{error}");
    test.server.stop().await;
}
