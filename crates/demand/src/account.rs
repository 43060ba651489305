//! What is stored of a Service's demand, told to people: the shares of each zone by the model, as measured and in force,
//! and why the one is not the other.
//!
//! It is the leader's last decision, read back. What only the leader knows is in the [notes](crate::notes).

use zonewise_topology::capacity::Capacity;
use zonewise_topology::reason::Reason;

use crate::notes::Notes;
use crate::shares::{Held, InForce, PRIOR, Step, Target, ZoneDemand, reason};
use crate::state::State;
use crate::window::MAX_SERVICES;
use crate::{Millis, seconds};

/// What is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// What is in force for all Services.
    pub state: &'a State,
    /// What only the leader knows.
    pub notes: &'a Notes,
}

/// What is known of the demand of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Why measured shares are in force, or are not, or not fully.
    pub reason: Reason,
    /// The zones, in the order of the model.
    pub zones: Vec<ZoneDemand>,
    /// Connections in memory.
    pub sample: f64,
    /// The weight of what is measured, 0 to 1; the rest is the model's.
    pub weight: f64,
    /// Seconds since connections were counted last; `None` if none ever were.
    pub age: Option<f64>,
    /// Seconds since the leader decided; `None` if it has decided nothing for the Service.
    pub decided: Option<f64>,
    /// Why the shares in force are not the target.
    pub held: Option<Held>,
    /// Rewrites that may follow each other at once.
    pub rewrites_left: Option<f64>,
    /// Rewrites in the last hour, as far as the leader remembers.
    pub rewrites_in_hour: usize,
}

/// What is known of the demand of a Service that asks for it to be measured. `stored` is `None` where no controller has
/// stored anything; `now` is `None` where the time is not known, as in a dump without Leases.
pub fn account(
    model: &Capacity,
    stored: Option<Stored<'_>>,
    service: &str,
    now: Option<Millis>,
) -> Account {
    let Some(Stored { state, notes }) = stored else {
        return Account::of_model(model, Reason::DemandNotCollected);
    };
    let note = notes.of(service);
    if note.is_some_and(|note| note.left_out) {
        return Account::of_model(model, Reason::DemandTableFull { most: MAX_SERVICES as u64 });
    }
    let now = now.unwrap_or(0).max(state.decided());
    let rewrites_in_hour = note.map_or(0, |note| note.rewrites_in_hour(now));
    let one_node = note.and_then(|note| note.of_one_node);
    let known = state.aligned(service, model);
    let account = match &known {
        Some(in_force) => Account::of(model, in_force, one_node, now),
        None => Account::of_model(model, unknown(notes)),
    };
    Account { rewrites_in_hour, ..account }
}

/// Why nothing is stored of a Service.
fn unknown(notes: &Notes) -> Reason {
    if notes.may_have_left_out() {
        return Reason::DemandTableFull { most: MAX_SERVICES as u64 };
    }
    match notes.not_stored {
        0 => Reason::TooFewConnections { connections: 0, enough: PRIOR as u64 },
        some => Reason::DemandNotStored { services: some as u64 },
    }
}

impl Account {
    /// What is stored cannot be read, so the model is all that can be told.
    pub fn unreadable(model: &Capacity) -> Self {
        Self::of_model(model, Reason::DemandUnreadable)
    }

    /// Nothing is known, so the model is in force.
    fn of_model(model: &Capacity, reason: Reason) -> Self {
        let zone = |zone: &zonewise_topology::capacity::ZoneCapacity| ZoneDemand {
            zone: zone.name.clone(),
            model: zone.share,
            measured: None,
            target: zone.share,
            in_force: zone.share,
        };
        Self {
            reason,
            zones: model.zones.iter().map(zone).collect(),
            sample: 0.0,
            weight: 0.0,
            age: None,
            decided: None,
            held: None,
            rewrites_left: None,
            rewrites_in_hour: 0,
        }
    }

    fn of(model: &Capacity, in_force: &InForce, one_node: Option<f64>, now: Millis) -> Self {
        let by_capacity: Vec<f64> = model.zones.iter().map(|zone| zone.share).collect();
        let target = Target::of(&in_force.memory, &by_capacity);
        let held = held(in_force, &target);
        // By the time of the decision: how old it is by now is told apart from it.
        let counted = (in_force.measured > 0).then_some(in_force.measured);
        let age_then = counted.map(|counted| seconds(counted, in_force.decided));
        let shares: Vec<f64> = in_force.parts().collect();
        let zone = |zone: usize| ZoneDemand {
            zone: model.zones[zone].name.clone(),
            model: by_capacity[zone],
            measured: (target.sample > 0.0).then(|| in_force.memory[zone] / target.sample),
            target: target.shares[zone],
            in_force: shares[zone],
        };
        Self {
            reason: reason(&target, one_node, age_then, held),
            zones: (0..by_capacity.len()).map(zone).collect(),
            sample: target.sample,
            weight: target.weight,
            age: counted.map(|counted| seconds(counted, now)),
            decided: Some(seconds(in_force.decided, now)),
            held,
            rewrites_left: Some(in_force.rewrites_left),
            rewrites_in_hour: 0,
        }
    }
}

/// Why the shares in force are not the target, as the leader that decided them has said.
fn held(in_force: &InForce, target: &Target) -> Option<Held> {
    if in_force.moving {
        return Some(Held::ChangeLimit);
    }
    match Step::distance(in_force, target) {
        distance if distance < 1e-6 => None,
        distance if distance < target.least_step => Some(Held::SmallDifference),
        _ if in_force.rewrites_left < 1.0 => Some(Held::RewriteLimit),
        // Rounding, or nodes that have come since: the next decision sees to it.
        _ => Some(Held::SmallDifference),
    }
}
