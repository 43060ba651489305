//! What is in force against what a fresh decision would give.
//!
//! Keeping what is in force saves writes while Pods and nodes come and go. It must not keep a
//! Service worse than a fresh decision would make it, so the difference is measured.

use serde::Serialize;

use crate::allocation::Allocation;
use crate::region::Region;
use crate::traffic::TrafficModel;

/// How well traffic is routed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quality {
    /// Part of all traffic that stays in its zone.
    pub in_zone: f64,
    /// Load of the most loaded endpoint above its fair share; 0 if none is above.
    pub max_overload: f64,
}

impl Quality {
    /// The quality of an allocation. `None` if some zone reaches no endpoint.
    pub fn of(region: &Region<'_>, allocation: &Allocation) -> Option<Self> {
        let traffic = TrafficModel::new().run(region, allocation)?;
        Some(Self { in_zone: traffic.in_zone, max_overload: traffic.max_overload })
    }
}

/// What a fresh decision would give instead of what is in force.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Improvement {
    /// What is in force.
    pub now: Quality,
    /// A fresh decision.
    pub fresh: Quality,
}

impl Improvement {
    /// By how much a fresh decision is better: the part of the traffic that would stay in its zone
    /// besides, or the overload that the most loaded endpoint would be rid of, whichever is more.
    /// Negative if it is worse in both.
    pub fn gain(&self) -> f64 {
        let in_zone = self.fresh.in_zone - self.now.in_zone;
        in_zone.max(self.now.max_overload - self.fresh.max_overload)
    }

    /// Whether the gain is at least so much. What rounding alone makes of nothing is no gain.
    pub fn is_noticeable(&self, least: f64) -> bool {
        const ROUNDING: f64 = 1e-9;
        self.gain() >= least.max(ROUNDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn improvement(now: (f64, f64), fresh: (f64, f64)) -> Improvement {
        let quality = |(in_zone, max_overload)| Quality { in_zone, max_overload };
        Improvement { now: quality(now), fresh: quality(fresh) }
    }

    #[test]
    fn b20_either_figure_makes_a_fresh_decision_noticeable() {
        let rows = [
            ("more traffic at home", (0.90, 0.25), (1.00, 0.25), true),
            ("more even", (1.00, 0.25), (1.00, 0.00), true),
            ("more even, but less at home", (1.00, 0.25), (0.90, 0.05), true),
            ("too little of either", (0.99, 0.01), (1.00, 0.00), false),
            ("worse in both", (1.00, 0.00), (0.90, 0.10), false),
            ("the same", (0.90, 0.10), (0.90, 0.10), false),
        ];
        for (name, now, fresh, expected) in rows {
            assert_eq!(improvement(now, fresh).is_noticeable(0.02), expected, "{name}");
        }
        assert!(!improvement((0.9, 0.1), (0.9, 0.1)).is_noticeable(0.0), "nothing is no gain");
        assert!(improvement((0.9, 0.1), (0.901, 0.1)).is_noticeable(0.0), "anything is a gain");
    }
}
