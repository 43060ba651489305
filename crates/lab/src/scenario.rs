//! Scenarios: a cluster, what happens in it, and what is expected.
//!
//! ```yaml
//! title: One zone loses its endpoints
//! cluster:
//!   zones: [{name: a, nodes: 2, cores: 4}, {name: b, nodes: 2, cores: 4}]
//! services:
//!   - name: web
//!     endpoints: {a: 3, b: 3}
//!     connections: 100
//! acts:
//!   - title: Balanced
//!     look: The diagonal.
//!     do:
//!       - annotate: {service: web, key: zonewise.dev/routing-preference, value: zonewise.dev/balanced}
//!     measure: 5s
//!     expect: {service: web, inZone: {atLeast: 90%}}
//! ```
//!
//! Unknown fields and values that do not fit are refused by name before anything is created.

mod check;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use zonewise_common::duration::ConfigDuration;
use zonewise_slices::requested::Demand;
use zonewise_telemetry::file::{self, FileError};

pub use crate::size::Size;

use check::{annotated, requested};

/// Built-in scenarios: name and text.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("story", include_str!("../scenarios/story.yaml")),
    ("hot-zone", include_str!("../scenarios/hot-zone.yaml")),
    ("hot-zone-measured", include_str!("../scenarios/hot-zone-measured.yaml")),
    ("tiny-service", include_str!("../scenarios/tiny-service.yaml")),
    ("node-churn", include_str!("../scenarios/node-churn.yaml")),
    ("subsets", include_str!("../scenarios/subsets.yaml")),
];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// What the scenario shows.
    pub title: String,
    /// The cluster at the start.
    pub cluster: Cluster,
    /// The Services, with their Pods and the connections they get.
    pub services: Vec<Service>,
    /// What happens, act by act.
    pub acts: Vec<Act>,
    /// It is played in another size than it was written for: the shares and loads that its acts expect, and the
    /// reasons, are those of the size it was written for.
    #[serde(skip)]
    pub resized: bool,
}

/// The cluster at the start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Additional round-trip time between two zones.
    #[serde(default)]
    pub delay: ConfigDuration,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    #[serde(default = "two")]
    pub nodes: usize,
    /// Cores of each node.
    #[serde(default = "four")]
    pub cores: u32,
}

fn evacuation_step() -> ConfigDuration {
    ConfigDuration(Duration::from_secs(5))
}

fn two() -> usize {
    2
}

fn four() -> u32 {
    4
}

/// A Service, its Pods and the connections it gets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Pods per zone.
    pub endpoints: BTreeMap<String, usize>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// `spec.trafficDistribution`.
    #[serde(default)]
    pub traffic_distribution: Option<String>,
    /// Connections per second over all zones, divided in proportion to the cores of each zone's nodes.
    pub connections: f64,
    /// The proportion in which they are divided instead, by zone; a zone that is not named makes none.
    #[serde(default)]
    pub callers: Callers,
}

/// A proportion of zones.
pub type Callers = BTreeMap<String, f64>;

/// An act: steps are carried out, then connections are counted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Act {
    /// Its title.
    pub title: String,
    /// What to look at; may be left out.
    #[serde(default)]
    pub look: String,
    /// The steps, in this order.
    #[serde(default, rename = "do")]
    pub steps: Vec<Step>,
    /// How long connections are counted, once the proxies are up to date.
    pub measure: ConfigDuration,
    /// What must hold.
    #[serde(default)]
    pub expect: Expect,
    /// What must hold for other Services, which are measured at the same time.
    #[serde(default)]
    pub beside: Vec<Expect>,
}

/// A step of an act.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Step {
    /// Sets an annotation of a Service; without a value, removes it.
    Annotate {
        /// The Service.
        service: String,
        /// The annotation.
        key: String,
        /// Its value.
        #[serde(default)]
        value: Option<String>,
    },
    /// Sets `spec.trafficDistribution` of a Service; without a value, removes it.
    Distribute {
        /// The Service.
        service: String,
        /// The value.
        #[serde(default)]
        value: Option<String>,
    },
    /// Brings the Pods of a Service in a zone to a number.
    Scale {
        /// The Service.
        service: String,
        /// The zone.
        zone: String,
        /// The new number.
        to: usize,
    },
    /// Replaces all Pods of a Service, one after the other: a new one is ready before an old one goes.
    Roll {
        /// The Service.
        service: String,
    },
    /// Empties a zone in order: Pods are deleted, nodes become unready, then they are disconnected.
    Drain {
        /// The zone.
        zone: String,
    },
    /// Disconnects a zone without warning. Its nodes and Pods become unready a moment later.
    Cut {
        /// The zone.
        zone: String,
    },
    /// Ends a drain or a cut: nodes and Pods come back.
    Restore {
        /// The zone.
        zone: String,
    },
    /// Empties a zone as `zonewise evacuate` does, and waits until it is empty. Pods and nodes stay.
    Evacuate {
        /// The zone.
        zone: String,
        /// The least time between two steps; whole seconds.
        #[serde(default = "evacuation_step")]
        step: ConfigDuration,
    },
    /// Gives an evacuated zone its traffic back as `zonewise restore` does, and waits until it has all of it.
    GiveBack {
        /// The zone.
        zone: String,
    },
    /// Brings the nodes of a zone to a number. Pods of nodes that go move to others of the zone.
    Nodes {
        /// The zone.
        zone: String,
        /// The new number.
        to: usize,
    },
    /// Changes how many connections a Service gets.
    Traffic {
        /// The Service.
        service: String,
        /// From this zone; if absent, from all zones in proportion to their cores.
        #[serde(default)]
        zone: Option<String>,
        /// Connections per second.
        connections: f64,
    },
    /// Divides the connections of every Service anew, in this proportion; a zone that is not named makes none.
    Callers(Callers),
    /// Waits.
    Wait(ConfigDuration),
    /// Waits until no EndpointSlice has changed for a while.
    Unchanged {
        /// How long none may change.
        span: ConfigDuration,
        /// The longest to wait for that.
        at_most: ConfigDuration,
    },
}

/// What must hold at the end of an act.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expect {
    /// The Service that is measured; if absent, the first.
    pub service: Option<String>,
    /// The share of connections that stays in its zone.
    pub in_zone: Range<Percent>,
    /// How much more than its fair share the busiest endpoint gets.
    pub overload: Range<Percent>,
    /// Failed connections of the whole act, over all Services. The default allows none.
    pub failed: Range<u64>,
    /// The controller's reason must be one of these codes.
    pub reason: Vec<String>,
}

/// Bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Range<T> {
    /// Lower bound.
    pub at_least: Option<T>,
    /// Upper bound.
    pub at_most: Option<T>,
}

/// A share, written `90%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "String")]
pub struct Percent(pub f64);

impl TryFrom<String> for Percent {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=10_000.0).contains(number));
        number
            .map(|number| Self(number / 100.0))
            .ok_or_else(|| format!("`{text}` is not a percentage (examples: 90%, 12.5%)"))
    }
}

impl std::ops::Add for Percent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.1} %", self.0 * 100.0)
    }
}

impl Scenario {
    /// A built-in scenario, or one from a file.
    ///
    /// # Errors
    /// With file, line and column of what is wrong.
    pub fn find(name: &str) -> Result<Self, FileError> {
        match BUILT_IN.iter().find(|(shipped, _)| *shipped == name) {
            Some((name, text)) => Self::parse(name, text),
            None => {
                let (file, text) = file::read(Path::new(name)).map_err(|error| match error {
                    FileError::Unreadable { file, source } if !file.contains(['/', '.']) => {
                        let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                        let known = known.join(", ");
                        FileError::of(
                            &file,
                            format!(
                                "no such file ({source}), and not a built-in scenario ({known})"
                            ),
                        )
                    }
                    error => error,
                })?;
                Self::parse(&file, &text)
            }
        }
    }

    /// Parses and checks a scenario.
    ///
    /// # Errors
    /// With file, line and column of what is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let scenario: Self = file::decode(file, text)?;
        scenario.check().map_err(|message| FileError::of(file, message))?;
        Ok(scenario)
    }

    /// The same scenario with measuring times scaled so that all acts together take about this long.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        let measured: Duration = self.acts.iter().map(|act| act.measure.0).sum();
        // Steps, and waiting for the proxies, take time that cannot be scaled.
        let rest: Duration = self.acts.iter().map(Act::unmeasured).sum();
        let factor =
            duration.saturating_sub(rest).as_secs_f64() / measured.as_secs_f64().max(0.001);
        for act in &mut self.acts {
            act.measure.0 = act.measure.0.mul_f64(factor.min(1000.0)).max(MIN_MEASURE);
        }
        self
    }

    /// How many Pods there are at the start.
    pub fn endpoints(&self) -> usize {
        self.services.iter().flat_map(|service| service.endpoints.values()).sum()
    }

    /// Returns why a kernel in memory cannot play the scenario; `None` if it can.
    pub fn needs_real_kernel(&self) -> Option<&'static str> {
        if !self.cluster.delay.0.is_zero() {
            Some("packets take no time in memory, so there is no delay between zones")
        } else if self.measures_demand() {
            Some("proxies in memory count no connections, so there is no measured demand")
        } else {
            None
        }
    }

    /// Whether the demand of a Service is measured at some time.
    pub(crate) fn measures_demand(&self) -> bool {
        let asked = |key: &str, value: &str| {
            let requested = requested(annotated(key, value));
            requested.is_ok_and(|requested| requested.demand == Demand::Measured)
        };
        let mut services = self.services.iter().flat_map(|service| &service.annotations);
        let mut steps = self.acts.iter().flat_map(|act| &act.steps);
        services.any(|(key, value)| asked(key, value))
            || steps.any(|step| match step {
                Step::Annotate { key, value: Some(value), .. } => asked(key, value),
                _ => false,
            })
    }

    /// Whether some zones make more connections than their cores say.
    pub(crate) fn calls_unevenly(&self) -> bool {
        let mut steps = self.acts.iter().flat_map(|act| &act.steps);
        self.services.iter().any(|service| !service.callers.is_empty())
            || steps.any(|step| matches!(step, Step::Callers(_)))
    }
}

/// In less time, too few connections are made to measure anything.
const MIN_MEASURE: Duration = Duration::from_millis(500);
/// No cloud provider's region has this many zones.
pub(crate) const ZONE_LIMIT: usize = 26;
/// Controller and proxies have followed a step within about this time.
const FOLLOW: Duration = Duration::from_millis(800);
/// A deleted Pod serves for this long at most, then it is removed.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

impl Act {
    /// About how long the act takes without measuring.
    fn unmeasured(&self) -> Duration {
        let step = |step: &Step| match step {
            Step::Wait(span) | Step::Unchanged { span, .. } => span.0,
            Step::Scale { .. } | Step::Drain { .. } | Step::Nodes { .. } => GRACE,
            Step::Roll { .. } => GRACE * 2,
            Step::Evacuate { step, .. } => step.0 * 5,
            _ => Duration::ZERO,
        };
        FOLLOW + self.steps.iter().map(step).sum::<Duration>()
    }
}

/// A short description, for the screen.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotate { service, key, value: Some(value) } => {
                write!(out, "annotate Service {service}: {key}={value}")
            }
            Self::Annotate { service, key, value: None } => {
                write!(out, "annotate Service {service}: {key}-")
            }
            Self::Distribute { service, value } => write!(
                out,
                "Service {service}: trafficDistribution {}",
                value.as_deref().unwrap_or("none")
            ),
            Self::Scale { service, zone, to } => write!(out, "{service}: {to} Pods in zone {zone}"),
            Self::Roll { service } => write!(out, "{service}: replace every Pod"),
            Self::Drain { zone } => write!(out, "drain zone {zone}"),
            Self::Cut { zone } => write!(out, "cut zone {zone} off"),
            Self::Restore { zone } => write!(out, "zone {zone} comes back"),
            Self::Evacuate { zone, .. } => write!(out, "empty zone {zone}"),
            Self::GiveBack { zone } => write!(out, "zone {zone} gets its traffic back"),
            Self::Nodes { zone, to } => write!(out, "zone {zone}: {to} nodes"),
            Self::Traffic { service, zone: Some(zone), connections } => {
                write!(out, "{connections} connections/s from zone {zone} to {service}")
            }
            Self::Traffic { service, zone: None, connections } => {
                write!(out, "{connections} connections/s to {service}")
            }
            Self::Callers(callers) => {
                let parts = callers.iter().map(|(zone, part)| format!("{part} from {zone}"));
                write!(out, "connections: {}", parts.collect::<Vec<_>>().join(", "))
            }
            Self::Wait(span) => write!(out, "wait {span}"),
            Self::Unchanged { span, .. } => {
                write!(out, "wait until no slice has changed for {span}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_along_can_be_played() {
        for (name, _) in BUILT_IN {
            let scenario = Scenario::find(name).unwrap();
            assert!(!scenario.acts.is_empty(), "{name}");
        }
        let unknown = Scenario::find("nonsense").unwrap_err().to_string();
        assert!(
            unknown.contains(
                "not a built-in scenario (story, hot-zone, hot-zone-measured, tiny-service, node-churn, subsets)"
            ),
            "{unknown}"
        );
    }

    #[test]
    fn a_duration_stretches_what_is_measured() {
        let lasting = |seconds| {
            let scenario = Scenario::find("tiny-service").unwrap();
            let acts = scenario.lasting(Duration::from_secs(seconds)).acts;
            acts.iter().map(|act| act.measure.0).sum::<Duration>()
        };
        // Three acts that take 800 ms each to follow, and one with a Pod that ends.
        assert_eq!(lasting(64).as_millis(), 64_000 - 4_400);
        assert_eq!(lasting(0), MIN_MEASURE * 3, "never less than can be counted");
    }

    #[test]
    fn steps_are_told_in_a_few_words() {
        let told: Vec<String> = Scenario::find("story")
            .unwrap()
            .acts
            .iter()
            .flat_map(|act| &act.steps)
            .map(ToString::to_string)
            .collect();
        let expected = [
            "annotate Service web: service.kubernetes.io/topology-mode=Auto",
            "annotate Service web: zonewise.dev/routing-preference=zonewise.dev/balanced",
            "annotate Service web: service.kubernetes.io/topology-mode-",
            "web: 0 Pods in zone c",
            "web: 2 Pods in zone c",
            "drain zone b",
            "zone b comes back",
            "web: replace every Pod",
            "annotate Service web: service.kubernetes.io/topology-mode=Auto",
            "web: 3 Pods in zone c",
            "web: 5 Pods in zone a",
            "web: 5 Pods in zone b",
            "web: 4 Pods in zone c",
            "web: 5 Pods in zone c",
        ];
        assert_eq!(told, expected);
    }
}
