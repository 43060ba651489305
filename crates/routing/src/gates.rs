//! What the proxy is allowed to use.

/// Feature gates of the proxy. All are on unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// Gate `TopologyAwareHints`: off means no topology at all, neither hints nor shares.
    pub hints: bool,
    /// Gate `PreferSameTrafficDistribution`: hints for nodes.
    pub node_hints: bool,
    /// Gate `ServiceRoutingPreference`: off means hints only for Services with the topology
    /// annotation at Auto, and no shares, as proxies did before.
    pub routing_preference: bool,
    /// Zone shares on slices.
    pub shares: bool,
    /// Gate `EndpointSliceSubsetting`: off means every slice is consumed.
    pub subsetting: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            hints: true,
            node_hints: true,
            routing_preference: true,
            shares: true,
            subsetting: true,
        }
    }
}
