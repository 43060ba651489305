//! `shared-global` and `shared-multizone`: surplus endpoints go to one group for all zones.

use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::number::{to_f64, to_u64};
use crate::reason::Reason;

/// Both heuristics; they differ in the weight and in the zones that use the global group.
pub(super) struct SharedGlobal {
    name: &'static str,
    /// The weight with which zones use the global group.
    weight: f64,
    /// Zones that gave some of their endpoints and kept some do not use the global group.
    excludes_givers: bool,
}

impl SharedGlobal {
    pub(super) const GLOBAL: Self =
        Self { name: "shared-global", weight: 0.4, excludes_givers: false };
    pub(super) const MULTIZONE: Self =
        Self { name: "shared-multizone", weight: 1.0, excludes_givers: true };
    /// It starts above this many endpoints.
    const START: u64 = 100;
}

impl Heuristic for SharedGlobal {
    fn name(&self) -> &str {
        self.name
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        let endpoints = region.total;
        if endpoints <= Self::START {
            out.everywhere(region, Carrier::Plain);
            let threshold = Self::START + 1;
            return Reason::BelowStartingThreshold { endpoints, threshold, padding: 0 };
        }
        out.begin(region, Carrier::Subsets);
        out.zone_groups();
        let global = out.add_group(Label::Global);
        for (zone, input) in region.zones.iter().enumerate() {
            let present = to_f64(input.endpoints);
            let surplus = present - to_f64(endpoints) * input.share;
            let given = to_u64((surplus.max(0.0) / self.weight).min(present));
            let kept = input.endpoints.saturating_sub(given);
            out.put(zone, zone, kept);
            out.put(global, zone, given);
            let excluded = self.excludes_givers && given != 0 && kept != 0;
            out.set_weight(global, zone, if excluded { 0.0 } else { self.weight });
        }
        Reason::GroupsAssigned
    }
}
