//! Where traffic goes, from every zone to every zone, and how much load each endpoint gets.
//!
//! Like the controller, it assumes that zones send traffic in proportion to the capacity of their
//! nodes. The proxy's own function routes the traffic of each zone; or of each node, if it matters
//! which node of a zone sends (node hints, traffic policy Local).

use std::collections::BTreeMap;

use serde::Serialize;
use zonewise_routing::{FeatureGates, NodeLocation, Route, Target, TrafficPolicy};
use zonewise_slices::node::{Node, Nodes};
use zonewise_topology::capacity::{Basis, Capacity, ZoneCapacity};
use zonewise_topology::reason::Code;

use crate::proxy_view::{NodeView, PortRoute, ProxyView};

/// Traffic of one port of a Service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// The Service.
    pub service: String,
    /// The port's name.
    pub port: String,
    /// Its protocol.
    pub protocol: String,
    /// The address family.
    pub family: String,
    /// One row per zone that sends traffic.
    pub from: Vec<Row>,
    /// The part of all traffic that stays in its zone; absent if some zone reaches no endpoint.
    pub in_zone: Option<f64>,
    /// The load of each endpoint.
    pub endpoints: Vec<Load>,
}

/// Traffic from one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The zone.
    pub zone: String,
    /// Its part of all traffic.
    pub share: f64,
    /// How close its traffic is kept. If the nodes of the zone differ, that of the first one.
    pub mode: String,
    /// The reason's code.
    pub reason: Code,
    /// Parts of its traffic by the zone of the endpoint; the empty name stands for no zone.
    pub to: BTreeMap<String, f64>,
}

/// The load of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Its address and port.
    pub endpoint: String,
    /// Its zone.
    pub zone: String,
    /// Its load compared with an equal share for all endpoints: 0.5 is 50 % more, −0.5 is half.
    pub overload: f64,
}

/// A zone or node that sends traffic.
struct Sender {
    location: NodeLocation,
    zone: String,
    /// Its part of all traffic.
    share: f64,
}

/// The matrices of a Service, one per port and address family.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn matrices(
    proxy_view: &ProxyView<'_>,
    nodes: &Nodes,
    gates: &FeatureGates,
) -> Result<Vec<Matrix>, serde_json::Error> {
    let mut sums: Vec<Sums> = Vec::new();
    for sender in senders(proxy_view, nodes)? {
        let node_view = proxy_view.from(sender.location.clone())?;
        for (index, routed) in node_view.routes(gates).into_iter().enumerate() {
            if sums.len() <= index {
                sums.push(Sums::new(&node_view, &routed));
            }
            sums[index].add(&node_view, &sender, &routed.route);
        }
    }
    Ok(sums.into_iter().map(Sums::finish).collect())
}

/// The capacity that the controller decides by. If the controller refuses it because of nodes without
/// CPU, nodes are counted instead: they send traffic all the same.
fn capacity(nodes: &Nodes) -> &Capacity {
    let refused = nodes.zones.zones.is_empty() || nodes.zones.unusable_nodes() > 0;
    if refused { &nodes.zones_counted } else { &nodes.zones }
}

/// The senders: zones; or nodes, where it matters which node of a zone sends.
fn senders(proxy_view: &ProxyView<'_>, nodes: &Nodes) -> Result<Vec<Sender>, serde_json::Error> {
    let capacity = capacity(nodes);
    let hinted = || proxy_view.slices.iter().any(|json| json.contains("\"forNodes\""));
    if proxy_view.is_local()? || hinted() {
        let left_out = |node: &Node| capacity.left_out.iter().any(|left| *left.node == *node.name);
        let counted = nodes.by_name.values().filter(|node| !left_out(node));
        return Ok(counted.filter_map(|node| sender(node, capacity)).collect());
    }
    let zone = |zone: &ZoneCapacity| Sender {
        location: location_in(nodes, &zone.name),
        zone: zone.name.to_string(),
        share: zone.share,
    };
    Ok(capacity.zones.iter().map(zone).collect())
}

/// A node, with its part of the traffic of its zone.
fn sender(node: &Node, capacity: &Capacity) -> Option<Sender> {
    let zone = capacity.zones.iter().find(|zone| Some(&*zone.name) == node.zone.as_deref())?;
    let part = match capacity.basis {
        Basis::Cpu => node.cpu_milli.unwrap_or(0) as f64 / zone.cpu_milli as f64,
        Basis::Nodes => 1.0 / zone.nodes as f64,
    };
    Some(Sender {
        location: location_of(node),
        zone: zone.name.to_string(),
        share: zone.share * part,
    })
}

/// The location of a node.
pub(crate) fn location_of(node: &Node) -> NodeLocation {
    NodeLocation::new(&node.name, node.zone.as_deref(), node.region.as_deref())
}

/// The location of an imaginary node in a zone. No endpoint runs on it.
pub fn location_in(nodes: &Nodes, zone: &str) -> NodeLocation {
    let same = |node: &&Node| node.zone.as_deref() == Some(zone);
    let region = nodes.by_name.values().find(same).and_then(|node| node.region.clone());
    NodeLocation::new("", Some(zone), region.as_deref())
}

/// A matrix while senders are added to it.
struct Sums {
    matrix: Matrix,
    /// The zone and load of each endpoint; the load is a part of all traffic.
    loads: BTreeMap<String, (String, f64)>,
    /// The traffic that reaches an endpoint.
    arrived: f64,
    sent: f64,
}

impl Sums {
    fn new(node_view: &NodeView, routed: &PortRoute<'_>) -> Self {
        let matrix = Matrix {
            service: format!("{}/{}", node_view.service.namespace, node_view.service.name),
            port: routed.port.name.to_string(),
            protocol: routed.port.protocol.to_string(),
            family: routed.family.to_string(),
            from: Vec::new(),
            in_zone: None,
            endpoints: Vec::new(),
        };
        // Ready endpoints that get no traffic are listed too, with a load of 0.
        let ready = node_view.ready(routed.port, routed.family).into_iter();
        let loads = ready.map(|target| (target.to_string(), (node_view.zone_of(&target), 0.0)));
        Self { matrix, loads: loads.collect(), arrived: 0.0, sent: 0.0 }
    }

    fn add(&mut self, node_view: &NodeView, sender: &Sender, route: &Route) {
        let index = self.row(sender, route);
        let row = &mut self.matrix.from[index];
        row.share += sender.share;
        self.sent += sender.share;
        for (target, part) in parts(node_view, route) {
            let zone = node_view.zone_of(target);
            *row.to.entry(zone.clone()).or_default() += part * sender.share;
            self.arrived += part * sender.share;
            self.loads.entry(target.to_string()).or_insert((zone, 0.0)).1 += part * sender.share;
        }
    }

    fn row(&mut self, sender: &Sender, route: &Route) -> usize {
        let rows = &mut self.matrix.from;
        rows.iter().position(|row| row.zone == sender.zone).unwrap_or_else(|| {
            rows.push(Row {
                zone: sender.zone.clone(),
                share: 0.0,
                mode: route.mode.to_string(),
                reason: route.reason.code(),
                to: BTreeMap::new(),
            });
            rows.len() - 1
        })
    }

    fn finish(mut self) -> Matrix {
        let fair = if self.loads.is_empty() { 1.0 } else { 1.0 / self.loads.len() as f64 };
        let load = |(endpoint, (zone, load)): (String, (String, f64))| Load {
            endpoint,
            zone,
            overload: round(load / fair - 1.0),
        };
        self.matrix.endpoints = self.loads.into_iter().map(load).collect();
        let home = |row: &Row| row.to.get(&row.zone).copied().unwrap_or(0.0);
        let in_zone: f64 = self.matrix.from.iter().map(home).sum();
        let all = self.sent > 0.0 && self.arrived > self.sent * 0.999;
        self.matrix.in_zone = all.then(|| round(in_zone / self.sent));
        for row in &mut self.matrix.from {
            let share = row.share;
            row.to.values_mut().for_each(|part| *part = round(*part / share));
            row.share = round(share);
        }
        self.matrix
    }
}

/// The endpoints for traffic to the cluster IP, each with its part of the traffic.
fn parts<'r>(node_view: &NodeView, route: &'r Route) -> Vec<(&'r Target, f64)> {
    let targets = match node_view.service.internal_policy {
        TrafficPolicy::Cluster => route.cluster.as_deref().unwrap_or_default(),
        TrafficPolicy::Local => route.local.as_deref().unwrap_or_default(),
    };
    match (&route.weights, node_view.service.internal_policy) {
        (Some(weights), TrafficPolicy::Cluster) => {
            let all: f64 = weights.iter().copied().map(f64::from).sum();
            targets
                .iter()
                .zip(weights)
                .map(|(one, weight)| (one, f64::from(*weight) / all))
                .collect()
        }
        _ => targets.iter().map(|one| (one, 1.0 / targets.len() as f64)).collect(),
    }
}

/// Rounds to six places, so that the rounding errors of sums do not show.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
