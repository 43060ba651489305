//! The controller's configuration: a versioned file, which command-line flags override.
//!
//! ```yaml
//! apiVersion: config.zonewise.dev/v1alpha1
//! kind: ControllerConfiguration
//! maxEndpointsPerSlice: 100
//! capacity: { missingCpu: refuse }
//! heuristics:
//!   - name: example.com/own-zone
//!     endpointZones: "[endpoint.zone]"
//! ```
//!
//! Unknown fields are errors that name the field: a misspelt one must not be ignored silently.

mod demand;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;
use zonewise_cluster::lease;
use zonewise_cluster::watch::ContentType;
use zonewise_common::duration::ConfigDuration;
use zonewise_inventory::webhook::WebhookTarget;
use zonewise_slices::settings::{FeatureGates, Gate, Settings, Settling};
use zonewise_telemetry::file::{self, FileError};
use zonewise_telemetry::tls::Certificate;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::expression::{Definition, Library, LibraryError};

pub use demand::{
    DefaultDemand, DemandConfig, DemandFile, PrometheusConfig, PrometheusFile, Source,
};

/// The checked configuration of a controller.
#[derive(Clone)]
pub struct Config {
    /// What the controller writes.
    pub mode: Mode,
    /// How slices are written.
    pub settings: Settings,
    /// What happens when a node does not report its CPU.
    pub missing_cpu: MissingCpu,
    /// The number of Services that are synced at once.
    pub workers: usize,
    /// How long changes of Pods are collected before a Service is synced.
    pub batch_period: Duration,
    /// The address of `/healthz`, `/livez` and `/readyz`.
    pub health_address: SocketAddr,
    /// The address of `/metrics`.
    pub metrics_address: SocketAddr,
    /// The certificate with which metrics are served, only to clients that the API server allows to read them; `None`
    /// for everybody who reaches the address, without TLS.
    pub metrics_certificate: Option<Certificate>,
    /// The form in which objects are asked for.
    pub content_type: ContentType,
    /// What guard mode does.
    pub guard: GuardConfig,
    /// Where the demand of Services comes from.
    pub demand: DemandConfig,
    /// Leader election; `None` if it is off.
    pub lease: Option<lease::ElectionConfig>,
    /// The file that the configuration was read from, if the controller is to follow its changes.
    pub file: Option<ConfigFile>,
}

/// What guard mode does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// The most names of Services whose hints it keeps.
    pub max_service_names: usize,
    /// What puts hints into slices.
    pub admission: Admission,
    /// The address that the webhook is served on.
    pub webhook_address: SocketAddr,
    /// Where the API server finds the webhook.
    pub webhook_target: WebhookTarget,
}

/// What puts hints into slices in guard mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// The policy where the API server has the kind, and the webhook elsewhere.
    #[default]
    Auto,
    /// An admission policy in the API server, which Kubernetes has since 1.36.
    Policy,
    /// A webhook, which the replicas of the controller serve.
    Webhook,
}

/// A configuration file, with the flags that override it.
#[derive(Clone)]
pub struct ConfigFile {
    path: PathBuf,
    flags: File,
    host: String,
    /// The content that was read last.
    text: String,
}

impl ConfigFile {
    /// Reads and checks a file. The controller that gets the configuration follows the file.
    ///
    /// # Errors
    /// As [`File::read`] and [`File::resolve`].
    pub fn read(path: &Path, flags: File, host: &str) -> Result<Config, ConfigError> {
        let (_, text) = file::read(path)?;
        let file = Self { path: path.to_owned(), flags, host: host.to_owned(), text };
        Ok(Config { file: Some(file.clone()), ..file.resolve()? })
    }

    /// The configuration, if the file has changed since it was read last.
    pub(crate) fn changed(&mut self) -> Option<Result<Config, ConfigError>> {
        let text = match file::read(&self.path) {
            Ok((_, text)) => text,
            Err(error) => {
                // Reported once, until the file can be read again.
                let known = std::mem::take(&mut self.text).is_empty();
                return (!known).then(|| Err(error.into()));
            }
        };
        if text == self.text {
            return None;
        }
        self.text = text;
        Some(self.resolve())
    }

    fn resolve(&self) -> Result<Config, ConfigError> {
        let file = File::parse(&self.path.display().to_string(), &self.text)?;
        file.overridden_by(self.flags.clone()).resolve(&self.host)
    }
}

/// The content of the file, and also what the flags set. Any field may be absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct File {
    /// `config.zonewise.dev/v1alpha1`.
    pub api_version: Option<String>,
    /// `ControllerConfiguration`.
    pub kind: Option<String>,
    /// `controller`, `guard` or `observe`.
    pub mode: Option<Mode>,
    /// `none` or `upstream`.
    pub compat: Option<Compat>,
    /// The value of the managed-by label on slices.
    pub managed_by: Option<String>,
    /// Other values of that label whose slices are taken over.
    pub adopt_managed_by: Option<Vec<String>>,
    /// The most endpoints in a slice.
    pub max_endpoints_per_slice: Option<u32>,
    /// The number of Services that are synced at once.
    pub concurrent_service_syncs: Option<u32>,
    /// How long changes of Pods are collected before a Service is synced.
    pub endpoint_updates_batch_period: Option<ConfigDuration>,
    /// The routing preference of Services that request nothing.
    pub default_preference: Option<String>,
    /// The subsetting approach of Services that request nothing.
    pub default_subsetting: Option<String>,
    /// Feature gates by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// How capacity is measured.
    pub capacity: Option<CapacityFile>,
    /// Leader election.
    pub leader_election: Option<LeaderElection>,
    /// The address of `/healthz`, `/livez` and `/readyz`.
    pub health_address: Option<SocketAddr>,
    /// The address of `/metrics`; beyond loopback they need a token.
    pub metrics_address: Option<SocketAddr>,
    /// The certificate of `/metrics`, a PEM file; without one the controller makes its own.
    pub tls_cert_file: Option<PathBuf>,
    /// The private key of that certificate, a PEM file.
    pub tls_private_key_file: Option<PathBuf>,
    /// How the API server is asked.
    pub client_connection: Option<ClientConnection>,
    /// What guard mode does.
    pub guard: Option<GuardFile>,
    /// Where the demand of Services comes from.
    pub demand: Option<DemandFile>,
    /// When a quiet Service is decided afresh.
    pub settling: Option<SettlingFile>,
    /// Heuristics that are defined by expressions.
    pub heuristics: Option<Vec<Spanned<Definition>>>,
    /// The name of the file, for messages.
    #[serde(skip)]
    pub origin: String,
}

/// What the controller writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// EndpointSlices, in place of the built-in controller.
    #[default]
    Controller,
    /// Hints in the EndpointSlices of the built-in controller, by way of an admission policy.
    Guard,
    /// Nothing at all.
    Observe,
}

/// How close to the reference the controller stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// With the improvements that docs/controller.md lists.
    None,
    /// Exactly like the reference, its quirks included.
    Upstream,
}

/// How capacity is measured.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CapacityFile {
    /// `refuse` or `count-nodes`.
    pub missing_cpu: Option<MissingCpuFile>,
}

/// How the API server is asked, named as in the configuration of Kubernetes' own components.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    /// `application/vnd.kubernetes.protobuf` or `application/json`.
    pub content_type: Option<ContentType>,
}

/// When a quiet Service is decided afresh.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SettlingFile {
    /// How long it must have been quiet; 0 for never.
    pub quiet_period: Option<ConfigDuration>,
    /// By how much the fresh decision must be better, 0.02 for 2 %.
    pub least_gain: Option<f64>,
}

impl SettlingFile {
    fn overridden_by(self, flags: Self) -> Self {
        Self {
            quiet_period: flags.quiet_period.or(self.quiet_period),
            least_gain: flags.least_gain.or(self.least_gain),
        }
    }

    fn settling(self) -> Settling {
        let usual = Settling::default();
        Settling {
            quiet_period: self.quiet_period.map_or(usual.quiet_period, |period| period.0),
            least_gain: self.least_gain.unwrap_or(usual.least_gain),
        }
    }
}

/// What guard mode does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GuardFile {
    /// The most names of Services whose hints it keeps.
    pub max_service_names: Option<u32>,
    /// `auto`, `policy` or `webhook`.
    pub admission: Option<Admission>,
    /// The webhook.
    pub webhook: Option<WebhookFile>,
}

/// The webhook of guard mode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WebhookFile {
    /// The address that it is served on.
    pub address: Option<SocketAddr>,
    /// Where an API server finds it that does not reach Services: `https://` and a host, with a port if need be.
    pub url: Option<String>,
}

impl GuardFile {
    fn overridden_by(self, flags: Self) -> Self {
        Self {
            max_service_names: flags.max_service_names.or(self.max_service_names),
            admission: flags.admission.or(self.admission),
            webhook: flags.webhook.or(self.webhook),
        }
    }

    fn resolve(self) -> Result<GuardConfig, ConfigError> {
        let names = self.max_service_names.unwrap_or(1000);
        let names = in_range("guard.maxServiceNames", names, 10_000, "1 to 10000")?;
        let webhook = self.webhook.unwrap_or_default();
        let url = webhook.url.filter(|url| !url.is_empty());
        Ok(GuardConfig {
            max_service_names: names as usize,
            admission: self.admission.unwrap_or_default(),
            webhook_address: webhook.address.unwrap_or(([0, 0, 0, 0], 10273).into()),
            webhook_target: url.map_or(Ok(WebhookTarget::Service), webhook_target)?,
        })
    }
}

/// The target of a webhook with this URL.
fn webhook_target(url: String) -> Result<WebhookTarget, ConfigError> {
    let host = url.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.contains(['/', '?', '#', '@']) || host.contains(char::is_whitespace)
    {
        return Err(ConfigError::Settings(format!(
            "guard.webhook.url must be https:// and a host, with a port if need be and without a path, not `{url}`"
        )));
    }
    Ok(WebhookTarget::Url(url))
}

/// What happens when a node does not report its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingCpuFile {
    /// No hints are assigned by CPU.
    Refuse,
    /// All nodes count as equally large.
    CountNodes,
}

/// Leader election.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether leader election is on.
    pub leader_elect: Option<bool>,
    /// How long followers wait for a renewal before one of them takes over.
    pub lease_duration: Option<ConfigDuration>,
    /// How long a leader may write after its last renewal.
    pub renew_deadline: Option<ConfigDuration>,
    /// The time between two attempts to acquire or renew the lease.
    pub retry_period: Option<ConfigDuration>,
    /// The namespace of the lease.
    pub resource_namespace: Option<String>,
    /// Whether to create that namespace if it does not exist.
    pub create_namespace: Option<bool>,
    /// The name of the lease.
    pub resource_name: Option<String>,
    /// The identity of this replica; by default the host's name with a random suffix.
    pub identity: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such feature gate.
    #[error("unknown feature gate `{0}`; use {known}", known = gate_names().join(", "))]
    Gate(String),
    /// A number out of range.
    #[error("{name} must be {range}, not {value}")]
    Range {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The valid range.
        range: &'static str,
    },
    /// A heuristic cannot be used.
    #[error("{location}: {error}")]
    Heuristic {
        /// File, line and column.
        location: String,
        /// Why.
        error: Box<LibraryError>,
    },
    /// A setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The configuration of leader election cannot be used.
    #[error("leader election: {0}")]
    Lease(#[from] lease::ElectionConfigError),
}

const API_VERSION: &str = "config.zonewise.dev/v1alpha1";
const KIND: &str = "ControllerConfiguration";

/// The names of all feature gates.
pub fn gate_names() -> [&'static str; 3] {
    Gate::ALL.map(Gate::name)
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is not a valid configuration; the error names the line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (name, text) = file::read(path)?;
        Self::parse(&name, &text)
    }

    /// Parses the text of a file. The name is for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let file: Self = file::decode(name, text)?;
        if file.api_version.as_deref() != Some(API_VERSION) || file.kind.as_deref() != Some(KIND) {
            let message = format!("expected apiVersion {API_VERSION} and kind {KIND}");
            return Err(FileError::of(name, message).into());
        }
        Ok(Self { origin: name.to_owned(), ..file })
    }

    /// The built-in heuristics and those of the file.
    ///
    /// # Errors
    /// If a heuristic cannot be used; the error names the first such.
    pub fn library(&self) -> Result<Library, ConfigError> {
        let found = self.heuristics.as_deref().unwrap_or_default();
        let definitions: Vec<Definition> = found.iter().map(|item| item.value.clone()).collect();
        Library::new(&definitions).map_err(|error| {
            let location = found.get(error.index).map(|item| item.referenced);
            let location = file::position(&self.origin, location);
            ConfigError::Heuristic { location, error: Box::new(error) }
        })
    }

    /// The configuration with the fields that flags set.
    pub fn overridden_by(self, flags: Self) -> Self {
        let election = self.leader_election.unwrap_or_default();
        let over = flags.leader_election.unwrap_or_default();
        let mut gates = self.feature_gates.unwrap_or_default();
        gates.extend(flags.feature_gates.unwrap_or_default());
        Self {
            api_version: flags.api_version.or(self.api_version),
            kind: flags.kind.or(self.kind),
            mode: flags.mode.or(self.mode),
            compat: flags.compat.or(self.compat),
            managed_by: flags.managed_by.or(self.managed_by),
            adopt_managed_by: flags.adopt_managed_by.or(self.adopt_managed_by),
            max_endpoints_per_slice: flags.max_endpoints_per_slice.or(self.max_endpoints_per_slice),
            concurrent_service_syncs: flags
                .concurrent_service_syncs
                .or(self.concurrent_service_syncs),
            endpoint_updates_batch_period: flags
                .endpoint_updates_batch_period
                .or(self.endpoint_updates_batch_period),
            default_preference: flags.default_preference.or(self.default_preference),
            default_subsetting: flags.default_subsetting.or(self.default_subsetting),
            feature_gates: Some(gates),
            capacity: flags.capacity.or(self.capacity),
            leader_election: Some(LeaderElection {
                leader_elect: over.leader_elect.or(election.leader_elect),
                lease_duration: over.lease_duration.or(election.lease_duration),
                renew_deadline: over.renew_deadline.or(election.renew_deadline),
                retry_period: over.retry_period.or(election.retry_period),
                resource_namespace: over.resource_namespace.or(election.resource_namespace),
                create_namespace: over.create_namespace.or(election.create_namespace),
                resource_name: over.resource_name.or(election.resource_name),
                identity: over.identity.or(election.identity),
            }),
            health_address: flags.health_address.or(self.health_address),
            metrics_address: flags.metrics_address.or(self.metrics_address),
            tls_cert_file: flags.tls_cert_file.or(self.tls_cert_file),
            tls_private_key_file: flags.tls_private_key_file.or(self.tls_private_key_file),
            client_connection: flags.client_connection.or(self.client_connection),
            guard: Some(
                self.guard.unwrap_or_default().overridden_by(flags.guard.unwrap_or_default()),
            ),
            demand: Some(
                self.demand.unwrap_or_default().overridden_by(flags.demand.unwrap_or_default()),
            ),
            settling: Some(
                self.settling.unwrap_or_default().overridden_by(flags.settling.unwrap_or_default()),
            ),
            heuristics: flags.heuristics.or(self.heuristics),
            origin: self.origin,
        }
    }

    /// Checks all fields and fills in the defaults. `host` is the name of this machine.
    ///
    /// The defaults and limits of `concurrentServiceSyncs` and `maxEndpointsPerSlice` are the
    /// reference's:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/cmd/kube-controller-manager/app/options/endpointslicecontroller.go>.
    ///
    /// # Errors
    /// If a field cannot be used; the error names it.
    pub fn resolve(self, host: &str) -> Result<Config, ConfigError> {
        let workers = in_range(
            "concurrentServiceSyncs",
            self.concurrent_service_syncs.unwrap_or(5),
            50,
            "1 to 50",
        )?;
        let health_address = self.health_address.unwrap_or(([0, 0, 0, 0], 10270).into());
        let metrics_address = self.metrics_address.unwrap_or(([127, 0, 0, 1], 10271).into());
        distinct(health_address, metrics_address)?;
        let (certificate_file, key_file) = (&self.tls_cert_file, &self.tls_private_key_file);
        let metrics_certificate =
            certificate(metrics_address, certificate_file.as_deref(), key_file.as_deref())?;
        let missing_cpu = match self.capacity.and_then(|capacity| capacity.missing_cpu) {
            Some(MissingCpuFile::CountNodes) => MissingCpu::CountNodes,
            Some(MissingCpuFile::Refuse) | None => MissingCpu::Refuse,
        };
        let mode = self.mode.unwrap_or_default();
        // Replicas that write nothing need not agree on who writes, and a Lease is a write.
        let lease = match mode {
            Mode::Observe => None,
            Mode::Controller | Mode::Guard => {
                lease(self.leader_election.clone().unwrap_or_default(), host)?
            }
        };
        let guard = self.guard.clone().unwrap_or_default().resolve()?;
        let demand = self.demand.clone().unwrap_or_default().resolve(mode, self.compat)?;
        let batch_period = self.endpoint_updates_batch_period.map_or(Duration::ZERO, |span| span.0);
        let content_type = self.client_connection.and_then(|connection| connection.content_type);
        let settings = self.settings()?;
        Ok(Config {
            mode,
            settings,
            missing_cpu,
            workers: workers as usize,
            batch_period,
            health_address,
            metrics_address,
            metrics_certificate,
            content_type: content_type.unwrap_or_default(),
            guard,
            demand,
            lease,
            file: None,
        })
    }

    /// Only the settings that decide how slices are written. `zonewise plan` and `explain` need these too.
    ///
    /// # Errors
    /// If a field cannot be used; the error names it.
    pub fn settings(self) -> Result<Settings, ConfigError> {
        let usual = Settings::default();
        let max = self.max_endpoints_per_slice.unwrap_or(100);
        let max = in_range("maxEndpointsPerSlice", max, 1000, "1 to 1000")?;
        let library = self.library()?;
        let guard = self.mode == Some(Mode::Guard);
        let upstream = self.compat == Some(Compat::Upstream);
        if guard && upstream {
            let message = "mode `guard` leaves the slices to the built-in controller; remove `compat: upstream`";
            return Err(ConfigError::Settings(message.to_owned()));
        }
        let managed_by = self.managed_by.map_or_else(|| usual.managed_by.clone(), Into::into);
        let foreign = (managed_by != usual.managed_by).then_some("managedBy");
        let adopted = self.adopt_managed_by.iter().flatten().next().map(|_| "adoptManagedBy");
        if let Some(name) = foreign.or(adopted).filter(|_| guard) {
            let message = format!(
                "mode `guard` works on the slices of the built-in controller alone; leave out `{name}`"
            );
            return Err(ConfigError::Settings(message));
        }
        let demand = self.demand.and_then(|demand| demand.default);
        let settings = Settings {
            managed_by,
            adopt: self.adopt_managed_by.unwrap_or_default().into_iter().map(Into::into).collect(),
            max_endpoints: max as usize,
            upstream,
            guard,
            gates: gates(&self.feature_gates.unwrap_or_default())?,
            default_preference: self.default_preference.unwrap_or(usual.default_preference),
            default_subsetting: self.default_subsetting.unwrap_or(usual.default_subsetting),
            settling: self.settling.unwrap_or_default().settling(),
            default_demand: demand.unwrap_or_default().into(),
            library,
        };
        settings.check().map_err(ConfigError::Settings)?;
        Ok(settings)
    }
}

fn in_range(
    name: &'static str,
    value: u32,
    most: u32,
    range: &'static str,
) -> Result<u32, ConfigError> {
    if (1..=most).contains(&value) {
        Ok(value)
    } else {
        Err(ConfigError::Range { name, value, range })
    }
}

/// Health and metrics cannot have the same port.
fn distinct(health: SocketAddr, metrics: SocketAddr) -> Result<(), ConfigError> {
    let ips = [health.ip(), metrics.ip()];
    let overlap = ips[0] == ips[1] || ips.iter().any(std::net::IpAddr::is_unspecified);
    if health.port() != metrics.port() || health.port() == 0 || !overlap {
        return Ok(());
    }
    Err(ConfigError::Settings(format!(
        "healthAddress {health} and metricsAddress {metrics} overlap; give the metrics another port: probes are open to \
         all and metrics are not"
    )))
}

/// The certificate with which metrics are served. They are open to everybody on loopback alone.
fn certificate(
    metrics: SocketAddr,
    certificate_file: Option<&Path>,
    key_file: Option<&Path>,
) -> Result<Option<Certificate>, ConfigError> {
    let given =
        |file: Option<&Path>| file.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
    match (given(certificate_file), given(key_file)) {
        (Some(certificate), Some(key)) => Ok(Some(Certificate::Files { certificate, key })),
        (None, None) => Ok((!metrics.ip().is_loopback()).then_some(Certificate::SelfSigned)),
        (Some(_), None) | (None, Some(_)) => Err(ConfigError::Settings(
            "tlsCertFile and tlsPrivateKeyFile belong together; give both or none".to_owned(),
        )),
    }
}

fn gates(named: &BTreeMap<String, bool>) -> Result<FeatureGates, ConfigError> {
    let mut gates = FeatureGates::default();
    for (name, on) in named {
        let gate = Gate::ALL.into_iter().find(|gate| gate.name() == name);
        gates.set(gate.ok_or_else(|| ConfigError::Gate(name.clone()))?, *on);
    }
    Ok(gates)
}

fn lease(file: LeaderElection, host: &str) -> Result<Option<lease::ElectionConfig>, ConfigError> {
    if file.leader_elect == Some(false) {
        return Ok(None);
    }
    let usual =
        lease::ElectionConfig::new(file.identity.unwrap_or_else(|| lease::unique_identity(host)));
    let span = |span: Option<ConfigDuration>, usual: Duration| span.map_or(usual, |span| span.0);
    let config = lease::ElectionConfig {
        namespace: file.resource_namespace.unwrap_or(usual.namespace),
        create_namespace: file.create_namespace.unwrap_or(usual.create_namespace),
        name: file.resource_name.unwrap_or(usual.name),
        duration: span(file.lease_duration, usual.duration),
        renew_deadline: span(file.renew_deadline, usual.renew_deadline),
        retry_period: span(file.retry_period, usual.retry_period),
        identity: usual.identity,
    };
    config.check()?;
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use zonewise_slices::requested::Demand;

    use super::*;

    fn read(lines: &str) -> Result<Config, String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{lines}");
        let file = File::parse("c.yaml", &text).map_err(|error| error.to_string())?;
        file.resolve("host").map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_the_references() {
        let config = read("").unwrap();
        assert_eq!(&*config.settings.managed_by, "endpointslice-controller.k8s.io");
        assert_eq!((config.settings.max_endpoints, config.workers), (100, 5));
        assert_eq!(config.batch_period, Duration::ZERO);
        let lease = config.lease.unwrap();
        assert_eq!(
            (lease.namespace.as_str(), lease.name.as_str()),
            ("zonewise-system", "zonewise-controller")
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let rows = [
            ("maxEndpointsPerSlize: 3", "maxEndpointsPerSlize"),
            ("maxEndpointsPerSlice: 0", "maxEndpointsPerSlice must be 1 to 1000, not 0"),
            ("maxEndpointsPerSlice: 1001", "maxEndpointsPerSlice must be 1 to 1000, not 1001"),
            ("concurrentServiceSyncs: 51", "concurrentServiceSyncs must be 1 to 50, not 51"),
            (
                "featureGates: { Hints: true }",
                "unknown feature gate `Hints`; use TopologyAwareHints",
            ),
            ("guard: { maxServiceNames: 0 }", "guard.maxServiceNames must be 1 to 10000, not 0"),
            ("guard: { maxBindings: 1 }", "maxBindings"),
            ("guard: { admission: none }", "c.yaml:3:"),
            ("guard: { webhook: { url: 'http://a' } }", "guard.webhook.url must be https://"),
            ("guard: { webhook: { url: 'https://a/b' } }", "guard.webhook.url must be https://"),
            ("endpointUpdatesBatchPeriod: soon", "`soon` is not a duration"),
            ("endpointUpdatesBatchPeriod: -1s", "`-1s` is negative"),
            ("compat: downstream", "c.yaml:3:"),
            ("managedBy: 'not a label'", "is not a valid label value"),
            ("mode: guard\nmanagedBy: example.com", "leave out `managedBy`"),
            ("mode: guard\nadoptManagedBy: [example.com]", "leave out `adoptManagedBy`"),
            ("defaultPreference: Nearest", "routing preferences without a domain are reserved"),
            ("defaultSubsetting: some", "unknown default subsetting `some`"),
            ("leaderElection: { leaseDuration: 5s }", "leader election"),
            ("settling: { leastGain: 2 }", "settling.leastGain must be from 0 to 1"),
            ("settling: { leastGain: .nan }", "settling.leastGain must be from 0 to 1"),
            ("settling: { quietPeriod: later }", "`later` is not a duration"),
            ("settling: { after: 1s }", "after"),
            ("heuristics: [ { name: example.com/x, endpointZones: '[nothing]' } ]", "c.yaml:3:"),
            ("metricsAddress: nowhere", "c.yaml:3:"),
            ("demand: { source: guess }", "c.yaml:3:"),
            ("demand: { source: prometheus }", "`demand.prometheus.url` is missing"),
            ("demand: { prometheus: { url: 'http://p:9090' } }", "set it to prometheus"),
            (
                "demand: { source: prometheus, prometheus: { url: 'p:9090' } }",
                "it begins with http://",
            ),
            (
                "demand: { source: prometheus, prometheus: { url: 'http://p', window: 1s } }",
                "between 10s and 1h",
            ),
            (
                "demand: { source: prometheus, prometheus: { url: 'http://p', preset: istio, query: x } }",
                "a query and a preset",
            ),
            (
                "demand: { source: prometheus, prometheus: { url: 'http://p', largestQuery: x } }",
                "belong to a `query` of your own",
            ),
            (
                "demand: { source: prometheus, prometheus: { url: 'http://p', token: x } }",
                "c.yaml:3:",
            ),
            ("mode: observe\ndemand: { source: proxies }", "leave out `demand.source`"),
            ("compat: upstream\ndemand: { source: proxies }", "leave out `demand.source`"),
            ("metricsAddress: 0.0.0.0:10270", "give the metrics another port"),
            ("metricsAddress: 127.0.0.1:10270", "give the metrics another port"),
            ("tlsCertFile: /tls.crt", "tlsCertFile and tlsPrivateKeyFile belong together"),
        ];
        for (lines, expected) in rows {
            let error = read(lines).err().unwrap_or_default();
            assert!(error.contains(expected), "{lines}: {error}");
        }
        let error = File::parse("c.yaml", "kind: Pod").err().unwrap().to_string();
        assert!(error.contains("expected apiVersion config.zonewise.dev/v1alpha1"), "{error}");
    }

    #[test]
    fn guard_mode_has_defaults() {
        let usual = GuardConfig {
            max_service_names: 1000,
            admission: Admission::Auto,
            webhook_address: ([0, 0, 0, 0], 10273).into(),
            webhook_target: WebhookTarget::Service,
        };
        assert_eq!(read("").unwrap().guard, usual);
        assert_eq!(read("guard: { webhook: { url: '' } }").unwrap().guard, usual);
        let given = "guard: { admission: webhook, webhook: { url: 'https://[::1]:1' } }";
        let webhook_target = WebhookTarget::Url("https://[::1]:1".to_owned());
        let expected = GuardConfig { admission: Admission::Webhook, webhook_target, ..usual };
        assert_eq!(read(given).unwrap().guard, expected);
    }

    #[test]
    fn demand_is_not_measured_unless_that_is_asked_for() {
        assert_eq!(read("").unwrap().demand, DemandConfig::default());
        assert_eq!(
            read("mode: observe\ndemand: { source: none }").unwrap().demand.source,
            Source::None
        );
        let expected = DemandConfig {
            source: Source::Proxies,
            token_file: "/token".into(),
            ..DemandConfig::default()
        };
        assert_eq!(
            read("demand: { source: proxies, tokenFile: /token }").unwrap().demand,
            expected
        );
        let file = DemandFile { source: Some(Source::Proxies), ..DemandFile::default() };
        let flags = DemandFile { token_file: Some("/token".into()), ..DemandFile::default() };
        let of = |demand| File { demand: Some(demand), ..File::default() };
        let config = of(file).overridden_by(of(flags)).resolve("host").unwrap();
        assert_eq!(config.demand, expected);
        let default = |lines: &str| read(lines).unwrap().settings.default_demand;
        assert_eq!(default("demand: { source: proxies }"), Demand::Model);
        assert_eq!(default("demand: { source: proxies, default: measured }"), Demand::Measured);
    }

    #[test]
    fn metrics_are_open_on_loopback_alone() {
        let certificate = |lines: &str| read(lines).unwrap().metrics_certificate;
        for address in ["127.0.0.1:10271", "127.9.9.9:1", "'[::1]:10271'"] {
            assert_eq!(certificate(&format!("metricsAddress: {address}")), None, "{address}");
        }
        for address in ["0.0.0.0:10271", "10.0.0.1:10271", "'[::]:10271'"] {
            let made = certificate(&format!("metricsAddress: {address}"));
            assert_eq!(made, Some(Certificate::SelfSigned), "{address}");
        }
        assert_eq!(certificate("tlsCertFile: ''\ntlsPrivateKeyFile: ''"), None);
        let files = Certificate::Files { certificate: "/a".into(), key: "/b".into() };
        assert_eq!(certificate("tlsCertFile: /a\ntlsPrivateKeyFile: /b"), Some(files));
        let config = read("").unwrap();
        assert_eq!(config.health_address, ([0, 0, 0, 0], 10270).into());
        assert_eq!(config.metrics_address, ([127, 0, 0, 1], 10271).into());
        let elsewhere = "healthAddress: 10.0.0.1:10270\nmetricsAddress: 127.0.0.1:10270";
        assert!(read(elsewhere).is_ok(), "the addresses do not overlap");
    }

    #[test]
    fn b20_settling_has_defaults_and_can_be_switched_off() {
        let settling = |lines: &str| {
            let settings = read(lines).unwrap().settings;
            (settings.settles_after(), settings.settling.least_gain)
        };
        assert_eq!(settling(""), (Some(Duration::from_secs(15)), 0.02));
        assert_eq!(settling("settling: { quietPeriod: 0 }"), (None, 0.02));
        let both = "settling: { quietPeriod: 1m, leastGain: 0.1 }";
        assert_eq!(settling(both), (Some(Duration::from_secs(60)), 0.1));
        assert_eq!(settling("compat: upstream"), (None, 0.02), "the reference does not settle");
        let quiet_period = Some(ConfigDuration(Duration::from_secs(1)));
        let flags = SettlingFile { quiet_period, least_gain: None };
        let file = SettlingFile { least_gain: Some(0.5), ..SettlingFile::default() };
        let of = |settling| File { settling: Some(settling), ..File::default() };
        let settings = of(file).overridden_by(of(flags)).settings().unwrap();
        assert_eq!(
            settings.settling,
            Settling { quiet_period: Duration::from_secs(1), least_gain: 0.5 }
        );
    }

    #[test]
    fn d17_a_changed_file_is_read_once_with_the_flags() {
        let path =
            std::env::temp_dir().join(format!("zonewise-config-{}.yaml", std::process::id()));
        let write = |lines: &str| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{lines}");
            std::fs::write(&path, text).unwrap();
        };
        write("");
        let flags = File { max_endpoints_per_slice: Some(7), ..File::default() };
        let config = ConfigFile::read(&path, flags, "host").unwrap();
        let mut file = config.file.unwrap();
        assert!(file.changed().is_none(), "nothing has changed");
        write("defaultPreference: Zone");
        let settings = file.changed().unwrap().unwrap().settings;
        assert_eq!((settings.default_preference.as_str(), settings.max_endpoints), ("Zone", 7));
        assert!(file.changed().is_none(), "read already");
        write("defaultPreference: Nearest");
        let error = file.changed().unwrap().err().unwrap().to_string();
        assert!(error.contains("invalid default preference `Nearest`"), "{error}");
        assert!(file.changed().is_none(), "reported already");
        std::fs::remove_file(&path).unwrap();
        assert!(file.changed().unwrap().is_err());
        assert!(file.changed().is_none(), "reported already");
        write("defaultPreference: Zone");
        assert!(file.changed().unwrap().is_ok());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = File {
            max_endpoints_per_slice: Some(10),
            compat: Some(Compat::Upstream),
            ..File::default()
        };
        let gates = BTreeMap::from([("TopologyAwareHints".to_owned(), false)]);
        let flags = File {
            max_endpoints_per_slice: Some(20),
            feature_gates: Some(gates),
            ..File::default()
        };
        let settings = file.overridden_by(flags).settings().unwrap();
        assert_eq!(
            (settings.max_endpoints, settings.upstream, settings.gates.hints),
            (20, true, false)
        );
    }
}
