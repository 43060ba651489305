//! Logs, metrics, the health and metrics server, shutdown.
