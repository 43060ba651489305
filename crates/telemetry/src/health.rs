//! The health and metrics server.
//!
//! ```text
//!  /healthz /livez  200 "ok", or 500 with a line per check      is it alive?
//!  /readyz          the same, and fails while going down        can it work?
//!  /metrics         the registry as Prometheus text
//! ```
//!
//! `?verbose` lists the checks also when all pass.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::checks::{Checks, Question};
use crate::metrics::{self, Registry};
pub use crate::server::Server;
use crate::server::{self, Ask, LIMITS, Limits, Page};
use crate::shutdown::Shutdown;

/// The server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics: {source}; free it or choose another")]
pub struct ListenError {
    /// Where it should have listened.
    pub address: SocketAddr,
    /// Why it could not.
    pub source: io::Error,
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
    let server = server::limited(listener, site, limits).map_err(failed)?;
    tracing::info!(address = %server.address(), "health and metrics");
    Ok(server)
}

/// What there is to see.
struct Site {
    registry: Registry,
    checks: Checks,
}

impl server::Site for Site {
    fn answer(&self, ask: Ask<'_>) -> Page {
        match ask.path {
            "/healthz" => self.health(ask, "healthz", Question::Live),
            "/livez" => self.health(ask, "livez", Question::Live),
            "/readyz" => self.health(ask, "readyz", Question::Ready),
            "/metrics" => {
                Page::read_only(ask, || Page::new(200, metrics::CONTENT_TYPE, self.registry.text()))
            }
            _ => Page::not_found(),
        }
    }
}

impl Site {
    fn health(&self, ask: Ask<'_>, endpoint: &str, question: Question) -> Page {
        Page::read_only(ask, || {
            let report = self.checks.ask(question);
            match (report.passed(), is_verbose(ask.query)) {
                (true, false) => Page::text(200, "ok"),
                (true, true) => Page::text(200, report.text(endpoint)),
                (false, _) => Page::text(500, report.text(endpoint)),
            }
        })
    }
}

fn is_verbose(query: &str) -> bool {
    query.split('&').any(|parameter| parameter.split('=').next() == Some("verbose"))
}

#[cfg(test)]
mod tests {
    //! Slow clients, on a paused clock: hours pass at once when nobody has anything to do.

    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
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
