//! What the condition `Measured` of a Service says: the code of decisions, once it has lasted.
//!
//! Decisions are made every 15 seconds, and their codes come and go: shares that are on their way say so for a minute, and
//! a Service with few connections is now above and now below what counts as enough. A condition is a write that every
//! watcher of Services gets. So a code is told when [`LASTS`] decisions in a row have had it, and of a Service whose code
//! keeps changing only [`AT_ONCE`] times in a row and then once in [`PAUSE`] decisions.

use std::collections::BTreeMap;

use zonewise_common::name::Name;
use zonewise_topology::reason::Code;

/// Decisions in a row that must have a code: two minutes.
const LASTS: u32 = 8;
/// Changes that may follow each other.
const AT_ONCE: u32 = 4;
/// Decisions after which one more change may be told: half an hour.
const PAUSE: u32 = 120;

/// What is told of all Services.
#[derive(Debug, Default)]
pub(super) struct ToldCodes {
    services: BTreeMap<Name, ToldCode>,
}

/// What is told of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ToldCode {
    told: Option<Code>,
    /// The code of the last decisions.
    latest: Code,
    /// How many of them had it.
    lasted: u32,
    /// Changes that may be told.
    left: u32,
    /// Decisions since one more was allowed.
    waited: u32,
}

impl ToldCode {
    fn new(latest: Code) -> Self {
        Self { told: None, latest, lasted: 0, left: AT_ONCE, waited: 0 }
    }

    /// Takes the code of a decision. Returns whether something else is told now.
    fn decided(&mut self, code: Code) -> bool {
        self.lasted = if code == self.latest { (self.lasted + 1).min(LASTS) } else { 1 };
        self.latest = code;
        self.waited += 1;
        if self.waited >= PAUSE {
            self.waited = 0;
            self.left = (self.left + 1).min(AT_ONCE);
        }
        let is_due = self.lasted >= LASTS && self.told != Some(code) && self.left > 0;
        if is_due {
            self.told = Some(code);
            self.left -= 1;
        }
        is_due
    }
}

impl ToldCodes {
    /// Takes the codes of all decisions of a time. Services without one are forgotten. Returns those of which something
    /// else is told now.
    pub(super) fn decided(&mut self, codes: impl Iterator<Item = (Name, Code)>) -> Vec<Name> {
        let mut before = std::mem::take(&mut self.services);
        let mut changed = Vec::new();
        for (name, code) in codes {
            let mut told = before.remove(&name).unwrap_or_else(|| ToldCode::new(code));
            if told.decided(code) {
                changed.push(Name::clone(&name));
            }
            self.services.insert(name, told);
        }
        changed
    }

    /// What is told of a Service; `None` if nothing is known well enough.
    pub(super) fn of(&self, service: &str) -> Option<Code> {
        self.services.get(service)?.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told after each of so many decisions with the codes of a pattern, again and again.
    fn told(pattern: &[(Code, u32)], decisions: u32) -> Vec<Option<Code>> {
        let one_by_one: Vec<Code> = pattern
            .iter()
            .flat_map(|(code, times)| std::iter::repeat_n(*code, *times as usize))
            .collect();
        let mut codes = ToldCodes::default();
        let all = one_by_one.iter().cycle().take(decisions as usize);
        all.map(|code| {
            let before = codes.of("shop/web");
            let changed = codes.decided([("shop/web".into(), *code)].into_iter());
            assert_eq!(!changed.is_empty(), codes.of("shop/web") != before);
            codes.of("shop/web")
        })
        .collect()
    }

    fn changes(told: &[Option<Code>]) -> usize {
        told.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    #[test]
    fn a_code_is_told_when_it_has_lasted_and_others_are_not() {
        use Code::{DemandChangeLimited, DemandMeasured, DemandTableFull, TooFewConnections};
        let steady = told(&[(DemandTableFull, 1)], 9);
        assert_eq!(steady[6..], [None, Some(DemandTableFull), Some(DemandTableFull)]);
        let start = [(TooFewConnections, 2), (DemandChangeLimited, 4), (DemandMeasured, 100)];
        let found = told(&start, 100);
        assert_eq!((found[12], found[13]), (None, Some(DemandMeasured)));
        assert_eq!(changes(&found), 1, "what it was before it had arrived is not told");
        let jumps = [(DemandMeasured, 20), (DemandChangeLimited, 4)];
        assert_eq!(changes(&told(&jumps, 2_000)), 1, "jumps do not show");
    }

    #[test]
    fn a_service_that_goes_to_and_fro_is_told_of_rarely() {
        use Code::{DemandMeasured, TooFewConnections};
        for period in [1, 4, 7, 8, 9, 20, 60] {
            let pattern = [(DemandMeasured, period), (TooFewConnections, period)];
            // An hour has 240 decisions.
            let found = told(&pattern, 2_400);
            let all = changes(&found);
            let most = (AT_ONCE + 2_400 / PAUSE) as usize;
            assert!(all <= most, "period {period}: {all}");
            assert_eq!(all == 0, period < LASTS, "period {period}: {all}");
        }
    }

    #[test]
    fn services_that_are_measured_no_longer_are_forgotten() {
        let mut codes = ToldCodes::default();
        for _ in 0..LASTS {
            codes.decided([("shop/web".into(), Code::DemandMeasured)].into_iter());
        }
        assert_eq!(codes.of("shop/web"), Some(Code::DemandMeasured));
        codes.decided(std::iter::empty());
        assert_eq!(codes.of("shop/web"), None);
    }
}
