//! The sets and maps of a table, each with what it is for.

use zonewise_nft::{SetFlags, SetSpec, Type};

/// A set or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Set {
    /// Every ClusterIP.
    ClusterIps,
    /// Addresses that accept NodePorts, where not all local ones do.
    NodePortIps,
    /// Service addresses to the chain of their policy.
    Services,
    /// NodePorts to the chain of their policy.
    NodePorts,
    /// The endpoint in each slot of a service address.
    Slots,
    /// The same for endpoints of this node only.
    LocalSlots,
    /// The endpoint in each slot of a NodePort.
    NodePortSlots,
    /// The same for endpoints of this node only.
    NodePortLocalSlots,
    /// With external policy Local: all endpoints, for traffic from here.
    ClusterPicks,
    /// With external policy Local: endpoints of this node.
    LocalPicks,
    /// As `ClusterPicks`, for NodePorts.
    NodePortClusterPicks,
    /// As `LocalPicks`, for NodePorts.
    NodePortLocalPicks,
    /// Service addresses that nobody serves.
    NoEndpoints,
    /// NodePorts that nobody serves.
    NoEndpointsNodePorts,
    /// Endpoints of this node, as a pair with themselves.
    Hairpins,
    /// Load balancer addresses that only some may use.
    Guarded,
    /// Who may use them.
    Sources,
    /// The endpoint a client stays with.
    Affinity,
    /// Service addresses whose clients stay with an endpoint.
    Sticky,
    /// NodePorts whose clients stay with an endpoint.
    StickyNodePorts,
    /// The zone of each endpoint, as its counter.
    EndpointZones,
    /// Connections per service address.
    Connections,
    /// Connections per NodePort.
    NodePortConnections,
}

use Type::{Address, Counter, Number, Port, Protocol, Verdict};

const FRONTEND: &[Type] = &[Address, Protocol, Port];
const NODE_PORT: &[Type] = &[Protocol, Port];
const SLOT: &[Type] = &[Address, Protocol, Port, Number];
const NODE_PORT_SLOT: &[Type] = &[Protocol, Port, Number];
const ENDPOINT: &[Type] = &[Address, Port];

/// Clients remembered at most; beyond it new ones are served without affinity.
pub const AFFINITY_SIZE: u32 = 1 << 20;

const fn plain() -> SetFlags {
    SetFlags { interval: false, dynamic: false, timeout: false, counter: false }
}

const fn spec(
    name: &'static str,
    key: &'static [Type],
    data: &'static [Type],
    comment: &'static str,
) -> SetSpec {
    SetSpec { name, key, data, flags: plain(), size: None, comment }
}

const fn counted(name: &'static str, key: &'static [Type], comment: &'static str) -> SetSpec {
    SetSpec { flags: SetFlags { counter: true, ..plain() }, ..spec(name, key, &[], comment) }
}

static SPECS: [SetSpec; 23] = [
    spec("cluster-ips", &[Address], &[], "every ClusterIP"),
    spec("nodeport-ips", &[Address], &[], "addresses that accept NodePorts"),
    spec("services", FRONTEND, &[Verdict], "service addresses, to the chain of their policy"),
    spec("nodeports", NODE_PORT, &[Verdict], "NodePorts, to the chain of their policy"),
    spec("slots", SLOT, ENDPOINT, "service address and slot, to the endpoint in it"),
    spec("local-slots", SLOT, ENDPOINT, "the same, endpoints of this node only"),
    spec("nodeport-slots", NODE_PORT_SLOT, ENDPOINT, "NodePort and slot, to the endpoint in it"),
    spec("nodeport-local-slots", NODE_PORT_SLOT, ENDPOINT, "the same, endpoints of this node only"),
    spec("cluster-picks", FRONTEND, &[Verdict], "external policy Local, traffic from here"),
    spec("local-picks", FRONTEND, &[Verdict], "external policy Local, traffic from outside"),
    spec("nodeport-cluster-picks", NODE_PORT, &[Verdict], "the same for NodePorts, from here"),
    spec("nodeport-local-picks", NODE_PORT, &[Verdict], "the same for NodePorts, from outside"),
    spec("no-endpoints", FRONTEND, &[Verdict], "service addresses that nobody serves"),
    spec("no-endpoints-nodeports", NODE_PORT, &[Verdict], "NodePorts that nobody serves"),
    spec("hairpins", &[Address, Address], &[], "endpoints of this node that may call themselves"),
    spec("guarded", FRONTEND, &[], "load balancer addresses with source ranges"),
    SetSpec {
        flags: SetFlags { interval: true, ..plain() },
        ..spec("sources", &[Address, Protocol, Port, Address], &[], "who may use them")
    },
    SetSpec {
        flags: SetFlags { dynamic: true, timeout: true, ..plain() },
        size: Some(AFFINITY_SIZE),
        ..spec(
            "affinity",
            &[Address, Address, Protocol, Port],
            ENDPOINT,
            "client and service, to the endpoint it stays with",
        )
    },
    spec("sticky", FRONTEND, &[Verdict], "service addresses with session affinity"),
    spec("sticky-nodeports", NODE_PORT, &[Verdict], "NodePorts with session affinity"),
    spec("endpoint-zones", &[Address], &[Counter], "endpoints, to the counter of their zone"),
    counted("connections", FRONTEND, "connections per service address"),
    counted("nodeport-connections", NODE_PORT, "connections per NodePort"),
];

impl Set {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 23] = [
        Self::ClusterIps,
        Self::NodePortIps,
        Self::Services,
        Self::NodePorts,
        Self::Slots,
        Self::LocalSlots,
        Self::NodePortSlots,
        Self::NodePortLocalSlots,
        Self::ClusterPicks,
        Self::LocalPicks,
        Self::NodePortClusterPicks,
        Self::NodePortLocalPicks,
        Self::NoEndpoints,
        Self::NoEndpointsNodePorts,
        Self::Hairpins,
        Self::Guarded,
        Self::Sources,
        Self::Affinity,
        Self::Sticky,
        Self::StickyNodePorts,
        Self::EndpointZones,
        Self::Connections,
        Self::NodePortConnections,
    ];

    /// Its declaration.
    pub fn spec(self) -> &'static SetSpec {
        &SPECS[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether a packet can be on its way to an element of it while a commit passes by: such
    /// elements are removed one commit later.
    pub fn outlives(self) -> bool {
        matches!(
            self,
            Self::Slots
                | Self::LocalSlots
                | Self::NodePortSlots
                | Self::NodePortLocalSlots
                | Self::ClusterPicks
                | Self::LocalPicks
                | Self::NodePortClusterPicks
                | Self::NodePortLocalPicks
        )
    }

    /// The map whose elements send packets here by way of a chain that is always there. Unlike slots
    /// beyond a count, what is left in such a map is found.
    pub fn entrance(self) -> Option<Self> {
        match self {
            Self::ClusterPicks | Self::LocalPicks => Some(Self::Services),
            Self::NodePortClusterPicks | Self::NodePortLocalPicks => Some(Self::NodePorts),
            _ => None,
        }
    }

    /// The maps that this one is the entrance of.
    pub fn behind(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |set| set.entrance() == Some(self))
    }

    /// Whether the kernel fills it by itself.
    pub fn learned(self) -> bool {
        self == Self::Affinity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_its_own_declaration() {
        let names: Vec<&str> = Set::ALL.iter().map(|set| set.name()).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((names.len(), unique.len()), (SPECS.len(), SPECS.len()));
        for (place, set) in Set::ALL.into_iter().enumerate() {
            assert_eq!(set as usize, place);
        }
        assert_eq!(Set::NodePortConnections.name(), "nodeport-connections");
        assert_eq!(Set::Affinity.name(), "affinity");
        assert_eq!(Set::Sources.name(), "sources");
    }
}
