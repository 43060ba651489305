//! What emptying a zone would mean: the controller's own function, on a snapshot.

use serde::Serialize;
use zonewise_slices::evacuation::{Kept, Prospect, Survey};
use zonewise_slices::plan::Input;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::settings::Settings;

use crate::snapshot::Snapshot;

/// What emptying a zone would mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvacuationCheck {
    /// The zone.
    pub zone: String,
    /// The most that the busiest endpoint of a Service may get, compared with now, in percent.
    pub limit_percent: u32,
    /// Whether the other zones can take the traffic.
    pub possible: bool,
    /// Endpoints of the zone that new connections would no longer use.
    pub moved: u64,
    /// The Services with ready endpoints in the zone, the one whose busiest endpoint gets most first.
    pub services: Vec<ServiceCheck>,
}

/// What emptying a zone would mean for a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceCheck {
    /// The Service.
    pub service: String,
    /// Its ready endpoints in the zone.
    pub in_zone: u64,
    /// Its ready endpoints in other zones.
    pub elsewhere: u64,
    /// What the busiest endpoint would get, compared with now, in percent.
    pub load_percent: u64,
    /// Whether that is above the limit.
    pub over_limit: bool,
    /// Why endpoints in the zone would stay in use, if some would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// Finds out what emptying a zone would mean. The error is a sentence for people.
///
/// # Errors
/// If no node is in the zone.
pub fn evacuation_check(
    snapshot: &Snapshot,
    settings: &Settings,
    zone: &str,
    limit_percent: u32,
) -> Result<EvacuationCheck, String> {
    let nodes = snapshot.nodes();
    let is_there = |name: &&str| *name == zone;
    let zones: std::collections::BTreeSet<&str> =
        nodes.by_name.values().filter_map(|node| node.zone.as_deref()).collect();
    if !zones.iter().any(is_there) {
        let known: Vec<&str> = zones.into_iter().collect();
        let known = if known.is_empty() { "no node has a zone".into() } else { known.join(", ") };
        return Err(format!("no node is in zone `{zone}`; there are: {known}"));
    }
    let with = |evacuations| (**nodes).clone().evacuating(evacuations);
    let in_use = with(nodes.evacuations.clone().without(zone));
    let emptied = with(nodes.evacuations.clone().with(zone, 0));
    let mut survey = Survey::new(limit_percent);
    let mut services = Vec::new();
    for service in snapshot.services() {
        let objects = snapshot.service_snapshot(service);
        let slices = objects.own_slices(settings);
        let asked = requested_routing(service, settings);
        let measured = objects.measured(&asked);
        let input = |nodes| Input { nodes, ..objects.input(&slices, measured.as_ref()) };
        let over = survey.over.len();
        let prospect = Prospect::of(&input(&in_use), &input(&emptied), &asked.choice, zone);
        let Some(prospect) = prospect else { continue };
        survey.add(service, prospect);
        services.push(ServiceCheck {
            service: service.key(),
            in_zone: prospect.in_zone,
            elsewhere: prospect.elsewhere,
            load_percent: (prospect.growth() * 100.0).round() as u64,
            over_limit: survey.over.len() > over,
            kept: prospect.kept,
        });
    }
    services.sort_by(|a, b| b.load_percent.cmp(&a.load_percent).then(a.service.cmp(&b.service)));
    Ok(EvacuationCheck {
        zone: zone.to_owned(),
        limit_percent,
        possible: survey.over.is_empty(),
        moved: survey.moved,
        services,
    })
}
