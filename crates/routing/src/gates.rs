//! Feature gates that decide which parts of an EndpointSlice the proxy may use.

/// The gates that routing depends on. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeatureGates {
    /// Gate `TopologyAwareHints`. Off: neither hints nor zone shares are used.
    pub hints: bool,
    /// Gate `PreferSameTrafficDistribution`. Off: hints for nodes are not used.
    pub node_hints: bool,
    /// Gate `ServiceRoutingPreference`. Off: hints are used only for Services whose annotation
    /// `service.kubernetes.io/topology-mode` is `Auto`, and zone shares are not used. Proxies
    /// older than that gate behave so.
    pub routing_preference: bool,
    /// Off: the annotation `zonewise.dev/zone-shares` on slices is not used.
    pub shares: bool,
    /// Gate `EndpointSliceSubsetting`. Off: the labels `for-zone` and `for-region` are not used,
    /// and the node consumes every slice.
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
