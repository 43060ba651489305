//! What a Service asks for. Several keys can speak; the first that means something wins:
//!
//! ```text
//!  topology-mode: Auto  ►  subsetting  ►  routing-preference  ►  trafficDistribution  ►  default
//! ```
//!
//! What is not understood, or loses against a more specific key, is never dropped silently: it
//! comes back as a note.

use std::sync::Arc;

use zonewise_common::keys::{
    DOMAIN, PADDING, ROUTING_PREFERENCE, STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS,
    TOPOLOGY_MODE,
};
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::heuristics::local_subset::LocalSubset;
use zonewise_topology::heuristics::random::Random;
use zonewise_topology::heuristics::same_node::SameNode;
use zonewise_topology::heuristics::same_zone::SameZone;
use zonewise_topology::reason::Reason;
use zonewise_topology::threshold::Start;

use crate::service::Service;
use crate::settings::{Gates, Settings};

/// What is to be done for a Service.
#[derive(Clone)]
pub struct Asked {
    /// The value as written.
    pub value: String,
    /// The key it stands under.
    pub source: &'static str,
    /// What it means.
    pub choice: Choice,
    /// What was not understood or lost.
    pub notes: Vec<Note>,
}

/// Something about the asking that its owner should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The key.
    pub source: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Who should serve whom.
#[derive(Clone)]
pub enum Choice {
    /// Everyone uses every endpoint.
    Everywhere,
    /// Every endpoint is hinted to where it is, without looking at capacity.
    Near(Near),
    /// Hints or shares, as a heuristic decides.
    Heuristic(Arc<dyn Heuristic>),
    /// Slices per zone or region, as a heuristic decides.
    Subsets(Arc<dyn Heuristic>, Consumers),
}

/// How near an endpoint is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// In the same zone.
    Zone,
    /// On the same node, else in the same zone.
    Node,
}

/// Who has slices of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// Zones.
    Zones,
    /// Regions.
    Regions,
}

impl Choice {
    /// Whether it depends on what the nodes can send.
    pub fn depends_on_nodes(&self) -> bool {
        matches!(self, Self::Heuristic(_) | Self::Subsets(..))
    }

    /// The heuristic behind it.
    pub fn heuristic(&self) -> Arc<dyn Heuristic> {
        match self {
            Self::Everywhere => Arc::new(Random),
            Self::Near(Near::Zone) => Arc::new(SameZone),
            Self::Near(Near::Node) => Arc::new(SameNode),
            Self::Heuristic(heuristic) | Self::Subsets(heuristic, _) => Arc::clone(heuristic),
        }
    }

    /// Who has slices of its own, if anybody.
    pub fn consumers(&self) -> Option<Consumers> {
        match self {
            Self::Subsets(_, consumers) => Some(*consumers),
            Self::Everywhere | Self::Near(_) | Self::Heuristic(_) => None,
        }
    }

    /// The heuristic's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Everywhere => "random",
            Self::Near(Near::Zone) => "same-zone",
            Self::Near(Near::Node) => "same-node",
            Self::Heuristic(heuristic) | Self::Subsets(heuristic, _) => heuristic.name(),
        }
    }
}

/// The value of the topology annotation: the older key wins.
pub(crate) fn topology_mode(service: &Service) -> Option<(&'static str, &str)> {
    let read = |key| service.annotations.get(key).map(|value| (key, value));
    read(TOPOLOGY_AWARE_HINTS).or_else(|| read(TOPOLOGY_MODE))
}

/// Whether the topology annotation asks for hints.
pub fn is_auto(service: &Service) -> bool {
    matches!(topology_mode(service), Some((_, "Auto" | "auto")))
}

/// What `trafficDistribution` asks for.
pub fn traffic_distribution(service: &Service) -> Option<Near> {
    match service.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => Some(Near::Zone),
        Some("PreferSameNode") => Some(Near::Node),
        _ => None,
    }
}

/// What a Service asks for. The reference knows the topology annotation and the field only.
pub fn asked(service: &Service, settings: &Settings) -> Asked {
    let mut asking = Asking { service, settings, winner: None, notes: Vec::new() };
    asking.topology_mode();
    if !settings.upstream {
        asking.subsetting();
        asking.routing_preference();
    }
    asking.traffic_distribution();
    if service.topology_keys {
        asking.note("spec.topologyKeys", "", Reason::ChoiceOverridden);
    }
    let Asking { winner, notes, .. } = asking;
    let (source, value, choice) =
        winner.unwrap_or_else(|| settings.default_choice(service.local_policy));
    Asked { value, source, choice, notes }
}

struct Asking<'a> {
    service: &'a Service,
    settings: &'a Settings,
    winner: Option<(&'static str, String, Choice)>,
    notes: Vec<Note>,
}

impl Asking<'_> {
    fn note(&mut self, source: &'static str, value: &str, reason: Reason) {
        self.notes.push(Note { source, value: value.into(), reason });
    }

    /// A key that means something: it wins, or loses against one that came before.
    fn offer(&mut self, source: &'static str, value: &str, choice: Choice, gate: bool) {
        if !gate {
            self.note(source, value, Reason::GateOff);
        } else if self.winner.is_some() {
            self.note(source, value, Reason::ChoiceOverridden);
        } else {
            self.winner = Some((source, value.into(), choice));
        }
    }

    fn gates(&self) -> Gates {
        self.settings.gates
    }

    fn topology_mode(&mut self) {
        let Some((source, value)) = topology_mode(self.service) else { return };
        match value {
            "Auto" | "auto" => {
                let upstream = self.settings.upstream;
                let heuristic = Arc::new(if upstream { Auto::UPSTREAM } else { Auto::KEP_2433 });
                self.offer(source, value, Choice::Heuristic(heuristic), self.gates().hints);
            }
            "Disabled" | "disabled" | "" => {}
            _ => self.note(source, value, Reason::TopologyModeUnknown),
        }
    }

    fn subsetting(&mut self) {
        let Some(value) = self.service.annotations.get(SUBSETTING) else { return };
        match approach(value).and_then(|approach| self.subsets(approach)) {
            Some(Choice::Subsets(..)) if self.service.local_policy => {
                self.note(SUBSETTING, value, Reason::LocalPolicy);
            }
            Some(choice) => self.offer(SUBSETTING, value, choice, self.gates().subsetting),
            None if value.is_empty() => {}
            None => self.note(SUBSETTING, value, Reason::SubsettingUnknown),
        }
    }

    fn subsets(&mut self, approach: Approach) -> Option<Choice> {
        match approach {
            Approach::Subsets(consumers) => Some(self.local_subset(consumers)),
            Approach::Required => self.required(),
            Approach::Everywhere => Some(Choice::Everywhere),
        }
    }

    fn required(&self) -> Option<Choice> {
        let heuristic = self.settings.heuristic("require-zone").ok()?;
        Some(Choice::Subsets(heuristic, Consumers::Zones))
    }

    /// KEP-2004's own algorithm with the thresholds of the Service.
    fn local_subset(&mut self, consumers: Consumers) -> Choice {
        let read = |key| self.service.annotations.get(key);
        let (threshold, padding) = (read(STARTING_THRESHOLD), read(PADDING));
        // The number of zones only matters for defaults, which the heuristic knows itself.
        let (start, faults) = Start::resolve(1, threshold, padding);
        let valid = |text: Option<&str>, fault: Reason, value: u64| {
            text.filter(|_| !faults.contains(&fault)).map(|_| value)
        };
        let heuristic = LocalSubset {
            threshold: valid(threshold, Reason::StartingThresholdInvalid, start.threshold),
            padding: valid(padding, Reason::PaddingInvalid, start.padding),
        };
        for fault in faults {
            let (source, value) = match fault {
                Reason::PaddingInvalid => (PADDING, padding),
                _ => (STARTING_THRESHOLD, threshold),
            };
            self.note(source, value.unwrap_or_default(), fault);
        }
        Choice::Subsets(Arc::new(heuristic), consumers)
    }

    fn routing_preference(&mut self) {
        let Some(value) = self.service.annotations.get(ROUTING_PREFERENCE) else { return };
        match preference(value, self.settings) {
            Ok(Choice::Subsets(..)) if self.service.local_policy => {
                self.note(ROUTING_PREFERENCE, value, Reason::LocalPolicy);
            }
            Ok(choice) => self.offer(ROUTING_PREFERENCE, value, choice, self.gates().preference),
            Err(reason) => self.note(ROUTING_PREFERENCE, value, reason),
        }
    }

    fn traffic_distribution(&mut self) {
        let Some(value) = self.service.traffic_distribution.as_deref() else { return };
        match traffic_distribution(self.service) {
            Some(near) => self.offer("spec.trafficDistribution", value, Choice::Near(near), true),
            None => self.note("spec.trafficDistribution", value, Reason::PreferenceUnknown),
        }
    }
}

/// A way of subsetting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approach {
    Subsets(Consumers),
    Required,
    Everywhere,
}

/// A subsetting approach by any of its names.
pub(crate) fn approach(value: &str) -> Option<Approach> {
    match value.to_ascii_lowercase().as_str() {
        "auto" | "prefer" | "preferzone" => Some(Approach::Subsets(Consumers::Zones)),
        "region" => Some(Approach::Subsets(Consumers::Regions)),
        "require" | "requirezone" => Some(Approach::Required),
        "random" | "original" | "disabled" => Some(Approach::Everywhere),
        _ => None,
    }
}

/// A routing preference: one of the three values, or a heuristic with its domain.
pub(crate) fn preference(value: &str, settings: &Settings) -> Result<Choice, Reason> {
    match value {
        "Default" | "Spread" => return Ok(Choice::Everywhere),
        "Zone" => return Ok(Choice::Near(Near::Zone)),
        _ if !value.contains('/') => return Err(Reason::PreferenceReserved),
        _ => {}
    }
    let name = value.strip_prefix(DOMAIN).unwrap_or(value);
    let heuristic = settings.heuristic(name).map_err(|_| Reason::PreferenceUnknown)?;
    Ok(match name.split(':').next() {
        Some("same-zone") => Choice::Near(Near::Zone),
        Some("same-node") => Choice::Near(Near::Node),
        Some("random" | "spread") => Choice::Everywhere,
        Some("local-subset" | "require-zone") => Choice::Subsets(heuristic, Consumers::Zones),
        _ => Choice::Heuristic(heuristic),
    })
}
