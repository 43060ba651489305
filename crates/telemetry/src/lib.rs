//! Logs, metrics, the health and metrics server, shutdown, configuration files: the same for every
//! long-running command.
//!
//! ```text
//!  log       events ─► standard error, as text or JSON
//!  metrics   counters, gauges, histograms, values computed when asked ─► Prometheus text
//!  checks    what must hold for the process to be alive, and to be ready
//!  health    /healthz /livez /readyz /metrics over HTTP, for both of the above
//!  server    what health and other pages are served with
//!  file      a configuration file ─► what it says, or what is wrong and where
//!  shutdown  SIGTERM, SIGINT ─► down ─► forced (second signal, or time is up)
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
//! let server = health::serve(([0, 0, 0, 0], 8080).into(), registry, checks, &shutdown).await?;
//!
//! watching.set(Ok(()));
//! shutdown.wait().await;
//! let _drained = shutdown.grace(async { /* finish what was begun */ }).await;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

pub mod checks;
pub mod file;
pub mod health;
pub mod log;
pub mod metrics;
pub mod server;
pub mod shutdown;
