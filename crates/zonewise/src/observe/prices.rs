//! What traffic that crosses zones costs, on the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use zonewise_common::duration::ConfigDuration;
use zonewise_common::similar::closest;
use zonewise_explain::top::flows;
use zonewise_explain::{LIST_PRICES, Measured, Prices, Tariff};

use super::measured::PrometheusFlags;
use crate::args::Usage;

/// What a gigabyte costs.
#[derive(Args)]
pub(crate) struct TariffFlags {
    /// Price of a GB that crosses zones, both directions together (0.02 for 2 cents)
    #[arg(long, value_name = "MONEY", value_parser = amount, allow_negative_numbers = true)]
    cost_per_gb: Option<f64>,
    /// Prices of a provider instead: aws, azure or gcp, or a name in the file of --prices
    #[arg(long, value_name = "NAME", conflicts_with = "cost_per_gb")]
    provider: Option<String>,
    /// CSV file with your own prices, in place of the list prices (docs/cost.md has the format)
    #[arg(long, value_name = "FILE", conflicts_with = "cost_per_gb")]
    prices: Option<PathBuf>,
}

impl TariffFlags {
    /// The tariff, if one is given.
    pub(crate) fn tariff(&self) -> Result<Option<Tariff>> {
        if self.provider.is_none() && self.prices.is_none() {
            return Ok(self.cost_per_gb.map(Tariff::flat));
        }
        let tariffs = match &self.prices {
            None => Tariff::read("the list prices", LIST_PRICES)?,
            Some(file) => {
                let (name, text) = read_text(file)?;
                Tariff::read(&name, &text)?
            }
        };
        Ok(Some(self.choose(tariffs)?))
    }

    /// The tariff of the provider. A table with one line needs no name.
    fn choose(&self, mut tariffs: Vec<Tariff>) -> Result<Tariff, Usage> {
        let at = match &self.provider {
            Some(provider) => tariffs.iter().position(|tariff| *tariff.name == **provider),
            None => (tariffs.len() == 1).then_some(0),
        };
        if let Some(at) = at {
            return Ok(tariffs.swap_remove(at));
        }
        let names: Vec<&str> = tariffs.iter().map(|tariff| &*tariff.name).collect();
        Err(Usage(match &self.provider {
            None => {
                format!("--prices has several lines: pass --provider, one of {}", names.join(", "))
            }
            Some(provider) => {
                let meant = closest(provider, names.iter().copied()).map_or_else(
                    || format!("there are {}", names.join(", ")),
                    |meant| format!("did you mean {meant}?"),
                );
                format!(
                    "no prices of provider `{provider}` are known; {meant}, or pass --cost-per-gb or --prices"
                )
            }
        }))
    }
}

/// The name of a file for messages, and its text.
fn read_text(file: &Path) -> Result<(String, String)> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    Ok((name, text))
}

/// What a gigabyte costs, and how many gigabytes there are.
#[derive(Args)]
pub(crate) struct PriceFlags {
    #[command(flatten)]
    tariff: TariffFlags,
    /// GB per month that each Service sends and receives
    #[arg(long, value_name = "GB", value_parser = amount, allow_negative_numbers = true)]
    gb: Option<f64>,
    /// CSV file with the bytes per month of each Service: lines of `namespace/service,bytes`
    #[arg(long, value_name = "FILE")]
    bytes: Option<PathBuf>,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    /// Period of Prometheus' data from which a month is projected
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "prometheus")]
    window: ConfigDuration,
}

impl PriceFlags {
    /// The prices; `None` without any.
    pub(crate) fn prices(&self) -> Result<Option<Prices>> {
        let Some(tariff) = self.tariff_with_amounts()? else { return Ok(None) };
        let measured = measured(&self.prometheus, self.window.0)?;
        Ok(Some(Prices { tariff, gb: self.gb, bytes: self.bytes()?, measured }))
    }

    /// The tariff; refuses one without amounts, and amounts without one.
    fn tariff_with_amounts(&self) -> Result<Option<Tariff>> {
        let amounts = self.gb.is_some() || self.bytes.is_some() || self.prometheus.is_given();
        let message = match (self.tariff.tariff()?, amounts) {
            (Some(tariff), true) => return Ok(Some(tariff)),
            (None, false) => return Ok(None),
            (Some(_), false) => {
                "a price needs an amount: --gb (GB per Service and month), --bytes FILE, or --prometheus URL for what was \
                 measured"
            }
            (None, true) => {
                "--gb, --bytes and --prometheus need a price: --cost-per-gb, --provider or --prices"
            }
        };
        Err(Usage(message.into()).into())
    }

    fn bytes(&self) -> Result<BTreeMap<String, f64>> {
        let Some(file) = &self.bytes else { return Ok(Default::default()) };
        let (name, text) = read_text(file)?;
        Ok(Prices::read_bytes(&name, &text)?)
    }
}

/// What a Prometheus has of the last so much time.
fn measured(prometheus: &PrometheusFlags, window: Duration) -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Some((prometheus, url)) = prometheus.client()? else { return Ok(Measured::default()) };
        Ok(flows::of_prometheus(&prometheus, &url, window).await?.measured())
    })
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("invalid amount `{text}`: use a number of at least 0"))
}
