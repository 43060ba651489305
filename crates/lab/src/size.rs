//! A scenario in another size. Pure.
//!
//! ```text
//!  --zones     more: copies of the scenario's zones, with the Pods of the copied zone
//!              fewer: the first ones; steps for the others are done in the last one that is left
//!  --nodes     of every zone
//!  --services  more: small copies of the first Service; fewer: the first ones
//! ```
//!
//! What the acts expect was written for one size. In another one the lab computes it instead, see
//! [`crate::prediction`].

use std::collections::BTreeMap;

use zonewise_common::duration::ConfigDuration;

use crate::scenario::{Callers, Scenario, Service, Step, ZONE_LIMIT, Zone};

/// The size of the cluster, as given on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// How many zones.
    pub zones: Option<usize>,
    /// Nodes of each zone.
    pub nodes: Option<usize>,
    /// How many Services.
    pub services: Option<usize>,
    /// Additional round-trip time between zones.
    pub delay: Option<ConfigDuration>,
}

/// More than the Pods of one machine have room for.
const MAX_SERVICES: usize = 10_000;
/// Connections per second that a copy of a Service gets.
const COPY_CONNECTIONS: f64 = 2.0;

impl Scenario {
    /// The same scenario in another size.
    ///
    /// # Errors
    /// If it does not fit on one machine, or cannot be played in this size.
    pub fn sized(mut self, size: Size) -> Result<Self, String> {
        let written = self.clone();
        if let Some(zones) = size.zones {
            self.set_zones(zones)?;
        }
        for zone in &mut self.cluster.zones {
            zone.nodes = size.nodes.unwrap_or(zone.nodes);
        }
        if let Some(services) = size.services {
            self.set_services(services)?;
        }
        self.cluster.delay = size.delay.unwrap_or(self.cluster.delay);
        self.resized = !self.is_alike(&written);
        let checked = self.check().and_then(|()| self.check_endpoints(&written));
        checked.map_err(|error| format!("in this size: {error}"))?;
        Ok(self)
    }

    fn set_zones(&mut self, count: usize) -> Result<(), String> {
        if !(1..=ZONE_LIMIT).contains(&count) {
            return Err(format!("--zones {count}: not between 1 and {ZONE_LIMIT}"));
        }
        let written = self.cluster.zones.clone();
        for number in written.len()..count {
            let like = &written[number % written.len()];
            let name = format!("zone-{}", number + 1);
            for service in &mut self.services {
                if let Some(pods) = service.endpoints.get(&like.name).copied() {
                    service.endpoints.insert(name.clone(), pods);
                }
            }
            for callers in self.callers_mut() {
                if let Some(part) = callers.get(&like.name).copied() {
                    callers.insert(name.clone(), part);
                }
            }
            self.cluster.zones.push(Zone { name, ..like.clone() });
        }
        self.cluster.zones.truncate(count);
        self.leave_zones();
        Ok(())
    }

    /// Takes away what is in zones that are gone. Their steps are done in the last zone.
    fn leave_zones(&mut self) {
        let names: Vec<String> = self.cluster.zones.iter().map(|zone| zone.name.clone()).collect();
        let Some(last) = names.last() else { return };
        for service in &mut self.services {
            service.endpoints.retain(|zone, _| names.contains(zone));
        }
        for callers in self.callers_mut() {
            callers.retain(|zone, _| names.contains(zone));
        }
        for step in self.acts.iter_mut().flat_map(|act| &mut act.steps) {
            if let Some(zone) = step.zone_mut().filter(|zone| !names.contains(zone)) {
                zone.clone_from(last);
            }
        }
    }

    /// All proportions of zones.
    fn callers_mut(&mut self) -> impl Iterator<Item = &mut Callers> {
        let services = self.services.iter_mut().map(|service| &mut service.callers);
        let steps = self.acts.iter_mut().flat_map(|act| &mut act.steps);
        services.chain(steps.filter_map(|step| match step {
            Step::Callers(callers) => Some(callers),
            _ => None,
        }))
    }

    fn set_services(&mut self, count: usize) -> Result<(), String> {
        if !(1..=MAX_SERVICES).contains(&count) {
            return Err(format!("--services {count}: not between 1 and {MAX_SERVICES}"));
        }
        let zones: Vec<String> = self.cluster.zones.iter().map(|zone| zone.name.clone()).collect();
        if let Some(first) = self.services.first().cloned() {
            let copies = self.services.len() + 1..count + 1;
            self.services.extend(copies.map(|number| copy(&first, &zones, number)));
        }
        self.services.truncate(count);
        Ok(())
    }

    /// Whether what its acts expect holds in this size too: the zones are the same, each has the same part of all
    /// nodes, and no step changes the nodes of one of them.
    fn is_alike(&self, written: &Self) -> bool {
        let (now, then) = (&self.cluster.zones, &written.cluster.zones);
        let (all, all_then) = (self.nodes(), written.nodes());
        // Parts are compared as fractions over the product of both totals, which is exact.
        let same_part = |(now, then): (&Zone, &Zone)| {
            now.nodes.saturating_mul(all_then) == then.nodes.saturating_mul(all)
        };
        let moves = |step: &Step| matches!(step, Step::Nodes { .. });
        let mut steps = self.acts.iter().flat_map(|act| &act.steps);
        now.len() == then.len()
            && now.iter().zip(then).all(same_part)
            && (all == all_then || !steps.any(moves))
    }

    fn nodes(&self) -> usize {
        self.cluster.zones.iter().fold(0, |sum, zone| sum.saturating_add(zone.nodes))
    }

    /// No step may take the last endpoint of a Service that always has one in the size it was written for: all its
    /// connections would fail.
    fn check_endpoints(&self, written: &Self) -> Result<(), String> {
        for service in &self.services {
            let before = written.act_without_endpoints(&service.name);
            if let (Some(act), None) = (self.act_without_endpoints(&service.name), before) {
                return Err(format!(
                    "act {act:?} leaves Service {:?} without an endpoint: play it with more zones",
                    service.name
                ));
            }
        }
        Ok(())
    }

    /// The first act in which a Service has no endpoint in a zone that can be reached.
    fn act_without_endpoints(&self, service: &str) -> Option<&str> {
        let found = self.services.iter().find(|one| one.name == service)?;
        let mut pods: BTreeMap<&str, usize> =
            found.endpoints.iter().map(|(zone, pods)| (zone.as_str(), *pods)).collect();
        let mut away = Vec::new();
        let steps = self.acts.iter().flat_map(|act| act.steps.iter().map(move |step| (act, step)));
        for (act, step) in steps {
            match step {
                Step::Scale { service: of, zone, to } if of == service => {
                    pods.insert(zone, *to);
                }
                Step::Drain { zone } | Step::Cut { zone } => away.push(zone.as_str()),
                Step::Restore { zone } => away.retain(|one| one != zone),
                _ => {}
            }
            if pods.iter().all(|(zone, pods)| *pods == 0 || away.contains(zone)) {
                return Some(&act.title);
            }
        }
        None
    }
}

/// A small copy of a Service, with one Pod in each zone and few connections.
fn copy(like: &Service, zones: &[String], number: usize) -> Service {
    Service {
        name: format!("{}-{number}", like.name),
        endpoints: zones.iter().map(|zone| (zone.clone(), 1)).collect(),
        annotations: like.annotations.clone(),
        traffic_distribution: like.traffic_distribution.clone(),
        connections: COPY_CONNECTIONS,
        callers: like.callers.clone(),
    }
}

impl Step {
    /// The zone that the step is about.
    fn zone_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Scale { zone, .. }
            | Self::Drain { zone }
            | Self::Cut { zone }
            | Self::Restore { zone }
            | Self::Evacuate { zone, .. }
            | Self::GiveBack { zone }
            | Self::Nodes { zone, .. } => Some(zone),
            Self::Traffic { zone, .. } => zone.as_mut(),
            Self::Annotate { .. }
            | Self::Distribute { .. }
            | Self::Roll { .. }
            | Self::Callers(_)
            | Self::Wait(_)
            | Self::Unchanged { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(name: &str, size: Size) -> Result<Scenario, String> {
        Scenario::find(name).unwrap().sized(size)
    }

    fn zones(count: usize) -> Size {
        Size { zones: Some(count), ..Size::default() }
    }

    #[test]
    fn added_zones_and_services_are_copies() {
        let size = Size { zones: Some(4), nodes: Some(20), services: Some(50), delay: None };
        let scenario = sized("story", size).unwrap();
        let zones: Vec<(&str, usize)> =
            scenario.cluster.zones.iter().map(|zone| (&*zone.name, zone.nodes)).collect();
        assert_eq!(zones, [("a", 20), ("b", 20), ("c", 20), ("zone-4", 20)]);
        assert_eq!(scenario.services[0].endpoints["zone-4"], 4, "as many Pods as zone a");
        assert_eq!((scenario.services.len(), &*scenario.services[49].name), (50, "web-50"));
        assert_eq!(scenario.endpoints(), 14 + 49 * 4);
        let error =
            sized("story", Size { nodes: Some(usize::MAX), ..Size::default() }).unwrap_err();
        assert!(error.contains("that fit on one machine"), "{error}");
    }

    #[test]
    fn with_fewer_zones_steps_are_done_in_the_last_one_that_is_left() {
        let scenario = sized("story", zones(2)).unwrap();
        let names: Vec<&str> = scenario.cluster.zones.iter().map(|zone| &*zone.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(scenario.acts[3].steps[0].to_string(), "web: 0 Pods in zone b");
        assert!(scenario.resized);
    }

    #[test]
    fn every_built_in_scenario_can_be_played_in_two_to_nine_zones() {
        for (name, _) in crate::scenario::BUILT_IN {
            for count in 2..=9 {
                let scenario = sized(name, zones(count)).unwrap();
                assert_eq!(scenario.resized, count != 3, "{name} in {count} zones");
            }
        }
    }

    #[test]
    fn expectations_are_kept_where_every_zone_has_its_part_of_the_nodes() {
        let nodes = |count| Size { nodes: Some(count), ..Size::default() };
        let cases = [
            ("story", nodes(20), false),
            // Zone a has half of all nodes there.
            ("hot-zone", nodes(2), true),
            // Its steps set the number of nodes of single zones.
            ("node-churn", nodes(2), false),
            ("node-churn", nodes(5), true),
            ("story", Size { services: Some(8), ..Size::default() }, false),
        ];
        for (name, size, resized) in cases {
            assert_eq!(sized(name, size).unwrap().resized, resized, "{name} {size:?}");
        }
    }

    #[test]
    fn what_cannot_be_played_in_a_size_is_said() {
        let cases = [
            ("story", zones(1), "leaves Service \"web\" without an endpoint"),
            ("story", zones(0), "--zones 0: not between 1 and 26"),
            ("story", zones(usize::MAX), "not between 1 and 26"),
            ("story", Size { services: Some(0), ..Size::default() }, "--services 0: not between"),
            ("story", Size { nodes: Some(0), ..Size::default() }, "needs nodes"),
        ];
        for (name, size, expected) in cases {
            let error = sized(name, size).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
