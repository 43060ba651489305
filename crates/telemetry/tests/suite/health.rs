//! The health and metrics server over a real socket, by hand-written HTTP.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zonewise_telemetry::checks::Checks;
use zonewise_telemetry::health::{self, Server};
use zonewise_telemetry::metrics::Registry;
use zonewise_telemetry::shutdown::Shutdown;

struct World {
    registry: Registry,
    checks: Checks,
    shutdown: Shutdown,
    server: Server,
}

async fn world() -> World {
    let (registry, checks) = (Registry::default(), Checks::default());
    let shutdown = Shutdown::manual();
    let address = ([127, 0, 0, 1], 0).into();
    let server = health::serve(address, registry.clone(), checks.clone(), &shutdown).await.unwrap();
    assert_ne!(server.address().port(), 0);
    World { registry, checks, shutdown, server }
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

/// Status and body. That the server closes is what ends the read.
async fn ask(world: &World, method: &str, path: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: zonewise\r\n\r\n");
    let response = exchange(world.server.address(), &request).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(world: &World, path: &str) -> (u16, String) {
    ask(world, "GET", path).await
}

#[tokio::test]
async fn health_is_ok_or_tells_why() {
    let world = world().await;
    for path in ["/healthz", "/livez", "/healthz?verbosely=1"] {
        assert_eq!(get(&world, path).await, (200, "ok".to_owned()));
    }
    let verbose = "[+]ping ok\nlivez check passed\n".to_owned();
    assert_eq!(get(&world, "/livez?a=b&verbose").await, (200, verbose.clone()));
    assert_eq!(get(&world, "/livez?verbose=true").await, (200, verbose));

    world.checks.liveness("main loop", || Err("stuck".to_owned()));
    let failed = "[+]ping ok\n[-]main loop failed: stuck\nhealthz check failed\n".to_owned();
    assert_eq!(get(&world, "/healthz").await, (500, failed));
}

#[tokio::test]
async fn ready_when_every_component_is_and_not_while_going_down() {
    let world = world().await;
    let pods = world.checks.readiness("watch pods");
    let lines = |pods: &str, shutdown: &str, verdict: &str| {
        format!("[+]ping ok\n{shutdown}\n{pods}\nreadyz check {verdict}\n")
    };
    let up = "[+]shutdown ok";
    let not_yet = lines("[-]watch pods failed: not yet", up, "failed");
    assert_eq!(get(&world, "/readyz").await, (500, not_yet));

    pods.set(Ok(()));
    assert_eq!(get(&world, "/readyz").await, (200, "ok".to_owned()));
    let ready = lines("[+]watch pods ok", up, "passed");
    assert_eq!(get(&world, "/readyz?verbose").await, (200, ready));

    pods.set(Err("410 Gone"));
    let gone = lines("[-]watch pods failed: 410 Gone", up, "failed");
    assert_eq!(get(&world, "/readyz").await, (500, gone));

    pods.set(Ok(()));
    world.shutdown.trigger();
    let down = lines("[+]watch pods ok", "[-]shutdown failed: going down", "failed");
    assert_eq!(get(&world, "/readyz").await, (500, down));
    assert_eq!(get(&world, "/healthz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn metrics_with_their_content_type() {
    let world = world().await;
    world.registry.counter("syncs", "Syncs.", []).unwrap().with([]).add(3);
    let request = "GET /metrics HTTP/1.1\r\nHost: zonewise\r\n\r\n";
    let response = exchange(world.server.address(), request).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let kind = "\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(response.contains(kind), "{response}");
    let page = "\r\n\r\n# HELP syncs Syncs.\n# TYPE syncs counter\nsyncs 3\n";
    assert!(response.ends_with(page), "{response}");
}

#[tokio::test]
async fn other_pages_and_methods() {
    let world = world().await;
    for path in ["/", "/healthz/", "/metrics/x", "/debug/pprof"] {
        assert_eq!(get(&world, path).await.0, 404, "{path}");
    }
    assert_eq!(ask(&world, "HEAD", "/healthz").await, (200, String::new()));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(ask(&world, method, "/metrics").await.0, 405, "{method}");
        assert_eq!(ask(&world, method, "/nowhere").await.0, 404, "{method}");
    }
    let request = "POST /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    let refused = exchange(world.server.address(), request).await;
    assert!(refused.contains("\r\nallow: GET, HEAD\r\n"), "{refused}");
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let world = world().await;
    let response = exchange(world.server.address(), "not http at all\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert_eq!(get(&world, "/healthz").await.0, 200);
}

#[tokio::test]
async fn many_probes_at_once() {
    let world = std::sync::Arc::new(world().await);
    let mut probes = tokio::task::JoinSet::new();
    // More than are served at once; few enough for the queue.
    for _ in 0..100 {
        let world = std::sync::Arc::clone(&world);
        probes.spawn(async move { get(&world, "/healthz").await });
    }
    assert!(probes.join_all().await.into_iter().all(|answer| answer == (200, "ok".to_owned())));
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let world = world().await;
    let address = world.server.address();
    let error = health::serve(address, Registry::default(), Checks::default(), &world.shutdown)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} for health")), "{error}");
    world.server.stop().await;
}
