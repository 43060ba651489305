//! Which slices of a Service this node consumes (requirements C1 to C9 in docs/requirements.md).
//!
//! The controller can split a Service's endpoints into one subset per zone or region. A label on
//! each slice says who consumes it:
//!
//! ```text
//!  no label                        ─► every node
//!  for-zone: the node's zone       ─► this node     for-zone: another zone     ─► not this node
//!  for-region: the node's region   ─► this node     for-region: another region ─► not this node
//! ```
//!
//! A Service must never lose all its endpoints because of labels (C8). A node that does not know
//! its zone therefore takes the slices of all zones, and likewise for regions. Where the slices for
//! this node hold no ready endpoint, it takes all slices: an endpoint that is ready in another zone is
//! better than one that is being deleted in this one, and it is known before the last one here is gone.
//!
//! While a Service changes from unlabelled slices to labelled ones or back, both kinds exist for a
//! moment, because controllers add new slices before they remove old ones (C7). The node then uses
//! every slice that is for it, labelled or not. That is at least what it used before the change or
//! what it uses afterwards. It is also all that a proxy sees which watches only the slices for its
//! own node, so that the result does not depend on which watches are open.

use zonewise_common::name::Name;
use zonewise_topology::reason::Reason;

use crate::gates::FeatureGates;
use crate::location::NodeLocation;
use crate::net::Family;
use crate::route::Mode;
use crate::service::{RoutedService, ServicePort, TrafficPolicy};
use crate::slice::{RoutedSlice, Subset};

/// Whether a slice is for this node, by its labels.
pub fn is_for_node(slice: &RoutedSlice, location: &NodeLocation, gates: &FeatureGates) -> bool {
    let is_mine =
        |mine: &Option<Name>, label: &Name| mine.as_ref().is_none_or(|mine| mine == label);
    !gates.subsetting
        || match &slice.subset {
            Subset::All => true,
            Subset::Zone(zone) => is_mine(&location.zone, zone),
            Subset::Region(region) => is_mine(&location.region, region),
        }
}

/// Whether the labels of a Service's slices are ignored. They are with a traffic policy of Local
/// (C9): an endpoint on this node may be in a slice that is labelled for another zone.
pub fn uses_all_slices(service: &RoutedService) -> bool {
    service.internal_policy == TrafficPolicy::Local
        || service.external_policy == TrafficPolicy::Local
}

/// Whether slices for other zones and regions matter for a Service, besides `mine`, those for this node:
/// with a traffic policy of Local (C9), and if `mine` leaves some port without a ready endpoint in an
/// address family that the Service has (C8).
pub fn needs_other_subsets(service: &RoutedService, mine: &[&RoutedSlice]) -> bool {
    let serves = |family: Family, port: &ServicePort| {
        mine.iter().any(|slice| {
            slice.family == Some(family)
                && slice.offers(&port.name, port.protocol)
                && slice.has_ready_endpoint()
        })
    };
    let families = Family::BOTH.into_iter().filter(|family| service.cluster_ip(*family).is_some());
    let mut ports =
        families.flat_map(|family| service.ports.iter().map(move |port| (family, port)));
    uses_all_slices(service) || ports.any(|(family, port)| !serves(family, port))
}

/// The slices of a Service that this node consumes, decided separately for IPv4 and IPv6.
///
/// [`crate::route()`] decides for each port instead: a port that only slices of other zones offer is
/// served from all slices.
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

/// The slices that a node consumes, and which part of the Service they are.
pub(crate) struct Chosen<'a> {
    pub(crate) slices: Vec<&'a RoutedSlice>,
    pub(crate) scope: Scope,
    /// Whether slices for other zones and regions were taken as well.
    pub(crate) all: bool,
}

/// Which part of a Service's slices was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All slices; or no slice is labelled.
    Everything,
    /// The slices of this node's zone.
    Zone,
    /// The slices of this node's region.
    Region,
    /// Labelled and unlabelled slices, or labels of both kinds: the Service is being changed.
    Mixed,
    /// All labelled slices, because the node does not know its zone or region.
    UnknownLocation,
    /// All slices, because those for this node hold no ready endpoint.
    NoneUsable,
}

impl Scope {
    /// The mode and reason that follow from it; `None` if it decides nothing.
    pub(crate) fn outcome(self) -> Option<(Mode, Reason)> {
        match self {
            Self::Everything => None,
            Self::Zone => Some((Mode::SameZone, Reason::ZoneSubset)),
            Self::Region => Some((Mode::SameRegion, Reason::RegionSubset)),
            Self::Mixed => Some((Mode::Any, Reason::SubsetsMixed)),
            Self::UnknownLocation => Some((Mode::Any, Reason::NodeWithoutZone)),
            Self::NoneUsable => Some((Mode::Any, Reason::SubsetEmpty)),
        }
    }
}

/// Chooses among slices of one address family.
pub(crate) fn choose<'a>(
    service: &RoutedService,
    slices: Vec<&'a RoutedSlice>,
    location: &NodeLocation,
    gates: &FeatureGates,
) -> Chosen<'a> {
    if !gates.subsetting || uses_all_slices(service) {
        return Chosen { slices, scope: Scope::Everything, all: true };
    }
    let wanted: Vec<&RoutedSlice> =
        slices.iter().copied().filter(|slice| is_for_node(slice, location, gates)).collect();
    if wanted.len() < slices.len() && !wanted.iter().any(|slice| slice.has_ready_endpoint()) {
        return Chosen { slices, scope: Scope::NoneUsable, all: true };
    }
    let scope = scope(&wanted, location);
    Chosen { slices: wanted, scope, all: false }
}

fn scope(wanted: &[&RoutedSlice], location: &NodeLocation) -> Scope {
    let kind = |slice: &&RoutedSlice| match slice.subset {
        Subset::All => Scope::Everything,
        Subset::Zone(_) if location.zone.is_some() => Scope::Zone,
        Subset::Region(_) if location.region.is_some() => Scope::Region,
        Subset::Zone(_) | Subset::Region(_) => Scope::UnknownLocation,
    };
    let mut kinds = wanted.iter().map(kind);
    let first = kinds.next().unwrap_or(Scope::Everything);
    kinds.fold(first, |one, other| if one == other { one } else { Scope::Mixed })
}
