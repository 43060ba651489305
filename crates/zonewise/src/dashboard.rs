//! `zonewise dashboard`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use zonewise_cluster::connect::{Connection, connect_to_context};
use zonewise_dashboard::{Access, Exposure, Hub, Origin, View, serve};
use zonewise_explain::Depth;
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_telemetry::tls::{Certificate, Tls};

use crate::args::Usage;
use crate::observe::ControllerFlags;
use crate::observe::prices::PriceFlags;
use crate::observe::source::{Source, Wanted};
use crate::output::complain;
use crate::serving::LogFormat;

/// Where the page is served if nothing else is said.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8464);

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise dashboard                                  the cluster of the kubeconfig, on http://127.0.0.1:8464
  zonewise dashboard -n shop --cost-per-gb 0.02 --gb 500
  zonewise dashboard -f dump.json                     a dump, without a cluster
  zonewise dashboard --address 0.0.0.0:8464           for others: with TLS, and a token of the cluster

docs/dashboard.md explains the page.")]
pub(crate) struct Dashboard {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    prices: PriceFlags,
    /// Address of the page
    #[arg(long, value_name = "ADDRESS", default_value_t = ADDRESS)]
    address: SocketAddr,
    /// Certificate of the page, a PEM file; beyond loopback, without it one that browsers cannot verify is made at the start
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate, a PEM file; both are read again when they change
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    #[command(flatten)]
    controller: ControllerFlags,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log level: error, warn, info, debug, or a filter such as zonewise_cluster=debug
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    log_level: String,
}

/// How long open pages have when the program ends.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: Dashboard) -> Result<()> {
    log::start(arguments.log_format.into(), &arguments.log_level)
        .map_err(|error| Usage(error.to_string()))?;
    let certificate = certificate(&arguments);
    let Dashboard { source, prices, address, controller, .. } = arguments;
    let (prices, assumed) = (prices.prices()?, controller.assumed());
    let planner = controller.planner(Depth::Full)?;
    let namespace = source.namespace.clone();
    let files = match source.is_files() {
        true => Some(files(&source, planner.missing_cpu)?),
        false => None,
    };
    let view = View { planner, assumed, prices, namespace };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let origin = match files {
            Some(origin) => origin,
            None => cluster(&source).await?,
        };
        present(origin, view, address, certificate).await
    })
}

/// The certificate that the flags say; `None` for none.
fn certificate(arguments: &Dashboard) -> Option<Certificate> {
    let files = arguments.tls_cert_file.clone().zip(arguments.tls_private_key_file.clone());
    let made = || (!arguments.address.ip().is_loopback()).then_some(Certificate::SelfSigned);
    files.map(|(certificate, key)| Certificate::Files { certificate, key }).or_else(made)
}

/// What is in the files.
fn files(source: &Source, missing_cpu: zonewise_topology::capacity::MissingCpu) -> Result<Origin> {
    let gathered = source.gather(&Wanted { service: None, pods: true, json: true, missing_cpu })?;
    let name = |file: &Path| match file == Path::new("-") {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let names: Vec<String> = source.files.iter().map(|file| name(file)).collect();
    Ok(Origin::Files { snapshot: Box::new(gathered.snapshot), name: names.join(", ") })
}

async fn cluster(source: &Source) -> Result<Origin> {
    let (kubeconfig, context) = (source.kubeconfig.as_deref(), source.context.as_deref());
    let Connection { client, server, .. } = connect_to_context(kubeconfig, context).await?;
    Ok(Origin::Cluster { client, name: server })
}

async fn present(
    origin: Origin,
    view: View,
    address: SocketAddr,
    certificate: Option<Certificate>,
) -> Result<()> {
    let shutdown = Shutdown::on_signals(GRACE).context("signals cannot be received")?;
    let exposure = exposure(&origin, address, certificate)?;
    let scheme = if matches!(exposure, Exposure::Loopback) { "http" } else { "https" };
    let (hub, _tasks) = Hub::start(origin, view, None);
    let server = serve(address, hub, exposure)
        .await
        .with_context(|| format!("cannot listen on {address}; pass another --address"))?;
    complain(&format!("dashboard: {scheme}://{}", server.address()));
    shutdown.wait().await;
    server.stop().await;
    Ok(())
}

/// Who may see the page: everybody on this machine, or everybody with a token of the cluster.
fn exposure(
    origin: &Origin,
    address: SocketAddr,
    certificate: Option<Certificate>,
) -> Result<Exposure> {
    let Some(certificate) = certificate else { return Ok(Exposure::Loopback) };
    let Origin::Cluster { client, .. } = origin else {
        let message = format!(
            "{address} with a certificate is for people with a token of the cluster, and files have none: use 127.0.0.1 \
             without a certificate"
        );
        return Err(Usage(message).into());
    };
    let tls = Arc::new(Tls::new(certificate)?);
    Ok(Exposure::Network { tls, access: Access::reviewed(client.clone()) })
}
