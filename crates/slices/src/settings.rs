//! Settings of the controller that decide how slices are written.

use std::sync::Arc;
use std::time::Duration;

use zonewise_topology::expression::Library;
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::ParseError;
use zonewise_topology::heuristics::local_subset::LocalSubset;

use crate::requested::{self, Approach, Choice, Consumers, Demand, FailingZones, Request};

/// The value of the managed-by label on slices of the reference (`ControllerName` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/endpointslice/endpointslice_controller.go>). It is the default here too, so that
/// either controller takes over the slices of the other without a write.
pub const REFERENCE_MANAGED_BY: &str = "endpointslice-controller.k8s.io";

/// How slices are written.
#[derive(Clone)]
pub struct Settings {
    /// The value of the managed-by label on slices that we write.
    pub managed_by: Box<str>,
    /// Other values of that label whose slices are taken over and relabelled.
    pub adopt: Vec<Box<str>>,
    /// The most endpoints in a slice. The default, 100, and the limits, 1 to 1000, are the reference's:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/cmd/kube-controller-manager/app/options/endpointslicecontroller.go>.
    pub max_endpoints: usize,
    /// Write exactly what the reference writes, its quirks included (`--compat upstream`).
    pub upstream: bool,
    /// The built-in controller writes the slices, and an admission policy of ours their hints (`--mode guard`): what
    /// hints cannot carry is not planned.
    pub guard: bool,
    /// Features that can be turned off.
    pub gates: FeatureGates,
    /// The routing preference of Services that request nothing.
    pub default_preference: String,
    /// The subsetting approach of Services that request nothing. It takes precedence over
    /// `default_preference`.
    pub default_subsetting: String,
    /// What the shares of zones are taken from for Services that do not say it.
    pub default_demand: Demand,
    /// What happens with failing zones of Services that do not say it.
    pub default_failing_zones: FailingZones,
    /// Whether somebody tells which connections fail. Without it no zone can count for less.
    pub failures_are_watched: bool,
    /// The built-in heuristics and those of the configuration file.
    pub library: Library,
    /// When a Service gets a fresh decision although nothing forces one.
    pub settling: Settling,
}

/// When a Service gets a fresh decision although what is in force may stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settling {
    /// How long the Service must have been quiet; zero for never.
    pub quiet_period: Duration,
    /// By how much the fresh decision must be better: the part of the traffic that stays in its zone
    /// besides, or the overload that the most loaded endpoint is rid of.
    pub least_gain: f64,
}

impl Default for Settling {
    fn default() -> Self {
        Self { quiet_period: Duration::from_secs(15), least_gain: 0.02 }
    }
}

/// Features that can be turned off. What a feature wrote is removed when it is turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// [`Gate::Hints`].
    pub hints: bool,
    /// [`Gate::Subsetting`].
    pub subsetting: bool,
    /// [`Gate::Preference`].
    pub preference: bool,
}

/// A feature that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `TopologyAwareHints`: all hints but those of `spec.trafficDistribution`, which have no gate in the
    /// reference either.
    Hints,
    /// `TopologyAwareSubsetting`: slices per zone or region, and the subsetting annotation.
    Subsetting,
    /// `ServiceRoutingPreference`: the routing preference, as an annotation and as the controller's default.
    Preference,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 3] = [Self::Hints, Self::Subsetting, Self::Preference];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hints => "TopologyAwareHints",
            Self::Subsetting => "TopologyAwareSubsetting",
            Self::Preference => "ServiceRoutingPreference",
        }
    }
}

impl FeatureGates {
    /// Whether a gate is on.
    pub fn is_on(self, gate: Gate) -> bool {
        match gate {
            Gate::Hints => self.hints,
            Gate::Subsetting => self.subsetting,
            Gate::Preference => self.preference,
        }
    }

    /// Turns a gate on or off.
    pub fn set(&mut self, gate: Gate, on: bool) {
        *match gate {
            Gate::Hints => &mut self.hints,
            Gate::Subsetting => &mut self.subsetting,
            Gate::Preference => &mut self.preference,
        } = on;
    }

    /// The gates that are off and keep a request from having an effect: the gate of the key that makes
    /// the request, and the gate of what would be written.
    pub(crate) fn closed_for(self, key: Gate, choice: &Choice) -> Vec<Gate> {
        let written = choice.gate().filter(|gate| *gate != key);
        std::iter::once(key).chain(written).filter(|gate| !self.is_on(*gate)).collect()
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { hints: true, subsetting: true, preference: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            managed_by: REFERENCE_MANAGED_BY.into(),
            adopt: Vec::new(),
            max_endpoints: 100,
            upstream: false,
            guard: false,
            gates: FeatureGates::default(),
            default_preference: "Default".into(),
            default_subsetting: "Random".into(),
            default_demand: Demand::default(),
            default_failing_zones: FailingZones::default(),
            failures_are_watched: true,
            library: Library::default(),
            settling: Settling::default(),
        }
    }
}

impl Settings {
    /// How long a Service must be quiet to get a fresh decision; `None` if it never gets one for that
    /// reason. The reference has no such rule.
    pub fn settles_after(&self) -> Option<Duration> {
        let period = self.settling.quiet_period;
        (!self.upstream && !period.is_zero()).then_some(period)
    }

    /// A heuristic by its name.
    pub fn heuristic(&self, name: &str) -> Result<Arc<dyn Heuristic>, ParseError> {
        self.library.parse(name).map(Arc::from)
    }

    /// What counts for Services that request nothing: the default subsetting, or if that makes no
    /// subsets, the default preference. A Service with a traffic policy of `Local` never gets subsets.
    pub(crate) fn default_request(&self, local_policy: bool) -> Request {
        let request = |value: &str, choice| Request {
            source: "the controller's default",
            value: value.to_owned(),
            choice,
        };
        if self.upstream {
            return request("Default", Choice::ClusterWide);
        }
        let possible = |key: Gate, choice: &Choice| {
            self.gates.closed_for(key, choice).is_empty()
                && !(local_policy && choice.consumers().is_some())
        };
        let subsets = self.default_subsets().filter(|choice| possible(Gate::Subsetting, choice));
        if let Some(choice) = subsets {
            return request(&self.default_subsetting, choice);
        }
        let choice = requested::preference(&self.default_preference, self).ok();
        let choice = choice.filter(|choice| possible(Gate::Preference, choice));
        request(&self.default_preference, choice.unwrap_or(Choice::ClusterWide))
    }

    fn default_subsets(&self) -> Option<Choice> {
        match requested::approach(&self.default_subsetting)? {
            Approach::ClusterWide => None,
            Approach::Required => {
                let heuristic = self.heuristic("require-zone").ok()?;
                Some(Choice::Subsets(heuristic, Consumers::Zones))
            }
            Approach::Subsets(consumers) => {
                let heuristic = Arc::new(LocalSubset { threshold: None, padding: None });
                Some(Choice::Subsets(heuristic, consumers))
            }
        }
    }

    /// Checks the settings. The error says which one cannot be used, why, and what can.
    pub fn check(&self) -> Result<(), String> {
        if requested::approach(&self.default_subsetting).is_none() {
            return Err(format!(
                "unknown default subsetting `{}`; use Random, Auto, Require or Region",
                self.default_subsetting
            ));
        }
        if let Err(reason) = requested::preference(&self.default_preference, self) {
            let entry = reason.code().entry();
            return Err(format!(
                "invalid default preference `{}`: {}; {}",
                self.default_preference, entry.sentence, entry.remedy
            ));
        }
        if !(1..=1000).contains(&self.max_endpoints) {
            return Err(format!(
                "a slice cannot have up to {} endpoints; use 1 to 1000",
                self.max_endpoints
            ));
        }
        if !(0.0..=1.0).contains(&self.settling.least_gain) {
            return Err(format!(
                "settling.leastGain must be from 0 to 1 (0.02 is 2 %), not {}",
                self.settling.least_gain
            ));
        }
        if !is_label_value(&self.managed_by) {
            return Err(format!(
                "managed-by `{}` is not a valid label value (example: {REFERENCE_MANAGED_BY})",
                self.managed_by
            ));
        }
        Ok(())
    }

    /// Whether this controller manages slices with this value of the managed-by label.
    pub fn manages(&self, managed_by: Option<&str>) -> bool {
        managed_by.is_some_and(|name| {
            *name == *self.managed_by || self.adopt.iter().any(|adopted| **adopted == *name)
        })
    }
}

/// Whether a text can be the value of a label.
fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    text.len() <= 63
        && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
