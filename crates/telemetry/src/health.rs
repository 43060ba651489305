//! The servers of health and of metrics.
//!
//! ```text
//!  /healthz /livez  liveness: 200 "ok", or 500 with a line per check            ┐ for the kubelet,
//!  /readyz          readiness: the same, and fails while the process shuts down ┘ open to all
//!
//!  /metrics         the registry as Prometheus text                               with a protection, if need be
//! ```
//!
//! With `?verbose` the checks are also listed when all pass. Metrics have a port of their own, because they tell the
//! names of Services, which probes do not.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::checks::{Checks, Probe};
use crate::metrics::{self, Registry};
pub use crate::server::Server;
use crate::server::{self, LIMITS, Limits, Page, PageHandler, PageRequest, Pages, Protection};
use crate::shutdown::Shutdown;

/// The server could not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for {pages}: {source}; free the port or configure another address"
)]
pub struct ListenError {
    /// What it should have served: health or metrics.
    pub pages: &'static str,
    /// The address it should have listened on.
    pub address: SocketAddr,
    /// The error of the operating system.
    pub source: io::Error,
}

/// Serves health. While the process shuts down, `/readyz` fails and the server keeps running.
///
/// # Errors
/// If it cannot listen on the address.
pub async fn serve(
    address: SocketAddr,
    checks: Checks,
    shutdown: &Shutdown,
) -> Result<Server, ListenError> {
    let shutdown = shutdown.clone();
    checks.readiness_when("shutdown", move || {
        if shutdown.is_down() { Err("shutting down".to_owned()) } else { Ok(()) }
    });
    listen(address, "health", Pages { handler: HealthPages { checks }, protection: None }, LIMITS)
        .await
}

/// Serves metrics; with a protection not to everybody.
///
/// # Errors
/// If it cannot listen on the address.
pub async fn serve_metrics(
    address: SocketAddr,
    registry: Registry,
    protection: Option<Protection>,
) -> Result<Server, ListenError> {
    let pages = Pages { handler: MetricsPage { registry }, protection };
    listen(address, "metrics", pages, LIMITS).await
}

async fn listen(
    address: SocketAddr,
    name: &'static str,
    pages: Pages<impl PageHandler>,
    limits: Limits,
) -> Result<Server, ListenError> {
    let failed = |source| ListenError { pages: name, address, source };
    let protected = pages.protection.is_some();
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let server = server::serve_limited(listener, pages, limits).map_err(failed)?;
    tracing::info!(address = %server.address(), protected, "serving {name}");
    Ok(server)
}

struct HealthPages {
    checks: Checks,
}

impl PageHandler for HealthPages {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        match request.path {
            "/healthz" => self.health(request, "healthz", Probe::Liveness),
            "/livez" => self.health(request, "livez", Probe::Liveness),
            "/readyz" => self.health(request, "readyz", Probe::Readiness),
            _ => Page::not_found(),
        }
    }
}

impl HealthPages {
    fn health(&self, request: PageRequest<'_>, endpoint: &str, probe: Probe) -> Page {
        Page::read_only(request, || {
            let report = self.checks.run(probe);
            match (report.passed(), is_verbose(request.query)) {
                (true, false) => Page::text(200, "ok"),
                (true, true) => Page::text(200, report.text(endpoint)),
                (false, _) => Page::text(500, report.text(endpoint)),
            }
        })
    }
}

struct MetricsPage {
    registry: Registry,
}

impl PageHandler for MetricsPage {
    fn handle(&self, request: PageRequest<'_>) -> Page {
        match request.path {
            "/metrics" => Page::read_only(request, || {
                Page::new(200, metrics::CONTENT_TYPE, self.registry.text())
            }),
            _ => Page::not_found(),
        }
    }
}

fn is_verbose(query: &str) -> bool {
    query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"))
}

#[cfg(test)]
mod tests {
    //! Slow clients on a paused clock: time passes at once while all tasks wait.

    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::Instant;

    use super::*;

    /// A server whose page is large.
    async fn server(limits: Limits) -> Server {
        let registry = Registry::default();
        let help = "Too much for the socket's buffers.";
        registry
            .collect("big", help, metrics::Kind::Gauge, ["n"], |samples| {
                (0..200_000).for_each(|n| samples.push([&format!("{n:0>64}")], 1.0));
            })
            .unwrap();
        let pages = Pages { handler: MetricsPage { registry }, protection: None };
        listen(([127, 0, 0, 1], 0).into(), "metrics", pages, limits).await.unwrap()
    }

    async fn until_closed(mut client: TcpStream) -> String {
        let mut text = Vec::new();
        // A reset ends the connection as well as a close does.
        let _ = client.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_finishes_its_request_is_disconnected() {
        let server = server(LIMITS).await;
        let start = Instant::now();
        let mut client = TcpStream::connect(server.address()).await.unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
        assert!(!until_closed(client).await.contains("200 OK"));
        assert!(start.elapsed() >= LIMITS.head && start.elapsed() < LIMITS.total);
        server.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_the_response_is_disconnected() {
        let server = server(LIMITS).await;
        let mut client = TcpStream::connect(server.address()).await.unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        tokio::time::sleep(LIMITS.total + LIMITS.head).await;
        let page = until_closed(client).await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && !page.ends_with("} 1\n"));
        server.stop().await;
    }

    /// They would stay open for an hour, but one of them is closed for each that comes.
    #[tokio::test]
    async fn a_thousand_idle_clients_keep_no_probe_out() {
        let hour = Duration::from_secs(3600);
        let limits = Limits { head: hour, total: hour, ..LIMITS };
        let handler = HealthPages { checks: Checks::default() };
        let pages = Pages { handler, protection: None };
        let server = listen(([127, 0, 0, 1], 0).into(), "health", pages, limits).await.unwrap();
        let mut idle = Vec::new();
        for _ in 0..1000 {
            idle.push(TcpStream::connect(server.address()).await.unwrap());
        }
        let mut probe = TcpStream::connect(server.address()).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(until_closed(probe).await.ends_with("\r\n\r\nok"));
        server.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_waits_briefly_for_clients_and_closes_the_port() {
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
