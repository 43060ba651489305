//! `balanced-hints`: for each endpoint a list of zones, as zone hints can carry it, with as much traffic in its zone and
//! as even a load as lists allow.
//!
//! A proxy chooses evenly among the endpoints whose list names its zone. So a zone that `k` endpoints name gives each of
//! them `1/k` of its traffic, and there is nothing between `1/k` and `1/(k+1)`. Zones are therefore put into *pools*: all
//! endpoints of a pool carry the same list, the zones of the pool.
//!
//! ```text
//!   one pool for each zone     a: a1 a2 a3    b: b1 b2 b3 a4      where there are many endpoints
//!   zones that share a pool    a: a1 a2 a3    b c: b1 c1          where a zone has none or few of its own
//!   a zone on every list       a d: a1 a2     b d: b1 d1          where a zone is small
//! ```
//!
//! Which zones share (`search`) and how many endpoints each pool gets (`layout`) is chosen by one figure: the part of
//! the traffic that stays in its zone, less what overload costs. No endpoint may get more than the allowed overload.
//! Everything depends on numbers of endpoints per zone alone, so the time does not grow with the endpoints.
//!
//! What is in force is kept while no endpoint comes near overload. Endpoints that are lent to another zone stay lent
//! where they can.

mod layout;
mod search;

use self::layout::Goal;
pub(crate) use self::search::Search;
use super::zone_groups::{nothing_to_divide, too_many};
use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Assignment, Case, Heuristic};
use crate::reason::Reason;
use crate::region::Region;
use crate::threshold::Hysteresis;
use crate::traffic::{Traffic, TrafficModel};

/// The heuristic `balanced-hints`.
#[derive(Clone, Copy, Debug)]
pub struct BalancedHints {
    /// Load above its fair share that an endpoint may get.
    pub max_overload: f64,
    /// What overload costs, where 1 is as much as in the published score and 0 is nothing.
    pub overload_cost: f64,
}

impl Default for BalancedHints {
    fn default() -> Self {
        Self { max_overload: Hysteresis::KEP_2433.enter, overload_cost: 1.0 }
    }
}

/// Hints that are there stay while the overload is below what is allowed and so much more.
const KEPT_OVERLOAD: f64 = Hysteresis::KEP_2433.leave - Hysteresis::KEP_2433.enter;

/// Hints that are there go only if using every endpoint is better by this part of the traffic.
const KEPT_LOSS: f64 = 0.02;

impl Heuristic for BalancedHints {
    fn name(&self) -> &str {
        "balanced-hints"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        if let Some(reason) = refusal(region) {
            out.everywhere(region, Carrier::Plain);
            return reason;
        }
        let previous = case.previous.filter(|previous| previous.fits(region));
        let kept = previous.filter(|_| !case.afresh);
        if let Some(kept) = kept.and_then(|previous| self.keep(region, previous, out)) {
            return kept;
        }
        let mut search = std::mem::take(&mut out.scratch.search);
        let reason = self.assign(region, previous, &mut search, out);
        out.scratch.search = search;
        reason
    }
}

/// Why there cannot be hints: proxies ignore all of them when one endpoint has none.
fn refusal(region: &Region<'_>) -> Option<Reason> {
    let unplaced = || {
        let endpoints = region.unplaced;
        (endpoints > 0).then_some(Reason::EndpointsWithoutZone { endpoints })
    };
    nothing_to_divide(region).or_else(unplaced).or_else(|| too_many(region))
}

impl BalancedHints {
    fn assign(
        &self,
        region: &Region<'_>,
        previous: Option<&Assignment>,
        search: &mut Search,
        out: &mut Allocation,
    ) -> Reason {
        let goal = Goal::new(self.max_overload, self.overload_cost);
        let found = search.run(region, goal);
        let least = search.everywhere() - previous.map_or(0.0, |_| KEPT_LOSS);
        let Some(found) = found.filter(|found| found.value > least + layout::ROUNDING) else {
            out.everywhere(region, Carrier::Plain);
            return Reason::HintsGainNothing { limit: self.max_overload };
        };
        search.fill(region, previous, out);
        out.serve_the_unserved();
        Reason::HintsBalanced { in_zone: found.in_zone, max_overload: found.max_overload }
    }

    /// Leaves every endpoint its list if that brings none near overload. New endpoints get the list that most endpoints
    /// of their zone have.
    fn keep(
        &self,
        region: &Region<'_>,
        previous: &Assignment,
        out: &mut Allocation,
    ) -> Option<Reason> {
        out.begin(region, Carrier::Hints);
        out.zone_groups();
        let mut usual = vec![(0, None); region.zones.len()];
        for (source, zones, endpoints) in previous.lists() {
            let group = group_of(&zones, out);
            out.put(group, source, endpoints);
            if usual[source].0 < endpoints {
                usual[source] = (endpoints, Some(group));
            }
        }
        for (zone, (_, group)) in usual.into_iter().enumerate() {
            let new = region.zones[zone].endpoints - previous.listed_from(zone);
            out.put(group.unwrap_or(zone), zone, new);
        }
        out.serve_the_unserved();
        let Traffic { in_zone, max_overload, .. } = TrafficModel::new().run(region, out)?;
        let is_good = max_overload < self.max_overload + KEPT_OVERLOAD;
        is_good.then_some(Reason::HintsBalanced { in_zone, max_overload })
    }
}

/// The group of the endpoints whose list names these zones, in their order; made if there is none.
fn group_of(zones: &[u32], out: &mut Allocation) -> usize {
    let known =
        (0..out.groups().len()).find(|&group| out.zones_served(&out.groups()[group]) == zones);
    known.unwrap_or_else(|| {
        let group = out.add_group(Label::Shared);
        for &zone in zones {
            out.name_zone(zone);
            out.set_weight(group, zone as usize, 1.0);
        }
        group
    })
}
