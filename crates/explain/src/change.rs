//! Changes that people can make to a cluster, applied to a copy to see what they would do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::Serialize;
use zonewise_common::keys::{MANAGED_BY, ZONE};
use zonewise_common::name::Name;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::pod::{NamedPort, Pod};
use zonewise_slices::service::{Service, TargetPort};
use zonewise_slices::settings::{Gate, Settings};
use zonewise_slices::slice::AddressType;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::reason::Reason;

use crate::environment::ProxyKind;
use crate::matrix::{Matrix, Row, matrices};
use crate::proxy_view::{self, ProxyView};
use crate::service_snapshot::{Decision, ServiceSnapshot, is_in_force};
use crate::shell_quote::shell_quote;

/// Everything that the controller decides the slices of one Service by.
#[derive(Clone)]
pub struct ControllerView {
    /// The Service and the objects that it depends on.
    pub objects: ServiceSnapshot,
    /// The settings of the controller.
    pub settings: Settings,
    /// How nodes count that report no allocatable CPU.
    pub missing_cpu: MissingCpu,
    /// The Service as proxies read it; an empty object if that is not known.
    pub proxy_service: Arc<str>,
}

/// A change that people can make to turn zone routing on.
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
    /// One Pod fewer.
    RemovePod {
        /// The Pod.
        pod: String,
        /// Its zone.
        zone: String,
    },
    /// Add the zone label to a node without one.
    LabelNode {
        /// The node.
        node: String,
        /// The zone that was tried. Only people know which zone the node is in.
        zone: String,
    },
    /// Let a node report its allocatable CPU.
    ReportCpu {
        /// The node.
        node: String,
    },
    /// Add a ready worker node.
    AddNode {
        /// Its zone.
        zone: String,
        /// Its cores.
        cpu: f64,
    },
    /// Set an annotation of the Service.
    Annotate {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Remove an annotation of the Service.
    RemoveAnnotation {
        /// Its key.
        key: String,
    },
    /// Set `spec.trafficDistribution` of the Service.
    SetTrafficDistribution {
        /// Its value.
        value: String,
    },
    /// Turn on a feature gate of the controller.
    TurnOnGate {
        /// Its name.
        gate: String,
    },
    /// Set `capacity.missingCpu: count-nodes` in the controller's configuration.
    CountNodes,
}

impl Change {
    /// What to do, as a sentence or a command.
    pub fn sentence(&self, service: &Service) -> String {
        let name = shell_quote(&service.name);
        let kubectl = |what: &str| format!("kubectl -n {} {what}", shell_quote(&service.namespace));
        match self {
            Self::AddEndpoints { zone, count } => {
                let endpoints = if *count == 1 { "endpoint" } else { "endpoints" };
                format!("run {count} more ready {endpoints} in {}", shell_quote(zone))
            }
            Self::RemovePod { pod, zone } => {
                format!("run one Pod fewer in {}: without {}", shell_quote(zone), shell_quote(pod))
            }
            Self::LabelNode { node, zone } => {
                let node = shell_quote(node);
                format!(
                    "give node {node} its zone: kubectl label node {node} {ZONE}=ZONE (tried with {})",
                    shell_quote(zone)
                )
            }
            Self::ReportCpu { node } => {
                format!(
                    "let node {} report allocatable CPU (status.allocatable.cpu)",
                    shell_quote(node)
                )
            }
            Self::AddNode { zone, cpu } => {
                format!("add a worker node with {cpu} cores in zone {}", shell_quote(zone))
            }
            Self::Annotate { key, value } => kubectl(&format!(
                "annotate --overwrite service {name} {}",
                shell_quote(&format!("{key}={value}"))
            )),
            Self::RemoveAnnotation { key } => {
                kubectl(&format!("annotate service {name} {}", shell_quote(&format!("{key}-"))))
            }
            Self::SetTrafficDistribution { value } => kubectl(&format!(
                "patch service {name} -p {}",
                shell_quote(&format!("{{\"spec\":{{\"trafficDistribution\":\"{value}\"}}}}"))
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

impl ControllerView {
    /// What the controller decides.
    pub fn decide(&self) -> Decision {
        self.objects.decide(&self.settings)
    }

    /// Whether zone routing is on: the Service asks for it, the controller writes it, and slices that
    /// others write do not keep proxies from using it.
    pub fn is_on(&self) -> bool {
        let on = is_in_force(self.objects.kept_reason(&self.settings));
        on && (!self.has_foreign_endpoints() || self.overruled(&self.decide()).is_none())
    }

    /// The same with the built-in controller in place of zonewise's.
    pub fn built_in(&self) -> Self {
        let settings = Settings { upstream: true, ..Settings::default() };
        let missing_cpu = MissingCpu::default();
        let mut view = Self { settings, missing_cpu, ..self.clone() };
        if self.missing_cpu != missing_cpu {
            view.edit_nodes(|_| {});
        }
        view
    }

    /// The reason for what proxies do once the controller has written what it decides.
    pub fn reason(&self) -> Reason {
        let decision = self.decide();
        self.overruled(&decision).unwrap_or_else(|| decision.reason())
    }

    /// The reason why proxies use all endpoints although the controller has decided otherwise: slices
    /// of other writers lack what the controller writes. `None` if proxies do as was decided somewhere.
    pub fn overruled(&self, decision: &Decision) -> Option<Reason> {
        if !decision.is_on() || !self.has_foreign_endpoints() {
            return None;
        }
        // With the traffic policy Local, proxies use no hints, whoever wrote them.
        let matrix = self.matrix_with(decision, ProxyKind::Zonewise)?;
        let used = matrix.is_local() || matrix.from.iter().any(Row::is_near);
        matrix.from.first().filter(|_| !used).map(|row| row.why)
    }

    /// Whether one kind of proxy keeps traffic closer anywhere, once the controller has written what it
    /// decides.
    pub(crate) fn is_near_with(&self, kind: ProxyKind) -> bool {
        let matrix = self.matrix_with(&self.decide(), kind);
        matrix.is_some_and(|matrix| matrix.from.iter().any(Row::is_near))
    }

    fn matrix_with(&self, decision: &Decision, kind: ProxyKind) -> Option<Matrix> {
        // Everything that is read here was read before, or is written by ourselves.
        let planned = self.planned(decision).ok()?;
        let family = decision.family(&self.objects.service).to_string();
        let gates = kind.gates(&self.objects.service);
        let all = matrices(&planned, &self.objects.senders(), &gates).ok()?;
        all.into_iter().find(|matrix| matrix.family == family)
    }

    /// The Service and its slices as proxies read them once the plan is carried out.
    ///
    /// # Errors
    /// If a slice cannot be written as JSON.
    pub fn planned(&self, decision: &Decision) -> Result<ProxyView<'static>, serde_json::Error> {
        let slices = self.objects.slices_after(&decision.plan);
        let texts = slices.iter().map(|slice| serde_json::to_string(slice).map(Cow::Owned));
        let service = Cow::Owned(self.proxy_service.to_string());
        let slices = texts.collect::<Result<Vec<_>, _>>()?;
        let ServiceSnapshot { service: stored, pods, facts, .. } = &self.objects;
        let by_use = || facts.demand.use_percents_of(&stored.key());
        let weights = proxy_view::weights(stored, pods, &slices, by_use);
        Ok(ProxyView { service, slices, refused: Vec::new(), weights })
    }

    /// Whether others write slices with endpoints for the Service.
    pub(crate) fn has_foreign_endpoints(&self) -> bool {
        self.objects.slices.iter().any(|slice| {
            !slice.endpoints.is_empty()
                && (slice.deleting || !self.settings.manages(slice.labels.get(MANAGED_BY)))
        })
    }

    /// The view after a change.
    pub fn with(&self, change: &Change) -> Self {
        let mut view = self.clone();
        match change {
            Change::AddEndpoints { zone, count } => view.add_endpoints(zone, *count),
            Change::RemovePod { pod, .. } => {
                view.objects.pods.retain(|known| *known.name != **pod);
            }
            Change::LabelNode { node, zone } => {
                view.edit_node(node, |node| node.zone = Some(Name::from(zone.as_str())));
            }
            Change::ReportCpu { node } => {
                let cpu = view.usual_cpu();
                view.edit_node(node, |node| node.cpu_milli = Some(cpu));
            }
            Change::AddNode { zone, cpu } => view.add_node(zone, (cpu * 1000.0) as u64),
            Change::Annotate { key, value } => view.annotate(key, Some(value)),
            Change::RemoveAnnotation { key } => view.annotate(key, None),
            Change::SetTrafficDistribution { value } => view.edit_service(|service| {
                service.traffic_distribution = Some(value.as_str().into());
            }),
            Change::TurnOnGate { gate } => view.turn_on(gate),
            Change::CountNodes => {
                view.missing_cpu = MissingCpu::CountNodes;
                view.edit_nodes(|_| {});
            }
        }
        view
    }

    /// The view after several changes.
    pub fn with_all(&self, changes: &[Change]) -> Self {
        changes.iter().fold(self.clone(), |view, change| view.with(change))
    }

    /// The view without some Pods.
    pub fn without_pods(&self, gone: impl Fn(&Pod) -> bool) -> Self {
        let mut view = self.clone();
        view.objects.pods.retain(|pod| !gone(pod));
        view
    }

    /// The view without some nodes and the Pods on them.
    pub fn without_nodes(&self, gone: impl Fn(&Node) -> bool) -> Self {
        let lost = |pod: &Pod| {
            let node = pod.node.as_ref().and_then(|name| self.objects.nodes.by_name.get(name));
            node.is_some_and(&gone)
        };
        let mut view = self.without_pods(lost);
        view.edit_nodes(|nodes| nodes.retain(|_, node| !gone(node)));
        view
    }

    pub(crate) fn edit_service(&mut self, edit: impl FnOnce(&mut Service)) {
        edit(Arc::make_mut(&mut self.objects.service));
    }

    pub(crate) fn edit_nodes(&mut self, edit: impl FnOnce(&mut BTreeMap<Name, Node>)) {
        let mut by_name = self.objects.nodes.by_name.clone();
        edit(&mut by_name);
        let evacuations = self.objects.nodes.evacuations.clone();
        let nodes = Nodes::new(by_name, self.missing_cpu).evacuating(evacuations);
        self.objects.nodes = Arc::new(nodes);
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

    fn turn_on(&mut self, name: &str) {
        for gate in Gate::ALL.into_iter().filter(|gate| gate.name() == name) {
            self.settings.gates.set(gate, true);
        }
    }

    /// The allocatable CPU of a typical node: the smallest that any node reports.
    pub fn usual_cpu(&self) -> u64 {
        let known = self.objects.nodes.by_name.values().filter_map(|node| node.cpu_milli);
        known.filter(|cpu| *cpu > 0).min().unwrap_or(4000)
    }

    fn add_node(&mut self, zone: &str, cpu_milli: u64) {
        let name = Name::from(format!("added-{zone}-{}", self.objects.nodes.by_name.len()));
        let node = Node {
            name: Name::clone(&name),
            zone: Some(zone.into()),
            region: None,
            cpu_milli: Some(cpu_milli),
            ready: true,
            control_plane: false,
            internal_ip: None,
        };
        self.edit_nodes(|nodes| {
            nodes.insert(name, node);
        });
    }

    pub(crate) fn add_endpoints(&mut self, zone: &str, count: u64) {
        let Some(node) = self.node_in(zone) else { return };
        let (node, base) = (Name::clone(&node.name), self.objects.pods.len() as u32);
        let template = self.template();
        let added = (0..count as u32).map(|number| {
            Arc::new(Pod {
                name: format!("added-{}", base + number).into(),
                uid: format!("added-{}", base + number).as_str().into(),
                node: Some(Name::clone(&node)),
                ips: template.ips.iter().map(|ip| unused_address(ip, base + number)).collect(),
                ..template.clone()
            })
        });
        let added: Vec<Arc<Pod>> = added.collect();
        self.objects.pods.extend(added);
        self.objects.pods.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A worker node in a zone; or in a region, for Services whose slices are labelled for regions.
    fn node_in(&self, zone_or_region: &str) -> Option<&Node> {
        let workers = || self.objects.nodes.by_name.values().filter(|node| !node.control_plane);
        let zone = |node: &&Node| node.zone.as_deref() == Some(zone_or_region);
        let region = |node: &&Node| node.region.as_deref() == Some(zone_or_region);
        let ready = workers().filter(|node| node.ready);
        ready
            .clone()
            .find(zone)
            .or_else(|| workers().find(zone))
            .or_else(|| ready.clone().find(region))
    }

    /// A ready Pod like those of the Service; without any, one that its selector and ports match.
    fn template(&self) -> Pod {
        let service = &self.objects.service;
        let model = self.objects.pods.iter().find(|pod| pod.is_considered());
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
            // Also if other Pods lack one: those were made before the cluster had both families.
            ips: wanted_addresses(service),
            named_ports: model
                .map_or_else(|| wanted_ports(service), |pod| Arc::clone(&pod.named_ports)),
            cpu_request_milli: model.and_then(|pod| pod.cpu_request_milli),
            ready_since: None,
            has_address: true,
            finished: false,
            ready: true,
            terminating: false,
        }
    }
}

/// Container ports with the names that the Service's target ports refer to.
fn wanted_ports(service: &Service) -> Arc<[NamedPort]> {
    let named = |port: &zonewise_slices::service::ServicePort| match &port.target {
        TargetPort::Name(name) => {
            Some(NamedPort { name: Name::clone(name), protocol: port.protocol.clone(), number: 1 })
        }
        TargetPort::Number(_) => None,
    };
    service.ports.iter().filter_map(named).collect()
}

/// An address of each address family of the Service.
fn wanted_addresses(service: &Service) -> Box<[IpAddr]> {
    let any = |family: &AddressType| match family {
        AddressType::IPv6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        AddressType::IPv4 | AddressType::Other(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    service.families.iter().map(any).collect()
}

/// An address of the same family that no Pod has, because it is in a reserved range.
fn unused_address(like: &IpAddr, number: u32) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from(u32::from(Ipv4Addr::new(240, 0, 0, 1)) + number).into(),
        IpAddr::V6(_) => {
            let first = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            Ipv6Addr::from(u128::from(first) + u128::from(number)).into()
        }
    }
}
