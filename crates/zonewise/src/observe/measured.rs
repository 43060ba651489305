//! The Prometheus that has what was measured, on the command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use zonewise_cluster::prometheus::{Prometheus, Server};

use crate::args::Usage;

/// Time for an answer of Prometheus.
const LIMIT: Duration = Duration::from_secs(30);

/// A Prometheus that has the metrics of the proxies.
#[derive(Args)]
pub(crate) struct PrometheusFlags {
    /// Prometheus that scrapes the proxies, such as http://127.0.0.1:9090
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// File with a bearer token for Prometheus
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_token_file: Option<PathBuf>,
    /// PEM file with the CA certificates that verify Prometheus
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_ca_file: Option<PathBuf>,
    /// Tenant, sent to Prometheus in the header X-Scope-OrgID
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    prometheus_tenant: Option<String>,
}

impl PrometheusFlags {
    /// A client, and the address. Has to be called in a runtime.
    pub(crate) fn client(&self) -> Result<Option<(Prometheus, String)>> {
        let Some(url) = &self.prometheus else { return Ok(None) };
        let server = Server {
            url: url.trim_end_matches('/').to_owned(),
            bearer_token_file: self.prometheus_token_file.clone(),
            ca_file: self.prometheus_ca_file.clone(),
            tenant: self.prometheus_tenant.clone(),
            limit: LIMIT,
        };
        server.check().map_err(|error| Usage(error.to_string()))?;
        Ok(Some((Prometheus::new(server)?, url.clone())))
    }

    /// Whether one is given.
    pub(crate) fn is_given(&self) -> bool {
        self.prometheus.is_some()
    }
}
