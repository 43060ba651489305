//! Builders for tests.
#![allow(dead_code, reason = "every test file uses some of these")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use zonewise_topology::allocation::{Allocation, Label};
use zonewise_topology::heuristic::{Assignment, Case, Heuristic};
use zonewise_topology::heuristics;
use zonewise_topology::reason::Reason;
use zonewise_topology::region::{Region, Zone};

/// Zones from (nodes, endpoints), shares by nodes.
pub(crate) fn zones(cells: &[(u64, u64)]) -> Vec<Zone> {
    let nodes: u64 = cells.iter().map(|cell| cell.0).sum();
    let share = |part: u64| {
        if nodes == 0 { 0.0 } else { part as f64 / nodes as f64 }
    };
    cells.iter().map(|&(nodes, endpoints)| Zone { share: share(nodes), nodes, endpoints }).collect()
}

pub(crate) fn heuristic(text: &str) -> Box<dyn Heuristic> {
    heuristics::parse(text).unwrap()
}

/// Decides afresh.
pub(crate) fn allocate(text: &str, cells: &[(u64, u64)]) -> (Reason, Allocation) {
    decide(text, &Region::of(&zones(cells)), None)
}

/// Decides knowing what is in force.
pub(crate) fn decide(
    text: &str,
    region: &Region<'_>,
    previous: Option<&Assignment>,
) -> (Reason, Allocation) {
    let mut allocation = Allocation::new();
    let reason = heuristic(text).allocate(&Case::following(*region, previous), &mut allocation);
    (reason, allocation)
}

/// Endpoints per zone's local group.
pub(crate) fn sizes(allocation: &Allocation) -> Vec<u64> {
    let mut sizes = vec![0; allocation.consumers()];
    for group in allocation.groups() {
        if let Label::Zone(zone) = group.label {
            sizes[zone as usize] += group.size;
        }
    }
    sizes
}

/// Endpoints in groups of another zone than their own.
pub(crate) fn away(allocation: &Allocation) -> u64 {
    let mut away = 0;
    for (index, group) in allocation.groups().iter().enumerate() {
        for (source, &count) in allocation.contents_of(index).iter().enumerate() {
            if group.label != Label::Zone(source as u32) {
                away += count;
            }
        }
    }
    away
}
