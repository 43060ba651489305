//! Where traffic goes, from every zone to every zone, and how much load each endpoint gets.
//!
//! Like the controller, it assumes that zones send traffic in proportion to the capacity of their
//! nodes. The proxy's own function routes the traffic of each zone; or of each node, if it matters
//! which node of a zone sends (node hints, traffic policy Local).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use zonewise_routing::{FeatureGates, Mode, NodeLocation, Route, Target, TrafficPolicy};
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::Capacity;
use zonewise_topology::reason::{Code, Reason};

use crate::environment::NodeProxies;
use crate::proxy_view::{NodeView, PortRoute, ProxyView, Weights};

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
    /// The part of all traffic that is dropped, because the node that it starts on may use no endpoint.
    pub dropped: f64,
    /// The nodes that drop it, where nodes of one zone can differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropping_nodes: Vec<String>,
    /// The load of each endpoint.
    pub endpoints: Vec<Load>,
}

impl Matrix {
    /// Whether traffic stays on its node: `internalTrafficPolicy` is Local.
    pub(crate) fn is_local(&self) -> bool {
        self.from.iter().all(|row| row.mode == LOCAL)
    }

    /// The overload of the most loaded endpoint.
    pub(crate) fn max_overload(&self) -> Option<f64> {
        self.endpoints.iter().map(|load| load.overload).max_by(f64::total_cmp)
    }
}

/// Traffic from one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The zone.
    pub zone: String,
    /// Its part of all traffic.
    pub share: f64,
    /// How close its traffic is kept. If the nodes of the zone differ, all modes with commas between
    /// them, the closest first.
    pub mode: String,
    /// The reason's code; that of the closest mode.
    pub reason: Code,
    /// What the nodes of the zone do, if they differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
    /// Parts of its traffic by the zone of the endpoint; the empty name stands for no zone.
    pub to: BTreeMap<String, f64>,
    /// The part of its traffic that is dropped.
    pub dropped: f64,
    /// The reason with its figures.
    #[serde(skip)]
    pub(crate) why: Reason,
    /// The number of endpoints that its nodes use.
    #[serde(skip)]
    pub(crate) used: u64,
    /// The overload of the most loaded endpoint that its nodes use.
    #[serde(skip)]
    pub(crate) highest_overload: Option<f64>,
}

/// What a part of the nodes of a zone do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Way {
    /// How close they keep traffic.
    pub mode: String,
    /// Why.
    pub reason: Code,
    /// Their part of the zone's traffic.
    pub part: f64,
}

/// The load of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Its address and port.
    pub endpoint: String,
    /// Its zone.
    pub zone: String,
    /// Its load compared with its fair share, which is the same for all endpoints, or follows the CPU that their Pods
    /// request where the Service asks for that: 0.5 is 50 % more, −0.5 is half.
    pub overload: f64,
}

/// What the rows of a matrix are.
#[derive(Clone, Copy)]
pub(crate) enum Grouping<'a> {
    /// Zones.
    Zones,
    /// Regions, with the region of each endpoint.
    Regions(&'a BTreeMap<IpAddr, String>),
}

impl Grouping<'_> {
    /// The zone or region of an endpoint; empty if it has none.
    fn of(self, node_view: &NodeView, target: &Target) -> String {
        match self {
            Self::Zones => node_view.zone_of(target),
            Self::Regions(regions) => regions.get(&target.address).cloned().unwrap_or_default(),
        }
    }
}

/// Nodes that send traffic.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SenderKey {
    /// The zone or region whose row the traffic is in.
    row: String,
    zone: Option<String>,
    region: Option<String>,
    /// The node; empty if it does not matter which one.
    node: String,
    /// What its proxy uses, for each set of proxies that is asked about.
    gates: Vec<FeatureGates>,
}

/// The proxies of all nodes: which parts of slices each uses.
#[derive(Clone, Copy)]
pub(crate) enum Routers<'a> {
    /// The same on every node.
    Same(FeatureGates),
    /// Proxies of several kinds, and the Service that they route.
    Mixed(&'a NodeProxies, &'a Service),
}

impl Routers<'_> {
    fn on(self, node: &Node) -> FeatureGates {
        match self {
            Self::Same(gates) => gates,
            Self::Mixed(proxies, service) => {
                proxies.of(&node.name).unwrap_or_default().gates(service)
            }
        }
    }
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
    let all = matrices_for(proxy_view, nodes, &[Routers::Same(*gates)], Grouping::Zones)?;
    Ok(all.into_iter().flatten().collect())
}

/// The matrices of a Service with the proxies that nodes have. All of them must be known.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn matrices_of_nodes(
    proxy_view: &ProxyView<'_>,
    nodes: &Nodes,
    service: &Service,
    proxies: &NodeProxies,
) -> Result<Vec<Matrix>, serde_json::Error> {
    let routers = [Routers::Mixed(proxies, service)];
    let all = matrices_for(proxy_view, nodes, &routers, Grouping::Zones)?;
    Ok(all.into_iter().flatten().collect())
}

/// The matrices of a Service for several sets of proxies.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub(crate) fn matrices_for(
    proxy_view: &ProxyView<'_>,
    nodes: &Nodes,
    routers: &[Routers<'_>],
    grouping: Grouping<'_>,
) -> Result<Vec<Vec<Matrix>>, serde_json::Error> {
    let parsed = proxy_view.parsed()?;
    let mut sums: Vec<Vec<Sums>> = routers.iter().map(|_| Vec::new()).collect();
    let mut last = None;
    for (sender, share) in senders(proxy_view, nodes, routers, grouping)? {
        let (zone, region) = (sender.zone.as_deref(), sender.region.as_deref());
        let location = NodeLocation::new(&sender.node, zone, region);
        let node_view = parsed.from(location, last.as_ref())?;
        for (gates, sums) in sender.gates.iter().zip(&mut sums) {
            for (index, routed) in node_view.routes(gates).into_iter().enumerate() {
                if sums.len() <= index {
                    sums.push(Sums::new(&node_view, &routed, grouping));
                }
                sums[index].add(&node_view, &sender, share, &routed.route, grouping);
            }
        }
        last = Some(node_view);
    }
    let weights = proxy_view.weights.as_ref();
    let finish = |sums: Vec<Sums>| sums.into_iter().map(|sums| sums.finish(weights)).collect();
    Ok(sums.into_iter().map(finish).collect())
}

/// The senders, each with its part of all traffic: the nodes that count. Those at the same place are
/// one sender, unless it matters which node sends.
fn senders(
    proxy_view: &ProxyView<'_>,
    nodes: &Nodes,
    routers: &[Routers<'_>],
    grouping: Grouping<'_>,
) -> Result<BTreeMap<SenderKey, f64>, serde_json::Error> {
    let hinted = || proxy_view.slices.iter().any(|json| json.contains("\"forNodes\""));
    let each_node = proxy_view.is_local()? || hinted();
    let capacity = match grouping {
        Grouping::Zones => &nodes.zones,
        Grouping::Regions(_) => &nodes.regions_counted,
    };
    let left_out: BTreeSet<&str> = capacity.left_out.iter().map(|left| &*left.node).collect();
    let mut senders = BTreeMap::new();
    for node in nodes.by_name.values().filter(|node| !left_out.contains(&*node.name)) {
        let row = match grouping {
            Grouping::Zones => &node.zone,
            Grouping::Regions(_) => &node.region,
        };
        let Some(row) = row else { continue };
        let key = SenderKey {
            row: row.to_string(),
            zone: node.zone.as_ref().map(ToString::to_string),
            region: node.region.as_ref().map(ToString::to_string),
            node: if each_node { node.name.to_string() } else { String::new() },
            gates: routers.iter().map(|routers| routers.on(node)).collect(),
        };
        *senders.entry(key).or_default() += share(node, row, capacity);
    }
    Ok(senders)
}

/// The part of all traffic that a node sends.
fn share(node: &Node, row: &str, capacity: &Capacity) -> f64 {
    let Ok(index) = capacity.zones.binary_search_by(|zone| (*zone.name).cmp(row)) else {
        return 0.0;
    };
    capacity.share_of_node(&capacity.zones[index], node.cpu_milli)
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
    rows: Vec<RowSums>,
    index: BTreeMap<(IpAddr, u16), usize>,
    endpoints: Vec<EndpointSums>,
}

/// Traffic from one zone.
struct RowSums {
    zone: String,
    /// Its part of all traffic.
    share: f64,
    /// What its nodes do, and which part of all traffic they send.
    ways: BTreeMap<(RowMode, Code), (Reason, f64)>,
    /// The part of all traffic that it sends to each endpoint.
    to: Vec<f64>,
    /// The part of all traffic that it sends and that reaches no endpoint.
    dropped: f64,
}

/// How close nodes keep traffic to the cluster IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RowMode {
    /// On the node itself, whatever hints say: `internalTrafficPolicy` is Local.
    Local,
    /// As the route says.
    Routed(Mode),
}

impl RowMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Local => LOCAL,
            Self::Routed(mode) => mode.as_str(),
        }
    }
}

/// The mode of nodes that use their own endpoints only.
pub(crate) const LOCAL: &str = "local";

/// How close a node keeps traffic to the cluster IP, and why. A Service with the policy Local for that
/// traffic can have a route for other traffic too.
fn way(node_view: &NodeView, route: &Route, used: &[(&Target, f64)]) -> (RowMode, Reason) {
    let endpoints = used.len() as u64;
    let reason = match node_view.service.internal_policy {
        TrafficPolicy::Cluster => return (RowMode::Routed(route.mode), route.reason),
        TrafficPolicy::Local if used.is_empty() => Reason::NoLocalEndpoint,
        TrafficPolicy::Local if used.iter().all(|(target, _)| target.flags.ready()) => {
            Reason::LocalOnly { endpoints }
        }
        TrafficPolicy::Local => Reason::OnlyTerminating { endpoints },
    };
    (RowMode::Local, reason)
}

/// The name of how close a route keeps traffic.
pub(crate) fn mode_name(route: &Route) -> &'static str {
    match route.reason.code() {
        Code::LocalOnly | Code::NoLocalEndpoint => LOCAL,
        _ => route.mode.as_str(),
    }
}

/// An endpoint, with its part of all traffic.
struct EndpointSums {
    text: String,
    address: IpAddr,
    zone: String,
    load: f64,
}

impl Sums {
    fn new(node_view: &NodeView, routed: &PortRoute<'_>, grouping: Grouping<'_>) -> Self {
        let matrix = Matrix {
            service: format!("{}/{}", node_view.service.namespace, node_view.service.name),
            port: routed.port.name.to_string(),
            protocol: routed.port.protocol.to_string(),
            family: routed.family.to_string(),
            from: Vec::new(),
            in_zone: None,
            dropped: 0.0,
            dropping_nodes: Vec::new(),
            endpoints: Vec::new(),
        };
        let (index, endpoints) = (BTreeMap::new(), Vec::new());
        let mut sums = Self { matrix, rows: Vec::new(), index, endpoints };
        // Ready endpoints that get no traffic are listed too, with a load of 0.
        for target in node_view.ready(routed.port, routed.family) {
            sums.endpoint(node_view, &target, grouping);
        }
        sums
    }

    /// The number of an endpoint.
    fn endpoint(&mut self, node_view: &NodeView, target: &Target, grouping: Grouping<'_>) -> usize {
        *self.index.entry((target.address, target.port)).or_insert_with(|| {
            let zone = grouping.of(node_view, target);
            let (text, address) = (target.to_string(), target.address);
            self.endpoints.push(EndpointSums { text, address, zone, load: 0.0 });
            self.endpoints.len() - 1
        })
    }

    fn add(
        &mut self,
        node_view: &NodeView,
        sender: &SenderKey,
        share: f64,
        route: &Route,
        grouping: Grouping<'_>,
    ) {
        let index = self.row(&sender.row);
        self.rows[index].share += share;
        let parts = parts(node_view, route);
        let (mode, reason) = way(node_view, route, &parts);
        let way = self.rows[index].ways.entry((mode, reason.code()));
        way.or_insert((reason, 0.0)).1 += share;
        if parts.is_empty() && share > 0.0 {
            self.rows[index].dropped += share;
            self.matrix
                .dropping_nodes
                .extend(Some(&sender.node).filter(|node| !node.is_empty()).cloned());
        }
        for (target, part) in parts {
            let endpoint = self.endpoint(node_view, target, grouping);
            self.endpoints[endpoint].load += part * share;
            let to = &mut self.rows[index].to;
            to.resize(to.len().max(endpoint + 1), 0.0);
            to[endpoint] += part * share;
        }
    }

    fn row(&mut self, zone: &str) -> usize {
        let known = self.rows.iter().rposition(|row| row.zone == zone);
        known.unwrap_or_else(|| {
            let zone = zone.to_owned();
            let (ways, to) = (BTreeMap::new(), Vec::new());
            self.rows.push(RowSums { zone, share: 0.0, ways, to, dropped: 0.0 });
            self.rows.len() - 1
        })
    }

    fn finish(self, weights: Option<&Weights>) -> Matrix {
        let Self { matrix, rows, endpoints, .. } = self;
        let weight =
            |one: &EndpointSums| weights.map_or(1.0, |all| all.at(&one.address, &one.zone));
        let together: f64 = endpoints.iter().map(weight).sum();
        let fair = |endpoint: &EndpointSums| weight(endpoint) / together;
        let sent: f64 = rows.iter().map(|row| row.share).sum();
        let arrived: f64 = endpoints.iter().map(|endpoint| endpoint.load).sum();
        let overloads: Vec<f64> =
            endpoints.iter().map(|one| round(one.load / fair(one) - 1.0)).collect();
        let in_zone: f64 = rows.iter().map(|row| row.at_home(&endpoints)).sum();
        let dropped: f64 = rows.iter().map(|row| row.dropped).sum();
        let from = rows.into_iter().filter_map(|row| row.finish(&endpoints, &overloads)).collect();
        let load = |(endpoint, overload): (EndpointSums, f64)| Load {
            endpoint: endpoint.text,
            zone: endpoint.zone,
            overload,
        };
        let mut loads: Vec<Load> = endpoints.into_iter().zip(overloads).map(load).collect();
        loads.sort_by(|a, b| a.endpoint.cmp(&b.endpoint));
        let all = sent > 0.0 && arrived > sent * 0.999;
        Matrix {
            from,
            in_zone: all.then(|| round(in_zone / sent)),
            dropped: if sent > 0.0 { round(dropped / sent) } else { 0.0 },
            endpoints: loads,
            ..matrix
        }
    }
}

impl RowSums {
    /// The part of all traffic that stays in this zone.
    fn at_home(&self, endpoints: &[EndpointSums]) -> f64 {
        let here = self.to.iter().zip(endpoints).filter(|(_, one)| one.zone == self.zone);
        here.map(|(part, _)| part).sum()
    }

    /// The row; `None` if nobody sends.
    fn finish(self, endpoints: &[EndpointSums], overloads: &[f64]) -> Option<Row> {
        let mut to: BTreeMap<String, f64> = BTreeMap::new();
        for (part, endpoint) in self.to.iter().zip(endpoints).filter(|(part, _)| **part > 0.0) {
            match to.get_mut(&endpoint.zone) {
                Some(sum) => *sum += part / self.share,
                None => {
                    to.insert(endpoint.zone.clone(), part / self.share);
                }
            }
        }
        to.values_mut().for_each(|part| *part = round(*part));
        let used = self.to.iter().zip(overloads).filter(|(part, _)| **part > 0.0);
        let mut modes: Vec<&str> = self.ways.keys().map(|(mode, _)| mode.as_str()).collect();
        modes.dedup();
        let mut ways = Vec::new();
        for ((mode, code), (_, part)) in self.ways.iter().filter(|_| self.ways.len() > 1) {
            let part = round(part / self.share);
            ways.push(Way { mode: mode.as_str().to_owned(), reason: *code, part });
        }
        let (_, (why, _)) = self.ways.first_key_value()?;
        Some(Row {
            share: round(self.share),
            dropped: if self.share > 0.0 { round(self.dropped / self.share) } else { 0.0 },
            mode: modes.join(","),
            reason: why.code(),
            ways,
            to,
            why: *why,
            used: used.clone().count() as u64,
            highest_overload: used.map(|(_, overload)| *overload).reduce(f64::max),
            zone: self.zone,
        })
    }
}

impl Row {
    /// The part of the zone's traffic that stays in it.
    pub(crate) fn at_home(&self) -> f64 {
        self.to.get(&self.zone).copied().unwrap_or(0.0)
    }

    /// Whether some node keeps its traffic closer than it would without zone routing.
    pub(crate) fn is_near(&self) -> bool {
        self.mode.split(',').any(is_near)
    }

    /// Whether every node of the zone does.
    pub(crate) fn is_near_everywhere(&self) -> bool {
        self.mode.split(',').all(is_near)
    }
}

/// Whether a mode keeps traffic closer than without zone routing.
fn is_near(mode: &str) -> bool {
    ![Mode::Any.as_str(), Mode::Terminating.as_str(), LOCAL].contains(&mode)
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
