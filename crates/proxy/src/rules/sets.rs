//! The sets and maps of a table: one row each, with what it is for, how it is treated and its
//! declaration.

use zonewise_nft::Type::{Address, Counter, Number, Port, Protocol, Verdict};
use zonewise_nft::{SetFlags, SetSpec, Type};

use crate::config::CountBy;

/// What elements of a set are to packets, which decides how they are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its elements come and go in the batch that changes them.
    Plain,
    /// The endpoints in the slots of a frontend. A packet that has drawn a slot may still be on its
    /// way to it when the slots become fewer: unused ones are removed a moment later.
    Slots,
    /// The second lookup of a frontend with external policy Local, after one in this map, by way of a
    /// chain that is always there. Removed a moment later as slots are; but unlike a slot beyond the
    /// count, an element that is left behind would be found again when the frontend comes back.
    Picks(Set),
    /// Leads to what counts the connections of a zone. Only there where exactly this is to be counted.
    Counting(CountBy),
}

macro_rules! sets {
    ($($(#[$doc:meta])* $set:ident: $role:expr, $spec:expr;)*) => {
        /// A set or map.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Set {
            $($(#[$doc])* $set,)*
        }

        impl Set {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$set),*];

            /// Its declaration.
            pub fn spec(self) -> &'static SetSpec {
                match self {
                    $(Self::$set => const { &$spec },)*
                }
            }

            /// How its elements are changed.
            pub fn role(self) -> Role {
                match self {
                    $(Self::$set => $role,)*
                }
            }
        }
    };
}

const FRONTEND: &[Type] = &[Address, Protocol, Port];
const NODE_PORT: &[Type] = &[Protocol, Port];
const SLOT: &[Type] = &[Address, Protocol, Port, Number];
const NODE_PORT_SLOT: &[Type] = &[Protocol, Port, Number];
const ENDPOINT: &[Type] = &[Address, Port];

sets! {
    /// Every ClusterIP.
    ClusterIps: Role::Plain, spec("cluster-ips", &[Address], &[], "every ClusterIP");
    /// Addresses that accept NodePorts, where not all local ones do.
    NodePortIps: Role::Plain,
        spec("nodeport-ips", &[Address], &[], "addresses that accept NodePorts");
    /// Service addresses to the chain of their policy.
    Services: Role::Plain,
        spec("services", FRONTEND, &[Verdict], "service addresses, to the chain of their policy");
    /// NodePorts to the chain of their policy.
    NodePorts: Role::Plain,
        spec("nodeports", NODE_PORT, &[Verdict], "NodePorts, to the chain of their policy");
    /// The endpoint in each slot of a service address.
    Slots: Role::Slots,
        spec("slots", SLOT, ENDPOINT, "service address and slot, to the endpoint in it");
    /// The same for endpoints of this node only.
    LocalSlots: Role::Slots,
        spec("local-slots", SLOT, ENDPOINT, "the same, endpoints of this node only");
    /// The endpoint in each slot of a NodePort.
    NodePortSlots: Role::Slots,
        spec("nodeport-slots", NODE_PORT_SLOT, ENDPOINT, "NodePort and slot, to the endpoint in it");
    /// The same for endpoints of this node only.
    NodePortLocalSlots: Role::Slots,
        spec("nodeport-local-slots", NODE_PORT_SLOT, ENDPOINT, "the same, endpoints of this node only");
    /// Service addresses whose endpoints have weights: a group is drawn before `services` is looked at.
    Weighted: Role::Plain,
        spec("weighted", FRONTEND, &[], "service addresses whose endpoints have weights");
    /// The same for NodePorts.
    NodePortWeighted: Role::Plain,
        spec("nodeport-weighted", NODE_PORT, &[], "NodePorts whose endpoints have weights");
    /// With external policy Local: addresses where the endpoints for traffic of this node and its Pods have
    /// weights.
    WeightedPicks: Role::Plain,
        spec("weighted-picks", FRONTEND, &[], "external policy Local, traffic from here has weights");
    /// The same for NodePorts.
    NodePortWeightedPicks: Role::Plain,
        spec("nodeport-weighted-picks", NODE_PORT, &[], "the same for NodePorts");
    /// The chain for a drawn group of endpoints. What is not here is drawn for the largest group, whose chain is
    /// where the address leads without weights.
    Groups: Role::Plain,
        spec("groups", SLOT, &[Verdict], "service address and number, to the group that it draws");
    /// The same for NodePorts.
    NodePortGroups: Role::Plain,
        spec("nodeport-groups", NODE_PORT_SLOT, &[Verdict], "NodePort and number, to the group that it draws");
    /// With external policy Local: the chain for traffic of this node and its Pods, to any endpoint.
    ClusterPicks: Role::Picks(Set::Services),
        spec("cluster-picks", FRONTEND, &[Verdict], "external policy Local, traffic from here");
    /// With external policy Local: the chain for other traffic, to endpoints of this node.
    LocalPicks: Role::Picks(Set::Services),
        spec("local-picks", FRONTEND, &[Verdict], "external policy Local, traffic from outside");
    /// As `ClusterPicks`, for NodePorts.
    NodePortClusterPicks: Role::Picks(Set::NodePorts),
        spec("nodeport-cluster-picks", NODE_PORT, &[Verdict], "the same for NodePorts, from here");
    /// As `LocalPicks`, for NodePorts.
    NodePortLocalPicks: Role::Picks(Set::NodePorts),
        spec("nodeport-local-picks", NODE_PORT, &[Verdict], "the same for NodePorts, from outside");
    /// Service addresses without endpoints, to what happens to their packets.
    NoEndpoints: Role::Plain,
        spec("no-endpoints", FRONTEND, &[Verdict], "service addresses without endpoints");
    /// NodePorts without endpoints, to what happens to their packets.
    NoEndpointsNodePorts: Role::Plain,
        spec("no-endpoints-nodeports", NODE_PORT, &[Verdict], "NodePorts without endpoints");
    /// Endpoints of this node, as a pair with themselves.
    Hairpins: Role::Plain,
        spec("hairpins", &[Address, Address], &[], "endpoints of this node that may call themselves");
    /// Load balancer addresses with source ranges.
    Guarded: Role::Plain,
        spec("guarded", FRONTEND, &[], "load balancer addresses with source ranges");
    /// The source ranges of guarded addresses.
    Sources: Role::Plain, SetSpec {
        flags: SetFlags { interval: true, ..NO_FLAGS },
        ..spec("sources", &[Address, Protocol, Port, Address], &[], "who may use them")
    };
    /// Service addresses with session affinity, to the chain that remembers the endpoint.
    Sticky: Role::Plain,
        spec("sticky", FRONTEND, &[Verdict], "service addresses with session affinity");
    /// NodePorts with session affinity, to the chain that remembers the endpoint.
    StickyNodePorts: Role::Plain,
        spec("sticky-nodeports", NODE_PORT, &[Verdict], "NodePorts with session affinity");
    /// The zone of each endpoint, as its counter.
    EndpointZones: Role::Counting(CountBy::Zones),
        spec("endpoint-zones", &[Address], &[Counter], "endpoints, to the counter of their zone");
    /// The zone of each endpoint, as the chain that counts by Service.
    EndpointZoneChains: Role::Counting(CountBy::Services),
        spec("endpoint-zone-chains", &[Address], &[Verdict], "endpoints, to the chain that counts for their zone");
}

const NO_FLAGS: SetFlags =
    SetFlags { interval: false, dynamic: false, timeout: false, counter: false };

const fn spec(
    name: &'static str,
    key: &'static [Type],
    data: &'static [Type],
    comment: &'static str,
) -> SetSpec {
    SetSpec { name, key, data, flags: NO_FLAGS, size: None, comment }
}

impl Set {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Whether a packet can be on its way to an element of it while a batch is committed: such
    /// elements are removed one commit later.
    pub fn is_removed_later(self) -> bool {
        matches!(self.role(), Role::Slots | Role::Picks(_))
    }

    /// The map whose elements lead to this one, for [`Role::Picks`].
    pub fn entrance(self) -> Option<Self> {
        match self.role() {
            Role::Picks(entrance) => Some(entrance),
            Role::Plain | Role::Slots | Role::Counting(_) => None,
        }
    }

    /// The maps that this one is the entrance of.
    pub fn behind(self) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |set| set.entrance() == Some(self))
    }

    /// Whether a table has it that counts connections this way.
    pub fn exists_with(self, count: CountBy) -> bool {
        match self.role() {
            Role::Counting(by) => count == by,
            Role::Plain | Role::Slots | Role::Picks(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_set_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Set::ALL.iter().map(|set| set.name()).collect();
        assert_eq!((Set::ALL.len(), names.len()), (27, 27));
        assert_eq!(Set::EndpointZoneChains.name(), "endpoint-zone-chains");
        assert_eq!(Set::Sources.name(), "sources");
    }
}
