//! Nodes whose proxies count connections to one Service and report them.

use std::collections::BTreeMap;

use zonewise_demand::Millis;
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_demand::shares::Decision;
use zonewise_demand::state::State;
use zonewise_demand::window::{NotCounted, Window};
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};

/// The Service.
pub(crate) const WEB: &str = "shop/web";

/// Between two decisions.
pub(crate) const INTERVAL: Millis = 15_000;

/// When every test begins.
pub(crate) const START: Millis = 1_763_430_000_000;

/// A node with its proxy.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) zone: String,
    pub(crate) cpu_milli: u64,
    /// Connections to the Service.
    pub(crate) total: u64,
    pub(crate) started: u64,
    pub(crate) sequence: u64,
}

/// Nodes, and the controller's side.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    pub(crate) window: Window,
    pub(crate) state: State,
    pub(crate) now: Millis,
}

impl Fleet {
    /// Nodes by zone and cores. They are named after their zone: `a-0`, `a-1`, `b-2`.
    pub(crate) fn new(nodes: &[(&str, u64)]) -> Self {
        let node = |(number, (zone, cores)): (usize, &(&str, u64))| Node {
            name: format!("{zone}-{number}"),
            zone: (*zone).to_owned(),
            cpu_milli: cores * 1000,
            total: 1_000_000,
            started: 7,
            sequence: 0,
        };
        let nodes = nodes.iter().enumerate().map(node).collect();
        let mut fleet = Self { nodes, window: Window::new(), state: State::default(), now: START };
        fleet.begin();
        fleet
    }

    /// Three zones with so many nodes of four cores each.
    pub(crate) fn three_zones(nodes: usize) -> Self {
        let zones = ["a", "b", "c"].into_iter();
        let all: Vec<_> = zones.flat_map(|zone| vec![(zone, 4); nodes]).collect();
        Self::new(&all)
    }

    /// A window that knows the nodes and the Service, and nothing else.
    fn begin(&mut self) {
        self.window = Window::new();
        self.window.set_services([WEB].into_iter());
        self.set_nodes();
    }

    pub(crate) fn set_nodes(&mut self) {
        let nodes = capacities(&self.nodes);
        self.window.set_nodes(&nodes);
    }

    /// Another replica leads: it has what is stored, and nothing else.
    pub(crate) fn change_leader(&mut self) {
        self.state = State::decode(&self.state.encode()).unwrap();
        self.begin();
    }

    pub(crate) fn model(&self) -> Capacity {
        Capacity::of(&capacities(&self.nodes), MissingCpu::Refuse)
    }

    /// The next report of a node.
    pub(crate) fn report(&mut self, node: usize) -> Report {
        let node = &mut self.nodes[node];
        node.sequence += 1;
        report(node, &[(WEB, node.total)])
    }

    /// The next report of a node arrives.
    pub(crate) fn deliver(&mut self, node: usize) -> Result<(), NotCounted> {
        let (name, report) = (self.nodes[node].name.clone(), self.report(node));
        self.window.add(&name, &report, self.now)
    }

    pub(crate) fn deliver_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.deliver(node).unwrap();
        }
    }

    /// Connections per second by zone, and the sample, as the window has them now.
    pub(crate) fn rates(&mut self) -> (Vec<f64>, u64) {
        let model = self.model();
        let measurement = self.window.measure(&model, self.now);
        let measured = measurement.of(WEB).unwrap();
        (measured.rates.to_vec(), measured.sample)
    }

    /// Decides, with the reports that have arrived.
    pub(crate) fn decide(&mut self) -> Decision {
        let model = self.model();
        let measurement = self.window.measure(&model, self.now);
        let mut decisions = self.state.decide(&model, &measurement, self.now);
        assert_eq!(decisions.len(), 1);
        decisions.remove(0).1
    }

    /// An interval in which each node makes so many connections, and all report.
    pub(crate) fn interval(&mut self, connections: &[u64]) -> Decision {
        self.now += INTERVAL;
        for (node, connections) in self.nodes.iter_mut().zip(connections) {
            node.total += connections;
        }
        self.deliver_all();
        self.decide()
    }

    /// The shares in force, by zone; those of the model if nothing else is.
    pub(crate) fn in_force(&self) -> Vec<f64> {
        let by_capacity = self.model().zones.into_iter().map(|zone| zone.share);
        match self.state.shares(WEB) {
            Some(shares) => shares.map(|(_, share)| share).collect(),
            None => by_capacity.collect(),
        }
    }
}

/// A report of a node with these totals.
pub(crate) fn report(node: &Node, totals: &[(&str, u64)]) -> Report {
    // Where the endpoints are makes no difference to where connections come from.
    let zones = |total: u64| -> BTreeMap<Box<str>, Counts> {
        let counts = |connections| Counts { connections, bytes_to: 0, bytes_from: 0 };
        [("a".into(), counts(total - total / 3)), ("b".into(), counts(total / 3))].into()
    };
    let services = totals.iter().map(|(name, total)| ((*name).into(), zones(*total)));
    Report {
        version: VERSION,
        node: node.name.as_str().into(),
        zone: node.zone.as_str().into(),
        started: node.started,
        sequence: node.sequence,
        services: services.collect(),
        failed: BTreeMap::new(),
        unassigned: 0,
    }
}

fn capacities(nodes: &[Node]) -> Vec<NodeCapacity<'_>> {
    fn of(node: &Node) -> NodeCapacity<'_> {
        NodeCapacity {
            name: &node.name,
            zone: Some(&node.zone),
            cpu_milli: Some(node.cpu_milli),
            ready: true,
            control_plane: false,
        }
    }
    nodes.iter().map(of).collect()
}
