//! Whether a cluster is as zonewise needs it: before an installation and after it.
//!
//! ```text
//!  API server ─► live::sights ─► Sights ─► checks() ─► Check… ─► document, screen, exit code
//!                                what was  what it means,
//!                                seen      pure
//! ```
//!
//! Every check says what was found; one that did not pass also says how to fix it. What could not be looked at is
//! unknown, and never taken for good or bad.

mod access;
mod controllers;
mod evacuations;
mod guard;
mod installation;
mod nodes;
mod proxies;
mod sights;

use serde::Serialize;

pub use sights::{
    GuardSight, NodeSight, PodSight, Right, Sights, SliceWrite, WORKLOAD_NAME, WebhookSight,
    WorkloadKind, WorkloadSight,
};

/// When the cluster is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Before zonewise is installed.
    Before,
    /// Once it is installed.
    After,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The API server, clocks and rights.
    Cluster,
    /// Nodes: zones, CPU, kernels.
    Nodes,
    /// What routes Services on each node.
    Proxies,
    /// What writes EndpointSlices.
    Controllers,
    /// zonewise's own programs.
    Installation,
}

impl Part {
    /// Its name on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Nodes => "nodes",
            Self::Proxies => "proxies",
            Self::Controllers => "controllers",
            Self::Installation => "installation",
        }
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckState {
    /// It is as it should be.
    Passed,
    /// It could not be found out.
    Unknown,
    /// It works, but not as well as it could.
    Warning,
    /// Something does not work.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What it is about.
    pub part: Part,
    /// Its name, which stays the same from version to version.
    pub name: &'static str,
    /// What came of it.
    pub state: CheckState,
    /// What was found, or why nothing could be found.
    pub finding: String,
    /// How to fix it; absent if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Commands that fix it.
    pub commands: Vec<String>,
}

/// The subject of a check, before it is known what comes of it.
#[derive(Clone, Copy)]
struct Subject(Part, &'static str);

impl Subject {
    fn state(self, state: CheckState, finding: impl Into<String>, fix: Option<String>) -> Check {
        let Self(part, name) = self;
        Check { part, name, state, finding: finding.into(), fix, commands: Vec::new() }
    }

    fn passed(self, finding: impl Into<String>) -> Check {
        self.state(CheckState::Passed, finding, None)
    }

    fn unknown(self, why: impl Into<String>) -> Check {
        self.state(CheckState::Unknown, why, None)
    }

    fn warning(self, finding: impl Into<String>, fix: impl Into<String>) -> Check {
        self.state(CheckState::Warning, finding, Some(fix.into()))
    }

    fn failed(self, finding: impl Into<String>, fix: impl Into<String>) -> Check {
        self.state(CheckState::Failed, finding, Some(fix.into()))
    }
}

impl Check {
    /// The same with commands that fix it.
    fn with<C: Into<String>>(self, commands: impl IntoIterator<Item = C>) -> Self {
        Self { commands: commands.into_iter().map(Into::into).collect(), ..self }
    }
}

/// Everything that was checked, as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// Whether zonewise was expected to be installed.
    pub stage: Stage,
    /// The worst of all.
    pub state: CheckState,
    /// The checks, part by part.
    pub checks: Vec<Check>,
}

impl Checks {
    /// How many checks ended so.
    pub fn count(&self, state: CheckState) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }
}

/// Judges what was seen.
pub fn checks(sights: &Sights, stage: Stage) -> Checks {
    let mut checks = access::checks(sights, stage);
    checks.extend(nodes::checks(sights, stage));
    checks.extend(proxies::checks(sights, stage));
    checks.extend(controllers::checks(sights, stage));
    if stage == Stage::After {
        checks.extend(guard::check(sights));
        checks.extend(evacuations::check(sights));
        checks.extend(installation::checks(sights));
    }
    let state = checks.iter().map(|check| check.state).max().unwrap_or(CheckState::Passed);
    Checks { stage, state, checks }
}

/// How many names a sentence lists.
const LISTED: usize = 4;

/// `n1, n2, n3 and 5 more`.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.len().checked_sub(LISTED) {
        Some(more @ 1..) => format!("{} and {more} more", names[..LISTED].join(", ")),
        _ => names.join(", "),
    }
}

/// Major and minor number at the beginning of a version, such as `v1.36.4-eks` or `6.1.0-18-amd64`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim_start_matches('v').split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?;
    let end = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..end].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_far_as_they_are_numbers() {
        for (text, expected) in [
            ("v1.36.4", Some((1, 36))),
            ("v1.33.1-eks-ab12", Some((1, 33))),
            ("1.30+", Some((1, 30))),
            ("6.1.0-18-amd64", Some((6, 1))),
            ("5.13", Some((5, 13))),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(listed(["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
