//! Configuration: one versioned file, with flags on top of it.
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
//! Fields that are not known are refused by name: a misspelt one must not be silently nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;
use zonewise_cluster::lease;
use zonewise_common::duration::ConfigDuration;
use zonewise_slices::settings::{Gates, Settings};
use zonewise_telemetry::file::{self, FileError};
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::expression::{Definition, Library, LibraryError};

/// What a controller runs with.
#[derive(Clone)]
pub struct Config {
    /// How slices are written.
    pub settings: Settings,
    /// What to do when a node does not tell its CPU.
    pub missing_cpu: MissingCpu,
    /// Services worked on at once.
    pub workers: usize,
    /// How long Pod changes are gathered.
    pub batch_period: Duration,
    /// Where health and metrics are served.
    pub metrics_address: SocketAddr,
    /// Leader election; `None` without.
    pub lease: Option<lease::Config>,
}

/// The file, and what flags set on top of it: each field may be absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct File {
    /// `config.zonewise.dev/v1alpha1`.
    pub api_version: Option<String>,
    /// `ControllerConfiguration`.
    pub kind: Option<String>,
    /// `none` or `upstream`.
    pub compat: Option<Compat>,
    /// The writer's name on slices.
    pub managed_by: Option<String>,
    /// Earlier names whose slices are taken over.
    pub adopt_managed_by: Option<Vec<String>>,
    /// Most endpoints in a slice.
    pub max_endpoints_per_slice: Option<u32>,
    /// Services worked on at once.
    pub concurrent_service_syncs: Option<u32>,
    /// How long Pod changes are gathered.
    pub endpoint_updates_batch_period: Option<ConfigDuration>,
    /// What Services get that ask for nothing.
    pub default_preference: Option<String>,
    /// Subsetting of Services that ask for nothing.
    pub default_subsetting: Option<String>,
    /// Features by name.
    pub feature_gates: Option<BTreeMap<String, bool>>,
    /// How capacity is measured.
    pub capacity: Option<CapacityFile>,
    /// Leader election.
    pub leader_election: Option<LeaderElection>,
    /// Where health and metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// Heuristics of your own.
    pub heuristics: Option<Vec<Spanned<Definition>>>,
    /// Where it was read from, for messages.
    #[serde(skip)]
    pub origin: String,
}

/// Whose behaviour is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// The design documents, with our improvements.
    None,
    /// The reference, quirks included.
    Upstream,
}

/// How capacity is measured.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CapacityFile {
    /// `refuse` or `count-nodes`.
    pub missing_cpu: Option<MissingCpuFile>,
}

/// What to do when a node does not tell its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingCpuFile {
    /// No hints by capacity.
    Refuse,
    /// All nodes count as equal.
    CountNodes,
}

/// Leader election.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether there is one.
    pub leader_elect: Option<bool>,
    /// How long a silent leader keeps the others waiting.
    pub lease_duration: Option<ConfigDuration>,
    /// How long a leader writes on without renewal.
    pub renew_deadline: Option<ConfigDuration>,
    /// How long between two tries.
    pub retry_period: Option<ConfigDuration>,
    /// Where the lease is.
    pub resource_namespace: Option<String>,
    /// Its name.
    pub resource_name: Option<String>,
    /// Who we are; the host's name and a random suffix if absent.
    pub identity: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read, or is not what it should be.
    #[error(transparent)]
    File(#[from] FileError),
    /// A gate that does not exist.
    #[error("unknown feature gate `{0}`; known are {known}", known = GATES.join(", "))]
    Gate(String),
    /// A number out of range.
    #[error("{name} is {value}: use {range}")]
    Range {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u32,
        /// What would do.
        range: &'static str,
    },
    /// A heuristic that cannot be used.
    #[error("{place}: {error}")]
    Heuristic {
        /// File, line and column.
        place: String,
        /// Why.
        error: Box<LibraryError>,
    },
    /// Settings that cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Times that do not fit together.
    #[error("leader election: {0}")]
    Lease(#[from] lease::ConfigError),
}

const API_VERSION: &str = "config.zonewise.dev/v1alpha1";
const KIND: &str = "ControllerConfiguration";

/// The feature gates there are.
pub const GATES: [&str; 3] =
    ["TopologyAwareHints", "TopologyAwareSubsetting", "ServiceRoutingPreference"];

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no configuration of this program, with line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (name, text) = file::read(path)?;
        Self::parse(&name, &text)
    }

    /// Reads the text of a file with this name.
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
    /// With the first that cannot be used.
    pub fn library(&self) -> Result<Library, ConfigError> {
        let found = self.heuristics.as_deref().unwrap_or_default();
        let definitions: Vec<Definition> = found.iter().map(|item| item.value.clone()).collect();
        Library::new(&definitions).map_err(|error| {
            let location = found.get(error.index).map(|item| item.referenced);
            let place = file::position(&self.origin, location);
            ConfigError::Heuristic { place, error: Box::new(error) }
        })
    }

    /// What flags set wins.
    pub fn overridden_by(self, flags: Self) -> Self {
        let election = self.leader_election.unwrap_or_default();
        let over = flags.leader_election.unwrap_or_default();
        let mut gates = self.feature_gates.unwrap_or_default();
        gates.extend(flags.feature_gates.unwrap_or_default());
        Self {
            api_version: flags.api_version.or(self.api_version),
            kind: flags.kind.or(self.kind),
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
                resource_name: over.resource_name.or(election.resource_name),
                identity: over.identity.or(election.identity),
            }),
            metrics_address: flags.metrics_address.or(self.metrics_address),
            heuristics: flags.heuristics.or(self.heuristics),
            origin: self.origin,
        }
    }

    /// Checks everything and fills in the defaults. `host` names this machine.
    ///
    /// # Errors
    /// With the field that cannot be used.
    pub fn resolve(self, host: &str) -> Result<Config, ConfigError> {
        let workers = in_range(
            "concurrentServiceSyncs",
            self.concurrent_service_syncs.unwrap_or(5),
            50,
            "1 to 50",
        )?;
        let address = ([0, 0, 0, 0], 10270).into();
        let metrics_address = self.metrics_address.unwrap_or(address);
        let missing_cpu = match self.capacity.and_then(|capacity| capacity.missing_cpu) {
            Some(MissingCpuFile::CountNodes) => MissingCpu::CountNodes,
            Some(MissingCpuFile::Refuse) | None => MissingCpu::Refuse,
        };
        let lease = lease(self.leader_election.clone().unwrap_or_default(), host)?;
        let batch_period = self.endpoint_updates_batch_period.map_or(Duration::ZERO, |span| span.0);
        let settings = self.settings()?;
        Ok(Config {
            settings,
            missing_cpu,
            workers: workers as usize,
            batch_period,
            metrics_address,
            lease,
        })
    }

    /// The settings of the writing part alone: what `plan` and `explain` need too.
    ///
    /// # Errors
    /// With the field that cannot be used.
    pub fn settings(self) -> Result<Settings, ConfigError> {
        let usual = Settings::default();
        let max = self.max_endpoints_per_slice.unwrap_or(100);
        let max = in_range("maxEndpointsPerSlice", max, 1000, "1 to 1000")?;
        let library = self.library()?;
        let settings = Settings {
            managed_by: self.managed_by.map_or(usual.managed_by, Into::into),
            adopt: self.adopt_managed_by.unwrap_or_default().into_iter().map(Into::into).collect(),
            max_endpoints: max as usize,
            upstream: self.compat == Some(Compat::Upstream),
            gates: gates(&self.feature_gates.unwrap_or_default())?,
            default_preference: self.default_preference.unwrap_or(usual.default_preference),
            default_subsetting: self.default_subsetting.unwrap_or(usual.default_subsetting),
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

fn gates(named: &BTreeMap<String, bool>) -> Result<Gates, ConfigError> {
    let mut gates = Gates::default();
    for (name, on) in named {
        match name.as_str() {
            "TopologyAwareHints" => gates.hints = *on,
            "TopologyAwareSubsetting" => gates.subsetting = *on,
            "ServiceRoutingPreference" => gates.preference = *on,
            unknown => return Err(ConfigError::Gate(unknown.into())),
        }
    }
    Ok(gates)
}

fn lease(file: LeaderElection, host: &str) -> Result<Option<lease::Config>, ConfigError> {
    if file.leader_elect == Some(false) {
        return Ok(None);
    }
    let usual = lease::Config::new(file.identity.unwrap_or_else(|| lease::unique_identity(host)));
    let span = |span: Option<ConfigDuration>, usual: Duration| span.map_or(usual, |span| span.0);
    let config = lease::Config {
        namespace: file.resource_namespace.unwrap_or(usual.namespace),
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
            ("maxEndpointsPerSlice: 0", "maxEndpointsPerSlice is 0: use 1 to 1000"),
            ("maxEndpointsPerSlice: 1001", "maxEndpointsPerSlice is 1001: use 1 to 1000"),
            ("concurrentServiceSyncs: 51", "concurrentServiceSyncs is 51: use 1 to 50"),
            (
                "featureGates: { Hints: true }",
                "unknown feature gate `Hints`; known are TopologyAwareHints",
            ),
            ("endpointUpdatesBatchPeriod: soon", "`soon` is not a duration"),
            ("endpointUpdatesBatchPeriod: -1s", "`-1s` is negative"),
            ("compat: downstream", "c.yaml:3:"),
            ("managedBy: 'not a label'", "is no label value"),
            ("defaultPreference: Nearest", "routing preferences without a domain are reserved"),
            ("defaultSubsetting: some", "default subsetting `some` is not known"),
            ("leaderElection: { leaseDuration: 5s }", "leader election"),
            ("heuristics: [ { name: example.com/x, endpointZones: '[nothing]' } ]", "c.yaml:3:"),
            ("metricsAddress: nowhere", "c.yaml:3:"),
        ];
        for (lines, expected) in rows {
            let error = read(lines).err().unwrap_or_default();
            assert!(error.contains(expected), "{lines}: {error}");
        }
        let error = File::parse("c.yaml", "kind: Pod").err().unwrap().to_string();
        assert!(error.contains("expected apiVersion config.zonewise.dev/v1alpha1"), "{error}");
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
