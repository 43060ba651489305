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
mod fields;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use zonewise_cluster::lease;
use zonewise_cluster::watch::ContentType;
use zonewise_common::api_group::CONFIG_V1ALPHA1 as API_VERSION;
use zonewise_inventory::webhook::WebhookTarget;
use zonewise_slices::settings::{Gate, Settings};
use zonewise_telemetry::file::{self, FileError};
use zonewise_telemetry::tls::Certificate;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::expression::LibraryError;

pub use demand::{
    DefaultDemand, DefaultFailingZones, DemandConfig, DemandFile, PrometheusConfig, PrometheusFile,
    Source,
};
pub use fields::{
    CapacityFile, ClientConnection, File, GuardFile, LeaderElection, MissingCpuFile, SettlingFile,
    WebhookFile,
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

const KIND: &str = "ControllerConfiguration";

/// The names of all feature gates.
pub fn gate_names() -> [&'static str; 3] {
    Gate::ALL.map(Gate::name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zonewise_common::duration::ConfigDuration;
    use zonewise_slices::requested::{Demand, FailingZones};
    use zonewise_slices::settings::Settling;

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
            ("demand: { failingZones: avoid }", "c.yaml:3:"),
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
            ("mode: observe\ndemand: { podMetrics: true }", "leave out `demand.podMetrics`"),
            ("compat: upstream\ndemand: { podMetrics: true }", "leave out `demand.podMetrics`"),
            ("demand: { podMetrics: always }", "c.yaml:3:"),
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
        let by_use = |lines: &str| read(lines).unwrap().demand;
        assert!(!by_use("demand: { source: proxies }").pod_metrics);
        let alone = by_use("demand: { podMetrics: true }");
        assert!(alone.pod_metrics && alone.is_on() && alone.source == Source::None);
        assert!(!DemandConfig::default().is_on());
        let failing = |lines: &str| read(lines).unwrap().settings.default_failing_zones;
        assert_eq!(failing("demand: { source: proxies }"), FailingZones::Ignore);
        assert_eq!(
            failing("demand: { source: proxies, failingZones: spill }"),
            FailingZones::Spill
        );
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
