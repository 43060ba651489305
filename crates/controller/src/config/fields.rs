//! The fields of the configuration file, how flags override them, and their defaults and limits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;
use zonewise_cluster::lease;
use zonewise_cluster::watch::ContentType;
use zonewise_common::duration::ConfigDuration;
use zonewise_inventory::webhook::WebhookTarget;
use zonewise_slices::settings::{FeatureGates, Gate, Settings, Settling};
use zonewise_telemetry::file::{self, FileError};
use zonewise_telemetry::tls::Certificate;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::expression::{Definition, Library};

use super::demand::{DemandFile, Source};
use super::{API_VERSION, Admission, Compat, Config, ConfigError, GuardConfig, KIND, Mode};

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
    pub(super) fn overridden_by(self, flags: Self) -> Self {
        Self {
            quiet_period: flags.quiet_period.or(self.quiet_period),
            least_gain: flags.least_gain.or(self.least_gain),
        }
    }

    pub(super) fn settling(self) -> Settling {
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
            let found = |field: Option<String>| field.unwrap_or_else(|| "none".to_owned());
            let message = format!(
                "expected apiVersion {API_VERSION} and kind {KIND}, found {} and {}",
                found(file.api_version),
                found(file.kind)
            );
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
        let demand = self.demand.unwrap_or_default();
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
            default_demand: demand.default.unwrap_or_default().into(),
            default_failing_zones: demand.failing_zones.unwrap_or_default().into(),
            failures_are_watched: demand.source.unwrap_or_default() == Source::Proxies,
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
