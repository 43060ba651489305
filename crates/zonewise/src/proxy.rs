//! `zonewise proxy`: resolves the configuration (flags, then file, then defaults) and runs the proxy.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use zonewise_cluster::connect::connect_to;
use zonewise_cluster::watch::ContentType;
use zonewise_common::duration::ConfigDuration;
use zonewise_proxy::config::{Config, Connection, CountBy, GATES, Settings, host_name};
use zonewise_proxy::{Host, Machine, Timeline, dry_run, features, other_proxies};
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;

use crate::args::Usage;
use crate::serving::LogFormat;

/// After a signal, work that has begun gets this long to finish.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise proxy --config /var/lib/kube-proxy/config.conf --node-name node-1
  zonewise proxy --kubeconfig ~/.kube/config --cluster-cidr 10.244.0.0/16
  zonewise proxy --init-only                     change kernel settings, then exit
  zonewise proxy --take-over                     replace a running kube-proxy without interruption
  zonewise proxy --cleanup                       remove all rules of zonewise and kube-proxy
  zonewise proxy --cleanup=ours                  remove the rules of zonewise, to return to kube-proxy
  zonewise proxy --dry-run -f services.yaml      print the rules instead of loading them

Flags take precedence over the configuration file. docs/proxy.md explains all settings.")]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    action: ActionFlags,
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(flatten)]
    rules: RuleFlags,
    #[command(flatten)]
    kernel: KernelFlags,
    #[command(flatten)]
    serve: ServeFlags,
    #[command(flatten)]
    unused: UnusedFlags,
}

#[derive(Args)]
#[command(next_help_heading = "What to do")]
struct ActionFlags {
    /// Configuration file (KubeProxyConfiguration, ProxyConfiguration, or both)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the effective configuration as YAML, then exit
    #[arg(long, value_name = "FILE", group = "action")]
    write_config_to: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long, group = "action")]
    check: bool,
    /// Try what the kernel must have, print it and exit; nothing is changed
    #[arg(long, group = "action")]
    check_kernel: bool,
    /// Remove the rules of zonewise (ours), of kube-proxy (others) or of both (all), then exit
    #[arg(long, group = "action", value_enum, value_name = "WHOSE", num_args = 0..=1,
          require_equals = true, default_missing_value = "all")]
    cleanup: Option<Whose>,
    /// Change kernel settings, which needs privileges, then exit
    #[arg(long, group = "action")]
    init_only: bool,
    /// Print the rules for the objects of -f instead of loading them into the kernel
    #[arg(long, group = "action", requires = "files")]
    dry_run: bool,
    /// Objects for --dry-run: YAML or JSON, `-` for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "FILE", requires = "dry_run")]
    files: Vec<PathBuf>,
    /// Remove the rules of a running kube-proxy once those of zonewise are loaded
    #[arg(long, conflicts_with = "action")]
    take_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Whose {
    Ours,
    Others,
    All,
}

#[derive(Args)]
#[command(next_help_heading = "Cluster")]
struct ConnectionFlags {
    /// Kubeconfig file [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// URL of the API server; takes precedence over the kubeconfig
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// Form in which objects are read: application/vnd.kubernetes.protobuf or application/json
    /// [default: application/vnd.kubernetes.protobuf]
    #[arg(long, value_name = "TYPE")]
    kube_api_content_type: Option<ContentType>,
    /// Name of this Node [default: the host name]
    #[arg(long, value_name = "NAME", alias = "hostname-override")]
    node_name: Option<String>,
    /// Serve only Services with the label service.kubernetes.io/service-proxy-name=NAME
    #[arg(long, value_name = "NAME")]
    proxy_name: Option<String>,
    /// Feature gates, as Name=true,Name=false
    #[arg(long, value_name = "GATES", value_parser = gates)]
    feature_gates: Option<BTreeMap<String, bool>>,
}

#[derive(Args)]
#[command(next_help_heading = "Rules")]
struct RuleFlags {
    /// Address range of Pods, or one of each family separated by a comma
    #[arg(long, value_name = "RANGES")]
    cluster_cidr: Option<String>,
    /// How traffic of local Pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or
    /// InterfaceNamePrefix
    #[arg(long, value_name = "MODE")]
    detect_local_mode: Option<String>,
    /// Bridge interface of local Pods, for BridgeInterface
    #[arg(long, value_name = "NAME")]
    pod_bridge_interface: Option<String>,
    /// Prefix of the interface names of local Pods, for InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pod_interface_name_prefix: Option<String>,
    /// Addresses on which NodePorts answer: ranges separated by commas, or primary [default: primary]
    #[arg(long, value_name = "RANGES", value_delimiter = ',')]
    nodeport_addresses: Option<Vec<String>>,
    /// Let NodePorts answer on 127.0.0.1 too [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, alias = "iptables-localhost-nodeports")]
    localhost_nodeports: Option<bool>,
    /// Masquerade all traffic to Services [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    masquerade_all: Option<bool>,
    /// Bit of the packet mark that stands for masquerading [default: 14]
    #[arg(
        long,
        value_name = "BIT",
        alias = "iptables-masquerade-bit",
        allow_negative_numbers = true
    )]
    masquerade_bit: Option<i64>,
    /// What connections are counted by: zones, services (by Service and zone) or none [default: zones]
    #[arg(long, value_name = "BY")]
    count: Option<CountBy>,
    /// Count bytes by Service and zone as well, which needs --count services [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    count_bytes: Option<bool>,
    /// The proxy is unhealthy if a change waits for twice this time [default: 30s]
    #[arg(long, value_name = "TIME", alias = "iptables-sync-period")]
    sync_period: Option<ConfigDuration>,
    /// Shortest time between two syncs [default: 50ms]
    #[arg(long, value_name = "TIME", alias = "iptables-min-sync-period")]
    min_sync_period: Option<ConfigDuration>,
    /// How often the rules in the kernel are checked and repaired [default: 1m]
    #[arg(long, value_name = "TIME")]
    verify_period: Option<ConfigDuration>,
    /// Maximum number of nftables elements for one Service; a Service that needs more loses its weights, then addresses [default: 65536]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    service_elements: Option<i64>,
    /// Maximum number of nftables elements for all Services [default: 1048576]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    node_elements: Option<i64>,
}

#[derive(Args)]
#[command(next_help_heading = "Kernel settings")]
struct KernelFlags {
    /// Largest number of tracked connections per CPU; 0 keeps the kernel's value [default: 32768]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    conntrack_max_per_core: Option<i64>,
    /// Smallest limit of tracked connections, however few CPUs there are [default: 131072]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    conntrack_min: Option<i64>,
    /// Timeout of idle established TCP connections; 0 keeps the kernel's value [default: 24h]
    #[arg(long, value_name = "TIME")]
    conntrack_tcp_timeout_established: Option<ConfigDuration>,
    /// Timeout of TCP connections in CLOSE_WAIT; 0 keeps the kernel's value [default: 1h]
    #[arg(long, value_name = "TIME")]
    conntrack_tcp_timeout_close_wait: Option<ConfigDuration>,
    /// Track TCP packets that are out of window as valid [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    conntrack_tcp_be_liberal: Option<bool>,
    /// Timeout of UDP without reply; 0 keeps the kernel's value [default: 0]
    #[arg(long, value_name = "TIME")]
    conntrack_udp_timeout: Option<ConfigDuration>,
    /// Timeout of UDP with replies; 0 keeps the kernel's value [default: 0]
    #[arg(long, value_name = "TIME")]
    conntrack_udp_timeout_stream: Option<ConfigDuration>,
    /// oom_score_adj of this process: lower is killed later when memory is short [default: -999]
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    oom_score_adj: Option<i64>,
}

#[derive(Args)]
#[command(next_help_heading = "Health, metrics, log")]
struct ServeFlags {
    /// Address of this node [default: the first of its Node object]
    #[arg(long, value_name = "IP")]
    bind_address: Option<String>,
    /// Address of /healthz and /livez; port 0 turns them off [default: 0.0.0.0:10256]
    #[arg(long, value_name = "ADDRESS")]
    healthz_bind_address: Option<String>,
    /// Address of /metrics, /routes, /proxyMode and /configz; port 0 turns them off [default: 127.0.0.1:10249]
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<String>,
    /// Address of /demand, where the controller reads counts by Service: over TLS, and with a token alone. Needs
    /// --count services [default: off]
    #[arg(long, value_name = "ADDRESS")]
    demand_address: Option<String>,
    /// Exit if one of these addresses is in use, instead of trying again [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    bind_address_hard_fail: Option<bool>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT",
          alias = "logging-format")]
    log_format: LogFormat,
    /// Log level: error, warn, info, debug, or a filter such as zonewise_proxy=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log_level: String,
}

// Flags of kube-proxy that have no effect, accepted so that its manifests work. (A doc comment would
// become the help of the command.)
#[derive(Args)]
struct UnusedFlags {
    #[arg(long, hide = true, value_name = "MODE")]
    proxy_mode: Option<String>,
    #[arg(long, hide = true, value_name = "TIME")]
    config_sync_period: Option<ConfigDuration>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    profiling: Option<bool>,
    #[arg(short = 'v', long = "v", hide = true, value_name = "N")]
    verbosity: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true)]
    kube_api_burst: Option<String>,
    #[arg(long, hide = true)]
    kube_api_qps: Option<String>,
}

fn gates(text: &str) -> Result<BTreeMap<String, bool>, String> {
    crate::serving::gates(text, &GATES)
}

/// Runs the command of a process that began then.
pub(crate) fn run(arguments: ProxyArgs, began: Instant) -> anyhow::Result<()> {
    let timeline = Timeline::since(began.into());
    let format = arguments.serve.log_format.into();
    let log_level = arguments.serve.log_level.clone();
    let (action, settings) = arguments.split();
    let config =
        read(action.config.as_deref(), settings).map_err(|error| Usage(format!("{error:#}")))?;
    // zonewise reports the errors of its Kubernetes client itself, with the cause.
    log::start(format, &format!("{log_level},kube_client=off"))
        .map_err(|error| Usage(error.to_string()))?;
    config.notices.iter().for_each(|notice| tracing::info!("{notice}"));
    timeline.ended(began.into(), "command line and configuration");
    act(&action, config, timeline)
}

fn act(action: &ActionFlags, config: Config, timeline: Timeline) -> anyhow::Result<()> {
    if action.check {
        return Ok(std::io::stdout().write_all(b"the configuration is valid\n")?);
    }
    if action.check_kernel {
        return check_kernel();
    }
    if let Some(path) = &action.write_config_to {
        return std::fs::write(path, config.to_yaml())
            .with_context(|| format!("cannot write {}", path.display()));
    }
    if action.dry_run {
        let text = dry_run::tables(&config, &contents(&action.files)?)?;
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    }
    if let Some(whose) = action.cleanup {
        return clean_up(whose);
    }
    let machine = Machine::default();
    if action.init_only {
        return Ok(machine.init(&config)?);
    }
    check_server_address(&config)?;
    timeline.phase("kernel settings", || machine.prepare(&config))?;
    // One thread for the kernel, one for the API server and for metrics and health checks.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(config, action.take_over, timeline))
}

/// The names and contents of files; `-` is standard input.
fn contents(files: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    let read = |file: &PathBuf| {
        let name = file.display().to_string();
        let text = match name.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()),
            _ => std::fs::read_to_string(file),
        };
        let text = text.with_context(|| format!("cannot read {name}"))?;
        Ok((name, text))
    };
    files.iter().map(read).collect()
}

/// Prints which of the features that the proxy needs the kernel has.
fn check_kernel() -> anyhow::Result<()> {
    let found = features::probe(&features::Network::default())
        .context("cannot test the kernel's features; that needs CAP_NET_ADMIN (run as root)")?;
    for feature in &found {
        writeln!(std::io::stdout(), "{feature}")?;
    }
    let missing = found.iter().filter(|found| found.feature.required && found.error.is_some());
    let missing = missing.count();
    anyhow::ensure!(
        missing == 0,
        "{missing} required features are missing; the lines above say how to get them"
    );
    Ok(())
}

fn clean_up(whose: Whose) -> anyhow::Result<()> {
    let mut removal = other_proxies::Removal::default();
    if whose != Whose::Ours {
        removal = removal.and(other_proxies::remove(&other_proxies::find()?));
    }
    if whose != Whose::Others {
        removal = removal.and(other_proxies::remove_ours());
    }
    for line in &removal.removed {
        writeln!(std::io::stdout(), "removed: {line}")?;
    }
    anyhow::ensure!(removal.problems.is_empty(), "{}", removal.problems.join("; "));
    Ok(())
}

/// Checks that the API server can be reached without a Service.
fn check_server_address(config: &Config) -> Result<(), Usage> {
    let Connection { kubeconfig, master, .. } = &config.connection;
    if kubeconfig.is_some() || master.is_some() || has_kubeconfig() {
        return Ok(());
    }
    Err(Usage(
        "the address of the API server is missing: the address in the environment of a Pod is a Service, which does \
         not work before this proxy has written its rules; pass --kubeconfig FILE or --master URL with the server's \
         own address"
            .into(),
    ))
}

async fn serve(config: Config, take_over: bool, timeline: Timeline) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals(GRACE).context("cannot listen for signals")?;
    let Connection { kubeconfig, master, .. } = &config.connection;
    let from = tokio::time::Instant::now();
    let client = connect_to(master.as_deref(), kubeconfig.as_deref()).await?;
    timeline.ended(from, "client");
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = config.node_name, "proxy starts");
    zonewise_proxy::run(Host::default(), client, config, take_over, timeline, shutdown).await?;
    tracing::info!("proxy ended; its rules stay in the kernel");
    Ok(())
}

/// Whether there is a kubeconfig in one of the usual places.
fn has_kubeconfig() -> bool {
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    std::env::var_os("KUBECONFIG").is_some() || home.is_some_and(|file| file.exists())
}

/// The configuration. Flags take precedence over the file, and the file over defaults.
fn read(file: Option<&Path>, flags: Settings) -> anyhow::Result<Config> {
    let file = file.map(Settings::read).transpose()?.unwrap_or_default();
    let settings = file.overridden_by(flags);
    let host = if settings.node_name.is_some() { String::new() } else { host_name()? };
    Ok(settings.resolve(&host)?)
}

impl ProxyArgs {
    /// What to do, and with which settings.
    fn split(self) -> (ActionFlags, Settings) {
        let Self { action, connection, rules, kernel, serve, unused } = self;
        let settings = Settings {
            kubeconfig: connection.kubeconfig,
            master: connection.master,
            content_type: connection.kube_api_content_type,
            node_name: connection.node_name,
            proxy_name: connection.proxy_name,
            feature_gates: connection.feature_gates.unwrap_or_default(),
            bind_address: serve.bind_address,
            healthz_address: serve.healthz_bind_address,
            metrics_address: serve.metrics_bind_address,
            demand_address: serve.demand_address,
            bind_hard_fail: serve.bind_address_hard_fail,
            notices: unused.notices(),
            mode: unused.proxy_mode,
            config_sync_period: unused.config_sync_period,
            profiling: unused.profiling,
            ..rules.settings().overridden_by(kernel.settings())
        };
        (action, settings)
    }
}

impl RuleFlags {
    fn settings(self) -> Settings {
        Settings {
            cluster_cidr: self.cluster_cidr,
            detect_local_mode: self.detect_local_mode,
            bridge_interface: self.pod_bridge_interface,
            interface_prefix: self.pod_interface_name_prefix,
            nodeport_addresses: self.nodeport_addresses,
            localhost_nodeports: self.localhost_nodeports,
            masquerade_all: self.masquerade_all,
            masquerade_bit: self.masquerade_bit,
            count: self.count,
            count_bytes: self.count_bytes,
            sync_period: self.sync_period,
            min_sync_period: self.min_sync_period,
            verify_period: self.verify_period,
            service_elements: self.service_elements,
            node_elements: self.node_elements,
            ..Settings::default()
        }
    }
}

impl KernelFlags {
    fn settings(self) -> Settings {
        Settings {
            conntrack_max_per_core: self.conntrack_max_per_core,
            conntrack_min: self.conntrack_min,
            conntrack_tcp_established: self.conntrack_tcp_timeout_established,
            conntrack_tcp_close_wait: self.conntrack_tcp_timeout_close_wait,
            conntrack_tcp_be_liberal: self.conntrack_tcp_be_liberal,
            conntrack_udp: self.conntrack_udp_timeout,
            conntrack_udp_stream: self.conntrack_udp_timeout_stream,
            oom_score_adj: self.oom_score_adj,
            ..Settings::default()
        }
    }
}

impl UnusedFlags {
    fn notices(&self) -> Vec<String> {
        let client = [&self.kube_api_burst, &self.kube_api_qps];
        let rows = [
            (
                self.verbosity.is_some() || self.vmodule.is_some(),
                "-v and --vmodule have no effect: use --log-level",
            ),
            (
                client.into_iter().any(Option::is_some),
                "--kube-api-burst and --kube-api-qps have no effect: zonewise makes few requests",
            ),
        ];
        rows.into_iter().filter(|row| row.0).map(|row| row.1.to_owned()).collect()
    }
}
