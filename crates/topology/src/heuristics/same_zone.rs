//! `same-zone`: each endpoint is hinted to its own zone; a zone without endpoints uses all
//! (`trafficDistribution: PreferSameZone`, KEP-4444's `Zone`).

use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;
use crate::region::Region;

/// The heuristic `same-zone`.
pub struct SameZone;

impl Heuristic for SameZone {
    fn name(&self) -> &str {
        "same-zone"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        if let Some(reason) = refusal(region) {
            out.everywhere(region, Carrier::Plain);
            return reason;
        }
        out.begin(region, Carrier::Hints);
        for (zone, input) in region.zones.iter().enumerate() {
            if input.endpoints > 0 {
                let group = out.add_group(Label::Zone(zone as u32));
                out.put(group, zone, input.endpoints);
                out.set_weight(group, zone, 1.0);
            }
        }
        out.serve_the_unserved();
        Reason::OwnZone { zones_without_endpoints: zones_without_endpoints(region) }
    }
}

/// Why there cannot be hints: proxies ignore all hints when one endpoint has none.
pub(super) fn refusal(region: &Region<'_>) -> Option<Reason> {
    if region.total == 0 {
        Some(Reason::NoEndpoints)
    } else if region.unplaced > 0 {
        Some(Reason::EndpointsWithoutZone { endpoints: region.unplaced })
    } else {
        None
    }
}

/// Zones that send traffic and have no endpoint.
pub(super) fn zones_without_endpoints(region: &Region<'_>) -> u64 {
    let bare = |zone: &&crate::region::Zone| zone.endpoints == 0 && zone.share > 0.0;
    region.zones.iter().filter(bare).count() as u64
}
