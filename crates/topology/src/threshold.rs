//! Two-level thresholds: what is on stays on a little longer, what is off stays off a little
//! longer, so that nothing flaps.

use crate::reason::Reason;

/// Overload at which a zone counts as overloaded in KEP-2004 (inclusive).
pub(crate) const OVERLOAD_THRESHOLD: f64 = 0.5;

/// When hints appear and when they go (KEP-2433).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hysteresis {
    /// Hints are assigned when every zone's expected overload stays below this.
    pub enter: f64,
    /// Hints present are kept while every zone's expected overload stays below this.
    pub leave: f64,
}

impl Hysteresis {
    /// As KEP-2433 asks: assigned below 20 %, kept below 30 %.
    pub const KEP_2433: Self = Self { enter: 0.2, leave: 0.3 };
    /// As the reference implementation: one threshold.
    pub const UPSTREAM: Self = Self { enter: 0.2, leave: 0.2 };
}

/// How many endpoints it takes to start subsetting, and to stop (KEP-2004).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The middle.
    pub threshold: u64,
    /// On at `threshold + padding`, off at `threshold - padding` (without padding: below it).
    pub padding: u64,
}

impl Start {
    /// Endpoints per zone below which subsetting is judged too risky.
    const PER_ZONE: u64 = 3;

    /// Three endpoints and one of padding per zone.
    pub fn default_for(zones: u64) -> Self {
        Self { threshold: zones.saturating_mul(Self::PER_ZONE), padding: zones }
    }

    /// The default, with what is given instead.
    pub fn or_default(zones: u64, threshold: Option<u64>, padding: Option<u64>) -> Self {
        let usual = Self::default_for(zones);
        Self {
            threshold: threshold.unwrap_or(usual.threshold),
            padding: padding.unwrap_or(usual.padding),
        }
    }

    /// The default, changed by what a Service's annotations say. Text that is no usable number
    /// leaves the default in force and comes back as a reason.
    pub fn resolve(
        zones: u64,
        threshold: Option<&str>,
        padding: Option<&str>,
    ) -> (Self, Vec<Reason>) {
        let mut reasons = Vec::new();
        let mut number = |text: Option<&str>, smallest: u64, reason: Reason| {
            let value = text?.trim().parse().ok().filter(|value| *value >= smallest);
            if value.is_none() {
                reasons.push(reason);
            }
            value
        };
        let threshold = number(threshold, 1, Reason::StartingThresholdInvalid);
        let padding = number(padding, 0, Reason::PaddingInvalid);
        (Self::or_default(zones, threshold, padding), reasons)
    }

    /// Whether subsetting is on with this many endpoints, given whether it was.
    pub fn is_on(self, endpoints: u64, was_on: bool) -> bool {
        if was_on {
            endpoints > self.threshold.saturating_sub(self.padding.max(1))
        } else {
            endpoints >= self.threshold.saturating_add(self.padding)
        }
    }
}
