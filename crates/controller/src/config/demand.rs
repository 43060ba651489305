//! Where the controller has the demand of Services from.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use zonewise_slices::requested::Demand;

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
}

/// The group `demand` of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DemandFile {
    /// `none` or `proxies`.
    pub source: Option<Source>,
    /// What Services without the annotation get: `model` or `measured`.
    pub default: Option<DefaultDemand>,
    /// A file with a token for the audience `zonewise-demand`, with which proxies are asked.
    pub token_file: Option<PathBuf>,
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

/// Where the demand of Services comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandConfig {
    /// Who measures it.
    pub source: Source,
    /// A file with the token with which proxies are asked.
    pub token_file: PathBuf,
    /// The shortest time between two questions to a proxy, and between two decisions.
    pub period: Duration,
    /// The shortest time between two writes of what decisions used.
    pub write_period: Duration,
}

impl Default for DemandConfig {
    fn default() -> Self {
        Self {
            source: Source::None,
            token_file: TOKEN_FILE.into(),
            period: Duration::from_secs(15),
            write_period: Duration::from_secs(60),
        }
    }
}

/// Where the chart mounts the token.
const TOKEN_FILE: &str = "/var/run/secrets/zonewise-demand/token";

impl DemandFile {
    pub(super) fn overridden_by(self, flags: Self) -> Self {
        Self {
            source: flags.source.or(self.source),
            default: flags.default.or(self.default),
            token_file: flags.token_file.or(self.token_file),
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
            (Mode::Observe, _) => Some("mode `observe` has no leader that would ask the proxies"),
            (_, Some(Compat::Upstream)) => Some("`compat: upstream` decides by CPU alone"),
            _ => None,
        };
        if let Some(obstacle) = obstacle.filter(|_| source != Source::None) {
            return Err(ConfigError::Settings(format!("{obstacle}; leave out `demand.source`")));
        }
        let token_file = self.token_file.filter(|path| !path.as_os_str().is_empty());
        Ok(DemandConfig { source, token_file: token_file.unwrap_or(usual.token_file), ..usual })
    }
}
