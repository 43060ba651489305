//! Where zones stand, as reasons for people.

use zonewise_topology::reason::Code;

use super::{InForce, SourceFault, Standing};

impl Standing {
    /// The reason.
    pub fn code(self) -> Code {
        match self {
            Self::ByUse | Self::Waiting => Code::UseWeighted,
            Self::AtLimit => Code::UseLimited,
            Self::Missing => Code::UseNotMeasured,
            Self::Old => Code::UseTooOld,
            Self::Nonsense => Code::UseImplausible,
            Self::TooLittle => Code::UseTooSmall,
            Self::Alone => Code::UseOfOneZone,
            Self::Held => Code::UseHeld,
        }
    }
}

impl SourceFault {
    /// The reason.
    pub fn code(self) -> Code {
        match self {
            Self::Missing => Code::PodMetricsMissing,
            Self::Forbidden => Code::PodMetricsForbidden,
            Self::Unavailable => Code::PodMetricsUnavailable,
            Self::TooLarge => Code::PodMetricsTooLarge,
            Self::Nonsense => Code::PodMetricsNonsense,
        }
    }
}

/// What is shown of a Service, the first that some zone has.
const ORDER: [Standing; 6] = [
    Standing::Nonsense,
    Standing::Old,
    Standing::Missing,
    Standing::Alone,
    Standing::TooLittle,
    Standing::AtLimit,
];

impl InForce {
    /// The reason that stands for all zones: what keeps endpoints from counting by use, otherwise that they do.
    pub fn code(&self, fault: Option<SourceFault>) -> Code {
        let has = |standing: &Standing| self.zones.values().any(|zone| zone.standing == *standing);
        let lacks = self.zones.is_empty() || ORDER[..3].iter().any(has);
        match fault.filter(|_| lacks) {
            Some(fault) => fault.code(),
            None if self.zones.is_empty() => Code::UseNotMeasured,
            None => ORDER.into_iter().find(has).map_or(Code::UseWeighted, Standing::code),
        }
    }
}
