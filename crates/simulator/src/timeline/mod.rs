//! A sequence of states instead of independent inputs: what changes, how often, at what cost.
//!
//! ```text
//!  state 1 ─► plan (the controller's) ─► slices
//!  state 2 ─► (Pods go and come) ─► plan, knowing the slices ─► writes, slices ─► …
//!             moved: endpoints that stayed but are now used by other zones
//!             flips: topology on or off
//!  … ─► quiet: nothing happens for a while, and what is left over settles
//! ```
//!
//! States follow each other faster than a Service gets quiet.

pub mod scenario;
mod service;
mod written;

use std::sync::Arc;

use serde::Serialize;
use zonewise_common::name::Name;
use zonewise_slices::requested::{Choice, Demand, EndpointWeight, FailingZones, RequestedRouting};
use zonewise_slices::settings::Settings;
use zonewise_topology::heuristic::Heuristic;
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::reason::{Code, Outcome};

use scenario::{Scenario, Step};
use service::{SimulatedService, Synced};

/// What happened at one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepResult {
    /// The step's name.
    pub step: String,
    /// Endpoints after the step.
    pub endpoints: u64,
    /// Endpoints that came.
    pub arrived: u64,
    /// Endpoints that went.
    pub departed: u64,
    /// Endpoints that stayed and are now used by other zones.
    pub moved: u64,
    /// Whether topology went on or off.
    pub flipped: bool,
    /// Slices written or deleted.
    pub groups_written: u64,
    /// Part of the traffic that stays in its zone; absent without endpoints or nodes.
    pub in_zone: Option<f64>,
    /// Overload of the most loaded endpoint.
    pub max_overload: Option<f64>,
    /// Why it was decided so.
    pub reason: Code,
}

/// What a heuristic did over all steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineResult {
    /// The heuristic, as asked for; or `reference`.
    pub heuristic: String,
    /// Endpoints that stayed and were moved, over all steps.
    pub moved: u64,
    /// How often topology went on or off.
    pub flips: u64,
    /// Slices written or deleted, over all steps.
    pub groups_written: u64,
    /// Mean over steps of the part of the traffic that stays in its zone.
    pub mean_in_zone: Option<f64>,
    /// The largest overload of any endpoint at any step.
    pub largest_overload: Option<f64>,
    /// Steps with topology in force.
    pub steps_in_force: u64,
    /// Steps without endpoints or without nodes.
    pub steps_invalid: u64,
    /// Every step.
    pub steps: Vec<StepResult>,
    /// What happens afterwards, when nothing changes any more.
    pub quiet: StepResult,
}

/// The controller that is run through a scenario.
#[derive(Clone)]
pub enum Subject {
    /// Ours, for a Service that asks for a heuristic.
    Heuristic {
        /// What the user called it.
        label: String,
        /// The heuristic.
        heuristic: Arc<dyn Heuristic>,
    },
    /// The controller of Kubernetes, for a Service with the topology annotation.
    Reference,
}

impl Subject {
    fn label(&self) -> &str {
        match self {
            Self::Heuristic { label, .. } => label,
            Self::Reference => "reference",
        }
    }

    fn service(&self) -> SimulatedService {
        let (upstream, choice) = match self {
            Self::Heuristic { heuristic, .. } => (false, Choice::of(Arc::clone(heuristic))),
            Self::Reference => (true, Choice::Heuristic(Arc::new(Auto::UPSTREAM))),
        };
        let requested = RequestedRouting {
            value: self.label().to_owned(),
            source: "the simulator",
            choice,
            demand: Demand::Model,
            endpoint_weight: EndpointWeight::Equal,
            failing_zones: FailingZones::Ignore,
            notes: Vec::new(),
        };
        SimulatedService::new(Settings { upstream, ..Settings::default() }, requested)
    }
}

/// Runs one controller through a scenario.
pub fn run(scenario: &Scenario, subject: &Subject) -> TimelineResult {
    let mut state = Timeline {
        scenario,
        zones: scenario.column_names(),
        service: subject.service(),
        last: None,
    };
    let steps: Vec<StepResult> = scenario.steps.iter().map(|step| state.step(step)).collect();
    let quiet = state.quiet();
    summarise(subject, steps, quiet)
}

fn summarise(subject: &Subject, steps: Vec<StepResult>, quiet: StepResult) -> TimelineResult {
    let in_zone: Vec<f64> = steps.iter().filter_map(|step| step.in_zone).collect();
    let valid = in_zone.len() as u64;
    TimelineResult {
        heuristic: subject.label().to_owned(),
        moved: steps.iter().map(|step| step.moved).sum(),
        flips: steps.iter().map(|step| u64::from(step.flipped)).sum(),
        groups_written: steps.iter().map(|step| step.groups_written).sum(),
        mean_in_zone: (valid > 0).then(|| in_zone.iter().sum::<f64>() / valid as f64),
        largest_overload: steps.iter().filter_map(|step| step.max_overload).reduce(f64::max),
        steps_in_force: steps.iter().map(|step| u64::from(in_force(step.reason))).sum(),
        steps_invalid: steps.len() as u64 - valid,
        steps,
        quiet,
    }
}

/// Whether a reason means that topology has an effect.
fn in_force(code: Code) -> bool {
    code.entry().outcome == Outcome::InForce && code != Code::ClusterWide
}

/// One Service on its way through a scenario.
struct Timeline<'a> {
    scenario: &'a Scenario,
    /// The zone of each column.
    zones: Vec<Name>,
    service: SimulatedService,
    /// The reason of the step before.
    last: Option<Code>,
}

impl Timeline<'_> {
    fn step(&mut self, step: &Step) -> StepResult {
        self.service.set_nodes(&self.zones, &step.cells);
        let (mut arrived, mut departed) = (0, 0);
        for (zone, cell) in self.zones.iter().zip(&step.cells) {
            let (came, went) = self.service.set_pods(zone, cell.endpoints, self.scenario.departure);
            arrived += came;
            departed += went;
        }
        let synced = match self.last {
            Some(reason) if arrived + departed == 0 && !self.service.notices_nodes() => {
                Synced { writes: 0, moved: 0, reason }
            }
            _ => self.service.sync(false),
        };
        StepResult { arrived, departed, ..self.result(&step.name, &synced) }
    }

    fn quiet(&mut self) -> StepResult {
        let synced = self.service.sync(true);
        self.result("quiet", &synced)
    }

    /// The result of a sync. That topology comes into force with the first does not count as a flip.
    fn result(&mut self, name: &str, synced: &Synced) -> StepResult {
        let slices = self.service.slices();
        let traffic = written::traffic(&self.service.nodes().zones, &slices);
        let reason = synced.reason;
        let flipped = self.last.is_some_and(|last| in_force(last) != in_force(reason));
        self.last = Some(reason);
        StepResult {
            step: name.to_owned(),
            endpoints: slices.iter().map(|slice| slice.endpoints.len() as u64).sum(),
            arrived: 0,
            departed: 0,
            moved: synced.moved,
            flipped,
            groups_written: synced.writes,
            in_zone: traffic.map(|traffic| traffic.in_zone),
            max_overload: traffic.map(|traffic| traffic.max_overload),
            reason,
        }
    }
}
