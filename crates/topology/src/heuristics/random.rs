//! `random`: one group of everything for everyone. Also what others fall back to.

use crate::allocation::{Allocation, Carrier};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;

/// The heuristic `random`.
pub struct Random;

impl Heuristic for Random {
    fn name(&self) -> &str {
        "random"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        out.everywhere(&case.region, Carrier::Plain);
        Reason::ClusterWide
    }
}
