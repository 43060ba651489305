//! `zonewise top`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use zonewise_cluster::connect::{Connection, connect_to_context};
use zonewise_common::document::Document;
use zonewise_common::duration::ConfigDuration;
use zonewise_explain::top::{Flows, Top, TopBy, flows, sort_top, top};
use zonewise_explain::{Pricing, screens};

use super::measured::PrometheusFlags;
use super::prices::TariffFlags;
use super::{Output, again_and_again, print, rendered};
use crate::completion::namespaces;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise top                                        by the metrics of the proxies, read twice within 10 s
  zonewise top --watch --sort saving                  again and again: where most could be saved first
  zonewise top --prometheus http://127.0.0.1:9090 --window 24h --provider aws
  zonewise top -n shop -o json
  kubectl zonewise top                                as a kubectl plugin

docs/cost.md explains the output.")]
pub(crate) struct TopArgs {
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Only the Services of this namespace
    #[arg(short = 'n', long, value_name = "NAME", add = ArgValueCompleter::new(namespaces))]
    namespace: Option<String>,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    /// Period that is shown: the time between two readings of the proxies [default: 10s], or the latest period in
    /// Prometheus [default: 5m]
    #[arg(long, value_name = "TIME")]
    window: Option<ConfigDuration>,
    #[command(flatten)]
    prices: TariffFlags,
    /// What Services are sorted by
    #[arg(long, value_enum, value_name = "BY", default_value = "crossing")]
    sort: Sort,
    /// Read again every TIME (5s if none is given) and show what has changed, until Ctrl-C
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s")]
    watch: Option<ConfigDuration>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

/// What Services are sorted by.
#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    /// What crosses zones
    Crossing,
    /// What crosses zones and need not
    Saving,
    /// All that flows
    Total,
    /// New connections
    Connections,
    /// By namespace and name
    Name,
}

impl From<Sort> for TopBy {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Crossing => Self::Crossing,
            Sort::Saving => Self::Saving,
            Sort::Total => Self::Total,
            Sort::Connections => Self::Connections,
            Sort::Name => Self::Name,
        }
    }
}

/// Between two readings of the proxies.
const APART: Duration = Duration::from_secs(10);
/// The last minutes of a Prometheus.
const LATELY: Duration = Duration::from_secs(300);

pub(crate) fn run(arguments: &TopArgs) -> Result<()> {
    arguments.prices.tariff()?;
    match arguments.watch {
        None => print(&arguments.answer()?),
        Some(period) => again_and_again(period.0, || arguments.answer()),
    }
}

impl TopArgs {
    fn answer(&self) -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut top = runtime.block_on(self.look())?;
        sort_top(&mut top, self.sort.into());
        if self.output.is_screen() {
            return Ok(screens::top(&top, self.output.width()));
        }
        rendered(&Document::new("Top", &top), self.output)
    }

    async fn look(&self) -> Result<Top> {
        let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let Connection { client, server, .. } = connect_to_context(kubeconfig, context).await?;
        let window = |usual| self.window.map_or(usual, |window| window.0);
        let mut flows: Flows = match self.prometheus.client()? {
            Some((prometheus, url)) => {
                flows::of_prometheus(&prometheus, &url, window(LATELY)).await?
            }
            None => flows::of_proxies(&client, window(APART)).await?,
        };
        if let Some(namespace) = &self.namespace {
            flows.flows.retain(|flow| flow.service.split('/').next() == Some(namespace));
        }
        let unreadable = || format!("cannot read the cluster at {server}");
        let endpoints = flows::endpoints(&client).await.with_context(unreadable)?;
        let pricing = match self.prices.tariff()? {
            None => None,
            Some(tariff) => {
                let regions = flows::regions(&client).await.with_context(unreadable)?;
                Some(Pricing { tariff, regions })
            }
        };
        Ok(top(flows, &endpoints, pricing.as_ref()))
    }
}
