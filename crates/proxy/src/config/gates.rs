//! The feature gates, in one table.

use super::Config;

/// What feature gates turn on or off; all are on by default.
pub(super) struct Gates {
    pub(super) routing: zonewise_routing::FeatureGates,
    pub(super) allow_external_ips: bool,
}

type Switch = fn(&mut Gates) -> &mut bool;

const TABLE: [(&str, Switch); 6] = [
    ("AllowServiceExternalIPs", |gates| &mut gates.allow_external_ips),
    ("EndpointSliceSubsetting", |gates| &mut gates.routing.subsetting),
    ("PreferSameTrafficDistribution", |gates| &mut gates.routing.node_hints),
    ("ServiceRoutingPreference", |gates| &mut gates.routing.routing_preference),
    ("TopologyAwareHints", |gates| &mut gates.routing.hints),
    ("ZoneShares", |gates| &mut gates.routing.shares),
];

/// The names of all feature gates.
pub const GATES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut row = 0;
    while row < names.len() {
        names[row] = TABLE[row].0;
        row += 1;
    }
    names
};

impl Gates {
    /// The gates of a configuration.
    pub(super) fn of(config: &Config) -> Self {
        Self { routing: config.routing, allow_external_ips: config.allow_external_ips }
    }

    /// Turns a gate on or off; false if there is no gate of this name.
    pub(super) fn set(&mut self, name: &str, on: bool) -> bool {
        let known = TABLE.iter().find(|(gate, _)| *gate == name);
        if let Some((_, switch)) = known {
            *switch(self) = on;
        }
        known.is_some()
    }

    /// All gates, and whether they are on.
    pub(super) fn all(mut self) -> Vec<(&'static str, bool)> {
        TABLE.iter().map(|(name, switch)| (*name, *switch(&mut self))).collect()
    }
}
