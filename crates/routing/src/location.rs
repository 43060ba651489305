//! The node that the proxy runs on.

use zonewise_common::name::Name;

/// Name, zone and region of the node whose traffic is routed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLocation {
    /// The name; empty if it is not known, and then no endpoint counts as local.
    pub node: Name,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<Name>,
    /// The label `topology.kubernetes.io/region`.
    pub region: Option<Name>,
}

impl NodeLocation {
    /// From a node's name and labels. An empty label counts as an absent one.
    pub fn new(node: &str, zone: Option<&str>, region: Option<&str>) -> Self {
        let named = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Name::from);
        Self { node: node.into(), zone: named(zone), region: named(region) }
    }

    /// The same location, with an empty zone or region replaced by `None`.
    pub(crate) fn normalized(self) -> Self {
        let named = |name: Option<Name>| name.filter(|name| !name.is_empty());
        Self { node: self.node, zone: named(self.zone), region: named(self.region) }
    }
}
