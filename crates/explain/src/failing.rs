//! Zones that count for less because connections to their endpoints fail, as the leading controller has stored them.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_demand::health::{HealthState, InForce};
use zonewise_slices::requested::FailingZones;
use zonewise_topology::reason::Code;

use crate::change::ControllerView;
use crate::explanation::Note;
use crate::service_snapshot::Decision;

/// A zone that counts for less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingZone {
    /// The zone.
    pub zone: Name,
    /// How many percent its endpoints count for.
    pub percent: u8,
    /// How many percent of the connections to them have failed lately, where there were enough of them.
    pub failed_percent: Option<u8>,
}

/// The zones that count for less, by Service.
pub(crate) fn stored(state: &HealthState) -> BTreeMap<Key, Arc<[FailingZone]>> {
    let service = |(name, in_force): (&Name, &InForce)| {
        let (namespace, name) = name.split_once('/')?;
        Some(((namespace.into(), name.into()), zones(in_force)))
    };
    state.lowered().filter_map(service).collect()
}

/// Whether the same zones count for the same, whatever fails there.
pub(crate) fn have_same_percents(
    one: &BTreeMap<Key, Arc<[FailingZone]>>,
    other: &BTreeMap<Key, Arc<[FailingZone]>>,
) -> bool {
    let percents = |zones: &Arc<[FailingZone]>| -> Vec<(Name, u8)> {
        zones.iter().map(|failing| (Name::clone(&failing.zone), failing.percent)).collect()
    };
    let all = |zones: &BTreeMap<Key, Arc<[FailingZone]>>| -> Vec<(Key, Vec<(Name, u8)>)> {
        zones.iter().map(|(service, zones)| (service.clone(), percents(zones))).collect()
    };
    all(one) == all(other)
}

fn zones(in_force: &InForce) -> Arc<[FailingZone]> {
    let zone = |(name, zone): (&Name, &zonewise_demand::health::Zone)| FailingZone {
        zone: Name::clone(name),
        percent: zone.percent,
        failed_percent: zone.part().map(|part| (part * 100.0).round() as u8),
    };
    in_force.lowered().map(zone).collect()
}

/// Says which zones count for less, where the Service asks for that.
pub(crate) fn notes(view: &ControllerView, decision: &Decision) -> Vec<Note> {
    match decision.asked.failing_zones {
        FailingZones::Ignore => Vec::new(),
        FailingZones::Spill if !view.objects.facts.demand.is_failing_known() => vec![unknown()],
        FailingZones::Spill => {
            view.objects.failing.iter().flat_map(|zones| &**zones).map(note).collect()
        }
    }
}

/// It is not known which zones fail.
fn unknown() -> Note {
    let entry = Code::DemandUnreadable.entry();
    Note {
        source: "zones that fail".to_owned(),
        value: "not known here".to_owned(),
        reason: entry.code,
        sentence: format!("{}; {}", entry.sentence, entry.remedy),
        commands: Vec::new(),
    }
}

fn note(failing: &FailingZone) -> Note {
    let entry = Code::ZoneFailing.entry();
    let failed = match failing.failed_percent {
        Some(percent) => format!("; {percent} % of the connections to them have failed lately"),
        None => String::new(),
    };
    Note {
        source: format!("zone {}", failing.zone),
        value: format!("its endpoints count for {} %{failed}", failing.percent),
        reason: entry.code,
        sentence: format!("{}; {}", entry.sentence, entry.remedy),
        commands: Vec::new(),
    }
}
