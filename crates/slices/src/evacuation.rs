//! Empties zones: which endpoints of a zone new connections no longer use, and whether the other zones can take them.
//!
//! ```text
//!  Evacuations: zone ─► percentage of its endpoints that stay in use        100 ─► 75 ─► 50 ─► 25 ─► 0
//!      │
//!      ▼
//!  Pods ─► desired endpoints ─► some of the zone are taken out of use ─► decide, pack (as ever)
//!                               ready: false, serving: true, terminating: true
//! ```
//!
//! **An endpoint that is taken out of use is written like that of a Pod that is about to end**, which is what Kubernetes has for
//! "no new connections, please". Every proxy, ours and others, gives new connections to other endpoints while there are
//! any, and lets those that are open go on. If all others fail, proxies use it again, at once and by themselves. With
//! `externalTrafficPolicy: Local` the health check of its node fails, so that load balancers turn to other nodes; until
//! they do, the node still serves. Leaving the endpoint out of the slices instead would end UDP flows and have no way back
//! when the others fail; shares of zero would work with our proxy alone.
//!
//! **Everything after it is as ever**, because heuristics count ready endpoints: hints, subsets and shares are decided for
//! those that are left, and clients in the zone get endpoints of other zones. Only routing by location alone
//! (`trafficDistribution`) would crowd the clients of the zone onto ever fewer endpoints. There, the endpoints of other
//! zones are hinted to the zone as well, from the first step on.
//!
//! **What is not moved** ([`Kept`]): headless Services, because clients look for single Pods there; Services that publish
//! Pods that are not ready; Services whose clients use endpoints of their own node only; slices that are not ours;
//! and endpoints that none outside the zone can replace.
//!
//! **What is moved in one step, the last:** Services with session affinity, so that no client loses its session more than
//! once; and routing whose share per zone does not follow the number of endpoints, because the endpoints that are left
//! would get what all got before.
//!
//! **Whether the others can take it** is decided by [`Prospect`]: the load of the busiest endpoint with the zone emptied,
//! beside what it is with the zone in use. Both are computed by the heuristic that decides the routing, for the shares of
//! the traffic that are measured where they are, and otherwise by the capacity of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use zonewise_common::name::Name;

use crate::desired::Desired;
use crate::plan::Input;
use crate::requested::Choice;
use crate::service::Service;
use crate::slice::{Port, Protocol};

/// The percentages of a zone's endpoints that stay in use, one after the other.
pub const STEPS: [u8; 5] = [100, 75, 50, 25, 0];

/// The zones that are being emptied, each with the percentage of its endpoints that stay in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuations(BTreeMap<Name, u8>);

impl Evacuations {
    /// Whether every zone is in use as a whole.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The zones, each with its percentage.
    pub fn zones(&self) -> impl Iterator<Item = (&Name, u8)> {
        self.0.iter().map(|(zone, percent)| (zone, *percent))
    }

    /// The same with another zone, or another percentage of a zone. If a zone is named twice, the lower one counts.
    #[must_use]
    pub fn with(mut self, zone: &str, percent: u8) -> Self {
        if percent < 100 {
            let known = self.0.entry(zone.into()).or_insert(percent);
            *known = percent.min(*known);
        }
        self
    }

    /// The same without a zone: it is in use as a whole.
    #[must_use]
    pub fn without(mut self, zone: &str) -> Self {
        self.0.remove(zone);
        self
    }

    fn has(&self, zone: Option<&Name>) -> bool {
        zone.is_some_and(|zone| self.0.contains_key(zone))
    }
}

/// Why the endpoints of a Service stay in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// Its slices are made by people or other programs.
    NotOurs,
    /// It is headless.
    Headless,
    /// It publishes Pods that are not ready.
    PublishesNotReady,
    /// Its clients use the endpoints of their own node only.
    OwnNodeOnly,
    /// It has no ready endpoint elsewhere that serves the same ports.
    OnlyThere,
}

impl Kept {
    /// Why, as a sentence about the Service.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NotOurs => "it has no selector, so its slices are not the controller's",
            Self::Headless => "it is headless, so clients choose the Pods themselves",
            Self::PublishesNotReady => "it publishes Pods that are not ready",
            Self::OwnNodeOnly => {
                "its internalTrafficPolicy is Local, so clients use endpoints of their own node only"
            }
            Self::OnlyThere => "no ready endpoint outside the zone serves the same ports",
        }
    }

    /// What keeps all endpoints of a Service in use, whatever endpoints there are.
    pub fn of(service: &Service) -> Option<Self> {
        let rules = [
            (!service.is_ours(), Self::NotOurs),
            (service.headless, Self::Headless),
            (service.publish_not_ready, Self::PublishesNotReady),
            (service.own_node_only, Self::OwnNodeOnly),
        ];
        rules.into_iter().find(|(applies, _)| *applies).map(|(_, kept)| kept)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// Whether a Service leaves a zone step by step: its endpoints in the zone get less traffic when there are fewer of them.
fn moves_in_steps(service: &Service, choice: &Choice) -> bool {
    let follows_endpoints = match choice {
        Choice::ClusterWide | Choice::Near(_) => true,
        Choice::Heuristic(heuristic) | Choice::WeightedShares(heuristic) => {
            ["auto", "balanced", "balanced-hints"].contains(&heuristic.name())
        }
        Choice::Subsets(heuristic, _) => heuristic.name() == "local-subset",
    };
    follows_endpoints && !service.session_affinity
}

/// How many of so many endpoints stay in use.
fn staying(endpoints: usize, percent: u8) -> usize {
    (endpoints * usize::from(percent)).div_ceil(100)
}

impl Desired<'_> {
    /// Sets endpoints of zones that are being emptied aside.
    pub(crate) fn evacuate(
        &mut self,
        service: &Service,
        choice: &Choice,
        evacuations: &Evacuations,
    ) {
        if evacuations.is_empty() || Kept::of(service).is_some() {
            return;
        }
        let in_steps = moves_in_steps(service, choice);
        let covered = Covered::by(self, evacuations);
        for (zone, percent) in evacuations.zones().filter(|(_, percent)| in_steps || *percent == 0)
        {
            let movable: Vec<usize> = (0..self.endpoints.len())
                .filter(|&index| {
                    let endpoint = &self.endpoints[index];
                    endpoint.is_ready()
                        && endpoint.zone() == Some(zone)
                        && covered.port_sets.contains(&endpoint.port_set)
                })
                .collect();
            if movable.is_empty() {
                continue;
            }
            // They are in the order of their Pods' names, so that each step sets more of the same aside.
            for &index in &movable[staying(movable.len(), percent)..] {
                self.endpoints[index].take_out_of_use();
            }
            self.served_elsewhere.push(Name::clone(zone));
        }
    }

    /// The number of ready endpoints in a zone, and in all others.
    fn ready(&self, zone: &str) -> (u64, u64) {
        let ready = (0..self.endpoints.len())
            .filter(|&index| self.is_unique(index) && self.endpoints[index].is_ready());
        let is_there =
            |index: &usize| self.endpoints[*index].zone().is_some_and(|known| **known == *zone);
        let (there, elsewhere): (Vec<usize>, Vec<usize>) = ready.partition(is_there);
        (there.len() as u64, elsewhere.len() as u64)
    }
}

/// The port sets all of whose ports are served by ready endpoints outside the zones that are being emptied.
struct Covered {
    port_sets: BTreeSet<usize>,
}

impl Covered {
    fn by(desired: &Desired<'_>, evacuations: &Evacuations) -> Self {
        let sets = desired.ports.sets();
        let outside: BTreeSet<usize> = desired
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_ready() && !evacuations.has(endpoint.zone()))
            .map(|endpoint| endpoint.port_set)
            .collect();
        let served: BTreeSet<PortKey<'_>> =
            outside.iter().flat_map(|&set| sets[set].iter().map(port_key)).collect();
        let is_covered =
            |&set: &usize| sets[set].iter().all(|port| served.contains(&port_key(port)));
        let all = 0..if outside.is_empty() { 0 } else { sets.len() };
        Self { port_sets: all.filter(is_covered).collect() }
    }
}

/// A port as clients know it, whatever number Pods have for it.
type PortKey<'a> = (Option<&'a Name>, Option<&'a Protocol>);

fn port_key(port: &Port) -> PortKey<'_> {
    (port.name.as_ref(), port.protocol.as_ref())
}

/// Whether the stored slices have as many ready endpoints in a zone as they should have.
pub fn is_written(input: &Input<'_>, choice: &Choice, zone: &str) -> bool {
    input.service.families.iter().all(|family| {
        let (desired, _) = input.desired(choice, family).ready(zone);
        let slices = input.slices.iter().filter(|slice| slice.family == *family);
        let stored = slices
            .flat_map(|slice| &slice.endpoints)
            .filter(|endpoint| endpoint.is_ready() && endpoint.zone.as_deref() == Some(zone));
        stored.count() as u64 == desired
    })
}

/// What the endpoints of a Service get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The number of ready endpoints.
    pub endpoints: u64,
    /// The part of the Service's traffic that the busiest of them gets; with endpoints that count for the CPU that
    /// their Pods request, for each thousandth of a core.
    pub busiest: f64,
}

/// What emptying a zone means for a Service, in the address family that it burdens most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prospect {
    /// Ready endpoints in the zone while it is in use.
    pub in_zone: u64,
    /// Those of them that stay in use when it is emptied.
    pub staying: u64,
    /// Ready endpoints in all other places.
    pub elsewhere: u64,
    /// The part of the traffic that the busiest endpoint gets while the zone is in use.
    pub before: f64,
    /// The same when it is emptied.
    pub after: f64,
    /// Why endpoints stay, if some do.
    pub kept: Option<Kept>,
}

impl Prospect {
    /// What emptying the zone means for a Service; `None` if it has no ready endpoint there. Both inputs are the same
    /// but for the evacuations of their nodes: with the zone in use, and without.
    pub fn of(
        in_use: &Input<'_>,
        emptied: &Input<'_>,
        choice: &Choice,
        zone: &str,
    ) -> Option<Self> {
        let families = in_use.service.families.iter();
        let all = families.filter_map(|family| {
            let before = in_use.desired(choice, family);
            let after = emptied.desired(choice, family);
            let (in_zone, elsewhere) = before.ready(zone);
            let (staying, _) = after.ready(zone);
            let is_kept = Kept::of(in_use.service).or(Some(Kept::OnlyThere));
            Some(Self {
                in_zone,
                staying,
                elsewhere,
                before: in_use.load(choice, family)?.busiest,
                after: emptied.load(choice, family)?.busiest,
                kept: is_kept.filter(|_| staying > 0),
            })
            .filter(|_| in_zone > 0)
        });
        all.max_by(|one, other| one.growth().total_cmp(&other.growth()))
    }

    /// How many times as much as before the busiest endpoint gets.
    pub fn growth(&self) -> f64 {
        self.after / self.before
    }
}

/// What emptying a zone means for all Services.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// The most that the busiest endpoint of a Service may get, compared with now, in percent.
    pub limit: u32,
    /// Services with ready endpoints in the zone.
    pub services: u64,
    /// Endpoints of the zone that are taken out of use.
    pub moved: u64,
    /// Ready endpoints of these Services elsewhere.
    pub elsewhere: u64,
    /// The Service whose busiest endpoint grows most, and how many times as much it gets.
    pub highest: Option<(String, Prospect)>,
    /// Services with an endpoint that would get more than the limit.
    pub over: Vec<(String, Prospect)>,
    /// Services with endpoints that stay in use, and why.
    pub kept: Vec<(String, Kept)>,
}

impl Survey {
    /// An empty one.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            services: 0,
            moved: 0,
            elsewhere: 0,
            highest: None,
            over: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Adds a Service.
    pub fn add(&mut self, service: &Service, prospect: Prospect) {
        let key = service.key();
        self.services += 1;
        self.moved += prospect.in_zone - prospect.staying;
        self.elsewhere += prospect.elsewhere;
        if let Some(kept) = prospect.kept {
            self.kept.push((key.clone(), kept));
        }
        if is_over(prospect.growth(), self.limit) {
            self.over.push((key.clone(), prospect));
        }
        let highest = self.highest.as_ref().map_or(0.0, |(_, highest)| highest.growth());
        if prospect.growth() > highest {
            self.highest = Some((key, prospect));
        }
    }
}

/// Whether so many times the load is more than a limit in percent. What only rounding makes of it is not.
fn is_over(growth: f64, limit: u32) -> bool {
    const ROUNDING: f64 = 1e-9;
    growth > f64::from(limit) / 100.0 + ROUNDING
}
