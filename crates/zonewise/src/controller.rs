//! `zonewise controller`: reads flags and the configuration file, then runs the controller.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use zonewise_cluster::connect::connect;
use zonewise_cluster::watch::ContentType;
use zonewise_common::duration::ConfigDuration;
use zonewise_controller::config::{
    Admission, CapacityFile, ClientConnection, Compat, Config, ConfigFile, DemandFile, File,
    GuardFile, LeaderElection, MissingCpuFile, Mode, SettlingFile, Source, gate_names,
};
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;

use crate::args::Usage;
use crate::serving::LogFormat;

/// How long the shutdown after a signal may take.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise controller --kubeconfig ~/.kube/config --leader-elect=false
  zonewise controller --config controller.yaml --metrics-address 0.0.0.0:10271
  zonewise controller --mode guard               beside the built-in controller, where that cannot be switched off
  zonewise controller --mode observe             metrics alone: nothing is written, not even a Lease
  zonewise controller --compat upstream          exactly like the reference
  zonewise controller --config controller.yaml --check    check the configuration, then stop

docs/controller.md explains all settings, docs/guard.md the modes.")]
pub(crate) struct Flags {
    /// Configuration file (ControllerConfiguration); flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Check the configuration, report errors, and stop
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    slices: SliceFlags,
    /// Number of Services that are synced at once [default: 5]
    #[arg(long, value_name = "N", alias = "concurrent-service-endpoint-syncs")]
    concurrent_service_syncs: Option<u32>,
    /// How long changes of Pods are collected before a Service is synced [default: 0s]
    #[arg(long, value_name = "TIME", alias = "endpointslice-updates-batch-period")]
    endpoint_updates_batch_period: Option<ConfigDuration>,
    /// Use leader election [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// How long other replicas wait for a renewal before one takes over [default: 15s]
    #[arg(long, value_name = "TIME")]
    leader_elect_lease_duration: Option<ConfigDuration>,
    /// How long a leader may write after its last renewal [default: 10s]
    #[arg(long, value_name = "TIME")]
    leader_elect_renew_deadline: Option<ConfigDuration>,
    /// Time between two attempts to acquire or renew the lease [default: 2s]
    #[arg(long, value_name = "TIME")]
    leader_elect_retry_period: Option<ConfigDuration>,
    /// Namespace of the lease [default: zonewise-system]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
    /// Create the namespace of the lease if it does not exist; needs the right to create namespaces
    #[arg(long)]
    create_namespace: bool,
    /// Name of the lease [default: zonewise-controller]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Address of /healthz, /livez and /readyz, open to all [default: 0.0.0.0:10270]
    #[arg(long, value_name = "ADDRESS")]
    health_address: Option<SocketAddr>,
    /// Address of /metrics; beyond loopback they need TLS and a token that may get /metrics [default: 127.0.0.1:10271]
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// Certificate of /metrics, a PEM file; without it one that clients cannot verify is made at the start
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate, a PEM file; both are read again when they change
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Form in which objects are read and slices are written: application/vnd.kubernetes.protobuf or application/json
    /// [default: application/vnd.kubernetes.protobuf]
    #[arg(long, value_name = "TYPE")]
    kube_api_content_type: Option<ContentType>,
    /// In guard mode, what puts hints into slices: a policy in the API server, a webhook of this program, or the policy
    /// where the API server has the kind (auto) [default: auto]
    #[arg(long, value_enum, value_name = "KIND")]
    guard_admission: Option<AdmissionFlag>,
    /// Where the demand of Services is measured: by the proxies, which the leading controller asks, by what a Prometheus
    /// scrapes (demand.prometheus in the file), or not at all [default: none]
    #[arg(long, value_enum, value_name = "SOURCE")]
    demand_source: Option<SourceFlag>,
    /// A token for the audience zonewise-demand, with which proxies are asked
    /// [default: /var/run/secrets/zonewise-demand/token]
    #[arg(long, value_name = "FILE")]
    demand_token_file: Option<PathBuf>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log level: error, warn, info, debug, or a filter such as zonewise_cluster=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log_level: String,
}

/// Flags that decide how slices are written: for the controller, and for the commands that predict it.
#[derive(Args)]
pub(crate) struct SliceFlags {
    /// What is written: slices in place of the built-in controller (controller), hints in its slices by admission
    /// (guard), or nothing (observe) [default: controller]
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<ModeFlag>,
    /// With zonewise's improvements (none), or exactly like the built-in EndpointSlice controller, its quirks included (upstream)
    #[arg(long, value_enum, value_name = "MODE")]
    compat: Option<CompatFlag>,
    /// Value of the managed-by label on slices [default: endpointslice-controller.k8s.io]
    #[arg(long, value_name = "NAME")]
    managed_by: Option<String>,
    /// Take over slices with this managed-by label (repeatable)
    #[arg(long, value_name = "NAME")]
    adopt_managed_by: Vec<String>,
    /// Most endpoints in a slice, 1 to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    max_endpoints_per_slice: Option<u32>,
    /// Routing preference of Services that request nothing [default: Default]
    #[arg(long, value_name = "VALUE")]
    default_preference: Option<String>,
    /// Subsetting of Services that request nothing [default: Random]
    #[arg(long, value_name = "APPROACH")]
    default_subsetting: Option<String>,
    /// Turn features on or off, as Name=true,Name=false
    #[arg(long, value_name = "GATES", value_parser = gates)]
    feature_gates: Option<BTreeMap<String, bool>>,
    /// When a ready node does not report CPU: refuse hints, or count nodes as equal [default: refuse]
    #[arg(long, value_enum, value_name = "WHAT")]
    missing_cpu: Option<MissingCpuFlag>,
    /// How long a Service must be quiet to be decided afresh; 0 for never [default: 15s]
    #[arg(long, value_name = "TIME")]
    settle_after: Option<ConfigDuration>,
    /// By how much a fresh decision must be better to be taken then [default: 0.02, which is 2 %]
    #[arg(long, value_name = "PART")]
    settle_gain: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeFlag {
    Controller,
    Guard,
    Observe,
}

#[derive(Clone, Copy, ValueEnum)]
enum AdmissionFlag {
    Auto,
    Policy,
    Webhook,
}

#[derive(Clone, Copy, ValueEnum)]
enum SourceFlag {
    None,
    Proxies,
    Prometheus,
}

#[derive(Clone, Copy, ValueEnum)]
enum CompatFlag {
    None,
    Upstream,
}

#[derive(Clone, Copy, ValueEnum)]
enum MissingCpuFlag {
    Refuse,
    CountNodes,
}

fn gates(text: &str) -> Result<BTreeMap<String, bool>, String> {
    crate::serving::gates(text, &gate_names())
}

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let format = flags.log_format.into();
    let (log_level, check) = (flags.log_level.clone(), flags.check);
    let kubeconfig = flags.kubeconfig.clone();
    let config = read(flags).map_err(|error| Usage(format!("{error:#}")))?;
    // The client library logs failed requests; the controller logs them itself, with their meaning.
    log::start(format, &format!("{log_level},kube_client=off"))
        .map_err(|error| Usage(error.to_string()))?;
    if check {
        return Ok(std::io::stdout().write_all(b"the configuration is valid\n")?);
    }
    // Two threads are enough, because most of the time is spent waiting for the API server.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(kubeconfig.as_deref(), config))
}

async fn serve(kubeconfig: Option<&Path>, config: Config) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals(GRACE).context("cannot listen for signals")?;
    let client = connect(kubeconfig).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = ?config.mode,
        upstream = config.settings.upstream,
        "the controller starts"
    );
    zonewise_controller::run(client, config, shutdown).await?;
    tracing::info!("the controller has ended");
    Ok(())
}

/// The configuration: flags override the file, which overrides the defaults.
fn read(flags: Flags) -> anyhow::Result<Config> {
    let host = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let host = host.unwrap_or_else(|_| "zonewise-controller".into());
    match flags.config.clone() {
        Some(path) => Ok(ConfigFile::read(&path, flags.into(), &host)?),
        None => resolve(None, flags.into(), &host),
    }
}

/// The configuration of the controller, for commands that predict what it does.
pub(crate) fn configuration(config: Option<&Path>, flags: SliceFlags) -> anyhow::Result<Config> {
    resolve(config, flags.into(), "")
}

fn resolve(config: Option<&Path>, flags: File, host: &str) -> anyhow::Result<Config> {
    let file = config.map(File::read).transpose()?.unwrap_or_default();
    Ok(file.overridden_by(flags).resolve(host)?)
}

impl From<SliceFlags> for File {
    fn from(flags: SliceFlags) -> Self {
        let missing_cpu = flags.missing_cpu.map(|what| match what {
            MissingCpuFlag::Refuse => MissingCpuFile::Refuse,
            MissingCpuFlag::CountNodes => MissingCpuFile::CountNodes,
        });
        Self {
            mode: flags.mode.map(|mode| match mode {
                ModeFlag::Controller => Mode::Controller,
                ModeFlag::Guard => Mode::Guard,
                ModeFlag::Observe => Mode::Observe,
            }),
            compat: flags.compat.map(|compat| match compat {
                CompatFlag::None => Compat::None,
                CompatFlag::Upstream => Compat::Upstream,
            }),
            managed_by: flags.managed_by,
            adopt_managed_by: (!flags.adopt_managed_by.is_empty())
                .then_some(flags.adopt_managed_by),
            max_endpoints_per_slice: flags.max_endpoints_per_slice,
            default_preference: flags.default_preference,
            default_subsetting: flags.default_subsetting,
            feature_gates: flags.feature_gates,
            capacity: missing_cpu
                .map(|missing_cpu| CapacityFile { missing_cpu: Some(missing_cpu) }),
            settling: Some(SettlingFile {
                quiet_period: flags.settle_after,
                least_gain: flags.settle_gain,
            }),
            ..Self::default()
        }
    }
}

impl From<Flags> for File {
    fn from(flags: Flags) -> Self {
        let admission = flags.guard_admission.map(|way| match way {
            AdmissionFlag::Auto => Admission::Auto,
            AdmissionFlag::Policy => Admission::Policy,
            AdmissionFlag::Webhook => Admission::Webhook,
        });
        let source = flags.demand_source.map(|source| match source {
            SourceFlag::None => Source::None,
            SourceFlag::Proxies => Source::Proxies,
            SourceFlag::Prometheus => Source::Prometheus,
        });
        Self {
            demand: Some(DemandFile {
                source,
                token_file: flags.demand_token_file,
                ..DemandFile::default()
            }),
            guard: Some(GuardFile { admission, ..GuardFile::default() }),
            concurrent_service_syncs: flags.concurrent_service_syncs,
            endpoint_updates_batch_period: flags.endpoint_updates_batch_period,
            leader_election: Some(LeaderElection {
                leader_elect: flags.leader_elect,
                lease_duration: flags.leader_elect_lease_duration,
                renew_deadline: flags.leader_elect_renew_deadline,
                retry_period: flags.leader_elect_retry_period,
                resource_namespace: flags.leader_elect_resource_namespace,
                create_namespace: flags.create_namespace.then_some(true),
                resource_name: flags.leader_elect_resource_name,
                identity: None,
            }),
            health_address: flags.health_address,
            metrics_address: flags.metrics_address,
            tls_cert_file: flags.tls_cert_file,
            tls_private_key_file: flags.tls_private_key_file,
            client_connection: flags
                .kube_api_content_type
                .map(|content_type| ClientConnection { content_type: Some(content_type) }),
            ..flags.slices.into()
        }
    }
}
