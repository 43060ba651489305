//! How much a Service can lose before zone routing turns off.
//!
//! Endpoints, nodes and zones are removed from a copy of the cluster, and the controller's own
//! functions decide each time.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use serde::Serialize;
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{is_surely_in_force, kept_reason};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::{Choice, Consumers, requested_routing};
use zonewise_slices::slice::{AddressType, Slice, Target};
use zonewise_topology::capacity::{Capacity, MissingCpu};
use zonewise_topology::heuristic::Assignment;
use zonewise_topology::reason::{Code, Reason};
use zonewise_topology::region::Situation;

use crate::change::ControllerView;
use crate::service_snapshot::{gives_up_hints, is_in_force, leading};

/// Which losses leave zone routing on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Margin {
    /// Endpoints lost in one zone.
    pub endpoints: Vec<Loss>,
    /// The first few nodes whose loss alone turns zone routing off.
    pub critical_nodes: Vec<CriticalNode>,
    /// How many such nodes there are.
    pub critical_nodes_in_all: usize,
    /// Zones lost as a whole.
    pub zones: Vec<ZoneLoss>,
}

/// How many endpoints a zone can lose.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// The zone.
    pub zone: String,
    /// How many ready endpoints it has.
    pub has: u64,
    /// Zone routing stays on after losing this many, whichever they are. It may be more if `then` is
    /// absent and `has` is larger, because the search has a limit.
    pub survives: u64,
    /// The reason after losing one more, if it is the worst one to lose; absent if all may be lost, or
    /// if the search ended before.
    pub then: Option<Code>,
}

/// A node whose loss turns zone routing off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticalNode {
    /// The node.
    pub node: String,
    /// The reason without it.
    pub then: Code,
}

/// The loss of a whole zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneLoss {
    /// The zone.
    pub zone: String,
    /// Whether zone routing stays on in the other zones.
    pub survives: bool,
    /// The reason after the loss; absent if zone routing stays on.
    pub then: Option<Code>,
}

/// The largest number of lost endpoints that is tried per zone.
const MAX_LOSSES: usize = 25;
/// The largest number of critical nodes that are named.
const MAX_NODES: usize = 10;
/// The number of zones for which the worst loss is tried. One would do but for rounding.
const MAX_TARGETS: usize = 2;

/// Which losses leave zone routing on; `None` if it is off.
pub(crate) fn margin(view: &ControllerView) -> Option<Margin> {
    if !view.is_on() {
        return None;
    }
    let decision = view.decide();
    let objects = view.objects.after(&decision.plan);
    let settled = ControllerView { objects, ..view.clone() };
    let loads = Loads::of(&settled);
    let numbers = Numbers::of(&settled, &loads);
    let (zones, here) = (zones(&settled), endpoints_by_zone(&settled));
    let mut critical_nodes = critical_nodes(&settled, &loads, numbers.as_ref());
    let critical_nodes_in_all = critical_nodes.len();
    critical_nodes.truncate(MAX_NODES);
    Some(Margin {
        endpoints: zones
            .par_iter()
            .map(|zone| {
                let here = here.get(zone.as_str()).map_or(&[][..], Vec::as_slice);
                endpoints(&settled, &loads, numbers.as_ref(), zone, here)
            })
            .collect(),
        critical_nodes,
        critical_nodes_in_all,
        zones: zones.par_iter().map(|zone| zone_loss(&settled, numbers.as_ref(), zone)).collect(),
    })
}

fn zones(view: &ControllerView) -> Vec<String> {
    let zones = &view.objects.nodes.zones_counted.zones;
    zones.iter().map(|zone| zone.name.to_string()).collect()
}

/// The Pods that are ready endpoints, by zone.
fn endpoints_by_zone(view: &ControllerView) -> BTreeMap<&str, Vec<&Pod>> {
    let mut by_zone: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in view.objects.pods.iter().filter(|pod| is_endpoint(view, pod)) {
        if let Some(zone) = zone_of(view, pod) {
            by_zone.entry(zone).or_default().push(pod);
        }
    }
    by_zone
}

fn zone_of<'a>(view: &'a ControllerView, pod: &Pod) -> Option<&'a str> {
    let node = view.objects.nodes.by_name.get(pod.node.as_ref()?)?;
    node.zone.as_deref()
}

/// Whether a Pod is a ready endpoint.
fn is_endpoint(view: &ControllerView, pod: &Pod) -> bool {
    let ready = view.objects.service.publish_not_ready || (pod.ready && !pod.terminating);
    ready && pod.is_considered()
}

/// A zone or region, in an address family: what a Pod is hinted to, or in the subset of.
type Served = (AddressType, Name);

/// Who uses which Pods. Pods of one zone can serve different ones, so it matters which of them is lost.
struct Loads<'a> {
    /// What each Pod serves.
    of_pod: BTreeMap<&'a str, BTreeSet<Served>>,
    /// How many Pods serve it.
    pods: BTreeMap<Served, u64>,
}

impl<'a> Loads<'a> {
    fn of(view: &'a ControllerView) -> Self {
        let ready = view.objects.pods.iter().filter(|pod| is_endpoint(view, pod));
        let mut of_pod: BTreeMap<&str, BTreeSet<Served>> =
            ready.map(|pod| (&*pod.name, BTreeSet::new())).collect();
        for slice in &view.objects.slices {
            for endpoint in &slice.endpoints {
                let Target::Pod { name, .. } = &endpoint.target else { continue };
                let Some(served) = of_pod.get_mut(&**name) else { continue };
                served.extend(endpoint.zone_hints().iter().map(|zone| at(slice, zone)));
                served.extend(slice.subset().map(|subset| at(slice, subset.label().1)));
            }
        }
        let mut pods = BTreeMap::new();
        for served in of_pod.values().flatten() {
            *pods.entry(served.clone()).or_default() += 1;
        }
        Self { of_pod, pods }
    }

    /// The worst choices of `lost` of these Pods. Hints turn off when the endpoints that are left for one
    /// zone are too few for its traffic. So it is worst to lose those of one zone: of the zone that then
    /// has the most traffic per endpoint. And it matters how many of them are lost in each address family.
    fn worst(&self, view: &ControllerView, here: &[&'a Pod], lost: usize) -> Vec<Vec<&'a str>> {
        let mut counts: BTreeMap<&Served, u64> = BTreeMap::new();
        for served in here.iter().flat_map(|pod| &self.of_pod[&*pod.name]) {
            *counts.entry(served).or_default() += 1;
        }
        let load = |served: &Served, here: u64| {
            share(view, &served.1) / (self.pods[served] - here.min(lost as u64)) as f64
        };
        let mut targets: Vec<(f64, &Served)> =
            counts.into_iter().map(|(served, here)| (load(served, here), served)).collect();
        targets.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut preferred = vec![None];
        for family in &view.objects.service.families {
            let mine = targets.iter().filter(|(_, served)| served.0 == *family);
            preferred.extend(mine.take(MAX_TARGETS).map(|(_, served)| Some(*served)));
        }
        if preferred.len() > 1 {
            preferred.remove(0);
        }
        let choices = preferred.into_iter().flat_map(|served| self.preferring(served, here, lost));
        let choices: BTreeSet<Vec<&str>> = choices.collect();
        choices.into_iter().collect()
    }

    /// The choices of `lost` of these Pods that take those first which serve a zone: one for each way to
    /// divide the loss between Pods of one address family and Pods of two.
    fn preferring(
        &self,
        served: Option<&Served>,
        here: &[&'a Pod],
        lost: usize,
    ) -> Vec<Vec<&'a str>> {
        let mut order: Vec<&'a Pod> = here.to_vec();
        let serves = |pod: &Pod| served.is_some_and(|one| self.of_pod[&*pod.name].contains(one));
        order.sort_by_key(|pod| !serves(pod));
        let (two, one): (Vec<&'a Pod>, Vec<&'a Pod>) =
            order.into_iter().partition(|pod| pod.ips.len() > 1);
        let divisions = lost.saturating_sub(one.len())..=lost.min(two.len());
        let choice = |of_two: usize| {
            let gone = two[..of_two].iter().chain(&one[..lost - of_two]);
            let mut gone: Vec<&'a str> = gone.map(|pod| &*pod.name).collect();
            gone.sort_unstable();
            gone
        };
        divisions.map(choice).collect()
    }
}

fn at(slice: &Slice, zone: &Name) -> Served {
    (slice.family.clone(), Name::clone(zone))
}

/// The part of all traffic that a zone or region sends.
fn share(view: &ControllerView, name: &str) -> f64 {
    let nodes = &view.objects.nodes;
    let known = [&nodes.zones, &nodes.regions_counted].into_iter().find_map(|capacity| {
        let index = capacity.zones.binary_search_by(|zone| (*zone.name).cmp(name)).ok()?;
        Some(capacity.zones[index].share)
    });
    known.unwrap_or(0.0)
}

/// The numbers that the controller decides by, in each address family. They say what a loss does without
/// looking at all objects again.
struct Numbers<'a> {
    choice: Choice,
    families: Vec<FamilyNumbers<'a>>,
}

/// The ready endpoints of one address family.
struct FamilyNumbers<'a> {
    /// The zones or regions of the endpoints, and those that they serve, sorted.
    places: Vec<Name>,
    endpoints: Vec<PlacedPod<'a>>,
}

/// A ready endpoint.
struct PlacedPod<'a> {
    pod: &'a Pod,
    node: &'a Node,
    /// The index of its zone or region.
    place: Option<usize>,
    /// The indices of the zones or regions that it serves.
    serves: Vec<usize>,
}

impl<'a> Numbers<'a> {
    /// `None` where more than these numbers counts: slices of other writers, the way of the reference, measured demand, or
    /// hints that end when the controller decides afresh.
    fn of(view: &'a ControllerView, loads: &Loads<'_>) -> Option<Self> {
        if view.settings.upstream || view.has_foreign_endpoints() {
            return None;
        }
        let objects = &view.objects;
        let slices = objects.own_slices(&view.settings);
        let asked = requested_routing(&objects.service, &view.settings);
        if gives_up_hints(&asked.choice) || objects.measured(&asked).is_some() {
            return None;
        }
        let choice = asked.choice;
        let families = objects.service.families.iter().map(|family| {
            let numbers = FamilyNumbers::of(view, loads, &choice, family);
            let grounds = objects.input(&slices, None).grounds(&choice, family);
            let all = grounds.situation.region().present() == numbers.endpoints.len() as u64;
            all.then_some(numbers)
        });
        let families: Option<Vec<FamilyNumbers<'a>>> = families.collect();
        families.map(|families| Self { choice, families })
    }

    /// The capacity that the controller decides by.
    fn capacity<'n>(&self, nodes: &'n Nodes) -> &'n Capacity {
        nodes.capacity(self.choice.consumers(), None)
    }

    /// The same without some nodes.
    fn capacity_without(&self, view: &ControllerView, gone: impl Fn(&Node) -> bool) -> Capacity {
        let nodes = view.objects.nodes.by_name.values().filter(|node| !gone(node));
        match self.choice.consumers() {
            None => Capacity::of(&nodes.map(Node::in_zone).collect::<Vec<_>>(), view.missing_cpu),
            Some(Consumers::Zones) => {
                Capacity::of(&nodes.map(Node::in_zone).collect::<Vec<_>>(), MissingCpu::CountNodes)
            }
            Some(Consumers::Regions) => {
                let nodes: Vec<_> = nodes.map(Node::in_region).collect();
                Capacity::of(&nodes, MissingCpu::CountNodes)
            }
        }
    }

    /// Whether zone routing is on with this capacity and without some Pods.
    fn is_on(&self, capacity: &Capacity, is_left: impl Fn(&PlacedPod<'_>) -> bool) -> bool {
        is_in_force(leading(self.families.iter().map(|numbers| {
            let left: Vec<&PlacedPod<'_>> =
                numbers.endpoints.iter().filter(|endpoint| is_left(endpoint)).collect();
            let situation = numbers.situation(capacity, &left);
            let placements = numbers.placements(&situation, &left);
            let serving = serving(&placements, &situation);
            if is_surely_in_force(&self.choice, &situation, serving.as_deref()) {
                return Reason::HintsAssigned { moved: 0 };
            }
            let previous = assignment(&placements, &situation);
            kept_reason(&self.choice, &situation, previous.as_ref())
        })))
    }
}

impl<'a> FamilyNumbers<'a> {
    fn of(
        view: &'a ControllerView,
        loads: &Loads<'_>,
        choice: &Choice,
        family: &AddressType,
    ) -> Self {
        let on_node = |pod: &'a Pod| {
            let node = pod.node.as_ref().and_then(|node| view.objects.nodes.by_name.get(node));
            node.map(|node| (pod, node))
        };
        let pods = view.objects.pods.iter().filter_map(|pod| on_node(pod));
        let pods: Vec<(&Pod, &Node)> =
            pods.filter(|(pod, _)| is_endpoint(view, pod) && has_address(pod, family)).collect();
        let serves = |pod: &Pod| {
            let served = loads.of_pod[&*pod.name].iter().filter(|served| served.0 == *family);
            served.map(|served| &served.1).collect::<Vec<_>>()
        };
        let names = |(pod, node): &(&'a Pod, &'a Node)| {
            place_of(node, choice).into_iter().chain(serves(pod)).cloned().collect::<Vec<_>>()
        };
        let places: BTreeSet<Name> = pods.iter().flat_map(names).collect();
        let places: Vec<Name> = places.into_iter().collect();
        let index = |name: &Name| places.binary_search(name).ok();
        let endpoints = pods.into_iter().map(|(pod, node)| PlacedPod {
            pod,
            node,
            place: place_of(node, choice).and_then(index),
            serves: serves(pod).into_iter().filter_map(index).collect(),
        });
        Self { endpoints: endpoints.collect(), places }
    }

    fn situation(&self, capacity: &Capacity, left: &[&PlacedPod<'_>]) -> Situation {
        let mut counts = vec![0; self.places.len()];
        left.iter().filter_map(|endpoint| endpoint.place).for_each(|place| counts[place] += 1);
        let unplaced = left.iter().filter(|endpoint| endpoint.place.is_none()).count();
        let named = self.places.iter().zip(counts).filter(|(_, count)| *count > 0);
        let named = named.map(|(name, count)| (&**name, count));
        Situation::sorted(capacity, named, unplaced as u64)
    }

    /// Where the endpoints are, and what each serves.
    fn placements(&self, situation: &Situation, left: &[&PlacedPod<'_>]) -> Vec<Placement> {
        let number = |name: &str| situation.names.binary_search_by(|one| (**one).cmp(name)).ok();
        let numbers: Vec<Option<usize>> = self.places.iter().map(|name| number(name)).collect();
        let placement = |endpoint: &&PlacedPod<'_>| {
            let serves = endpoint.serves.iter().filter_map(|place| numbers[*place]);
            let mut serves: Vec<u32> = serves.map(|zone| zone as u32).collect();
            serves.sort_unstable();
            Placement { source: endpoint.place.and_then(|place| numbers[place]), serves }
        };
        left.iter().map(placement).collect()
    }
}

/// Where an endpoint is, and what it serves, as numbers of zones or regions.
struct Placement {
    source: Option<usize>,
    serves: Vec<u32>,
}

impl Placement {
    /// The only zone or region that it serves.
    fn single(&self) -> Option<usize> {
        match self.serves[..] {
            [zone] => Some(zone as usize),
            _ => None,
        }
    }
}

/// How many endpoints serve each zone or region if what is in force is kept; `None` if nothing is.
/// Endpoints of which it says nothing serve their own.
fn serving(placements: &[Placement], situation: &Situation) -> Option<Vec<u64>> {
    let mut serving = vec![0; situation.names.len()];
    placements
        .iter()
        .filter_map(|placement| placement.single().or(placement.source))
        .for_each(|zone| serving[zone] += 1);
    placements.iter().any(|placement| placement.single().is_some()).then_some(serving)
}

/// The decision that is in force: the endpoints that serve some zones or regions.
fn assignment(placements: &[Placement], situation: &Situation) -> Option<Assignment> {
    let mut assignment = Assignment::empty(situation.names.len());
    for placement in placements {
        let source = placement.source.unwrap_or(assignment.unplaced());
        assignment.add_list(source, &placement.serves, 1);
    }
    placements.iter().any(|placement| !placement.serves.is_empty()).then_some(assignment)
}

fn has_address(pod: &Pod, family: &AddressType) -> bool {
    pod.ips.iter().any(|ip| AddressType::of(ip) == *family)
}

/// The zone of a node, or its region for subsets of regions.
fn place_of<'a>(node: &'a Node, choice: &Choice) -> Option<&'a Name> {
    match choice.consumers() {
        Some(Consumers::Regions) => node.region.as_ref(),
        Some(Consumers::Zones) | None => node.zone.as_ref(),
    }
}

fn endpoints<'a>(
    view: &ControllerView,
    loads: &Loads<'a>,
    numbers: Option<&Numbers<'_>>,
    zone: &str,
    here: &[&'a Pod],
) -> Loss {
    let (zone, has) = (zone.to_owned(), here.len() as u64);
    for lost in 1..=here.len().min(MAX_LOSSES) {
        for gone in loads.worst(view, here, lost) {
            let is_named = |pod: &&&Pod| gone.binary_search(&&*pod.name).is_ok();
            let gone: Vec<&Pod> = here.iter().filter(is_named).copied().collect();
            // Every endpoint is looked at for every loss: comparing names would take most of the time.
            let is_gone = |pod: &Pod| gone.iter().any(|one| std::ptr::eq(*one, pod));
            let left = || view.without_pods(is_gone);
            let on = match numbers {
                Some(numbers) => {
                    let capacity = numbers.capacity(&view.objects.nodes);
                    numbers.is_on(capacity, |endpoint| !is_gone(endpoint.pod))
                }
                None => left().is_on(),
            };
            if !on {
                let then = Some(left().reason().code());
                return Loss { zone, has, survives: lost as u64 - 1, then };
            }
        }
    }
    Loss { zone, has, survives: has.min(MAX_LOSSES as u64), then: None }
}

/// Nodes whose loss alone turns zone routing off. Nodes that send the same and whose Pods serve the
/// same zones give the same result, so only one of them is tried. Of nodes that do not count, only
/// those with endpoints matter.
fn critical_nodes(
    view: &ControllerView,
    loads: &Loads<'_>,
    numbers: Option<&Numbers<'_>>,
) -> Vec<CriticalNode> {
    let mut served: BTreeMap<&str, Vec<&BTreeSet<Served>>> = BTreeMap::new();
    for pod in view.objects.pods.iter().filter(|pod| is_endpoint(view, pod)) {
        if let Some(node) = pod.node.as_deref() {
            served.entry(node).or_default().push(&loads.of_pod[&*pod.name]);
        }
    }
    served.values_mut().for_each(|pods| pods.sort());
    let mut alike: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
    for node in view.objects.nodes.by_name.values() {
        let (counts, served) = (node.ready && !node.control_plane, served.get(&*node.name));
        if counts || served.is_some() {
            let kind = (&node.zone, &node.region, node.cpu_milli, counts, served);
            alike.entry(kind).or_default().push(node);
        }
    }
    let alike: Vec<Vec<&Node>> = alike.into_values().collect();
    let critical = alike.into_par_iter().filter_map(|nodes| {
        let then = reason_if_off(view, numbers, |node| node.name == nodes[0].name)?;
        Some((nodes, then))
    });
    let critical: Vec<(Vec<&Node>, Code)> = critical.collect();
    let named = critical.into_iter().flat_map(|(nodes, then)| {
        nodes.into_iter().map(move |node| CriticalNode { node: node.name.to_string(), then })
    });
    let mut named: Vec<CriticalNode> = named.collect();
    named.sort_by(|a, b| a.node.cmp(&b.node));
    named
}

fn zone_loss(view: &ControllerView, numbers: Option<&Numbers<'_>>, zone: &str) -> ZoneLoss {
    let then = reason_if_off(view, numbers, |node| node.zone.as_deref() == Some(zone));
    ZoneLoss { zone: zone.into(), survives: then.is_none(), then }
}

/// The reason why zone routing is off without some nodes and the Pods on them; `None` if it stays on.
fn reason_if_off(
    view: &ControllerView,
    numbers: Option<&Numbers<'_>>,
    gone: impl Fn(&Node) -> bool,
) -> Option<Code> {
    let on = numbers.is_some_and(|numbers| {
        numbers.is_on(&numbers.capacity_without(view, &gone), |endpoint| !gone(endpoint.node))
    });
    if on {
        return None;
    }
    let left = view.without_nodes(gone);
    (!left.is_on()).then(|| left.reason().code())
}
