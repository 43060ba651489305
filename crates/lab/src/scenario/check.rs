//! What a scenario must fulfil before anything is created: names that exist, numbers that fit on one machine, and
//! annotations that the controller understands.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use zonewise_slices::requested::{RequestedRouting, requested_routing};
use zonewise_slices::settings::Settings;
use zonewise_topology::reason::TABLE;

use super::{Act, Callers, Expect, MIN_MEASURE, Scenario, Service, Step, ZONE_LIMIT, Zone};

/// The network of a lab has addresses for this many nodes.
const MAX_NODES: usize = 250;
/// The network of a node has addresses for this many Pods.
const MAX_PODS_PER_NODE: usize = 200;
/// With fewer connections per second there is nothing to measure.
const MIN_CONNECTIONS: f64 = 0.01;
/// More connections per second than one machine can make.
const MAX_CONNECTIONS: f64 = 10_000.0;
/// The largest part of a zone in a proportion of callers.
const MAX_PART: f64 = 1000.0;
/// The longest time that an act may measure.
const MAX_MEASURE: Duration = Duration::from_hours(1);

impl Scenario {
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_cluster()?;
        self.check_services()?;
        if self.acts.is_empty() {
            return Err("a scenario needs at least one act".into());
        }
        let mut away = BTreeSet::new();
        for act in &self.acts {
            let checked = self.check_act(act).and_then(|()| check_zones(act, &mut away));
            checked.map_err(|error| format!("act {:?}: {error}", act.title))?;
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), String> {
        let zones = &self.cluster.zones;
        if zones.is_empty() {
            return Err("a cluster needs at least one zone".into());
        }
        if zones.len() > ZONE_LIMIT {
            return Err(format!("{} zones are more than the {ZONE_LIMIT} that fit", zones.len()));
        }
        for zone in zones {
            name("zone", &zone.name)?;
            if zone.nodes == 0 || zone.cores == 0 || zone.cores > 10_000 {
                return Err(format!(
                    "zone {:?} needs nodes, with 1 to 10000 cores each",
                    zone.name
                ));
            }
        }
        unique("zone", zones.iter().map(|zone| &zone.name))?;
        let nodes =
            zones.iter().fold(0usize, |sum, zone| sum.saturating_add(self.most_nodes(zone)));
        if nodes > MAX_NODES {
            return Err(format!(
                "{nodes} nodes are more than the {MAX_NODES} that fit on one machine"
            ));
        }
        if self.cluster.delay.0 > Duration::from_secs(1) {
            return Err("delay: at most 1s is allowed between zones".into());
        }
        Ok(())
    }

    /// The largest number of nodes that a zone has during the scenario.
    fn most_nodes(&self, zone: &Zone) -> usize {
        let steps = self.acts.iter().flat_map(|act| &act.steps);
        let later = steps.filter_map(|step| match step {
            Step::Nodes { zone: of, to } if *of == zone.name => Some(*to),
            _ => None,
        });
        later.fold(zone.nodes, usize::max)
    }

    fn check_services(&self) -> Result<(), String> {
        if self.services.is_empty() {
            return Err("a scenario needs at least one Service".into());
        }
        unique("Service", self.services.iter().map(|service| &service.name))?;
        for service in &self.services {
            name("Service", &service.name)?;
            for zone in service.endpoints.keys() {
                self.zone(zone).map_err(|error| format!("Service {:?}: {error}", service.name))?;
            }
            rate(service.connections)?;
            self.check_callers(&service.callers)
                .map_err(|error| format!("Service {:?}: {error}", service.name))?;
            let asked = service.annotations.iter().map(|(key, value)| understood(key, value));
            let distribution = service.traffic_distribution.iter().map(|value| distribution(value));
            asked
                .chain(distribution)
                .collect::<Result<(), String>>()
                .map_err(|error| format!("Service {:?}: {error}", service.name))?;
        }
        for zone in &self.cluster.zones {
            let pods = self.services.iter().filter_map(|service| service.endpoints.get(&zone.name));
            let pods = pods.fold(0usize, |sum, pods| sum.saturating_add(*pods));
            if pods > zone.nodes * MAX_PODS_PER_NODE {
                return Err(format!(
                    "zone {:?} has {pods} Pods, and room for {MAX_PODS_PER_NODE} on each of its {} nodes",
                    zone.name, zone.nodes
                ));
            }
        }
        Ok(())
    }

    fn check_callers(&self, callers: &Callers) -> Result<(), String> {
        for (zone, part) in callers {
            self.zone(zone).map_err(|error| format!("callers: {error}"))?;
            if !(0.0..=MAX_PART).contains(part) {
                return Err(format!("callers: {part} of zone {zone:?} is not between 0 and 1000"));
            }
        }
        let none = !callers.is_empty() && callers.values().all(|part| *part == 0.0);
        if none { Err("callers: no zone makes connections".into()) } else { Ok(()) }
    }

    fn check_expect(&self, expect: &Expect) -> Result<(), String> {
        if let Some(service) = &expect.service {
            self.service(service)?;
        }
        for reason in &expect.reason {
            let known = TABLE.iter().any(|entry| entry.code.to_string() == *reason);
            known.then_some(()).ok_or_else(|| {
                format!("expect: {reason:?} is not a reason code (`zonewise reasons` lists them)")
            })?;
        }
        Ok(())
    }

    fn check_act(&self, act: &Act) -> Result<(), String> {
        if act.measure.0 < MIN_MEASURE || act.measure.0 > MAX_MEASURE {
            return Err(format!("measure: {} is not between 500ms and 1h", act.measure));
        }
        self.check_expect(&act.expect)?;
        for expect in &act.beside {
            self.check_expect(expect)?;
            if expect.service.is_none() {
                return Err("beside: name the Service that each of them is about".into());
            }
        }
        act.steps.iter().try_for_each(|step| self.check_step(step))
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Annotate { service, key, value } => {
                self.service(service)?;
                value.as_ref().map_or(Ok(()), |value| understood(key, value))
            }
            Step::Distribute { service, value } => {
                self.service(service)?;
                value.as_ref().map_or(Ok(()), |value| distribution(value))
            }
            Step::Roll { service } => self.service(service).map(drop),
            Step::Scale { service, zone, to } => {
                self.service(service)?;
                let zone = self.zone(zone)?;
                let room = zone.nodes * MAX_PODS_PER_NODE;
                let fits = *to <= room;
                fits.then_some(())
                    .ok_or_else(|| format!("scale: {to} Pods do not fit; there is room for {room}"))
            }
            Step::Drain { zone }
            | Step::Cut { zone }
            | Step::Restore { zone }
            | Step::GiveBack { zone } => self.zone(zone).map(drop),
            Step::Evacuate { zone, step } => {
                self.zone(zone)?;
                let fits = (1..=600).contains(&step.0.as_secs()) && step.0.subsec_nanos() == 0;
                fits.then_some(()).ok_or_else(|| {
                    format!("evacuate: a step of {step} is not a number of seconds from 1 to 600")
                })
            }
            Step::Nodes { zone, to } => {
                self.zone(zone)?;
                let fits = (1..=50).contains(to);
                fits.then_some(()).ok_or_else(|| {
                    format!("nodes: {to} is not between 1 and 50; to empty a zone, drain it")
                })
            }
            Step::Traffic { service, zone, connections } => {
                self.service(service)?;
                zone.as_ref().map(|zone| self.zone(zone)).transpose()?;
                rate(*connections)
            }
            Step::Callers(callers) => {
                if callers.is_empty() {
                    return Err("callers: name a zone (example: {a: 70, b: 30})".into());
                }
                self.check_callers(callers)
            }
            Step::Wait(span) => {
                let short = span.0 <= MAX_MEASURE;
                short.then_some(()).ok_or_else(|| format!("wait: {span} is longer than an hour"))
            }
            Step::Unchanged { at_most, .. } if at_most.0 > MAX_MEASURE => {
                Err(format!("unchanged: atMost {at_most} is longer than an hour"))
            }
            Step::Unchanged { span, at_most } if span.0 > at_most.0 => {
                Err(format!("unchanged: a span of {span} does not fit into {at_most}"))
            }
            Step::Unchanged { .. } => Ok(()),
        }
    }

    fn zone(&self, name: &str) -> Result<&Zone, String> {
        let zones = &self.cluster.zones;
        let found = zones.iter().find(|zone| zone.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = zones.iter().map(|zone| &*zone.name).collect();
            format!("there is no zone {name:?} (zones: {})", known.join(", "))
        })
    }

    fn service(&self, name: &str) -> Result<&Service, String> {
        let found = self.services.iter().find(|service| service.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.services.iter().map(|service| &*service.name).collect();
            format!("there is no Service {name:?} (Services: {})", known.join(", "))
        })
    }
}

/// Checks that steps only use zones that are not drained or cut off at that point.
fn check_zones<'a>(act: &'a Act, away: &mut BTreeSet<&'a str>) -> Result<(), String> {
    for step in &act.steps {
        match step {
            Step::Drain { zone } | Step::Cut { zone } if !away.insert(zone) => {
                return Err(format!("zone {zone:?} is already drained or cut off"));
            }
            Step::Restore { zone } if !away.remove(&**zone) => {
                return Err(format!(
                    "zone {zone:?} cannot be restored: it was not drained or cut off"
                ));
            }
            Step::Scale { zone, .. } | Step::Nodes { zone, .. } if away.contains(&**zone) => {
                return Err(format!("zone {zone:?} is drained or cut off: restore it first"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the controller understands an annotation, if it is one that asks for routing or looks like it.
fn understood(key: &str, value: &str) -> Result<(), String> {
    requests(annotated(key, value))
}

/// A Service with one annotation.
pub(super) fn annotated(key: &str, value: &str) -> serde_json::Value {
    json!({"metadata": {"annotations": {key: value}}, "spec": {}})
}

/// Checks that the controller understands a value of `spec.trafficDistribution`.
fn distribution(value: &str) -> Result<(), String> {
    requests(json!({"metadata": {}, "spec": {"trafficDistribution": value}}))
}

/// Checks what a Service requests, alone on that Service.
fn requests(service: serde_json::Value) -> Result<(), String> {
    let requested = requested(service)?;
    requested.notes.first().map_or(Ok(()), |note| {
        Err(format!("{}={}: {}", note.source, note.value, requested.sentence(note)))
    })
}

pub(super) fn requested(mut service: serde_json::Value) -> Result<RequestedRouting, String> {
    service["metadata"]["name"] = "web".into();
    service["metadata"]["namespace"] = "default".into();
    service["metadata"]["uid"] = "web".into();
    let service = serde_json::from_value(service).map_err(|error| error.to_string())?;
    Ok(requested_routing(&service, &Settings::default()))
}

/// Checks a name: valid for Kubernetes, and short enough for names that are derived from it.
fn name(what: &str, name: &str) -> Result<(), String> {
    let letters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase());
    if letters && begins && !name.ends_with('-') && name.len() <= 40 {
        return Ok(());
    }
    Err(format!(
        "{what} {name:?}: a name has lower-case letters, digits and dashes, begins with a letter and is at most 40 characters long"
    ))
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut names = names;
    let again = names.find(|name| !seen.insert(*name));
    again.map_or(Ok(()), |name| Err(format!("two {what}s are called {name:?}")))
}

fn rate(connections: f64) -> Result<(), String> {
    if connections == 0.0 || (MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&connections) {
        return Ok(());
    }
    Err(format!(
        "connections: {connections} per second is neither 0 nor between {MIN_CONNECTIONS} and {MAX_CONNECTIONS}"
    ))
}
