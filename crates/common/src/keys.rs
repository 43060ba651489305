//! Keys of labels, annotations and conditions, and the domain of our own.
//!
//! Those under `kubernetes.io` are defined by Kubernetes
//! (<https://kubernetes.io/docs/reference/labels-annotations-taints/>), those under `zonewise.dev`
//! by this project: docs/controller.md describes them for users.

/// The domain of our own keys, and of heuristics that are named as a routing preference.
pub const DOMAIN: &str = "zonewise.dev/";

// === on Nodes ===

/// Label: the zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Label: the region of a Node.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Label: the host name of a Node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label, with the value `yes`: zonewise proxy runs on the Node instead of kube-proxy.
pub const NODE_PROXY: &str = "zonewise.dev/proxy";
/// Labels that mark a control-plane Node, whatever their value.
pub const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

// === on Namespaces ===

/// Label: the name of a Namespace, set by the API server.
pub const METADATA_NAME: &str = "kubernetes.io/metadata.name";

// === on Services ===

/// Annotation: `Auto` asks for topology aware hints.
pub const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// Annotation: the older name of [`TOPOLOGY_MODE`], which wins where both are set.
pub const TOPOLOGY_AWARE_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// Annotation: asks for subsets (KEP-2004).
pub const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
/// Annotation: the routing preference (KEP-4444, which the API does not have as a field).
pub const ROUTING_PREFERENCE: &str = "zonewise.dev/routing-preference";
/// Annotation: the number of endpoints around which subsetting starts.
pub const STARTING_THRESHOLD: &str = "zonewise.dev/starting-threshold";
/// Annotation: the distance from the starting threshold at which subsetting goes on and off.
pub const PADDING: &str = "zonewise.dev/padding";
/// Annotation: what the shares of zones are taken from, `measured` or `model`.
pub const DEMAND: &str = "zonewise.dev/demand";
/// Annotation: what each endpoint counts for, `equal`, `cpu-request` or `cpu-use`.
pub const ENDPOINT_WEIGHT: &str = "zonewise.dev/endpoint-weight";
/// Annotation: what happens with zones whose endpoints fail more often than others, `spill` or `ignore`.
pub const FAILING_ZONES: &str = "zonewise.dev/failing-zones";
/// Label: the proxy that serves a Service, where it is not the default one.
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Prefix of the types of the conditions that the controller writes.
pub const CONDITION_PREFIX: &str = "zonewise.dev/RoutingPreference";

// === on EndpointSlices ===

/// Label: the name of the Service that a slice belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label: the name of the controller that writes a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label, with an empty value: the slice belongs to a headless Service.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label: the one zone that consumes a slice.
pub const FOR_ZONE: &str = "endpointslice.kubernetes.io/for-zone";
/// Label: the one region that consumes a slice.
pub const FOR_REGION: &str = "endpointslice.kubernetes.io/for-region";
/// Annotation: the time of the change that led to a write.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation: how the zones share the endpoints of a slice.
pub const ZONE_SHARES: &str = "zonewise.dev/zone-shares";

/// Label: guard mode has taken its hints back. The built-in controller removes the label and writes its own hints.
pub const RELEASED: &str = "zonewise.dev/released";

// === on events, and on the Leases of proxies ===

/// Label: the component of ours that writes the object; [`CONTROLLER`] or [`PROXY`].
pub const COMPONENT: &str = "zonewise.dev/component";
/// The value of [`COMPONENT`] for the controller.
pub const CONTROLLER: &str = "controller";
/// The value of [`COMPONENT`] for a proxy.
pub const PROXY: &str = "proxy";
/// Annotation: every change up to this resource version is in the node's kernel.
pub const APPLIED: &str = "zonewise.dev/applied";
/// Annotation: the Services that the node's kernel refuses.
pub const REFUSED: &str = "zonewise.dev/refused";
/// Annotation: where the proxy serves what it has counted: the port, and the fingerprint of the certificate.
pub const DEMAND_SERVER: &str = "zonewise.dev/demand-server";

// === in the lab ===

/// Label: an object that the lab has made, with the part it plays as its value.
pub const LAB: &str = "zonewise.dev/lab";
