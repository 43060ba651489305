//! The objects of the cluster. Each is computed from its number, so that any of them can be built again.
//!
//! ```text
//!  namespace 0: app 0 … app 9   20 Pods each        modes, in turn: Auto, PreferSameZone, plain
//!               app 10          500 Pods
//!  namespace 1: app 11 …
//! ```
//!
//! Namespaces are small because the reference reads all Pods of a namespace for each Service.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;

use serde_json::Value;
use zonewise_testbed::objects;

const APPS_PER_NAMESPACE: u32 = 11;
const POD_NETWORK: u32 = 0x0A80_0000;

/// The size of the cluster, and the rate of changes.
pub(crate) struct Scenario {
    pub(crate) scale: f64,
    /// Pods replaced each second in the rolling update.
    pub(crate) rate: f64,
}

/// A Service and its Pods.
pub(crate) struct App {
    number: u32,
    /// The numbers of its Pods.
    pub(crate) pods: Range<u32>,
}

/// A Pod, by the number of its App and its own.
#[derive(Clone, Copy)]
pub(crate) struct PodId {
    app: u32,
    pod: u32,
}

impl Default for Scenario {
    fn default() -> Self {
        Self { scale: 1.0, rate: 50.0 }
    }
}

impl Scenario {
    pub(crate) fn namespaces(&self) -> Vec<Value> {
        let count = self.scaled(1100).div_ceil(APPS_PER_NAMESPACE);
        (0..count).map(|number| objects::namespace(&format!("bench-{number}"))).collect()
    }

    pub(crate) fn nodes(&self) -> Vec<Value> {
        (0..self.node_count()).map(node).collect()
    }

    pub(crate) fn apps(&self) -> Vec<App> {
        let mut first = 0;
        let app = |number| {
            let size = if number % APPS_PER_NAMESPACE == 10 { 500 } else { 20 };
            let pods = first..first + size;
            first = pods.end;
            App { number, pods }
        };
        (0..self.scaled(1100)).map(app).collect()
    }

    pub(crate) fn pod(&self, id: PodId) -> Value {
        let PodId { app, pod } = id;
        let node = node_name(pod % self.node_count());
        let ip = id.address().to_string();
        objects::pod(&namespace(app), &format!("pod-{pod}"), &app_name(app), &node, &ip)
    }

    /// Old and new Pods of the rolling update: a quarter of each App, then the next quarter of each.
    pub(crate) fn replacements(&self) -> Vec<(PodId, PodId)> {
        let apps = self.apps();
        let first_new = apps.last().map_or(0, |app| app.pods.end);
        let wanted = self.scaled(2000) as usize;
        let mut held = 0;
        let rolled: Vec<&App> = apps
            .iter()
            .take_while(|app| {
                let before = held;
                held += app.pods.len();
                before < wanted
            })
            .collect();
        let waves = (0..4).flat_map(|wave| rolled.iter().flat_map(move |app| app.quarter(wave)));
        let pairs = waves.zip(first_new..).map(|(old, pod)| (old, PodId { app: old.app, pod }));
        pairs.take(wanted).collect()
    }

    /// Changes of Nodes. A Node with a status becomes unready, and ready again two changes later; one without a
    /// status gets a label.
    pub(crate) fn node_changes(&self) -> Vec<Value> {
        let change = |number: u32| {
            let turn = number % 4;
            let mut node = node((if turn == 3 { number - 2 } else { number }) % self.node_count());
            if turn % 2 == 1 {
                objects::set_ready(&mut node, turn == 3);
            } else {
                node["metadata"]["labels"]["example.com/round"] = number.to_string().into();
                node["status"].take();
            }
            node
        };
        (0..self.scaled(50).max(8)).map(change).collect()
    }

    fn node_count(&self) -> u32 {
        self.scaled(500).max(3)
    }

    fn scaled(&self, full: u32) -> u32 {
        ((f64::from(full) * self.scale).round() as u32).max(1)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apps = self.apps();
        write!(
            formatter,
            "{} Nodes in 3 zones, {} Services, {} Pods; a third of the Services with topology-mode Auto, a third \
             with trafficDistribution PreferSameZone; {} Pods replaced at {} each second; {} Node changes",
            self.node_count(),
            apps.len(),
            apps.last().map_or(0, |app| app.pods.end),
            self.replacements().len(),
            self.rate,
            self.node_changes().len(),
        )
    }
}

impl App {
    pub(crate) fn service(&self) -> Value {
        let name = app_name(self.number);
        let mut service = objects::service(&namespace(self.number), &name, &name);
        match self.number % 3 {
            0 => {
                service["metadata"]["annotations"]["service.kubernetes.io/topology-mode"] =
                    "Auto".into();
            }
            1 => service["spec"]["trafficDistribution"] = "PreferSameZone".into(),
            _ => {}
        }
        service
    }

    pub(crate) fn pod_ids(&self) -> impl Iterator<Item = PodId> + use<> {
        let app = self.number;
        self.pods.clone().map(move |pod| PodId { app, pod })
    }

    fn quarter(&self, wave: usize) -> impl Iterator<Item = PodId> + use<> {
        let size = self.pods.len() / 4;
        self.pod_ids().skip(wave * size).take(size)
    }
}

impl PodId {
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::from(POD_NETWORK + self.pod)
    }
}

fn node(number: u32) -> Value {
    let zone = ["zone-a", "zone-b", "zone-c"][number as usize % 3];
    objects::node(&node_name(number), zone, "16")
}

fn node_name(number: u32) -> String {
    format!("node-{number}")
}

fn app_name(app: u32) -> String {
    format!("app-{app}")
}

fn namespace(app: u32) -> String {
    format!("bench-{}", app / APPS_PER_NAMESPACE)
}
