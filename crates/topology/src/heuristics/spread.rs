//! `spread`: every zone uses every endpoint because somebody asked for it (KEP-4444), which
//! explanations tell apart from having asked for nothing.

use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;

/// The heuristic `spread`.
pub(super) struct Spread;

impl Heuristic for Spread {
    fn name(&self) -> &str {
        "spread"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        out.everywhere(&case.region, Carrier::Plain);
        if case.region.total == 0 { Reason::NoEndpoints } else { Reason::ClusterWide }
    }
}
