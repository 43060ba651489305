//! Who I am.

use crate::Name;

/// The node that routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLocation {
    /// Its name; empty if it is unknown, and then nothing is local.
    pub node: Name,
    /// Its zone.
    pub zone: Option<Name>,
    /// Its region.
    pub region: Option<Name>,
}

impl NodeLocation {
    /// From a node's name and labels; an empty label says nothing.
    pub fn new(node: &str, zone: Option<&str>, region: Option<&str>) -> Self {
        let named = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Name::from);
        Self { node: node.into(), zone: named(zone), region: named(region) }
    }

    /// The same, with empty names taken as none.
    pub(crate) fn tidy(self) -> Self {
        let named = |name: Option<Name>| name.filter(|name| !name.is_empty());
        Self { node: self.node, zone: named(self.zone), region: named(self.region) }
    }
}
