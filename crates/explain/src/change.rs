//! Changes that people can make to a cluster, applied to a scene to see what they would do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::Serialize;
use zonewise_common::keys::ZONE;
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::pod::{NamedPort, Pod};
use zonewise_slices::service::{Service, TargetPort};
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::AddressType;
use zonewise_topology::capacity::MissingCpu;

use crate::scene::{Scene, Verdict};
use crate::shell::word;

/// A scene with what the controller is told.
#[derive(Clone)]
pub struct Stage {
    /// The Service and what it depends on.
    pub scene: Scene,
    /// How slices are written.
    pub settings: Settings,
    /// What is done about nodes that do not report CPU.
    pub missing_cpu: MissingCpu,
}

/// Something that people can change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Change {
    /// More ready endpoints in a zone.
    AddEndpoints {
        /// The zone.
        zone: String,
        /// How many.
        count: u64,
    },
    /// The zone label on a node that lacks it.
    LabelNode {
        /// The node.
        node: String,
        /// A zone it may be in.
        zone: String,
    },
    /// Allocatable CPU on a node that does not report it.
    ReportCpu {
        /// The node.
        node: String,
    },
    /// One more ready worker node.
    AddNode {
        /// Its zone.
        zone: String,
        /// Its cores.
        cpu: f64,
    },
    /// An annotation on the Service.
    Annotate {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// No such annotation on the Service.
    RemoveAnnotation {
        /// Its key.
        key: String,
    },
    /// `spec.trafficDistribution` of the Service.
    SetTrafficDistribution {
        /// Its value.
        value: String,
    },
    /// A feature gate of the controller.
    TurnOnGate {
        /// Its name.
        gate: String,
    },
    /// `capacity.missingCpu: count-nodes` in the controller's configuration.
    CountNodes,
}

impl Change {
    /// What to do, for people.
    pub fn sentence(&self, service: &Service) -> String {
        let name = word(&service.name);
        let kubectl = |what: &str| format!("kubectl -n {} {what}", word(&service.namespace));
        match self {
            Self::AddEndpoints { zone, count } => {
                let endpoints = if *count == 1 { "endpoint" } else { "endpoints" };
                format!("run {count} more ready {endpoints} in {}", word(zone))
            }
            Self::LabelNode { node, zone } => {
                let node = word(node);
                format!(
                    "give node {node} its zone: kubectl label node {node} {ZONE}=ZONE (tried with {})",
                    word(zone)
                )
            }
            Self::ReportCpu { node } => {
                format!("let node {} report allocatable CPU (status.allocatable.cpu)", word(node))
            }
            Self::AddNode { zone, cpu } => {
                format!("add a worker node with {cpu} cores in zone {}", word(zone))
            }
            Self::Annotate { key, value } => kubectl(&format!(
                "annotate --overwrite service {name} {}",
                word(&format!("{key}={value}"))
            )),
            Self::RemoveAnnotation { key } => {
                kubectl(&format!("annotate service {name} {}", word(&format!("{key}-"))))
            }
            Self::SetTrafficDistribution { value } => kubectl(&format!(
                "patch service {name} -p {}",
                word(&format!("{{\"spec\":{{\"trafficDistribution\":\"{value}\"}}}}"))
            )),
            Self::TurnOnGate { gate } => {
                format!("start the controller with --feature-gates {gate}=true")
            }
            Self::CountNodes => {
                "set capacity.missingCpu to count-nodes in the controller's configuration".into()
            }
        }
    }
}

impl Stage {
    /// What the controller makes of it.
    pub fn judge(&self) -> Verdict {
        self.scene.judge(&self.settings)
    }

    /// The stage after a change.
    pub fn with(&self, change: &Change) -> Self {
        let mut stage = self.clone();
        match change {
            Change::AddEndpoints { zone, count } => stage.add_endpoints(zone, *count),
            Change::LabelNode { node, zone } => {
                stage.edit_node(node, |node| node.zone = Some(Name::from(zone.as_str())));
            }
            Change::ReportCpu { node } => {
                let cpu = stage.usual_cpu();
                stage.edit_node(node, |node| node.cpu_milli = Some(cpu));
            }
            Change::AddNode { zone, cpu } => stage.add_node(zone, (cpu * 1000.0) as u64),
            Change::Annotate { key, value } => stage.annotate(key, Some(value)),
            Change::RemoveAnnotation { key } => stage.annotate(key, None),
            Change::SetTrafficDistribution { value } => stage.edit_service(|service| {
                service.traffic_distribution = Some(value.as_str().into());
            }),
            Change::TurnOnGate { gate } => stage.turn_on(gate),
            Change::CountNodes => {
                stage.missing_cpu = MissingCpu::CountNodes;
                stage.edit_nodes(|_| {});
            }
        }
        stage
    }

    /// The stage after several changes.
    pub fn with_all(&self, changes: &[Change]) -> Self {
        changes.iter().fold(self.clone(), |stage, change| stage.with(change))
    }

    /// The stage without some Pods.
    pub fn without_pods(&self, gone: impl Fn(&Pod) -> bool) -> Self {
        let mut stage = self.clone();
        stage.scene.pods.retain(|pod| !gone(pod));
        stage
    }

    /// The stage without some nodes, and without the Pods on them.
    pub fn without_nodes(&self, gone: impl Fn(&Node) -> bool) -> Self {
        let lost = |pod: &Pod| {
            let node = pod.node.as_ref().and_then(|name| self.scene.nodes.by_name.get(name));
            node.is_some_and(&gone)
        };
        let mut stage = self.without_pods(lost);
        stage.edit_nodes(|nodes| nodes.retain(|_, node| !gone(node)));
        stage
    }

    fn edit_service(&mut self, edit: impl FnOnce(&mut Service)) {
        edit(Arc::make_mut(&mut self.scene.service));
    }

    fn edit_nodes(&mut self, edit: impl FnOnce(&mut BTreeMap<Name, Node>)) {
        let mut by_name = self.scene.nodes.by_name.clone();
        edit(&mut by_name);
        self.scene.nodes = Arc::new(Nodes::new(by_name, self.missing_cpu));
    }

    fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut Node)) {
        self.edit_nodes(|nodes| {
            if let Some(node) = nodes.get_mut(name) {
                edit(node);
            }
        });
    }

    fn annotate(&mut self, key: &str, value: Option<&str>) {
        self.edit_service(|service| service.annotations = service.annotations.with(key, value));
    }

    fn turn_on(&mut self, gate: &str) {
        let gates = &mut self.settings.gates;
        match gate {
            "TopologyAwareHints" => gates.hints = true,
            "TopologyAwareSubsetting" => gates.subsetting = true,
            _ => gates.preference = true,
        }
    }

    /// What a node has, by those that tell.
    pub fn usual_cpu(&self) -> u64 {
        let known = self.scene.nodes.by_name.values().filter_map(|node| node.cpu_milli);
        known.filter(|cpu| *cpu > 0).min().unwrap_or(4000)
    }

    fn add_node(&mut self, zone: &str, cpu_milli: u64) {
        let name = Name::from(format!("added-{zone}-{}", self.scene.nodes.by_name.len()));
        let node = Node {
            name: Name::clone(&name),
            zone: Some(zone.into()),
            region: None,
            cpu_milli: Some(cpu_milli),
            ready: true,
            control_plane: false,
        };
        self.edit_nodes(|nodes| {
            nodes.insert(name, node);
        });
    }

    fn add_endpoints(&mut self, zone: &str, count: u64) {
        let Some(node) = self.node_in(zone) else { return };
        let (node, base) = (Name::clone(&node.name), self.scene.pods.len() as u32);
        let template = self.template();
        let added = (0..count as u32).map(|number| {
            Arc::new(Pod {
                name: format!("added-{}", base + number).into(),
                uid: format!("added-{}", base + number).as_str().into(),
                node: Some(Name::clone(&node)),
                ips: template.ips.iter().map(|ip| fresh(ip, base + number)).collect(),
                ..template.clone()
            })
        });
        let added: Vec<Arc<Pod>> = added.collect();
        self.scene.pods.extend(added);
        self.scene.pods.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A worker node of a zone, or of a region where regions have slices of their own.
    fn node_in(&self, place: &str) -> Option<&Node> {
        let workers = || self.scene.nodes.by_name.values().filter(|node| !node.control_plane);
        let zone = |node: &&Node| node.zone.as_deref() == Some(place);
        let region = |node: &&Node| node.region.as_deref() == Some(place);
        let ready = workers().filter(|node| node.ready);
        ready
            .clone()
            .find(zone)
            .or_else(|| workers().find(zone))
            .or_else(|| ready.clone().find(region))
    }

    /// A ready Pod like those there are, or like the Service wants them.
    fn template(&self) -> Pod {
        let service = &self.scene.service;
        let model = self.scene.pods.iter().find(|pod| pod.is_considered());
        Pod {
            namespace: Name::clone(&service.namespace),
            name: "".into(),
            uid: "".into(),
            labels: model.map_or_else(
                || Arc::new(service.selector.clone().unwrap_or_default()),
                |pod| Arc::clone(&pod.labels),
            ),
            node: None,
            hostname: None,
            subdomain: None,
            ips: model.map_or_else(|| wanted_addresses(service), |pod| pod.ips.clone()),
            named_ports: model
                .map_or_else(|| wanted_ports(service), |pod| Arc::clone(&pod.named_ports)),
            ready_since: None,
            has_address: true,
            finished: false,
            ready: true,
            terminating: false,
        }
    }
}

/// Container ports that the Service's ports name.
fn wanted_ports(service: &Service) -> Arc<[NamedPort]> {
    let named = |port: &zonewise_slices::service::ServicePort| match &port.target {
        TargetPort::Name(name) => {
            Some(NamedPort { name: Name::clone(name), protocol: port.protocol.clone(), number: 1 })
        }
        TargetPort::Number(_) => None,
    };
    service.ports.iter().filter_map(named).collect()
}

/// An address of each family that the Service has.
fn wanted_addresses(service: &Service) -> Box<[IpAddr]> {
    let any = |family: &AddressType| match family {
        AddressType::IPv6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        AddressType::IPv4 | AddressType::Other(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    service.families.iter().map(any).collect()
}

/// An address of the same family that no Pod has: from ranges that are reserved.
fn fresh(like: &IpAddr, number: u32) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from(u32::from(Ipv4Addr::new(240, 0, 0, 1)) + number).into(),
        IpAddr::V6(_) => {
            let first = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            Ipv6Addr::from(u128::from(first) + u128::from(number)).into()
        }
    }
}
