//! What a single node can claim.
//!
//! Nothing but the node's own proxy sees the connections that start on the node, so its figures cannot be checked
//! against others. They can be bounded by what is possible and by what one node may decide alone:
//!
//! 1. **By its CPU.** Whoever opens a connection spends CPU on it. [`CONNECTIONS_PER_CORE`] is far above what programs
//!    reach (a load generator that does nothing else opens some ten thousand per core and second) and far below what
//!    a counter can claim. All Services of a node share this bound. It decides for busy Services: a node with 4 of the
//!    400 cores of a cluster can add 100,000 connections per second to what the others report, and no more.
//! 2. **By its part of the Service.** One node counts for at most [`MOST_OF_ONE_NODE`] of a Service. What it claims
//!    above that is taken to come from the zones by their capacity, as without measuring. It decides for Services
//!    with little traffic, for which any node has CPU enough to send all of it.
//!
//! The second bound cannot follow the node's part of the cluster's CPU: an ingress gateway on one node of a hundred may
//! honestly send 70 % of what a Service gets, and the shares have to follow it, because they would overload its zone
//! otherwise. So the bound is above that. A node that honestly sends everything (a single gateway, nothing else) has
//! 75 % counted for its zone and the rest by capacity: with three equal zones its zone has 83 %.
//!
//! A node that lies can therefore make its zone look like 83 % of the traffic where it is a third. With `balanced` and
//! endpoints spread evenly that costs the busiest endpoint 30 % above its fair share. The reverse error, not to believe
//! an honest node that sends 70 %, costs 110 %. Both are tested. The figures of a decision name the part of the largest
//! node, and the reason is `DemandOfOneNode` where the bound has an effect.
//!
//! Several nodes that lie together are not stopped by the second bound, only by the first, and by the limits on how
//! fast shares change.

/// The most connections per core and second that a node can claim.
pub const CONNECTIONS_PER_CORE: f64 = 25_000.0;

/// The largest part of a Service's connections that one node counts for.
pub const MOST_OF_ONE_NODE: f64 = 0.75;

/// The node that sends most to a Service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Largest {
    /// The number of its zone.
    pub zone: usize,
    /// Its connections per second.
    pub rate: f64,
}

/// The most connections per second of a node, to all Services together. A node that does not tell its CPU is taken to
/// have one core.
pub fn most_per_second(cpu_milli: Option<u64>) -> f64 {
    CONNECTIONS_PER_CORE * (cpu_milli.unwrap_or(1000) as f64 / 1000.0)
}

/// Takes what the largest node claims above its bound away from its zone, and gives it to all zones by the model.
/// `parts` and `model` add up to 1 each. Returns how much that was.
pub fn bound_largest(parts: &mut [f64], zone: usize, part_of_node: f64, model: &[f64]) -> f64 {
    let excess = (part_of_node - MOST_OF_ONE_NODE).max(0.0);
    if excess > 0.0 {
        parts[zone] -= excess;
        for (part, model) in parts.iter_mut().zip(model) {
            *part += excess * model;
        }
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_counts_for_three_quarters_at_most() {
        let model = [0.5, 0.25, 0.25];
        let rows: [(&str, [f64; 3], f64, [f64; 3]); 3] = [
            ("an ingress with 70 %", [0.8, 0.1, 0.1], 0.7, [0.8, 0.1, 0.1]),
            ("at the bound", [0.75, 0.25, 0.0], 0.75, [0.75, 0.25, 0.0]),
            ("everything", [1.0, 0.0, 0.0], 1.0, [0.875, 0.0625, 0.0625]),
        ];
        for (name, mut parts, of_node, expected) in rows {
            let excess = bound_largest(&mut parts, 0, of_node, &model);
            assert_eq!((parts, excess), (expected, (of_node - 0.75).max(0.0)), "{name}");
        }
    }

    #[test]
    fn cpu_bounds_the_rate_of_a_node() {
        assert_eq!(most_per_second(Some(4000)), 100_000.0);
        assert_eq!(most_per_second(None), 25_000.0);
    }
}
