//! What the proxies have counted, and which of them give no counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use zonewise_common::name::Name;
use zonewise_demand::report::Report;
use zonewise_demand::window::{NotCounted, Window};
use zonewise_demand::{Figures, Millis};

use super::ask::Failure;
use super::collect::Answers;
use super::{Measuring, Requests, SUCCESS, now};

/// How many proxies are named in the log at a time.
const MOST_NAMED: usize = 5;

/// The counts of proxies.
pub(super) struct ProxyCounts {
    window: Mutex<Window>,
    proxies: Mutex<Proxies>,
    requests: Requests,
}

/// The proxies that are asked.
#[derive(Debug, Default)]
struct Proxies {
    /// What became of the last question to each.
    last: BTreeMap<Name, Result<(), Problem>>,
    /// Those of which the log has said that they give no counts.
    told: BTreeSet<Name>,
    /// When a report was counted last.
    counted: Option<Millis>,
}

/// Why a proxy gives no counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    failure: Failure,
    /// More about it.
    detail: String,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { failure, detail: String::new() }
    }
}

/// The names of what can be wrong.
pub(super) fn problems() -> impl Iterator<Item = &'static str> {
    Failure::ALL.into_iter().map(Failure::name)
}

impl ProxyCounts {
    pub(super) fn new(requests: Requests) -> Self {
        Self { window: Mutex::default(), proxies: Mutex::default(), requests }
    }

    /// How many proxies had which result, when they were last asked.
    pub(super) fn results(&self) -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for result in self.proxies.lock().last.values() {
            *counts.entry(result_name(result)).or_default() += 1;
        }
        counts
    }

    fn count(&self, node: &Name, answer: &Bytes, took: Duration) -> Result<(), Problem> {
        let problem = |error: &dyn std::error::Error| Problem {
            failure: Failure::Nonsense,
            detail: error.to_string(),
        };
        let report = Report::read(answer).map_err(|error| problem(&error))?;
        let now = now();
        match self.window.lock().add_late(node, &report, now, took.as_secs_f64()) {
            Ok(()) | Err(NotCounted::Repeated { .. }) => {}
            Err(error) => return Err(problem(&error)),
        }
        self.proxies.lock().counted = Some(now);
        Ok(())
    }
}

impl Measuring for ProxyCounts {
    fn figures(&self, work: &mut dyn FnMut(&mut dyn Figures)) {
        work(&mut *self.window.lock());
    }

    fn counted(&self) -> Option<Millis> {
        self.proxies.lock().counted
    }

    fn tell(&self) {
        let (again, failing) = {
            let mut proxies = self.proxies.lock();
            (proxies.told_again(), proxies.newly_failing())
        };
        if again > 0 {
            tracing::info!(
                proxies = again,
                "proxies that gave no counts give them again, or are gone"
            );
        }
        tell_failing(&failing);
    }
}

impl Proxies {
    /// How many of those that the log has named do not fail any more.
    fn told_again(&mut self) -> usize {
        let (before, last) = (self.told.len(), &self.last);
        self.told.retain(|node| last.get(node).is_some_and(Result::is_err));
        before - self.told.len()
    }

    /// Those that fail and were not named before.
    fn newly_failing(&mut self) -> Vec<(Name, Problem)> {
        let failing =
            self.last.iter().filter_map(|(node, last)| Some((node, last.as_ref().err()?)));
        let new = failing.filter(|(node, _)| !self.told.contains(*node));
        let new: Vec<_> = new.map(|(node, problem)| (Name::clone(node), problem.clone())).collect();
        self.told.extend(new.iter().map(|(node, _)| Name::clone(node)));
        new
    }
}

fn tell_failing(failing: &[(Name, Problem)]) {
    for (node, Problem { failure, detail }) in failing.iter().take(MOST_NAMED) {
        let cause = failure.name();
        tracing::warn!(%node, cause, detail, "a proxy gives no counts: {}", failure.remedy());
    }
    if let Some(more) = failing.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        tracing::warn!(more, "more proxies give no counts: zonewise_demand_proxies says why");
    }
}

impl Answers for ProxyCounts {
    fn take(
        &self,
        node: &Name,
        answer: Result<Bytes, Failure>,
        took: Duration,
    ) -> Result<(), Failure> {
        let answer = answer.map_err(Problem::from);
        let result = answer.and_then(|answer| self.count(node, &answer, took));
        self.requests.with([result_name(&result)]).inc();
        let failure = result.as_ref().map(drop).map_err(|problem| problem.failure);
        self.proxies.lock().last.insert(Name::clone(node), result);
        failure
    }

    fn forget(&self, node: &Name) {
        self.proxies.lock().last.remove(node);
    }
}

fn result_name(result: &Result<(), Problem>) -> &'static str {
    match result {
        Ok(()) => SUCCESS,
        Err(problem) => problem.failure.name(),
    }
}
