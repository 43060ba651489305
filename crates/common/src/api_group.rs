//! API groups and versions, as `apiVersion` has them.

/// The group of EndpointSlices.
pub const DISCOVERY: &str = "discovery.k8s.io";
/// The version of EndpointSlices.
pub const DISCOVERY_V1: &str = "discovery.k8s.io/v1";
/// The group of Leases.
pub const COORDINATION: &str = "coordination.k8s.io";
/// The version of Leases.
pub const COORDINATION_V1: &str = "coordination.k8s.io/v1";
/// The group of ServiceCIDRs.
pub const NETWORKING: &str = "networking.k8s.io";
/// The version of ServiceCIDRs.
pub const NETWORKING_V1: &str = "networking.k8s.io/v1";
/// The version of tables, lists of metadata and options of requests.
pub const METADATA_V1: &str = "meta.k8s.io/v1";
/// The group of our own resources: ZoneAllocations and ZoneEvacuations.
pub const ZONEWISE: &str = "zonewise.dev";
/// The version of our own resources.
pub const ZONEWISE_V1ALPHA1: &str = "zonewise.dev/v1alpha1";
/// The version of configuration files.
pub const CONFIG_V1ALPHA1: &str = "config.zonewise.dev/v1alpha1";
