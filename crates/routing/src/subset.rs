//! Which slices of a Service this node consumes (documents A and C).
//!
//! ```text
//!  no label            ─► everyone
//!  for-zone: mine      ─► this node          for-zone: another   ─► not this node
//!  for-region: mine    ─► this node          for-region: another ─► not this node
//! ```
//!
//! Never a black hole: a node that does not know its zone takes the slices of all zones, likewise
//! for regions, and where the slices for this node hold no usable endpoint all slices are taken.
//!
//! While a Service changes from one kind of slices to another, it has several kinds for a moment,
//! and writers add before they remove. This node then uses everything that is for it, labelled or
//! not: that is at least what it used before or what it will use after. It is also what a node sees
//! that watches only its own slices, so that the answer does not depend on what else it was told.

use zonewise_topology::reason::Reason;

use crate::gates::FeatureGates;
use crate::location::NodeLocation;
use crate::net::Family;
use crate::route::Mode;
use crate::service::{RoutedService, TrafficPolicy};
use crate::slice::{RoutedSlice, Subset};

/// Whether a slice is for this node.
pub fn is_for_node(slice: &RoutedSlice, location: &NodeLocation, gates: &FeatureGates) -> bool {
    let is_mine = |mine: &Option<crate::Name>, label: &crate::Name| {
        mine.as_ref().is_none_or(|mine| mine == label)
    };
    !gates.subsetting
        || match &slice.subset {
            Subset::All => true,
            Subset::Zone(zone) => is_mine(&location.zone, zone),
            Subset::Region(region) => is_mine(&location.region, region),
        }
}

/// Whether a Service takes all its slices whatever their labels: with a policy of Local, its
/// endpoints on this node may sit in another zone's slices.
pub fn uses_all_slices(service: &RoutedService) -> bool {
    service.internal_policy == TrafficPolicy::Local
        || service.external_policy == TrafficPolicy::Local
}

/// The slices of a Service that this node consumes, decided for each family. [`crate::route`]
/// decides again for each port: a port that only another zone's slices offer is served from all.
pub fn consumed_slices<'a>(
    service: &RoutedService,
    slices: &[&'a RoutedSlice],
    location: &NodeLocation,
    gates: &FeatureGates,
) -> Vec<&'a RoutedSlice> {
    let choose = |family: Family| {
        let mine = slices.iter().copied().filter(|slice| slice.family == Some(family)).collect();
        choose(service, mine, location, gates).slices
    };
    Family::BOTH.into_iter().flat_map(choose).collect()
}

/// Slices, and what they stand for.
pub(crate) struct Chosen<'a> {
    pub(crate) slices: Vec<&'a RoutedSlice>,
    pub(crate) scope: Scope,
}

/// What a choice of slices stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All there are, or all that have no label.
    Everything,
    /// This node's zone's.
    Zone,
    /// This node's region's.
    Region,
    /// Several kinds of slices: a change is going on.
    Mixed,
    /// The node does not know where it is.
    Unplaced,
    /// Nothing usable for this node: all slices.
    Empty,
}

impl Scope {
    /// What it means for a route, where it means anything.
    pub(crate) fn outcome(self) -> Option<(Mode, Reason)> {
        match self {
            Self::Everything => None,
            Self::Zone => Some((Mode::SameZone, Reason::ZoneSubset)),
            Self::Region => Some((Mode::SameRegion, Reason::RegionSubset)),
            Self::Mixed => Some((Mode::Any, Reason::SubsetsMixed)),
            Self::Unplaced => Some((Mode::Any, Reason::NodeWithoutZone)),
            Self::Empty => Some((Mode::Any, Reason::SubsetEmpty)),
        }
    }
}

/// Chooses among slices of one family.
pub(crate) fn choose<'a>(
    service: &RoutedService,
    slices: Vec<&'a RoutedSlice>,
    location: &NodeLocation,
    gates: &FeatureGates,
) -> Chosen<'a> {
    let unlabelled = slices.iter().all(|slice| slice.subset == Subset::All);
    if unlabelled || !gates.subsetting || uses_all_slices(service) {
        return Chosen { slices, scope: Scope::Everything };
    }
    let wanted: Vec<&RoutedSlice> =
        slices.iter().copied().filter(|slice| is_for_node(slice, location, gates)).collect();
    if wanted.len() < slices.len() && !wanted.iter().any(|slice| slice.is_usable()) {
        return Chosen { slices, scope: Scope::Empty };
    }
    let scope = scope(&wanted, location);
    Chosen { slices: wanted, scope }
}

fn scope(wanted: &[&RoutedSlice], location: &NodeLocation) -> Scope {
    let kind = |slice: &&RoutedSlice| match slice.subset {
        Subset::All => Scope::Everything,
        Subset::Zone(_) if location.zone.is_some() => Scope::Zone,
        Subset::Region(_) if location.region.is_some() => Scope::Region,
        Subset::Zone(_) | Subset::Region(_) => Scope::Unplaced,
    };
    let mut kinds = wanted.iter().map(kind);
    let first = kinds.next().unwrap_or(Scope::Everything);
    kinds.fold(first, |one, other| if one == other { one } else { Scope::Mixed })
}
