//! Endpoints that count by the CPU that they use: what the leading controller has stored of that.

use zonewise_common::keys::ENDPOINT_WEIGHT;
use zonewise_common::name::Name;
use zonewise_demand::cpu_use::{InForce, UseState, Zone};
use zonewise_demand::{Millis, seconds_between};
use zonewise_slices::requested::EndpointWeight;
use zonewise_slices::weights::CPU_USE;
use zonewise_topology::reason::{Code, NOTHING_TO_DO};

use crate::change::ControllerView;
use crate::explanation::Note;
use crate::service_snapshot::Decision;

/// What is stored of the use of endpoints.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoredUse<'a> {
    /// Nothing: no controller reads it.
    Nothing,
    /// It cannot be read here.
    Unknown,
    /// This.
    Known(&'a UseState),
}

/// Says what the endpoints of each zone use and count for, where the Service asks for that.
pub(crate) fn notes(view: &ControllerView, decision: &Decision) -> Vec<Note> {
    match decision.asked.endpoint_weight {
        EndpointWeight::Equal | EndpointWeight::CpuRequest => return Vec::new(),
        EndpointWeight::CpuUse => {}
    }
    let facts = &view.objects.facts;
    let state = match facts.demand.by_use() {
        StoredUse::Nothing => return vec![of_service(Code::UseNotCollected)],
        StoredUse::Unknown => return vec![of_service(Code::DemandUnreadable)],
        StoredUse::Known(state) => state,
    };
    let Some(in_force) = state.of(&view.objects.service.key()) else {
        return vec![of_service(state.fault.map_or(Code::UseNotMeasured, |fault| fault.code()))];
    };
    let now = facts.millis().unwrap_or_default().max(state.decided());
    let fault = state.fault.map(|fault| of_service(fault.code()));
    let zones = in_force.zones.iter().map(|(name, zone)| of_zone(name, zone, now));
    fault.into_iter().chain(zones).collect()
}

/// What the zones of a Service count for, in percent, where that is not 100.
pub(crate) fn weighted(in_force: Option<&InForce>) -> Vec<(Name, u16)> {
    let weighted = in_force.into_iter().flat_map(InForce::weighted);
    weighted.map(|(zone, percent)| (Name::clone(zone), percent)).collect()
}

fn of_service(code: Code) -> Note {
    note(ENDPOINT_WEIGHT.to_owned(), CPU_USE.to_owned(), code)
}

fn of_zone(name: &Name, zone: &Zone, now: Millis) -> Note {
    let uses = match zone.measured {
        0 => "what they use is not known".to_owned(),
        measured => format!(
            "they use {:.0} m of CPU on average, {measured} of {} measured, {:.0} s ago",
            zone.milli,
            zone.endpoints,
            seconds_between(zone.at, now)
        ),
    };
    let value = format!("its endpoints count for {} %; {uses}", zone.percent);
    note(format!("zone {name}"), value, zone.standing.code())
}

fn note(source: String, value: String, code: Code) -> Note {
    let entry = code.entry();
    let sentence = match entry.remedy {
        NOTHING_TO_DO => entry.sentence.to_owned(),
        remedy => format!("{}; {remedy}", entry.sentence),
    };
    Note { source, value, reason: entry.code, sentence, commands: Vec::new() }
}
