//! From Nodes to the part of the traffic each zone sends.
//!
//! Traffic is assumed proportional to the allocatable CPU of the ready worker nodes of a zone.
//! Every node that did not count is kept with its reason: `explain` shows them.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a Node contributes to the capacity of its zone.
#[derive(Clone, Copy, Debug)]
pub struct NodeCapacity<'a> {
    /// Its name.
    pub name: &'a str,
    /// Value of `topology.kubernetes.io/zone`, if set.
    pub zone: Option<&'a str>,
    /// Allocatable CPU in thousandths of a core, if reported.
    pub cpu_milli: Option<u64>,
    /// The Ready condition is True.
    pub ready: bool,
    /// Carries `node-role.kubernetes.io/control-plane` or `…/master`.
    pub control_plane: bool,
}

/// What to do when a ready worker node does not tell its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCpu {
    /// Capacity cannot be trusted: no hints from CPU shares (the Topology Aware Routing page).
    #[default]
    Refuse,
    /// All nodes count as equal (KEP-2433, and subsetting in KEP-2004).
    CountNodes,
}

/// What the shares were computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Allocatable CPU.
    Cpu,
    /// Number of nodes, because at least one did not report CPU.
    Nodes,
}

/// Why a node did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhyLeftOut {
    /// Its Ready condition is not True.
    NotReady,
    /// It is a control-plane node.
    ControlPlane,
    /// It has no zone label.
    NoZone,
    /// It reports no allocatable CPU.
    NoCpu,
}

/// A node that did not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub node: Box<str>,
    /// Why.
    pub why: WhyLeftOut,
}

/// What one zone can send.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneCapacity {
    /// The zone.
    pub name: Box<str>,
    /// Nodes that count.
    pub nodes: u64,
    /// Their allocatable CPU in thousandths of a core.
    pub cpu_milli: u64,
    /// Part of all traffic, 0 to 1.
    pub share: f64,
}

/// What the cluster's nodes say about traffic per zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Zones with at least one node that counts, in byte order of their names.
    pub zones: Vec<ZoneCapacity>,
    /// Nodes that did not count.
    pub left_out: Vec<LeftOut>,
    /// What `share` was computed from.
    pub basis: Basis,
    missing_cpu: MissingCpu,
}

impl Capacity {
    /// Reads all nodes of a cluster.
    pub fn of(nodes: &[NodeCapacity<'_>], missing_cpu: MissingCpu) -> Self {
        let count_nodes = missing_cpu == MissingCpu::CountNodes
            && nodes.iter().any(|node| fault(node) == Some(WhyLeftOut::NoCpu));
        let mut zones: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut left_out = Vec::new();
        for node in nodes {
            match (fault(node), node.zone) {
                (None, Some(zone)) => add(&mut zones, zone, node.cpu_milli.unwrap_or(0)),
                (Some(WhyLeftOut::NoCpu), Some(zone)) if count_nodes => add(&mut zones, zone, 0),
                (why, _) => left_out.push(LeftOut {
                    node: node.name.into(),
                    why: why.unwrap_or(WhyLeftOut::NoZone),
                }),
            }
        }
        let basis = if count_nodes { Basis::Nodes } else { Basis::Cpu };
        Self { zones: shares(zones, basis), left_out, basis, missing_cpu }
    }

    /// Ready worker nodes without zone or CPU, where the chosen policy makes that fatal.
    pub fn unusable_nodes(&self) -> u64 {
        let fatal = |left: &&LeftOut| match left.why {
            WhyLeftOut::NotReady | WhyLeftOut::ControlPlane => false,
            WhyLeftOut::NoZone | WhyLeftOut::NoCpu => self.missing_cpu == MissingCpu::Refuse,
        };
        self.left_out.iter().filter(fatal).count() as u64
    }
}

fn fault(node: &NodeCapacity<'_>) -> Option<WhyLeftOut> {
    if node.control_plane {
        Some(WhyLeftOut::ControlPlane)
    } else if !node.ready {
        Some(WhyLeftOut::NotReady)
    } else if node.zone.is_none_or(str::is_empty) {
        Some(WhyLeftOut::NoZone)
    } else if node.cpu_milli.is_none_or(|cpu| cpu == 0) {
        Some(WhyLeftOut::NoCpu)
    } else {
        None
    }
}

fn add<'a>(zones: &mut BTreeMap<&'a str, (u64, u64)>, zone: &'a str, cpu_milli: u64) {
    let (nodes, cpu) = zones.entry(zone).or_default();
    *nodes += 1;
    *cpu = cpu.saturating_add(cpu_milli);
}

fn shares(zones: BTreeMap<&str, (u64, u64)>, basis: Basis) -> Vec<ZoneCapacity> {
    let size = |&(nodes, cpu): &(u64, u64)| match basis {
        Basis::Cpu => cpu,
        Basis::Nodes => nodes,
    };
    let total = zones.values().map(size).fold(0u64, u64::saturating_add);
    let part = |zone: &(u64, u64)| {
        if total == 0 { 0.0 } else { size(zone) as f64 / total as f64 }
    };
    zones
        .into_iter()
        .map(|(name, zone)| ZoneCapacity {
            name: name.into(),
            nodes: zone.0,
            cpu_milli: zone.1,
            share: part(&zone),
        })
        .collect()
}
