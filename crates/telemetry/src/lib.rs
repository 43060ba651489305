//! Logs, metrics, the health and metrics server, shutdown and configuration files, shared by all
//! long-running commands.
//!
//! ```text
//!  log       events ─► standard error, as text or JSON
//!  metrics   counters, gauges, histograms, values computed on each scrape ─► Prometheus text
//!  checks    liveness and readiness checks of the process
//!  health    /healthz /livez /readyz over HTTP, and /metrics on a port of its own
//!  server    the HTTP server of these and other pages, and their protection
//!  posts     an HTTPS server for documents that programs post
//!  web       an HTTP server for a page of people, whose answers may go on
//!  tls       the certificate of protected pages and of that server
//!  file      a configuration file ─► its contents, or an error with line and column
//!  shutdown  SIGTERM, SIGINT ─► shutting down ─► forced (second signal, or the grace period is over)
//! ```
//!
//! ```no_run
//! # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use zonewise_telemetry::{checks::Checks, health, log, metrics, shutdown::Shutdown};
//!
//! log::start(log::Format::Text, "info")?;
//! let shutdown = Shutdown::on_signals(Duration::from_secs(20))?;
//! let (registry, checks) = (metrics::Registry::default(), Checks::default());
//! metrics::process(&registry, "1.2.3")?;
//! let watching = checks.readiness("watch pods");
//! let server = health::serve(([0, 0, 0, 0], 8080).into(), checks, &shutdown).await?;
//! let metrics = health::serve_metrics(([127, 0, 0, 1], 8081).into(), registry, None).await?;
//!
//! watching.set(Ok(()));
//! shutdown.wait().await;
//! let _drained = shutdown.grace(async { /* finish the work in progress */ }).await;
//! metrics.stop().await;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod checks;
mod connections;
pub mod file;
pub mod health;
pub mod log;
pub mod metrics;
mod patience;
pub mod posts;
pub mod server;
pub mod shutdown;
pub mod tls;
pub mod web;
