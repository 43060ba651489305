//! Everything that the screen and the report show, as plain data.

use std::time::Duration;

use serde::Serialize;

use crate::measure::Matrix;
use crate::rights::Place;

/// The kernel that rules are written to and packets take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kernel {
    /// The machine's.
    #[default]
    Real,
    /// One in memory, which is simulated.
    Memory,
}

/// Everything on the screen at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The scenario's title.
    pub title: String,
    /// The place where the lab plays.
    pub place: Place,
    /// Time since the start.
    pub clock: Duration,
    /// The current act; `None` before the first and after the last.
    pub act: Option<ActView>,
    /// Acts that have ended.
    pub ended: Vec<ActResult>,
    /// Zones with their nodes, in the matrix's order.
    pub zones: Vec<ZoneView>,
    /// All Services.
    pub services: Vec<ServiceView>,
    /// The Service whose matrix and endpoints are shown.
    pub selected: usize,
    /// Its connections of the last seconds.
    pub matrix: Matrix,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its in-zone share over time, oldest first, one value per half second; `None` without connections.
    pub history: Vec<Option<f64>>,
    /// Connections made since the start, of all Services.
    pub connections: u64,
    /// Those that failed.
    pub failed: u64,
    /// Connections per second, lately.
    pub rate: f64,
    /// How long a proxy takes to write a change into the kernel, over all nodes.
    pub programming: Option<Programming>,
    /// How to reach the cluster: `kubectl --kubeconfig=…`.
    pub kubectl: String,
    /// The address of the page, if there is one.
    pub page: Option<String>,
    /// The user has paused the scenario.
    pub paused: bool,
    /// The user has asked for help.
    pub help: bool,
    /// The last error of the API server, until a request succeeds again.
    pub trouble: Option<String>,
}

/// The current act, as it is shown.
#[derive(Clone, Debug, Default)]
pub struct ActView {
    /// Its number, starting at 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// Its title.
    pub title: String,
    /// What to look at.
    pub look: String,
    /// What is being done, one line per step.
    pub steps: Vec<String>,
    /// How far it is.
    pub phase: Phase,
}

/// How far an act is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Phase {
    /// Steps are carried out, and the proxies are not up to date yet.
    #[default]
    Settling,
    /// Connections are counted.
    Measuring {
        /// From 0 to 1.
        done: f64,
    },
}

/// A zone, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ZoneView {
    /// Its name.
    pub name: String,
    /// Nodes it has.
    pub nodes: usize,
    /// Nodes that are ready.
    pub ready: usize,
    /// Cores of ready nodes.
    pub cores: f64,
}

/// A Service, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// What it asks for, as `Key=Value` in short; empty for nothing.
    pub asked: String,
    /// How the proxies route it: `zone-hints`, `any`, …
    pub mode: String,
    /// The controller's reason.
    pub reason: String,
    /// Ready endpoints.
    pub endpoints: usize,
    /// The share of its connections that stayed in their zone.
    pub in_zone: Option<f64>,
    /// How much more than its fair share the busiest endpoint gets: 0.5 is half as much again.
    pub overload: Option<f64>,
    /// Connections per second.
    pub rate: f64,
    /// Connections that failed since the start.
    pub failed: u64,
}

/// An endpoint of the selected Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoint {
    /// Its Pod.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Its load: 1 is exactly its fair share.
    pub load: f64,
    /// Whether it takes new connections.
    pub ready: bool,
}

/// How fast changes reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Programming {
    /// Seconds, on average.
    pub mean: f64,
    /// How many were measured.
    pub count: u64,
}

/// The result of an act.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActResult {
    /// Its title.
    pub title: String,
    /// The Service it is about.
    pub service: String,
    /// The controller's reason at its end.
    pub reason: String,
    /// Endpoints that took connections at its end.
    pub endpoints: usize,
    /// Its connections by zone.
    pub matrix: Matrix,
    /// The share of connections that stayed in their zone.
    pub in_zone: Option<f64>,
    /// How much more than its fair share the busiest endpoint got.
    pub overload: Option<f64>,
    /// Connections of the whole act, settling included, of all Services.
    pub connections: u64,
    /// Those that failed.
    pub failed: u64,
    /// From the first step until the last proxy had written its last change, in seconds; `None` if nothing
    /// changed.
    pub settled: Option<f64>,
    /// Expectations, and whether they held.
    pub expectations: Vec<Expectation>,
}

/// The kernel picks endpoints at random, so a short measurement differs from the true share. An expectation tolerates this
/// many standard deviations: chance alone exceeds them once in 16,000 times.
pub(crate) const STANDARD_DEVIATIONS: f64 = 4.0;

impl ActResult {
    /// How far chance may move the load of an endpoint, as a part of the fair share.
    pub fn load_tolerance(&self) -> f64 {
        let each = self.matrix.total() as f64 / self.endpoints.max(1) as f64;
        STANDARD_DEVIATIONS / each.max(1.0).sqrt()
    }

    /// Whether all expectations held.
    pub fn held(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.held)
    }
}

/// One expectation and what was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    /// `in zone at least 90 %`.
    pub expected: String,
    /// How far chance may move what is found beyond that: `1.2 %`; absent if not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<String>,
    /// `97.3 %`.
    pub found: String,
    /// Whether it held.
    pub held: bool,
}

impl Expectation {
    /// `expected in zone at least 90 % (tolerance 1.2 %), found 33.1 %`.
    pub fn sentence(&self) -> String {
        let tolerance =
            self.tolerance.as_ref().map(|tolerance| format!(" (tolerance {tolerance})"));
        format!("expected {}{}, found {}", self.expected, tolerance.unwrap_or_default(), self.found)
    }
}

/// The result of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The scenario's title.
    pub scenario: String,
    /// The kernel that rules were written to and packets took.
    pub kernel: Kernel,
    /// Zones, nodes, Services, endpoints at the start.
    pub cluster: ClusterSize,
    /// Seconds from the start until the first connection was answered.
    pub first_traffic: f64,
    /// The results of all acts that ended: one for each Service that an act is about.
    pub acts: Vec<ActResult>,
    /// The scenario was played in another size than it was written for: shares and loads were compared with what
    /// `zonewise route --matrix` computes.
    pub resized: bool,
    /// Acts that ended.
    #[serde(skip)]
    pub played: usize,
    /// Acts that the scenario has.
    pub planned: usize,
    /// Connections of the whole run.
    pub connections: u64,
    /// Those that failed.
    pub failed: u64,
    /// How long a proxy took to write a change into the kernel, over the whole run and all nodes.
    pub programming: Option<Programming>,
    /// Highest resident memory of the process, in bytes.
    pub peak_memory: u64,
}

/// How large the cluster was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSize {
    /// Zones.
    pub zones: usize,
    /// Nodes.
    pub nodes: usize,
    /// Services.
    pub services: usize,
    /// Endpoints.
    pub endpoints: usize,
}

impl Summary {
    /// Whether every act ran and every expectation held.
    pub fn held(&self) -> bool {
        self.played == self.planned && self.acts.iter().all(ActResult::held)
    }
}
