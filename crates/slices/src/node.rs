//! Nodes: their zone, region, CPU and readiness, and what they add up to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use zonewise_common::ip::parse_address;
use zonewise_common::keys::{CONTROL_PLANE, REGION, ZONE};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_topology::capacity::{self, Capacity, MissingCpu};

use crate::evacuation::Evacuations;
use crate::quantity::Quantity;
use crate::requested::Consumers;
use crate::slice::Hints;
use crate::wire::{Condition, Meta, is_ready};

/// The fields of a Node that are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// Its zone, if labelled.
    pub zone: Option<Name>,
    /// Its region, if labelled.
    pub region: Option<Name>,
    /// Allocatable CPU in thousandths of a core, if reported.
    pub cpu_milli: Option<u64>,
    /// Whether the Ready condition is True.
    pub ready: bool,
    /// Whether it is a control-plane node.
    pub control_plane: bool,
    /// The first address of the type `InternalIP`.
    pub internal_ip: Option<IpAddr>,
}

impl Node {
    /// The input for the capacity of zones.
    pub fn in_zone(&self) -> capacity::NodeCapacity<'_> {
        self.at(self.zone.as_deref())
    }

    /// The input for the capacity of regions.
    pub fn in_region(&self) -> capacity::NodeCapacity<'_> {
        self.at(self.region.as_deref())
    }

    fn at<'a>(&'a self, zone: Option<&'a str>) -> capacity::NodeCapacity<'a> {
        capacity::NodeCapacity {
            name: &self.name,
            zone,
            cpu_milli: self.cpu_milli,
            ready: self.ready,
            control_plane: self.control_plane,
        }
    }
}

impl Keyed for Node {
    fn key(&self) -> Key {
        (Name::default(), Name::clone(&self.name))
    }
}

/// The nodes of a cluster, and the capacity of its zones and regions.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The nodes by name.
    pub by_name: BTreeMap<Name, Node>,
    /// The capacity of each zone, on which hints and zone shares are based.
    pub zones: Capacity,
    /// The same for subsets: if a node does not report its CPU, all nodes count as equal.
    pub zones_counted: Capacity,
    /// The capacity of each region, for subsets of regions. Computed like `zones_counted`.
    pub regions_counted: Capacity,
    /// The zones that are being emptied.
    pub evacuations: Evacuations,
    /// Hints to each zone of `zones`, so that all endpoints share them.
    hints: Vec<Arc<Hints>>,
}

impl Nodes {
    /// Computes the capacities. `missing_cpu` says what happens when a node does not report its CPU.
    pub fn new(by_name: BTreeMap<Name, Node>, missing_cpu: MissingCpu) -> Self {
        let zones: Vec<_> = by_name.values().map(Node::in_zone).collect();
        let regions: Vec<_> = by_name.values().map(Node::in_region).collect();
        let capacity = Capacity::of(&zones, missing_cpu);
        let hints = |zone: &capacity::ZoneCapacity| Arc::new(Hints::to_zone(&*zone.name));
        Self {
            hints: capacity.zones.iter().map(hints).collect(),
            zones: capacity,
            zones_counted: Capacity::of(&zones, MissingCpu::CountNodes),
            regions_counted: Capacity::of(&regions, MissingCpu::CountNodes),
            evacuations: Evacuations::default(),
            by_name,
        }
    }

    /// The same nodes while these zones are being emptied.
    #[must_use]
    pub fn evacuating(self, evacuations: Evacuations) -> Self {
        Self { evacuations, ..self }
    }

    /// The same zones with the shares of a Service that were measured; see [`Capacity::measured`]. Their endpoints count
    /// in full.
    pub fn measured(&self, share_of: impl Fn(&str) -> Option<f64>) -> MeasuredZones {
        let counted = self.zones_counted.measured(&share_of);
        let zones = self.zones.measured(&share_of);
        MeasuredZones { zones, zones_counted: counted, percents: BTreeMap::new() }
    }

    /// The capacity that decides: of regions for subsets of regions, otherwise of zones, with the shares
    /// that were measured where there are such. Demand of regions is not measured.
    pub fn capacity<'a>(
        &'a self,
        consumers: Option<Consumers>,
        measured: Option<&'a MeasuredZones>,
    ) -> &'a Capacity {
        match consumers {
            None => measured.map_or(&self.zones, |measured| &measured.zones),
            Some(Consumers::Zones) => {
                measured.map_or(&self.zones_counted, |measured| &measured.zones_counted)
            }
            Some(Consumers::Regions) => &self.regions_counted,
        }
    }

    /// Hints to a zone.
    pub(crate) fn hints_to(&self, zone: &str) -> Arc<Hints> {
        let known = self.zones.zones.binary_search_by(|known| (*known.name).cmp(zone));
        known
            .map_or_else(|_| Arc::new(Hints::to_zone(zone)), |index| Arc::clone(&self.hints[index]))
    }
}

/// What endpoints count for where nothing else is known.
const FULL_PERCENT: u16 = 100;

/// What is measured of one Service: the capacity of zones with its shares instead of those of the nodes, and what the
/// endpoints of zones count for.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredZones {
    /// For hints and zone shares: see [`Nodes::zones`].
    zones: Capacity,
    /// For subsets: see [`Nodes::zones_counted`].
    zones_counted: Capacity,
    /// What the endpoints of zones count for, in percent, where that is not 100.
    percents: BTreeMap<Name, u16>,
}

impl MeasuredZones {
    /// The same with zones whose endpoints count for so many percent of what they count for otherwise.
    #[must_use]
    pub fn counting(mut self, percents: impl Iterator<Item = (Name, u16)>) -> Self {
        for (zone, percent) in percents {
            let known = self.percents.remove(&zone).unwrap_or(FULL_PERCENT);
            let both = u32::from(known) * u32::from(percent) / u32::from(FULL_PERCENT);
            let both = u16::try_from(both).unwrap_or(u16::MAX).max(1);
            if both != FULL_PERCENT {
                self.percents.insert(zone, both);
            }
        }
        self
    }

    /// What the endpoints of zones count for, in percent, where that is not 100.
    pub fn percents(&self) -> &BTreeMap<Name, u16> {
        &self.percents
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "lenient")]
    allocatable: Allocatable,
    #[serde(deserialize_with = "lenient")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "lenient")]
    addresses: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: Box<str>,
    #[serde(deserialize_with = "lenient")]
    address: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    cpu: Option<Quantity>,
}

impl From<Wire> for Node {
    fn from(wire: Wire) -> Self {
        let labels = &wire.metadata.labels;
        let label = |key| labels.name(key).filter(|value| !value.is_empty()).cloned();
        Self {
            zone: label(ZONE),
            region: label(REGION),
            cpu_milli: wire.status.allocatable.cpu.and_then(|cpu| cpu.milli()),
            ready: is_ready(&wire.status.conditions),
            internal_ip: {
                let internal = |address: &&Address| &*address.kind == "InternalIP";
                let mut all = wire.status.addresses.iter().filter(internal);
                all.find_map(|address| parse_address(&address.address))
            },
            control_plane: CONTROL_PLANE.iter().any(|key| labels.get(key).is_some()),
            name: wire.metadata.name,
        }
    }
}
