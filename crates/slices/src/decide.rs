//! Decides which zones should use each endpoint: runs the heuristic and turns its result into hints,
//! subsets or zone shares.
//!
//! The previous decision is read back from the stored slices, endpoint by endpoint. A restarted
//! controller, another replica and `zonewise plan` on a dump therefore decide the same as the
//! controller that wrote the slices.
//!
//! What is in force is kept as long as it is good enough, so that few slices are written. How much
//! better a fresh decision would be is part of the result, and [`plan`](crate::plan) takes the fresh
//! decision where that costs no write more, or once the Service has been quiet.

mod by_numbers;
mod input;

use std::borrow::Cow;
use std::sync::Arc;

use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::capacity::Capacity;
use zonewise_topology::heuristic::{Assignment, Heuristic};
use zonewise_topology::heuristics::same_zone::SameZone;
use zonewise_topology::reason::{Outcome, Reason};
use zonewise_topology::region::Situation;
use zonewise_topology::settling::{Improvement, Quality};

use crate::desired::{Desired, DesiredEndpoint};
use crate::evacuation::Load;
use crate::node::{MeasuredZones, Nodes};
use crate::numbers::zone_number;
use crate::requested::{Choice, Consumers, Near};
use crate::slice::{Hints, Subset};
use crate::stored::Stored;
use crate::upstream::NearHints;

pub(crate) use by_numbers::near_reason;
pub use by_numbers::{is_surely_in_force, kept_reason};
use input::HeuristicInput;

/// Which zones use each endpoint of an address family, and why.
pub(crate) struct Decision<'a> {
    pub(crate) reason: Reason,
    /// The hints of each endpoint.
    pub(crate) hints: AssignedHints<'a>,
    /// Whether all endpoints that are stored are known to have the hints that they should have.
    pub(crate) keeps_hints: bool,
    /// The subset of each endpoint; `None` without subsets.
    pub(crate) subsets: Option<Subsets>,
    /// The zone shares that are written on every slice; `None` without shares.
    pub(crate) shares: Option<String>,
    /// What a fresh decision would give instead; `None` if this is one, or would be the same.
    pub(crate) improvement: Option<Improvement>,
}

/// The hints of desired endpoints. There are few different ones, so each endpoint has the number of its own.
#[derive(Default)]
pub(crate) struct AssignedHints<'a> {
    values: Vec<Option<Arc<Hints>>>,
    /// The index in `values` for each endpoint; empty when no endpoint has hints.
    numbers: Cow<'a, [u32]>,
}

impl AssignedHints<'_> {
    /// The hints of an endpoint.
    #[inline]
    pub(crate) fn of(&self, endpoint: usize) -> Option<&Arc<Hints>> {
        let number = self.numbers.get(endpoint)?;
        self.values[*number as usize].as_ref()
    }

    /// Whether no endpoint has hints.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    fn into_owned(self) -> AssignedHints<'static> {
        AssignedHints { values: self.values, numbers: Cow::Owned(self.numbers.into_owned()) }
    }
}

impl FromIterator<Option<Arc<Hints>>> for AssignedHints<'_> {
    fn from_iter<I: IntoIterator<Item = Option<Arc<Hints>>>>(hints: I) -> Self {
        let values: Vec<Option<Arc<Hints>>> = hints.into_iter().collect();
        Self { numbers: (0..values.len() as u32).collect(), values }
    }
}

/// What a decision does with hints, subsets and shares that are in force.
pub(crate) enum Stance<'a> {
    /// Keep them as long as they are good enough.
    Keep,
    /// Decide afresh.
    Afresh,
    /// Decide afresh, but for the endpoints for which this is true: their slices are not written.
    Around(&'a [bool]),
}

/// The division of endpoints into subsets.
pub(crate) struct Subsets {
    /// The subset of each endpoint.
    pub(crate) of: Vec<Subset>,
    /// Subsets that must have a slice even without endpoints.
    pub(crate) required: Vec<Subset>,
}

impl Decision<'_> {
    /// No hints, subsets or shares: every client uses every endpoint.
    pub(crate) fn cluster_wide(reason: Reason) -> Self {
        Self {
            reason,
            hints: AssignedHints::default(),
            keeps_hints: false,
            subsets: None,
            shares: None,
            improvement: None,
        }
    }

    fn into_owned(self) -> Decision<'static> {
        Decision { hints: self.hints.into_owned(), ..self }
    }
}

/// The numbers that a decision is based on, for explanations.
#[derive(Debug)]
pub struct Grounds<'a> {
    /// The capacity of each zone or region.
    pub capacity: &'a Capacity,
    /// The capacity together with the number of ready endpoints in each zone or region.
    pub situation: Situation,
    /// The same with endpoints that count for the CPU that their Pods request, where the Service asks for it.
    pub weighted: Option<Situation>,
    /// The same with zones whose endpoints count in part, because they fail, or by the CPU that they use.
    pub in_part: Option<Situation>,
    /// The previous decision, as the stored slices show it.
    pub previous: Option<Assignment>,
}

/// The numbers that [`Decider`] bases its decisions on.
pub(crate) fn grounds<'a>(
    choice: &Choice,
    desired: &Desired<'_>,
    stored: &Stored<'_>,
    nodes: &'a Nodes,
    measured: Option<&'a MeasuredZones>,
) -> Grounds<'a> {
    let capacity = nodes.capacity(choice.consumers(), measured);
    let input = HeuristicInput::of(choice, desired, stored, nodes, measured);
    let HeuristicInput { situation, weighted, in_part, previous, .. } = input;
    Grounds { capacity, situation, weighted, in_part, previous }
}

/// What the ready endpoints get when it is decided afresh; `None` if there are none. Routing that is not in force, and
/// zones that it leaves without an endpoint, use all.
pub(crate) fn load(
    choice: &Choice,
    desired: &Desired<'_>,
    stored: &Stored<'_>,
    nodes: &Nodes,
    measured: Option<&MeasuredZones>,
) -> Option<Load> {
    let input = HeuristicInput::of(choice, desired, stored, nodes, measured);
    let endpoints = input.situation.region().present();
    let region = input.deciding().region();
    let (mut allocation, reason) = match choice {
        Choice::ClusterWide => (Allocation::new(), Reason::NoEndpoints),
        Choice::Near(_) => input.run(&SameZone, true),
        Choice::Heuristic(heuristic)
        | Choice::WeightedShares(heuristic)
        | Choice::Subsets(heuristic, _) => input.run(&**heuristic, true),
    };
    if reason.outcome() != Outcome::InForce {
        allocation.everywhere(&region, Carrier::Plain);
    }
    if matches!(choice, Choice::Near(_)) {
        let elsewhere = desired.served_elsewhere.iter();
        for zone in elsewhere.filter_map(|zone| zone_number(&input.situation, zone)) {
            for group in 0..allocation.groups().len() {
                allocation.set_weight(group, zone as usize, 1.0);
            }
        }
    }
    allocation.serve_the_unserved();
    let overload = Quality::of(&region, &allocation).map_or(0.0, |quality| quality.max_overload);
    let fair = 1.0 / region.present() as f64;
    (endpoints > 0).then_some(Load { endpoints, busiest: (1.0 + overload) * fair })
}

/// Decides for one address family, as often as is asked.
pub(crate) enum Decider<'a> {
    ClusterWide,
    Near(Near, &'a Desired<'a>, &'a Nodes),
    Hints(&'a dyn Heuristic, HeuristicInput<'a>),
    Subsets(&'a dyn Heuristic, Consumers, HeuristicInput<'a>),
}

impl<'a> Decider<'a> {
    pub(crate) fn new(
        choice: &'a Choice,
        desired: &'a Desired<'a>,
        stored: &'a Stored<'a>,
        nodes: &'a Nodes,
        measured: Option<&MeasuredZones>,
    ) -> Self {
        let input = || HeuristicInput::of(choice, desired, stored, nodes, measured);
        match choice {
            Choice::ClusterWide => Self::ClusterWide,
            Choice::Near(near) => Self::Near(*near, desired, nodes),
            Choice::Heuristic(heuristic) | Choice::WeightedShares(heuristic) => {
                Self::Hints(&**heuristic, input())
            }
            Choice::Subsets(heuristic, consumers) => {
                Self::Subsets(&**heuristic, *consumers, input())
            }
        }
    }

    pub(crate) fn decide(&self, stance: &Stance<'_>) -> Decision<'_> {
        let afresh = matches!(stance, Stance::Afresh);
        match (self, stance) {
            (Self::ClusterWide, _) => Decision::cluster_wide(Reason::ClusterWide),
            (Self::Near(near, desired, nodes), _) => nearby(*near, desired, nodes),
            (Self::Hints(heuristic, input), Stance::Around(fixed)) => {
                let moved = input.with_all_moved_but(fixed, *heuristic);
                moved.hints_or_shares(*heuristic, afresh).into_owned()
            }
            (Self::Hints(heuristic, input), _) => input.hints_or_shares(*heuristic, afresh),
            (Self::Subsets(heuristic, consumers, input), _) => {
                input.subsets(*heuristic, *consumers, afresh)
            }
        }
    }
}

/// Hints every endpoint to its own zone or node, as `trafficDistribution` requests; and to zones that are being emptied.
fn nearby(near: Near, desired: &Desired<'_>, nodes: &Nodes) -> Decision<'static> {
    let mut hints = NearHints::new(near).and_for(&desired.served_elsewhere);
    let reason = near_reason(near, desired, nodes);
    let hint = |endpoint: &DesiredEndpoint<'_>| {
        hints.of(endpoint.zone(), endpoint.node()).filter(|_| endpoint.is_ready())
    };
    Decision {
        hints: desired.endpoints.iter().map(hint).collect(),
        ..Decision::cluster_wide(reason)
    }
}
