//! `spread`: every zone uses every endpoint because the Service asks for it (KEP-4444). Explanations tell
//! this apart from a Service that asks for nothing.

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
