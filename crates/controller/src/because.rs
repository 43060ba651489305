//! Whose doing a write of slices is: that of something measured, and of nothing else.
//!
//! A change may leave slices that are only good enough, and a later sync of the quiet Service writes what is better. That
//! write is the doing of the change before it, so what a sync leaves to be gained keeps its cause.

use crate::queue::Causes;

/// What was measured anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Because {
    /// The shares of zones.
    Demand,
    /// What failing zones count for.
    FailingZones,
    /// Both, before the Service was looked at.
    Both,
}

impl Because {
    pub(crate) const ALL: [Self; 3] = [Self::Demand, Self::FailingZones, Self::Both];

    /// The value of the label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::FailingZones => "failing-zones",
            Self::Both => "both",
        }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Both }
    }
}

/// What led to a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing but what was measured.
    Measured(Because),
    /// Something else, alone or as well.
    Other,
}

impl Blame {
    /// What led to a sync for these causes. `unfinished` is what led to those before it, if they have left something to be
    /// gained.
    pub(crate) fn of(causes: Causes, unfinished: Option<Self>) -> Self {
        let Some(changed) = causes.changed() else { return unfinished.unwrap_or(Self::Other) };
        match (Self::of_change(changed), unfinished) {
            (Self::Other, _) | (_, Some(Self::Other)) => Self::Other,
            (now, None) => now,
            (Self::Measured(now), Some(Self::Measured(before))) => Self::Measured(before.and(now)),
        }
    }

    fn of_change(changed: Causes) -> Self {
        match (changed.only_demand(), changed.only_failing_zones(), changed.only_measured()) {
            (true, ..) => Self::Measured(Because::Demand),
            (_, true, _) => Self::Measured(Because::FailingZones),
            (.., true) => Self::Measured(Because::Both),
            (false, false, false) => Self::Other,
        }
    }

    /// What was measured, if that alone led to it.
    pub(crate) fn because(self) -> Option<Because> {
        match self {
            Self::Measured(because) => Some(because),
            Self::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonewise_inventory::follow::Cause;

    fn causes(all: &[Cause]) -> Causes {
        all.iter().copied().collect()
    }

    #[test]
    fn a_write_is_the_doing_of_what_was_measured_only_if_nothing_else_has_changed() {
        use Cause::{Conditions, Demand, FailingZones, Nodes, Pods, Quiet, Slices};
        let demand = Some(Blame::Measured(Because::Demand));
        let other = Some(Blame::Other);
        let rows: [(&[Cause], Option<Blame>, Option<Because>); 14] = [
            (&[Demand], None, Some(Because::Demand)),
            (&[FailingZones], None, Some(Because::FailingZones)),
            (&[FailingZones, Demand], None, Some(Because::Both)),
            (&[Demand, Quiet, Conditions], None, Some(Because::Demand)),
            (&[Demand, Pods], None, None),
            (&[Demand, Slices], None, None),
            (&[Nodes], demand, None),
            // What was left to be gained by Pods that came is not the doing of shares that have changed since.
            (&[Demand], other, None),
            (&[Demand], demand, Some(Because::Demand)),
            (&[FailingZones], demand, Some(Because::Both)),
            (&[Quiet], demand, Some(Because::Demand)),
            (&[Quiet], other, None),
            // That a condition says something else moves nothing.
            (&[Conditions], other, None),
            (&[Conditions], None, None),
        ];
        for (all, unfinished, expected) in rows {
            let found = Blame::of(causes(all), unfinished).because();
            assert_eq!(found, expected, "{all:?} after {unfinished:?}");
        }
    }

    #[test]
    fn labels_differ() {
        let labels: std::collections::BTreeSet<_> = Because::ALL.map(Because::label).into();
        assert_eq!(labels.len(), Because::ALL.len());
    }
}
