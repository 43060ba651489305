//! How much it takes to turn zone routing off again: what is lost is taken away, piece by piece,
//! and the controller's own functions are asked each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use zonewise_slices::node::Node;
use zonewise_slices::pod::Pod;
use zonewise_topology::reason::Code;

use crate::change::Stage;

/// What zone routing survives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Margin {
    /// Endpoints lost in one zone.
    pub endpoints: Vec<Loss>,
    /// Nodes whose loss, alone, turns it off: the first of them.
    pub critical_nodes: Vec<CriticalNode>,
    /// How many such nodes there are.
    pub critical_nodes_in_all: usize,
    /// Zones lost as a whole.
    pub zones: Vec<ZoneLoss>,
}

/// Endpoints lost in a zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// The zone.
    pub zone: String,
    /// Ready endpoints it has.
    pub has: u64,
    /// So many may go; more where the search ended before.
    pub survives: u64,
    /// What happens with one more; absent if all may go, or if the search ended before.
    pub then: Option<Code>,
}

/// A node that matters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CriticalNode {
    /// The node.
    pub node: String,
    /// What happens without it.
    pub then: Code,
}

/// A zone lost as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneLoss {
    /// The zone.
    pub zone: String,
    /// Whether the others keep their traffic.
    pub survives: bool,
    /// The reason then.
    pub then: Code,
}

/// Losses tried per zone.
const MOST_LOSSES: usize = 25;
/// Nodes named.
const MOST_NODES: usize = 10;

/// How much a stage survives; `None` where nothing is on.
pub fn margin(stage: &Stage) -> Option<Margin> {
    let verdict = stage.judge();
    if !verdict.is_on() {
        return None;
    }
    let scene = stage.scene.after(&verdict.plan);
    let settled = Stage { scene, ..stage.clone() };
    let zones = zones(&settled);
    let mut critical_nodes = critical_nodes(&settled);
    let critical_nodes_in_all = critical_nodes.len();
    critical_nodes.truncate(MOST_NODES);
    Some(Margin {
        endpoints: zones.iter().map(|zone| endpoints(&settled, zone)).collect(),
        critical_nodes,
        critical_nodes_in_all,
        zones: zones.iter().map(|zone| zone_loss(&settled, zone)).collect(),
    })
}

fn zones(stage: &Stage) -> Vec<String> {
    let zones = &stage.scene.nodes.zones_counted.zones;
    zones.iter().map(|zone| zone.name.to_string()).collect()
}

fn zone_of<'a>(stage: &'a Stage, pod: &Pod) -> Option<&'a str> {
    let node = stage.scene.nodes.by_name.get(pod.node.as_ref()?)?;
    node.zone.as_deref()
}

/// Whether a Pod is an endpoint that should get traffic.
fn is_endpoint(stage: &Stage, pod: &Pod) -> bool {
    let ready = stage.scene.service.publish_not_ready || (pod.ready && !pod.terminating);
    ready && pod.is_considered()
}

fn endpoints(stage: &Stage, zone: &str) -> Loss {
    let counts = |pod: &&Arc<Pod>| is_endpoint(stage, pod) && zone_of(stage, pod) == Some(zone);
    let here: Vec<&str> = stage.scene.pods.iter().filter(counts).map(|pod| &*pod.name).collect();
    let mut survives = 0;
    for lost in 1..=here.len().min(MOST_LOSSES) {
        let gone: BTreeSet<&str> = here[..lost].iter().copied().collect();
        let verdict = stage.without_pods(|pod| gone.contains(&*pod.name)).judge();
        if !verdict.is_on() {
            let then = Some(verdict.reason().code());
            return Loss { zone: zone.into(), has: here.len() as u64, survives, then };
        }
        survives = lost as u64;
    }
    Loss { zone: zone.into(), has: here.len() as u64, survives, then: None }
}

/// Nodes that are alike (zone, CPU, endpoints) need one try together.
fn critical_nodes(stage: &Stage) -> Vec<CriticalNode> {
    let mut load: BTreeMap<&str, u64> = BTreeMap::new();
    let ready = stage.scene.pods.iter().filter(|pod| is_endpoint(stage, pod));
    for node in ready.filter_map(|pod| pod.node.as_deref()) {
        *load.entry(node).or_default() += 1;
    }
    let mut alike: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
    for node in stage.scene.nodes.by_name.values().filter(|node| node.ready) {
        let kind = (&node.zone, node.cpu_milli, load.get(&*node.name), node.control_plane);
        alike.entry(kind).or_default().push(node);
    }
    let critical = alike.into_values().filter_map(|nodes| {
        let verdict = stage.without_nodes(|node| node.name == nodes[0].name).judge();
        (!verdict.is_on()).then(|| (nodes, verdict.reason().code()))
    });
    let named = critical.flat_map(|(nodes, then)| {
        nodes.into_iter().map(move |node| CriticalNode { node: node.name.to_string(), then })
    });
    let mut named: Vec<CriticalNode> = named.collect();
    named.sort_by(|a, b| a.node.cmp(&b.node));
    named
}

fn zone_loss(stage: &Stage, zone: &str) -> ZoneLoss {
    let verdict = stage.without_nodes(|node| node.zone.as_deref() == Some(zone)).judge();
    ZoneLoss { zone: zone.into(), survives: verdict.is_on(), then: verdict.reason().code() }
}
