//! The Service that is planned: Pods in three zones, two thirds of them in the first, so that many have to
//! serve another one. `reference/kubernetes/hints` makes the same for the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{Input, Plan, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::requested_routing;
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{Hints, Slice};
use zonewise_topology::capacity::MissingCpu;

/// How many Pods are replaced in turn.
pub(crate) const TURNS: usize = 15;

/// Everything that a plan is made from.
pub(crate) struct Prepared {
    pub(crate) service: Service,
    nodes: Nodes,
    settings: Settings,
    slices: Vec<Arc<Slice>>,
    /// The Pods, for each turn.
    turns: Vec<Vec<Arc<Pod>>>,
}

impl Prepared {
    /// A Service that has no slices yet. `mode` is the value of its topology annotation, or a routing preference.
    pub(crate) fn first(mode: &str, endpoints: usize, upstream: bool) -> Self {
        Self {
            service: service(mode),
            nodes: nodes(),
            settings: Settings { upstream, ..Settings::default() },
            slices: Vec::new(),
            turns: vec![(0..endpoints).map(|number| pod(number, zone(number))).collect()],
        }
    }

    /// The same Service with its slices stored, when one Pod has been replaced by another in its zone:
    /// another Pod in every turn, so that all zones have theirs.
    pub(crate) fn changed(mode: &str, endpoints: usize, upstream: bool) -> Self {
        let first = Self::first(mode, endpoints, upstream);
        let before = &first.turns[0];
        let after = |turn: usize| {
            let place = turn * 67 % endpoints;
            let mut pods = before.clone();
            pods.remove(place);
            pods.push(pod(endpoints, zone(place)));
            pods
        };
        let turns = (0..TURNS).map(after).collect();
        let slices = stored(&first.plan(0).families[0].creates);
        Self { slices, turns, ..first }
    }

    pub(crate) fn plan(&self, turn: usize) -> Plan {
        let input = Input {
            service: &self.service,
            pods: &self.turns[turn % self.turns.len()],
            slices: &self.slices,
            nodes: &self.nodes,
            measured: None,
            trigger: None,
            populated: true,
            quiet: false,
        };
        plan(&input, &requested_routing(&self.service, &self.settings), &self.settings)
    }
}

fn zone(number: usize) -> &'static str {
    if number % 3 == 2 { ["b", "c"][number % 2] } else { "a" }
}

/// A Pod. The order of addresses is not that of names.
fn pod(number: usize, zone: &str) -> Arc<Pod> {
    let address = number * 7919 % 60_000;
    let ip = format!("10.0.{}.{}", address / 250, address % 250);
    let uid = format!("00000000-0000-4000-8000-{:012}", number + 1);
    let json = json!({
        "metadata": {"name": format!("pod-{number:05}"), "namespace": "ns", "uid": uid},
        "spec": {"nodeName": format!("node-{zone}")},
        "status": {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Arc::new(serde_json::from_value(json).unwrap())
}

/// Three zones with 4, 5 and 6 CPUs.
fn nodes() -> Nodes {
    let node = |(index, zone): (usize, &str)| -> Node {
        let json = json!({
            "metadata": {"name": format!("node-{zone}"), "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": (4 + index).to_string()}, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        serde_json::from_value(json).unwrap()
    };
    let nodes = ["a", "b", "c"].into_iter().enumerate().map(node);
    Nodes::new(nodes.map(|node| (Name::clone(&node.name), node)).collect(), MissingCpu::Refuse)
}

fn service(mode: &str) -> Service {
    let uid = "00000000-0000-4000-8000-000000000000";
    let key = if mode.contains('/') {
        "zonewise.dev/routing-preference"
    } else {
        "service.kubernetes.io/topology-mode"
    };
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": uid, "annotations": {key: mode}},
        "spec": {"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"port": 80}]},
    }))
    .unwrap()
}

/// Slices as the controller has them in memory when the API server has stored them: read from JSON, with
/// equal names and equal hints stored once.
fn stored(created: &[Slice]) -> Vec<Arc<Slice>> {
    let (mut names, mut hints) = (BTreeMap::<Box<str>, Name>::new(), BTreeSet::<Arc<Hints>>::new());
    let mut store = |(number, slice): (usize, &Slice)| {
        let json = serde_json::to_string(slice).unwrap();
        let mut slice: Slice = serde_json::from_str(&json).unwrap();
        let name = format!("web-{number:05}");
        (slice.uid, slice.name) = (name.as_str().into(), Some(name.into()));
        for endpoint in &mut slice.endpoints {
            for name in endpoint.node.iter_mut().chain(&mut endpoint.zone) {
                *name = Name::clone(names.entry((&**name).into()).or_insert(Name::clone(name)));
            }
            if let Some(own) = &mut endpoint.hints {
                hints.insert(Arc::clone(own));
                *own = Arc::clone(hints.get(own).unwrap());
            }
        }
        Arc::new(slice)
    };
    created.iter().enumerate().map(&mut store).collect()
}
