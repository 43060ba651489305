//! Where the controller has the demand of Services from.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use zonewise_cluster::prometheus::Server;
use zonewise_common::duration::ConfigDuration;
use zonewise_demand::cpu_use::Pace;
use zonewise_demand::queries::{Preset, Queries};
use zonewise_slices::requested::{Demand, FailingZones};

use super::{Compat, ConfigError, Mode};

/// Where the demand of Services is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Nowhere: traffic is expected from zones in proportion to the CPU of their nodes.
    #[default]
    None,
    /// By the proxies, which the leading controller asks.
    Proxies,
    /// By whatever a Prometheus scrapes, which the leading controller asks.
    Prometheus,
}

/// The group `demand` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DemandFile {
    /// `none`, `proxies` or `prometheus`.
    pub source: Option<Source>,
    /// What Services without the annotation get: `model` or `measured`.
    pub default: Option<DefaultDemand>,
    /// What happens with zones whose endpoints fail, of Services without the annotation: `ignore` or `spill`.
    pub failing_zones: Option<DefaultFailingZones>,
    /// Whether the metrics API is asked for the CPU that Pods use, of Services whose endpoints count by that.
    pub pod_metrics: Option<bool>,
    /// A file with a token for the audience `zonewise-demand`, with which proxies are asked.
    pub token_file: Option<PathBuf>,
    /// The Prometheus that is asked.
    pub prometheus: Option<PrometheusFile>,
}

/// The group `demand.prometheus` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrometheusFile {
    /// Its address without `/api/v1`.
    pub url: Option<String>,
    /// Whose metrics it has: `zonewise`, `hubble` or `istio`.
    pub preset: Option<Preset>,
    /// A query of its own instead: connections per second by `namespace`, `service` and `zone`.
    pub query: Option<String>,
    /// The same, of the node alone that sends most.
    pub largest_query: Option<String>,
    /// How many nodes are scraped, by `zone`.
    pub reporting_query: Option<String>,
    /// The time that rates are taken over.
    pub window: Option<ConfigDuration>,
    /// A file with a bearer token.
    pub bearer_token_file: Option<PathBuf>,
    /// A file with the certificates of authorities.
    pub ca_file: Option<PathBuf>,
    /// The tenant, for servers that have several.
    pub tenant: Option<String>,
}

/// What Services without the annotation `zonewise.dev/demand` get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultDemand {
    /// Shares by the CPU of nodes.
    #[default]
    Model,
    /// Shares by what is measured.
    Measured,
}

impl From<DefaultDemand> for Demand {
    fn from(default: DefaultDemand) -> Self {
        match default {
            DefaultDemand::Model => Self::Model,
            DefaultDemand::Measured => Self::Measured,
        }
    }
}

/// What happens with zones whose endpoints fail, of Services without the annotation `zonewise.dev/failing-zones`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DefaultFailingZones {
    /// They get what they would get otherwise.
    #[default]
    Ignore,
    /// They count for less.
    Spill,
}

impl From<DefaultFailingZones> for FailingZones {
    fn from(default: DefaultFailingZones) -> Self {
        match default {
            DefaultFailingZones::Ignore => Self::Ignore,
            DefaultFailingZones::Spill => Self::Spill,
        }
    }
}

/// Where the demand of Services comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandConfig {
    /// Who measures it.
    pub source: Source,
    /// Whether the metrics API is asked for the CPU that Pods use.
    pub pod_metrics: bool,
    /// How often it is asked, and how fast zones come to count for more or less by that.
    pub use_pace: Pace,
    /// A file with the token with which proxies are asked.
    pub token_file: PathBuf,
    /// The Prometheus that is asked, if that is the source.
    pub prometheus: PrometheusConfig,
    /// The shortest time between two questions to a proxy, and between two decisions.
    pub period: Duration,
    /// The shortest time between two writes of what decisions used.
    pub write_period: Duration,
}

/// A Prometheus, and what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusConfig {
    /// Where it is.
    pub server: Server,
    /// The queries.
    pub queries: Queries,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        let server = Server {
            url: String::new(),
            bearer_token_file: None,
            ca_file: None,
            tenant: None,
            limit: PROMETHEUS_LIMIT,
        };
        Self { server, queries: Preset::default().queries().over("2m") }
    }
}

impl DemandConfig {
    /// Whether the leader asks for anything, and stores what decisions used.
    pub fn is_on(&self) -> bool {
        self.source != Source::None || self.pod_metrics
    }
}

impl Default for DemandConfig {
    fn default() -> Self {
        Self {
            source: Source::None,
            pod_metrics: false,
            use_pace: Pace::USUAL,
            token_file: TOKEN_FILE.into(),
            prometheus: PrometheusConfig::default(),
            period: Duration::from_secs(15),
            write_period: Duration::from_secs(60),
        }
    }
}

/// Where the chart mounts the token.
const TOKEN_FILE: &str = "/var/run/secrets/zonewise-demand/token";

/// Time for an answer of Prometheus: less than between two questions.
const PROMETHEUS_LIMIT: Duration = Duration::from_secs(10);
/// The time that rates are taken over: four scrapes at 30 seconds.
const WINDOW: Duration = Duration::from_secs(120);
/// A rate over less than a minute sees fewer than two scrapes with usual settings, and one over more than an hour follows
/// nothing.
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(3600);

impl PrometheusFile {
    fn resolve(self) -> Result<PrometheusConfig, ConfigError> {
        let wrong = |text: &str| Err(ConfigError::Settings(text.to_owned()));
        let Some(url) = self.url.filter(|url| !url.is_empty()) else {
            return wrong(
                "`demand.source` is prometheus and `demand.prometheus.url` is missing (example: \
                 http://prometheus.monitoring:9090)",
            );
        };
        let window = self.window.map_or(WINDOW, |window| window.0);
        if !WINDOWS.contains(&window) {
            return wrong("`demand.prometheus.window` has to be between 10s and 1h");
        }
        let queries = match (self.query, self.preset) {
            (Some(_), Some(_)) => {
                return wrong(
                    "`demand.prometheus` has a query and a preset; leave out one of them",
                );
            }
            (Some(rates), None) => {
                Queries { rates, largest: self.largest_query, reporting: self.reporting_query }
            }
            (None, _) if self.largest_query.is_some() || self.reporting_query.is_some() => {
                return wrong(
                    "`demand.prometheus.largestQuery` and `reportingQuery` belong to a `query` of your own; leave them \
                     out, or give it too",
                );
            }
            (None, preset) => preset.unwrap_or_default().queries(),
        };
        let server = Server {
            url: url.trim_end_matches('/').to_owned(),
            bearer_token_file: self.bearer_token_file,
            ca_file: self.ca_file,
            tenant: self.tenant,
            limit: PROMETHEUS_LIMIT,
        };
        server
            .check()
            .map_err(|error| ConfigError::Settings(format!("`demand.prometheus`: {error}")))?;
        Ok(PrometheusConfig { server, queries: queries.over(&format!("{}s", window.as_secs())) })
    }
}

impl DemandFile {
    pub(super) fn overridden_by(self, flags: Self) -> Self {
        Self {
            source: flags.source.or(self.source),
            default: flags.default.or(self.default),
            failing_zones: flags.failing_zones.or(self.failing_zones),
            pod_metrics: flags.pod_metrics.or(self.pod_metrics),
            token_file: flags.token_file.or(self.token_file),
            prometheus: flags.prometheus.or(self.prometheus),
        }
    }

    pub(super) fn resolve(
        self,
        mode: Mode,
        compat: Option<Compat>,
    ) -> Result<DemandConfig, ConfigError> {
        let usual = DemandConfig::default();
        let source = self.source.unwrap_or_default();
        let obstacle = match (mode, compat) {
            (Mode::Observe, _) => Some("mode `observe` has no leader that would ask for demand"),
            (_, Some(Compat::Upstream)) => Some("`compat: upstream` decides by CPU alone"),
            _ => None,
        };
        let pod_metrics = self.pod_metrics.unwrap_or_default();
        if let Some(obstacle) = obstacle.filter(|_| pod_metrics) {
            return Err(ConfigError::Settings(format!(
                "{obstacle}; leave out `demand.podMetrics`"
            )));
        }
        if let Some(obstacle) = obstacle.filter(|_| source != Source::None) {
            return Err(ConfigError::Settings(format!("{obstacle}; leave out `demand.source`")));
        }
        let token_file = self.token_file.filter(|path| !path.as_os_str().is_empty());
        let token_file = token_file.unwrap_or(usual.token_file);
        if self.source.is_none() && self.prometheus.is_some() {
            let text =
                "`demand.prometheus` is given, and `demand.source` is not; set it to prometheus";
            return Err(ConfigError::Settings(text.to_owned()));
        }
        let prometheus = match source {
            Source::Prometheus => self.prometheus.unwrap_or_default().resolve()?,
            Source::None | Source::Proxies => usual.prometheus,
        };
        Ok(DemandConfig { source, pod_metrics, token_file, prometheus, ..usual })
    }
}
