//! A sequence of states instead of independent inputs: what changes, how often, at what cost.
//!
//! ```text
//!  state 1 ─► decide ─► place endpoints ─► pack groups
//!  state 2 ─► (endpoints leave and arrive) ─► decide, knowing what is in force ─► …
//!             moved: endpoints that stayed but now serve other zones
//!             flips: topology on or off        written: groups of 100 endpoints that changed
//! ```

mod packing;
pub mod scenario;

use serde::Serialize;
use zonewise_topology::allocation::{Allocation, Carrier};
use zonewise_topology::heuristic::{Assignment, Case};
use zonewise_topology::hints::{self, Endpoint};
use zonewise_topology::reason::{Code, Outcome};
use zonewise_topology::region::{Region, Situation, Zone};
use zonewise_topology::traffic::TrafficModel;
use zonewise_topology::zone_shares::ZoneShares;

use crate::dataset::Cell;
use crate::evaluate::Choice;
use packing::{Member, Packing};
use scenario::{Departure, Scenario};

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
    /// Endpoints that stayed and now serve other zones.
    pub moved: u64,
    /// Whether topology went on or off.
    pub flipped: bool,
    /// Groups of at most 100 endpoints written or deleted.
    pub groups_written: u64,
    /// Part of the traffic that stays in its zone; absent if a zone reaches no endpoint.
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
    /// The heuristic, as asked for.
    pub heuristic: String,
    /// Endpoints that stayed and were moved, over all steps.
    pub moved: u64,
    /// How often topology went on or off.
    pub flips: u64,
    /// Groups of at most 100 endpoints written or deleted, over all steps.
    pub groups_written: u64,
    /// Mean over steps of the part of the traffic that stays in its zone.
    pub mean_in_zone: Option<f64>,
    /// The largest overload of any endpoint at any step.
    pub largest_overload: Option<f64>,
    /// Steps with topology in force.
    pub steps_in_force: u64,
    /// Steps in which a zone reaches no endpoint.
    pub steps_invalid: u64,
    /// Every step.
    pub steps: Vec<StepResult>,
}

/// Runs one heuristic through a scenario.
pub fn run(scenario: &Scenario, choice: &Choice) -> TimelineResult {
    let mut state = ServiceState::new(scenario, choice);
    let steps: Vec<StepResult> = scenario
        .steps
        .iter()
        .enumerate()
        .map(|(index, step)| state.step(&step.name, &step.cells, index > 0))
        .collect();
    summarise(choice, steps)
}

fn summarise(choice: &Choice, steps: Vec<StepResult>) -> TimelineResult {
    let in_zone: Vec<f64> = steps.iter().filter_map(|step| step.in_zone).collect();
    let valid = in_zone.len() as u64;
    TimelineResult {
        heuristic: choice.label.clone(),
        moved: steps.iter().map(|step| step.moved).sum(),
        flips: steps.iter().map(|step| u64::from(step.flipped)).sum(),
        groups_written: steps.iter().map(|step| step.groups_written).sum(),
        mean_in_zone: (valid > 0).then(|| in_zone.iter().sum::<f64>() / valid as f64),
        largest_overload: steps.iter().filter_map(|step| step.max_overload).reduce(f64::max),
        steps_in_force: steps.iter().map(|step| u64::from(in_force(step.reason))).sum(),
        steps_invalid: steps.len() as u64 - valid,
        steps,
    }
}

/// Whether a reason means that topology has an effect.
fn in_force(code: Code) -> bool {
    code.entry().outcome == Outcome::InForce && code != Code::ClusterWide
}

struct Pod {
    id: u64,
    zone: usize,
    serves: Vec<u32>,
}

/// One Service between two steps: its endpoints, and what is written about them.
struct ServiceState<'a> {
    scenario: &'a Scenario,
    choice: &'a Choice,
    pods: Vec<Pod>,
    next_id: u64,
    /// Whether topology is in force.
    on: bool,
    /// Whether each endpoint serves one zone, so that the next decision can start from there.
    single_zone_groups: bool,
    packing: Packing,
    /// The zone shares on the slices, as text.
    shares: Option<String>,
    allocation: Allocation,
    model: TrafficModel,
}

impl<'a> ServiceState<'a> {
    fn new(scenario: &'a Scenario, choice: &'a Choice) -> Self {
        Self {
            scenario,
            choice,
            pods: Vec::new(),
            next_id: 0,
            on: false,
            single_zone_groups: false,
            packing: Packing::default(),
            shares: None,
            allocation: Allocation::new(),
            model: TrafficModel::new(),
        }
    }

    /// Goes to the next state. `later` is false for the first: that topology comes into force there
    /// does not count as a flip.
    fn step(&mut self, name: &str, cells: &[Cell], later: bool) -> StepResult {
        let (arrived, departed) = self.replace_endpoints(cells);
        let mut zones = vec![Zone::default(); cells.len()];
        self.scenario.columns.read(cells, &mut zones);
        let region = Region::of(&zones);
        let previous = self.previous(zones.len());
        let case = Case { region, previous: previous.as_ref() };
        let reason = self.choice.heuristic.allocate(&case, &mut self.allocation);
        if reason.outcome() == Outcome::Failed {
            self.allocation.everywhere(&region, Carrier::Plain);
        }
        let moved = self.assign_groups(arrived);
        let groups_written = self.write(&zones);
        let on = in_force(reason.code());
        let flipped = later && on != self.on;
        self.on = on;
        self.single_zone_groups =
            matches!(self.allocation.carrier(), Carrier::Hints | Carrier::Subsets);
        let traffic = self.model.run(&region, &self.allocation);
        StepResult {
            step: name.to_owned(),
            endpoints: region.total,
            arrived,
            departed,
            moved,
            flipped,
            groups_written,
            in_zone: traffic.map(|traffic| traffic.in_zone),
            max_overload: traffic.map(|traffic| traffic.max_overload),
            reason: reason.code(),
        }
    }

    /// Removes and adds endpoints until every zone has as many as the state says; returns how many
    /// arrived and departed.
    fn replace_endpoints(&mut self, cells: &[Cell]) -> (u64, u64) {
        let (mut arrived, mut departed) = (0, 0);
        for (cell, &zone) in cells.iter().zip(&self.scenario.columns.zone_of) {
            let have = self.pods.iter().filter(|pod| pod.zone == zone).count() as u64;
            for _ in cell.endpoints..have {
                let mut here = (0..self.pods.len()).filter(|&index| self.pods[index].zone == zone);
                let leaving = match self.scenario.departure {
                    Departure::OldestFirst => here.next(),
                    Departure::NewestFirst => here.next_back(),
                };
                self.pods.remove(leaving.unwrap_or(0));
                departed += 1;
            }
            for _ in have..cell.endpoints {
                self.pods.push(Pod { id: self.next_id, zone, serves: Vec::new() });
                self.next_id += 1;
                arrived += 1;
            }
        }
        (arrived, departed)
    }

    /// What is in force, as it would be read back from the slices.
    fn previous(&self, zones: usize) -> Option<Assignment> {
        let mut assignment = Assignment::empty(zones);
        for pod in &self.pods {
            if let [zone] = pod.serves[..] {
                assignment.add(pod.zone, zone as usize, 1);
            }
        }
        (self.on && self.single_zone_groups).then_some(assignment)
    }

    /// Gives every endpoint its group; returns how many that stayed were moved.
    fn assign_groups(&mut self, arrived: u64) -> u64 {
        let endpoints: Vec<Endpoint<'_>> = self
            .pods
            .iter()
            .map(|pod| Endpoint { source: pod.zone, serves: &pod.serves })
            .collect();
        let places = hints::place(&endpoints, &self.allocation);
        let hinted = self.allocation.carrier() != Carrier::Shares;
        let mut moved = 0;
        let newest = self.next_id - arrived;
        for (pod, place) in self.pods.iter_mut().zip(places) {
            let group = place.filter(|_| hinted).map(|group| &self.allocation.groups()[group]);
            let serves = group.map_or_else(Vec::new, |group| self.allocation.zones_served(group));
            moved += u64::from(pod.id < newest && pod.serves != serves);
            pod.serves = serves;
        }
        moved
    }

    /// Packs the endpoints into groups of 100; returns how many groups were written.
    fn write(&mut self, zones: &[Zone]) -> u64 {
        let subsets = self.allocation.carrier() == Carrier::Subsets;
        let shares = (self.allocation.carrier() == Carrier::Shares)
            .then(|| self.shares_text(zones))
            .flatten();
        let rewrite_all = shares != self.shares;
        self.shares = shares;
        let members = self.pods.iter().map(|pod| Member {
            id: pod.id,
            group: if subsets { pod.serves.clone() } else { Vec::new() },
            hint: if subsets { Vec::new() } else { pod.serves.clone() },
        });
        self.packing.update(members.collect(), rewrite_all)
    }

    fn shares_text(&self, zones: &[Zone]) -> Option<String> {
        let situation = Situation {
            names: self.scenario.zone_names(),
            zones: zones.to_vec(),
            unplaced: 0,
            unknown_nodes: 0,
        };
        ZoneShares::of(&situation, &self.allocation)?.encode().ok()
    }
}
