//! Which routing a Service requests. Several keys on a Service can request one; the first with a value
//! that is understood wins:
//!
//! ```text
//!  topology-mode: Auto  ►  subsetting  ►  routing-preference  ►  trafficDistribution  ►  default
//! ```
//!
//! A value that is not understood, or that loses against an earlier key, is never dropped silently. It
//! becomes a [`RequestNote`], which the controller shows in the Service's conditions.

use std::borrow::Cow;
use std::sync::Arc;

use zonewise_common::keys::{
    DEMAND, DOMAIN, ENDPOINT_WEIGHT, FAILING_ZONES, PADDING, ROUTING_PREFERENCE,
    STARTING_THRESHOLD, SUBSETTING, TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE,
};
use zonewise_common::name::SYSTEM_NAMESPACE;
use zonewise_common::similar::closest;
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics;
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::heuristics::local_subset::LocalSubset;
use zonewise_topology::heuristics::random::Random;
use zonewise_topology::heuristics::same_node::SameNode;
use zonewise_topology::heuristics::same_zone::SameZone;
use zonewise_topology::reason::{Code, Reason};
use zonewise_topology::threshold::Start;

use crate::guard;
use crate::routing_keys::{is_misspelt, is_routing_key, meant_key};
use crate::service::Service;
use crate::settings::{Gate, Settings};
use crate::weights::{CPU_REQUEST, CPU_USE};

/// The routing that a Service requests.
#[derive(Clone)]
pub struct RequestedRouting {
    /// The value, as written on the Service.
    pub value: String,
    /// The annotation or field that it was found in.
    pub source: &'static str,
    /// The meaning of the value.
    pub choice: Choice,
    /// What the shares of zones are to be taken from.
    pub demand: Demand,
    /// What endpoints count for.
    pub endpoint_weight: EndpointWeight,
    /// What happens with zones whose endpoints fail more often than others.
    pub failing_zones: FailingZones,
    /// Values that have no effect, and why.
    pub notes: Vec<RequestNote>,
}

/// A value on a Service that has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestNote {
    /// The annotation or field.
    pub source: Cow<'static, str>,
    /// Its value.
    pub value: String,
    /// Why it has no effect.
    pub reason: Reason,
    /// The feature gates that are off, if that is the reason.
    pub closed_gates: Vec<Gate>,
    /// The key or value that was probably meant.
    pub meant: Option<String>,
}

impl RequestedRouting {
    /// Notes that the failed connections of the Service are not watched, because those of so many others are. That is no
    /// news for a Service that does not ask for it itself.
    pub fn note_unwatched_failures(&mut self, service: &Service, most: u64) {
        let asks = self.failing_zones == FailingZones::Spill
            && service.annotations.get(FAILING_ZONES) == Some("spill");
        if !asks {
            return;
        }
        self.notes.push(RequestNote {
            source: FAILING_ZONES.into(),
            value: "spill".to_owned(),
            reason: Reason::FailingZonesTableFull { most },
            closed_gates: Vec::new(),
            meant: None,
        });
    }

    /// Why a key has no effect, as a sentence: with the key that takes precedence, the gates that are off, or what was
    /// probably meant.
    pub fn sentence(&self, note: &RequestNote) -> String {
        let sentence = note.reason.code().entry().sentence;
        if note.reason.code() == Code::ChoiceOverridden {
            return format!("{sentence}; here {} `{}` does", self.source, self.value);
        }
        let gates: Vec<&str> = note.closed_gates.iter().map(|gate| gate.name()).collect();
        match &note.meant {
            _ if !gates.is_empty() => format!("{sentence} ({})", gates.join(", ")),
            Some(meant) => format!("{sentence}; did you mean `{meant}`?"),
            None => sentence.to_owned(),
        }
    }
}

/// What the shares of zones are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// The capacity of the nodes.
    #[default]
    Model,
    /// The connections that proxies count.
    Measured,
}

/// What endpoints count for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointWeight {
    /// All count the same.
    #[default]
    Equal,
    /// Each counts for the CPU that its Pod requests.
    CpuRequest,
    /// Those of zones where they use more CPU than others count for less.
    CpuUse,
}

/// What happens with zones whose endpoints fail more often than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailingZones {
    /// They get what they would get otherwise.
    #[default]
    Ignore,
    /// They count for less, so that what their clients send spills over to other zones earlier.
    Spill,
}

/// Which clients should use which endpoints.
#[derive(Clone)]
pub enum Choice {
    /// Every client uses every endpoint.
    ClusterWide,
    /// Every endpoint is hinted to its own zone or node, whatever the capacity of zones is.
    Near(Near),
    /// A heuristic decides on hints or zone shares.
    Heuristic(Arc<dyn Heuristic>),
    /// A heuristic decides on zone shares, and each endpoint counts for the CPU that its Pod requests.
    WeightedShares(Arc<dyn Heuristic>),
    /// A heuristic divides the endpoints into slices per zone or region.
    Subsets(Arc<dyn Heuristic>, Consumers),
}

/// The endpoints that a client should prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// Those in its zone.
    Zone,
    /// Those on its node, otherwise those in its zone.
    Node,
}

/// What subsets are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// A subset for each zone.
    Zones,
    /// A subset for each region.
    Regions,
}

impl Choice {
    /// What a heuristic stands for.
    pub fn of(heuristic: Arc<dyn Heuristic>) -> Self {
        match heuristic.name() {
            "same-zone" => Self::Near(Near::Zone),
            "same-node" => Self::Near(Near::Node),
            "random" | "spread" => Self::ClusterWide,
            "local-subset" | "require-zone" => Self::Subsets(heuristic, Consumers::Zones),
            _ => Self::Heuristic(heuristic),
        }
    }

    /// Whether it depends on the capacity of the nodes, and has to be decided again when that changes.
    pub fn depends_on_nodes(&self) -> bool {
        matches!(self, Self::Heuristic(_) | Self::WeightedShares(_) | Self::Subsets(..))
    }

    /// The heuristic that it stands for.
    pub fn heuristic(&self) -> Arc<dyn Heuristic> {
        match self {
            Self::ClusterWide => Arc::new(Random),
            Self::Near(Near::Zone) => Arc::new(SameZone),
            Self::Near(Near::Node) => Arc::new(SameNode),
            Self::Heuristic(heuristic)
            | Self::WeightedShares(heuristic)
            | Self::Subsets(heuristic, _) => Arc::clone(heuristic),
        }
    }

    /// What subsets are made for; `None` without subsets.
    pub fn consumers(&self) -> Option<Consumers> {
        match self {
            Self::Subsets(_, consumers) => Some(*consumers),
            Self::ClusterWide | Self::Near(_) | Self::Heuristic(_) | Self::WeightedShares(_) => {
                None
            }
        }
    }

    /// Whether zone shares are written, so that endpoints may count for more or less than others. Hints leave a proxy a
    /// uniform choice among endpoints, and subsets do, too.
    pub(crate) fn gives_shares(&self) -> bool {
        match self {
            Self::WeightedShares(_) => true,
            Self::Heuristic(heuristic) => heuristic.gives_shares(),
            Self::ClusterWide | Self::Near(_) | Self::Subsets(..) => false,
        }
    }

    /// The same with endpoints that count for the CPU that their Pods request; `None` if it gives no zone shares.
    fn weighted(&self) -> Option<Self> {
        match self {
            Self::Heuristic(heuristic) if heuristic.gives_shares() => {
                Some(Self::WeightedShares(Arc::clone(heuristic)))
            }
            _ => None,
        }
    }

    /// The feature gate of what it writes. Zone shares have none of their own.
    pub(crate) fn gate(&self) -> Option<Gate> {
        match self {
            Self::ClusterWide | Self::WeightedShares(_) => None,
            Self::Near(_) => Some(Gate::Hints),
            Self::Heuristic(heuristic) => (!heuristic.gives_shares()).then_some(Gate::Hints),
            Self::Subsets(..) => Some(Gate::Subsetting),
        }
    }

    /// The heuristic's name.
    pub fn name(&self) -> &str {
        match self {
            Self::ClusterWide => "random",
            Self::Near(Near::Zone) => "same-zone",
            Self::Near(Near::Node) => "same-node",
            Self::Heuristic(heuristic)
            | Self::WeightedShares(heuristic)
            | Self::Subsets(heuristic, _) => heuristic.name(),
        }
    }
}

/// The name of the field that requests hints to the own zone or node, as the source of a request.
pub const TRAFFIC_DISTRIBUTION: &str = "spec.trafficDistribution";

/// The key and value of the topology annotation. The older key wins, as in the reference.
pub(crate) fn topology_mode(service: &Service) -> Option<(&'static str, &str)> {
    let read = |key| service.annotations.get(key).map(|value| (key, value));
    read(TOPOLOGY_AWARE_HINTS).or_else(|| read(TOPOLOGY_MODE))
}

/// Whether the topology annotation requests hints.
pub fn is_auto(service: &Service) -> bool {
    matches!(topology_mode(service), Some((_, "Auto" | "auto")))
}

/// What `spec.trafficDistribution` requests.
pub fn traffic_distribution(service: &Service) -> Option<Near> {
    match service.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => Some(Near::Zone),
        Some("PreferSameNode") => Some(Near::Node),
        _ => None,
    }
}

/// The routing that a Service requests. With `upstream`, only the keys that the reference knows count:
/// the topology annotation and `spec.trafficDistribution`.
pub fn requested_routing(service: &Service, settings: &Settings) -> RequestedRouting {
    let mut reader = RequestReader { service, settings, winner: None, notes: Vec::new() };
    reader.topology_mode();
    if !settings.upstream {
        reader.subsetting();
        reader.routing_preference();
    }
    reader.traffic_distribution();
    let mut demand = Demand::default();
    if !settings.upstream {
        demand = reader.demand();
        reader.thresholds();
        reader.misspelt_keys();
        reader.labels();
    }
    if service.topology_keys {
        reader.note("spec.topologyKeys", "", Reason::ChoiceOverridden);
    }
    let winner = reader.winner.take();
    let mut request = winner.unwrap_or_else(|| settings.default_request(service.local_policy));
    if settings.guard {
        reader.as_guarded(&mut request);
        reader.as_hints(&mut request);
    }
    let mut endpoint_weight = EndpointWeight::default();
    let mut failing_zones = FailingZones::default();
    if !settings.upstream {
        endpoint_weight = reader.endpoint_weight(&mut request);
        failing_zones = reader.failing_zones(&request.choice);
    }
    let (Request { source, value, choice }, notes) = (request, reader.notes);
    RequestedRouting { value, source, choice, demand, endpoint_weight, failing_zones, notes }
}

/// One key that requests routing.
pub(crate) struct Request {
    pub(crate) source: &'static str,
    pub(crate) value: String,
    pub(crate) choice: Choice,
}

/// Reads the keys of a Service in the order of their precedence.
struct RequestReader<'a> {
    service: &'a Service,
    settings: &'a Settings,
    winner: Option<Request>,
    notes: Vec<RequestNote>,
}

impl RequestReader<'_> {
    fn note(&mut self, source: impl Into<Cow<'static, str>>, value: &str, reason: Reason) {
        self.note_meant(source, value, reason, None);
    }

    fn note_meant(
        &mut self,
        source: impl Into<Cow<'static, str>>,
        value: &str,
        reason: Reason,
        meant: Option<String>,
    ) {
        let (source, value) = (source.into(), value.into());
        self.notes.push(RequestNote { source, value, reason, closed_gates: Vec::new(), meant });
    }

    /// A value that was understood, of a key with a feature gate. It wins unless a gate that it needs is
    /// off or an earlier key has won.
    fn accept(&mut self, source: &'static str, value: &str, choice: Choice, key: Gate) {
        let closed_gates = self.settings.gates.closed_for(key, &choice);
        if closed_gates.is_empty() {
            self.compete(source, value, choice);
        } else {
            let (source, value, reason) = (source.into(), value.into(), Reason::GateOff);
            self.notes.push(RequestNote { source, value, reason, closed_gates, meant: None });
        }
    }

    /// A value that could be in force. It wins unless an earlier key has won.
    fn compete(&mut self, source: &'static str, value: &str, choice: Choice) {
        if self.winner.is_some() {
            self.note(source, value, Reason::ChoiceOverridden);
        } else {
            self.winner = Some(Request { source, value: value.into(), choice });
        }
    }

    /// In guard mode, Services of its own namespace are left as the built-in controller has them: the webhook leaves the
    /// namespace out, so that no write there waits for it, and their hints would never come.
    fn as_guarded(&mut self, request: &mut Request) {
        let asks = !matches!(request.choice, Choice::ClusterWide);
        let is_ours = *self.service.namespace == *SYSTEM_NAMESPACE;
        if is_ours && asks && request.source != TRAFFIC_DISTRIBUTION {
            self.note(request.source, &request.value, Reason::SystemNamespaceNotGuarded);
            request.choice = Choice::ClusterWide;
        }
    }

    /// In guard mode, what hints cannot carry becomes the best that they can. Subsets are noted; zone shares are not,
    /// because the hints come close to them.
    fn as_hints(&mut self, request: &mut Request) {
        let is_possible = match &request.choice {
            Choice::ClusterWide | Choice::Near(_) => true,
            Choice::Heuristic(heuristic) => !heuristic.gives_shares(),
            Choice::WeightedShares(_) => false,
            Choice::Subsets(..) => {
                self.note(request.source, &request.value, Reason::SubsetsNotGuarded);
                false
            }
        };
        if is_possible {
            return;
        }
        request.choice = match request.choice.consumers() {
            Some(Consumers::Regions) => Choice::ClusterWide,
            _ => Choice::Heuristic(guard::heuristic()),
        };
    }

    fn topology_mode(&mut self) {
        let Some((source, value)) = topology_mode(self.service) else { return };
        match value {
            "Auto" | "auto" => {
                let upstream = self.settings.upstream;
                let heuristic = Arc::new(if upstream { Auto::UPSTREAM } else { Auto::KEP_2433 });
                self.accept(source, value, Choice::Heuristic(heuristic), Gate::Hints);
            }
            "Disabled" | "disabled" | "" => {}
            _ => {
                let meant = closest(value, ["Auto", "Disabled"]).map(str::to_owned);
                self.note_meant(source, value, Reason::TopologyModeUnknown, meant);
            }
        }
    }

    fn subsetting(&mut self) {
        let Some(value) = self.service.annotations.get(SUBSETTING) else { return };
        match approach(value).and_then(|approach| self.subsets(approach)) {
            Some(Choice::Subsets(..)) if self.service.local_policy => {
                self.note(SUBSETTING, value, Reason::LocalPolicy);
            }
            Some(choice) => self.accept(SUBSETTING, value, choice, Gate::Subsetting),
            None if value.is_empty() => {}
            None => {
                let meant = closest(value, APPROACHES).map(str::to_owned);
                self.note_meant(SUBSETTING, value, Reason::SubsettingUnknown, meant);
            }
        }
    }

    fn subsets(&mut self, approach: Approach) -> Option<Choice> {
        match approach {
            Approach::Subsets(consumers) => Some(self.local_subset(consumers)),
            Approach::Required => self.required(),
            Approach::ClusterWide => Some(Choice::ClusterWide),
        }
    }

    fn required(&self) -> Option<Choice> {
        let heuristic = self.settings.heuristic("require-zone").ok()?;
        Some(Choice::Subsets(heuristic, Consumers::Zones))
    }

    /// The algorithm of KEP-2004 with the thresholds that the Service sets.
    fn local_subset(&mut self, consumers: Consumers) -> Choice {
        let read = |key| self.service.annotations.get(key);
        let (threshold, padding) = (read(STARTING_THRESHOLD), read(PADDING));
        // The number of zones (1 here) only matters for defaults, and those are not used below.
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
            Ok(choice) => self.accept(ROUTING_PREFERENCE, value, choice, Gate::Preference),
            Err(reason) => {
                let meant = meant_preference(value, self.settings);
                self.note_meant(ROUTING_PREFERENCE, value, reason, meant);
            }
        }
    }

    fn traffic_distribution(&mut self) {
        let Some(value) = self.service.traffic_distribution.as_deref() else { return };
        match traffic_distribution(self.service) {
            Some(near) => self.compete(TRAFFIC_DISTRIBUTION, value, Choice::Near(near)),
            None => {
                let meant = closest(value, DISTRIBUTIONS).map(str::to_owned);
                self.note_meant(TRAFFIC_DISTRIBUTION, value, Reason::PreferenceUnknown, meant);
            }
        }
    }

    fn demand(&mut self) -> Demand {
        match self.service.annotations.get(DEMAND) {
            Some("measured") => return Demand::Measured,
            Some("model") => return Demand::Model,
            None | Some("") => {}
            Some(value) => {
                let meant = closest(value, ["measured", "model"]).map(str::to_owned);
                self.note_meant(DEMAND, value, Reason::DemandUnknown, meant);
            }
        }
        self.settings.default_demand
    }

    /// What endpoints count for. It is read once it is known what is written.
    fn endpoint_weight(&mut self, request: &mut Request) -> EndpointWeight {
        let asked = self.service.annotations.get(ENDPOINT_WEIGHT).unwrap_or_default();
        match (asked, request.choice.weighted()) {
            ("equal" | "", _) => {}
            (CPU_REQUEST, Some(weighted)) => {
                request.choice = weighted;
                return EndpointWeight::CpuRequest;
            }
            (CPU_USE, Some(_)) => return EndpointWeight::CpuUse,
            (CPU_REQUEST | CPU_USE, None) => {
                self.note(ENDPOINT_WEIGHT, asked, Reason::EndpointWeightUnused);
            }
            _ => {
                let meant = closest(asked, ["equal", CPU_REQUEST, CPU_USE]).map(str::to_owned);
                self.note_meant(ENDPOINT_WEIGHT, asked, Reason::EndpointWeightUnknown, meant);
            }
        }
        EndpointWeight::Equal
    }

    /// What happens with failing zones. It is read once it is known what is written; a default that has no effect is not
    /// noted.
    fn failing_zones(&mut self, choice: &Choice) -> FailingZones {
        let is_watched = self.settings.failures_are_watched;
        let default = || match choice.gives_shares() && is_watched {
            true => self.settings.default_failing_zones,
            false => FailingZones::Ignore,
        };
        match self.service.annotations.get(FAILING_ZONES) {
            None | Some("") => default(),
            Some("ignore") => FailingZones::Ignore,
            Some("spill") if !choice.gives_shares() => {
                self.note(FAILING_ZONES, "spill", Reason::FailingZonesUnused);
                FailingZones::Ignore
            }
            Some("spill") if !is_watched => {
                self.note(FAILING_ZONES, "spill", Reason::FailingZonesNotWatched);
                FailingZones::Ignore
            }
            Some("spill") => FailingZones::Spill,
            Some(value) => {
                let default = default();
                let meant = closest(value, ["spill", "ignore"]).map(str::to_owned);
                self.note_meant(FAILING_ZONES, value, Reason::FailingZonesUnknown, meant);
                default
            }
        }
    }

    /// Thresholds on a Service whose subsetting annotation, if any, does not use them.
    fn thresholds(&mut self) {
        let value = self.service.annotations.get(SUBSETTING).and_then(approach);
        if matches!(value, Some(Approach::Subsets(_))) {
            return;
        }
        for key in [STARTING_THRESHOLD, PADDING] {
            if let Some(value) = self.service.annotations.get(key) {
                self.note(key, value, Reason::ThresholdUnused);
            }
        }
    }

    fn misspelt_keys(&mut self) {
        let service = self.service;
        for (key, value) in service.annotations.iter().filter(|(key, _)| is_misspelt(key)) {
            let meant = meant_key(key).map(str::to_owned);
            self.note_meant(key.to_string(), value, Reason::KeyUnknown, meant);
        }
    }

    fn labels(&mut self) {
        let service = self.service;
        for (key, value) in service.labels.iter().filter(|(key, _)| is_routing_key(key)) {
            self.note(key.to_string(), value, Reason::KeyIsLabel);
        }
    }
}

/// The values of the subsetting annotation that documents name.
const APPROACHES: [&str; 6] = ["Auto", "Require", "Region", "Random", "Prefer", "Disabled"];
/// The values of `spec.trafficDistribution`.
const DISTRIBUTIONS: [&str; 3] = ["PreferSameZone", "PreferSameNode", "PreferClose"];

/// The routing preference that was probably meant: one without a domain, or a heuristic with its domain.
fn meant_preference(value: &str, settings: &Settings) -> Option<String> {
    if !value.contains('/')
        && let Some(plain) = closest(value, ["Default", "Spread", "Zone"])
    {
        return Some(plain.to_owned());
    }
    let name = value.rsplit('/').next().unwrap_or_default();
    let custom = settings.library.custom_names();
    let known = closest(name, heuristics::names().into_iter().chain(custom))?;
    Some(format!("{DOMAIN}{known}"))
}

/// What the subsetting annotation can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approach {
    /// A subset per zone or region while there are enough endpoints.
    Subsets(Consumers),
    /// A subset per zone, always.
    Required,
    /// No subsets.
    ClusterWide,
}

/// The meaning of a value of the subsetting annotation; upper and lower case are the same.
pub(crate) fn approach(value: &str) -> Option<Approach> {
    match value.to_ascii_lowercase().as_str() {
        "auto" | "prefer" | "preferzone" => Some(Approach::Subsets(Consumers::Zones)),
        "region" => Some(Approach::Subsets(Consumers::Regions)),
        "require" | "requirezone" => Some(Approach::Required),
        "random" | "original" | "disabled" => Some(Approach::ClusterWide),
        _ => None,
    }
}

/// The meaning of a routing preference: `Default`, `Spread` or `Zone`, or the name of a heuristic with
/// its domain.
pub(crate) fn preference(value: &str, settings: &Settings) -> Result<Choice, Reason> {
    match value {
        "Default" | "Spread" => return Ok(Choice::ClusterWide),
        "Zone" => return Ok(Choice::Near(Near::Zone)),
        _ if !value.contains('/') => return Err(Reason::PreferenceReserved),
        _ => {}
    }
    let name = value.strip_prefix(DOMAIN).unwrap_or(value);
    settings.heuristic(name).map(Choice::of).map_err(|_| Reason::PreferenceUnknown)
}
