//! A bound for algorithms that move endpoints one at a time.

use crate::reason::Reason;
use crate::region::Region;

/// Above this a single decision would take seconds; no Service comes near it.
const LIMIT: u64 = 50_000_000;

/// A reason to refuse, if the region is too large.
pub(super) fn too_many(region: &Region<'_>) -> Option<Reason> {
    (region.total > LIMIT)
        .then_some(Reason::TooManyEndpoints { endpoints: region.total, limit: LIMIT })
}
