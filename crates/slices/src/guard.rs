//! Guard mode: which hints the slices of the built-in controller should carry, as data that an admission policy
//! reads.
//!
//! ```text
//!  plan ─► slices as they should be ─► ZoneAllocation: where hints differ from "own zone"
//!                                          │ the policy, on every write of a slice
//!  slice, as the built-in controller ──────┴─► admitted: the same slice with the hints of the allocation
//! ```
//!
//! [`ZoneAllocation::admitted`] is the policy's rule in Rust. It is how plans know what is in force, which slices the
//! policy has not seen since the allocation has changed, and what the webhook answers where there is no policy. A test on
//! a real API server compares them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zonewise_common::name::Name;
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::balanced_hints::BalancedHints;
use zonewise_topology::reason::Code;

use crate::plan::{FamilyPlan, Plan};
use crate::requested::{Choice, Near, RequestedRouting, TRAFFIC_DISTRIBUTION};
use crate::slice::{Addresses, Endpoint, Hints, Slice};

/// Which zones use the endpoints of one Service: the `spec` of a ZoneAllocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneAllocation {
    /// The hints of endpoints that are not listed.
    pub others: Others,
    /// The zones that use an endpoint, by its address, separated by commas; empty for an endpoint without hints.
    pub endpoints: BTreeMap<Box<str>, Box<str>>,
    /// What became of `spec.trafficDistribution`, the floor under the hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
}

/// The hints of endpoints that an allocation does not list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// Those that the built-in controller writes: the allocation is being taken back.
    #[default]
    AsWritten,
    /// The endpoint's own zone, once it is ready.
    OwnZone,
    /// None: every zone uses every endpoint.
    NoHints,
}

/// What became of the floor: the value of `spec.trafficDistribution` that holds while the policy does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Floor {
    /// We have set it to this value, which hints endpoints to their own zone.
    PreferSameZone,
    /// The same by its older name, where the API server does not know the newer (before Kubernetes 1.34).
    PreferClose,
    /// We have set it to this value, which hints endpoints to their own node, then zone.
    PreferSameNode,
    /// We had set it, and another program has changed it since. It is not set again.
    Withdrawn,
}

impl Floor {
    /// The value of the field.
    pub fn value(self) -> Option<&'static str> {
        match self {
            Self::PreferSameZone => Some("PreferSameZone"),
            Self::PreferClose => Some("PreferClose"),
            Self::PreferSameNode => Some("PreferSameNode"),
            Self::Withdrawn => None,
        }
    }

    /// Whether a value of the field does the same.
    pub fn is(self, value: &str) -> bool {
        let names = [self.value(), self.older_name().and_then(Self::value)];
        names.contains(&Some(value))
    }

    /// The same by an older name, which other versions of the API server may know instead.
    pub fn older_name(self) -> Option<Self> {
        (self == Self::PreferSameZone).then_some(Self::PreferClose)
    }
}

/// What guard mode does for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing: the Service asks for no routing, or for one that the built-in controller gives it.
    Nothing,
    /// It sets this floor and no hints.
    FloorOnly(Floor),
    /// It sets hints above this floor.
    Hints(Floor),
}

/// What guard mode does for a Service that asks for this. `spec.trafficDistribution` is not our business: the built-in
/// controller does what it says.
pub fn guarded(requested: &RequestedRouting) -> Guarded {
    match requested.choice {
        _ if requested.source == TRAFFIC_DISTRIBUTION => Guarded::Nothing,
        Choice::ClusterWide => Guarded::Nothing,
        Choice::Near(Near::Node) => Guarded::FloorOnly(Floor::PreferSameNode),
        Choice::Near(Near::Zone)
        | Choice::Heuristic(_)
        | Choice::WeightedShares(_)
        | Choice::Subsets(..) => Guarded::Hints(Floor::PreferSameZone),
    }
}

/// One step of a JSON patch (RFC 6902) of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchStep {
    /// These hints, in place of others if there are any.
    Add {
        /// Where.
        path: String,
        /// The hints.
        value: Arc<Hints>,
    },
    /// No hints.
    Remove {
        /// Where.
        path: String,
    },
}

/// What to do about the floor of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorStep {
    /// Nothing: it is as it should be, or not ours.
    Keep(Option<Floor>),
    /// Set it.
    Set(Floor),
    /// Note that another program has changed it.
    Withdraw,
    /// Leave the value of another program.
    Refuse,
}

/// What to do about the floor. `before` is what became of it so far, `field` the value that is stored. With the topology
/// annotation the built-in controller does not look at the field (`auto`).
pub fn floor_step(
    wanted: Floor,
    before: Option<Floor>,
    field: Option<&str>,
    auto: bool,
) -> FloorStep {
    match (before, field) {
        (Some(Floor::Withdrawn), _) => FloorStep::Keep(before),
        (Some(set), _) if field != set.value() => FloorStep::Withdraw,
        (Some(set), _) if set.value().is_some_and(|value| wanted.is(value)) => {
            FloorStep::Keep(before)
        }
        (Some(_), _) => FloorStep::Set(wanted),
        // Where another program has set the same value, both own it, and it stays when we give it up.
        (None, None) if auto => FloorStep::Keep(None),
        (None, None) => FloorStep::Set(wanted),
        (None, Some(_)) if field == wanted.value() => FloorStep::Set(wanted),
        (None, Some(value)) if wanted.is(value) => FloorStep::Keep(None),
        (None, Some(_)) => FloorStep::Refuse,
    }
}

/// The heuristic of Services that ask for what hints cannot carry.
pub(crate) fn heuristic() -> Arc<dyn Heuristic> {
    Arc::new(BalancedHints::default())
}

impl ZoneAllocation {
    /// The allocation that makes the hints of a plan, from the slices that the plan was made for.
    pub fn of(plan: &Plan, stored: &[Arc<Slice>]) -> Self {
        let families: Vec<(&FamilyPlan, Vec<&Endpoint>)> =
            plan.families.iter().map(|family| (family, planned(family, stored))).collect();
        let is_divided = |(family, endpoints): &(&FamilyPlan, Vec<&Endpoint>)| {
            family.reason.code() == Code::NoEndpoints
                || endpoints.iter().any(|endpoint| endpoint.hints.is_some())
        };
        if !families.iter().any(is_divided) {
            return Self { others: Others::NoHints, ..Self::default() };
        }
        let endpoints = families.iter().flat_map(|(_, endpoints)| endpoints);
        let listed = endpoints.filter_map(|endpoint| entry(endpoint)).collect();
        Self { others: Others::OwnZone, endpoints: listed, floor: None }
    }

    /// Whether the policy changes any hints by it.
    pub fn has_effect(&self) -> bool {
        self.others != Others::AsWritten || !self.endpoints.is_empty()
    }

    /// A slice as the policy leaves it.
    pub fn admitted(&self, slice: &Slice) -> Slice {
        let mut admitted = slice.clone();
        for endpoint in &mut admitted.endpoints {
            let before = zones_of(endpoint);
            let zones = match (self.endpoints.get(&*address(&endpoint.addresses)), self.others) {
                (Some(zones), _) => &**zones,
                (None, Others::OwnZone) if endpoint.conditions.ready != Some(false) => {
                    endpoint.zone.as_deref().unwrap_or("")
                }
                (None, Others::NoHints) => "",
                (None, Others::OwnZone | Others::AsWritten) => &before,
            };
            let has_others = self.others != Others::AsWritten && has_node_hints(endpoint);
            if before != zones || has_others {
                endpoint.hints = hints_to(zones);
            }
        }
        admitted
    }

    /// What turns a slice into [`admitted`](Self::admitted), as the policy and the webhook give it to the API server.
    pub fn patch(&self, slice: &Slice) -> Vec<PatchStep> {
        let admitted = self.admitted(slice).endpoints;
        let pairs = slice.endpoints.iter().zip(admitted).enumerate();
        let step = |(number, (before, after)): (usize, (&Endpoint, Endpoint))| {
            let path = format!("/endpoints/{number}/hints");
            let step = match after.hints.clone() {
                Some(value) => PatchStep::Add { path, value },
                None => PatchStep::Remove { path },
            };
            (before.hints != after.hints).then_some(step)
        };
        pairs.filter_map(step).collect()
    }

    /// Whether the policy would change nothing about a slice.
    pub fn is_applied_to(&self, slice: &Slice) -> bool {
        self.admitted(slice).endpoints == slice.endpoints
    }

    /// The slices with the hints that this allocation gives them.
    pub fn admitted_all(&self, slices: &[Arc<Slice>]) -> Vec<Arc<Slice>> {
        slices.iter().map(|slice| Arc::new(self.admitted(slice))).collect()
    }
}

/// The endpoints of a family once its plan is carried out.
fn planned<'a>(plan: &'a FamilyPlan, stored: &'a [Arc<Slice>]) -> Vec<&'a Endpoint> {
    let is_replaced = |slice: &Slice| {
        plan.updates.iter().any(|update| update.name == slice.name)
            || plan.deletes.iter().any(|deleted| *deleted.name == *slice.name())
    };
    let stored = stored.iter().map(|slice| &**slice);
    let kept = stored.filter(|slice| slice.family == plan.family && !is_replaced(slice));
    let slices = kept.chain(&plan.updates).chain(&plan.creates);
    slices.flat_map(|slice| &slice.endpoints).collect()
}

/// The entry of an endpoint that needs one. Endpoints that are not ready get no traffic, so it does not matter which
/// hints they have.
fn entry(endpoint: &Endpoint) -> Option<(Box<str>, Box<str>)> {
    let zones = zones_of(endpoint);
    let is_default = zones == endpoint.zone.as_deref().unwrap_or("");
    (endpoint.is_ready() && !is_default).then(|| (address(&endpoint.addresses), zones.into()))
}

/// The first address as the policy reads it.
fn address(addresses: &Addresses) -> Box<str> {
    match addresses {
        Addresses::One(ip) => ip.to_string().into(),
        Addresses::Many(texts) => texts.first().cloned().unwrap_or_default(),
    }
}

/// The zones that an endpoint is hinted to, as they are listed.
fn zones_of(endpoint: &Endpoint) -> String {
    let zones: Vec<&str> = endpoint.zone_hints().iter().map(|zone| &**zone).collect();
    zones.join(",")
}

fn has_node_hints(endpoint: &Endpoint) -> bool {
    endpoint.hints.as_ref().is_some_and(|hints| !hints.for_nodes.is_empty())
}

fn hints_to(zones: &str) -> Option<Arc<Hints>> {
    let for_zones: Vec<Name> =
        zones.split(',').filter(|zone| !zone.is_empty()).map(Name::from).collect();
    (!for_zones.is_empty()).then(|| Arc::new(Hints { for_zones, for_nodes: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_set_where_there_is_none_and_never_fought_for() {
        use Floor::{PreferClose, PreferSameNode, PreferSameZone, Withdrawn};
        let rows = [
            ("nothing is there", None, None, FloorStep::Set(PreferSameZone)),
            ("the user has it", None, Some("PreferSameZone"), FloorStep::Set(PreferSameZone)),
            ("by its older name", None, Some("PreferClose"), FloorStep::Keep(None)),
            ("the user has another", None, Some("PreferSameNode"), FloorStep::Refuse),
            (
                "it is ours",
                Some(PreferSameZone),
                Some("PreferSameZone"),
                FloorStep::Keep(Some(PreferSameZone)),
            ),
            (
                "it was ours for another request",
                Some(PreferSameNode),
                Some("PreferSameNode"),
                FloorStep::Set(PreferSameZone),
            ),
            (
                "it is ours by its older name",
                Some(PreferClose),
                Some("PreferClose"),
                FloorStep::Keep(Some(PreferClose)),
            ),
            ("that was removed", Some(PreferClose), None, FloorStep::Withdraw),
            ("it was removed", Some(PreferSameZone), None, FloorStep::Withdraw),
            ("it was replaced", Some(PreferSameZone), Some("PreferSameNode"), FloorStep::Withdraw),
            ("it was withdrawn", Some(Withdrawn), None, FloorStep::Keep(Some(Withdrawn))),
        ];
        for (what, before, field, expected) in rows {
            assert_eq!(floor_step(PreferSameZone, before, field, false), expected, "{what}");
        }
        assert_eq!(floor_step(PreferSameZone, None, None, true), FloorStep::Keep(None));
    }
}
