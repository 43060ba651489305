//! Whose doing a write of slices is: that of something measured, and of nothing else.
//!
//! A change may leave slices that are only good enough, and a later sync of the quiet Service writes what is better. That
//! write is the doing of the change before it, so what a sync leaves to be gained keeps its cause.

use zonewise_inventory::follow::Cause;

use crate::queue::Causes;

/// What is measured, as the cause of a sync.
const MEASURED: [(Cause, Because); 3] = [
    (Cause::Demand, Because::Demand),
    (Cause::FailingZones, Because::FailingZones),
    (Cause::CpuUse, Because::CpuUse),
];

/// What was measured anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Because {
    /// The shares of zones.
    Demand,
    /// What failing zones count for.
    FailingZones,
    /// What zones count for by the CPU that their endpoints use.
    CpuUse,
    /// Several of these, before the Service was looked at.
    Several,
}

impl Because {
    pub(crate) const ALL: [Self; 4] =
        [Self::Demand, Self::FailingZones, Self::CpuUse, Self::Several];

    /// The value of the label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::FailingZones => "failing-zones",
            Self::CpuUse => "cpu-use",
            Self::Several => "several",
        }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Several }
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
        let mut each = MEASURED.into_iter();
        match each.find(|(cause, _)| changed.only_among([*cause])) {
            Some((_, because)) => Self::Measured(because),
            None if changed.only_among(MEASURED.map(|(cause, _)| cause)) => {
                Self::Measured(Because::Several)
            }
            None => Self::Other,
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

    fn causes(all: &[Cause]) -> Causes {
        all.iter().copied().collect()
    }

    #[test]
    fn a_write_is_the_doing_of_what_was_measured_only_if_nothing_else_has_changed() {
        use Cause::{Conditions, CpuUse, Demand, FailingZones, Nodes, Pods, Quiet, Slices};
        let demand = Some(Blame::Measured(Because::Demand));
        let other = Some(Blame::Other);
        let rows: [(&[Cause], Option<Blame>, Option<Because>); 16] = [
            (&[Demand], None, Some(Because::Demand)),
            (&[FailingZones], None, Some(Because::FailingZones)),
            (&[CpuUse], None, Some(Because::CpuUse)),
            (&[FailingZones, Demand], None, Some(Because::Several)),
            (&[CpuUse, Pods], None, None),
            (&[Demand, Quiet, Conditions], None, Some(Because::Demand)),
            (&[Demand, Pods], None, None),
            (&[Demand, Slices], None, None),
            (&[Nodes], demand, None),
            // What was left to be gained by Pods that came is not the doing of shares that have changed since.
            (&[Demand], other, None),
            (&[Demand], demand, Some(Because::Demand)),
            (&[FailingZones], demand, Some(Because::Several)),
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
