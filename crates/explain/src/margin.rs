//! How much a Service can lose before zone routing turns off.
//!
//! Endpoints, nodes and zones are removed from a copy of the cluster, and the controller's own
//! functions decide each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_topology::reason::Code;

use crate::change::ControllerView;

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
    /// Zone routing stays on after losing this many. It may be more if `then` is absent and `has` is
    /// larger, because the search has a limit.
    pub survives: u64,
    /// The reason after losing one more; absent if all may be lost, or if the search ended before.
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
    /// The reason after the loss.
    pub then: Code,
}

/// The largest number of lost endpoints that is tried per zone.
const MAX_LOSSES: usize = 25;
/// The largest number of critical nodes that are named.
const MAX_NODES: usize = 10;

/// Which losses leave zone routing on; `None` if it is off.
pub(crate) fn margin(view: &ControllerView) -> Option<Margin> {
    let decision = view.decide();
    if !decision.is_on() {
        return None;
    }
    let objects = view.objects.after(&decision.plan);
    let settled = ControllerView { objects, ..view.clone() };
    let zones = zones(&settled);
    let mut critical_nodes = critical_nodes(&settled);
    let critical_nodes_in_all = critical_nodes.len();
    critical_nodes.truncate(MAX_NODES);
    Some(Margin {
        endpoints: zones.iter().map(|zone| endpoints(&settled, zone)).collect(),
        critical_nodes,
        critical_nodes_in_all,
        zones: zones.iter().map(|zone| zone_loss(&settled, zone)).collect(),
    })
}

fn zones(view: &ControllerView) -> Vec<String> {
    let zones = &view.objects.nodes.zones_counted.zones;
    zones.iter().map(|zone| zone.name.to_string()).collect()
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

fn endpoints(view: &ControllerView, zone: &str) -> Loss {
    let counts = |pod: &&Arc<Pod>| is_endpoint(view, pod) && zone_of(view, pod) == Some(zone);
    let here: Vec<&str> = view.objects.pods.iter().filter(counts).map(|pod| &*pod.name).collect();
    let mut survives = 0;
    for lost in 1..=here.len().min(MAX_LOSSES) {
        let gone: BTreeSet<&str> = here[..lost].iter().copied().collect();
        let decision = view.without_pods(|pod| gone.contains(&*pod.name)).decide();
        if !decision.is_on() {
            let then = Some(decision.reason().code());
            return Loss { zone: zone.into(), has: here.len() as u64, survives, then };
        }
        survives = lost as u64;
    }
    Loss { zone: zone.into(), has: here.len() as u64, survives, then: None }
}

/// Nodes whose loss alone turns zone routing off. Nodes with the same zone, CPU and number of endpoints
/// give the same result, so only one of them is tried.
fn critical_nodes(view: &ControllerView) -> Vec<CriticalNode> {
    let mut load: BTreeMap<&str, u64> = BTreeMap::new();
    let ready = view.objects.pods.iter().filter(|pod| is_endpoint(view, pod));
    for node in ready.filter_map(|pod| pod.node.as_deref()) {
        *load.entry(node).or_default() += 1;
    }
    let mut alike: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
    for node in view.objects.nodes.by_name.values().filter(|node| node.ready) {
        let kind = (&node.zone, node.cpu_milli, load.get(&*node.name), node.control_plane);
        alike.entry(kind).or_default().push(node);
    }
    let critical = alike.into_values().filter_map(|nodes| {
        let decision = view.without_nodes(|node| node.name == nodes[0].name).decide();
        (!decision.is_on()).then(|| (nodes, decision.reason().code()))
    });
    let named = critical.flat_map(|(nodes, then)| {
        nodes.into_iter().map(move |node| CriticalNode { node: node.name.to_string(), then })
    });
    let mut named: Vec<CriticalNode> = named.collect();
    named.sort_by(|a, b| a.node.cmp(&b.node));
    named
}

fn zone_loss(view: &ControllerView, zone: &str) -> ZoneLoss {
    let decision = view.without_nodes(|node| node.zone.as_deref() == Some(zone)).decide();
    ZoneLoss { zone: zone.into(), survives: decision.is_on(), then: decision.reason().code() }
}
