//! Why a Service is routed the way it is.
//!
//! [`Code`] is the short, stable name that events, conditions, metrics and documents carry;
//! [`TABLE`] says for each what it means and what to do. [`Reason`] is a code with the arithmetic
//! that led to it.

use std::fmt;

use serde::Serialize;

/// What a reason means for routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The heuristic's allocation is in force.
    InForce,
    /// Every zone uses every endpoint instead.
    Fallback,
    /// There is no allocation.
    Failed,
    /// A setting was not usable; its default is in force.
    Setting,
}

/// The stable name of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[expect(missing_docs, reason = "TABLE documents each code, for people and for programs")]
pub enum Code {
    // What a decision says.
    ClusterWide,
    OwnZone,
    OwnNode,
    ZoneRequired,
    GroupsAssigned,
    HintsAssigned,
    HintsKept,
    SubsetsAssigned,
    SubsetsKept,
    SharesBalanced,
    ExpressionApplied,
    NoEndpoints,
    NodeInformationMissing,
    OneZoneOnly,
    TooFewEndpoints,
    TooFewForBalance,
    OverloadTooHigh,
    BelowStartingThreshold,
    EndpointsWithoutZone,
    ExpressionFailed,
    NeverSettles,
    TooManyEndpoints,
    StartingThresholdInvalid,
    PaddingInvalid,
    SharesTooLarge,
    SharesMalformed,
    // What people asked for, and how it goes.
    ChoiceOverridden,
    GateOff,
    LocalPolicy,
    PreferenceReserved,
    PreferenceUnknown,
    SubsettingUnknown,
    TopologyModeUnknown,
    TooManyZonesForHints,
    SecondWriter,
    NoProxyReports,
    ProxiesBehind,
    ProxiesReady,
    RefusedByKernel,
    FailedToStartServiceHealthcheck,
    Accepted,
    // Which way traffic goes on a node.
    SameNodeHints,
    SameZoneHints,
    SharesApplied,
    ZoneSubset,
    RegionSubset,
    LocalOnly,
    NoHints,
    HintMissing,
    NoHintForNode,
    NoHintForZone,
    NodeWithoutZone,
    SharesStale,
    SharesDisagree,
    SharesWithoutZone,
    OnlyTerminating,
    NoLocalEndpoint,
    SubsetEmpty,
    SubsetsMixed,
    HintsGateOff,
    HintsNotAsked,
}

/// One line of [`TABLE`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What it means for routing.
    pub outcome: Outcome,
    /// What happened, for people.
    pub sentence: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

const fn entry(
    code: Code,
    outcome: Outcome,
    sentence: &'static str,
    remedy: &'static str,
) -> Entry {
    Entry { code, outcome, sentence, remedy }
}

/// Every code, in the order of [`Code`].
pub static TABLE: [Entry; 61] = {
    use Code::*;
    use Outcome::*;
    [
        entry(
            ClusterWide,
            InForce,
            "every zone uses every endpoint, as asked",
            "nothing to do; choose another heuristic to keep traffic in its zone",
        ),
        entry(
            OwnZone,
            InForce,
            "each zone uses its own endpoints; zones without any use all",
            "watch for overload: this choice has no capacity safeguard",
        ),
        entry(
            OwnNode,
            InForce,
            "each node uses its own endpoints, then its zone's, then all",
            "watch for overload: this choice has no capacity safeguard",
        ),
        entry(
            ZoneRequired,
            InForce,
            "each zone uses its own endpoints and nothing else",
            "run at least one endpoint in every zone that has nodes",
        ),
        entry(
            GroupsAssigned,
            InForce,
            "endpoints are grouped by the evaluation tool's algorithm",
            "nothing to do",
        ),
        entry(
            HintsAssigned,
            InForce,
            "every endpoint is hinted to a zone in proportion to capacity",
            "nothing to do",
        ),
        entry(
            HintsKept,
            InForce,
            "the hints already present still keep every zone below the limit",
            "nothing to do",
        ),
        entry(
            SubsetsAssigned,
            InForce,
            "endpoints are divided into one subset per zone",
            "nothing to do",
        ),
        entry(
            SubsetsKept,
            InForce,
            "the subsets already present still keep every zone below the limit",
            "nothing to do",
        ),
        entry(
            SharesBalanced,
            InForce,
            "zone shares keep every endpoint within its fair share",
            "nothing to do",
        ),
        entry(
            ExpressionApplied,
            InForce,
            "endpoints are assigned as a custom expression says",
            "watch for overload: an expression has no capacity safeguard but its own",
        ),
        entry(
            NoEndpoints,
            Fallback,
            "the Service has no ready endpoint",
            "check that the selector matches Pods and that they become ready",
        ),
        entry(
            NodeInformationMissing,
            Fallback,
            "capacity per zone is unknown: a ready worker node lacks a zone label or allocatable CPU, or there is none",
            "label every worker node with topology.kubernetes.io/zone and let it report CPU, or set capacity.missingCpu to count-nodes",
        ),
        entry(
            OneZoneOnly,
            Fallback,
            "all nodes that count are in one zone",
            "nothing to keep apart; add nodes in another zone if that was meant",
        ),
        entry(
            TooFewEndpoints,
            Fallback,
            "there are fewer endpoints than zones",
            "scale to at least one endpoint per zone, better three, or use balanced",
        ),
        entry(
            TooFewForBalance,
            Fallback,
            "no division of the endpoints keeps every zone's expected overload below the limit",
            "scale to the next feasible number of endpoints, or use balanced",
        ),
        entry(
            OverloadTooHigh,
            Fallback,
            "a zone cannot be brought below the overload threshold",
            "add endpoints, or use balanced",
        ),
        entry(
            BelowStartingThreshold,
            Fallback,
            "there are too few endpoints to start subsetting",
            "scale up, or lower zonewise.dev/starting-threshold or zonewise.dev/padding",
        ),
        entry(
            EndpointsWithoutZone,
            Fallback,
            "an endpoint is on a node without a zone, so consumers would ignore all hints",
            "label the node with topology.kubernetes.io/zone",
        ),
        entry(
            ExpressionFailed,
            Fallback,
            "the custom expression cannot be applied to this Service",
            "correct the expression in the configuration; simulate --config tries it out",
        ),
        entry(
            NeverSettles,
            Failed,
            "the evaluation tool's algorithm would never end on this input",
            "give at least one zone a node",
        ),
        entry(
            TooManyEndpoints,
            Failed,
            "this algorithm moves endpoints one at a time and there are too many",
            "use auto or balanced, which are computed in closed form",
        ),
        entry(
            StartingThresholdInvalid,
            Setting,
            "the starting threshold is not a whole number above 0; the default of 3 per zone is used",
            "correct the annotation zonewise.dev/starting-threshold",
        ),
        entry(
            PaddingInvalid,
            Setting,
            "the padding is not a whole number; the default of 1 per zone is used",
            "correct the annotation zonewise.dev/padding",
        ),
        entry(
            SharesTooLarge,
            Fallback,
            "the zone shares do not fit into an annotation",
            "use auto: this many zones cannot be written as shares",
        ),
        entry(
            SharesMalformed,
            Fallback,
            "the zone shares on the slices cannot be read",
            "let the controller write them again; look for a second writer",
        ),
        entry(
            ChoiceOverridden,
            Setting,
            "another, more specific choice on the same Service is in force instead",
            "remove the key that is not meant",
        ),
        entry(
            GateOff,
            Setting,
            "the feature gate for this key is off",
            "turn the gate on in the controller, or remove the key",
        ),
        entry(
            LocalPolicy,
            Setting,
            "a Service with a traffic policy of Local is never divided into subsets: its local endpoints may be in another zone's",
            "remove the subsetting key, or set the policy to Cluster",
        ),
        entry(
            PreferenceReserved,
            Setting,
            "routing preferences without a domain are reserved; only Default, Spread and Zone exist",
            "write zonewise.dev/<heuristic>, or one of the three",
        ),
        entry(
            PreferenceUnknown,
            Setting,
            "this controller knows no such routing preference",
            "choose a heuristic that is listed in the documentation, or define it in the controller's configuration",
        ),
        entry(
            SubsettingUnknown,
            Setting,
            "this controller knows no such subsetting approach",
            "use Auto, Require, Region or Random",
        ),
        entry(
            TopologyModeUnknown,
            Setting,
            "the topology annotation has a value that means nothing",
            "use Auto or Disabled",
        ),
        entry(
            TooManyZonesForHints,
            Fallback,
            "an endpoint would be hinted to more zones than the API allows",
            "choose a heuristic that gives each endpoint fewer zones",
        ),
        entry(
            SecondWriter,
            Setting,
            "another controller writes the slices of this Service too",
            "stop one of the two; the built-in one with --controllers=*,-endpointslice-controller",
        ),
        entry(
            NoProxyReports,
            Setting,
            "no proxy reports what it has applied",
            "run the zonewise proxy, or ignore this condition with other proxies",
        ),
        entry(
            ProxiesBehind,
            Setting,
            "a proxy that reports has not applied this yet",
            "wait a moment; if it stays, compare zonewise.dev/applied on the Leases in zonewise-system and look at the proxy that is behind",
        ),
        entry(ProxiesReady, InForce, "every proxy that reports has applied this", "nothing to do"),
        entry(
            RefusedByKernel,
            Failed,
            "the kernel of a node refuses the rules of this Service; what it had of it before stays",
            "look for the node in zonewise.dev/refused on the Leases in zonewise-system, and at the log of its proxy; it is tried again every minute",
        ),
        entry(
            FailedToStartServiceHealthcheck,
            Failed,
            "a node cannot open the Service's health check port, so load balancers pass the node over",
            "end what else listens on spec.healthCheckNodePort on that node; it is tried again with the next change",
        ),
        entry(Accepted, InForce, "the routing preference was understood", "nothing to do"),
        entry(SameNodeHints, InForce, "this node uses the endpoints hinted to it", "nothing to do"),
        entry(
            SameZoneHints,
            InForce,
            "this node uses the endpoints hinted to its zone",
            "nothing to do",
        ),
        entry(
            SharesApplied,
            InForce,
            "this node spreads its traffic over zones by their shares",
            "nothing to do",
        ),
        entry(ZoneSubset, InForce, "this node uses the slices of its zone", "nothing to do"),
        entry(RegionSubset, InForce, "this node uses the slices of its region", "nothing to do"),
        entry(
            LocalOnly,
            InForce,
            "the traffic policy is Local: only endpoints of this node are used",
            "nothing to do; hints do not matter for this traffic",
        ),
        entry(
            NoHints,
            InForce,
            "no ready endpoint carries a hint, so this node uses all",
            "ask for topology on the Service to keep traffic in its zone",
        ),
        entry(
            HintMissing,
            Fallback,
            "a ready endpoint carries no hint, so all hints are ignored",
            "wait for the controller; if it stays, give the endpoint's node a zone, or look for a second writer of slices",
        ),
        entry(
            NoHintForNode,
            Fallback,
            "no ready endpoint is hinted to this node",
            "nothing to do; run an endpoint on this node to keep its traffic there",
        ),
        entry(
            NoHintForZone,
            Fallback,
            "no ready endpoint is hinted to this node's zone",
            "run endpoints in this zone",
        ),
        entry(
            NodeWithoutZone,
            Fallback,
            "this node does not know its zone or region",
            "label the node with topology.kubernetes.io/zone and topology.kubernetes.io/region",
        ),
        entry(
            SharesStale,
            Fallback,
            "the zone shares were computed for other endpoints and would overload one",
            "wait for the controller to write new shares; if it stays, check that it runs",
        ),
        entry(
            SharesDisagree,
            Fallback,
            "the slices of the Service do not all carry the same zone shares",
            "wait for the controller; if it stays, look for a second writer of slices",
        ),
        entry(
            SharesWithoutZone,
            Fallback,
            "the zone shares do not name this node's zone",
            "wait for the controller to learn of the zone",
        ),
        entry(
            OnlyTerminating,
            Fallback,
            "no endpoint is ready, so those that still serve while they terminate are used",
            "check why no new Pod becomes ready",
        ),
        entry(
            NoLocalEndpoint,
            Failed,
            "the traffic policy is Local and no endpoint of this node can serve, so this traffic is dropped",
            "run an endpoint on every node that gets such traffic, or set the policy to Cluster",
        ),
        entry(
            SubsetEmpty,
            Fallback,
            "the slices for this node hold no endpoint that can serve, so all slices are used",
            "run endpoints in this zone or region",
        ),
        entry(
            SubsetsMixed,
            Fallback,
            "the Service has slices of several kinds while it changes, and this node uses all that are for it",
            "wait for the controller; if it stays, look for a second writer of slices",
        ),
        entry(
            HintsGateOff,
            Setting,
            "the proxy's gate for hints is off, so this node uses all endpoints",
            "turn on TopologyAwareHints in the proxy",
        ),
        entry(
            HintsNotAsked,
            Setting,
            "the proxy's gate for routing preferences is off and the Service lacks the topology annotation, so hints are ignored",
            "turn on ServiceRoutingPreference in the proxy, or annotate the Service with service.kubernetes.io/topology-mode: Auto",
        ),
    ]
};

impl Code {
    /// Its line in the table.
    pub fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }
}

impl Code {
    /// Where the documentation explains it.
    pub fn docs(self) -> String {
        format!("docs/reasons.md#{}", self.to_string().to_lowercase())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What went wrong with a custom expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It stopped, such as at a division by zero.
    Evaluation,
    /// It would take too long for this many endpoints and zones.
    TooExpensive,
    /// It names a zone that does not exist.
    UnknownZone,
    /// It gives an endpoint more zones than the API allows.
    TooManyZones,
    /// It gives some endpoints zones and others none.
    EndpointLeftOut,
    /// It gives a share below zero, none that is a number, or not one for each zone.
    WrongShares,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluation => "its evaluation failed",
            Self::TooExpensive => "it takes too long for this many endpoints and zones",
            Self::UnknownZone => "it names a zone that does not exist",
            Self::TooManyZones => "it gives an endpoint more than 8 zones",
            Self::EndpointLeftOut => {
                "it gives an endpoint no zone, so consumers would ignore all hints"
            }
            Self::WrongShares => {
                "a share is negative or no number, or there is not one for each zone"
            }
        })
    }
}

/// A code with its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "code", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "variants are documented by TABLE, fields by their names")]
pub enum Reason {
    ClusterWide,
    OwnZone { zones_without_endpoints: u64 },
    OwnNode { zones_without_endpoints: u64 },
    ZoneRequired { zones_without_endpoints: u64 },
    GroupsAssigned,
    HintsAssigned { moved: u64 },
    HintsKept { highest_overload: f64, limit: f64 },
    SubsetsAssigned { moved: u64 },
    SubsetsKept { highest_overload: f64, limit: f64 },
    SharesBalanced { in_zone: f64, max_overload: f64 },
    ExpressionApplied,
    NoEndpoints,
    NodeInformationMissing { nodes: u64 },
    OneZoneOnly,
    TooFewEndpoints { endpoints: u64, zones: u64 },
    TooFewForBalance { endpoints: u64, minimums: u64, limit: f64 },
    OverloadTooHigh { zone: u32, expected: f64, present: u64, limit: f64 },
    BelowStartingThreshold { endpoints: u64, threshold: u64, padding: u64 },
    EndpointsWithoutZone { endpoints: u64 },
    ExpressionFailed { fault: Fault },
    NeverSettles,
    TooManyEndpoints { endpoints: u64, limit: u64 },
    StartingThresholdInvalid,
    PaddingInvalid,
    SharesTooLarge { bytes: u64, limit: u64 },
    SharesMalformed,
    ChoiceOverridden,
    GateOff,
    LocalPolicy,
    PreferenceReserved,
    PreferenceUnknown,
    SubsettingUnknown,
    TopologyModeUnknown,
    TooManyZonesForHints { zones: u64, limit: u64 },
    SameNodeHints { endpoints: u64, of: u64 },
    SameZoneHints { endpoints: u64, of: u64 },
    SharesApplied { in_zone: f64, endpoints: u64 },
    ZoneSubset,
    RegionSubset,
    LocalOnly { endpoints: u64 },
    NoHints,
    HintMissing { endpoints: u64 },
    NoHintForNode { of: u64 },
    NoHintForZone { of: u64 },
    NodeWithoutZone,
    SharesStale { now: f64, then: f64 },
    SharesDisagree,
    SharesWithoutZone,
    OnlyTerminating { endpoints: u64 },
    NoLocalEndpoint,
    SubsetEmpty,
    SubsetsMixed,
    HintsGateOff,
    HintsNotAsked,
}

impl Reason {
    /// Its stable name.
    pub fn code(&self) -> Code {
        match self {
            Self::ClusterWide => Code::ClusterWide,
            Self::OwnZone { .. } => Code::OwnZone,
            Self::OwnNode { .. } => Code::OwnNode,
            Self::ZoneRequired { .. } => Code::ZoneRequired,
            Self::GroupsAssigned => Code::GroupsAssigned,
            Self::HintsAssigned { .. } => Code::HintsAssigned,
            Self::HintsKept { .. } => Code::HintsKept,
            Self::SubsetsAssigned { .. } => Code::SubsetsAssigned,
            Self::SubsetsKept { .. } => Code::SubsetsKept,
            Self::SharesBalanced { .. } => Code::SharesBalanced,
            Self::ExpressionApplied => Code::ExpressionApplied,
            Self::NoEndpoints => Code::NoEndpoints,
            Self::NodeInformationMissing { .. } => Code::NodeInformationMissing,
            Self::OneZoneOnly => Code::OneZoneOnly,
            Self::TooFewEndpoints { .. } => Code::TooFewEndpoints,
            Self::TooFewForBalance { .. } => Code::TooFewForBalance,
            Self::OverloadTooHigh { .. } => Code::OverloadTooHigh,
            Self::BelowStartingThreshold { .. } => Code::BelowStartingThreshold,
            Self::EndpointsWithoutZone { .. } => Code::EndpointsWithoutZone,
            Self::ExpressionFailed { .. } => Code::ExpressionFailed,
            Self::NeverSettles => Code::NeverSettles,
            Self::TooManyEndpoints { .. } => Code::TooManyEndpoints,
            Self::StartingThresholdInvalid => Code::StartingThresholdInvalid,
            Self::PaddingInvalid => Code::PaddingInvalid,
            Self::SharesTooLarge { .. } => Code::SharesTooLarge,
            Self::SharesMalformed => Code::SharesMalformed,
            Self::ChoiceOverridden => Code::ChoiceOverridden,
            Self::GateOff => Code::GateOff,
            Self::LocalPolicy => Code::LocalPolicy,
            Self::PreferenceReserved => Code::PreferenceReserved,
            Self::PreferenceUnknown => Code::PreferenceUnknown,
            Self::SubsettingUnknown => Code::SubsettingUnknown,
            Self::TopologyModeUnknown => Code::TopologyModeUnknown,
            Self::TooManyZonesForHints { .. } => Code::TooManyZonesForHints,
            Self::SameNodeHints { .. } => Code::SameNodeHints,
            Self::SameZoneHints { .. } => Code::SameZoneHints,
            Self::SharesApplied { .. } => Code::SharesApplied,
            Self::ZoneSubset => Code::ZoneSubset,
            Self::RegionSubset => Code::RegionSubset,
            Self::LocalOnly { .. } => Code::LocalOnly,
            Self::NoHints => Code::NoHints,
            Self::HintMissing { .. } => Code::HintMissing,
            Self::NoHintForNode { .. } => Code::NoHintForNode,
            Self::NoHintForZone { .. } => Code::NoHintForZone,
            Self::NodeWithoutZone => Code::NodeWithoutZone,
            Self::SharesStale { .. } => Code::SharesStale,
            Self::SharesDisagree => Code::SharesDisagree,
            Self::SharesWithoutZone => Code::SharesWithoutZone,
            Self::OnlyTerminating { .. } => Code::OnlyTerminating,
            Self::NoLocalEndpoint => Code::NoLocalEndpoint,
            Self::SubsetEmpty => Code::SubsetEmpty,
            Self::SubsetsMixed => Code::SubsetsMixed,
            Self::HintsGateOff => Code::HintsGateOff,
            Self::HintsNotAsked => Code::HintsNotAsked,
        }
    }

    /// What it means for routing.
    pub fn outcome(&self) -> Outcome {
        self.code().entry().outcome
    }
}

impl fmt::Display for Reason {
    /// The sentence of the table, and the figures behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().entry().sentence)?;
        match self.figures() {
            Some(figures) => write!(f, " ({figures})"),
            None => Ok(()),
        }
    }
}

impl Reason {
    fn figures(&self) -> Option<String> {
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        Some(match *self {
            Self::OwnZone { zones_without_endpoints: zones }
            | Self::OwnNode { zones_without_endpoints: zones }
            | Self::ZoneRequired { zones_without_endpoints: zones } => {
                format!("{zones} zones have no endpoint")
            }
            Self::HintsAssigned { moved } | Self::SubsetsAssigned { moved } => {
                format!("{moved} endpoints serve another zone")
            }
            Self::HintsKept { highest_overload, limit }
            | Self::SubsetsKept { highest_overload, limit } => {
                format!("{} of at most {}", percent(highest_overload), percent(limit))
            }
            Self::SharesBalanced { in_zone, .. } => {
                format!("{} of the traffic stays in its zone", percent(in_zone))
            }
            Self::NodeInformationMissing { nodes } => format!("{nodes} nodes"),
            Self::TooFewEndpoints { endpoints, zones } => {
                format!("{endpoints} endpoints, {zones} zones")
            }
            Self::TooFewForBalance { endpoints, minimums, limit } => {
                let limit = percent(limit);
                format!("{endpoints} endpoints; the minimums for {limit} add up to {minimums}")
            }
            Self::OverloadTooHigh { expected, present, limit, .. } => {
                let limit = percent(limit);
                format!("{expected:.2} endpoints expected, {present} present, limit {limit}")
            }
            Self::BelowStartingThreshold { endpoints, threshold, padding } => {
                format!("{endpoints} endpoints, threshold {threshold}, padding {padding}")
            }
            Self::EndpointsWithoutZone { endpoints } => format!("{endpoints} endpoints"),
            Self::ExpressionFailed { fault } => fault.to_string(),
            Self::TooManyEndpoints { endpoints, limit } => {
                format!("{endpoints} endpoints, at most {limit}")
            }
            Self::SharesTooLarge { bytes, limit } => format!("{bytes} bytes of {limit}"),
            Self::TooManyZonesForHints { zones, limit } => {
                format!("{zones} zones of at most {limit}")
            }
            _ => return self.figures_of_a_route(),
        })
    }

    fn figures_of_a_route(&self) -> Option<String> {
        Some(match *self {
            Self::SameNodeHints { endpoints, of } | Self::SameZoneHints { endpoints, of } => {
                format!("{endpoints} of {of} endpoints")
            }
            Self::SharesApplied { in_zone, endpoints } => {
                format!("{endpoints} endpoints; {:.0} % stays in its zone", in_zone * 100.0)
            }
            Self::LocalOnly { endpoints }
            | Self::OnlyTerminating { endpoints }
            | Self::HintMissing { endpoints } => format!("{endpoints} endpoints"),
            Self::NoHintForNode { of } | Self::NoHintForZone { of } => format!("{of} endpoints"),
            Self::SharesStale { now, then } => {
                format!("{now:.2} times the fair share from here, meant was {then:.2}")
            }
            _ => return None,
        })
    }
}
