//! One Service in a cluster of the size that a state says: Pods that come and go, and slices that the
//! controller's own functions write.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use zonewise_common::keys::TOPOLOGY_MODE;
use zonewise_common::name::Name;
use zonewise_slices::labels::Labels;
use zonewise_slices::node::{Node, Nodes};
use zonewise_slices::plan::{FamilyPlan, Input, plan};
use zonewise_slices::pod::Pod;
use zonewise_slices::requested::RequestedRouting;
use zonewise_slices::service::{Service, ServicePort, TargetPort};
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::{AddressType, Endpoint, Protocol, Slice, Subset, Target};
use zonewise_slices::upstream::{HintsPerZone, is_overloaded};
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::reason::Code;

use super::scenario::Departure;
use crate::dataset::Cell;

/// A Service, its Pods, and its slices as they are stored.
pub(super) struct SimulatedService {
    service: Service,
    settings: Settings,
    requested: RequestedRouting,
    nodes: Nodes,
    /// Sorted by name, which is also the order in which they came.
    pods: Vec<Arc<Pod>>,
    pods_made: u64,
    slices: BTreeMap<Box<str>, Arc<Slice>>,
    slices_made: u64,
    /// Only for the reference: what it remembers between two syncs.
    populated: bool,
    hints_per_zone: HintsPerZone,
}

/// What a sync did.
pub(super) struct Synced {
    /// Slices created, replaced or deleted.
    pub(super) writes: u64,
    /// Endpoints that stayed and are now used by other zones.
    pub(super) moved: u64,
    pub(super) reason: Code,
}

/// The zones that use an endpoint: those of its hints, or that of its subset.
type Users = (Vec<Name>, Option<Subset>);

impl SimulatedService {
    pub(super) fn new(settings: Settings, requested: RequestedRouting) -> Self {
        Self {
            service: service(),
            settings,
            requested,
            nodes: Nodes::new(BTreeMap::new(), MissingCpu::Refuse),
            pods: Vec::new(),
            pods_made: 0,
            slices: BTreeMap::new(),
            slices_made: 0,
            populated: false,
            hints_per_zone: HintsPerZone::new(),
        }
    }

    /// Gives each zone as many nodes as its cell says. One node stands for all of them, because only
    /// their capacity together counts; in a zone without nodes it is not ready.
    pub(super) fn set_nodes(&mut self, zones: &[Name], cells: &[Cell]) {
        let node = |(zone, cell): (&Name, &Cell)| Node {
            name: Name::clone(zone),
            zone: Some(Name::clone(zone)),
            region: None,
            cpu_milli: Some(cell.nodes.saturating_mul(1000)),
            ready: cell.nodes > 0,
            control_plane: false,
            internal_ip: None,
        };
        let nodes = zones.iter().zip(cells).map(node);
        let by_name = nodes.map(|node| (Name::clone(&node.name), node)).collect();
        self.nodes = Nodes::new(by_name, MissingCpu::Refuse);
    }

    /// Removes and adds Pods until the zone has so many; returns how many came and went.
    pub(super) fn set_pods(&mut self, zone: &Name, count: u64, departure: Departure) -> (u64, u64) {
        let is_here = |pod: &Arc<Pod>| pod.node.as_ref() == Some(zone);
        let have = self.pods.iter().filter(|pod| is_here(pod)).count() as u64;
        for _ in count..have {
            let mut here = (0..self.pods.len()).filter(|&index| is_here(&self.pods[index]));
            let leaving = match departure {
                Departure::OldestFirst => here.next(),
                Departure::NewestFirst => here.next_back(),
            };
            self.pods.remove(leaving.unwrap_or(0));
        }
        for _ in have..count {
            self.pods_made += 1;
            self.pods.push(Arc::new(pod(self.pods_made, zone)));
        }
        (count.saturating_sub(have), have.saturating_sub(count))
    }

    /// Whether the controller looks at the Service after a change of nodes alone. The reference does so
    /// only if a zone has too few endpoints.
    pub(super) fn notices_nodes(&self) -> bool {
        !self.settings.upstream || is_overloaded(&self.hints_per_zone, &self.nodes)
    }

    /// Plans, and carries the plan out.
    pub(super) fn sync(&mut self, quiet: bool) -> Synced {
        let stored = self.slices();
        let input = Input {
            service: &self.service,
            pods: &self.pods,
            slices: &stored,
            nodes: &self.nodes,
            measured: None,
            trigger: None,
            populated: self.populated,
            quiet,
        };
        let plan = plan(&input, &self.requested, &self.settings);
        self.populated = plan.populated;
        let (writes, reason) = (plan.writes() as u64, plan.reason().code());
        let before = users(&stored);
        for family in plan.families {
            self.write(family);
        }
        let after = users(&self.slices());
        let moved =
            |(pod, users): &(&Name, &Users)| before.get(*pod).is_some_and(|was| was != *users);
        Synced { writes, moved: after.iter().filter(moved).count() as u64, reason }
    }

    /// The slices as they are stored, by name.
    pub(super) fn slices(&self) -> Vec<Arc<Slice>> {
        self.slices.values().map(Arc::clone).collect()
    }

    /// The nodes with the capacity of each zone.
    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn write(&mut self, family: FamilyPlan) {
        for slice in family.creates {
            self.slices_made += 1;
            let name: Box<str> = format!("slice-{:09}", self.slices_made).into();
            self.store(Slice { name: Some(name), ..slice });
        }
        for slice in family.updates {
            self.store(slice);
        }
        for slice in family.deletes {
            self.slices.remove(&slice.name);
        }
        self.hints_per_zone = family.hints_per_zone;
    }

    fn store(&mut self, slice: Slice) {
        let name: Box<str> = slice.name().into();
        let uid = (&*name).into();
        self.slices.insert(name, Arc::new(Slice { uid, ..slice }));
    }
}

/// The zones that use each Pod.
fn users(slices: &[Arc<Slice>]) -> BTreeMap<Name, Users> {
    let of = |slice: &Slice, endpoint: &Endpoint| {
        let Target::Pod { name, .. } = &endpoint.target else { return None };
        Some((Name::clone(name), (endpoint.zone_hints().to_vec(), slice.subset())))
    };
    let endpoints =
        slices.iter().flat_map(|slice| slice.endpoints.iter().map(move |one| (slice, one)));
    endpoints.filter_map(|(slice, endpoint)| of(slice, endpoint)).collect()
}

/// The Service; with the annotation that the reference reads.
fn service() -> Service {
    let port = ServicePort {
        name: "".into(),
        protocol: Protocol::Tcp,
        app_protocol: None,
        target: TargetPort::Number(80),
    };
    Service {
        namespace: "simulation".into(),
        name: "service".into(),
        uid: "service".into(),
        created: None,
        deleting: false,
        labels: Labels::default(),
        annotations: [(TOPOLOGY_MODE, "Auto")].into_iter().collect(),
        selector: Some(Labels::default()),
        external_name: false,
        headless: false,
        families: vec![AddressType::IPv6],
        ports: Box::new([port]),
        publish_not_ready: false,
        traffic_distribution: None,
        local_policy: false,
        own_node_only: false,
        session_affinity: false,
        topology_keys: false,
        conditions: Box::default(),
    }
}

/// A ready Pod on the node that stands for a zone.
fn pod(number: u64, zone: &Name) -> Pod {
    const NETWORK: u128 = 0xfd00 << 112;
    let name: Name = format!("pod-{number:012}").into();
    Pod {
        namespace: "simulation".into(),
        uid: (&*name).into(),
        name,
        labels: Arc::default(),
        node: Some(Name::clone(zone)),
        hostname: None,
        subdomain: None,
        ips: Box::new([Ipv6Addr::from(NETWORK + u128::from(number)).into()]),
        named_ports: Arc::new([]),
        cpu_request_milli: None,
        ready_since: None,
        has_address: true,
        finished: false,
        ready: true,
        terminating: false,
    }
}
