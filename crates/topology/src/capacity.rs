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

/// What to do when a ready worker node does not tell its CPU. All nodes count as equal then; the
/// question is whether that is good enough to decide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCpu {
    /// Capacity cannot be trusted: no hints from shares (the Topology Aware Routing page).
    #[default]
    Refuse,
    /// The number of nodes is good enough (KEP-2433, and subsetting in KEP-2004).
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
    /// Nodes that count and report no allocatable CPU. If there is one, nodes are counted.
    pub without_cpu: Vec<Box<str>>,
    /// What `share` was computed from.
    pub basis: Basis,
    missing_cpu: MissingCpu,
}

impl Capacity {
    /// Reads all nodes of a cluster.
    pub fn of(nodes: &[NodeCapacity<'_>], missing_cpu: MissingCpu) -> Self {
        let mut zones: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let (mut left_out, mut without_cpu) = (Vec::new(), Vec::new());
        for node in nodes {
            match (fault(node), node.zone) {
                (None, Some(zone)) => {
                    let cpu_milli = node.cpu_milli.unwrap_or(0);
                    add(&mut zones, zone, cpu_milli);
                    if cpu_milli == 0 {
                        without_cpu.push(node.name.into());
                    }
                }
                (why, _) => left_out.push(LeftOut {
                    node: node.name.into(),
                    why: why.unwrap_or(WhyLeftOut::NoZone),
                }),
            }
        }
        let basis = if without_cpu.is_empty() { Basis::Cpu } else { Basis::Nodes };
        Self { zones: shares(zones, basis), left_out, without_cpu, basis, missing_cpu }
    }

    /// Ready worker nodes without zone or CPU, where the chosen policy makes that fatal.
    pub fn unusable_nodes(&self) -> u64 {
        let zoneless = self.left_out.iter().filter(|left| left.why == WhyLeftOut::NoZone).count();
        match self.missing_cpu {
            MissingCpu::Refuse => (zoneless + self.without_cpu.len()) as u64,
            MissingCpu::CountNodes => 0,
        }
    }
}

fn fault(node: &NodeCapacity<'_>) -> Option<WhyLeftOut> {
    if node.control_plane {
        Some(WhyLeftOut::ControlPlane)
    } else if !node.ready {
        Some(WhyLeftOut::NotReady)
    } else if node.zone.is_none_or(str::is_empty) {
        Some(WhyLeftOut::NoZone)
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
