//! Which fields of the documents are checked, and which are not.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields that the model does not check, with all that is below them.
pub(crate) const UNCHECKED: [&str; 16] = [
    // Words that belong to a code, whose figures are checked.
    "explain.sentence",
    "explain.remedy",
    "explain.docs",
    "explain.notes[].sentence",
    "explain.consumers[].remark",
    "route[].sentence",
    // What was seen, in words. The states that follow from it are checked.
    "environment.controller.evidence",
    "environment.builtInController.evidence",
    "environment.proxies[].evidence",
    // Which reasons were met on the way to a route: the recorded vectors of `routing` check it.
    "route[].notes",
    // How much better a fresh decision is: the tests of `settling` in `slices` check it.
    "explain.settling",
    "plan.settled",
    // What the reference would report: the recorded vectors of `slices` check it.
    "plan.events",
    // Compared as a whole with the document of `explain`, whose fields are checked.
    "plan.explanation",
    // What the simulator's model expects. Its golden tests check it; here, only `inZone` is, for those
    // heuristics whose result is a short formula.
    "explain.inZoneByHeuristic[].reason",
    "explain.inZoneByHeuristic[].maxOverload",
];

/// What was found in documents, and what of it was compared.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    present: BTreeSet<String>,
    checked: BTreeSet<String>,
    /// Fields that were compared with everything below them.
    wholes: BTreeSet<String>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Notes the fields of a document.
    pub(crate) fn document(&mut self, name: &str, document: &Value) {
        match document {
            Value::Object(members) => {
                for (key, value) in members {
                    let dynamic = name.ends_with(".to") || name.ends_with(".byHeuristic");
                    let key = if dynamic { "*" } else { key };
                    self.document(&format!("{name}.{key}"), value);
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| self.document(&format!("{name}[]"), item));
            }
            _ => {
                self.present.insert(name.to_owned());
            }
        }
    }

    /// Notes that a field was compared.
    pub(crate) fn checks(&mut self, path: &str) {
        if !self.checked.contains(path) {
            self.checked.insert(path.to_owned());
        }
    }

    /// Compares a field with what is true. Figures may differ by what rounding makes of them.
    pub(crate) fn equal(&mut self, path: &str, said: &Value, truth: impl Into<Value>) {
        let truth = truth.into();
        self.checks(path);
        let same = match (said.as_f64(), truth.as_f64()) {
            (Some(said), Some(truth)) => (said - truth).abs() < 1e-4 * truth.abs().max(1.0),
            _ => *said == truth,
        };
        assert!(same, "seed {}: {path} says {said}, the truth is {truth}", self.seed);
    }

    /// Checks that something holds.
    pub(crate) fn holds(&mut self, path: &str, truth: bool, why: impl std::fmt::Display) {
        self.checks(path);
        assert!(truth, "seed {}: {path} is not true: {why}", self.seed);
    }

    /// Compares a field with all that is below it.
    pub(crate) fn whole(&mut self, path: &str, said: &Value, truth: impl Into<Value>) {
        self.equal(path, said, truth);
        self.covers(path);
    }

    /// Notes that a field was compared with everything below it.
    pub(crate) fn covers(&mut self, path: &str) {
        if !self.wholes.contains(path) {
            self.wholes.insert(path.to_owned());
        }
    }

    /// The fields that were neither checked nor listed.
    pub(crate) fn forgotten(&self) -> Vec<&String> {
        let covers = |known: &str, path: &str| {
            path.strip_prefix(known)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let known = |path: &&String| {
            self.checked.contains(*path)
                || self.wholes.iter().any(|one| covers(one, path))
                || UNCHECKED.iter().any(|one| covers(one, path))
        };
        self.present.iter().filter(|path| !known(path)).collect()
    }

    /// Adds what another report has seen.
    pub(crate) fn merge(&mut self, other: Self) {
        self.present.extend(other.present);
        self.checked.extend(other.checked);
        self.wholes.extend(other.wholes);
    }
}
