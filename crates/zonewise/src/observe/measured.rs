//! Flags of commands that use what was measured, and prices.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use zonewise_cluster::prometheus::{Prometheus, Server};
use zonewise_common::similar::closest;
use zonewise_explain::{PROVIDERS, Tariff};

use crate::args::Usage;

/// Time for an answer of Prometheus.
const LIMIT: Duration = Duration::from_secs(30);

/// A Prometheus that has the metrics of the proxies.
#[derive(Args)]
pub(crate) struct PrometheusFlags {
    /// Prometheus that scrapes the proxies, such as http://127.0.0.1:9090
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// File with a bearer token for it
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_token_file: Option<PathBuf>,
    /// File with the certificates of authorities for it
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_ca_file: Option<PathBuf>,
    /// Tenant of it, the header X-Scope-OrgID
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

/// What a gigabyte costs.
#[derive(Args)]
pub(crate) struct PriceFlags {
    /// Price of a GB that crosses zones, both directions together (0.02 for 2 cents)
    #[arg(long, value_name = "MONEY", value_parser = amount, allow_negative_numbers = true)]
    cost_per_gb: Option<f64>,
    /// List prices of a provider instead: aws, azure or gcp
    #[arg(long, value_name = "NAME", conflicts_with = "cost_per_gb")]
    provider: Option<String>,
}

impl PriceFlags {
    /// The tariff, if one is given.
    pub(crate) fn tariff(&self) -> Result<Option<Tariff>, Usage> {
        let Some(name) = &self.provider else { return Ok(self.cost_per_gb.map(Tariff::flat)) };
        let names = PROVIDERS.map(|tariff| tariff.name);
        let tariff = Tariff::of(name).ok_or_else(|| {
            let meant = closest(name, names).map_or_else(
                || format!("there are {}", names.join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            Usage(format!(
                "no prices of provider `{name}` are known; {meant}, or pass --cost-per-gb"
            ))
        });
        tariff.map(Some)
    }
}

pub(super) fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("invalid amount `{text}`: use a number of at least 0"))
}
