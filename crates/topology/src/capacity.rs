//! From Nodes to the part of the traffic each zone sends.
//!
//! Traffic is assumed proportional to the allocatable CPU of the ready worker nodes of a zone, unless
//! it was [measured](Capacity::measured). Every node that did not count is kept with its reason:
//! `explain` shows them.

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

/// What to do when a ready worker node does not report its CPU. All nodes count as equal then; the
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
    /// Connections that proxies have counted.
    Measured,
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
        let by_cpu = without_cpu.is_empty();
        let basis = if by_cpu { Basis::Cpu } else { Basis::Nodes };
        Self { zones: shares(zones, by_cpu), left_out, without_cpu, basis, missing_cpu }
    }

    /// The same nodes with shares that were measured. A zone for which none was keeps its own, and the
    /// others divide what is left. Without any measured share, nothing changes.
    pub fn measured(&self, share_of: impl Fn(&str) -> Option<f64>) -> Self {
        let shares: Vec<Option<f64>> = self
            .zones
            .iter()
            .map(|zone| share_of(&zone.name).filter(|share| *share > 0.0))
            .collect();
        let known: f64 = shares.iter().flatten().sum();
        if known == 0.0 {
            return self.clone();
        }
        let unknown = self.zones.iter().zip(&shares).filter(|(_, share)| share.is_none());
        let left = 1.0 - unknown.map(|(zone, _)| zone.share).sum::<f64>();
        let mut capacity = Self { basis: Basis::Measured, ..self.clone() };
        for (zone, share) in capacity.zones.iter_mut().zip(shares) {
            if let Some(share) = share {
                zone.share = share / known * left;
            }
        }
        capacity
    }

    /// The part of all traffic that a node of a zone sends: its part of the zone's CPU, or of the zone's
    /// nodes where some do not report CPU.
    pub fn share_of_node(&self, zone: &ZoneCapacity, cpu_milli: Option<u64>) -> f64 {
        let part = if self.without_cpu.is_empty() {
            cpu_milli.unwrap_or(0) as f64 / zone.cpu_milli as f64
        } else {
            1.0 / zone.nodes as f64
        };
        zone.share * part
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

fn shares(zones: BTreeMap<&str, (u64, u64)>, by_cpu: bool) -> Vec<ZoneCapacity> {
    let size = |&(nodes, cpu): &(u64, u64)| if by_cpu { cpu } else { nodes };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two zones of one node each, with 3 cores and 1.
    fn capacity(missing_cpu: MissingCpu, second: Option<u64>) -> Capacity {
        let node = |name, zone, cpu_milli| NodeCapacity {
            name,
            zone: Some(zone),
            cpu_milli,
            ready: true,
            control_plane: false,
        };
        let nodes = [node("n1", "a", Some(3000)), node("n2", "b", second)];
        Capacity::of(&nodes, missing_cpu)
    }

    #[test]
    fn measured_shares_replace_those_of_the_nodes() {
        let by_cpu = capacity(MissingCpu::Refuse, Some(1000));
        let rows = [
            ("both", [Some(0.2), Some(0.8)], [0.2, 0.8], Basis::Measured),
            ("in any unit", [Some(1.0), Some(3.0)], [0.25, 0.75], Basis::Measured),
            ("one is not known", [None, Some(0.9)], [0.75, 0.25], Basis::Measured),
            ("none is known", [None, None], [0.75, 0.25], Basis::Cpu),
            ("nothing is sent", [Some(0.0), Some(0.0)], [0.75, 0.25], Basis::Cpu),
        ];
        for (name, shares, expected, basis) in rows {
            let measured = by_cpu.measured(|zone| if zone == "a" { shares[0] } else { shares[1] });
            let found: Vec<f64> = measured.zones.iter().map(|zone| zone.share).collect();
            assert_eq!((found, measured.basis), (expected.to_vec(), basis), "{name}");
            assert_eq!(measured.zones[0].cpu_milli, 3000, "{name}: what nodes have is known still");
        }
    }

    #[test]
    fn a_node_sends_its_part_of_the_zone() {
        let by_cpu = capacity(MissingCpu::Refuse, Some(1000));
        assert_eq!(by_cpu.share_of_node(&by_cpu.zones[0], Some(1500)), 0.375);
        let counted = capacity(MissingCpu::CountNodes, None);
        assert_eq!(counted.share_of_node(&counted.zones[1], None), 0.5);
        let measured = by_cpu.measured(|zone| Some(if zone == "a" { 0.2 } else { 0.8 }));
        assert_eq!(measured.share_of_node(&measured.zones[1], Some(500)), 0.4);
    }

    #[test]
    fn measured_shares_do_not_hide_nodes_that_cannot_be_used() {
        let unknown = capacity(MissingCpu::Refuse, None);
        assert_eq!(unknown.measured(|_| Some(0.5)).unusable_nodes(), 1);
    }
}
