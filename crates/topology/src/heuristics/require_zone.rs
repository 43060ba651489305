//! `require-zone`: a subset per zone with its own endpoints (KEP-2004's `RequireZone`). The subset of a
//! zone without endpoints is empty; proxies serve such a zone from all subsets (C8).

use super::same_zone::zones_without_endpoints;
use super::zone_groups::{place_unplaced, too_many};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;

/// The heuristic `require-zone`.
pub(super) struct RequireZone;

impl Heuristic for RequireZone {
    fn name(&self) -> &str {
        "require-zone"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let too_many = too_many(region).filter(|_| region.unplaced > 0);
        if let Some(reason) = too_many.or((region.total == 0).then_some(Reason::NoEndpoints)) {
            out.everywhere(region, Carrier::Plain);
            return reason;
        }
        out.begin(region, Carrier::Subsets);
        out.local_groups(region);
        place_unplaced(region, out, region.unplaced);
        out.serve_the_unserved();
        Reason::ZoneRequired { zones_without_endpoints: zones_without_endpoints(region) }
    }
}
