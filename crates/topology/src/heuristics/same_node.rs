//! `same-node`: a node uses its own endpoints, else its zone's, else all
//! (`trafficDistribution: PreferSameNode`).
//!
//! Which endpoint sits on which node is the slices' business. For the load per endpoint this model
//! takes the endpoints of a zone as spread evenly over its equally busy nodes: with fewer endpoints
//! than nodes that is the load of `same-zone`; with more, some nodes have one endpoint more than
//! others, and the endpoints of fuller nodes get less.

use super::same_zone;
use crate::allocation::{Allocation, Carrier, Label};
use crate::heuristic::{Case, Heuristic};
use crate::reason::Reason;

/// The heuristic `same-node`.
pub struct SameNode;

impl Heuristic for SameNode {
    fn name(&self) -> &str {
        "same-node"
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        if region.total == 0 {
            out.everywhere(region, Carrier::Plain);
            return Reason::NoEndpoints;
        }
        out.begin(region, Carrier::NodeHints);
        for (index, zone) in region.zones.iter().enumerate() {
            if zone.endpoints < zone.nodes.max(1) || zone.nodes == 0 {
                add(out, index, zone.endpoints, 1, 1);
                continue;
            }
            let (each, fuller) = (zone.endpoints / zone.nodes, zone.endpoints % zone.nodes);
            add(out, index, (each + 1) * fuller, fuller, zone.nodes);
            add(out, index, each * (zone.nodes - fuller), zone.nodes - fuller, zone.nodes);
        }
        if region.unplaced > 0 {
            let group = out.add_group(Label::Unplaced);
            out.put(group, region.zones.len(), region.unplaced);
        }
        out.serve_the_unserved();
        Reason::OwnNode {
            zones_without_endpoints: same_zone::zones_without_endpoints(region),
            endpoints_without_zone: region.unplaced,
        }
    }
}

/// Adds a group of endpoints that gets `nodes` of `all` nodes' traffic.
fn add(out: &mut Allocation, zone: usize, endpoints: u64, nodes: u64, all: u64) {
    if endpoints > 0 {
        let group = out.add_group(Label::Zone(zone as u32));
        out.put(group, zone, endpoints);
        out.set_weight(group, zone, nodes as f64 / all as f64 / endpoints as f64);
    }
}
