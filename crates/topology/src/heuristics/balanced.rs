//! `balanced`: zone shares that keep as much traffic in its zone as any router can, while no
//! endpoint gets more than its fair share (or `1 + θ` times it).
//!
//! With traffic `r`, endpoints `e` of `T` and an allowed overload θ, a zone's own endpoints can
//! take `kept = min(r, (1+θ)·e/T)` of its traffic and no router can do better: that is the in-zone
//! part. The rest of a zone goes to endpoints still below their fair share, in proportion to what
//! each zone's endpoints have left. What is left over always suffices, because
//! `Σ (e/T - kept) = 1 - Σ kept` and leaving out the negative terms only makes the sum larger. So
//! no endpoint is pushed above its fair share by another zone, and the load is as even as it can be.

use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::number::to_f64;
use crate::reason::Reason;
use crate::region::Region;

/// The heuristic `balanced`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balanced {
    /// Load above its fair share that an endpoint may get (θ).
    pub(super) max_overload: f64,
}

impl Heuristic for Balanced {
    fn name(&self) -> &str {
        "balanced"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        if let Some(reason) = refusal(region) {
            out.everywhere(region, Carrier::Plain);
            return reason;
        }
        let mut fair = std::mem::take(&mut out.scratch.floats);
        fair.clear();
        let all = to_f64(region.present());
        let of = |source: usize| to_f64(region.endpoints_at(source)) / all;
        fair.extend((0..region.sources()).map(of));
        self.fill(region, &fair, out);
        out.scratch.floats = fair;
        let max_overload = self.max_overload;
        Reason::SharesBalanced { in_zone: region.best_in_zone(max_overload), max_overload }
    }

    fn is_surely_in_force(&self, region: &Region<'_>, _: Option<&[u64]>) -> bool {
        refusal(region).is_none()
    }

    fn gives_shares(&self) -> bool {
        true
    }
}

fn refusal(region: &Region<'_>) -> Option<Reason> {
    if region.present() == 0 {
        Some(Reason::NoEndpoints)
    } else if region.unknown_nodes > 0 || region.consuming_zones() == 0 {
        Some(Reason::NodeInformationMissing { nodes: region.unknown_nodes })
    } else {
        None
    }
}

impl Balanced {
    /// Makes one group per source and weighs it for every consuming zone.
    fn fill(&self, region: &Region<'_>, fair: &[f64], out: &mut Allocation) {
        out.begin(region, Carrier::Shares);
        for source in 0..fair.len() {
            let zone = source < region.zones.len();
            out.add_group(if zone { Label::Zone(source as u32) } else { Label::Unplaced });
            out.put(source, source, region.endpoints_at(source));
        }
        let spare = |source: usize| (fair[source] - self.kept(region, fair, source)).max(0.0);
        let spare_in_all: f64 = (0..fair.len()).map(spare).sum();
        for (zone, input) in region.zones.iter().enumerate() {
            let own = own_part(input.share, self.kept(region, fair, zone), spare_in_all);
            for source in (0..fair.len()).filter(|&source| region.endpoints_at(source) > 0) {
                let away = if own < 1.0 { (1.0 - own) * spare(source) / spare_in_all } else { 0.0 };
                let part = if source == zone { own + away } else { away };
                out.set_weight(source, zone, part / to_f64(region.endpoints_at(source)));
            }
        }
        out.serve_the_unserved();
    }

    /// Traffic that a zone's own endpoints take.
    #[inline]
    fn kept(&self, region: &Region<'_>, fair: &[f64], source: usize) -> f64 {
        region
            .zones
            .get(source)
            .map_or(0.0, |zone| zone.share.min((1.0 + self.max_overload) * fair[source]))
    }
}

/// The part of its own traffic that a zone keeps; all of it where no endpoint is below its fair
/// share.
#[inline]
fn own_part(share: f64, kept: f64, spare: f64) -> f64 {
    if share > 0.0 && spare > 0.0 { kept / share } else { 1.0 }
}
